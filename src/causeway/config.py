"""All settings, in one table: name, kind, default, meaning, and when each takes effect.

A setting is an environment variable, CAUSEWAY_<NAME>, or is set from Python with `config.set`,
which wins. The environment is read when a setting is asked for, so os.environ may still be changed
until then. From Python a mistake raises at once; in the environment it must not break `import
torch`, so there it warns, the default is used, and `causeway doctor` exits non-zero for it.

A vendor's settings, CAUSEWAY_<VENDOR>_<KEY>, go to its library as text. Those of the simulated chip
are listed here, another vendor's where its package declares them; else they are not checked.
"""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from causeway.errors import ConfigError

Effect = Literal["at import", "at first use", "at once"]
Source = Literal["default", "env", "api", "compat"]


@dataclass(frozen=True)
class Kind:
    """What a setting takes: `read` turns text, or a value from Python, into the value, or raises
    ValueError.
    """

    label: str
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class Setting:
    name: str
    kind: Kind
    default: Any
    meaning: str
    effect: Effect = "at once"
    vendor: str | None = None

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


@dataclass(frozen=True)
class Problem:
    """Something wrong with the settings. "unused" is only warned of; "error" makes `causeway
    doctor` fail.
    """

    severity: Literal["error", "unused"]
    message: str


PREFIX = "CAUSEWAY_"


# --- kinds ----------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value


