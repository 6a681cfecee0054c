"""`causeway compat`: make code for another system run in this environment."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from causeway.options import told

compat = typer.Typer(
    help="Make code for torch_npu, torch_mlu, torch_dipu or MindTorch run as it is.",
    no_args_is_help=True,
)
_System = Annotated[str, typer.Argument(help="npu, mlu, dipu or mindtorch.")]


@compat.command("install")
def install_system(system: _System) -> None:
    """Make `import torch_npu` (or the like) give Causeway's names in this environment.

    What CAUSEWAY_COMPAT=npu does for a process. The device gets that system's name.
    """
    from causeway import compat as package

    if system not in package.systems():
        print(f"causeway compat: {system!r} is none of {', '.join(package.systems())}",
              file=sys.stderr)  # fmt: skip
        raise typer.Exit(2)
    with told("compat"):
        folders = package.install(system)
    for folder in folders:
        print(folder)
    print("`causeway compat remove` takes it back")


@compat.command("remove")
def remove_system() -> None:
    """Take `causeway compat install` back."""
    from causeway import compat as package

    name = package.remove()
    print(f"{name} is removed" if name else "nothing is installed")


@compat.command("show")
def show_systems(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables of docs/compat.md.")
    ] = False,
) -> None:
    """List the systems, with their device, backends, packages and variables."""
    from causeway import compat as package
    from causeway.compat import tables

    if markdown:
        sys.stdout.write(tables.markdown())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("system", "device", "backends", "packages", box=None, padding=(0, 2, 0, 0))
    for system in package.systems().values():
        table.add_row(
            system.name, system.device or "as the vendor's", ", ".join(system.backends),
            ", ".join(system.packages),
        )  # fmt: skip
    Console().print(table)
    print(f"installed here: {package.installed() or 'none'}")
