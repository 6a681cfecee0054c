"""Turning the redirection on and off: everything is replaced, or nothing is.

`enable` collects the replacements in a `Patches`, applies them, and takes all back if one fails.
What a program holds from before is found in its modules. `disable` restores every symbol.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch

from causeway import atomic, config
from causeway.apex import importing
from causeway.errors import CausewayError
from causeway.redirect import places
from causeway.redirect.devices import Devices, resolve
from causeway.redirect.patches import Patches
from causeway.redirect.places import RedirectionReport

_lock = threading.RLock()
_now: Redirection | None = None
_last = ""  # the target of the last redirection, for a report after its end
_unfixed: list[str] = []


class Redirection:
    """CUDA's calls go to `target`, from `enable` until `disable`; a context manager that disables
    at its end.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.devices = Devices(target)
        self.served: dict[str, str] = {}  # name: what serves it
        self._stack = ExitStack()

    def __enter__(self) -> Redirection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _now is self:
            disable()

    def apply(self) -> None:
        """Replace everything, or raise and leave nothing replaced."""
        from causeway.redirect import around

        with ExitStack() as stack:
            around.prepare()
            stack.callback(around.forget)  # after all is put back
            patches = Patches()
            stack.callback(patches.undo)
            self._replace(patches)
            patches.rebind()
            self.unfixed = patches.reach() if _program_runs() else []
            around.follow(self.devices, patches, stack)
            self._stack = stack.pop_all()

    def _replace(self, patches: Patches) -> None:
        from causeway.redirect import cuda, tools
        from causeway.redirect.replacements import HOW, _public
        from causeway.redirect.targets import ALL

        # First the rows of the table, since names of torch.cuda are taken from the device's module.
        made: list[tuple[Any, str, Any, Any]] = []
        for target in ALL:
            owner, last = find(target.name)
            original = getattr(owner, last, None)
            if owner is None or (original is None and last != "cuda"):
                continue  # a torch without it
            new = HOW[target.how](original, target, self.devices)
            made.append((owner, last, original, new))
            self.served[_public(target.name)] = self.target
        for owner, name, new, served in cuda.replacements(self.devices):
            made.append((owner, name, getattr(owner, name, None), new))
            where = owner.__name__ if isinstance(owner.__name__, str) else "torch.cuda"
            self.served[f"{where}.{name}"] = served
        self.served |= dict.fromkeys(tools.NAMES, self.target)
        for owner, name, original, new in made:
            patches.replace(owner, name, new)
            if callable(original) and not isinstance(owner, type):
                patches.everywhere(original, new)

    def revert(self) -> None:
        """Put everything back."""
        self._stack.close()


def find(name: str) -> tuple[Any, str]:
    """The owner of a dotted name, None where it is not there, and the last part."""
    *path, last = name.split(".")
    owner: Any = sys.modules.get(path[0])
    for i, part in enumerate(path[1:], 2):
        owner = getattr(owner, part, None) or sys.modules.get(".".join(path[:i]))
        if owner is None:
            return None, last
    return owner, last


def enable(target: str = "device") -> Redirection:
    """Redirect CUDA's calls to `target`: "device", the accelerator of this machine, or "cpu".

    For the whole process and all its threads, and for processes that it starts from now on
    (CAUSEWAY_TRANSFER is set for them). Does nothing where it is on already with this target.
    `with enable():` disables at the end.

    Raises ConfigError where there is no such device, and CausewayError where CUDA is redirected to
    another target. torch with CUDA of its own is refused.
    """
    global _now, _last
    with _lock:
        name = resolve(target)
        if _now is not None:
            if _now.target == name:
                return _Nested(_now)
            raise CausewayError(
                f"CUDA is redirected to {_now.target!r} already: call disable() before "
                f"enable({target!r})"
            )
        if torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
            raise CausewayError(
                "this torch is built with CUDA: its calls go to CUDA itself and are not redirected"
            )
        redirection = Redirection(name)
        redirection.apply()
        _now, _last = redirection, name
        _unfixed[:] = redirection.unfixed
        return redirection


class _Nested(Redirection):
    """What enable() gives where CUDA is redirected already: its end ends nothing."""

    def __init__(self, outer: Redirection) -> None:
        self.target, self.devices, self.served = outer.target, outer.devices, outer.served

    def __exit__(self, *args: object) -> None:
        pass


def _program_runs() -> bool:
    """Whether a program may hold names already: not while `import torch` turns this on."""
    from causeway.state import state

    return state.seconds > 0


def disable() -> None:
    """Put every symbol back; does nothing where CUDA is not redirected. The report is kept."""
    global _now
    with _lock:
        if _now is not None:
            redirection, _now = _now, None
            _served.update(redirection.served)
            redirection.revert()


_served: dict[str, str] = {}


def enabled() -> str:
    """The target to which CUDA's calls go, or "" where they are not redirected."""
    return _now.target if _now is not None else ""


def report(*, clear: bool = False) -> RedirectionReport:
    """What was redirected so far: each name with its place and the number of calls.

    `print` gives a table, `to_json` what `causeway migrate` reads. With `clear` the next one starts
    from here.
    """
    served = {**_served, **(_now.served if _now is not None else {})}
    found = RedirectionReport(_last, places.read(served), list(_unfixed))
    if clear:
        places.clear()
    return found


# --- by the settings ----------------------------------------------------------------------------


def start() -> None:
    """Do what the settings say; called at the end of `import torch`."""
    target = config.get("transfer")
    if target != "off":
        enable(target)
        # A program for CUDA imports an apex that is built for it. One that is there is used.
        importing.install_where_absent()
    path = config.get("transfer_report")
    if path:
        atexit.register(_write_report, path, os.getpid())


_ROOT = "_CAUSEWAY_TRANSFER_ROOT"


def _write_report(path: str, pid: int) -> None:
    """Write this process's part; the first process of a program makes one report of all parts."""
    import glob
    import json

    if os.getpid() != pid:
        return  # a fork has its parent's handlers
    mine = report()
    root = os.environ.get(_ROOT, str(pid))
    if root != str(pid):
        if mine.places:
            atomic.write(f"{path}.{root}.{pid}.part", mine.to_json() + "\n")
        return
    for part in sorted(glob.glob(f"{glob.escape(path)}.{root}.*.part")):
        with open(part) as file:
            mine = mine.merged(RedirectionReport.from_dict(json.load(file)))
        os.remove(part)
    atomic.write(path, mine.to_json() + "\n")


Hook = Callable[[Devices, Patches, ExitStack], None]