def _flag(value: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False}
    words |= {"no": False, "off": False, "": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError("expected 1 or 0")


def _integer(low: int, high: int | None = None) -> Kind:
    label = f"integer from {low}" + ("" if high is None else f" to {high}")

    def read(value: Any) -> int:
        try:
            number = int(value.strip()) if isinstance(value, str) else value
        except ValueError:
            number = None
        if type(number) is not int or number < low or (high is not None and number > high):
            raise ValueError(f"expected an {label}")
        return number

    return Kind(label, read)


def _fraction(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number <= 1:
        raise ValueError("expected a number above 0 and up to 1")
    return number


def _bytes(value: Any) -> str:
    text = str(value).strip()
    if not re.fullmatch(r"\d+\s*([KMGT]?(i?B)?)", text, re.IGNORECASE):
        raise ValueError("expected bytes such as 67108864, 512M or 4GiB")
    return text


def _names(value: Any) -> tuple[str, ...]:
    """Names separated by commas or blanks; from Python also a sequence of them."""
    if isinstance(value, str):
        return tuple(name for name in re.split(r"[,\s]+", value) if name)
    if isinstance(value, Sequence) and all(isinstance(name, str) for name in value):
        return tuple(name.strip() for name in value if name.strip())
    raise ValueError("expected names separated by commas")


def _patterns(value: Any) -> tuple[str, ...]:
    names = _names(value)
    for name in names:
        try:
            re.compile(name)
        except re.error as error:
            raise ValueError(f"{name!r} is no regular expression ({error})") from None
    return names


def _integrations(value: Any) -> tuple[str, ...]:
    """all, none, or names of libraries; one with a minus sign is left out."""
    from causeway.libraries import LIBRARIES, known

    names = _names(value)
    if (unknown := known(names)) is not None:
        every = sorted({"all", "none", *LIBRARIES.values()})
        raise ValueError(f"{unknown!r} is none of {', '.join(every)}{_nearest(unknown, every)}")
    return names


def _indices(value: Any) -> tuple[int, ...] | None:
    """Device indices in the order in which torch sees them. None: all; empty: no device at all."""
    if value is None:
        return None
    tokens = [t.strip() for t in value.split(",")] if isinstance(value, str) else list(value)
    if tokens == [""]:
        return ()
    indices: list[int] = []
    for token in tokens:
        # Digits only: int() would take "1_0" too, and "-1" hides what follows it silently in CUDA.
        if not re.fullmatch(r"[0-9]+", str(token)):
            hint = "expected indices such as 1,0; an empty value hides all devices"
            raise ValueError(f"{token!r} is no device index ({hint})")
        if int(token) in indices:
            raise ValueError(f"{str(token)!r} is there twice")
        indices.append(int(token))
    return tuple(indices)


def _steps(value: Any) -> tuple[int, int] | None:
    """First and last step, both included. "10-20"; "10-" is all from 10, "10" that one."""
    if value is None:
        return None
    if isinstance(value, str):
        found = re.fullmatch(r"([0-9]*)(?:(-)([0-9]*))?", re.sub(r"\s", "", value))
        if found is None:
            raise ValueError("expected steps such as 10-20, 10- or 10")
        first, dash, last = found.groups()
        if not first and not last:
            return None
        low = int(first or 1)
        value = (low, (int(last) if last else _LAST) if dash else low)
    if not isinstance(value, Sequence) or [type(n) for n in value] != [int, int]:
        raise ValueError("expected (first, last)")
    if not 1 <= value[0] <= value[1]:
        raise ValueError("expected a first step from 1 on, and a last one that is no earlier")
    return value[0], value[1]


def _policies(value: Any) -> tuple[str, ...]:
    """Operators with a policy each, "softmax=low, mm=none"; from Python also a mapping."""
    if isinstance(value, Mapping):
        value = [f"{name}={policy}" for name, policy in value.items()]
    found = {}
    for text in _names(value):
        name, _, policy = text.partition("=")
        if not name or policy not in AUTOCAST:
            raise ValueError(f"{text!r} is no operator=policy; policies: {', '.join(AUTOCAST)}")
        found[name] = policy
    return tuple(f"{name}={policy}" for name, policy in found.items())


def _target(value: Any) -> Any:
    if isinstance(value, str) and value.strip():
        return value.strip()
    if callable(value) or hasattr(value, "write"):
        return value
    raise ValueError("expected stdout, stderr, a path, an open file or a function")


def _choice(*allowed: str) -> Kind:
    def read(value: Any) -> str:
        if isinstance(value, str) and value.strip().lower() in allowed:
            return value.strip().lower()
        raise ValueError(f"expected one of {', '.join(allowed)}{_nearest(str(value), allowed)}")

    return Kind(", ".join(allowed), read)


TEXT = Kind("text", _text)
FLAG = Kind("0 or 1", _flag)
FRACTION = Kind("above 0, up to 1", _fraction)
BYTES = Kind("bytes, such as 512M or 4GiB", _bytes)
NAMES = Kind("names, separated by commas", _names)
PATTERNS = Kind("names or regular expressions, separated by commas", _patterns)
LIBRARIES = Kind("all, none, or libraries; -name leaves one out", _integrations)
INDICES = Kind("indices, separated by commas", _indices)
POLICIES = Kind("operator=policy, separated by commas", _policies)
STEPS = Kind("steps, such as 10-20", _steps)
TARGET = Kind("stdout, stderr or a path", _target)
_LAST = 1 << 62  # of the steps
COMPAT = ("npu", "mlu", "dipu", "mindtorch")  # systems whose code runs, see causeway.compat
AUTOCAST = ("low", "fp32", "promote", "none")  # its policies


def _nearest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


# What a vendor's package may say that a setting takes; else it lists the values, ("auto", "fine").
DECLARED = {
    "text": TEXT,
    "flag": FLAG,
    "fraction": FRACTION,
    "bytes": BYTES,
    "integer": _integer(0),
    "names": NAMES,
}


# --- the table ------------------------------------------------------------------------------------


def _sim(key: str, kind: Kind, default: Any, meaning: str) -> Setting:
    return Setting(f"sim_{key}", kind, default, meaning, "at import", vendor="sim")


SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in [
        Setting(
            "vendor",
            TEXT,
            "",
            "The vendor: a name (an entry point of group causeway.vendors), the path of its "
            "library, or that of a conformance report (.json), which stands in for a chip that is "
            "not here. Empty: the one that is installed, else sim.",
            "at import",
        ),
        Setting(
            "transfer",
            _choice("off", "device", "cpu"),
            "off",
            "Redirect CUDA's calls, at the end of `import torch`, to the device or to the CPU; "
            "`causeway run` sets it.",
            "at import",
        ),
        Setting(
            "transfer_report",
            TEXT,
            "",
            "The file to which a program writes at its end what was redirected, as JSON.",
            "at import",
        ),
        Setting(
            "apex",
            FLAG,
            False,
            "Make `import apex` give causeway.apex, at the end of `import torch`. An error where "
            "another apex is installed: that is not shadowed. `causeway run` needs no setting.",
            "at import",
        ),
        Setting(
            "compat",
            _choice("off", *COMPAT),
            "off",
            "Code for another system runs: import torch_npu, torch_mlu, torch_dipu or mindtorch "
            "gives Causeway's, the device has that system's name, its variables are honoured (see "
            "docs/compat.md). An error where the real package is installed.",
            "at import",
        ),
        Setting(
            "device_name",
            TEXT,
            "",
            "torch's name of the device, such as npu. Empty: the vendor's own name.",
            "at import",
        ),
        Setting(
            "visible_devices",
            INDICES,
            None,
            "The devices that torch sees, in this order, as CUDA_VISIBLE_DEVICES does. "
            "Empty hides all; not set shows all.",
            "at first use",
        ),
        Setting(
            "fallback",
            PATTERNS,
            (),
            "Operators that go to the host rung whatever the vendor offers: 'add.out, conv.*'.",
        ),
        Setting(
            "portable",
            FLAG,
            True,
            "Use Causeway's own kernels where the vendor's library has a compiler (code.v1).",
        ),
        Setting(
            "portable_except",
            PATTERNS,
            (),
            "Operators that the portable rung leaves out: 'softmax.*, conv.*'. They go on down the "
            "ladder.",
        ),
        Setting(
            "layouts",
            FLAG,
            True,
            "Keep what kernels read again and again unchanged, such as weights, in the chip's own "
            "layout too, where the vendor has one (layout.v1). Off: no memory is spent on it.",
        ),
        Setting(
            "graph_merge",
            FLAG,
            True,
            "Run small launches of a graph that follow each other as one kernel, built when the "
            "graph is made ready: on CPUs whose compiler takes OpenCL C.",
        ),
        Setting(
            "policy",
            _choice("allow", "warn", "error"),
            "allow",
            "What a call that goes to the host rung does: nothing, warn once per operator, or "
            "raise FallbackError.",
        ),
        Setting("policy_only", PATTERNS, (), "Operators that the policy is for. Empty: all."),
        Setting(
            "policy_budget",
            _integer(-1),
            -1,
            "Calls to the host rung that are free before the policy holds. -1: none.",
        ),
        Setting(
            "tune",
            _choice("off", "passing", "now", "again"),
            "passing",
            "How products of matrices find their cut, and loops over memory their order. With off, "
            "the built-in one. With passing, as kept on disk, else measured while the program "
            "runs, for at most a tenth of the products' time. With now, without that limit. With "
            "again, like now, and what is kept is not read. See docs/tune.md.",
        ),
        Setting(
            "tune_folder",
            TEXT,
            "",
            "Folder of what was measured. Empty: causeway/tune in the user's cache.",
            "at first use",
        ),
        Setting(
            "dtypes",
            _choice("error", "narrow"),
            "error",
            "What a dtype that the chip lacks does: raise, or become the next narrower one "
            "(counted in the ledger).",
        ),
        Setting(
            "autocast",
            POLICIES,
            (),
            "Autocast's policy for operators, over torch's and the vendor's: 'softmax=low, "
            "aten::mm=none', of low, fp32, promote, none (see docs/amp.md).",
        ),
        Setting(
            "ledger",
            FLAG,
            False,
            "Count dtypes, bytes and seconds of every operator, and print a summary at exit.",
        ),
        Setting(
            "dump",
            _integer(0, 3),
            0,
            "Print operators as they run: 1 with the rung that served each, 2 with arguments, "
            "3 with their values. May be changed in os.environ while the program runs.",
        ),
        Setting("dump_ops", PATTERNS, (), "Operators that are dumped. Empty: all."),
        Setting("dump_steps", STEPS, None, "Steps in which operators are dumped. Not set: all."),
        Setting("dump_ranks", INDICES, None, "Processes of a run that dump. Not set: all."),
        Setting("dump_to", TARGET, "stdout", "Where the dump goes: {rank}, {pid} are filled in."),
        Setting(
            "overflow",
            _choice("off", "warn", "raise"),
            "off",
            "What the first operator that makes infinity or NaN does; its inputs are saved. May be "
            "changed in os.environ while the program runs.",
        ),
        Setting(
            "overflow_save",
            TEXT,
            "",
            "Folder for the call that overflowed and its inputs. Empty: a temporary one.",
        ),
        Setting(
            "compare",
            PATTERNS,
            (),
            "Operators that also run on the CPU, which compares results and inputs: '.*' is all. "
            "A table at exit (see docs/compare.md).",
        ),
        Setting("compare_every", _integer(1), 1, "Compare each n-th call of an operator."),
        Setting("compare_steps", STEPS, None, "Compare in these steps of training only: 10-20."),
        Setting(
            "compare_folder",
            TEXT,
            "",
            "Where failures.jsonl and a script for each failure are written. Empty: nowhere.",
        ),
        Setting("compare_raise", FLAG, False, "Raise CompareError in the operator's caller."),
        Setting(
            "memory_fraction",
            FRACTION,
            1.0,
            "The part of each device's memory that this process may take.",
            "at first use",
        ),
        Setting(
            "memory_cache",
            FLAG,
            True,
            "Keep memory that is freed for the next tensors. 0: each tensor is an allocation of "
            "the vendor's, of its own size, for tools that look for accesses out of bounds.",
            "at import",
        ),
        Setting(
            "profile_clock",
            _choice("device", "events"),
            "device",
            "Where torch.profiler has the times of kernels and copies from: the device's own "
            "record of them (the vendor's profile.v1), or events around each, which it also takes "
            "where the vendor has no such record.",
        ),
        Setting(
            "comm_names",
            NAMES,
            (),
            "Further names of the device's backend of torch.distributed besides cwcl: hccl, cncl.",
            "at import",
        ),
        Setting(
            "comm_chunk",
            _integer(1, 1024),
            8,
            "MiB at a time of what collectives pass through pinned memory.",
        ),
        Setting(
            "comm_blocking",
            FLAG,
            False,
            "wait() of a collective holds the host up until the device is done with it.",
        ),
        Setting(
            "compile",
            _choice("fused", "strict", "ladder", "check"),
            "fused",
            "torch.compile on the device: fused kernels, and the ladder for a graph that cannot be "
            "fused, with a warning; strict: an error for such a graph; ladder: nothing is fused; "
            "check: each kernel is compared with its operators.",
        ),
        Setting(
            "integrations",
            LIBRARIES,
            ("all",),
            "Libraries that are shown the device, from when they are imported (see "
            "docs/libraries.md).",
        ),
        Setting(
            "comm_debug",
            FLAG,
            False,
            "Collectives of the vendor look for data that was changed on its way.",
        ),
        _sim("devices", _integer(0, 64), 2, "Simulated devices."),
        _sim("memory", BYTES, "16GiB", "Memory of each."),
        _sim(
            "personality",
            NAMES,
            (),
            "Dtypes that the chip lacks: no-fp64, no-int64, no-complex, ... (see docs/sim.md).",
        ),
        _sim(
            "memory_model",
            _choice("unified", "discrete"),
            "unified",
            "unified: the host can address device memory. discrete: a host read of it is an error.",
        ),
        _sim(
            "execution",
            _choice("inline", "async"),
            "inline",
            "inline: work is done in the call. async: a thread for each stream does it later.",
        ),
        _sim(
            "ops",
            _choice("all", "fastest", "none"),
            "fastest",
            "Kernels that the chip offers: all, those no slower than the host rung, none.",
        ),
        _sim("dense", FLAG, False, "Kernels ask for dense memory (CW_NEEDS_CONTIGUOUS)."),
        _sim("level", _integer(0, 2), 2, "Offer the table up to this level only."),
        _sim(
            "without",
            NAMES,
            (),
            "Entries that the table leaves out, of those that stand alone: mem_set, close, ... "
            "(see docs/sim.md).",
        ),
        _sim("peers", FLAG, True, "The devices copy to each other without the host."),
        _sim("code", FLAG, False, "Offer code.v1: kernels are built by the machine's C compiler."),
        _sim(
            "teams",
            FLAG,
            False,
            "Offer code.v1 as a GPU would, and raise what could go wrong there: items that race, "
            "barriers that not all reach, memory read before it is written (see docs/sim.md).",
        ),
        _sim(
            "seed",
            _integer(0, 10**15 - 1),
            0,
            "With teams: of the order in which a group's items run.",
        ),
        _sim("graphs", FLAG, False, "Offer graph.v1: what is captured is one task of a stream."),
        _sim(
            "grid_limit",
            _integer(0, 65535),
            0,
            "Most groups of a launch in each dimension, by code.v1; 0: none is reported.",
        ),
        _sim(
            "argument_limit",
            _integer(0, 65536),
            0,
            "Most bytes of a launch's arguments, by code.v1; 0: none is reported.",
        ),
        _sim(
            "loop_limit",
            _integer(0, 2**32 - 1),
            0,
            "Most turns of an item's loops, as code.v1 reports it; 0: no limit.",
        ),
        _sim("bare", NAMES, (), "Devices of another kind, which have no operators: 0,2."),
        _sim(
            "cache", TEXT, "", "Folder of what it built. Empty: causeway/sim in the user's cache."
        ),
        _sim(
            "fault",
            NAMES,
            (),
            "Calls that fail: <entry>:<n>=<status>, such as mem_alloc:3=OUT_OF_MEMORY.",
        ),
        _sim(
            "padding",
            TEXT,
            "0",
            "Bytes behind an output that its kernels overwrite, and what device_info says of it "
            "where that differs: 32, 32:0.",
        ),
        _sim(
            "latency_us",
            _integer(0, 10_000_000),
            0,
            "Microseconds that each piece of work takes longer.",
        ),
        _sim(
            "skip_wait",
            NAMES,
            (),
            "What forgets to wait for earlier work, to show that tests notice.",
        ),
        _sim(
            "corrupt",
            TEXT,
            "",
            "An operator that computes garbage, to show that tests notice: aten::add.out[:<n>].",
        ),
        _sim(
            "comm",
            TEXT,
            "shared",
            "Collectives between processes: shared (memory), none, or only these entries of "
            "comm.v1: all_reduce+broadcast.",
        ),
        _sim(
            "comm_fault",
            NAMES,
            (),
            "A rank that dies, comes late, corrupts a chunk or drops the last rank from a "
            "reduction, in its nth collective: 1:dies:3.",
        ),
        _sim(
            "bug",
            NAMES,
            (),
            "Mistakes that kernels are known to make, to show that tests notice (see docs/sim.md).",
        ),
    ]
}


# --- reading and writing --------------------------------------------------------------------------

_api: dict[str, Any] = {}
_defaults: dict[str, Any] = {}  # in place of the table's
_aliases: dict[str, tuple[str, Callable[[str], str]]] = {}  # by variable
_listeners: dict[str, Callable[[], None]] = {}
_past: list[Effect] = []


def _setting(name: str) -> Setting:
    if name not in SETTINGS:
        near = _nearest(name, list(SETTINGS))
        raise ConfigError(f"there is no setting {name!r}{near} (`causeway config` lists all)")
    return SETTINGS[name]


def get(name: str) -> Any:
    """The value in force: from Python, else from the environment, else the default.

    A bad value in the environment counts as not there; `problems` has it.
    """
    return _read(_setting(name))[0]


def source(name: str) -> Source:
    """Where the value in force comes from."""
    return _read(_setting(name))[1]


def given(name: str) -> bool:
    """Whether someone gave a value, good or bad."""
    return name in _api or _given(_setting(name)) is not None


def default(name: str, value: Any) -> None:
    """Let `value` stand where neither the environment nor Python gives one, as `compat` asks."""
    _defaults[_setting(name).name] = _setting(name).kind.read(value)


def alias(variable: str, name: str, read: Callable[[str], str] = str) -> None:
    """Honour `variable`, another system's, as setting `name`, where its own variable is not set.
    `read` turns its text into that of ours.
    """
    _aliases[variable] = (_setting(name).name, read)


def aliases() -> dict[str, str]:
    """The variables of other systems that are honoured, each with the setting that it is."""
    return {variable: name for variable, (name, _) in _aliases.items()}


def _given(setting: Setting) -> tuple[str, str] | None:
    """The variable that gives a setting in the environment, and its text."""
    text = os.environ.get(setting.variable)
    if text is not None:
        return setting.variable, text
    for variable, (name, read) in _aliases.items():
        if name == setting.name and variable in os.environ:
            return variable, read(os.environ[variable])
    return None


def _read(setting: Setting) -> tuple[Any, Source]:
    if setting.name in _api:
        return _api[setting.name], "api"
    given = _given(setting)
    if given is not None:
        try:
            return setting.kind.read(given[1]), "env"
        except ValueError:
            pass
    if setting.name in _defaults:
        return _defaults[setting.name], "compat"
    return setting.default, "default"


def set(name: str, value: Any) -> None:
    """Set `name` for this process, over the environment. Raises ConfigError for an unknown name or
    a bad value.

    Warns when the setting was needed earlier, so that it has no effect any more.
    """
    update({name: value})


def update(values: Mapping[str, Any]) -> dict[str, Any]:
    """Set several at once, all or none; give what `restore` needs to undo it."""
    new = dict(_api)
    for name, value in values.items():
        setting = _setting(name)
        try:
            new[name] = setting.kind.read(value)
        except ValueError as error:
            raise ConfigError(f"setting {name!r} is {value!r}: {error}") from None
        if setting.effect in _past:
            warnings.warn(
                f"setting {name!r} takes effect {setting.effect}, which is over: set "
                f"{setting.variable} in the environment instead",
                stacklevel=3,
            )
    return _replace(new, values)


def reset(name: str) -> None:
    """Forget what was set from Python: the environment's value, or the default, holds again."""
    _setting(name)
    _replace({key: value for key, value in _api.items() if key != name}, [name])


def restore(former: Mapping[str, Any], names: Iterable[str]) -> None:
    """Put `names` back to what they were when `update` gave `former`."""
    names = list(names)
    new = {key: value for key, value in _api.items() if key not in names}
    _replace(new | {name: former[name] for name in names if name in former}, names)


@contextmanager
def using(**values: Any) -> Iterator[None]:
    """Set several settings, and put the former values back at the end."""
    former = update(values)
    try:
        yield
    finally:
        restore(former, values)


def listen(names: Iterable[str], function: Callable[[], None]) -> None:
    """Call `function` after each change of one of `names` from Python. If it raises, the change is
    undone.
    """
    for name in names:
        _listeners[_setting(name).name] = function


def _replace(new: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    global _api
    former, _api = _api, new
    try:
        for function in {_listeners[name]: None for name in names if name in _listeners}:
            function()
    except BaseException:
        _api = former
        raise
    return former


def over(effect: Effect) -> None:
    """Say that `effect` has passed: changing such a setting warns from now on."""
    _past.append(effect)


def text(name: str) -> str | None:
    """The value as a vendor's library gets it: the text that was given, or None where none was."""
    value, where = _read(_setting(name))
    if where == "default":
        return None
    if where == "env":
        given = _given(SETTINGS[name])
        return given[1] if given else None
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(value) if isinstance(value, tuple) else str(value)


def declare(vendor: str, table: Mapping[str, tuple[Any, Any, str]]) -> None:
    """Add a vendor's own settings: key, and what it takes, its default and its meaning.

    What it takes is a name of `DECLARED` or a sequence of values. Raises ConfigError for a table
    that says something else; nothing is added then.
    """
    found = {}
    for key, row in table.items():
        name = f"{vendor}_{key}"
        try:
            takes, default, meaning = row
            kind = DECLARED[takes] if isinstance(takes, str) else _choice(*takes)
            valid = re.fullmatch("[a-z][a-z0-9_]*", key) and isinstance(meaning, str)
        except (KeyError, TypeError, ValueError):
            valid = False
        if not valid:
            raise ConfigError(
                f"setting {key!r} is declared as {row!r}: expected (takes, default, meaning), "
                f"where takes is a sequence of values or one of {', '.join(DECLARED)}"
            )
        if name in SETTINGS:
            raise ConfigError(f"setting {key!r} is known already: {SETTINGS[name].variable}")
        found[name] = Setting(name, kind, default, meaning, "at import", vendor=vendor)
    SETTINGS.update(found)


# --- problems -------------------------------------------------------------------------------------


def problem(name: str) -> str | None:
    """What is wrong with the value that the environment gives a setting; None for nothing."""
    setting = _setting(name)
    given = _given(setting)
    if given is None:
        return None
    variable, text = given
    try:
        setting.kind.read(text)
    except ValueError as error:
        counts = f"it counts as {_show(setting.default)}"
        if name == "visible_devices":
            counts = "no device is visible"
        return f"{variable} is {text!r}: {error}; {counts}"
    return None


def problems(*, vendor: str = "sim", vendors: Sequence[str] = ("sim",)) -> list[Problem]:
    """What is wrong with the CAUSEWAY_* variables of the environment.

    `vendor` is the one in use, `vendors` are all that are installed: the variables of another than
    the one in use are known, but have no effect.
    """
    found: list[Problem] = []
    for variable, name in aliases().items():
        if variable in os.environ and (wrong := problem(name)) is not None:
            found.append(Problem("error", wrong))
    for variable in sorted(v for v in os.environ if v.startswith(PREFIX)):
        name = variable.removeprefix(PREFIX).lower()
        setting = SETTINGS.get(name)
        owner = setting.vendor if setting else None
        if setting is None:
            declared = {s.vendor for s in SETTINGS.values()}
            others = [v for v in (vendor, *vendors) if v not in declared]
            owner = next((v for v in others if name.startswith(f"{v}_")), None)
        if owner is not None and owner != vendor:
            message = f"{variable} has no effect: the vendor in use is {vendor!r}, not {owner!r}"
            found.append(Problem("unused", message))
        elif setting is not None:
            if (wrong := problem(name)) is not None:
                found.append(Problem("error", wrong))
        elif owner is None:
            near = difflib.get_close_matches(name, SETTINGS, n=1)
            hint = f"; did you mean {SETTINGS[near[0]].variable}?" if near else ""
            found.append(Problem("error", f"{variable} is no setting of Causeway{hint}"))
    if source("policy") == "default":
        for name in ("policy_only", "policy_budget"):
            if source(name) == "env":
                message = f"{SETTINGS[name].variable} has no effect without CAUSEWAY_POLICY"
                found.append(Problem("unused", message))
    return found


def unlisted() -> bool:
    """Whether there is a CAUSEWAY_* variable that is not in the table: a mistake, or another
    vendor's.
    """
    variables = {s.variable for s in SETTINGS.values()}
    return any(v.startswith(PREFIX) and v not in variables for v in os.environ)


# --- tables for people ----------------------------------------------------------------------------


def _show(value: Any) -> str:
    if value is None:
        return "not set"
    if value in ("", ()):
        return "empty"
    if isinstance(value, bool):
        return str(int(value))
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def rows() -> list[tuple[str, str, str, str]]:
    """(name, value, source, meaning) of every setting, as `causeway config` prints it."""
    return [(s.name, _show(get(s.name)), source(s.name), s.meaning) for s in SETTINGS.values()]


def markdown() -> str:
    """The table of docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Written by `make docs` from `src/causeway/config.py`.",
        "",
        "Set a variable before `import torch`, or call `causeway.config.set(name, value)`,",
        "which wins. `causeway config` prints what is in force and from where. An unknown",
        "variable or a bad value is warned of at import, with the nearest name, and fails",
        "`causeway doctor`.",
        "",
        "| variable | takes | default | takes effect | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for s in SETTINGS.values():
        lines.append(
            f"| `{s.variable}` | {s.kind.label} | {_show(s.default)} | {s.effect} | {s.meaning} |"
        )
    return "\n".join(lines) + "\n"
