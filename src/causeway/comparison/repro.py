"""A folder that shows a failure again: script.py and inputs.safetensors, which need torch and
Causeway only. The script ends with 1 while the operator is wrong, and with 0 when it is right.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from causeway.comparison.findings import Failure
from causeway.comparison.snapshot import Dense, Snapshot, Whole
from causeway.observe.arguments import overload

MOST = 1 << 30  # bytes of inputs

SCRIPT = '''"""{title}

{words}

Written by causeway.compare. The inputs are in inputs.safetensors: storages as bytes, so that
tensors that shared memory share it again. Give another device as the argument: script.py npu:1.
Settings in force: {settings}
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

import causeway

accelerator = torch.accelerator.current_accelerator()
device = torch.device(sys.argv[1]) if len(sys.argv) > 1 else accelerator
if device is None:
    sys.exit("there is no accelerator: `causeway doctor` says why")
data = load_file(Path(__file__).with_name("inputs.safetensors"))
storages = {{}}


def tensor(name, dtype, size, stride, offset, on_device, conj=False, neg=False):
    key = name, on_device
    if key not in storages:
        storages[key] = data[name].clone().to(device if on_device else "cpu")
    bytes = storages[key]
    t = torch.empty(0, dtype=dtype, device=bytes.device)
    t = t.set_(bytes.untyped_storage(), offset, size, stride)
    t = torch._conj(t) if conj else t
    return torch._neg_view(t) if neg else t

{generator}
args = [
{args}]
kwargs = {{{kwargs}}}
with torch.no_grad(), causeway.compare({pattern!r}, on_failure="quiet") as c:
    torch.ops.{operator}(*args, **kwargs)
    torch.accelerator.synchronize()
print(c.table())
for failure in c.failures:
    print(failure)
sys.exit(1 if c.failures else 0)
'''


class NoRepro(Exception):
    """A call that cannot be written down, and why."""


def save(failure: Failure, taken: Snapshot, state: torch.Tensor | None, folder: Path) -> Failure:
    """Write the script below `folder`; the failure with its place, or with why there is none."""
    short = failure.operator.removeprefix("aten::").replace("::", ".")
    mark = hashlib.sha256(f"{failure.operator}|{failure.signature}|{failure.kind}".encode())
    target = folder / f"{short}-{mark.hexdigest()[:8]}"
    try:
        tensors, script = _write(failure, taken, state)
    except NoRepro as why:
        return replace(failure, no_repro=str(why))
    from safetensors.torch import save_file

    # Whole or not at all: both files are there before the folder has its name.
    part = folder / f".{target.name}.{os.getpid()}"
    part.mkdir(parents=True, exist_ok=True)
    save_file(tensors, part / "inputs.safetensors")
    (part / "script.py").write_text(script, "utf-8")
    if target.exists():
        for name in ("inputs.safetensors", "script.py"):
            os.replace(part / name, target / name)
        part.rmdir()
    else:
        part.rename(target)
    return replace(failure, repro=str(target))


def _write(
    failure: Failure, taken: Snapshot, state: torch.Tensor | None
) -> tuple[dict[str, torch.Tensor], str]:
    names = {key: f"storage{k}" for k, key in enumerate(taken.pieces)}
    size = sum(piece.end - piece.begin for piece in taken.pieces.values())
    if size > MOST:
        raise NoRepro(f"its inputs are {size} bytes; at most {MOST} are written")
    schema = overload(failure.operator)._schema
    args, kwargs = [], []
    for argument, spec in zip(schema.arguments, taken.spec, strict=True):
        text = _value(spec, taken, names)
        if argument.kwarg_only:
            kwargs.append(f"{argument.name!r}: {text}")
        else:
            args.append(f"    {text},  # {argument.name}\n")
    tensors = {names[key]: piece.bytes() for key, piece in taken.pieces.items()}
    generator = ""
    if state is not None:
        generator = (
            "\n# The random numbers as they stood.\n"
            f"state = torch.tensor({state.tolist()}, dtype=torch.uint8)\n"
            "torch.accelerator.synchronize()\n"
            "torch.get_device_module(device).set_rng_state(state, device)\n"
        )
    settings = [f"{k}={v!r}" for k, v in sorted(os.environ.items()) if k.startswith("CAUSEWAY_")]
    return tensors, SCRIPT.format(
        title=_doc(f"{failure.operator}({failure.signature}) on rung {failure.rung}"),
        words=_doc(str(failure)),
        settings=_doc(" ".join(settings) or "none"),
        generator=generator,
        args="".join(args),
        kwargs=", ".join(kwargs),
        pattern=re.escape(failure.operator),
        operator=_path(failure.operator),
    )


def _path(name: str) -> str:
    namespace, _, rest = name.partition("::")
    base, _, variant = rest.partition(".")
    return f"{namespace}.{base}.{variant or 'default'}"


def _doc(text: str) -> str:
    """Text that may stand in a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _value(spec: Any, taken: Snapshot, names: dict[int, str]) -> str:
    if isinstance(spec, Dense):
        piece = taken.pieces[spec.key]
        offset = spec.offset - piece.begin // spec.dtype.itemsize
        bits = ", conj=True" * spec.conj + ", neg=True" * spec.neg
        on_device = piece.owner.device.type != "cpu"
        return (
            f"tensor({names[spec.key]!r}, {spec.dtype}, {spec.size}, {spec.stride}, {offset}, "
            f"{on_device}{bits})"
        )
    if isinstance(spec, Whole):
        raise NoRepro(f"an argument is a {spec.copy.layout} tensor, which is not written")
    if isinstance(spec, list):
        return f"[{', '.join(_value(s, taken, names) for s in spec)}]"
    if isinstance(spec, torch.device):
        return "device" if spec.type != "cpu" else "torch.device('cpu')"
    if isinstance(spec, torch.Generator):
        return "torch.get_device_module(device).default_generators[device.index or 0]"
    if isinstance(spec, float) and (spec != spec or abs(spec) == float("inf")):
        return f"float({str(spec)!r})"
    if (
        isinstance(spec, (bool, int, float, complex, str, torch.dtype, torch.layout))
        or spec is None
    ):
        return repr(spec)
    if isinstance(spec, torch.memory_format):
        return str(spec)
    raise NoRepro(f"an argument is a {type(spec).__name__}, which is not written")
