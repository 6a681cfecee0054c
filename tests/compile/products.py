"""Products with what follows them, compiled for the device and by eager on the CPU.

`python tests/compile/products.py [CASE ...]` prints a line a case: whether the numbers are the
CPU's, whether they are bit by bit those that a kernel of its own gives, and whether what follows
was done in the product's kernel where it should be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from causeway.compile import chip, epilogues, runtime

CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor], bool]] = {}
FORCED = set()  # what a CPU does apart where nothing is measured; another graph than all others


def case(
    name: str,
    function: Callable[..., Any],
    *given: torch.Tensor,
    fused: bool = True,
    forced: bool = False,
) -> None:
    CASES[name] = (function, list(given), fused)
    if forced:
        FORCED.add(name)


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=generator) / 2).to(dtype)


x, w, b, r = rand(37, 96), rand(70, 96), rand(70), rand(37, 70)
case("mm", lambda x, w: torch.relu(x @ w.t()), x, w)
case("addmm, few rows", lambda x, w, b: torch.relu(F.linear(x, w, b)), rand(1, 96), w, b)
case("addmm, dense columns", lambda x, w, b: (b + x @ w).relu(), x, rand(96, 70), b)
case("addmm, residual", lambda x, w, b, r: torch.relu(F.linear(x, w, b)) + r, x, w, b, r)
case("addmm, columns scaled", lambda x, w, b, s: F.linear(x, w, b) * s, x, w, b, rand(70))
case("addmm, rows scaled", lambda x, w, b, s: F.linear(x, w, b) * s, x, w, b, rand(37, 1))
case("three dimensions", lambda x, w, b: F.linear(x, w, b).clamp(min=0.1), rand(3, 11, 96), w, b)
case("bmm", lambda a, b, s: (torch.bmm(a, b) * 0.25).masked_fill(s, -1.0),
     rand(5, 17, 40), rand(5, 40, 23), rand(5, 17, 23) > 0)  # fmt: skip
case("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b).abs(),
     rand(5, 17, 23), rand(5, 17, 40), rand(5, 40, 23))  # fmt: skip
case("a large product", lambda x, w, b: torch.relu(F.linear(x, w, b)),
     rand(300, 500), rand(700, 500), rand(700))  # fmt: skip
for dtype in (torch.float64, torch.float16, torch.bfloat16):
    given = [t.to(dtype) for t in (x, w, b, r)]
    case(f"addmm in {dtype}", lambda x, w, b, r: F.linear(x, w, b).relu() - r, *given, forced=True)

image, scale = rand(2, 12, 15, 13), rand(20, 1, 1)


def quantized(x: torch.Tensor, zero: int, dtype: torch.dtype) -> torch.Tensor:
    """As torch.ao's decomposed operators do it; the step is small: some of each end are clamped."""
    ends = torch.iinfo(dtype)
    return ((x * 43.0).round() + zero).clamp(ends.min, ends.max).to(dtype)


def conv(**how: Any) -> Callable[..., Any]:
    return lambda x, w, b: torch.relu(F.conv2d(x, w, b, **how))


case("convolution", conv(), image, rand(20, 12, 3, 2), rand(20))
case("convolution, strides and padding", conv(stride=2, padding=1),
     image, rand(20, 12, 3, 3), rand(20))  # fmt: skip
case("convolution, groups", conv(groups=3, padding=1), image, rand(21, 4, 3, 3), rand(21))
case("convolution, depthwise", conv(groups=12), image, rand(12, 1, 3, 3), rand(12), fused=False)
case("convolution of 1 x 1", conv(), image, rand(20, 12, 1, 1), rand(20))
case("convolution of one dimension", lambda x, w, b: F.conv1d(x, w, b).relu(),
     rand(2, 12, 30), rand(20, 12, 3), rand(20))  # fmt: skip
case("convolution of three dimensions", lambda x, w, b: F.conv3d(x, w, b).relu(),
     rand(2, 3, 5, 6, 7), rand(20, 3, 2, 2, 2), rand(20))  # fmt: skip
case("convolution, channels scaled", lambda x, w, s, t: F.conv2d(x, w) * s + t,
     image, rand(20, 12, 3, 3), scale, scale + 1)  # fmt: skip
case("convolution, residual", lambda x, w, r: torch.relu(F.conv2d(x, w, padding=1) + r),
     image, rand(12, 12, 3, 3), image)  # fmt: skip
