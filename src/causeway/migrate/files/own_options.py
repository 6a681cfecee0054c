"""What options of a tree's own scripts follow the device by themselves once they are converted.

`parser.add_argument("--device", default="cuda")` takes the accelerator's name for its default, so a
launcher that says `--device cuda` may leave that out: on CUDA it means the same, and elsewhere it
is right too. Scripts are parsed and not run. Options that are read in another way, or whose default
is none of CUDA's, are not among them: nothing shows what they mean without an argument.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from causeway.compat import systems
from causeway.migrate.source import tree_of

_WORTH = re.compile(rb"add_argument\s*\(")
# Values that name CUDA or another system: its device, its backend of collectives.
DEVICES = frozenset({"cuda", *(s.device for s in systems().values() if s.device)})
WORDS = DEVICES | {"nccl", *(b for s in systems().values() for b in s.backends)}
_NAMED = re.compile(rf"""["'](?:{"|".join(sorted(WORDS))})["']""".encode())
_DEVICE = re.compile(r"device", re.I)
_BACKEND = re.compile(r"backend", re.I)


def find(files: Iterable[tuple[str, Path]]) -> dict[str, frozenset[str]]:
    """By the name of a script: its options whose default is one of WORDS, with their dashes."""
    found: dict[str, frozenset[str]] = {}
    for name, path in files:
        tree = tree_of(path, _worth)
        if tree is None:
            continue
        options = {
            option for call in ast.walk(tree) if isinstance(call, ast.Call)
            for option in _options(call)
        }  # fmt: skip
        if options:
            found[name] = frozenset(options)
    return found


def _worth(data: bytes) -> bool:
    return bool(_WORTH.search(data) and _NAMED.search(data)) and b"causeway: keep" not in data


def _options(call: ast.Call) -> list[str]:
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"):
        return []
    names = [a.value for a in call.args if isinstance(a, ast.Constant)]
    default = next((k.value for k in call.keywords if k.arg == "default"), None)
    if isinstance(default, ast.IfExp):  # "cuda" if torch.cuda.is_available() else "cpu"
        default = default.body
    value = default.value if isinstance(default, ast.Constant) else None
    if value not in WORDS:
        return []
    word = _DEVICE if value in DEVICES else _BACKEND
    return [n for n in names if isinstance(n, str) and n.startswith("--") and word.search(n)]


def of_script(options: Mapping[str, frozenset[str]], launcher: str, script: str) -> frozenset[str]:
    """The options of `script` as the file `launcher` names it: relative to its own folder, or to
    the root.
    """
    folder = posixpath.dirname(launcher)
    for name in (posixpath.join(folder, script), script):
        found = options.get(posixpath.normpath(name))
        if found:
            return found
    return frozenset()
