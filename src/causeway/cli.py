"""The command `causeway`: what is here (`doctor`, `config`, `operators`, `version`), and a new
vendor's package (`new`); commands of packages are in the command.py of each.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

import causeway
from causeway import config, doctor
from causeway.autoload import messages
from causeway.compat.command import compat
from causeway.conformance.command import run_chips, run_conformance
from causeway.coverage.command import run_coverage, run_explain
from causeway.launch import attach, run_program
from causeway.migrate.command import migrate
from causeway.profile.command import run_profile
from causeway.quantize import run_quantize
from causeway.ship.command import run_export
from causeway.trace import command as trace
from causeway.tune.command import run_tune
from causeway.verify.command import verify_scripts

app = typer.Typer(
    help="Any accelerator as a stock PyTorch device.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# The others get torch first of all: what they import must not come in the middle of its attaching.
# Those that run a program look at it before, since it may name the system that the device is for.
WITHOUT_TORCH = {"migrate", "run", "record", "profile", "coverage", "verify"}
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def start(context: typer.Context) -> None:
    if context.invoked_subcommand not in WITHOUT_TORCH:
        attach()


@app.command("doctor")
def run_doctor(as_json: Json = False) -> None:
    """Say what is here, what is missing and what is broken; fails where something is broken."""
    report = doctor.examine()
    if as_json:
        print(json.dumps(report.to_dict(), indent=1))
    else:
        from rich.console import Console

        doctor.show(report, Console())
    raise typer.Exit(1 if report.broken else 0)


@app.command("config")
def show_config(
    as_json: Json = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table of docs/settings.md.")
    ] = False,
) -> None:
    """List all settings with their values and where these come from."""
    if markdown:
        sys.stdout.write(config.markdown())
        return
    rows = config.rows()
    if as_json:
        print(json.dumps([dict(zip(("name", "value", "source", "meaning"), r, strict=True))
                          for r in rows], indent=1))  # fmt: skip
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("setting", "value", "source", "meaning", box=None, padding=(0, 2, 0, 0))
    for name, value, source, meaning in rows:
        style = None if source == "default" else "bold"
        table.add_row(name, escape(value), source, escape(meaning), style=style)
    console = Console()
    console.print(table)
    for message in messages():
        console.print(f"\n{escape(message)}", style="bold red", highlight=False, soft_wrap=True)


@app.command("operators")
def show_operators(
    name: Annotated[str, typer.Argument(help="A part of the names to print.")] = "",
    header: Annotated[
        bool, typer.Option("--header", help="Print operators.hpp for the torch installed.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/operators.md.")] = False,
) -> None:
    """List the operators that a vendor can be asked for, with their arguments."""
    import causeway.quant  # noqa: F401  # registers causeway::adapt
    from causeway.ops import schema

    if header or markdown:
        sys.stdout.write(schema.header() if header else schema.markdown())
        return
    text = schema.describe(name)
    if not text:
        print(
            f"a vendor is asked for no operator with {name!r} in its name. torch takes composites "
            "apart: the ledger (CAUSEWAY_LEDGER=1) has what a program really calls",
            file=sys.stderr,
        )
        raise typer.Exit(1)
    sys.stdout.write(text)


@app.command("new")
def new_vendor(
    name: Annotated[str, typer.Argument(help="The chip, as torch will call it: mychip.")],
    folder: Annotated[
        str, typer.Option("--folder", help="Where to write it; else a folder of that name here.")
    ] = "",
) -> None:
    """Write the package of a new vendor's library, which builds, installs and passes its tests."""
    from causeway import scaffold
    from causeway.errors import CausewayError

    target = folder or name
    try:
        files = scaffold.write(name, target)
    except CausewayError as error:
        print(f"causeway new: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    for file in files:
        print(f"{target}/{file}")
    print(f"\nnext: pip install --no-build-isolation ./{target} && pytest {target}")


# A program's own arguments come after its name, options among them.
PROGRAM = {"allow_interspersed_args": False}

app.add_typer(compat, name="compat")
app.command("chips")(run_chips)
app.command("conformance")(run_conformance)
app.command("coverage")(run_coverage)
app.command("explain")(run_explain)
app.command("export")(run_export)
app.command("profile")(run_profile)
app.command("quantize")(run_quantize)
app.command("record", context_settings=PROGRAM)(trace.record)
app.command("replay")(trace.replay)
app.command("diff")(trace.diff)
app.command("cases")(trace.cases)
app.command("migrate")(migrate)
app.command("run", context_settings=PROGRAM)(run_program)
app.command("verify")(verify_scripts)
app.command("tune")(run_tune)


@app.command()
def version() -> None:
    """Print the versions of Causeway, torch and Python."""
    import platform

    import torch

    print(f"causeway {causeway.__version__}, torch {torch.__version__}, "
          f"python {platform.python_version()}")  # fmt: skip


if __name__ == "__main__":
    app()