case("convolution, images scaled", lambda x, w, s: F.conv2d(x, w) * s,
     image, rand(20, 12, 3, 3), rand(2, 1, 1, 1))  # fmt: skip
case("convolution, columns scaled", lambda x, w, s: F.conv2d(x, w) * s,
     image, rand(20, 12, 3, 3), rand(11))  # fmt: skip
big = rand(2, 48, 26, 30)
case("Winograd", lambda x, w, b, r: torch.relu(F.conv2d(x, w, b, padding=1) * r),
     big, rand(64, 48, 3, 3), rand(64), rand(64, 1, 1))  # fmt: skip
case("Winograd, images scaled", lambda x, w, s: F.conv2d(x, w, padding=1) * s,
     big, rand(64, 48, 3, 3), rand(2, 1, 1, 1))  # fmt: skip

case("both are results", lambda x, w: [(y := x @ w.t()), torch.relu(y)], x, w, fused=False)
case("turned", lambda x, w: (x @ w.t()).t().contiguous() * 2, x, w, fused=False)
case("read twice", lambda x, w: (y := x @ w.t()) + y.flip(0), x, w, fused=False)
case("softmax", lambda x, w: torch.softmax(x @ w.t(), -1), x, w, fused=False)
case("transposed convolution", lambda x, w: F.conv_transpose2d(x, w, stride=2).relu(),
     image, rand(12, 8, 3, 3), fused=False)  # fmt: skip
case("channels last", lambda x, w: F.conv2d(x, w).relu(),
     image.to(memory_format=torch.channels_last), rand(20, 12, 3, 3), fused=False)  # fmt: skip
case("GELU", lambda x, w: F.gelu(x @ w.t()), x, w, fused=not chip.code(0).in_turn)

# What follows has another dtype: graphs of autocast, masks, steps to integers.
half = [t.bfloat16() for t in (x, w, b)]
case("a cast", lambda x, w: (x @ w.t()).half(), x, w, forced=True)
case("a cast of few rows by default", lambda x, w: (x @ w.t()).relu().half(), x, w,
     fused=not chip.code(0).in_turn)  # fmt: skip
case("a cast of many rows by default", lambda x, w: (x @ w.t()).relu().half(), rand(90, 96), w)
case("float16 by default", lambda x, w: (x @ w.t()).relu(), x.half(), w.half(),
     fused=not chip.code(0).in_turn)  # fmt: skip
case("a cast to bfloat16", lambda x, w, b: F.linear(x, w, b).relu().bfloat16(), x, w, b)
case("a cast to float64", lambda x, w, b: F.linear(x, w, b).double() * 0.1, x, w, b)
case("a cast to float32", lambda x, w, b: F.linear(x, w, b).float(), *half)
case("a cast from float16", lambda x, w, r: torch.mm(x, w.t()).float() * 0.3 + r,
     x.half(), w.half(), r, forced=True)  # fmt: skip
case("between halves", lambda x, w: (x @ w.t()).bfloat16(), x.half(), w.half(), forced=True)
case(
    "a residual of another dtype",
    lambda x, w, r: (x @ w.t()).half() + r,
    x,
    w,
    r.half(),
    forced=True,
)
case("a residual in float32", lambda x, w, b, r: F.linear(x, w, b) + r, *half, r)
case("a mask", lambda x, w, b: F.linear(x, w, b) > 0, x, w, b)
case("a result and its mask", lambda x, w, b: [(y := F.linear(x, w, b).relu()), y <= 0], x, w, b)
case(
    "to int8",
    lambda x, w, b: quantized(F.linear(x, w, b).relu(), -128, torch.int8),
    x,
    w,
    b,
    forced=True,
)
case(
    "to uint8", lambda x, w, b: quantized(F.linear(x, w, b), 128, torch.uint8), x, w, b, forced=True
)
case("to int8 from bfloat16", lambda x, w, b: quantized(F.linear(x, w, b).float(), 3, torch.int8),
     *half, forced=True)  # fmt: skip
case("to int32", lambda x, w: (x @ w.t() * 1e6).int(), x, w, forced=True)
case("bmm, a cast", lambda a, b: (torch.bmm(a, b) * 0.25).bfloat16(),
     rand(5, 17, 40), rand(5, 40, 23))  # fmt: skip
