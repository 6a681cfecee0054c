"""The commands `causeway conformance` and `causeway chips`."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from causeway import atomic
from causeway.errors import ConfigError
from causeway.options import told


def run_conformance(
    library: Annotated[
        str, typer.Option("--vendor", help="The vendor's library; else the one in use.")
    ] = "",
    level: Annotated[int, typer.Option(min=0, max=3, help="Ask no higher level.")] = 3,
    op: Annotated[str, typer.Option(help="Only operators that this expression finds.")] = "",
    library_imports: Annotated[
        list[str] | None,
        typer.Option("--import", help="A module that registers operators, such as torchvision."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="Only dtypes that this expression matches.")] = "",
    case: Annotated[str, typer.Option(help="Only the case with this ID.")] = "",
    cases: Annotated[
        str,
        typer.Option(
            help="Only the calls of a file: of `causeway cases`, or written by hand (.toml)."
        ),
    ] = "",
    known: Annotated[
        str, typer.Option(help="A file (.toml) of differences that the vendor documents.")
    ] = "",
    portable: Annotated[
        bool, typer.Option("--portable", help="Causeway's own kernels on this chip (code.v1).")
    ] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Only the table's promises, no operator.")
    ] = False,
    workers: Annotated[int, typer.Option("-n", min=1, help="Processes at a time.")] = 1,
    ranks: Annotated[
        int, typer.Option(min=2, max=3, help="Processes that ask for level 3, collectives.")
    ] = 2,
    json_file: Annotated[str, typer.Option("--json", help="Write the report as JSON.")] = "",
    html_file: Annotated[str, typer.Option("--html", help="Write the report as a page.")] = "",
) -> None:
    """Test a vendor's library: the table by levels, and each operator against the CPU."""
    from rich.console import Console

    from causeway.conformance import report, suite
    from causeway.progress import progress

    console = Console()
    options = suite.Options(
        library, level, op, dtype, case, workers, known, cases, ranks, portable, table,
        tuple(library_imports or ()),
    )  # fmt: skip
    with told("conformance"):
        atomic.check(json_file, html_file)
        others = {"--op": op, "--dtype": dtype, "--case": case, "--cases": cases,
                  "--known": known, "--portable": portable}  # fmt: skip
        given = [name for name, value in others.items() if value]
        if table and given:
            raise ConfigError(
                f"--table asks no operator, and {', '.join(given)} is of operators: leave one out"
            )
        for name, pattern in (("op", op), ("dtype", dtype)):
            _compiles(name, pattern)
        with progress("asking the table") as tell:
            found = suite.run(options, tell)
        if json_file:
            report.write_json(found, json_file)
        if html_file:
            atomic.write(html_file, found.to_html())
    report.show(found, console)
    raise typer.Exit(0 if found.good else 1)


def run_chips(
    reports: Annotated[list[str], typer.Argument(help="Reports of `causeway conformance --json`.")],
    op: Annotated[str, typer.Option(help="Only operators that this expression finds.")] = "",
    html_file: Annotated[str, typer.Option("--html", help="Write a page.")] = "",
) -> None:
    """Show the conformance reports of several chips side by side."""
    from rich.console import Console
    from rich.table import Table

    from causeway.conformance.chips import operators, page, read

    with told("chips"):
        atomic.check(html_file)
        _compiles("op", op)
        chips = [read(report) for report in reports]
        if html_file:
            atomic.write(html_file, page(chips, op).to_html())
    table = Table("operator", *(chip.name for chip in chips))
    for name in operators(chips, op):
        cells = []
        for chip in chips:
            passed, failed = chip.dtypes(name)
            lost = [f"failed {' '.join(failed)}"] if failed else []
            cells.append("; ".join([" ".join(passed), *lost]) if name in chip.operators else "")
        table.add_row(name, *cells)
    console = Console()
    console.print(table)
    for chip in chips:
        console.print(f"{chip.name}: {chip.verdict}", highlight=False, soft_wrap=True)


def _compiles(option: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"--{option} {pattern!r} is no regular expression: {error}") from None
