"""What is known of CUDA's names in torch and of packages around it, as data.

The tables are in `knowledge/*.toml`. Tests compare them with the installed torch: each public name
of torch.cuda is there, and each replacement exists.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from causeway.migrate.finding import Category, Kind

_FOLDER = Path(__file__).with_name("knowledge")
# Submodules whose names torch.cuda has itself.
_ALIASES = {
    "torch.cuda.memory.": "torch.cuda.",
    "torch.cuda.random.": "torch.cuda.",
    "torch.cuda.streams.": "torch.cuda.",
    "torch.cuda.graphs.": "torch.cuda.",
    "torch.cuda.amp.autocast_mode.": "torch.cuda.amp.",
    "torch.cuda.amp.grad_scaler.": "torch.cuda.amp.",
    "torch.amp.autocast_mode.": "torch.amp.",
    "torch.amp.grad_scaler.": "torch.amp.",
    "torch.nn.parallel.data_parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel": (
        "torch.nn.parallel.DistributedDataParallel"
    ),
    "torch.distributed.distributed_c10d.": "torch.distributed.",
    "torch._C._cuda": "torch.cuda._C",
}
Status = Literal["supported", "limited", "missing", "internal"]
Action = Literal["rename", "module", "special", "keep", "manual"]


@dataclass(frozen=True)
class Api:
    """A name of torch.cuda; see the head of cuda.toml."""

    name: str
    rule: str
    status: Status
    action: Action
    tip: str
    to: str = ""
    since: str = ""
    positional: str = ""
    guard: str = ""
    lacking: str = ""
    category: Category = "api"


@dataclass(frozen=True)
class Note:
    """A name that is left as it is, and why."""

    name: str
    kind: Kind
    tip: str
    rule: str = "CW130"
    category: Category = "api"


@dataclass(frozen=True)
class Package:
    """A package that is for CUDA."""

    name: str
    effort: str
    alternative: str
    rule: str = "CW161"
    kind: Kind = "unsupported"
    only: str = ""  # the part of it that is CUDA's


@dataclass(frozen=True)
class Target:
    """How a vendor spells things."""

    name: str
    module: str = ""  # imported once, registers the device
    collectives: str = ""
    visible: str = ""
    launch_blocking: str = ""  # these for files that are not Python; see targets.toml
    allocator: str = ""
    interface: str = ""
    smi: str = ""
    accelerate: str = ""


def _load(name: str) -> dict[str, dict[str, str]]:
    return tomllib.loads((_FOLDER / name).read_text(encoding="utf-8"))


@cache
def apis() -> dict[str, Api]:
    """All known names of torch.cuda, by qualified name."""
    return {name: Api(name, **entry) for name, entry in _load("cuda.toml").items()}  # type: ignore[arg-type]


@cache
def notes() -> dict[str, Note]:
    """Names outside of torch.cuda that are only reported, by qualified name."""
    return {name: Note(name, **entry) for name, entry in _load("backends.toml").items()}  # type: ignore[arg-type]


@cache
def packages() -> dict[str, Package]:
    """Packages for CUDA, by the name that is imported."""
    return {name: Package(name, **entry) for name, entry in _load("packages.toml").items()}  # type: ignore[arg-type]


def hint(error: BaseException) -> str:
    """What can take the place of a package for CUDA whose import failed, or ""."""
    package = packages().get((getattr(error, "name", None) or "").partition(".")[0])
    if not isinstance(error, ModuleNotFoundError) or package is None:
        return ""
    if package.kind == "manual" or package.only:  # it may have been meant for the CPU
        return ""
    return (
        f"causeway: {package.name} is for CUDA. In its place: {package.alternative}. `causeway "
        f"migrate` lists where it is used (docs/rules/{package.rule}.md)"
    )


def target(name: str) -> Target:
    """How the device `name` is spelled."""
    entry = _load("targets.toml").get(name)
    return Target(name, **entry) if entry else Target(name, collectives="cwcl")


@cache
def _modules() -> dict[str, frozenset[str]]:
    return {name: frozenset(entry["names"]) for name, entry in _load("modules.toml").items()}


def lacking(name: str) -> tuple[str, ...]:
    """The devices of torch whose module has no such name: ("cpu", "mps") for "get_device_name"."""
    return tuple(device for device, names in _modules().items() if name not in names)


def find(name: str) -> Api | None:
    """What is known of a qualified name of torch.cuda."""
    return apis().get(name)


@lru_cache(1 << 14)
def canonical(name: str) -> str:
    """A qualified name without the detours through submodules."""
    if name.startswith("torch."):
        for alias, real in _ALIASES.items():
            if name.startswith(alias):
                return real + name[len(alias) :]
    return name


@cache
def exported() -> dict[str, frozenset[str]]:
    """What `from module import *` brings, for modules whose names are known."""
    names = [n.removeprefix("torch.cuda.") for n, api in apis().items() if api.status != "internal"]
    return {
        "torch.cuda": frozenset(n for n in names if "." not in n),
        "torch.cuda.amp": frozenset(n[4:] for n in names if n.startswith("amp.")),
        "torch": frozenset({"nn", "optim", "device", "Tensor", "load", "manual_seed"}),
        "torch.nn": frozenset({"DataParallel", "Module", "parallel"}),
        "torch.nn.parallel": frozenset({"DataParallel", "DistributedDataParallel"}),
        "torch.distributed": frozenset({"init_process_group", "new_group", "get_backend"}),
    }
