"""Writing what was converted: in place with a journal to take it back, or as a copy of the tree.

A journal is a folder `.causeway/migrate/<number>/` at the root: `journal.json` with the hashes of
each file before and after, and the originals. It is complete before the first file is replaced, and
each file is replaced at once, so that an interruption leaves every file old or new, and undoing
works.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from causeway import atomic
from causeway.migrate.engine import MigrateError
from causeway.migrate.finding import FileResult, Result
from causeway.migrate.source import encode

_FOLDER = Path(".causeway") / "migrate"


def write(result: Result) -> list[Path]:
    """Replace the files that changed, with a journal for `undo`; the files written.

    Raises MigrateError, with nothing written, where a file has changed since it was read.
    """
    root = Path(result.root)
    changed = [file for file in result.files if file.changed]
    if not changed:
        return []
    stale = [f.path for f in changed if (root / f.path).read_bytes() != _before(f)]
    if stale:
        raise MigrateError(
            f"{_list(stale)} changed while it was converted; nothing was written. Run again."
        )
    folder = _next(root)
    for file in changed:
        _place(folder / "originals" / file.path, _before(file))
    entries = [
        {"path": f.path, "before": _hash(_before(f)), "after": _hash(_after(f))} for f in changed
    ]
    _place(folder / "journal.json", json.dumps({"version": 1, "files": entries}, indent=1).encode())
    _place(root / ".causeway" / ".gitignore", b"*\n")
    for file in changed:
        atomic.write(root / file.path, _after(file))
    return [root / file.path for file in changed]


def undo(start: Path) -> list[Path]:
    """Put back what the last `write` at or above `start` replaced; the files restored.

    A journal above counts only where it names a file in `start`'s folder: one of /tmp is not about
    a project that lies there. Raises MigrateError, with nothing restored, where there is no
    journal, or where files changed since; the message names them.
    """
    folder = start if start.is_dir() else start.parent
    for root in (folder, *folder.parents):
        if not (journals := _journals(root)):
            continue
        journal, table = journals[-1], _read(journals[-1])
        if any((root / entry["path"]).is_relative_to(folder) for entry in table["files"]):
            break
    else:
        raise MigrateError(
            f"there is nothing to undo: no {_FOLDER} at or above {folder} names a file in it"
        )
    changed, todo = [], []
    for entry in table["files"]:
        path = root / entry["path"]
        # A journal that came with somebody's repository must not reach out of it.
        if not path.resolve().is_relative_to(root.resolve()) or path.is_symlink():
            raise MigrateError(f"{journal} names {entry['path']}, which is not in {root}")
        now = _hash(path.read_bytes()) if path.is_file() else ""
        if now == entry["after"]:
            todo.append(path)
        elif now != entry["before"]:
            changed.append(entry["path"])
    if changed:
        raise MigrateError(
            f"{_list(changed)} changed since the conversion; nothing was undone. The originals are "
            f"in {journal / 'originals'}"
        )
    for path in todo:
        atomic.write(path, (journal / "originals" / path.relative_to(root)).read_bytes())
    shutil.rmtree(journal)
    if not _journals(root):
        shutil.rmtree(root / ".causeway" / "migrate")
        left = [p.name for p in (root / ".causeway").iterdir()]
        if left == [".gitignore"]:
            shutil.rmtree(root / ".causeway")
    return todo


def copy(result: Result, paths: Iterable[Path], target: Path) -> list[Path]:
    """Write the tree to `target` with the changes in it; the files that differ from the originals.

    All files are copied, also those of no kind that is converted; links stay links. Folders of
    version control and caches are left out. One file becomes `target` itself where that has the
    same suffix, and is in the folder `target` else. Raises MigrateError where `target` exists with
    something in it, or lies inside of the tree.
    """
    root = Path(result.root)
    sources = [path.resolve() for path in paths]
    goal = target.resolve()
    if len(sources) == 1 and sources[0].is_file() and goal.suffix == sources[0].suffix:
        return _copy_file(result, sources[0], goal)
    if goal.exists() and (not goal.is_dir() or any(goal.iterdir())):
        raise MigrateError(f"{target} is not empty; name a folder that is not there yet")
    if any(path.is_dir() and (goal == path or path in goal.parents) for path in sources):
        raise MigrateError(f"{target} is inside of what is converted; name a folder outside of it")
    goal.parent.mkdir(parents=True, exist_ok=True)
    # Beside the goal, then renamed: there is a whole copy or none.
    with tempfile.TemporaryDirectory(dir=goal.parent, prefix=f".{goal.name}.") as made:
        work = Path(made) / "copy"
        work.mkdir()
        ignore = shutil.ignore_patterns(".git", ".hg", ".svn", ".causeway", "__pycache__")
        for path in sources:
            place = work / path.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, place, symlinks=True, ignore=ignore, dirs_exist_ok=True)
            else:
                shutil.copy2(path, place)
        for file in result.files:
            if file.changed:
                (work / file.path).write_bytes(_after(file))
        if goal.exists():
            goal.rmdir()
        os.replace(work, goal)
    return [goal / file.path for file in result.files if file.changed]


def _copy_file(result: Result, source: Path, goal: Path) -> list[Path]:
    """One file as another; [] where nothing of it changed, and it is a copy."""
    if goal.exists():
        raise MigrateError(f"{goal} is there already; name a file that is not")
    if not goal.parent.is_dir():
        raise MigrateError(f"there is no folder {goal.parent}")
    changed = [file for file in result.files if file.changed]
    atomic.write(goal, _after(changed[0]) if changed else source.read_bytes())
    shutil.copymode(source, goal)
    return [goal] if changed else []


def _before(file: FileResult) -> bytes:
    return encode(file.before, file.encoding)


def _after(file: FileResult) -> bytes:
    return encode(file.after, file.encoding)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _journals(root: Path) -> list[Path]:
    """Journals of a folder, oldest first; one that was cut off while it was written is none."""
    folder = root / _FOLDER
    found = folder.glob("*/journal.json") if folder.is_dir() else ()
    return sorted((p.parent for p in found), key=lambda p: int(p.name))


def _read(journal: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((journal / "journal.json").read_text(encoding="utf-8"))
    if table.get("version") != 1:
        raise MigrateError(f"{journal} is of another version of Causeway; restore its originals")
    return table


def _next(root: Path) -> Path:
    folder = root / _FOLDER
    if not folder.resolve().is_relative_to(root.resolve()):
        raise MigrateError(f"{root / '.causeway'} is a link out of the tree; remove it first")
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [int(p.name) for p in folder.iterdir() if p.name.isdigit()]
    fresh = folder / f"{max(numbers, default=0) + 1:04d}"
    fresh.mkdir()
    return fresh


def _place(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")
