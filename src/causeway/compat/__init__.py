"""Code for torch_npu, torch_mlu, torch_dipu or MindTorch runs as it is.

`CAUSEWAY_COMPAT=npu`, `causeway compat install npu` or `causeway run` ask for it; by itself it does
nothing. Then the device has the name that the system gives it, `import torch_npu` gives
causeway.compat.torch_npu, the system's backend of collectives is a name of ours, and its variables
are honoured. Each name works, or raises and says what to write instead (docs/compat.md).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType

from causeway import config
from causeway.apex import importing as apex
from causeway.importing import MARK, Aliases
from causeway.state import MARKER, state


@dataclass(frozen=True)
class Variable:
    """A variable of another system: the setting that it is honoured as, or what to do instead.
    `package`: the package of these names that reads it, as `says` tells.
    """

    name: str
    setting: str = ""
    read: str = "as it is"
    says: str = ""
    to: str = ""
    package: str = ""


@dataclass(frozen=True)
class System:
    """What code for a system relies on; see systems.toml."""

    name: str
    title: str
    device: str
    backends: tuple[str, ...]
    packages: dict[str, str]
    variables: dict[str, Variable] = field(default_factory=dict)
    inner: dict[str, str] = field(default_factory=dict)  # names below a package that are torch's
    modules: dict[str, str] = field(default_factory=dict)  # these, and the next, are for migrate
    switches: tuple[str, ...] = ()
    redirects: tuple[str, ...] = ()


def _flag(text: str) -> bool:
    return text.strip().lower() not in ("", "0", "false", "off", "no")


# How the text of a variable becomes that of a setting.
_READ: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "flag to arguments": lambda text: "2" if _flag(text) else "0",
    "flag to device": lambda text: "device" if _flag(text) else "off",
    "flag to policy": lambda text: "allow" if _flag(text) else "error",
    "flag to warn": lambda text: "warn" if _flag(text) else "allow",
}


@cache
def systems() -> dict[str, System]:
    """All of them, by what CAUSEWAY_COMPAT takes."""
    tables = tomllib.loads(Path(__file__).with_name("systems.toml").read_text(encoding="utf-8"))
    found = {}
    for name, table in tables.items():
        variables = {v: Variable(v, **entry) for v, entry in table.pop("variables").items()}
        for lists in ("backends", "switches", "redirects"):
            table[lists] = tuple(table[lists])
        found[name] = System(name, variables=variables, **table)
    return found


def packages() -> dict[str, str]:
    """The system of each package that can be stood in for: "torch_npu" of "npu"."""
    return {package: s.name for s in systems().values() for package in s.packages}


# --- what happens at the end of `import torch` ----------------------------------------------------


def chosen() -> str:
    """The system that was asked for, by the setting or by `causeway compat install`; else ""."""
    if config.given("compat"):
        asked: str = config.get("compat")
        return "" if asked == "off" else asked
    try:
        kept = marker().read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return kept if kept in systems() else ""


def start() -> None:
    """Do what was asked for, before the device has its name. Raises CausewayError where the real
    package is installed: it is not shadowed.
    """
    name = chosen()
    if not name:
        return
    system = systems()[name]
    names = system.packages | system.inner
    aliases = Aliases(names, f"Causeway's {', '.join(system.packages)} (docs/compat.md)")
    for package in system.packages:
        aliases.refuse_others(
            package,
            f"CAUSEWAY_COMPAT={name} is for environments without it: set it to off, or uninstall "
            f"{package}",
        )
    aliases.install()
    if name == "npu":  # whose users have Ascend's apex
        apex.install_where_absent()
    if system.device:
        config.default("device_name", system.device)
    if system.backends:
        config.default("comm_names", system.backends)
    for variable in system.variables.values():
        if variable.setting:
            config.alias(variable.name, variable.setting, _READ[variable.read])
    state.compat = name


def attached() -> None:
    """Give torch.<name> the names that the system's module has, once it is there."""
    if state.compat == "npu":
        from causeway.compat import npu_module

        npu_module.extend()
    elif state.compat == "mlu":
        from causeway.compat import mlu_module

        mlu_module.extend()
    elif state.compat == "mindtorch":
        from causeway.compat.mindtorch import adapter

        adapter.extend()


