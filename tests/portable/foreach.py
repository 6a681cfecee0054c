"""Runs torch's samples of its operators over lists on the device of this process, against the CPU.

`python foreach.py few|few:NAME|all|NAME`: a line for each operator and dtype whose results, dtypes
or errors differ, or that no kernel took whole where one should; then "cases N". In-place forms run
on copies. A second argument: `-` to leave with 0 whatever is told, `paper` for a device that only
compiles, whose values nobody looks at.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as invocations

import causeway

warnings.simplefilter("ignore")
DEVICE = torch.accelerator.current_accelerator()
TOLERANCE = {
    torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5, torch.float64: 1e-9,
}  # fmt: skip
DATABASES = [
    getattr(invocations, f"foreach_{kind}_op_db")
    for kind in ("unary", "binary", "pointwise", "reduce", "other")
]
FEW = ("add", "addcdiv", "pow", "norm", "max", "lerp", "copy", "clone", "zero")
DTYPES = (
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8,
    torch.bool,
)  # fmt: skip
# Taken here, as on CUDA, and refused on the CPU.
ELSEWHERE = {("pow", torch.bool), ("abs", torch.bool)}
# Tensor by tensor, as in torch.
EACH = ("mm",)
ON_PAPER = "paper" in sys.argv
Outcome = tuple[list[torch.Tensor] | None, str]


def moved(value: Any, device: torch.device | None) -> Any:
    """Copies with the same strides, on `device` where one is given."""
    if isinstance(value, torch.Tensor):
        copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        copy.copy_(value.detach())
        if device is None:
            return copy
        there = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        return there.copy_(copy)
    if isinstance(value, list | tuple):
        return type(value)(moved(v, device) for v in value)
    return value


def outcome(call: Callable[..., Any], inputs: Any, args: Any, kwargs: Any, place: bool) -> Outcome:
    try:
        result = call(inputs, *args, **kwargs)
    except (RuntimeError, TypeError) as error:
        return None, str(error).split("\n")[0]
    return [t.cpu() for t in (inputs if place else result)], ""


def is_numbers_of_cpu(name: str, args: Any) -> bool:
    """addcmul's list of numbers may be a tensor, of the CPU everywhere."""
    return name.startswith(("_foreach_addc",)) and bool(args) and isinstance(args[-1], torch.Tensor)


def check(call: Callable[..., Any], sample: Any, name: str, place: bool) -> tuple[str | None, bool]:
    """What is wrong, and whether a kernel took the lists whole."""
    args = sample.args
    kwargs = {k: v for k, v in sample.kwargs.items() if k != "disable_fastpath"}
    here = outcome(call, moved(sample.input, None), moved(args, None), kwargs, place)
    there_args = moved(args, DEVICE)
    if is_numbers_of_cpu(name, args):
        there_args = (*there_args[:-1], args[-1])
    inputs = moved(sample.input, DEVICE)
    with causeway.ledger() as ledger:
        there = outcome(call, inputs, there_args, kwargs, place)
    whole = any(r.operator.startswith("aten::_foreach") for r in ledger.rows)
    if here[0] is None or there[0] is None:
        fine = here[1] == there[1] or (ON_PAPER and here[0] is None)  # the host rung runs nothing
        return (None if fine else f"{there[1]!r}, not {here[1]!r}"), whole
    try:
        assert len(here[0]) == len(there[0]), "another number of results"
        for h, t in zip(here[0], there[0], strict=True):
            near = TOLERANCE.get(h.dtype, 0)
            torch.testing.assert_close(
                h.to(t.dtype) if ON_PAPER else t, h, rtol=near, atol=near, equal_nan=True
            )
            assert place or t.stride() == h.stride(), f"strides {t.stride()}, not {h.stride()}"
    except AssertionError as error:
        return " ".join(str(error).split())[:300], whole
    return None, whole


def samples(op: Any, dtype: torch.dtype, few: bool) -> Iterator[Any]:
    random.seed(0)
    torch.manual_seed(0)
    options = {"allow_higher_dtype_scalars": True}
    for strided in (False,) if few else (False, True):
        made = op.sample_inputs(
            "cpu", dtype, num_input_tensors=[4], noncontiguous=strided, **options
        )
        for sample in made:
            numbers = [v for a in sample.args for v in (a if isinstance(a, list) else [a])]
            if not any(isinstance(v, complex) for v in numbers):
                yield sample
    for sample in op.sample_zero_size_inputs("cpu", dtype):
        yield sample


def main() -> None:
    few = sys.argv[1].startswith("few")
    only = sys.argv[1].removeprefix("few").removeprefix(":")
    cases = 0
    wrong = False
    for op in (op for database in DATABASES for op in database):
        name = op.name.removeprefix("_foreach_")
        if only not in ("all", name) and (only or name not in FEW):
            continue
        for dtype in DTYPES[: 2 if few else None]:
            if (name, dtype) in ELSEWHERE:
                continue
            whole = 0
            for call in {op.method_variant, op.inplace_variant} - {None}:
                place = call.__name__.endswith("_")
                for k, sample in enumerate(samples(op, dtype, few)):
                    why, is_whole = check(call, sample, op.name, place)
                    cases += 1
                    whole += is_whole
                    if why:
                        wrong = True
                        print(f"{call.__name__} {dtype}, sample {k}: {why}")
                        break
            if dtype == torch.float32 and not whole and name not in EACH:
                wrong = True
                print(f"{op.name}: no kernel took a list")
    print("cases", cases, flush=True)
    sys.exit(wrong and not {"-", "paper"} & set(sys.argv))


if __name__ == "__main__":
    main()
