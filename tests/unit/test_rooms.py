"""What may stand on what: the order of the folders of csrc/, and of the modules of src/causeway.

A folder includes itself and those before it. An arrow back is how a circle begins.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "src/causeway"

# From the ground to the roof. `portable` knows no torch and stands on the contract alone.
ORDER = ["portable", "runtime", "ladder", "aten", "torch", "comm", "."]
# The list of all kernels, and four parts of the engine that a family of kernels shares with it.
ENGINE_TO_KERNELS = {
    "compiled.cpp -> functions.h",
    "find.cpp -> scatter.h",
    "tune.cpp -> gemm.h",
    "program.cpp -> pointwise.h",
}


def included(root: Path) -> Iterable[tuple[str, str, str]]:
    """(folder that includes, folder that is included, what): each quoted include under `root`."""
    for path in sorted(root.rglob("*")):
        if path.suffix not in {".cpp", ".h"}:
            continue
        own = str(path.relative_to(root).parent)
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            folder, _, file = name.rpartition("/")
            if folder != "causeway":
                yield own, folder, f"{path.name} -> {file}"


def room(folder: str) -> str:
    return folder.split("/")[0]


def backwards(root: Path) -> list[str]:
    return [
        f"{own}/{what} of {folder}"
        for own, folder, what in included(root)
        if room(folder) not in ORDER
        or room(own) not in ORDER
        or ORDER.index(room(folder)) > ORDER.index(room(own))
    ]


def test_no_folder_of_csrc_includes_one_that_stands_on_it() -> None:
    assert backwards(CSRC) == []


def test_the_engine_of_portable_kernels_knows_no_family_but_four() -> None:
    arrows = {
        what
        for own, folder, what in included(CSRC)
        if (own, folder) == ("portable", "portable/kernels")
    }
    assert arrows == ENGINE_TO_KERNELS


def test_an_include_that_goes_back_is_found(tmp_path: Path) -> None:
    for name in ("runtime", "ladder"):
        (tmp_path / name).mkdir()
    (tmp_path / "runtime/stream.cpp").write_text('#include "ladder/call.h"\n')
    (tmp_path / "ladder/call.cpp").write_text('#include "runtime/stream.h"\n')
    assert backwards(tmp_path) == ["runtime/stream.cpp -> call.h of ladder"]


def module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(root: Path) -> dict[str, set[str]]:
    """For each module of the package the modules of it that it imports, in functions too.

    The package itself is lazy and does not count; neither do names that only a type checker reads.
    """
    modules = {module_of(path, root): path for path in root.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text())
        skipped = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            for inner in ast.walk(node)
        }
        names: set[str] = set()
        for node in ast.walk(tree):
            if id(node) in skipped:
                continue
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    names.add(whole if whole in modules else node.module)
        found[module] = {n for n in names if n in modules and n != root.name and n != module}
    return found


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Tarjan's strongly connected components of more than one module."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(arrows[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            component = []
            while True:
                component.append(stack.pop())
                if component[-1] == module:
                    break
            if len(component) > 1:
                result.append(sorted(component))

    for module in sorted(arrows):
        if module not in index:
            visit(module)
    return result


def by_folder(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same between the folders and files right below the package."""
    found: dict[str, set[str]] = {}
    for module, others in arrows.items():
        own = ".".join(module.split(".")[:2])
        below = {".".join(other.split(".")[:2]) for other in others}
        found.setdefault(own, set()).update(below - {own})
    return found


def test_no_modules_of_the_package_import_each_other() -> None:
    assert circles(imports(PACKAGE)) == []


def test_no_folders_of_the_package_import_each_other() -> None:
    assert circles(by_folder(imports(PACKAGE))) == []


def test_folders_that_import_each_other_are_found(tmp_path: Path) -> None:
    package = tmp_path / "made"
    for name, line in (("a", "from made.b.one import x"), ("b", "")):
        (package / name).mkdir(parents=True)
        (package / name / "one.py").write_text(line)
    (package / "b" / "two.py").write_text("import made.a.one")
    for folder in (package, package / "a", package / "b"):
        (folder / "__init__.py").write_text("")
    arrows = imports(package)
    assert circles(arrows) == []
    assert circles(by_folder(arrows)) == [["made.a", "made.b"]]


@pytest.mark.parametrize("line", ["from made import b", "def f():\n    import made.b"])
def test_modules_that_import_each_other_are_found(tmp_path: Path, line: str) -> None:
    package = tmp_path / "made"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text(line)
    (package / "b.py").write_text("from made.a import x")
    assert circles(imports(package)) == [["made.a", "made.b"]]
