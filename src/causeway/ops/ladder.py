"""What a call that goes to the host rung does, and which operators are sent there on purpose.

The ladder itself is climbed in C++ (csrc/ladder/call.cpp): a route is decided once per operator and
signature. Here is what people say about it: `policy` and `fallback`. Both hold for the whole
process, all threads, from the call on; as a context manager they put back what was in force before.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal

import torch

from causeway import config
from causeway.errors import ConfigError
from causeway.ops.meant import meant


class Change:
    """Settings that were changed; as a context manager, until its end."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._names = list(values)
        self._former = config.update(values)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        config.restore(self._former, self._names)


def policy(
    fallback: Literal["allow", "warn", "error"] | None = None,
    *,
    only: Sequence[str] | None = None,
    budget: int | None = None,
    dtypes: Literal["error", "narrow"] | None = None,
) -> Change:
    """Say what a call does that goes to the host rung, and what a dtype does that the chip lacks.

    `only`: names or regular expressions of the operators it holds for; `budget`: host calls that
    are free before it holds. What is not given stays as it is. `with policy("error"): ...` raises
    FallbackError at the first such call.
    """
    given = {"policy": fallback, "policy_only": only, "policy_budget": budget, "dtypes": dtypes}
    return Change({name: value for name, value in given.items() if value is not None})


def fallback(names: str | Sequence[str]) -> Change:
    """Send these operators, and no others, to the host rung: "add.out, conv.*". Empty: none.

    A name or regular expression that matches no operator raises ConfigError with the nearest name.
    """
    return Change({"fallback": names})


def match(setting: str, operators: Sequence[str]) -> list[str]:
    """The operators that a setting's patterns mean, in their order; one must match a whole name.

    "aten::add.out" is meant by `aten::add.out`, by `add.out` and, as all its overloads are, by
    `add`. To send an out variant to the host means the other two forms too, and a composite what
    torch calls for it: `conv2d` is convolution (ops/meant.py).
    """
    found: dict[str, None] = {}
    for pattern in config.get(setting):
        whole = re.compile(pattern)
        hits = [name for name in operators if any(map(whole.fullmatch, spellings(name)))]
        if setting == "fallback":
            hits += meant(pattern, operators)
        if not hits and _may_come(pattern, operators):
            continue  # of a library that is imported later: _newcomer
        if not hits:
            near = nearest(pattern, operators)
            raise ConfigError(f"setting {setting!r}: {pattern!r} matches no operator{near}")
        found.update(dict.fromkeys(hits))
    return list(found)


def _may_come(pattern: str, operators: Sequence[str]) -> bool:
    """Whether it names an operator of a namespace that no library has registered yet."""
    found = re.fullmatch(r"(\w+)::\w+(\.\w+)?", pattern)
    if found is None:
        return False
    return not any(name.startswith(f"{found[1]}::") for name in operators)


def spellings(name: str) -> tuple[str, ...]:
    """The names that people give "aten::add.out"; the last two mean all overloads."""
    short = name.split("::", 1)[-1]
    base = short.split(".", 1)[0]
    return name, short, base, f"{name.split('::', 1)[0]}::{base}"


def nearest(pattern: str, operators: Sequence[str]) -> str:
    """The end of a message about a pattern that matches no operator. torch's own come first."""
    own = [name for name in operators if name.startswith("aten::")]
    for names in (own, operators):
        known = {spelling for name in names for spelling in spellings(name)[1:3]}
        if near := difflib.get_close_matches(pattern.split("::")[-1], sorted(known), n=1):
            return f"; did you mean {near[0]!r}?"
    return " with a kernel of Causeway's"


def start() -> None:
    """Hand the environment's values to the core, and later changes as they come."""
    from causeway import _C

    _C.set_decomposer(_plan)
    _C.set_composer(_compose)
    _C.set_describer(_describer)
    config.listen(["policy", "policy_only", "policy_budget", "dtypes"], _push_policy)
    config.listen(["fallback"], _push_forced)
    config.listen(["portable", "portable_except"], _push_portable)
    config.listen(["tune", "tune_folder"], _push_tune)
    config.listen(["layouts"], _push_layouts)
    if config.given("layouts"):
        _push_layouts()
    if config.given("tune") or config.given("tune_folder"):
        _push_tune()
    if config.given("portable") or config.given("portable_except"):
        _push_portable()
    if any(config.given(name) for name in ("policy", "policy_only", "policy_budget", "dtypes")):
        _push_policy()
    if config.given("fallback"):
        _push_forced()


def _push_portable() -> None:
    from causeway import _C

    left_out = config.get("portable_except")
    _C.set_portable(
        bool(config.get("portable")),
        match("portable_except", _C.operators()) if left_out else [],
    )


def _push_layouts() -> None:
    from causeway import _C

    _C.set_layouts(bool(config.get("layouts")))


def _push_tune() -> None:
    from causeway import _C

    _C.set_tune(config.get("tune"), config.get("tune_folder"))


def _compose(name: str) -> Callable[..., Any] | None:
    from causeway.ops.composed import COMPOSED

    return COMPOSED.get(name)


def _plan(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], in_capture: bool
) -> Callable[..., Any] | None:
    from causeway.ops import decompose  # torch's decompositions take a second to import

    return decompose.plan(name, args, kwargs, in_capture)


def _describer(name: str) -> Callable[..., Any] | None:
    from causeway.ops import describe  # fake tensors take a moment to import

    return describe.describer(name)


def _push_policy() -> None:
    from causeway import _C

    _C.set_policy(
        config.get("policy"),
        match("policy_only", _operators()) if config.get("policy_only") else None,
        config.get("policy_budget"),
        config.get("dtypes"),
    )
    _ask_of_newcomers()


def _push_forced() -> None:
    from causeway import _C

    _C.set_forced(match("fallback", _operators()) if config.get("fallback") else [])
    _ask_of_newcomers()


def _operators() -> list[str]:
    """What goes by the ladder: torch's, and those of other libraries, called or not."""
    from causeway import _C

    names: list[str] = torch._C._dispatch_get_all_op_names()
    others = [name for name in names if not name.startswith("aten::")]
    return list(dict.fromkeys([*_C.operators(), *others]))


def _ask_of_newcomers() -> None:
    """Both settings also hold for operators that a library brings later."""
    from causeway import _C

    said = config.get("fallback") or config.get("policy_only")
    _C.set_newcomer(_newcomer if said else None)


def _newcomer(name: str) -> tuple[bool, bool]:
    """Whether an operator is sent to the host, and whether the policy holds for it."""
    only = config.get("policy_only")
    return _means(config.get("fallback"), name), not only or _means(only, name)


def _means(patterns: Sequence[str], name: str) -> bool:
    return any(re.fullmatch(p, each) for p in patterns or () for each in spellings(name))
