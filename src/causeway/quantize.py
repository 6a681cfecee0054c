"""`causeway quantize`."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from causeway import atomic
from causeway.options import told

if TYPE_CHECKING:
    from causeway.pages.page import Page
    from causeway.quant.accuracy import AccuracyReport


def run_quantize(
    target: Annotated[
        str, typer.Argument(help="FILE:FUNCTION or MODULE:FUNCTION, which returns the model.")
    ] = "",
    data: Annotated[
        str,
        typer.Option(
            help="FILE:FUNCTION, which returns batches to calibrate and measure with: inputs, or "
            "(inputs, labels)."
        ),
    ] = "",
    dtype: Annotated[str, typer.Option(help="int8 or int16.")] = "int8",
    method: Annotated[
        str, typer.Option(help="minmax, moving_average, percentile, entropy or mse.")
    ] = "minmax",
    per_channel: Annotated[
        bool, typer.Option("--per-channel/--per-tensor", help="Scales of weights.")
    ] = True,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A further key of qconfig_spec, KEY=JSON; several times."),
    ] = None,
    lose: Annotated[
        float | None,
        typer.Option(help="Points that may be lost: layers that need it get more bits."),
    ] = None,
    fold_norms: Annotated[
        bool,
        typer.Option(
            "--fold-norms",
            help="Fold batch norms first; the integers then load into fold_norms(model).",
        ),
    ] = False,
    equalize: Annotated[
        bool,
        typer.Option("--equalize", help="Make channels between two layers of one size in both."),
    ] = False,
    smooth: Annotated[
        float | None,
        typer.Option(
            metavar="ALPHA",
            help="Move outliers of inputs into weights, by 0 to 1 of their range; 0.5 is usual.",
        ),
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            help="FIRST=NEXT[,NEXT]: the layers for --smooth or --equalize, which else finds them; "
            "several times."
        ),
    ] = None,
    correct_bias: Annotated[
        bool, typer.Option("--correct-bias", help="Biases take back what rounding moves means by.")
    ] = False,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Write the integers, for load_state_dict.")
    ] = "",
    html: Annotated[str, typer.Option("--html", help="Write the report as a page.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    log: Annotated[
        str,
        typer.Option(
            "--log",
            help="Instead: show which bits a training chose, from the file that "
            "adaptive_quantize(..., log=FILE) wrote.",
        ),
    ] = "",
) -> None:
    """Put a model's layers into integers, and say what it costs: accuracy, each layer's noise."""
    from causeway.errors import ConfigError
    from causeway.quant import accuracy, fold

    if log:
        _show_log(log, html, as_json, bool(target or data))
        return
    with told("quantize"):
        atomic.check(output, html)
        if not target or not data:
            raise ConfigError("a model and --data are needed, or --log with a file of a training")
        spec = {"method": method, "per_channel": per_channel, **_pairs(set_ or [])}
        model, batches = _called(target).eval(), _called(data)
        if fold_norms:
            model = fold.fold_norms(model)
        integers, report = accuracy.measure(
            *(model, batches, spec, dtype, lose),
            correct=correct_bias,
            equal=equalize,
            smooth=smooth,
            pairs=[_pair(text) for text in pair] if pair else None,
        )
        if output:
            _save(integers, output)
        if html:
            page(report).write(html)
    if as_json:
        print(json.dumps(_plain(report), indent=1))
    else:
        _print(report)
    for what, path in (("integers", output), ("page", html)):
        if path:
            print(f"{what}: {path}", file=sys.stderr)


def _show_log(path: str, html: str, as_json: bool, more: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from causeway.errors import ConfigError
    from causeway.quant import log

    with told("quantize"):
        atomic.check(html)
        if more:
            raise ConfigError("--log shows a file: it takes no model and no --data")
        found = log.read(path)
        if html:
            log.page(found).write(html)
    if as_json:
        print(json.dumps(log.plain(found), indent=1))
    else:
        titles, rows = log.table(found)
        table = Table(*titles, box=None, padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*map(escape, row))
        console = Console()
        console.print(table)
        console.print(log.verdict(found), highlight=False, soft_wrap=True)
    if html:
        print(f"page: {html}", file=sys.stderr)


def _called(target: str) -> Any:
    from causeway import program
    from causeway.errors import CausewayError

    try:
        function = program.function_at(target)
    except ImportError as error:
        raise CausewayError(f"{target}: {error}") from None
    if function is None:
        raise CausewayError(f"{target} is no FILE:FUNCTION that is there")
    return function()


def _pairs(given: list[str]) -> dict[str, Any]:
    from causeway.errors import ConfigError

    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set takes KEY=JSON, not {text!r}")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value  # a plain string
    return found


def _pair(text: str) -> tuple[str, tuple[str, ...]]:
    from causeway.errors import ConfigError

    first, equals, after = text.partition("=")
    names = tuple(n.strip() for n in after.split(","))
    if not equals or not first or not all(names):
        raise ConfigError(f"--pair takes FIRST=NEXT or FIRST=NEXT,NEXT, not {text!r}")
    return first.strip(), names


def _save(model: Any, path: str) -> None:
    import io

    import torch

    memory = io.BytesIO()
    torch.save(model.state_dict(), memory)
    atomic.write(path, memory.getvalue())


def _decibels(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "exact" if value > 0 else "lost"


def _verdict(report: AccuracyReport) -> str:
    unit = "dB" if report.metric.startswith("signal") else "%"
    said = (
        f"{report.metric}: {report.before:.2f} {unit} before, {report.after:.2f} {unit} in integers"
    )
    if report.plain is not None:
        said += f" ({', '.join(report.steps)}; {report.plain:.2f} {unit} without)"
    if report.raised:
        kinds = sorted(set(report.raised.values()))
        many = [f"{list(report.raised.values()).count(k)} layers in {k}" for k in kinds]
        said += f", with {' and '.join(many)}"
    return said


def _print(report: AccuracyReport) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    both = report.plain is not None
    titles = ("layer", "weights", *(["without dB"] if both else []), "noise dB", "cosine")
    titles += ("worst channel", "dB", "alone dB")
    table = Table(*titles, box=None, padding=(0, 2, 0, 0))
    for row in report.layers:
        table.add_row(
            *(escape(row.name), row.dtype),
            *([] if row.plain is None else [_decibels(row.plain)]),
            *(_decibels(row.noise), f"{row.cosine:.5f}"),
            *(str(row.worst_channel), _decibels(row.worst_noise), _decibels(row.alone)),
        )
    console = Console()
    console.print(table)
    console.print(_verdict(report), highlight=False, soft_wrap=True)


def _plain(report: AccuracyReport) -> dict[str, Any]:
    """With numbers that JSON has: infinity is null."""
    rows = [
        {k: None if isinstance(v, float) and math.isinf(v) else v for k, v in asdict(row).items()}
        for row in report.layers
    ]
    return {**asdict(report), "layers": rows, "lost": report.lost}


def page(report: AccuracyReport) -> Page:
    """The page of a report."""
    from causeway.pages import page as p

    rows: list[list[p.Cell]] = [
        [
            p.Code(row.name),
            p.Badge(row.dtype, "native" if row.dtype == "int8" else "warn"),
            *([] if row.plain is None else [p.Number(row.plain, _decibels(row.plain))]),
            p.Number(row.noise, _decibels(row.noise)),
            p.Number(row.cosine, f"{row.cosine:.5f}"),
            p.Number(float(row.worst_channel), str(row.worst_channel)),
            p.Number(row.worst_noise, _decibels(row.worst_noise)),
            p.Number(row.alone, _decibels(row.alone)),
        ]
        for row in report.layers
    ]
    without = p.Column("without dB", f"the same as noise, without: {', '.join(report.steps)}")
    columns = [
        p.Column("layer", wide=True),
        p.Column("weights"),
        *([] if report.plain is None else [without]),
        p.Column("noise dB", "signal to noise of its output, all before it in integers"),
        p.Column("cosine", "between its output and that of the float model"),
        p.Column("worst channel"),
        p.Column("dB", "signal to noise of that channel"),
        p.Column("alone dB", "signal to noise of the model's output, this layer alone in integers"),
    ]
    return p.Page(
        "Quantization",
        [
            p.Verdict(_verdict(report), "plain" if report.lost < 1 else "warn"),
            p.Section("Layers", [p.Table(columns, rows)], note=str(len(rows))),
        ],
        about=[("models measured", str(report.tried))],
        data=_plain(report),
    )
