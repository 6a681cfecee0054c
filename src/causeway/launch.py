"""`causeway run`: a CUDA program, untouched, on the device."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from causeway.options import IsModule, Redirect
from causeway.state import LAUNCHED


def run_program(
    program: Annotated[
        list[str], typer.Argument(help="The script and its arguments, as python takes them.")
    ],
    module: IsModule = False,
    redirect: Redirect = None,
    target: Annotated[
        str, typer.Option(help='Where CUDA\'s calls go: "device", or "cpu".')
    ] = "device",
    report: Annotated[
        str, typer.Option(help="Write what was redirected to this file, as JSON.")
    ] = "",
    system: Annotated[
        str,
        typer.Option(
            "--compat",
            help="The system that the program is for: npu, mlu, dipu, mindtorch or off. Without "
            "it, that whose package the program imports.",
        ),
    ] = "",
) -> None:
    """Run a program for CUDA untouched: its CUDA calls go to the device.

    `causeway run train.py --lr 0.1` is `python train.py --lr 0.1` with CUDA redirected, in the
    processes that it starts too: `causeway run -m torch.distributed.run train.py`. `import apex`
    gives causeway.apex where no other is installed. A program that imports torch_npu, torch_mlu,
    torch_dipu or mindtorch gets Causeway's (docs/compat.md), and redirects CUDA's calls only where
    that package would.
    """
    from causeway import compat
    from causeway.errors import CausewayError
    from causeway.program import text_of

    try:
        if redirect is False and (report or target == "cpu"):
            raise CausewayError("--no-redirect runs the program as it is: no --report, no --target")
        if target not in ("device", "cpu"):  # else the program finds out, and torch comes but once
            import torch  # noqa: F401

            from causeway.redirect.devices import resolve

            resolve(target)
    except CausewayError as error:
        print(f"causeway run: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    if system not in ("", "off", *compat.systems()):
        print(f"causeway run: --compat {system!r} is none of off, {', '.join(compat.systems())}",
              file=sys.stderr)  # fmt: skip
        raise typer.Exit(2)
    found: set[str] = set()
    if not system:
        # What cannot be read is Python's to complain about.
        with contextlib.suppress(CausewayError, ImportError):
            found = compat.named_in(text_of(program[0], module))
    if len(found) == 1:
        (system,) = found
    elif found:
        print(f"causeway run: the program imports packages of {', '.join(sorted(found))}: choose "
              "one with --compat", file=sys.stderr)  # fmt: skip
        raise typer.Exit(2)
    arguments = ["-m", *program] if module else program
    start(arguments, target, report, "" if system == "off" else system, redirect=redirect)


def start(
    arguments: list[str],
    target: str,
    report: str,
    system: str = "",
    *,
    redirect: bool | None = None,
) -> None:
    """Become `python ARGUMENTS`, with CUDA redirected, or as code for `system` (causeway.compat).

    The program is Python's own from its first line to its exit status: this process is replaced,
    and the redirection is turned on at the end of the program's `import torch`. Where that fails,
    autoload ends the program.
    """
    from causeway.redirect import tools

    environment = dict(os.environ)
    tools.take_back(environment)
    for name in [n for n in environment if n.startswith("CAUSEWAY_TRANSFER")]:
        del environment[name]
    if system:
        from causeway import compat

        environment["CAUSEWAY_COMPAT"] = system
        path = [str(compat.first(system)), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
    wanted = not system or target == "cpu" if redirect is None else redirect
    if wanted:
        environment["CAUSEWAY_TRANSFER"] = "cpu" if target == "cpu" else "device"
        environment["_CAUSEWAY_TRANSFER_ROOT"] = str(os.getpid())  # which stays ours
        tools.add(environment)
    if report:
        environment["CAUSEWAY_TRANSFER_REPORT"] = os.path.abspath(report)
    environment[LAUNCHED] = "1"
    environment.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)  # it is what turns this on
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *_flags(), *arguments], environment)


def _flags() -> list[str]:
    """The flags of this interpreter: `python -X dev -m causeway run` hands them on."""
    import subprocess

    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined, no-any-return]
