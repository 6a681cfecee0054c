"""The options that the commands which run a program share: `run`, `record`, `profile`, `coverage`,
`verify`. A program for CUDA is given to each in the same words.
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
