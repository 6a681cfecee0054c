"""The process that examines operators: `python -m causeway.conformance.examine`, for `workers`."""

from __future__ import annotations

import importlib
import json
import re
import sys
import traceback

import torch

from causeway import _C
from causeway.conformance import known
from causeway.conformance.dtypes import ORDER
from causeway.conformance.families import operator_names
from causeway.conformance.given import Given
from causeway.conformance.operators import LOWER, OURS, PORTABLE, Examiner, Result, dtype_name
from causeway.conformance.pipe import speaker
from causeway.errors import CausewayError
from causeway.ops import facts, schema
from causeway.state import state


def import_library(module: str) -> None:
    """Import what registers operators of another library. Raises CausewayError with the reason."""
    try:
        importlib.import_module(module)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise CausewayError(f"--import {module} cannot be imported: {words}") from error


def main() -> None:
    """Read what to restrict to, then a name a line; write what came."""
    say = speaker()
    only = json.loads(sys.stdin.readline())
    for module in (only.get("imports") or "").split(","):
        if module:
            import_library(module)
    if state.error is not None or not torch.accelerator.is_available():
        say(broken=f"there is no device: {state.error or 'none is visible'}")
        return
    torch.set_num_threads(1)
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    device = torch.device(accelerator.type, 0)
    info = _C.device_info(0)
    dtypes = [d for name in ORDER if (d := getattr(torch, name)) in info["dtypes"]]
    ours = PORTABLE if only.get("portable") else LOWER if only.get("lower") else OURS
    offered = _C.offered_portable() if ours == PORTABLE else _C.offered()
    if ours == LOWER:  # as if they were offered: whichever rung serves them is examined
        forms = [o.name for o in schema.operators() if not o.served_by]
        if "::" in only["lower"]:
            forms += filter(facts.of_another_library, operator_names())
        found = [n for n in dict.fromkeys(forms) if re.search(str(only["lower"]), n)]
        offered = {name: {"needs": 0, "dtypes": dtypes} for name in found}
    given = Given(only["cases"]) if only.get("cases") else None
    differences = known.read(only["known"]) if only.get("known") else []
    examiner = Examiner(
        device, offered, dtypes, lambda text: say(case=text), given, ours, differences
    )
    say(about={
        "offered": sorted(offered),
        "dtypes": [dtype_name(d) for d in dtypes],
        "device": info["name"],
        "vendor": _C.vendor_state()["name"],
        "version": _C.vendor_state()["version"],
        "operators_of_torch": len(_C.operators()),
        "chip": {
            "memory": info["memory"],
            "host_addressable": info["host_addressable"],
            "compiler": bool(_C.offered_portable()),
            "dtypes": [dtype_name(d) for d in info["dtypes"]],
        },
        "offers": {
            name: {"needs": o["needs"], "dtypes": [dtype_name(d) for d in o["dtypes"]]}
            for name, o in sorted(offered.items())
        },
    })  # fmt: skip
    dtype = re.compile(only["dtype"]) if only.get("dtype") else None
    for line in sys.stdin:
        name = json.loads(line)
        try:
            result = examiner.examine(name, dtype, only.get("case"))
        except CausewayError as error:
            result = Result(name, 0, "", [], broken=str(error))
        except Exception as error:  # of the suite or of torch: told, and the next one goes on
            where = traceback.extract_tb(error.__traceback__)[-1]
            words = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            result = Result(name, 0, "", [], broken=words)
        say(result=result.to_dict())


if __name__ == "__main__":
    main()
