"""The `nvidia-smi` of a program whose CUDA calls are redirected: the device's numbers, in the forms
that programs read. What the device does not tell is [N/A], as NVIDIA's tool has it.

Offered: the table, `-L`, `-q`, `-q -x` and `--query-gpu`. Left out: `dmon`, `topo`, and all that
sets something; these end with status 2 and say so. bin/nvidia-smi starts it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from xml.etree import ElementTree

import torch  # noqa: F401  # which attaches the device

import causeway
from causeway.redirect import readings
from causeway.redirect.readings import Reading

_MIB = 2**20
_NOT = "[N/A]"


def _in_use(number: int, reading: Reading) -> str | None:
    """MiB, where the vendor counts them: this process, which is none that works, has no count."""
    return str(number // _MIB) if reading.of_all else None


def _text(number: int | None, over: int = 1) -> str | None:
    return None if number is None else str(number // over)


def _watts(reading: Reading) -> str | None:
    return None if reading.power is None else f"{reading.power / 1000:.2f}"


# A field of --query-gpu: its unit, and its text.
FIELDS: dict[str, tuple[str, Callable[[Reading], str | None]]] = {
    "timestamp": ("", lambda r: datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]),
    "count": ("", lambda r: None),  # of the machine, see _csv
    "driver_version": ("", lambda r: r.driver),
    "index": ("", lambda r: str(r.index)),
    "name": ("", lambda r: r.name),
    "uuid": ("", lambda r: r.uuid),
    "pci.bus_id": ("", lambda r: r.bus),
    "compute_cap": ("", lambda r: ".".join(map(str, r.capability))),
    "memory.total": ("MiB", lambda r: str(r.total // _MIB)),
    "memory.used": ("MiB", lambda r: _in_use(r.used, r)),
    "memory.free": ("MiB", lambda r: _in_use(r.free, r)),
    "utilization.gpu": ("%", lambda r: _text(r.utilization)),
    "utilization.memory": ("%", lambda r: _text(r.memory_utilization)),
    "temperature.gpu": ("", lambda r: _text(r.temperature)),
    "power.draw": ("W", _watts),
    "clocks.current.sm": ("MHz", lambda r: _text(r.clock, 1000)),
    "clocks.max.sm": ("MHz", lambda r: _text(r.highest_clock, 1000)),
    "clocks.max.memory": ("MHz", lambda r: _text(r.highest_memory_clock, 1000)),
}
# Other names of these.
_SAME = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "power.draw.instant": "power.draw",
    "power.draw.average": "power.draw",
    "clocks.sm": "clocks.current.sm",
    "clocks.gr": "clocks.current.sm",
    "clocks.current.graphics": "clocks.current.sm",
    "clocks.max.graphics": "clocks.max.sm",
    "clocks.max.gr": "clocks.max.sm",
    "clocks.max.mem": "clocks.max.memory",
}
# NVIDIA's own, which no entry of the contract tells.
_UNTOLD = {
    "MiB": ("memory.reserved",),
    "W": ("power.limit", "enforced.power.limit", "power.default_limit", "power.min_limit",
          "power.max_limit"),
    "%": ("fan.speed", "utilization.encoder", "utilization.decoder"),
    "MHz": ("clocks.current.memory", "clocks.mem", "clocks.current.video", "clocks.video"),
    "": ("serial", "gpu_serial", "vbios_version", "display_mode", "display_active",
         "display_attached", "persistence_mode", "pstate", "compute_mode", "temperature.memory",
         "accounting.mode", "driver_model.current", "pcie.link.gen.current", "pcie.link.gen.max",
         "pcie.link.width.current", "pcie.link.width.max", "pci.bus", "pci.device", "pci.domain",
         "pci.device_id", "mig.mode.current", "mig.mode.pending", "ecc.mode.current",
         "ecc.mode.pending", "ecc.errors.corrected.volatile.total",
         "ecc.errors.uncorrected.volatile.total", "clocks_throttle_reasons.active",
         "clocks_event_reasons.active", "gom.current", "inforom.img", "power.management"),
}  # fmt: skip
UNTOLD = {name: unit for unit, names in _UNTOLD.items() for name in names}


class RefusalError(Exception):
    """What cannot be answered: the text, and the exit status."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.status = status


