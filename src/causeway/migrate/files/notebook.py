"""Notebooks: the code of their cells is converted, and nothing else of the file is touched.

All Python cells are one program, for a name that one cell imports is used in the next: they are
joined with marks between, converted by Python's converter, and taken apart again. Only lines that
became other ones are written; outputs, metadata, ids, the way strings are escaped and the
indentation of the file stay byte for byte.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field, replace

from causeway.migrate import finding
from causeway.migrate.files import ipython, json_places, shell
from causeway.migrate.files.draft import Draft, NotReadableError
from causeway.migrate.files.variables import judge_variable
from causeway.migrate.finding import FileInput, FileResult, Finding
from causeway.migrate.settings import Settings
from causeway.migrate.systems import words

CELL = "CW620"

_WORTH = re.compile(rf"cuda|nccl|gpu|nvidia|torch|{words().pattern.decode()}", re.IGNORECASE)
_MARK = re.compile(r"^__causeway_cell_(\d+)__\n", re.MULTILINE)
_COMMAND = re.compile(r"(?:!+|%(?:sx|system|sc)\s+)")
_INSTALL = re.compile(r"%(?=(?:pip|conda|mamba)\s)")
_ENV = re.compile(r"%(?:env|set_env)\s+([A-Za-z_]\w*)")


@dataclass
class _Cell:
    number: int  # from 1, among all cells
    node: json_places.Node  # of its source
    source: str
    read: ipython.Cell | None = None
    after: str = ""
    findings: list[Finding] = field(default_factory=list)  # lines and columns inside the cell


def convert(file: FileInput, settings: Settings) -> FileResult:
    """A notebook in Jupyter's format 3 or 4. One for another language than Python is left alone."""
    try:
        text = file.data.decode("utf-8")
    except UnicodeDecodeError as error:
        return FileResult(file.path, "unparsable", f"not UTF-8: {error.reason} at {error.start}")
    if not _WORTH.search(text):
        return FileResult(file.path, "unchanged", "", text, text)
    try:
        tree = json_places.read(text)
    except NotReadableError as error:
        line = "" if error.place is None else f"line {Draft(text).line(error.place)}: "
        return FileResult(file.path, "unparsable", f"{line}{error}", text, text)
    if not _is_python(tree):
        return FileResult(file.path, "unchanged", "", text, text)
    cells = _cells(tree)
    for cell in cells:
        cell.read = ipython.read(cell.source, cell.number)
        cell.after = cell.source
        _commands(cell, file, settings)
    failure = _python(cells, file, settings)
    draft = Draft(text, settings)
    pieces, place = [], 0
    ascii_only = text.isascii()
    for cell in cells:
        if cell.after != cell.source:
            pieces += [text[place : cell.node.start], _written(text, cell, ascii_only)]
            place = cell.node.end
    after = "".join([*pieces, text[place:]])
    findings = [_placed(found, cell, draft) for cell in cells for found in cell.findings]
    status: finding.Status = "converted" if after != text else "unchanged"
    if failure and after == text:
        return FileResult(file.path, "unparsable", failure, text, text, findings=findings)
    return FileResult(file.path, status, failure, text, after, findings=findings)


def _is_python(tree: json_places.Node) -> bool:
    metadata = tree.get("metadata")
    for group, key in (("kernelspec", "language"), ("language_info", "name")):
        node = metadata.get(group) if metadata else None
        node = node.get(key) if node else None
        if node is not None and isinstance(node.value, str):
            return node.value.lower() in ("python", "ipython", "python3", "python2")
    return True


def _cells(tree: json_places.Node) -> list[_Cell]:
    lists = [tree.get("cells")]
    sheets = tree.get("worksheets")  # format 3
    lists += [sheet.get("cells") for sheet in (sheets.items or [] if sheets else [])]
    found, number = [], 0
    for cells in lists:
        for node in (cells.items or []) if cells else []:
            number += 1
            kind, source = node.get("cell_type"), node.get("source") or node.get("input")
            if kind is None or kind.value != "code" or source is None:
                continue
            parts = [source] if source.items is None else source.items
            if all(isinstance(part.value, str) for part in parts):
                found.append(_Cell(number, source, "".join(part.value for part in parts)))
    return found


