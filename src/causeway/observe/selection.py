"""Which operators, steps and ranks a tool looks at."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from causeway.errors import ConfigError
from causeway.ops import ladder


class Names:
    """Operators by names or regular expressions, as `causeway.fallback` takes them."""

    def __init__(self, wanted: str | Sequence[str]) -> None:
        texts = [wanted] if isinstance(wanted, str) else wanted
        try:
            self._patterns = [re.compile(text) for text in texts if text]
        except re.error as error:
            raise ConfigError(f"{wanted!r} is no regular expression: {error}") from None
        self._known: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        """Whether the operator "aten::add.out" is one of them."""
        found = self._known.get(name)
        if found is None:
            spellings = ladder.spellings(name)
            found = any(p.fullmatch(s) for p in self._patterns for s in spellings)
            self._known[name] = found
        return found


def rank() -> int:
    """This process's number among those of the run, 0 where it is alone."""
    distributed = _distributed()
    if distributed is not None:
        return int(distributed.get_rank())
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


def world_size() -> int:
    """How many processes the run has."""
    distributed = _distributed()
    if distributed is not None:
        return int(distributed.get_world_size())
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdecimal() and "RANK" in os.environ else 1


def _distributed() -> Any:
    found = sys.modules.get("torch.distributed")  # who has not imported it has started no group
    return found if found and found.is_available() and found.is_initialized() else None


class Window:
    """Steps from `first` to `last`, and ranks. None: all."""

    def __init__(
        self, steps: tuple[int, int] | None = None, ranks: Sequence[int] | None = None
    ) -> None:
        if steps is not None and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
            raise ConfigError(f"steps is {steps!r}; expected (first, last), the first step is 1")
        self.steps = steps
        self.here = ranks is None or not ranks or rank() in ranks

    def has(self, step: int) -> bool:
        """Whether the tool looks at this step in this process."""
        return self.here and (self.steps is None or self.steps[0] <= step <= self.steps[1])
