"""Autocast's policies where a vendor, or a user, wants others than torch's.

torch's lists for CUDA hold (csrc/aten/autocast.cpp). A vendor says in a file beside its library
what is otherwise on its chip: `libcw_mychip.autocast.toml` beside `libcw_mychip.so`, a list of
operators for each policy. The setting `autocast` wins over the file: "softmax=low, aten::mm=none".
A name without an overload is all that do not write into their arguments.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

import torch

from causeway import config
from causeway.errors import ConfigError
from causeway.state import state


@dataclass(frozen=True)
class Policy:
    """The policy of one operator, and where it comes from."""

    operator: str  # with its namespace and overload
    policy: str
    source: str  # the vendor's file, or the setting


_now: list[Policy] = []


def vendor_file() -> Path | None:
    """The vendor's file, where there is one."""
    path = Path(state.library).with_suffix(".autocast.toml") if state.library else None
    return path if path is not None and path.is_file() else None


def policies() -> list[Policy]:
    """The policies in force that are not torch's."""
    return list(_now)


def apply() -> None:
    """Put the file's and the setting's policies in force. Raises ConfigError, and changes nothing,
    for what they say wrongly.
    """
    found: dict[str, Policy] = {}
    path = vendor_file()
    said = [(name, policy, str(path)) for name, policy in _read(path)] if path is not None else []
    for text in config.get("autocast"):
        name, _, policy = text.partition("=")
        said.append((name, policy, "setting autocast"))
    for name, policy, where in said:
        for operator in _operators(name, where):
            found[operator] = Policy(operator, policy, where)
    if not found and not _now:
        return
    from causeway import _C

    try:
        _C.set_autocast_policies({p.operator: p.policy for p in found.values()})
    except ValueError as error:
        raise ConfigError(str(error)) from None
    _now[:] = found.values()


def _read(path: Path) -> list[tuple[str, str]]:
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    said = []
    for policy, names in table.items():
        if policy not in config.AUTOCAST:
            expected = ", ".join(config.AUTOCAST)
            raise ConfigError(f"{path}: {policy!r} is no policy: expected {expected}")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{path}: {policy} is no list of operators")
        said += [(name, policy) for name in names]
    twice = {name for name, _ in said if [n for n, _ in said].count(name) > 1}
    if twice:
        raise ConfigError(f"{path}: {', '.join(sorted(twice))} has several policies")
    return said


@functools.cache
def _schemas() -> dict[str, list[str]]:
    """Names without overload, and the overloads of each that write into no argument."""
    found: dict[str, list[str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        overloads = found.setdefault(schema.name, [])
        if not schema.is_mutable and torch._C._dispatch_has_kernel(full):
            overloads.append(full)
    return found


def _operators(name: str, where: str) -> list[str]:
    """The operators with overload that `name` means."""
    full = name if "::" in name else f"aten::{name}"
    bare = full.partition(".")[0]
    schemas = _schemas()
    if bare not in schemas:
        # An operator's library may have been loaded since.
        _schemas.cache_clear()
        schemas = _schemas()
    if bare not in schemas:
        near = difflib.get_close_matches(bare, schemas, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"{where}: autocast policy of {name!r}: there is no such operator{hint} (`causeway "
            "operators` lists them)"
        )
    if "." in full:
        return [full]
    if not schemas[bare]:
        raise ConfigError(
            f"{where}: autocast policy of {name!r}: every overload writes into its arguments, "
            "which keep their dtype"
        )
    return schemas[bare]