def main(arguments: list[str], target: str) -> int:
    """Print what was asked for; the exit status."""
    options, others = _parser().parse_known_args(arguments)
    try:
        if others:
            raise RefusalError(
                f"this nvidia-smi is Causeway's: it has no {' '.join(others)}. It offers the "
                "table, -L, -q, -q -x and --query-gpu=... --format=csv; -i, -f and -l with them. "
                "`causeway doctor` says more of the device"
            )
        while True:
            _print(options, target)
            seconds = options.loop_ms / 1000 if options.loop_ms else options.loop
            if seconds is None:
                return 0
            time.sleep(seconds)
    except RefusalError as refused:
        print(refused)
        return refused.status
    except (BrokenPipeError, KeyboardInterrupt):  # the end of a loop
        return 0


def _pause(text: str) -> float:
    found = float(text)
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no time to wait for")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nvidia-smi",
        description="Causeway's, for a program whose CUDA calls are redirected: numbers of the "
        "device; [N/A] is what it does not tell.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-L", "--list-gpus", action="store_true", help="a line for each device")
    add("-q", "--query", action="store_true", help="all that is known, a line each")
    add("-d", "--display", default="", help="with -q, only MEMORY, UTILIZATION, ...")
    add("-x", "--xml-format", action="store_true", help="-q as XML")
    add("--query-gpu", metavar="FIELDS", help="fields with commas; --help-query-gpu lists them")
    add("--query-compute-apps", metavar="FIELDS", help="no rows: devices do not tell processes")
    add("--help-query-gpu", action="store_true", help="the fields of --query-gpu")
    add("--format", help="csv, with noheader and nounits")
    add("-i", "--id", help="only these, by index, UUID or bus id")
    add("-f", "--filename", help="write there")
    add("-l", "--loop", type=_pause, nargs="?", const=5, help="again after these seconds")
    add("-lms", "--loop-ms", type=_pause, nargs="?", const=5000, help="again after these ms")
    add("--version", action="store_true", help="whose tool it is")
    return parser


def _print(options: argparse.Namespace, target: str) -> None:
    if options.version:
        text = f"{_whose(target)}: numbers of the device for a program whose CUDA calls go to it\n"
    elif options.help_query_gpu:
        text = "".join(f"{name}\n" for name in (*FIELDS, *_SAME))
        text += "\nknown, and [N/A] here: " + ", ".join(UNTOLD) + "\n"
    else:
        found = _chosen(options.id, target)
        text = "".join(f"{line}\n" for line in _lines(options, found, target))
    if options.filename:
        try:
            with open(options.filename, "a") as file:
                file.write(text)
        except OSError as error:
            raise RefusalError(f"{options.filename} cannot be written: {error.strerror}") from None
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


def _lines(options: argparse.Namespace, found: list[Reading], target: str) -> Iterator[str]:
    if options.query_gpu is not None:
        yield from _csv(options, found, readings.count(target))
    elif options.query_compute_apps is not None:
        print(f"{_whose(target)}: {readings.NO_PROCESSES}", file=sys.stderr)
        if "noheader" not in _format(options):
            yield options.query_compute_apps.replace(",", ", ").replace("  ", " ")
    elif options.list_gpus:
        for reading in found:
            yield f"GPU {reading.index}: {reading.name} (UUID: {reading.uuid or 'N/A'})"
    elif options.xml_format:
        if not options.query:
            raise RefusalError("-x prints what -q asks for: nvidia-smi -q -x")
        yield from _xml(found, options.display.upper())
    elif options.query:
        yield from _log(found, options.display.upper())
    else:
        yield from _table(found, target)


def _chosen(ids: str | None, target: str) -> list[Reading]:
    from causeway.errors import CausewayError

    try:
        there = readings.count(target)
        found = [readings.read(index, target) for index in range(there)]
    except CausewayError as error:
        print(f"{_whose(target)}: {error}", file=sys.stderr)
        found = []
    if not found:
        raise RefusalError("No devices were found", 6)
    if ids is None:
        return found
    chosen = []
    for one in ids.split(","):
        which = [r for r in found if one.strip() in (str(r.index), r.uuid, r.bus)]
        if not which:
            raise RefusalError(f'No devices were found: there is no "{one.strip()}"', 6)
        chosen += which
    return chosen


