"""The core and the simulated chip compiled for sanitizers or for coverage, beside what is in src/.

The package has a folder of its own, with a copy of the Python files, and is found first by
PYTHONPATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# `pip install -e` puts a finder before sys.path, which would find the core of every day.
FIRST = """import sys

sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != "_editable_skbc_causeway"]
"""
BUILT = ("_C.*.so", "lib", "include", "vendor-template", "__pycache__")


def build(folder: Path, *definitions: str, at_start: str = "") -> Path:
    """Build into `folder` with CMake's definitions; give the folder for PYTHONPATH.

    Every Python that finds it runs `at_start` first. Incremental; a core built anew takes ten
    minutes.
    """
    package = folder / "package"
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    for command in (
        ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}",
         *definitions],
        ["nice", "cmake", "--build", folder, "--parallel", os.environ.get("JOBS", "1")],
    ):  # fmt: skip
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(
        ROOT / "src" / "causeway", package / "causeway", ignore=shutil.ignore_patterns(*BUILT)
    )
    command = ["cmake", "--install", folder, "--prefix", package]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    (package / "sitecustomize.py").write_text(FIRST + at_start)
    return package
