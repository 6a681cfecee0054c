"""Tools that are switched through os.environ while the program runs: dump, overflow, compare.

Python tells the core of each os.environ["CAUSEWAY_..."] = ... by an audit event, so nothing asks
the environment again and again. The event comes before the variable has its value: an observer of
every operator is set up, which looks at the settings at the next call and goes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from causeway import config
from causeway.debug import dump, overflow, whole
from causeway.errors import CausewayError
from causeway.observe import observe
from causeway.observe.selection import Names

# Settings, what makes the tool follow them, and who looks on.
TOOLS: dict[str, tuple[tuple[str, ...], Callable[[], None], Callable[[], Any]]] = {
    "dump": (whole.TOOLS["dump"], dump.apply, dump.running),
    "overflow": (whole.TOOLS["overflow"], overflow.apply, overflow.running),
    "compare": (whole.COMPARE, whole.push_compare, lambda: None),  # from the next call on
}


def apply(tool: str) -> None:
    """Make a tool be what its settings say."""
    TOOLS[tool][1]()


class _Look(observe.Observer):
    """Looks at the environment once, at the next operator, whichever it is."""

    def __init__(self) -> None:
        self.tools: set[str] = set()

    def before(self, call: Any) -> None:
        tools, self.tools = self.tools, set()
        observe.remove(self)
        for tool in tools:
            _from_environment(tool)
        # This call too: who looks on from now on is told of it here.
        running = [TOOLS[tool][2]() for tool in tools]
        call.notes[self] = [r for r in running if r and Names(r.operators).has(call.name)]
        for observer in call.notes[self]:
            observer.before(call)

    def after(self, call: Any) -> None:
        for observer in call.notes.pop(self, ()):
            observer.after(call)


def _from_environment(tool: str) -> None:
    for name in TOOLS[tool][0]:
        if (problem := config.problem(name)) is not None:
            warnings.warn(f"causeway: {problem}", stacklevel=2)
    try:
        apply(tool)
    except CausewayError as error:  # of the environment: it must not stop the program
        warnings.warn(f"causeway: {error}", stacklevel=2)


_look = _Look()


def changed(name: str) -> None:
    """The variable of a setting is about to get another value."""
    for tool, (names, _, _) in TOOLS.items():
        if name in names:
            if not _look.tools:
                observe.add(_look)
            _look.tools.add(tool)
