"""The commands `causeway record`, `replay`, `diff` and `cases`."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from causeway import atomic, config
from causeway.errors import ConfigError
from causeway.options import Compat, IsModule, Redirect, Target, told

Out = Annotated[str, typer.Option("--json", help="Write the result as JSON.")]


def _steps(option: str, text: str) -> tuple[int, int] | None:
    try:
        found: tuple[int, int] | None = config.STEPS.read(text)
        return found
    except ValueError as error:
        raise ConfigError(f"{option} is {text!r}: {error}") from None


def _bytes(text: str) -> int:
    try:
        digits = config.BYTES.read(text).lower().rstrip("ib ")
    except ValueError as error:
        raise ConfigError(f"--budget is {text!r}: {error}") from None
    unit = digits[-1] if digits[-1] in "kmgt" else ""
    return int(digits.rstrip("kmgt ")) << 10 * (" kmgt".index(unit) if unit else 0)


def record(
    script: Annotated[str, typer.Argument(help="The program.")],
    args: Annotated[list[str] | None, typer.Argument(help="Its arguments.")] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="The trace, a new folder.")] = "trace",
    module: IsModule = False,
    ops: Annotated[str, typer.Option(help="Only operators that match.")] = ".*",
    steps: Annotated[str, typer.Option(help="Only these steps: 10-20, 10- or 10.")] = "",
    keep: Annotated[
        str, typer.Option(help="Of all values: none, statistics, hash or full.")
    ] = "statistics",
    full: Annotated[str, typer.Option(help="Operators whose values are kept whole.")] = "",
    full_steps: Annotated[str, typer.Option(help="Steps in which they are.")] = "",
    budget: Annotated[str, typer.Option(help="Bytes of the trace, at most.")] = "1GiB",
    via: Annotated[
        str, typer.Option(help="device: Causeway's; dispatch: all others; auto: both.")
    ] = "auto",
    nested: Annotated[bool, typer.Option(help="Operators within operators too.")] = False,
    stacks: Annotated[bool, typer.Option(help="Where each call comes from.")] = False,
    redirect: Redirect = None,
    target: Target = "device",
    system: Compat = "",
) -> None:
    """Run a program and write its operators to a trace.

    A program for CUDA runs untouched: one that names CUDA and not the device is redirected. So does
    one for another system (docs/compat.md).
    """
    from causeway import launch

    chosen = launch.enter("record", [script], module, redirect, target, system)
    import torch

    from causeway import program
    from causeway.trace import record as recording

    with told("record"):
        if via not in ("auto", "device", "dispatch"):
            raise ConfigError(f"--via is {via!r}: expected auto, device or dispatch")
        options = recording.Options(
            ops=ops, steps=_steps("--steps", steps), keep=keep, full=full,  # type: ignore[arg-type]
            full_steps=_steps("--full-steps", full_steps), budget=_bytes(budget),
            via=via, nested=nested, stacks=stacks,  # type: ignore[arg-type]
        )  # fmt: skip
        if not module and not Path(script).is_file():
            raise ConfigError(f"{script!r}: there is no such file")
        device = torch._C._get_privateuse1_backend_name()
        way = chosen.way(script, device, module=module)
        chosen.tell("record", way)
        with contextlib.ExitStack() as stack:
            writer = stack.enter_context(recording.record(out, options=options))
            stack.callback(_summary, writer)
            stack.enter_context(program.brought(way, device, chosen.target))
            program.run(script, args or [], module=module)


def _summary(writer: object) -> None:
    from causeway.trace.trace import Writer

    if isinstance(writer, Writer):
        left = ", ".join(f"{n} {what} left out" for what, n in writer.left_out.items())
        print(f"causeway record: {writer.calls} calls in {writer.folder}"
              f"{f'; the budget was spent: {left}' if left else ''}", file=sys.stderr)  # fmt: skip


def replay(
    trace: Annotated[str, typer.Argument(help="A folder that `causeway record` wrote.")],
    device: Annotated[str, typer.Option(help="Where to run: cpu, sim, sim:1, cuda.")] = "cpu",
    ops: Annotated[str, typer.Option("--op", help="Only operators that match.")] = ".*",
    json_file: Out = "",
) -> None:
    """Run recorded operators again, and compare. Exit status 1 where one differs."""
    from rich.console import Console

    from causeway.trace import show
    from causeway.trace.reader import Trace
    from causeway.trace.replay import replay as run

    with told("replay"):
        atomic.check(json_file)
        found = run(Trace(trace), device, ops=ops)
        if json_file:
            atomic.write(json_file, found.to_json())
        show.replay(found, Console())
        if not found.calls:
            raise ConfigError(f"{trace} has no call that --op {ops!r} matches")
        ran = any(one.state != "not run" for one in found.calls)
    raise typer.Exit(1 if found.wrong else 0 if ran else 2)


def diff(
    a: Annotated[str, typer.Argument(help="A trace.")],
    b: Annotated[str, typer.Argument(help="Another, of the same program elsewhere.")],
    rtol: Annotated[
        float, typer.Option(min=0.0, help="What may differ; 0: by dtype, for rounding adds up.")
    ] = 0.0,
    json_file: Out = "",
) -> None:
    """Compare two traces: where do they part? Exit status 1 where they differ."""
    from rich.console import Console

    from causeway.trace import reader, show
    from causeway.trace.diff import compare

    same = True
    results = {}
    with told("diff"):
        atomic.check(json_file)
        ours, theirs = reader.ranks(a), reader.ranks(b)
        if set(ours) != set(theirs):
            raise ConfigError(
                f"{a} has the ranks {', '.join(ours)}, {b} has {', '.join(theirs)}: name two traces"
            )
        for rank in ours:
            found = compare(reader.Trace(ours[rank]), reader.Trace(theirs[rank]), rtol=rtol or None)
            same = same and found.same
            results[rank] = json.loads(found.to_json())
            show.difference(found, Console(), rank)
        if json_file:
            body = results.get("", results)
            atomic.write(json_file, json.dumps(body, indent=1))
    raise typer.Exit(0 if same else 1)


def cases(
    trace: Annotated[str, typer.Argument(help="A folder that `causeway record` wrote.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write.")] = "cases.json",
    ops: Annotated[str, typer.Option("--op", help="Only operators that match.")] = ".*",
) -> None:
    """Turn recorded operators into cases for `causeway conformance --cases`."""
    from causeway.observe.selection import Names
    from causeway.trace import cases as making
    from causeway.trace.reader import Trace

    with told("cases"):
        atomic.check(out)
        names, opened = Names(ops), Trace(trace)
        calls = [c for c in opened.calls if names.has(c.operator)]
        found = making.cases_of(calls)
        if not found:
            raise ConfigError(f"{trace} has no call that --op {ops!r} matches")
        making.write(out, found, str(Path(trace).name))
        print(f"{len(found)} cases of {len({c.operator for c in found})} operators in {out}")
        if state := opened.state():
            print(f"causeway cases: {state}", file=sys.stderr)