def device_module(package: str, name: str) -> ModuleType:
    """The device's module, which `package` has as `name`: with what is below it the same objects as
    torch.<name>, however they are imported.
    """
    from causeway.device import _SUBMODULES, module

    for at in (f"causeway.compat.{package}.{name}", f"{package}.{name}"):
        sys.modules[at] = module
        sys.modules.update({f"{at}.{key}": below for key, below in _SUBMODULES.items()})
    return module


def hint(error: BaseException) -> str:
    """What to do about an import that failed, or ""."""
    name = getattr(error, "name", None) or ""
    system = packages().get(name.partition(".")[0])
    if not isinstance(error, ModuleNotFoundError) or system is None or state.compat == system:
        return ""
    other = f", not {state.compat}" if state.compat else ""
    package = name.partition(".")[0]
    return (
        f"causeway: code for {package} runs with CAUSEWAY_COMPAT={system}{other}, or "
        f"once `causeway compat install {system}` was called (docs/compat.md)"
    )


# --- variables ------------------------------------------------------------------------------------


def unheeded() -> list[str]:
    """Sentences on variables of these systems that are set and have no effect."""
    found = []
    for system in systems().values():
        active = state.compat == system.name
        for variable in system.variables.values():
            heeded = variable.setting or variable.package
            if variable.name not in os.environ or (active and heeded):
                continue
            if variable.package:
                why = f"it is read with CAUSEWAY_COMPAT={system.name}, by `{variable.package}`"
            elif variable.setting:
                own = config.SETTINGS[variable.setting].variable
                why = f"it is honoured with CAUSEWAY_COMPAT={system.name}; else set {own}"
            else:
                why = variable.says
            sentence = f"{variable.name} has no effect: {why}"
            if sentence not in found:
                found.append(sentence)
    return found


# --- installing -----------------------------------------------------------------------------------


def first(name: str) -> Path:
    """The folder with a system's packages for a path of Python: for programs that import them
    before torch, where nothing of Causeway has run yet.
    """
    return Path(__file__).with_name("first") / name


def marker() -> Path:
    """The file that says which system is installed in this environment."""
    import torch

    return Path(torch.__file__).parents[1] / MARKER


def installed() -> str:
    """The system that is installed in this environment, or ""."""
    try:
        return marker().read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def install(name: str) -> list[Path]:
    """Make code for a system run in this environment, with no variable. The folders that were made.

    Raises CausewayError where one of its packages is installed, or another system is.
    """
    from causeway.errors import CausewayError

    system = systems()[name]
    former = installed()
    if former and former != name:
        raise CausewayError(f"{former} is installed: the device has one name; remove it first")
    aliases = Aliases(system.packages, "")
    for package in system.packages:
        other = aliases.elsewhere(package)
        if other is not None:
            raise CausewayError(f"{package} is installed ({other.origin}): it is not replaced")
    folders = []
    for package in system.packages:
        folder = marker().parent / package
        folder.mkdir(exist_ok=True)
        for file in (MARK, "__init__.py"):
            shutil.copyfile(first(name) / package / file, folder / file)
        folders.append(folder)
    marker().write_text(f"{name}\n", encoding="utf-8")
    return folders


def remove() -> str:
    """Take install() back; the system that was installed, or ""."""
    name = installed()
    for package in systems()[name].packages if name in systems() else ():
        folder = marker().parent / package
        if (folder / MARK).is_file():  # no other's
            for file in (folder / MARK, folder / "__init__.py"):
                file.unlink(missing_ok=True)
            for cached in (folder / "__pycache__").glob("*.pyc"):
                cached.unlink()
            for empty in (folder / "__pycache__", folder):
                if empty.is_dir() and not any(empty.iterdir()):
                    empty.rmdir()
    marker().unlink(missing_ok=True)
    return name


def stand_in(package: str) -> None:
    """What the package of `first` does: become ours, now that torch is there."""
    system = packages()[package]
    if state.compat != system:
        why = "; ".join(p.message for p in state.problems) or "another system was chosen"
        raise ModuleNotFoundError(f"No module named {package!r}: {why}", name=package)
    del sys.modules[package]
    __import__(package)


def named_in(text: str) -> set[str]:
    """The systems whose packages a program imports, by its text."""
    known = packages()
    del known["mindspore"]  # which by itself is a framework of its own
    found = set()
    for names in re.findall(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]+(.+)", text, re.M):
        for name in [names[0]] if names[0] else names[1].split(","):
            found.add(known.get(re.split(r"[.\s#;]", name.strip())[0], ""))
    return found - {""}


__all__ = ["chosen", "hint", "install", "installed", "remove", "start", "systems"]
