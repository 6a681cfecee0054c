"""The files that a script imports from its own folder, by what its imports say; nothing is run.

Python looks for modules beside the script first, so the search starts there. What is imported by a
name that is only known at run time cannot be found so, and is said.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

# What makes modules known that no `import` names.
_BY_NAME = {"import_module", "__import__", "run_path", "run_module", "spec_from_file_location"}


class UnknownImport(ValueError):
    """An import that cannot be followed; the text says where and why."""


def files(script: Path, root: Path | None = None) -> list[Path]:
    """The script and all files of `root`, by default its folder, that it imports, and those that
    they import. Raises UnknownImport where one of them imports what cannot be known before it runs.
    """
    root = root or script.parent
    found: set[Path] = set()
    wanted = [script]
    while wanted:
        path = wanted.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imports(path, root):
            wanted += _of_module(root, name)
    return sorted(found)


def _imports(path: Path, root: Path) -> Iterator[str]:
    """The modules that a file may import, by their whole names."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError) as error:
        raise UnknownImport(f"{path} cannot be read: {error}") from None
    package = path.parent.relative_to(root).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *((node.module,) if node.module else ())])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            yield from _called(path, node, package)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path":
            raise UnknownImport(f"{path}:{node.lineno} uses sys.path")


def _called(path: Path, node: ast.Call, package: tuple[str, ...]) -> Iterator[str]:
    func = node.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    if name not in _BY_NAME:
        return
    given = node.args[0] if node.args else None
    module = given.value if isinstance(given, ast.Constant) else None
    if not isinstance(module, str) or name not in ("import_module", "__import__"):
        raise UnknownImport(f"{path}:{node.lineno} calls {name}(), whose module is not known here")
    dots = len(module) - len(module.lstrip("."))
    above = package[: len(package) - dots + 1] if dots else ()
    yield ".".join([*above, module.lstrip(".")])


def _of_module(root: Path, name: str) -> list[Path]:
    """The files that importing a module runs, as far as they are in the folder: its packages' own
    too.
    """
    place, found = root, []
    for part in filter(None, name.split(".")):
        place = place / part
        package, module = place / "__init__.py", place.with_suffix(".py")
        if package.is_file():
            found.append(package)
        elif module.is_file():
            return [*found, module]
        elif not place.is_dir():
            break
    return found
