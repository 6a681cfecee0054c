"""Every file of trees through the converter: `python tests/migrate/sweep.py [FOLDER…]`.

Default: Python's standard library and torch's own package. Says what changed, and exits with 1
where a file fails, does not parse afterwards, or changes again the second time.
"""

from __future__ import annotations

import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path

from causeway.migrate.finding import FileInput
from causeway.migrate.python import convert
from causeway.migrate.settings import Settings


def sweep(top: Path) -> bool:
    """Take all of a tree; whether every file behaved."""
    counts: Counter[str] = Counter()
    lines, bad, begun = 0, 0, time.process_time()
    for path in sorted(top.rglob("*.py")):
        if "site-packages" in path.relative_to(top).parts:
            continue
        data = path.read_bytes()
        name = str(path.relative_to(top))
        lines += data.count(b"\n")
        result = convert(FileInput(name, data), Settings())
        counts[result.status] += 1
        if result.status not in ("unchanged", "converted"):
            print(f"{name}: {result.status}: {result.reason}")
            bad += result.status == "skipped"
        if result.changed:
            again = convert(FileInput(name, result.after.encode()), Settings())
            if again.changed:
                print(f"{name}: a second run changes it again")
                bad += 1
    seconds = time.process_time() - begun
    print(f"{top}: {lines} lines, {lines / seconds:.0f} lines a second of one core, both times")
    print(", ".join(f"{count} {status}" for status, count in counts.items()), f"{bad} failed")
    return not bad


if __name__ == "__main__":
    folders = [Path(a) for a in sys.argv[1:]]
    if not folders:
        import torch

        folders = [Path(sysconfig.get_path("stdlib")), Path(torch.__file__).parent]
    results = [sweep(folder) for folder in folders]
    sys.exit(0 if all(results) else 1)
