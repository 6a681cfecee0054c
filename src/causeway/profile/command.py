"""The command `causeway profile`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from causeway import atomic
from causeway.errors import CausewayError
from causeway.options import Compat, IsModule, Redirect, Target

if TYPE_CHECKING:
    from causeway.launch import Launch
    from causeway.profile.report import ProfileReport


def run_profile(
    script: Annotated[
        Path, typer.Argument(help="A script; or a trace of torch.profiler (.json, .json.gz).")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="The script's own, after --.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace here (.json, .json.gz), for Perfetto.")
    ] = None,
    steps: Annotated[
        str, typer.Option(help="Only these steps of the optimizer: 5, or 10:15.")
    ] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the sums here.")] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write the sums as a page here.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Lines of each table.")] = 10,
    stack: Annotated[bool, typer.Option(help="Record Python stacks.")] = False,
    shapes: Annotated[bool, typer.Option(help="Record shapes of arguments.")] = False,
    memory: Annotated[bool, typer.Option(help="Record what is allocated.")] = False,
    module: IsModule = False,
    redirect: Redirect = None,
    target: Target = "device",
    system: Compat = "",
) -> None:
    """Run a script and say where its time goes: operators, gaps, fallbacks, copies.

    The script runs as `python script.py` would run it, and its exit status is the command's; the
    tables go to stderr. A program for CUDA runs untouched: one that names CUDA and not the device
    is redirected. So does one for another system (docs/compat.md).
    """
    from causeway import launch

    chosen = launch.enter("profile", [str(script)], module, redirect, target, system)
    from rich.console import Console

    from causeway.profile import report as sums
    from causeway.profile import trace as traces

    status = 0
    try:
        atomic.check(trace, json_file, html_file)
        if not module and script.suffixes[-1:] in ([".json"], [".gz"]):
            found = sums.report(traces.read(script))
        else:
            status, found = _run(
                script, arguments or [], trace, steps, (stack, shapes, memory), chosen,
                module=module,
            )  # fmt: skip
        for path, text in ((json_file, found.to_json), (html_file, found.to_html)):
            if path is not None:
                from causeway.atomic import write

                write(str(path), text())
    except (CausewayError, OSError) as error:
        print(f"causeway profile: {error}", file=sys.stderr)
        raise typer.Exit(status or 2) from None
    sums.show(found, Console(stderr=True), top)
    raise typer.Exit(status)


def _run(
    script: Path,
    arguments: list[str],
    trace: Path | None,
    steps: str,
    options: tuple[bool, bool, bool],
    chosen: Launch,
    *,
    module: bool,
) -> tuple[int, ProfileReport]:
    import torch

    from causeway import program
    from causeway.profile import report as sums
    from causeway.profile import trace as traces
    from causeway.profile.run import Profile, Steps

    stack, shapes, memory = options
    window = Steps.parse(steps) if steps else None
    profile = Profile(window, stack=stack, shapes=shapes, memory=memory)
    device = torch._C._get_privateuse1_backend_name()
    way = chosen.way(str(script), device, module=module)
    chosen.tell("profile", way)
    with profile.running(), program.brought(way, device, chosen.target):
        status = program.status(script, arguments, module=module)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json" if trace is None else _of_rank(trace)
            profile.write(path)
            return status, sums.report(traces.read(path))
    except CausewayError:
        if status == 0:
            raise
        raise typer.Exit(status) from None  # the script's own failure says enough


def _of_rank(path: Path) -> Path:
    """A file of its own for each process of torchrun."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return path
    return path.with_name(f"rank{os.environ.get('RANK', '0')}.{path.name}")
