"""A chip on paper: from a vendor's conformance report, or around its library.

`CAUSEWAY_VENDOR=report.json python train.py` runs a program on it: the ladder takes the rungs that
it would take on the chip, and the kernels compute on the CPU. What a report cannot tell is which
calls a kernel declines; the library can, by extension check.v1 of abi.h.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from causeway import device_name, vendor
from causeway.conformance.chips import read_json
from causeway.errors import ConfigError

KIND = "causeway-paper"  # a description that names a library, as `causeway coverage` writes it
NEEDS = 31  # all bits that abi.h has


def load(path: str, settings: vendor.Settings) -> None:
    """Make the chip of file `path` the vendor of this process.

    Raises ConfigError where the file is no report, with what is wrong.
    """
    from causeway import _C

    paper = read(path)
    library = Path(paper["library"])
    settings.vendor = vendor.name_of_library(library) if paper["library"] else paper["name"]
    settings.push()
    _C.load_paper(paper, path)


def write_description(path: str | Path, library: str) -> None:
    """A file for CAUSEWAY_VENDOR that stands for the chip of a library."""
    Path(path).write_text(json.dumps({"kind": KIND, "library": library}))


def read(path: str | Path) -> dict[str, Any]:
    """What `_C.load_paper` takes, from a conformance report or a description."""
    data = read_json(path)
    if data.get("kind") == KIND:
        library = _of(data, "library", str, path)
        return _paper("paper", "", "a chip on paper", library=library)
    about = data.get("about")
    if not isinstance(about, dict) or "operators" not in data:
        raise ConfigError(
            f'{path} is no conformance report: it has no "about" and "operators"; '
            "`causeway conformance --json FILE` writes one"
        )
    if "offers" not in about or "chip" not in about:
        raise ConfigError(
            f'{path}: the report does not say what operators need and what the chip is ("offers" '
            'and "chip" of "about"): it is of an older Causeway, or of a library without '
            "operators; run `causeway conformance --json` again"
        )
    chip, offers = _of(about, "chip", dict, path), _of(about, "offers", dict, path)
    name = _of(about, "vendor", str, path)
    if (why := device_name.refusal(name)) is not None:
        raise ConfigError(f"{path}: the vendor's name is {name!r}: {why}")
    operators = {}
    for operator, offer in offers.items():
        if not isinstance(offer, dict):
            raise ConfigError(f'{path}: "offers" of {operator!r} is no object')
        needs = _of(offer, "needs", int, path)
        if not 0 <= needs <= NEEDS:
            raise ConfigError(
                f"{path}: {operator!r} needs {needs}; bits beyond {NEEDS} mean nothing"
            )
        dtypes = _dtypes(_of(offer, "dtypes", list, path), path)
        operators[operator] = {"needs": needs, "dtypes": dtypes}
    return _paper(
        name,
        _of(about, "version", str, path),
        _of(about, "device", str, path),
        memory=_memory(chip, path),
        dtypes=_dtypes(_of(chip, "dtypes", list, path), path),
        host_addressable=_of(chip, "host_addressable", bool, path),
        operators=operators,
        # A report of an older Causeway does not say.
        compiler="compiler" in chip and _of(chip, "compiler", bool, path),
    )


def declines(path: str | Path) -> dict[str, int]:
    """Operators whose kernel declined calls of the conformance suite, with how many."""
    found = {}
    for operator in read_json(path).get("operators") or []:
        cells = operator.get("cells", {}) if isinstance(operator, dict) else {}
        count = sum(c.get("declined", 0) for c in cells.values() if isinstance(c, dict))
        if count:
            found[str(operator.get("operator"))] = count
    return found


def _paper(name: str, version: str, device: str, **more: Any) -> dict[str, Any]:
    import torch

    return {
        "name": name,
        "version": version,
        "device": device,
        "memory": 1 << 40,
        "dtypes": [torch.float32, torch.int64, torch.int32, torch.bool],
        "host_addressable": False,
        "operators": {},
        "library": "",
        "compiler": False,
    } | more


def _of(data: dict[str, Any], key: str, kind: type, path: str | Path) -> Any:
    value = data.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{path}: {key!r} is {value!r:.60}; expected a {kind.__name__}")
    return value


def _memory(chip: dict[str, Any], path: str | Path) -> int:
    memory: int = _of(chip, "memory", int, path)
    if not 0 < memory < 1 << 63:
        raise ConfigError(f"{path}: 'memory' is {memory!s:.60}; expected bytes, below 2**63")
    return memory


def _dtypes(names: list[Any], path: str | Path) -> list[Any]:
    import torch

    found = [getattr(torch, name, None) if isinstance(name, str) else None for name in names]
    for name, dtype in zip(names, found, strict=True):
        if not isinstance(dtype, torch.dtype):
            raise ConfigError(f"{path}: {name!r:.60} is no dtype of torch")
    return found
