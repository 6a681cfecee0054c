"""The process in which a model runs on the chip on paper.

`python -m causeway.coverage.child JOB OUT`: JOB is JSON, Job's fields; OUT becomes JSON, what
`model.build` takes. A process of its own, since a process has one vendor, and since a script may do
anything.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from causeway import program
from causeway.coverage.record import Recorder
from causeway.errors import CausewayError


@dataclass(frozen=True)
class Job:
    """What to run and how."""

    target: str  # a script, MODULE:FUNCTION or FILE:FUNCTION, or a trace
    arguments: tuple[str, ...] = ()
    dry: bool = True
    by: str = ""  # of program.WAYS, for a program that names no chip
    optimizer: str = "adamw"  # for a function that returns a model
    trace: bool = False
    module: bool = False  # `target` is a module's name
    explain: bool = False  # `target` is an operator, `arguments` are dtypes


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    job = Job(**given | {"arguments": tuple(given["arguments"])})
    out = Path(sys.argv[2])
    sys.argv = [job.target, *job.arguments]
    out.write_text(json.dumps(examine(job)))


def examine(job: Job) -> dict[str, Any]:
    """Run the job's target and say what came."""
    import causeway
    from causeway import _C
    from causeway.state import state

    if state.error is not None:
        return {"broken": str(state.error)}
    device = torch.device(state.device, 0)
    _C.init()
    if job.explain:
        from causeway.coverage import explain

        try:
            found = explain.look(job.target, job.arguments)
        except CausewayError as error:
            return {"broken": str(error)}
        return found | {"chip": f"{_C.vendor_state()['name']} ({_C.device_info(0)['name']})"}
    failure: dict[str, Any] | None = None
    skipped: list[tuple[str, str]] = []
    begin = time.perf_counter()
    _C.set_dry(job.dry)
    with causeway.ledger() as ledger, Recorder() as recorder:
        try:
            skipped = _run(job, device, recorder)
        except SystemExit as stop:
            if stop.code not in (None, 0):
                failure = {"kind": "SystemExit", "message": f"exit status {stop.code}"}
        except KeyboardInterrupt:
            raise
        except CausewayError as error:
            if job.trace:
                return {"broken": str(error)}
            failure = _failure(error)
        except BaseException as error:  # the program's own: it is reported with its place
            failure = _failure(error)
    _C.set_dry(False)
    needed = _C.needed_contents()
    offered = _C.offered()
    opened = _C.vendor_state()
    info = _C.device_info(0)
    return {
        "job": asdict(job),
        "vendor": {
            "name": opened["name"],
            "version": opened["version"],
            "device": info["name"],
            "dtypes": [str(d).removeprefix("torch.") for d in info["dtypes"]],
            "host_addressable": info["host_addressable"],
            "asked": "check.v1" in opened["extensions"],
        },
        "offered": {
            name: [str(d).removeprefix("torch.") for d in o["dtypes"]]
            for name, o in offered.items()
        },
        "calls": [asdict(calls) for calls in recorder.calls.values()],
        "ledger": [asdict(row) for row in ledger.rows],
        "narrowed": [[*key[:2], key[2], count] for key, count in recorder.narrowed.items()],
        "needed": needed,
        "skipped": skipped,
        "failure": failure,
        "peak_bytes": torch.accelerator.max_memory_allocated(),
        "seconds": time.perf_counter() - begin,
        "torch": torch.__version__,
        "causeway": causeway.__version__,
    }


def _failure(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    here = str(Path(__file__).parent)
    torches = str(Path(torch.__file__).parent)
    own = [
        f for f in frames if not f.filename.startswith((here, torches)) and f.filename[:1] != "<"
    ]
    place = own[-1] if own else None
    words = "".join(traceback.format_exception_only(error)).strip()
    return {
        "kind": type(error).__name__,
        "message": words[:4000],
        "file": place.filename if place else "",
        "line": place.lineno if place else 0,
    }


# --- what is run ----------------------------------------------------------------------------------


def _run(job: Job, device: torch.device, recorder: Recorder) -> list[tuple[str, str]]:
    """Run it; what of a trace could not be run, with the reason."""
    place, _, function = job.target.rpartition(":")
    if job.trace:
        from causeway.coverage import trace

        return trace.replay(Path(job.target), device, recorder)
    if job.module or not place or job.target.endswith(".py"):
        _script(job, device)
    else:
        _function(job, place, function, device)
    return []


def _script(job: Job, device: torch.device) -> None:
    with program.brought(job.by, str(device)):
        program.run(job.target, sys.argv[1:], module=job.module)


def _function(job: Job, place: str, name: str, device: torch.device) -> None:
    function = program.function_at(f"{place}:{name}")
    if function is None:
        raise CausewayError(f"{place} has no function {name!r}")
    with program.brought(job.by, str(device)):
        wants = "device" in inspect.signature(function).parameters
        result = function(device=device) if wants else function()
        if result is not None:
            _step(job, result, device)


def _step(job: Job, result: Any, device: torch.device) -> None:
    """A step of training with what the function returned: (model, inputs) or (model, inputs,
    loss), `inputs` a tensor, a tuple or a dict; `loss(output)` else the mean of all outputs.
    """
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        if isinstance(result, torch.Tensor | dict | list | int | float | bool | str):
            return
        raise CausewayError(
            f"{job.target} returned a {type(result).__name__}; it returns nothing and does the "
            "step itself, or (model, inputs) or (model, inputs, loss)"
        )
    model, inputs, *rest = result
    if not isinstance(model, torch.nn.Module):
        return
    model = model.to(device)
    inputs = _to(inputs, device)
    if isinstance(inputs, dict):
        outputs = model(**inputs)
    else:
        outputs = model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)
    loss = rest[0](outputs) if rest else sum(t.float().mean() for t in _floats(outputs))
    weights = [p for p in model.parameters() if p.requires_grad]
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad or not weights:
        return
    loss.backward()  # type: ignore[no-untyped-call]
    makers: dict[str, Callable[..., Any]] = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    if job.optimizer in makers:
        optimizer = makers[job.optimizer](weights)
        optimizer.step()
        optimizer.zero_grad()


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _to(v, device) for key, v in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_to(v, device) for v in value)
    return value


def _floats(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() and value.requires_grad else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _floats(v)] if isinstance(value, tuple | list) else []


if __name__ == "__main__":
    main()
