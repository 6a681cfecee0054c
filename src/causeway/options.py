"""What commands share: how a mistake ends them, and the options of those that run a program: `run`,
`record`, `profile`, `coverage`, `verify`. A program for CUDA, or for another system, is given to
each in the same words; launch.py has what they mean.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from causeway.errors import CausewayError


@contextlib.contextmanager
def told(command: str) -> Iterator[None]:
    """What cannot be done is a line of text on stderr and exit status 2."""
    try:
        yield
    except (CausewayError, OSError) as error:
        print(f"causeway {command}: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


IsModule = Annotated[
    bool, typer.Option("-m", help="The program is a module's name, as with `python -m`.")
]
Redirect = Annotated[
    bool | None,
    typer.Option(
        "--redirect/--no-redirect",
        help="CUDA's calls go to the device (docs/transfer.md), or the program is run as it is.",
    ),
]
Target = Annotated[
    str, typer.Option("--target", help='Where CUDA\'s calls go: "device", or "cpu".')
]
Compat = Annotated[
    str,
    typer.Option(
        "--compat",
        help="The system that the program is for: npu, mlu, dipu, mindtorch or off. Without it, "
        "that whose package the program imports.",
    ),
]
