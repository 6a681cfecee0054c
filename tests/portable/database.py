"""Runs torch's own samples of its operators (`op_db`) by Causeway's kernels, against the CPU.

`python database.py few|all|NAME`: a line for each operator and dtype that differs, or whose call
went to the host, then "cases N". Samples without an element are left out: those the host serves,
as it has the words for what is wrong with them.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

import causeway

warnings.simplefilter("ignore")
DEVICE = torch.accelerator.current_accelerator()
TOLERANCE = {
    torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5, torch.float64: 1e-9,
}  # fmt: skip
HALF = (torch.float16, torch.bfloat16)
FEW = (
    "gather", "scatter_add", "index_put", "masked_select", "sort", "topk", "cumsum", "unique",
    "searchsorted", "tril", "remainder", "erfinv", "nn.functional.pad_reflect",
)  # fmt: skip
MANY = (
    *FEW, "acosh", "angle", "asinh", "atanh", "bincount", "bitwise_left_shift",
    "bitwise_right_shift", "bucketize", "clamp", "copysign", "count_nonzero", "cummax", "cummin",
    "cumprod", "digamma", "div", "erfc", "eye", "flip", "floor_divide", "fmod", "frac", "frexp",
    "gcd", "heaviside", "i0", "index_add", "index_copy", "index_fill", "index_reduce", "isin",
    "isneginf", "isposinf", "kthvalue", "lcm", "lgamma", "linspace", "logaddexp", "logaddexp2",
    "logcumsumexp", "logit", "logspace", "masked_scatter", "median", "mode", "msort", "mvlgamma",
    "nan_to_num", "nanmedian", "nextafter", "nn.functional.elu", "nn.functional.embedding",
    "nn.functional.fold", "nn.functional.hardshrink", "nn.functional.hardsigmoid",
    "nn.functional.hardswish", "nn.functional.logsigmoid", "nn.functional.mish",
    "nn.functional.pad", "nn.functional.prelu", "nn.functional.softplus",
    "nn.functional.softshrink", "nonzero", "pow", "put", "repeat_interleave", "roll", "round",
    "scatter", "scatter_reduce", "signbit", "sinc", "special.entr", "special.erfcx",
    "special.i0e", "special.i1", "special.i1e", "special.log_ndtr", "special.ndtri",
    "special.xlog1py", "special.zeta", "stack", "take", "trace", "triu", "unfold",
    "unique_consecutive", "xlogy",
)  # fmt: skip
# What has no portable kernel yet, or none for tensors without dimensions or elements.
HOST = {
    "aten::nonzero_static", "aten::_unique", "aten::unique_dim", "aten::unique_dim_consecutive",
    "aten::polygamma", "aten::searchsorted.Tensor", "aten::nextafter",
    "aten::round", "aten::unfold_backward", "aten::sum.dim_IntList",
}  # fmt: skip


# torch copies corners of its result before it has written them: the chip's model of a GPU tells
# of that.
UNWRITTEN = ("nn.functional.pad_circular",) if os.environ.get("CAUSEWAY_SIM_TEAMS") == "1" else ()

# Of equal values any may be named: the values are compared, and their places by what is there.
TIES = ("sort", "msort", "kthvalue", "topk", "mode", "median", "nanmedian")


def on_device(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(DEVICE).requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(map(on_device, value))
    if isinstance(value, dict):
        made = {name: on_device(v) for name, v in value.items()}
        return {**made, "device": DEVICE} if "device" in made else made
    return value


def flat(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from flat(v)


def with_gradients(result: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    results = list(flat(result))
    sources = [r for r in results if r.requires_grad]
    leaves = [i for i in inputs if i.requires_grad]
    if not sources or not leaves:
        return results
    weights = [
        (torch.arange(s.numel()).reshape(s.shape) % 5 - 1.5).to(s.dtype).to(s.device)
        for s in sources
    ]
    found = torch.autograd.grad(sources, leaves, weights, allow_unused=True)
    return results + [g for g in found if g is not None]


def run(op: Any, dtype: torch.dtype, count: int) -> tuple[int, str | None]:
    """How many samples were run, and the first thing that was wrong."""
    grad = dtype == torch.float32 and op.supports_autograd
    done = 0
    for sample in op.sample_inputs("cpu", dtype, requires_grad=grad):
        args = (sample.input, *sample.args)
        tensors = list(flat([args, list(sample.kwargs.values())]))
        if any(t.numel() == 0 or t.dtype.is_complex for t in tensors):
            continue
        there, named = on_device(args), on_device(sample.kwargs)
        wanted = with_gradients(op.op(*args, **sample.kwargs), tensors)
        try:
            with causeway.ledger() as ledger:
                result = op.op(*there, **named)
                got = with_gradients(result, list(flat([there, list(named.values())])))
            assert len(got) == len(wanted), "another number of results"
            for g, w in zip(got, wanted, strict=True):
                if op.name in TIES and w.dtype == torch.int64 and g is not got[0]:
                    continue
                # The trigamma function beside its poles loses bits of the distance to them.
                near = TOLERANCE.get(w.dtype, 0) * (5 if op.name == "digamma" else 1)
                torch.testing.assert_close(
                    g.detach().cpu(), w.detach(), rtol=near, atol=near, equal_nan=True
                )
            hosts = {r.operator for r in ledger.rows if r.rung == "host"} - HOST
            assert not hosts, f"on the host: {hosts}"
        except (AssertionError, RuntimeError) as error:
            return done + 1, f"sample {done}: {' '.join(str(error).split())[:300]}"
        done += 1
        if done == count:
            break
    return done, None


def main() -> None:
    few = sys.argv[1] == "few"
    names = FEW if few else MANY if sys.argv[1] == "all" else (sys.argv[1],)
    dtypes = [torch.float32]
    if not few:
        dtypes += [torch.int64, torch.bfloat16, torch.bool]
    wrong = cases = 0
    found = set()
    for op in op_db:
        variant = f"{op.name}_{op.variant_test_name}"
        if (op.name not in names and variant not in names) or variant in UNWRITTEN:
            continue
        found.add(op.name)
        for dtype in dtypes:
            if dtype not in op.dtypes:
                continue
            done, why = run(op, dtype, 1 if few else 4)
            cases += done
            if why:
                wrong += 1
                print(f"{op.full_name} {dtype}: {why}")
    print("cases", cases, flush=True)
    sys.exit(wrong > 0 and "-" not in sys.argv)


if __name__ == "__main__":
    main()
