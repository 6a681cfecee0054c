"""The command `causeway tune`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer


def run_tune(
    device: Annotated[int, typer.Option(help="Number of the device.")] = 0,
    dtype: Annotated[
        list[str] | None, typer.Option(help="float32, bfloat16, float16, float64; several times.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Measure what is known already, too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each.")] = False,
) -> None:
    """Measure on the device how products of matrices are best cut and memory is best read, and keep
    it for later runs.
    """
    from causeway import tune
    from causeway.errors import CausewayError

    try:
        for choice in tune.measure(device, dtype or ("float32", "bfloat16"), again=again):
            if as_json:
                print(json.dumps(asdict(choice)), flush=True)
            else:
                text = f"{choice.name}: {choice.cut}, {choice.gain:.2f} of the built-in cut's speed"
                print(f"{text} ({choice.source})", flush=True)
    except CausewayError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
