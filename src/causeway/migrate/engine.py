"""From paths to results: which files there are, and each through the converter of its kind.

Links are not followed, nothing is imported or run, and nothing is written here (`journal.py` does).
Files are converted in processes of their own where there are enough of them to be worth it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pathspec

from causeway.errors import CausewayError
from causeway.migrate import flags, own, visible
from causeway.migrate.files import own_options
from causeway.migrate.finding import (
    OUR_MISTAKE,
    FileInput,
    FileResult,
    Result,
    converter,
    converter_name,
)
from causeway.migrate.own import Own
from causeway.migrate.settings import Settings

# Never of the user's making. A folder with a pyvenv.cfg is skipped too.
_SKIPPED = {".git", ".hg", ".svn", ".causeway", "__pycache__", "node_modules", ".tox", ".nox"}
_LARGEST = 20 << 20  # bytes; what is larger is data
_WORTH_PROCESSES = 1 << 20  # bytes
_BUILT = re.compile(
    rb"""\b(?:CUDAExtension|extension|load)\(\s*(?:name\s*=\s*)?(["'])([A-Za-z_][\w.]*)\1"""
)


class MigrateError(CausewayError):
    """A path that is not there, or a place that cannot be written."""


@dataclass(frozen=True)
class Found:
    """A file to look at; `skip` is the reason not to."""

    path: Path
    name: str  # relative to the root, with slashes
    size: int = 0
    skip: str = ""


@dataclass(frozen=True)
class _Tree:
    """What one file must know of the others."""

    own: Own
    own_packages: frozenset[str]
    options: dict[str, frozenset[str]]
    flags: frozenset[str]
    extensions: frozenset[str]
    chosen_late: bool
    for_cuda: bool


def root_of(paths: Sequence[Path]) -> Path:
    """The folder that names of files are relative to: that of the paths, or what holds them all."""
    for path in paths:
        if not path.exists():
            raise MigrateError(f"there is no {path}")
    folders = [path if path.is_dir() else path.parent for path in (p.resolve() for p in paths)]
    return Path(os.path.commonpath(folders))


def collect(paths: Sequence[Path], settings: Settings) -> tuple[Path, list[Found]]:
    """The root, and all files under the paths whose kind is known, less what is ignored.

    Files that are named are taken even where .gitignore names them.
    """
    root = root_of(paths)
    exclude = pathspec.GitIgnoreSpec.from_lines(settings.exclude)
    found: dict[str, Found] = {}
    for path in (p.absolute() for p in paths):
        if path.is_dir():
            files: Iterable[Found] = _walk(path.resolve(), root, exclude)
        else:
            name = _name(path.resolve(), root)
            skip = "" if converter_name(name) else "no converter for files of this kind"
            files = [Found(path.resolve(), name, path.stat().st_size, skip)]
        found.update((file.name, file) for file in files)
    return root, sorted(found.values(), key=lambda file: file.name)


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _walk(top: Path, root: Path, exclude: pathspec.GitIgnoreSpec) -> Iterator[Found]:
    specs: list[tuple[Path, pathspec.GitIgnoreSpec]] = [(root, exclude)]
    for folder in reversed([top, *top.parents]):  # those above count too, up to the repository
        specs += _ignore(folder) if _within(folder, _repository(top)) and folder != top else []
    yield from _folder(top, root, specs)


def _repository(path: Path) -> Path:
    return next((p for p in (path, *path.parents) if (p / ".git").exists()), path)


def _within(path: Path, top: Path) -> bool:
    return path == top or top in path.parents


def _ignore(folder: Path) -> list[tuple[Path, pathspec.GitIgnoreSpec]]:
    file = folder / ".gitignore"
    if not file.is_file() or file.is_symlink():
        return []
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return [(folder, pathspec.GitIgnoreSpec.from_lines(lines))]


def _folder(
    folder: Path, root: Path, specs: list[tuple[Path, pathspec.GitIgnoreSpec]]
) -> Iterator[Found]:
    specs = specs + _ignore(folder)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Found(folder, _name(folder, root), skip=f"cannot be read: {error.strerror}")
        return
    for entry in entries:
        path = Path(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        if _ignored(path, is_folder, specs):
            continue
        if is_folder:
            if entry.name not in _SKIPPED and not (path / "pyvenv.cfg").exists():
                yield from _folder(path, root, specs)
        elif converter_name(_name(path, root)):
            if entry.is_symlink():
                yield Found(path, _name(path, root), skip="a symbolic link")
            elif entry.is_file(follow_symlinks=False):
                size = entry.stat(follow_symlinks=False).st_size
                skip = f"larger than {_LARGEST >> 20} MiB" if size > _LARGEST else ""
                yield Found(path, _name(path, root), size, skip)


def _ignored(path: Path, is_folder: bool, specs: list[tuple[Path, pathspec.GitIgnoreSpec]]) -> bool:
    ignored = False
    for base, spec in specs:
        name = path.relative_to(base).as_posix() + ("/" if is_folder else "")
        verdict = spec.check_file(name).include
        if verdict is not None:
            ignored = verdict
            if ignored and base is specs[0][0] and spec is specs[0][1]:
                return True  # --exclude is not taken back by a .gitignore
    return ignored


def run(
    paths: Sequence[Path],
    settings: Settings,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Convert everything under `paths`, and write nothing. `progress` is told how many of how many
    files are done.
    """
    root, files = collect(paths, settings)
    modules = [file for file in files if not file.skip and file.path.suffix == ".py"]
    built = extensions(file.path for file in modules)
    known = _Tree(
        own.find([file.path for file in modules], root, built),
        own_packages((file.path for file in modules), root),
        own_options.find((file.name, file.path) for file in modules),
        flags.find(file.path for file in modules),
        built,
        visible.late_in_files(file.path for file in modules),
        _for_cuda(f.path for f in files if not f.skip and f.path.suffix in _SCRIPTS),
    )
    known = replace(known, for_cuda=known.for_cuda or known.own.several_vendors)
    results: list[FileResult] = []
    lines = 0
    for done, (result, count) in enumerate(_converted(files, settings, known), 1):
        results.append(result)
        lines += count
        if progress:
            progress(done, len(files))
    return Result(str(root), results, settings, lines)


def _converted(
    files: list[Found], settings: Settings, known: _Tree
) -> Iterator[tuple[FileResult, int]]:
    jobs = settings.jobs or len(os.sched_getaffinity(0))
    work = [(file, settings, known) for file in files]
    if jobs == 1 or sum(file.size for file in files) < _WORTH_PROCESSES:
        collecting = gc.isenabled()
        _quiet()
        try:
            yield from map(_one, work)
        finally:
            gc.unfreeze()
            if collecting:
                gc.enable()
        return
    # fork: a fresh interpreter would import torch, which takes longer than most trees.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_quiet) as pool:
        yield from pool.map(_one, work, chunksize=max(1, min(16, len(work) // (4 * jobs))))


def _quiet() -> None:
    """Stop the collector, and let it pass over what is there already (all of torch)."""
    gc.disable()
    gc.freeze()


# Collection while trees of nodes are made takes longer than they do; their cycles are freed here.
_COLLECT_EVERY = 100
_since_collection = 0


def _one(work: tuple[Found, Settings, _Tree]) -> tuple[FileResult, int]:
    file, settings, known = work
    if file.skip:
        return FileResult(file.name, "skipped", file.skip), 0
    convert = converter(file.name)
    assert convert is not None
    try:
        data = file.path.read_bytes()
    except OSError as error:
        return FileResult(file.name, "skipped", f"cannot be read: {error.strerror}"), 0
    given = FileInput(
        file.name, data, known.own, known.own_packages, known.flags, known.options,
        known.extensions, known.chosen_late, known.for_cuda,
    )  # fmt: skip
    try:
        result = convert(given, settings)
    except Exception as error:
        # A mistake of a converter must not cost the rest of the tree; the user is told.
        what = f"{type(error).__name__}: {error}"
        result = FileResult(file.name, "skipped", f"{OUR_MISTAKE}: {what}")
    if result.before:
        global _since_collection
        _since_collection += 1
        if _since_collection >= _COLLECT_EVERY:
            _since_collection = 0
            gc.collect()
    return result, data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


def own_packages(paths: Iterable[Path], root: Path) -> frozenset[str]:
    """The packages that a tree is, which its own modules import: the outermost folders with an
    `__init__.py`, and those of the root (and of `src`) that hold modules without one.
    """
    modules = [path.resolve() for path in paths]
    folders = {path.parent for path in modules if path.name == "__init__.py"}
    named = {folder.name for folder in folders if folder.parent not in folders}
    for top in (root, root / "src"):
        for path in modules:
            if path.is_relative_to(top) and len(parts := path.relative_to(top).parts) > 1:
                named.add(parts[0])
    return frozenset(named)


_SCRIPTS = (".sh", ".bash", ".slurm")


def _for_cuda(scripts: Iterable[Path]) -> bool:
    """Whether a tree has a script that chooses devices of CUDA."""
    return any(b"CUDA_VISIBLE_DEVICES" in data for data in _contents(scripts))


def _contents(paths: Iterable[Path]) -> Iterator[bytes]:
    """The bytes of each file that can be read."""
    for path in paths:
        with suppress(OSError):
            yield path.read_bytes()


def extensions(paths: Iterable[Path]) -> frozenset[str]:
    """The modules that a tree builds for CUDA, by the names that its builds give them."""
    names: set[str] = set()
    for data in _contents(paths):
        if b"cpp_extension" in data and (b"CUDAExtension" in data or b".cu" in data):
            names.update(found.group(2).decode() for found in _BUILT.finditer(data))
    return frozenset(names)
