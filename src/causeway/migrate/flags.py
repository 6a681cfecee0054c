"""Options of a program that are named after CUDA, `--no-cuda`, and what they may be called instead.

Once the program runs on any accelerator the name says too little. It is the users' word, so it is
only renamed where that was asked for (`--rename-flags`), everywhere at once: the option, its help
text, the attribute it becomes, and the launch scripts of the tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from causeway.migrate.names import called
from causeway.migrate.source import tree_of

CUDA = re.compile(r"--(?:(?:no|use|with|without|enable|disable)[-_]?)?cuda\Z")
# What torch.accelerator covers too: an option of its own loses its sense.
OTHERS = re.compile(r"--(?:(?:no|use|with|without|enable|disable)[-_]?)?(?:mps|xpu)\Z")
_WORTH = re.compile(rb"""["'/]--[\w-]*cuda["'/]""")
_WORD = re.compile(r"(?P<article>\ba )?\bcuda\b(?: (?:gpu|device)(?=s?\b))?", re.I)


def renamed(name: str) -> str:
    """`--no-accel` for `--no-cuda`, `no_accel` for `no_cuda`."""
    return re.sub(r"cuda\Z", "accel", name)


def renamed_in(literal: str) -> str:
    """The same of a string as it is written, with its quotes; of both names of a pair."""
    return re.sub(r"cuda(?=[\"']+\Z|/--)", "accel", literal)


def parts(name: str) -> list[str]:
    """The names of an option: two of click's pair, `--cuda/--no-cuda`."""
    return name.split("/")


def reworded(text: str) -> str:
    """A help text that speaks of the accelerator in place of CUDA."""
    return _WORD.sub(lambda m: f"{'an ' if m['article'] else ''}accelerator", text)


def variable(option: str) -> str:
    """The attribute that an option becomes: `no_cuda` of `--no-cuda`, `cuda` of a pair."""
    return parts(option)[0].lstrip("-").replace("-", "_")


def of_call(call: ast.Call) -> list[ast.Constant]:
    """The names of an option, `--…`, that a call of argparse, click or typer adds."""
    if called(call) not in ("add_argument", "option", "Option"):
        return []
    return [
        a for a in call.args
        if isinstance(a, ast.Constant) and isinstance(a.value, str) and a.value.startswith("--")
    ]  # fmt: skip


def find(files: Iterable[Path]) -> frozenset[str]:
    """All options of a tree's scripts that are named after CUDA. Nothing is run."""
    found: set[str] = set()
    for path in files:
        tree = tree_of(path, lambda data: _WORTH.search(data) and b"causeway: keep" not in data)
        if tree is None:
            continue
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        for call in calls:
            for node in of_call(call):
                found.update(parts(str(node.value)))
                if any("BooleanOptionalAction" in ast.dump(k.value) for k in call.keywords):
                    found.add("--no-" + str(node.value)[2:])  # argparse makes it
    return frozenset(name for name in found if CUDA.match(name) and renamed(name) not in found)
