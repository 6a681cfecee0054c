"""The simulated chip through its C table, for the tests here: settings are words of the call.

The table itself is causeway.conformance.table, loaded by its path: these tests need no torch.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

_path = Path(__file__).parents[2] / "src/causeway/conformance/table.py"
_spec = importlib.util.spec_from_file_location("table", _path)
assert _spec is not None
assert _spec.loader is not None
_table = importlib.util.module_from_spec(_spec)
sys.modules["table"] = _table
_spec.loader.exec_module(_table)
globals().update({name: value for name, value in vars(_table).items() if name[0] != "_"})


class Sim(_table.Library):  # type: ignore[name-defined]
    """An instance with these settings: Sim(path, execution="async")."""

    def __init__(self, path: str | os.PathLike[str], **settings: object) -> None:
        if reserved := os.environ.get("CW_TEST_SIM_MEMORY"):
            settings.setdefault("memory", reserved)
        texts = {key: str(value) for key, value in settings.items()}
        super().__init__(path, texts.get)


SimError = _table.TableError
