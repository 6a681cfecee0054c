"""torch_mlu.core.dumptool.Dumper: operators printed as they run, by causeway.dump."""

from __future__ import annotations

from contextlib import ExitStack

import causeway
from causeway.compat.missing import no_effect


class Dumper(ExitStack):
    """Prints operators with their arguments while it is entered; with `level` above 0 their values.

    `use_cpu` compares each with the CPU, as causeway.compare does. `dump_dir` has no effect.
    """

    def __init__(
        self, dump_dir: str = "./dump", enable: bool = True, use_cpu: bool = False, level: int = 0
    ) -> None:
        super().__init__()
        self.enable, self.use_cpu, self.level = enable, use_cpu, level
        if dump_dir != "./dump":
            no_effect("Dumper(dump_dir=...)", "set CAUSEWAY_DUMP_TO to a file")

    def __enter__(self) -> Dumper:
        super().__enter__()
        if self.enable:
            self.enter_context(causeway.dump(3 if self.level else 2))
            if self.use_cpu:
                self.enter_context(causeway.compare())
        return self