case(
    "one row, a cast",
    lambda x, w, b: F.linear(x, w, b).relu().half(),
    rand(1, 96),
    w,
    b,
    forced=True,
)
case("a large product, a cast", lambda x, w, b: F.linear(x, w, b).relu().bfloat16(),
     rand(300, 500), rand(700, 500), rand(700))  # fmt: skip
case("convolution, a cast", lambda x, w, b: F.conv2d(x, w, b, padding=1).relu().bfloat16(),
     image, rand(20, 12, 3, 3), rand(20))  # fmt: skip
case("convolution to uint8", lambda x, w, b: quantized(F.conv2d(x, w, b).relu(), 0, torch.uint8),
     image, rand(20, 12, 3, 3), rand(20))  # fmt: skip
case("convolution from float16", lambda x, w, s: F.conv2d(x, w).float() * s,
     image.half(), rand(20, 12, 3, 3).half(), scale, forced=True)  # fmt: skip
case("Winograd, a cast", lambda x, w, b: F.conv2d(x, w, b, padding=1).relu().bfloat16(),
     big, rand(64, 48, 3, 3), rand(64))  # fmt: skip
case("Winograd to int8", lambda x, w, r: quantized(F.conv2d(x, w, padding=1) * r, 5, torch.int8),
     big, rand(64, 48, 3, 3), rand(64, 1, 1))  # fmt: skip

# Their sizes are not known to be those of one order of elements; or, on a CPU, to have many rows.
STATIC = {"convolution, strides and padding"}
if chip.code(0).in_turn:
    STATIC.add("a cast of many rows by default")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


def differs(one: torch.Tensor, other: torch.Tensor, narrowest: torch.dtype) -> str:
    """How a result is not the CPU's; empty where it is."""
    if (one.dtype, one.stride()) != (other.dtype, other.stride()):
        return f"WRONG, {one.dtype} of strides {one.stride()}, not {other.dtype}, {other.stride()}"
    off = (one.double() - other.double()).abs()
    if other.dtype in (torch.bool, torch.int8, torch.uint8):  # few sums are near enough to a step
        return "WRONG" if off.max() > 1 or (off > 0).double().mean() > 0.05 else ""
    worst = (off / (1 + other.double().abs())).max().item()
    return "" if worst <= TOLERANCE[narrowest] else f"WRONG by {worst:.3g}"


def run(name: str, dynamic: bool) -> str:
    """What is not as it should be, or "right"."""
    function, given, fused = CASES[name]
    device = torch.device(torch.accelerator.current_accelerator().type)
    made: list[Any] = []
    before = runtime.Product.__init__

    def keep(self: Any, *args: Any) -> None:
        before(self, *args)
        made.append(self)

    runtime.Product.__init__ = keep
    default = epilogues._pays_in_turn
    if name in FORCED:
        epilogues._pays_in_turn = lambda nodes: True
    torch._dynamo.reset()
    compiled = torch.compile(function, dynamic=dynamic)
    apart = torch.compile(function, dynamic=dynamic, options={"epilogue_fusion": False})
    wrong = ""
    there = [g.to(device) for g in given]
    want = function(*given)
    # The floating dtype of fewest digits on the way: of what is given, and of what is returned.
    of = [t.dtype for t in (*given, *(want if isinstance(want, list) else [want]))]
    narrowest = max((d for d in of if d in TOLERANCE), key=lambda d: TOLERANCE[d])
    for _ in range(2):
        results = (v if isinstance(v, list) else [v] for v in (compiled(*there), want))
        for one, other in zip(*results, strict=True):
            wrong = wrong or differs(one.cpu(), other, narrowest)
    runtime.Product.__init__, epilogues._pays_in_turn = before, default
    taken = sum(p.epilogue.taken for p in made)
    alone = sum(p.kernel is not None for p in made)
    if fused and not wrong:
        results = (v if isinstance(v, list) else [v] for v in (compiled(*there), apart(*there)))
        if not all(
            torch.equal(one.cpu(), other.cpu()) for one, other in zip(*results, strict=True)
        ):
            wrong = "WRONG, not what a kernel of its own gives"
    if wrong or alone or taken != (2 if fused and not (dynamic and name in STATIC) else 0):
        return f"{wrong or 'equal'}, {taken} of 2 calls in the product's kernel, {alone} apart"
    return "right"


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print(f"{name}: {run(name, False)}, {run(name, True)}", flush=True)