# --- what is not Python ---------------------------------------------------------------------------


def _commands(cell: _Cell, file: FileInput, settings: Settings) -> None:
    """Commands in a cell, cells that are scripts, cells that are files."""
    read = cell.read
    if read is None:
        if _WORTH.search(cell.source):
            message = "a cell that is not Python stays as it is"
            cell.findings += _note(file.path, settings, CELL, "manual", message)
        return
    offset = read.head.count("\n")
    if read.language == "shell":
        after = _script(cell, read.body, offset, file, settings)
        cell.after = read.head + after
    elif read.language.startswith("file:"):
        path = read.language.removeprefix("file:")
        converter = finding.converter(path)
        if converter is not None:
            result = converter(
                FileInput(path, read.body.encode(), file.own, file.own_packages), settings
            )
            cell.findings += [_moved(f, file.path, offset) for f in result.findings]
            if result.status == "converted":
                cell.after = read.head + result.after
    elif read.language in ("cu", "cuda"):
        cell.findings += _note(file.path, settings, "CW650", "unsupported", "a cell in CUDA")
    for name, magic in read.hidden.items():
        line = offset + read.body[: read.body.index(name)].count("\n")
        # What is hidden may be several lines long, and those before it too.
        line += sum(
            other.count("\n") for key, other in read.hidden.items()
            if read.body.index(key) < read.body.index(name)
        )  # fmt: skip
        read.hidden[name] = _magic(cell, magic, line, file, settings)


def _magic(cell: _Cell, magic: str, line: int, file: FileInput, settings: Settings) -> str:
    for pattern in (_COMMAND, _INSTALL):
        found = pattern.match(magic)
        if found:
            return found.group() + _script(cell, magic[found.end() :], line, file, settings)
    variable = _ENV.match(magic)
    if variable:
        draft = Draft(magic, settings)
        judge_variable(draft, variable.group(1), variable.span(1), use=False)
        cell.findings += [_moved(f, file.path, line) for f in draft.findings(file.path)]
        return draft.after
    return magic


def _script(cell: _Cell, text: str, line: int, file: FileInput, settings: Settings) -> str:
    draft = Draft(text, settings)
    try:
        shell.convert_part(draft)
    except NotReadableError:  # IPython fills {names} in before a shell sees it
        return text
    cell.findings += [_moved(f, file.path, line) for f in draft.findings(file.path)]
    return draft.after


def _note(
    path: str, settings: Settings, rule: str, kind: finding.Kind, message: str
) -> list[Finding]:
    """A finding about a cell as a whole."""
    draft = Draft(" ", settings)
    draft.say(rule, kind, (0, 1), message)
    return draft.findings(path)


def _moved(found: Finding, path: str, lines: int) -> Finding:
    return replace(found, file=path, line=found.line + lines, end_line=found.end_line + lines)


# --- Python ---------------------------------------------------------------------------------------


def _python(cells: list[_Cell], file: FileInput, settings: Settings) -> str:
    """Convert all cells of Python as one program. What could not be done is said, else ""."""
    mine = [c for c in cells if c.read is not None and c.read.language == "python"]
    convert_python = finding.converter("notebook.py")
    if not mine or convert_python is None:
        return ""
    bodies = [cell.read.body for cell in mine if cell.read]
    program = bodies[0] + "".join(
        f"\n__causeway_cell_{cell.number}__\n{body}"
        for cell, body in zip(mine[1:], bodies[1:], strict=True)
    )
    result = convert_python(
        FileInput(
            file.path, program.encode(), file.own, file.own_packages,
            chosen_late=file.chosen_late,
        ),
        settings,
    )  # fmt: skip
    if result.status not in ("converted", "unchanged"):
        return f"the cells together are not Python: {result.reason}"
    # A converter that had nothing to do gives no text at all.
    after = result.after if result.status == "converted" else program
    parts = _MARK.split("\n" + after)
    numbers = [int(number) for number in parts[1::2]]
    texts = [text.removeprefix("\n") if i == 0 else text for i, text in enumerate(parts[::2])]
    if numbers != [cell.number for cell in mine[1:]]:
        return "the conversion moved code from one cell to another: left as it was"
    texts = [text.removesuffix("\n") for text in texts[:-1]] + texts[-1:]
    for cell, text in zip(mine, texts, strict=True):
        restored = cell.read.restore(text) if cell.read else None
        if restored is None:
            return f"the conversion lost a magic of cell {cell.number}: left as it was"
        cell.after = restored
    _spread(mine, bodies, result.findings)
    return ""


