"""Runs torch's samples of products and convolutions by the vendor's cuBLAS and cuDNN kernels,
against the CPU, gradients too.

`python samples.py NAME ...`: on the device on paper, with stand-ins for both libraries. Prints a
line for each sample that differs, and last how many calls of the operators went to the libraries
and how many they declined, as JSON. Portable kernels are off: on paper they do nothing.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from native import moved
from torch.testing._internal.common_methods_invocations import op_db

import causeway

warnings.simplefilter("ignore")
TOLERANCE = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 2e-5,
    torch.complex64: 2e-5,
}
# What the libraries serve; what is made of them (linear, matmul) is not asked for by name.
OURS = (
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addmv", "aten::_int_mm",
    "aten::convolution", "aten::convolution_backward",
)  # fmt: skip
HALVES = (torch.float16, torch.bfloat16)


def on_device(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return moved(value).requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(map(on_device, value))
    return value


def flat(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from flat(v)


def with_gradients(result: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [leaf for leaf in leaves if leaf.requires_grad]
    if not leaves or not result.requires_grad:
        return [result]
    weights = (torch.arange(result.numel()).reshape(result.shape) % 5 - 1.5).to(result.dtype)
    return [result, *torch.autograd.grad(result, leaves, weights.to(result.device))]


def is_known(name: str, args: Any, named: dict[str, Any]) -> bool:
    """What the libraries have no words for: nothing to multiply; one number or another order of
    strides to be added; a transposed convolution's padding beyond its stride; and what cuDNN rounds
    before it adds it, a transposed convolution of three dimensions with a bias in half types.
    """
    if any(t.numel() == 0 for t in flat(args)):
        return True
    if name in ("addmm", "addmv", "baddbmm"):
        return args[0].numel() == 1 or not args[0].is_contiguous()
    if name == "nn.functional.conv_transpose3d" and args[0].dtype in HALVES and args[2] is not None:
        return True
    paddings, strides = named.get("output_padding", ()), named.get("stride", ())
    if isinstance(paddings, int) or isinstance(strides, int):
        return False
    return any(padding >= stride for padding, stride in zip(paddings, strides, strict=False))


def ours(row: Any) -> bool:
    return row.operator.split(".")[0].removesuffix("_") in OURS


def reference(op: Any, sample: Any, dtype: torch.dtype) -> list[torch.Tensor]:
    """The CPU's result in float32, rounded once: its own of half types is further off."""

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().float().requires_grad_(value.requires_grad)
        return type(value)(map(wide, value)) if isinstance(value, list | tuple) else value

    args = wide((sample.input, *sample.args))
    named = {name: wide(v) for name, v in sample.kwargs.items()}
    result = op.op(*args, **named)
    return [t.to(dtype) for t in with_gradients(result, list(flat([args, list(named.values())])))]


def main() -> None:
    rungs: Counter[str] = Counter()
    declined: Counter[str] = Counter()
    cases = 0
    for op in op_db:
        if op.name not in sys.argv[1:]:
            continue
        for dtype in (torch.float32, torch.float64, *HALVES, torch.complex64):
            # A complex convolution is made of three of real numbers.
            if dtype not in op.dtypes or (dtype.is_complex and "conv" in op.name):
                continue
            grad = op.supports_autograd
            for n, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
                args = (sample.input, *sample.args)
                here = list(flat([args, list(sample.kwargs.values())]))
                wanted = reference(op, sample, dtype) if dtype in HALVES else None
                if wanted is None:
                    wanted = with_gradients(op.op(*args, **sample.kwargs), here)
                there = on_device(args)
                named = {name: on_device(v) for name, v in sample.kwargs.items()}
                with causeway.ledger() as ledger:
                    result = op.op(*there, **named)
                    got = with_gradients(result, list(flat([there, list(named.values())])))
                cases += 1
                calls = Counter(r.rung in ("native", "derived") for r in ledger.rows if ours(r))
                rungs["served"] += calls[True]
                rungs["declined"] += calls[False]
                if calls[False]:
                    if is_known(op.name, args, sample.kwargs):
                        continue
                    shapes = " ".join(f"{tuple(t.shape)}{t.stride()}" for t in flat(args))
                    declined[f"{op.full_name} {shapes} {sample.kwargs}"] += 1
                    continue  # then it is the CPU's own result
                for g, w in zip(got, wanted, strict=True):
                    near = TOLERANCE.get(dtype, 1e-9)
                    try:
                        torch.testing.assert_close(
                            g.detach().cpu(), w.detach(), rtol=near, atol=near
                        )
                    except AssertionError as error:
                        words = " ".join(str(error).split())[:200]
                        print(f"{op.full_name} {dtype} sample {n}: {words}")
    print(json.dumps({"cases": cases, **rungs, "what": list(declined)}))


if __name__ == "__main__":
    main()
