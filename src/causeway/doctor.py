"""`causeway doctor`: what is here, what is missing and what that costs, what is broken.

Unlike `import torch` this opens every device, and computes a little on each. `examine` finds out,
`show` prints; `causeway doctor --json` prints what `examine` found.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import causeway
from causeway import compat, config
from causeway.ops.ledger import size
from causeway.state import state

if TYPE_CHECKING:
    from rich.console import Console

# The releases of torch that Causeway is for (docs/torch.md).
TORCH = "2.11 to 2.15"

# A level is reached with all below it; each says what of it is there all the same.
LEVELS: dict[int, tuple[str, Callable[[dict[str, bool], list[str]], bool]]] = {
    0: ("memory: every operator works, on the host rung", lambda entries, more: True),
    1: (
        "operators",
        lambda entries, more: entries["op_find"] or entries["op_find_for"],
    ),
    2: (
        "streams and events",
        lambda entries, more: entries["stream_create"] and entries["event_create"],
    ),
    3: ("collectives", lambda entries, more: "comm.v1" in more),
    4: ("code or graphs", lambda entries, more: not {"code.v1", "graph.v1"}.isdisjoint(more)),
}

# Entries that a vendor may leave out, a group at a time, and what it costs the user.
COSTS = {
    "bind": "nothing, where the vendor's runtime has no current device",
    "mem_set": "memory is filled by a copy from the host",
    "mem_info": "free memory is what this process has not taken; others' use is not seen",
    "host_alloc, host_free": "pinned memory is ordinary memory: copies are slower, none overlaps",
    "op_find": "no native operator: all run on the rungs below, portable (code.v1) and host",
    "stream_create, stream_destroy, stream_query, stream_sync, stream_wait": (
        "one stream per device: nothing overlaps"
    ),
    "event_create, event_destroy, event_record, event_query, event_sync, event_elapsed": (
        "events are the host's clock after a sync: recording one waits"
    ),
    "close": "at the end of a process nothing is waited for, and the vendor is not told",
    "peer_access": "whether two devices exchange data directly is not known",
    "device_attribute": "no clock rates, bus, cache sizes or sensors of a device",
    "host_register, host_unregister": "host memory that is there already cannot be pinned",
    "fault": "an error of work that ran later has the vendor's words alone",
    "stream_callback": "the end of host copies and collectives is asked of events, now and then",
    "host_alloc_for, host_free_for": "pinned memory serves all devices, as host_alloc gives it",
    "mem_alloc_on, mem_free_on": "memory goes back to the device after a wait for all its work",
    "mem_reserve, mem_map, mem_unmap, mem_release": (
        "segments of the cache keep their size: expandable_segments has no effect"
    ),
    "op_find_for": "op_find's answers hold for all devices",
    "extension": "none of comm.v1, code.v1, graph.v1, ipc.v1, profile.v1",
}
EXTENSIONS = {
    "comm.v1": "collectives go through host memory",
    "code.v1": "no portable kernels: the rung is left out",
    "graph.v1": "a graph's replay gives the vendor each kernel by itself",
    "profile.v1": "torch.profiler times kernels and copies by events around them",
    "ipc.v1": "device tensors cannot be sent to another process",
}


_CONTAINER = ("/.dockerenv", "/run/.containerenv")  # docker's and podman's own


@dataclass
class DoctorReport:
    """What was found. `broken` has a line for each thing that must be mended: none, and all is
    well.
    """

    versions: dict[str, str]
    vendor: dict[str, Any] = field(default_factory=dict)
    level: int | None = None  # the highest that is there with all below it
    levels: dict[str, bool] = field(default_factory=dict)  # L0 to L4: what is there of each
    missing: dict[str, str] = field(default_factory=dict)
    devices: list[dict[str, Any]] = field(default_factory=list)
    settings: list[dict[str, str]] = field(default_factory=list)
    workarounds: list[dict[str, str]] = field(default_factory=list)
    autocast: list[dict[str, str]] = field(default_factory=list)
    libraries: list[dict[str, str]] = field(default_factory=list)
    tuned: list[dict[str, Any]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.broken:
            return f"broken: {'; '.join(self.broken)}"
        n = len(self.devices)
        return f"good: {n} {'device' if n == 1 else 'devices'} at level L{self.level}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}


def examine() -> DoctorReport:
    """Look at everything. Never raises: what fails is in `broken`."""
    import torch

    report = DoctorReport(
        versions={
            "causeway": causeway.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
    )
    report.vendor = {"name": state.vendor, "library": state.library, "chosen": state.reason}
    report.settings = [asdict(problem) for problem in state.problems]
    report.settings += [asdict(config.Problem("unused", text)) for text in compat.unheeded()]
    report.broken += [p.message for p in state.problems if p.severity == "error"]
    for part in (_vendor, _devices, _workarounds, _autocast, _libraries):
        try:
            part(report)
        except Exception as error:
            report.broken.append(f"{type(error).__name__}: {error}")
    if state.error is not None:
        report.broken = [m for m in report.broken if str(state.error) not in m]
        report.broken.insert(0, f"there is no device: {state.error}{_of_container()}")
    return report


def _of_container() -> str:
    """What to look at where a container sees no device; empty outside of one."""
    if not any(os.path.exists(file) for file in _CONTAINER):
        return ""
    return (
        ". This process is in a container, which sees a chip only if it was given its device files "
        "and its driver: for docker, `docker run --device` with those that the chip's maker names"
    )


def _vendor(report: DoctorReport) -> None:
    if state.error is not None:
        return
    from causeway import _C

    found = _C.vendor_state()
    report.vendor |= {key: found[key] for key in ("name", "version", "abi_version")}
    report.vendor["device"] = state.device
    report.vendor["notes"] = _C.vendor_notes().splitlines()
    if "layout.v1" in found["extensions"]:
        report.vendor["layouts"] = _C.layout_names()
    report.level = found["level"]
    for level, (_, there) in LEVELS.items():
        report.levels[f"L{level}"] = there(found["entries"], found["extensions"])
    for names, cost in COSTS.items():
        if not any(found["entries"][name] for name in names.split(", ")):
            report.missing[names] = cost
    for name, cost in EXTENSIONS.items():
        if name not in found["extensions"]:
            report.missing[name] = cost


def _devices(report: DoctorReport) -> None:
    if state.error is not None:
        return
    import torch

    from causeway import _C, tune
    from causeway.device.lazy import count_devices

    for index in range(count_devices()):
        info = _C.device_info(index)
        free, total = torch.accelerator.get_memory_info(index)
        device = {
            "device": f"{state.device}:{index}",
            "name": info["name"],
            "free": free,
            "total": total,
            "host_addressable": info["host_addressable"],
            "dtypes": [str(dtype).removeprefix("torch.") for dtype in info["dtypes"]],
            "limits": _limits(index),
        }
        report.devices.append(device)
        report.tuned += [asdict(choice) for choice in tune.choices(index)]
        with causeway.policy("allow"):
            wrong = _wrong(torch.device(state.device, index))
        if wrong:
            report.broken.append(f"{device['device']}: {wrong}")
    if not report.devices:
        report.broken.append(f"no device is visible{_of_container()}")


def _limits(index: int) -> list[str]:
    """What results, or what runs where, depend on: as code.v1 says it of the chip's compiler."""
    from causeway import _C, code

    info = _C.compiler_info(index)
    found = []
    if info is not None and code.flushes(index):
        found.append("arithmetic may take subnormal numbers of float32 for 0")
    if info is not None and (turns := _C.code_info(index)["loop_limit"]):
        found.append(f"loops end after {turns} turns: kernels of longer ones step down the ladder")
    return found


