"""`causeway export`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def run_export(
    target: Annotated[
        str,
        typer.Argument(
            help="FILE:FUNCTION or MODULE:FUNCTION, which returns (model, arguments); or "
            "model.pt2, as torch.export.save writes it."
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="The file; model.cw.")],
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Fuse operators, or call one by one.")
    ] = True,
    vectors: Annotated[
        bool, typer.Option("--vectors/--no-vectors", help="Keep test vectors for `cw verify`.")
    ] = True,
) -> None:
    """Write a model as a file that the C runtime runs, without Python and without torch."""
    from causeway.errors import CausewayError
    from causeway.ship.export import export

    try:
        model, args = _model(target)
        path = export(model, args, output, compiled=compiled, vectors=vectors)
    except (CausewayError, OSError) as error:
        print(f"causeway export: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    print(f"{path}: {path.stat().st_size} bytes; `cw inspect {path}` says what is in it")


def _model(target: str) -> tuple[Any, tuple[Any, ...]]:
    import torch

    from causeway import program
    from causeway.errors import CausewayError

    device = torch.accelerator.current_accelerator()
    if device is None:
        raise CausewayError("there is no device; `causeway doctor` says why")
    if target.endswith(".pt2"):
        if not Path(target).is_file():
            raise CausewayError(f"there is no file {target}")
        exported = torch.export.load(target)
        args, kwargs = exported.example_inputs or ((), {})
        if kwargs or not args:
            raise CausewayError(f"{target} has no example arguments, or has some by keyword")
        return exported.module().to(device), tuple(_on(device, a) for a in args)
    function = program.function_at(target)
    if function is None:
        raise CausewayError(f"{target} is no FILE:FUNCTION that is there, and no .pt2 file")
    wants = "device" in inspect.signature(function).parameters
    found = function(device=device) if wants else function()
    if not isinstance(found, tuple) or len(found) != 2:
        raise CausewayError(
            f"{function.__name__} must return (model, arguments), and returned {type(found)}"
        )
    model, args = found
    args = args if isinstance(args, tuple) else (args,)
    if isinstance(model, torch.nn.Module):
        model = model.to(device).eval()
    return model, tuple(_on(device, a) for a in args)


def _on(device: object, value: object) -> object:
    import torch
    from torch.utils import _pytree as pytree

    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), value)