def _spread(mine: list[_Cell], bodies: list[str], findings: list[Finding]) -> None:
    """Give each finding of the program to its cell."""
    starts, line = [], 1
    for body in bodies:
        starts.append(line)
        line += body.count("\n") + 2  # the mark's own line
    for found in findings:
        at = max(i for i, start in enumerate(starts) if start <= found.line)
        cell = mine[at]
        assert cell.read is not None
        # Above it in the cell: the head, and magics of several lines.
        above = "\n".join(bodies[at].split("\n")[: found.line - starts[at]])
        extra = sum(text.count("\n") for name, text in cell.read.hidden.items() if name in above)
        own = bodies[at].split("\n")[found.line - starts[at]]
        same = sum(len(text) - len(name) for name, text in cell.read.hidden.items()
                   if name in own[: found.column])  # fmt: skip
        shift = cell.read.head.count("\n") + extra - starts[at] + 1
        cell.findings.append(
            replace(
                found,
                line=found.line + shift,
                end_line=found.end_line + shift,
                column=found.column + same,
                end_column=found.end_column + (same if found.line == found.end_line else 0),
            )
        )


# --- writing back ---------------------------------------------------------------------------------


def _written(text: str, cell: _Cell, ascii_only: bool) -> str:
    """The cell's new source as it stands in the file: lines that stayed are copied."""
    node = cell.node
    if node.items is None:
        return json.dumps(cell.after, ensure_ascii=ascii_only)
    old = [item.value for item in node.items]
    raw = [text[item.start : item.end] for item in node.items]
    new = re.findall(r"[^\n]*\n|[^\n]+", cell.after)
    new += [""] if old[-1] == "" else []
    items: list[str] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        items += raw[i1:i2] if tag == "equal" else [
            json.dumps(line, ensure_ascii=ascii_only) for line in new[j1:j2]
        ]  # fmt: skip
    first, last = node.items[0], node.items[-1]
    before = text[node.start + 1 : first.start]
    behind = text[last.end : node.end - 1]
    between = text[first.end : node.items[1].start] if len(old) > 1 else f",{before or ' '}"
    return f"[{before}{between.join(items)}{behind}]"


def _placed(found: Finding, cell: _Cell, draft: Draft) -> Finding:
    """The finding with its lines in the file, and the number of its cell said."""
    line, column = _place(cell, draft, found.line, found.column)
    end_line, end_column = _place(cell, draft, found.end_line, found.end_column)
    return replace(
        found, line=line, column=column, end_line=end_line, end_column=end_column,
        message=f"cell {cell.number}, line {found.line}: {found.message}",
    )  # fmt: skip


def _place(cell: _Cell, draft: Draft, line: int, column: int) -> tuple[int, int]:
    parts = cell.node.items if cell.node.items else [cell.node]
    seen = 1
    for part in parts:
        lines = part.value.split("\n")
        reaches = seen + len(lines) - 1
        if line < reaches or part is parts[-1] or (line == reaches and lines[-1]):
            prefix = "\n".join(lines[: line - seen])
            prefix += ("\n" if line > seen else "") + (
                lines[line - seen] if line - seen < len(lines) else ""
            )[: column - 1]
            place = part.start + len(json.dumps(prefix, ensure_ascii=draft.text.isascii())) - 1
            place = min(place, part.end - 1)
            return draft.line(place), draft.column(place)
        seen = reaches
    return draft.line(cell.node.start), 1
