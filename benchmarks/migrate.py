"""How fast `causeway migrate` is: lines a second of one core, on trees that it makes.

A tree of 20,000 lines in which every module has CUDA code (the worst case), one of 120,000 lines in
which one module of six has, as in public repositories, and Python's parser alone on the same files.
"""

from __future__ import annotations

import ast
import json
import sys
import tempfile
import time
from pathlib import Path

from causeway.migrate import engine
from causeway.migrate.settings import Settings

CORPUS = Path(__file__).parents[1] / "tests" / "programs"
PLAIN = Path(ast.__file__).parent


def tree(folder: Path, lines: int, every: int) -> int:
    """Fill `folder` with modules; the lines written. One of `every` has CUDA code."""
    cuda = [p.read_text(encoding="utf-8") for p in sorted(CORPUS.glob("*.py"))]
    plain = [p.read_text(encoding="utf-8") for p in sorted(PLAIN.glob("[a-h]*.py"))]
    written = i = 0
    while written < lines:
        text = cuda[i % len(cuda)] if i % every == 0 else plain[i % len(plain)]
        (folder / f"module_{i}.py").write_text(text, encoding="utf-8")
        written += text.count("\n")
        i += 1
    return written


def measure(lines: int, every: int, jobs: int) -> dict[str, float]:
    """Seconds of the process and of the clock for a tree, and of Python's parser alone."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        written = tree(folder, lines, every)
        clock, process = time.perf_counter(), time.process_time()
        result = engine.run([folder], Settings(jobs=jobs))
        seconds = {"clock_s": time.perf_counter() - clock, "core_s": time.process_time() - process}
        begun = time.process_time()
        for path in folder.glob("*.py"):
            ast.parse(path.read_bytes())
        parser = time.process_time() - begun
    assert result.lines == written
    figures = {"lines": written, "changed": result.totals()["changed"], **seconds}
    if jobs == 1:
        figures["lines_per_core_second"] = written / seconds["core_s"]
        figures["times_the_parser"] = seconds["core_s"] / parser
    return figures


if __name__ == "__main__":
    measure(500, 1, 1)  # imports
    results = {
        "20,000 lines, CUDA in each module": measure(20_000, 1, 1),
        "20,000 lines, CUDA in one of six": measure(20_000, 6, 1),
        "120,000 lines, CUDA in one of six, all cores": measure(120_000, 6, 0),
    }
    json.dump(results, sys.stdout, indent=1)
    print()
