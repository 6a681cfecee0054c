"""The options that the commands which run a program share: `run`, `record`, `profile`, `coverage`,
`verify`. A program for CUDA, or for another system, is given to each in the same words; launch.py
has what they mean.
"""

from __future__ import annotations

from typing import Annotated

import typer

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
