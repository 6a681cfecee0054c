"""torch's database of operators, compiled against eager on the device: one entry after the other.

python tests/compile/sweep.py [--dtype float32] [--backward] [--part 0/4] [names ...]

An entry is "ok", "wrong" (with what differs), "error", or "skipped": eager refuses it too, or its
numbers are random. Exits with 1 where one is wrong or an error and EXCEPTED does not name it.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

SAMPLES = 4  # inputs of each entry

# Random numbers, memory that nobody wrote, or a result whose values mean nothing alone.
UNCOMPARED = set(
    """
    bernoulli empty empty_like empty_permuted empty_strided multinomial new_empty
    new_empty_strided normal nn.functional.alpha_dropout nn.functional.dropout
    nn.functional.dropout2d nn.functional.dropout3d nn.functional.feature_alpha_dropout
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
    nn.functional.rrelu nn.functional.multi_head_attention_forward
    nn.functional.scaled_dot_product_attention rand_like randint randint_like randn randn_like
    uniform cauchy exponential geometric log_normal svd_lowrank pca_lowrank
    torch.ops.aten._efficient_attention_forward torch.ops.aten._flash_attention_forward
    """.split()  # noqa: SIM905 - a table to read
)

UNWRITTEN = "in evaluation eager leaves the saved statistics unwritten"
STATISTICS = "torch keeps its statistics in float32 on devices; the CPU's kernel, eager, in halves"
DYNAMIC = "with dynamic shapes torch cannot trace it, on the CPU neither"
NO_ELEMENTS = "of no elements the mean is 0 and not NaN, by stock torch.compile on the CPU too"
# Entries that differ, each with its reason.
EXCEPTED: dict[str, str] = {
    "_batch_norm_with_update": STATISTICS,
    "_native_batch_norm_legit": UNWRITTEN,
    "cov": DYNAMIC,
    "max_pool2d_with_indices_backward": DYNAMIC,
    "native_batch_norm": UNWRITTEN,
    "std_mean.unbiased.unbiased": NO_ELEMENTS,
    "var_mean.unbiased.unbiased": NO_ELEMENTS,
}


def tolerances(dtype: torch.dtype) -> dict[str, float]:
    """What another order of a sum, and values not rounded between operators, may differ by."""
    if dtype in (torch.float16, torch.bfloat16):
        return {"rtol": 4e-2, "atol": 4e-2}
    if dtype.is_floating_point or dtype.is_complex:
        return {"rtol": 2e-4, "atol": 2e-4}
    return {"rtol": 0, "atol": 0}


def to_device(tree: Any, device: str) -> Any:
    return pytree.tree_map_only(
        torch.Tensor, lambda t: t.detach().to(device).requires_grad_(t.requires_grad), tree
    )


def results(function: Any, args: Any, kwargs: Any, backward: bool) -> list[Any]:
    """The tensors that a call returns, and its gradients."""
    tensors = [
        t
        for t in pytree.tree_leaves((args, kwargs))
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    out = [t for t in pytree.tree_leaves(function(*args, **kwargs)) if isinstance(t, torch.Tensor)]
    found = [t.detach() for t in out]
    if backward:
        wanted = [t for t in out if t.requires_grad]
        if wanted and tensors:
            total = sum((t.real if t.is_complex() else t).float().sum() for t in wanted)
            grads = torch.autograd.grad(total, tensors, allow_unused=True)
            found += [g for g in grads if g is not None]
    return found


def check(
    op: Any, device: str, dtype: torch.dtype, backward: bool, dynamic: bool | None
) -> tuple[str, str]:
    """What came of an entry: its state, and a line about it."""
    if op.full_name in UNCOMPARED or op.name in UNCOMPARED or not op.supports_dtype(dtype, "cpu"):
        return "skipped", ""
    if backward and dtype not in op.supported_backward_dtypes("cpu"):
        return "skipped", ""
    torch._dynamo.reset()
    torch.manual_seed(0)

    def call(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    compiled = torch.compile(call, dynamic=dynamic)
    done = 0
    for sample in op.sample_inputs("cpu", dtype, requires_grad=backward):
        if done == SAMPLES:
            break
        args, kwargs = to_device(((sample.input, *sample.args), sample.kwargs), device)
        try:
            copied, named = pytree.tree_map(_copy, (args, kwargs))
            expected = results(call, copied, named, backward)
        except Exception:  # noqa: S112 - refused by eager, too
            continue
        done += 1
        copied, named = pytree.tree_map(_copy, (args, kwargs))
        got = results(compiled, copied, named, backward)
        if len(got) != len(expected):
            return "wrong", f"{len(got)} results, not {len(expected)}"
        for position, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
            try:
                torch.testing.assert_close(
                    mine,
                    theirs,
                    **tolerances(theirs.dtype),
                    equal_nan=True,
                    check_stride=not backward and theirs.numel() > 0,
                )
            except AssertionError as error:
                if not backward and nearer(mine, theirs, exact(call, sample), position):
                    continue
                return "wrong", f"{str(error).splitlines()[0]} {str(error).splitlines()[-1]}"
    return ("ok", "") if done else ("skipped", "")


def exact(function: Any, sample: Any) -> list[Any]:
    """The results of a sample in float64 on the CPU."""
    given = pytree.tree_map(_copy, ((sample.input, *sample.args), sample.kwargs))
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, given
    )
    try:
        return results(function, args, kwargs, False)
    except Exception:  # not every operator takes float64
        return []


def nearer(mine: Any, theirs: Any, true: list[Any], position: int) -> bool:
    """Whether compiled halves, which are not rounded between operators, are at least as near to
    the result in float64 as eager's."""
    if theirs.dtype not in (torch.float16, torch.bfloat16) or mine.dtype != theirs.dtype:
        return False
    if position >= len(true) or true[position].shape != mine.shape:
        return False
    off = [(x.cpu().double() - true[position]).abs().max() for x in (mine, theirs)]
    return bool(off[0].isfinite() and not off[0] > off[1])


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return (
        value.detach()
        .clone(memory_format=torch.preserve_format)
        .requires_grad_(value.requires_grad)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    part, parts = map(int, options.part.split("/"))
    states: dict[str, tuple[str, str]] = {}
    for op in [op for i, op in enumerate(op_db) if i % parts == part]:
        if options.names and op.full_name not in options.names:
            continue
        name = op.full_name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        try:
            dtype, dynamic = getattr(torch, options.dtype), bool(options.dynamic)
            states[name] = check(op, accelerator.type, dtype, options.backward, dynamic)
        except Exception as error:
            line = next((x for x in str(error).splitlines() if x.strip()), "")
            states[name] = ("error", f"{type(error).__name__}: {line[:300]}")
            if options.names:
                traceback.print_exc()
        state, why = states[name]
        if state in ("wrong", "error"):
            print(f"{name}: {state}: {why}", flush=True)
    print(dict(Counter(state for state, _ in states.values())))
    if options.json:
        options.json.write_text(json.dumps(states, indent=1))
    bad = [
        name
        for name, (state, _) in states.items()
        if state in ("wrong", "error") and name not in EXCEPTED
    ]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
