"""`causeway migrate PATH…`: convert, show, write, undo. Heavy imports come when it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from causeway import atomic
from causeway.errors import CausewayError
from causeway.options import told

if TYPE_CHECKING:
    from rich.console import Console

    from causeway.migrate.finding import FileResult, Result


def migrate(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Files and folders. Default: this folder.")
    ] = None,
    given_paths: Annotated[
        list[Path] | None,
        typer.Option("-i", "--input", help="The same as PATH, as other converters call it."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", "-w", help="Change the files in place.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last --write back.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Write a converted copy here: a folder, or for one file a file with its suffix.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say which files would change, for CI.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(help='"portable", or a device whose own names are written: npu, mlu, NAME.'),
    ] = None,
    unsafe: Annotated[
        bool | None, typer.Option("--unsafe", help="Apply rules that may change what is computed.")
    ] = None,
    about_cuda: Annotated[
        bool | None,
        typer.Option(
            "--about-cuda", help="Convert parts that are about CUDA itself too: checks, messages."
        ),
    ] = None,
    rename_flags: Annotated[
        bool | None,
        typer.Option("--rename-flags", help="Rename --no-cuda to --no-accel, in the whole tree."),
    ] = None,
    fold_branches: Annotated[
        bool | None,
        typer.Option(
            "--fold-branches", help="Take out branches of MPS and XPU that are never taken."
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave out; a pattern as in .gitignore. Repeatable.")
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Only these rules: CW101, CW1. Repeatable.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these rules. Repeatable.")] = None,
    jobs: Annotated[int | None, typer.Option("-j", min=0, help="Processes; 0: all cores.")] = None,
    calls: Annotated[
        Path | None,
        typer.Option(
            help="What `causeway run --report` wrote: say what becomes of each call. "
            "Without PATH, the files that made them are converted."
        ),
    ] = None,
    findings: Annotated[
        bool,
        typer.Option(
            "--findings", help="List everything that was found: what is said, and its places."
        ),
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="Write every report into this folder.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the findings as JSON.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write the findings as SARIF.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write tables in CSV into this folder.")] = None,
) -> None:
    """Make CUDA code device-agnostic PyTorch, and code for torch_npu, torch_mlu, torch_dipu and
    MindTorch. Shows a diff and writes nothing, unless told to.

    Exits with 0 where nothing needs to change, or all was written; 1 where a preview or --check
    found changes; 2 for a mistake.
    """
    from causeway.migrate import calls as run_time
    from causeway.migrate import engine, journal
    from causeway.migrate.settings import Settings, from_pyproject

    console, terminal = _consoles()
    paths = [*(paths or ()), *(given_paths or ())]
    chosen = paths or [Path()]
    with told("migrate"):
        if sum((write, undo, check, output is not None)) > 1:
            raise CausewayError("of --write, --undo, --check and --output only one can be given")
        atomic.check(html, json, sarif)
        if undo:
            restored = journal.undo(chosen[0].resolve())
            console.print(f"{len(restored)} files are as they were")
            return
        made = run_time.read(calls) if calls is not None else []
        if calls is not None and not paths:
            chosen = run_time.files(made, Path())
        given: dict[str, Any] = {
            "target": target, "unsafe": unsafe, "about_cuda": about_cuda, "jobs": jobs,
            "rename_flags": rename_flags, "fold_branches": fold_branches,
            "exclude": tuple(exclude) if exclude else None,
            "select": tuple(select) if select else None,
            "ignore": tuple(ignore) if ignore else None,
        }  # fmt: skip
        engine.root_of(chosen)  # before pyproject.toml: the paths must be there
        first = chosen[0].resolve()
        table = from_pyproject(first if first.is_dir() else first.parent)
        settings = Settings(**table | {k: v for k, v in given.items() if v is not None})
        settings.checked()
        with _progress(terminal) as progress:
            result = engine.run(chosen, settings, progress)
        if output is not None:
            changed = journal.copy(result, chosen, output)
        elif write:
            changed = journal.write(result)
        else:
            changed = [Path(result.root) / f.path for f in result.files if f.changed]
        reports = _reports(result, report, html=html, json=json, sarif=sarif, csv=csv)
    if check:
        for path in changed:
            console.print(str(path), markup=False, highlight=False, soft_wrap=True)
    elif not write and output is None:
        for file in result.files:
            if file.changed:
                _diff(console, file)
    if findings:
        _findings(console, result)
    if not check:
        from causeway.migrate import reports as report_files

        report_files.show(result, terminal)
    _summary(terminal, result, write=write, output=output)
    if calls is not None:
        for line in run_time.met(result, made).lines():
            terminal.print(line, markup=False, highlight=False, soft_wrap=True)
    if reports:
        terminal.print(f"reports: {', '.join(map(str, reports))}", markup=False, highlight=False,
                       soft_wrap=True)  # fmt: skip
    if not write and output is None and changed:
        raise typer.Exit(1)


def _reports(
    result: Result, folder: Path | None, *, html: Path | None, json: Path | None,
    sarif: Path | None, csv: Path | None,
) -> list[Path]:  # fmt: skip
    """Write the reports that were asked for; their paths."""
    from causeway.migrate import reports
    from causeway.migrate.reports import machine, page, tables

    written = []
    if folder is not None:
        reports.write(result, folder)
        written.append(folder)
    if csv is not None:
        csv.mkdir(parents=True, exist_ok=True)
        tables.write(result, csv)
        written.append(csv)
    for path, write in (
        (html, page.write), (json, machine.write_json), (sarif, machine.write_sarif),
    ):  # fmt: skip
        if path is not None:
            write(result, path)
            written.append(path)
    return written


def _consoles() -> tuple[Console, Console]:
    from rich.console import Console

    return Console(), Console(stderr=True)


@contextmanager
def _progress(terminal: Console) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal, and nothing elsewhere."""
    if not terminal.is_terminal:
        yield None
        return
    from rich.progress import Progress

    with Progress(console=terminal, transient=True) as bar:
        task = bar.add_task("converting", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _quoted(path: str) -> str:
    """A path in a patch's header as git writes it: in quotes, with escapes, where it has a control
    character, a quote or a backslash. A newline would make lines of the header.
    """
    escapes = {"\a": "a", "\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r"}
    escapes |= {'"': '"', "\\": "\\"}
    found = ""
    for byte in os.fsencode(path):
        letter = chr(byte)
        if letter in escapes:
            found += "\\" + escapes[letter]
        else:
            found += letter if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
    return path if found == path else f'"{found}"'


def _diff(console: Console, file: FileResult) -> None:
    import difflib

    from rich.text import Text

    styles = {"+": "green", "-": "red", "@": "cyan"}
    lines = difflib.unified_diff(
        file.before.splitlines(), file.after.splitlines(), _quoted(f"a/{file.path}"),
        _quoted(f"b/{file.path}"),
        lineterm="",
    )  # fmt: skip
    for line in lines:
        style = "bold" if line.startswith(("+++", "---")) else styles.get(line[:1], "")
        console.print(Text(line, style=style), soft_wrap=True, highlight=False)


def _findings(console: Console, result: Result) -> None:
    styles = {"changed": "green", "portable": "dim", "manual": "yellow", "unsupported": "red"}
    from rich.text import Text

    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for f in result.findings():
        row = rows.setdefault((f.kind, f.rule, f.message, f.tip), [])
        row.append(f"{f.file}:{f.line}:{f.column}")
    order = ("unsupported", "manual", "changed", "portable")  # what stops a program comes first
    for kind, rule, message, tip in sorted(rows, key=lambda row: (order.index(row[0]), row)):
        places = rows[kind, rule, message, tip]
        text = Text(f"{rule} ")
        text.append(kind, style=styles[kind])
        count = f", {len(places)} places" if len(places) > 1 else ""
        text.append(f"{count}: {message}. {tip}")
        console.print(text, soft_wrap=True, highlight=False)
        for place in places:
            console.print(Text(f"  {place}"), soft_wrap=True, highlight=False)


def _summary(terminal: Console, result: Result, *, write: bool, output: Path | None) -> None:
    totals = result.totals()
    for file in result.files:
        if file.status in ("unparsable", "skipped"):
            terminal.print(f"{file.path}: left as it is: {file.reason}", markup=False,
                           highlight=False, soft_wrap=True)  # fmt: skip
    done = "changed" if write or output else "would change"
    terminal.print(
        f"{totals['files_converted']} of {totals['files']} files {done}: "
        f"{totals['changed']} places converted, {totals['portable']} stay as they are portable, "
        f"{totals['manual']} need a hand, {totals['unsupported']} are for CUDA alone",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip
    if write and totals["files_converted"]:
        here = Path(result.root) == Path.cwd() or Path(result.root) in Path.cwd().parents
        where = "" if here else f" {result.root}"
        terminal.print(f"`causeway migrate --undo{where}` takes it back", markup=False,
                       highlight=False, soft_wrap=True)  # fmt: skip
