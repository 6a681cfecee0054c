"""torch_mlu.core.dumptool.Dumper: operators printed as they run, by causeway.dump."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import causeway
from causeway.compat.missing import no_effect


class Dumper:
    """Prints operators with their arguments while it is entered; with `level` above 0 their values.

    `use_cpu` compares each with the CPU, as causeway.compare does. `dump_dir` has no effect.
    """

    def __init__(
        self, dump_dir: str = "./dump", enable: bool = True, use_cpu: bool = False, level: int = 0
    ) -> None:
        self.enable, self.use_cpu, self.level = enable, use_cpu, level
        if dump_dir != "./dump":
            no_effect("Dumper(dump_dir=...)", "set CAUSEWAY_DUMP_TO to a file")
        self._entered: list[Any] = []

    def __enter__(self) -> Dumper:
        if self.enable:
            self._entered.append(causeway.dump(3 if self.level else 2))
            if self.use_cpu:
                self._entered.append(causeway.compare())
            for context in self._entered:
                context.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._entered:
            self._entered.pop().__exit__(kind, error, trace)
