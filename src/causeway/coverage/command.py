"""`causeway coverage` and `causeway explain`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from causeway import atomic
from causeway.errors import CausewayError
from causeway.options import Compat, IsModule, Redirect, Target, told


def run_coverage(
    target: Annotated[
        str, typer.Argument(help="A script, MODULE:FUNCTION, FILE:FUNCTION, or a trace (.json).")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="The script's own, after --.")
    ] = None,
    module: IsModule = False,
    redirect: Redirect = None,
    to: Target = "device",
    system: Compat = "",
    vendor: Annotated[
        str, typer.Option("--vendor", help="A vendor's name or library; else the one in use.")
    ] = "",
    support: Annotated[
        str, typer.Option("--support", help="The vendor's conformance report (JSON) in its place.")
    ] = "",
    dry: Annotated[
        bool, typer.Option("--dry", help="Never compute; end where the program asks for numbers.")
    ] = False,
    run: Annotated[bool, typer.Option("--run", help="Compute on the CPU from the start.")] = False,
    optimizer: Annotated[
        str,
        typer.Option(help="Of a function that returns a model: adamw, adam, sgd, none."),
    ] = "adamw",
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 where anything is missing.")
    ] = False,
    html_file: Annotated[str, typer.Option("--html", help="Write a page.")] = "",
    json_file: Annotated[str, typer.Option("--json", help="Write JSON.")] = "",
    csv_file: Annotated[str, typer.Option("--csv", help="Write a table.")] = "",
    sarif_file: Annotated[str, typer.Option("--sarif", help="Write findings by line.")] = "",
) -> None:
    """Say which operators a model uses, and the rung of each on a chip that need not be here.

    A program for CUDA runs untouched: one that does not use the device by itself is redirected. So
    does one for another system (docs/compat.md).
    """
    from causeway import launch

    with told("coverage"):
        atomic.check(html_file, json_file, csv_file, sarif_file)
        if to == "cpu":
            raise CausewayError("--target cpu leaves no chip to ask")
    chosen = launch.enter("coverage", [target], module, redirect, to, system)
    chosen.tell("coverage", "")
    from rich.console import Console

    from causeway.coverage import export
    from causeway.coverage.page import page
    from causeway.coverage.run import examine

    with told("coverage"):
        allowed = ("adamw", "adam", "sgd", "none")
        if optimizer not in allowed:
            raise CausewayError(f"--optimizer is {optimizer!r}; there is {', '.join(allowed)}")
        if dry and run:
            raise CausewayError("--dry and --run exclude each other")
        if vendor and support:
            raise CausewayError("--vendor and --support exclude each other: one chip at a time")
        found = examine(
            target, tuple(arguments or ()), library=vendor, support=support,
            mode="dry" if dry else "run" if run else "auto", optimizer=optimizer,
            module=module, redirect=redirect,
        )  # fmt: skip
        if html_file:
            page(found).write(html_file)
        if json_file:
            export.write_json(found, json_file)
        if csv_file:
            export.write_csv(found, csv_file)
        if sarif_file:
            export.write_sarif(found, sarif_file)
    export.show(found, Console())
    if not found.rows:
        raise typer.Exit(2)
    lacks = found.missing or found.narrowed or found.failure
    raise typer.Exit(1 if strict and lacks else 0)


def run_explain(
    operator: Annotated[
        str,
        typer.Argument(help="An operator: aten::gelu, add.Tensor. With --compile a script."),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="The script's own, after --.")
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Run a script, and say what torch.compile made of it: graphs, kernels with their "
            "operators, calls beside them and on the host, breaks, recompiles, bytes, time.",
        ),
    ] = False,
    dtype: Annotated[
        list[str] | None, typer.Option("--dtype", help="Only this dtype; can be repeated.")
    ] = None,
    vendor: Annotated[
        str, typer.Option("--vendor", help="A vendor's name or library; else the one in use.")
    ] = "",
    support: Annotated[
        str, typer.Option("--support", help="The vendor's conformance report (JSON) in its place.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which rung serves an operator and why, and what a vendor would have to offer."""
    import json

    import torch

    from causeway.coverage import explain, run

    if compiled:
        raise typer.Exit(_explain_compiled(operator, arguments or [], as_json))
    with told("explain"):
        if arguments:
            raise CausewayError(f"one operator at a time: {operator}, {', '.join(arguments)}")
        for name in dtype or ():
            if not isinstance(getattr(torch, name, None), torch.dtype):
                raise CausewayError(f"--dtype is {name!r}: torch has no such dtype")
        if vendor and support:
            raise CausewayError("--vendor and --support exclude each other: one chip at a time")
        found = run.explain(operator, tuple(dtype or ()), library=vendor, support=support)
    print(json.dumps(found, indent=1) if as_json else explain.text(found, found["chip"]))


def _explain_compiled(script: str, arguments: list[str], as_json: bool) -> int:
    """Run a script and print what was compiled, on stderr; the script's exit status."""
    import torch
    import torch._inductor.config

    import causeway
    from causeway import program
    from causeway.compile.report import compile_report
    from causeway.coverage.left import on_host

    if not os.path.isfile(script):
        print(f"causeway explain --compile: there is no script {script}", file=sys.stderr)
        return 2
    device = torch._C._get_privateuse1_backend_name()
    way = program.way(script, None, device)
    program.tell("explain", way)
    # A graph that was kept has the lines of the program that it was compiled for.
    torch._inductor.config.force_disable_caches = True
    with causeway.ledger() as ledger, program.brought(way, device):
        status = program.status(script, arguments)
    sys.stdout.flush()
    found = compile_report()
    found.left = on_host(ledger.rows, found.graphs)
    print(found.to_json() if as_json else found.table(), file=sys.stderr)
    return status
