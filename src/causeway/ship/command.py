"""`causeway export`."""

from __future__ import annotations

import enum
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from causeway import atomic
from causeway.options import told


class Mode(enum.Enum):
    """How a model becomes steps."""

    fused = "fused"
    layer = "layer"


def run_export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="FILE:FUNCTION or MODULE:FUNCTION, which returns (model, arguments); or "
            "model.pt2, as torch.export.save writes it.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="The file; model.cw.")],
    mode: Annotated[
        Mode,
        typer.Option(help="fused: operators as torch.compile fuses them; layer: each by itself."),
    ] = Mode.fused,
    vectors: Annotated[
        bool, typer.Option("--vectors/--no-vectors", help="Keep test vectors for `cw verify`.")
    ] = True,
    verify_steps: Annotated[
        bool,
        typer.Option(
            "--verify-steps",
            help="Keep numbers of each step, so that `cw verify` names the first that differs.",
        ),
    ] = False,
    dynamic: Annotated[
        str | None,
        typer.Option(
            help="A size that may differ: batch=1..64 is the first dimension of each input; "
            "length=1..64:0.1,2.1 is dimension 1 of inputs 0 and 2."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="A file for the weights, which several models share: models.weights. It lies "
            "beside the model's file or in a folder below, and only grows."
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="A chip that the file is for, any number of times: a vendor's name or library, "
            "whose binaries are kept too; nvidia:sm_90 is a chip of that architecture, which "
            "need not be here; c is the simulated chip; any is each vendor of this environment, "
            "without binaries. Each is exported by a process of its own, and the loader takes "
            "what its chip runs. Without this option the file is for this environment's vendor."
        ),
    ] = None,
    binaries: Annotated[
        bool,
        typer.Option("--binaries", help="Keep what this chip's compiler makes of the sources too."),
    ] = False,
    architecture: Annotated[str, typer.Option("--on-paper", hidden=True)] = "",
    seed: Annotated[
        int | None,
        typer.Option(help="Seed torch before the function is called; 0 where --target is given."),
    ] = None,
) -> None:
    """Write a model as a file that the C runtime runs, without Python and without torch."""
    from causeway.errors import CausewayError
    from causeway.ship import paper, targets
    from causeway.ship.export import export

    with told("export"):
        atomic.check(output, weights)
        if target:
            wanted = targets.targets(target)
            if binaries or not vectors:
                raise CausewayError(
                    "--target says itself whose binaries are kept, and compares test vectors: "
                    "leave out --binaries and --no-vectors"
                )
            given = [model, "--mode", mode.value, "--seed", str(seed or 0)]
            given += ["--verify-steps"] if verify_steps else []
            given += ["--dynamic", dynamic] if dynamic else []
            targets.export(Path(output), wanted, given, Path(weights) if weights else None)
            _print(Path(output))
            return
        if architecture:
            paper.expect(architecture)
        if seed is not None:
            _seed(seed)
        made, args = _model(model)
        path = export(
            made,
            args,
            output,
            compiled=mode is Mode.fused,
            vectors=vectors,
            verify_steps=verify_steps,
            dynamic=dynamic,
            weights=weights,
            binaries=binaries,
        )
        _print(path)


def _print(path: Path) -> None:
    print(f"{path}: {path.stat().st_size} bytes; `cw inspect {path}` says what is in it")


def _seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)


def _model(target: str) -> tuple[Any, tuple[Any, ...]]:
    import torch

    from causeway import program
    from causeway.errors import CausewayError
    from causeway.ship import paper

    device = torch.accelerator.current_accelerator()
    if device is None:
        raise CausewayError("there is no device; `causeway doctor` says why")
    here = paper.on_paper()
    if here:
        device = torch.device("cpu")  # what was made on paper has no numbers: export moves it there
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
        model = model.eval()
    if here:
        return model, args
    if isinstance(model, torch.nn.Module):
        model = model.to(device)
    return model, tuple(_on(device, a) for a in args)


def _on(device: object, value: object) -> object:
    import torch
    from torch.utils import _pytree as pytree

    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), value)
