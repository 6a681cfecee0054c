"""Which names of torch_npu's wheel Causeway's stand-in has: `python tests/compat/names.py WHEEL`.

The wheel is read, not installed: `pip download torch_npu==2.13.* --no-deps` gives one. Its public
names are those of `__all__`, what its packages import for their users, and the list of operators
that it keeps. A name works here, or raises and says what to write; what does neither is listed. The
counts are kept for docs/compat.md, which `make docs` writes.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULT = HERE.parents[1] / "src/causeway/compat/covered.json"
# By what a program writes: the file of the wheel, and whether what it imports from itself counts.
MODULES = {
    "torch_npu": ("torch_npu/__init__.py", False),
    "torch.npu": ("torch_npu/npu/__init__.py", False),
    "torch.npu.amp": ("torch_npu/npu/amp/__init__.py", False),
    "torch_npu.contrib": ("torch_npu/contrib/__init__.py", True),
    "torch_npu.optim": ("torch_npu/optim/__init__.py", False),
    "torch_npu.profiler": ("torch_npu/profiler/__init__.py", False),
    "torch_npu.distributed": ("torch_npu/distributed/__init__.py", False),
    "torch_npu.utils": ("torch_npu/utils/__init__.py", True),
}
OPERATORS = "torch_npu/utils/exposed_api.py"


def public(wheel: Path) -> dict[str, list[str]]:
    """The public names of a wheel, by module."""
    found = {}
    with zipfile.ZipFile(wheel) as archive:
        for module, (file, imported) in MODULES.items():
            tree = ast.parse(archive.read(file))
            names = set(_listed(tree, "__all__"))
            if imported:
                names |= {
                    alias.asname or alias.name for node in tree.body
                    if isinstance(node, ast.ImportFrom) and node.level for alias in node.names
                }  # fmt: skip
            if module == "torch_npu":
                names |= set(_listed(ast.parse(archive.read(OPERATORS)), "public_npu_functions"))
            found[module] = sorted(name for name in names if not name.startswith("_"))
    return found


def _listed(tree: ast.Module, name: str) -> list[str]:
    return [
        element.value for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name
        for element in getattr(node.value, "elts", ()) if isinstance(element, ast.Constant)
    ]  # fmt: skip


def standing(names: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    """What becomes of each here: "works", "says what to write", or "unknown"."""
    import importlib

    import torch

    out: dict[str, dict[str, str]] = {}
    for module, wanted in names.items():
        importlib.import_module("torch_npu")
        parts = module.split(".")
        where: Any = torch if parts[0] == "torch" else importlib.import_module("torch_npu")
        for part in parts[1:]:
            where = getattr(where, part)
        out[module] = {name: _one(where, name) for name in wanted}
    return out


def _one(where: Any, name: str) -> str:
    try:
        getattr(where, name)
    except AttributeError as error:
        said = str(error)
        vague = ("has no attribute" in said and ":" not in said) or "not among the names" in said
        return "unknown" if vague else "says what to write"
    return "works"


def main() -> None:
    wheel = Path(sys.argv[1])
    found = standing(public(wheel))
    for module, names in found.items():
        counts = Counter(names.values())
        print(f"{module}: {len(names)} names, {dict(counts)}")
        for name, what in names.items():
            if what == "unknown":
                print(f"  {module}.{name}")
    counts_of = {module: dict(Counter(names.values())) for module, names in found.items()}
    table = {"wheel": wheel.name.partition("-cp")[0], "modules": counts_of}
    RESULT.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if os.environ.get("CAUSEWAY_COMPAT") != "npu":
        os.execve(
            sys.executable, [sys.executable, *sys.argv], os.environ | {"CAUSEWAY_COMPAT": "npu"}
        )
    main()
