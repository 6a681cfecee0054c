"""How far a long command is: a line that changes on a terminal, a line for each part elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """Yields what is called with the words of each part. All goes to standard error.

    In a log, where nothing changes in place, a run of an hour would otherwise say nothing until it
    ends, and nothing of where it was if it is ended.
    """
    from rich.console import Console

    terminal = Console(stderr=True)
    if terminal.is_terminal:
        with terminal.status(title) as status:
            yield status.update
        return

    def tell(text: str) -> None:
        terminal.print(text, markup=False, highlight=False, soft_wrap=True)

    yield tell
