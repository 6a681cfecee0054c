"""Run the tests of memory and threads with a sanitizer: `python tests/sanitizers/run.py thread`.

`address` is AddressSanitizer with UndefinedBehaviorSanitizer, `thread` ThreadSanitizer. The core
and the simulated chip are built with it into build/asan or build/tsan; Python and torch are as they
are, so the sanitizer's runtime is loaded before them. Every process of the tests writes its reports
into a folder; one report fails the run, whether or not a test looks at it. `--planted` runs only
the tests of this (test_sanitizers.py), further arguments are pytest's, in the place of SCOPE.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent))

import instrumented  # noqa: E402


@dataclass(frozen=True)
class Sanitizer:
    flags: str  # of -fsanitize
    folder: Path
    library: str  # its runtime
    options: dict[str, str]
    without: str = ""  # marks of tests that cannot run with it


# Reports do not end a process, and do not change its exit status: they are read from the files.
SANITIZERS = {
    "address": Sanitizer(
        "address,undefined",
        ROOT / "build" / "asan",
        "libasan.so",
        {
            # Python and torch keep much until the end. The chip's own handler of SIGSEGV is tested.
            "ASAN_OPTIONS": "halt_on_error=0:detect_leaks=0:handle_segv=0:handle_sigbus=0:"
            "verify_asan_link_order=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
    ),
    "thread": Sanitizer(
        "thread",
        ROOT / "build" / "tsan",
        "libtsan.so",
        {
            # What torch's and Python's code does is not seen, so that only their locks count. The
            # tests fork processes that have threads, as Python's multiprocessing does.
            "TSAN_OPTIONS": "exitcode=0:ignore_noninstrumented_modules=1:die_after_fork=0:"
            "handle_segv=0:handle_sigbus=0:"
            f"report_thread_leaks=0:second_deadlock_stack=1:suppressions={HERE / 'thread.txt'}",
        },
    ),
}

ASYNC = {"MEMORY_MODEL": "discrete", "EXECUTION": "async", "OPS": "all"}
UNIFIED = {"MEMORY_MODEL": "unified", "EXECUTION": "async", "OPS": "all"}
CODE = {"CODE": "1", "OPS": "none", "EXECUTION": "async"}
# What touches memory, streams, threads and the ladder; without tests that start Pythons one by one.
DEVICE = [
    f"tests/device/test_{name}.py"
    for name in (
        "accelerator", "amp", "autograd", "comm", "data", "decompose", "dlpack", "graphs",
        "graphs_as_cuda", "layouts",
        "memory", "memory_history", "modules", "overlap", "profiler", "random",
        "selection", "serialization", "streams", "two_devices", "workarounds",
    )
]  # fmt: skip
# (settings of the simulated chip, arguments of Python)
SCOPE: list[tuple[dict[str, str], list[str]]] = [
    ({}, ["-m", "pytest", "tests/test_tiny.py", "tests/abi"]),
    (ASYNC, ["-m", "pytest", *DEVICE, "-m", "not process and not slow and not long"]),
    ({}, ["-m", "pytest", "tests/core/test_threads.py"]),
    (ASYNC, ["tests/random_programs.py", "0", "60"]),
    (UNIFIED, ["tests/random_programs.py", "60", "100"]),
    (CODE, ["tests/random_programs.py", "100", "120"]),
]


def missing(name: str) -> str | None:
    """Why the sanitizer cannot run here, None where it can."""
    if not shutil.which("c++"):
        return "there is no C++ compiler"
    if runtime(SANITIZERS[name].library) is None:
        return f"the C++ compiler has no {SANITIZERS[name].library}"
    if name == "thread":
        # Its shadow memory has a fixed place, which the addresses of today's kernels may cross.
        if not shutil.which("setarch"):
            return "there is no setarch"
        if subprocess.run(["setarch", "-R", "true"], capture_output=True, check=False).returncode:
            return "setarch -R may not switch off the randomization of addresses here"
    return None


def runtime(library: str) -> Path | None:
    """The C++ compiler's own copy of a library."""
    command = ["c++", f"-print-file-name={library}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path = Path(done.stdout.strip())
    return path.resolve() if path.is_absolute() else None


def build(name: str) -> Path:
    """The folder for PYTHONPATH."""
    sanitizer = SANITIZERS[name]
    return instrumented.build(sanitizer.folder, f"-DCAUSEWAY_SANITIZE={sanitizer.flags}")


def environment(name: str, reports: Path) -> dict[str, str]:
    """The variables of a process that the sanitizer watches."""
    sanitizer = SANITIZERS[name]
    package = sanitizer.folder / "package"
    # Python is a C program: without the C++ library beside it the runtime finds no __cxa_throw.
    preload = [runtime(library) for library in (sanitizer.library, "libstdc++.so.6")]
    options = {
        key: f"{value}:log_path={reports / 'report'}" for key, value in sanitizer.options.items()
    }
    return options | {
        "LD_PRELOAD": " ".join(map(str, preload)),
        "PYTHONPATH": str(package),
        "CW_SIM_LIBRARY": str(package / "causeway" / "lib" / "libcw_sim.so"),
        "OMP_NUM_THREADS": "1",
        "CW_TEST_SECONDS": os.environ.get("CW_TEST_SECONDS", "4"),
        # A chip that a test opens reserves addresses, of which the thread sanitizer leaves few.
        "CW_TEST_SIM_MEMORY": "256M",
    }


def command(name: str, arguments: Sequence[str]) -> list[str]:
    """`python ARGUMENTS` as the sanitizer needs it."""
    return [*(["setarch", "-R"] if name == "thread" else []), sys.executable, *arguments]


def read_reports(folder: Path) -> list[str]:
    """The reports of all processes, each once however often it came up."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("report*")))
    text = re.sub(r"^(=+|ThreadSanitizer: reported .*)$", "", text, flags=re.M)
    begin = re.compile(
        r"^(?==+\d*=*ERROR: |WARNING: ThreadSanitizer|\S+:\d+:\d+: runtime error)", re.M
    )
    found = [part.strip() for part in begin.split(text) if begin.match(part)]
    # Two are the same if their functions are.
    names = {re.sub(r"0x[0-9a-f]+|\bT?\d+\b|\(.*?\)", "", part): part for part in reversed(found)}
    return list(reversed(names.values()))


def main(arguments: list[str]) -> int:
    name, own = arguments[0] if arguments else "", arguments[1:]
    if name not in SANITIZERS:
        print(f"usage: run.py {' | '.join(SANITIZERS)} [--planted | pytest's arguments]")
        return 2
    if why := missing(name):
        print(f"{name}: {why}", file=sys.stderr)
        return 2
    planted = ["-m", "pytest", str(HERE / "test_sanitizers.py"), "-k", name]
    if subprocess.run([sys.executable, *planted, "-q"], cwd=ROOT, check=False).returncode:
        print(f"{name}: it does not find what is planted, so that it finds nothing means nothing")
        return 1
    if own == ["--planted"]:
        return 0
    build(name)
    folder = SANITIZERS[name].folder
    lines, failed = [], False
    for number, (sim, words) in enumerate([({}, ["-m", "pytest", *own])] if own else SCOPE):
        reports = folder / f"reports-{number}"
        shutil.rmtree(reports, ignore_errors=True)
        reports.mkdir()
        variables = environment(name, reports)
        variables |= {f"CAUSEWAY_SIM_{key}": value for key, value in sim.items()}
        start = time.monotonic()
        if "pytest" in words:
            words = [*words, "-q", "-p", "no:cacheprovider", "--timeout=1200"]
        status = subprocess.run(
            command(name, words), cwd=ROOT, env=os.environ | variables, check=False
        ).returncode
        found = read_reports(reports)
        print("\n\n".join(found), flush=True)
        failed |= bool(found) or status != 0
        what = " ".join(word for word in words if word.startswith(("tests/", "0", "60", "100")))
        counts = f"status {status}, {len(found)} reports"
        lines.append(f"{time.monotonic() - start:5.0f} s   {counts}: {what} {sim or ''}")
    print("\n" + "\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
