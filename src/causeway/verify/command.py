"""`causeway verify`: the same numbers on the device as on the CPU?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from causeway import atomic
from causeway.errors import CausewayError
from causeway.options import Compat, IsModule, Redirect, Target, told

if TYPE_CHECKING:
    from causeway.migrate.finding import Result
    from causeway.verify.report import VerificationReport
    from causeway.verify.runner import Options


def verify_scripts(
    scripts: Annotated[
        list[str],
        typer.Argument(
            help="Scripts, or modules with -m; what follows `--` is given to each as its arguments."
        ),
    ],
    module: IsModule = False,
    steps: Annotated[int, typer.Option(min=1, help="Steps of an optimizer to run.")] = 3,
    seed: Annotated[int, typer.Option(help="For torch, numpy and random on both sides.")] = 0,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Numbers agree within this times max(1, |number|): 1e-3, or 1e-2 where half "
            "precision is used.",
            show_default=False,
        ),
    ] = None,
    way: Annotated[
        str, typer.Option(help="What runs on the device: migrated, transfer, or auto.")
    ] = "auto",
    redirect: Redirect = None,
    target: Target = "device",
    system: Compat = "",
    folder: Annotated[
        str,
        typer.Option(
            help="The folder to convert. Default: the script's own, "
            "of a large one the files that the script imports."
        ),
    ] = "",
    operators: Annotated[
        bool, typer.Option(help="Run once more, comparing each operator with the CPU.")
    ] = True,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for each run.")] = 600,
    json_file: Annotated[str, typer.Option("--json", help="Write the report as JSON.")] = "",
    html_file: Annotated[str, typer.Option("--html", help="Write the report as a page.")] = "",
) -> None:
    """Run scripts on the CPU and on the device, and compare what they compute.

    The original runs on the CPU, and what `causeway migrate` makes of it on the device. A program
    for CUDA runs untouched with `--redirect`, which is `--way transfer`. One for another system
    (docs/compat.md) does not run on the CPU: there runs what was converted. Exits with 0 where all
    numbers are the same, 1 where not, 2 for a mistake.
    """
    from causeway import launch

    words, arguments = _split(scripts)
    with told("verify"):
        atomic.check(json_file, html_file)
        if target == "cpu":
            raise CausewayError("--target cpu leaves nothing to compare: one side runs on the CPU")
        brought = launch.choose(words, module, redirect, target, system)
    launch.attach()
    from rich.console import Console

    from causeway.progress import progress
    from causeway.verify.runner import Options, verify

    with told("verify"):
        if way not in ("auto", "migrated", "transfer"):
            raise CausewayError(f"--way {way!r}: expected auto, migrated or transfer")
        if redirect is False:
            raise CausewayError("--no-redirect leaves nothing to compare: the CPU's side runs a "
                                "program for CUDA redirected")  # fmt: skip
        if redirect and way == "migrated":
            raise CausewayError("--redirect is --way transfer, and not --way migrated")
        way = "transfer" if redirect else way
        options = Options(
            steps, seed, tolerance, way, folder, operators, timeout, module, brought.system,  # type: ignore[arg-type]
        )  # fmt: skip
        with progress("verifying") as tell:
            report = verify(words, arguments, options, tell)
        if json_file:
            from causeway.atomic import write

            write(json_file, report.to_json() + "\n")
        if html_file:
            from causeway.verify.page import page

            page(report, _conversions(report, options)).write(html_file)
    from causeway.verify.page import show

    show(report, Console())
    raise typer.Exit(0 if report.good else 1)


def _conversions(report: VerificationReport, options: Options) -> list[Result]:
    """What `causeway migrate` did to the folders of the scripts."""
    from causeway.migrate import engine
    from causeway.migrate.settings import Settings, from_pyproject
    from causeway.verify.runner import converted_with

    chosen = {tuple(converted_with(s.script, options)) for s in report.scripts if s.converted}
    return [
        engine.run(paths, Settings(**from_pyproject(engine.root_of(paths))))
        for paths in sorted(chosen)
    ]


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Scripts, and the arguments after `--`, which click takes out: they follow the last .py."""
    command = sys.argv[1:]
    if "--" in command:
        arguments = command[command.index("--") + 1 :]
        return words[: len(words) - len(arguments)], arguments
    return words, []