def _wrong(device: Any) -> str | None:
    """Copy there, add, multiply, copy back: what is not as on the CPU."""
    import torch

    a = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    there = a.to(device)
    if not torch.equal(there.cpu(), a):
        return "what is copied there and back is not the same"
    if not torch.equal((there + 1).cpu(), a + 1):
        return "it adds wrongly"
    if not torch.equal((there @ there.T).cpu(), a @ a.T):
        return "it multiplies matrices wrongly"
    return None


def _workarounds(report: DoctorReport) -> None:
    if state.error is not None:
        return
    from causeway import workarounds

    report.workarounds = [
        {"name": entry.name, "upstream": entry.upstream, "what": entry.what}
        for entry in workarounds.in_force()
    ]


def _autocast(report: DoctorReport) -> None:
    if state.error is not None:
        return
    from causeway.ops import autocast

    report.autocast = [asdict(policy) for policy in autocast.policies()]


def _libraries(report: DoctorReport) -> None:
    from causeway import integrations

    report.libraries = [
        {"name": name, "version": installed, "tested": tested, "how": how}
        for name, installed, tested, how in integrations.rows()
    ]


def show(report: DoctorReport, console: Console) -> None:
    """Print a report for people."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")

    def line(title: str, text: str) -> None:
        table.add_row(title, escape(text))

    for name, version in report.versions.items():
        line(name, f"{version} (made for: {TORCH})" if name == "torch" else version)
    vendor = report.vendor
    line("vendor", f"{vendor['name'] or 'none'} {vendor.get('version', '')} ({vendor['chosen']})")
    line("library", vendor["library"] or "none")
    for i, note in enumerate(vendor.get("notes", ())):
        line("" if i else "vendor says", note)
    if (layouts := vendor.get("layouts")) is not None:
        kept = ", ".join(layouts) if layouts else "none: storages are watched from torch 2.13 on"
        line("layouts", kept)
    if report.level is not None:
        line("device", f"torch.{vendor['device']}, abi {vendor['abi_version']}")
        for level, (meaning, _) in LEVELS.items():
            line(f"L{level}", f"{'yes' if report.levels[f'L{level}'] else 'no'}: {meaning}")
    for i, (names, cost) in enumerate(report.missing.items()):
        line("" if i else "missing", f"{names}: {cost}")
    for device in report.devices:
        memory = f"{size(device['free'])} free of {size(device['total'])}"
        if not device["host_addressable"]:
            memory += ", not addressable by the host"
        line(device["device"], f"{device['name']}: {memory}")
        for text in device["limits"]:
            line("", text)
    for i, choice in enumerate(report.tuned):
        text = f"{choice['device']}: {choice['name']}: "
        text += f"{choice['cut']}, {choice['gain']:.2f} of the built-in cut's speed, "
        line("" if i else "tuned", text + choice["source"])
    for i, entry in enumerate(report.workarounds):
        line("" if i else "workarounds", f"{entry['name']}: {entry['what']} ({entry['upstream']})")
    for i, entry in enumerate(report.autocast):
        text = f"{entry['operator']}: {entry['policy']} ({entry['source']})"
        line("" if i else "autocast", text)
    for i, library in enumerate(report.libraries):
        text = f"{library['name']} {library['version']} (tested: {library['tested']}): "
        line("" if i else "libraries", text + library["how"])
    for i, problem in enumerate(report.settings):
        line("" if i else "settings", problem["message"])
    changed = [f"{name} = {value} ({where})" for name, value, where, _ in config.rows()
               if where != "default"]  # fmt: skip
    for i, text in enumerate(changed):
        line("" if i else "set", text)
    console.print(table)
    style = "bold red" if report.broken else "bold green"
    console.print(f"\n{escape(report.verdict)}", style=style, highlight=False, soft_wrap=True)