# --- --query-gpu ----------------------------------------------------------------------------------


def _format(options: argparse.Namespace) -> list[str]:
    words = [word.strip() for word in (options.format or "").split(",")]
    if "csv" not in words or not {*words} <= {"csv", "noheader", "nounits"}:
        raise RefusalError("--format=csv[,noheader][,nounits] is what a query is printed by")
    return words


def _csv(options: argparse.Namespace, found: list[Reading], there: int) -> Iterator[str]:
    words = _format(options)
    names = []
    for name in options.query_gpu.split(","):
        known = _SAME.get(name.strip(), name.strip())
        if known not in FIELDS and known not in UNTOLD:
            raise RefusalError(f'Field "{known}" is not a valid field to query.\n')
        names.append(known)
    units = {n: FIELDS[n][0] if n in FIELDS else UNTOLD[n] for n in names}
    if "noheader" not in words:
        yield ", ".join(f"{n} [{units[n]}]" if units[n] else n for n in names)
    for reading in found:
        cells = []
        for name in names:
            text = str(there) if name == "count" else _value(name, reading)
            unit = f" {units[name]}" if units[name] and "nounits" not in words else ""
            cells.append(_NOT if text is None else text + unit)
        yield ", ".join(cells)


def _value(name: str, reading: Reading) -> str | None:
    return FIELDS[name][1](reading) if name in FIELDS else None


# --- for people -----------------------------------------------------------------------------------


def _whose(target: str) -> str:
    return f"NVIDIA-SMI of Causeway {causeway.__version__}, {_device(target)}"


def _device(target: str) -> str:
    from causeway.device.lazy import device_name

    return "cpu" if target == "cpu" else device_name()


def _now() -> str:
    return datetime.now().strftime("%a %b %e %H:%M:%S %Y")


def _heads(found: list[Reading]) -> list[tuple[str, str, str]]:
    """Of the machine: the label, the element of XML, the text."""
    return [
        ("Timestamp", "timestamp", _now()),
        ("Driver Version", "driver_version", found[0].driver or "N/A"),
        ("CUDA Version", "cuda_version", readings.CUDA_VERSION),
        ("Attached GPUs", "attached_gpus", str(len(found))),
    ]


def _names(r: Reading) -> list[tuple[str, str, str]]:
    return [("Product Name", "product_name", r.name), ("GPU UUID", "uuid", r.uuid or "N/A")]


def _wanted(display: str) -> set[str]:
    return {word.strip() for word in display.split(",") if word.strip()}


def _log(found: list[Reading], display: str) -> Iterator[str]:
    yield from ("", "==============NVSMI LOG==============", "")
    *rows, (label, _, attached) = _heads(found)
    yield from (f"{name:<42}: {text}" for name, _, text in rows)
    yield from ("", f"{label:<42}: {attached}")
    wanted = _wanted(display)
    for r in found:
        yield f"GPU {r.bus or r.index}"
        if not wanted:
            yield from (f"    {name:<38}: {text}" for name, _, text in _names(r))
        for title, _, word, lines in _sections(r):
            if not wanted or word in wanted:
                yield f"    {title}"
                yield from (f"        {name:<34}: {text}" for name, _, text in lines)
    yield ""


def _xml(found: list[Reading], display: str) -> Iterator[str]:
    def add(parent: ElementTree.Element, rows: list[tuple[str, str, str]]) -> None:
        for _, name, text in rows:
            ElementTree.SubElement(parent, name).text = text

    root = ElementTree.Element("nvidia_smi_log")
    add(root, _heads(found))
    wanted = _wanted(display)
    for r in found:
        gpu = ElementTree.SubElement(root, "gpu", id=r.bus or str(r.index))
        if not wanted:
            add(gpu, _names(r))
        for _, element, word, lines in _sections(r):
            if not wanted or word in wanted:
                add(ElementTree.SubElement(gpu, element), lines)
        if not wanted:
            ElementTree.SubElement(gpu, "processes")  # readings.NO_PROCESSES
    ElementTree.indent(root, "\t")
    yield '<?xml version="1.0" ?>'
    yield ElementTree.tostring(root, encoding="unicode")


