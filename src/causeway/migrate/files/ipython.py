"""What IPython adds to Python: `%magic`, `!command`, `name?`, `%%cell` magics.

Lines that are not Python are hidden behind names of our own while the cell is converted, and put
back afterwards: whatever is done to the Python around them, they stay as they were, but for
commands, which are read as a script.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from dataclasses import dataclass, field

_LINE = re.compile(
    r"(?P<indent>[ \t]*)(?P<assigned>[A-Za-z_][\w.,\[\]'\" \t]*=[ \t]*)?"
    r"(?P<magic>[%!][^\n]*|\?[^\n]*)\Z"
)
# May stand in any cell of a notebook, but in a program only at its beginning.
_FUTURE = re.compile(r"^from __future__ import [\w, ]+$", re.MULTILINE)
# A magic before a statement of Python on the same line.
_BEFORE = re.compile(
    r"%(?:time|timeit|prun|memit|lprun|mprun)(?:[ \t]+-\w+(?:[ \t]+\d+)?)*[ \t]+(?=\S)"
)
_HELP = re.compile(r"[ \t]*%?[A-Za-z_*][\w.*\[\]]*\?\??[ \t]*\Z")
_CELL = re.compile(r"\s*%%(?P<name>\S*)[ \t]*(?P<rest>[^\n]*)(?:\n|\Z)")
# Cell magics whose body is Python.
_PYTHON = frozenset({
    "capture", "debug", "heat", "lprun", "memit", "mprun", "mypy", "prun", "px", "python",
    "python3", "scalene", "skip", "snakeviz", "time", "timeit", "wandb",
})  # fmt: skip


@dataclass
class Cell:
    """A cell as it is converted. `head` stays before `body`; `hidden` maps our names to what stood
    there; `language` is python, shell, another word, or the name of a file that is written.
    """

    head: str
    body: str
    language: str = "python"
    hidden: dict[str, str] = field(default_factory=dict)

    def restore(self, body: str) -> str | None:
        """The cell with this body, what was hidden put back; None where some of it got lost."""
        for name, text in self.hidden.items():
            if body.count(name) != 1:
                return None
            body = body.replace(name, text)
        return self.head + body


def read(source: str, number: int) -> Cell | None:
    """The cell `number` of a notebook; None where it is not Python, even without its magics."""
    found = _CELL.match(source)
    if found:
        head, body = source[: found.end()], source[found.end() :]
        name, rest = found.group("name"), found.group("rest").strip()
        if name in ("bash", "sh", "!") or (name == "script" and re.match(r"(ba|z)?sh\b", rest)):
            return Cell(head, body, "shell")
        if name in ("writefile", "file") and rest:
            return Cell(head, body, f"file:{rest.split()[-1]}")
        if name not in _PYTHON:
            return Cell(head, body, name or "?")
        inner = read_python(body, number)
        return None if inner is None else Cell(head, inner.body, hidden=inner.hidden)
    return read_python(source, number)


def read_python(source: str, number: int) -> Cell | None:
    """The same for a body that should be Python."""
    if _parses(source):
        future = number > 1 and _FUTURE.search(source)
        return _hide(source, number, magics=False) if future else Cell("", source)
    # A line of a text or of a bracket may begin with % too; looking for that takes time.
    for careful in (False, True):
        cell = _hide(source, number, careful=careful)
        if cell.hidden and _parses(cell.body):
            return cell
    return None


def _hide(source: str, number: int, *, magics: bool = True, careful: bool = False) -> Cell:
    hidden: dict[str, str] = {}
    lines: list[str] = []
    open_ended = ""  # a magic whose line goes on
    for line in source.split("\n"):
        if open_ended:
            hidden[open_ended] += "\n" + line
            open_ended = open_ended if line.endswith("\\") else ""
            continue
        found = _LINE.match(line) if magics else None
        name = f"__causeway_magic_{number}_{len(hidden)}__"
        before = _BEFORE.match(found.group("magic")) if found else None
        if found and before and not found.group("assigned"):
            # The statement is converted with the others; two on a line are allowed.
            hidden[f"{name}; "] = before.group()
            lines.append(f"{found.group('indent')}{name}; {found.group('magic')[before.end() :]}")
        elif found and not (careful and _is_open("\n".join(lines))):
            hidden[name] = found.group("magic")
            lines.append(found.group("indent") + (found.group("assigned") or "") + name)
            open_ended = name if line.endswith("\\") else ""
        elif number > 1 and _FUTURE.match(line):
            hidden[name] = line
            lines.append(name)
        elif magics and _HELP.match(line):
            hidden[name] = line.strip()
            lines.append(line.replace(line.strip(), name))
        else:
            lines.append(line)
    return Cell("", "\n".join(lines), hidden=hidden)


def _is_open(source: str) -> bool:
    """Whether a bracket or a text of several lines is still open at the end."""
    try:
        for _ in tokenize.generate_tokens(io.StringIO(source + "\n").readline):
            pass
    except tokenize.TokenError as error:
        return "EOF in multi-line" in str(error)
    except SyntaxError:  # an indentation that does not fit
        return False
    return False


def _parses(source: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
                    dont_inherit=True)  # fmt: skip
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True