def _sections(r: Reading) -> list[tuple[str, str, str, list[tuple[str, str, str]]]]:
    """The title, the element of XML, the word of -d, and rows as _heads has them."""

    def text(field: str) -> str:
        unit, of = FIELDS[field]
        found = of(r)
        return "N/A" if found is None else f"{found} {unit}".rstrip()

    degrees = text("temperature.gpu")
    return [
        ("FB Memory Usage", "fb_memory_usage", "MEMORY", [
            ("Total", "total", text("memory.total")),
            ("Used", "used", text("memory.used")),
            ("Free", "free", text("memory.free")),
        ]),
        ("Utilization", "utilization", "UTILIZATION", [
            ("Gpu", "gpu_util", text("utilization.gpu")),
            ("Memory", "memory_util", text("utilization.memory")),
        ]),
        ("Temperature", "temperature", "TEMPERATURE", [
            ("GPU Current Temp", "gpu_temp", degrees if degrees == "N/A" else f"{degrees} C"),
        ]),
        ("GPU Power Readings", "gpu_power_readings", "POWER", [
            ("Power Draw", "power_draw", text("power.draw")),
        ]),
        ("Clocks", "clocks", "CLOCK", [("SM", "sm_clock", text("clocks.current.sm"))]),
        ("Max Clocks", "max_clocks", "CLOCK", [
            ("SM", "sm_clock", text("clocks.max.sm")),
            ("Memory", "mem_clock", text("clocks.max.memory")),
        ]),
    ]  # fmt: skip


_BARS = ("-" * 41, "-" * 24, "-" * 22)
_HEADS = (
    ("GPU  Name                 Persistence-M", f"Bus-Id{'Disp.A':>16}", "Volatile Uncorr. ECC"),
    ("Fan  Temp   Perf          Pwr:Usage/Cap", f"{'Memory-Usage':>22}", "GPU-Util  Compute M."),
    ("", "", f"{'MIG M.':>20}"),
)


def _row(*cells: str) -> str:
    return f"|{'|'.join(cells)}|"


def _table(found: list[Reading], target: str) -> Iterator[str]:
    driver = found[0].driver or "N/A"
    banner = f" {_whose(target):<36} Driver Version: {driver:<12} CUDA Version: "
    yield _now()
    yield f"+{'-' * 89}+"
    yield _row(f"{banner}{readings.CUDA_VERSION}".ljust(89))
    yield _row("+".join(_BARS))
    for cells in _HEADS:
        yield _row(*(f" {c}".ljust(len(bar)) for c, bar in zip(cells, _BARS, strict=True)))
    yield _row("+".join(bar.replace("-", "=") for bar in _BARS))
    for r in found:
        yield from _device_rows(r)
        yield f"+{'+'.join(_BARS)}+"
    yield " " * 91
    yield f"+{'-' * 89}+"
    yield _row(" Processes:".ljust(89))
    yield _row(f"  {readings.NO_PROCESSES}; its vendor's own tool may".ljust(89))
    yield f"+{'-' * 89}+"


def _device_rows(r: Reading) -> Iterator[str]:
    temperature = "N/A" if r.temperature is None else f"{r.temperature}C"
    power = "N/A" if r.power is None else f"{r.power // 1000}W"
    used = f"{r.used // _MIB}MiB" if r.of_all else "N/A"
    busy = "N/A" if r.utilization is None else f"{r.utilization}%"
    yield _row(
        f" {r.index:>3}  {r.name:<28.28} {'N/A':>4}  ",
        f"   {r.bus or 'N/A':<16.16} {'N/A':>3} ",
        f"{'N/A':>21} ",
    )
    yield _row(
        f" {'N/A':>3} {temperature:>5} {'N/A':>6}        {power:>7} / {'N/A':>5} ",
        f"{used:>11} / {r.total // _MIB:>6}MiB ",
        f"{busy:>8} {'N/A':>12} ",
    )
    yield _row(" " * 41, " " * 24, f"{'N/A':>21} ")


def _note(target: str) -> None:
    """One call in the report of the program that asked (`causeway run --report`)."""
    from causeway.redirect import places, switch

    places.note_elsewhere("nvidia-smi")
    switch._served["nvidia-smi"] = _device(target)


if __name__ == "__main__":
    import os

    chosen = os.environ.get("_CAUSEWAY_SMI", "device")
    _note(chosen)
    sys.exit(main(sys.argv[1:], chosen))
