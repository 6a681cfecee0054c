"""Random programs of tensors, run on the CPU and on the device: after every step each tensor must
be the same, its strides, offset and version too, and share memory with the same others; or both
refuse. In the end the gradients of what the program began with are compared, where it is asked.

A program is a list of steps, (operation, numbers). An operation takes its tensors, sizes and
indices by the numbers from what there is, so every list is a program. Values are small integers in
every dtype: all results are exact.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

NUMBERS = 8  # of a step
DTYPES = [
    *[torch.float32] * 4, torch.int64, torch.int64, torch.float64, torch.int32, torch.uint8,
    torch.bool, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.complex64,
]  # fmt: skip
MOST_TENSORS, MOST_ELEMENTS, MOST_DIMS = 9, 400, 6
Step = tuple[int, Sequence[int]]


class Pool:
    """The tensors of one device, and the numbers of the step that is being done."""

    def __init__(self, device: str, gradients: bool, lacks: frozenset[torch.dtype]) -> None:
        self.device = device
        self.wide = torch.float32 if torch.float64 in lacks else torch.float64
        self.dtypes = [torch.float32 if dtype in lacks else dtype for dtype in DTYPES]
        made = torch.Generator().manual_seed(0)
        shapes = [(3, 4), (2, 3, 4), (4,), (2, 3, 2, 2), ()]
        dtypes = [torch.float32, torch.int64, *[torch.float32] * 3]
        self.tensors = [
            torch.randint(0, 5, shape, generator=made).to(dtype).to(device)
            for shape, dtype in zip(shapes, dtypes, strict=True)
        ]
        self.leaves = [
            t.requires_grad_() for t in self.tensors if gradients and t.is_floating_point()
        ]
        if gradients:
            self.tensors = [t * 1 for t in self.tensors]  # these may be written
        self.numbers = iter(())

    def below(self, n: int) -> int:
        return next(self.numbers) % max(n, 1)

    def one(self) -> Tensor:
        return self.tensors[self.below(len(self.tensors))]

    def two(self) -> tuple[Tensor, Tensor]:
        """The second as it is unless torch cannot tell how they overlap: then the order decides."""
        a, b = self.one(), self.one()
        shared = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        told = all(t.numel() and torch.ops.aten.is_non_overlapping_and_dense(t) for t in (a, b))
        return a, b.clone() if shared and a is not b and not told else b

    def with_dim(self) -> tuple[Tensor, int]:
        t = self.one()
        return t, self.below(t.dim())

    def index(self, t: Tensor, dim: int, n: int) -> Tensor:
        start = self.below(1 << 20)
        at = [(start + 7919 * i * i) % max(t.shape[dim], 1) for i in range(n)]
        return torch.tensor(at, dtype=torch.int64).to(self.device)


def small(t: Tensor) -> Tensor:
    """In another memory, integers below 5: sums stay exact."""
    if t.dtype == torch.bool or t.is_complex():
        return t.clone()
    return (t.round().nan_to_num(1) if t.is_floating_point() else t).remainder(5)


def mask(t: Tensor) -> Tensor:
    return t.ne(0)


Operation = Callable[[Pool], Tensor | None]
OPERATIONS: list[tuple[str, Operation]] = []


def operation(f: Operation) -> Operation:
    OPERATIONS.append((f.__name__, f))
    return f


# ---- views ---------------------------------------------------------------------------------------


@operation
def transpose(p: Pool) -> Tensor:
    t = p.one()
    return t.transpose(p.below(t.dim()), p.below(t.dim()))


@operation
def narrow(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    start = p.below(t.shape[dim])
    return t.narrow(dim, start, p.below(t.shape[dim] - start + 1))


@operation
def slice_by_step(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    cut = [slice(None)] * t.dim()
    cut[dim] = slice(p.below(2), None, 1 + p.below(3))
    return t[tuple(cut)]


@operation
def select(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    return t.select(dim, p.below(t.shape[dim]))


@operation
def unsqueeze(p: Pool) -> Tensor:
    t = p.one()
    return t.unsqueeze(p.below(t.dim() + 1)) if t.dim() < 5 else t.squeeze()


@operation
def expand(p: Pool) -> Tensor:
    t = p.one()
    return t.unsqueeze(0).expand(1 + p.below(3), *t.shape)


@operation
def reshape(p: Pool) -> Tensor:
    return p.one().reshape(-1)[:60]


@operation
def diagonal(p: Pool) -> Tensor:
    return p.one().diagonal(p.below(3) - 1)


@operation
def unfold(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    return t.unfold(dim, min(2, t.shape[dim]), 1)


@operation
def view_as_another_dtype(p: Pool) -> Tensor:
    t = p.one()
    return t.view(torch.int32) if t.dtype == torch.float32 else t.view(t.shape)


@operation
def part(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    return t.tensor_split(3, dim)[p.below(3)]


@operation
def conj_or_part(p: Pool) -> Tensor:
    t = p.one()
    return [t.conj, lambda: t.real, lambda: t.imag][p.below(3)]()


@operation
def movedim(p: Pool) -> Tensor:
    return p.one().movedim(0, -1)


# ---- results of their own ------------------------------------------------------------------------


@operation
def binary(p: Pool) -> Tensor:
    a, b = p.one(), p.one()
    f = ["add", "sub", "mul", "maximum", "minimum", "eq", "lt", "logical_and", "bitwise_xor"]
    return getattr(torch, f[p.below(len(f))])(a, b)


@operation
def unary(p: Pool) -> Tensor:
    t = p.one()
    f = ["neg", "relu", "square", "sign", "logical_not", "bitwise_not", "clone", "isnan", "floor"]
    return getattr(torch, f[p.below(len(f))])(t)


@operation
def with_number(p: Pool) -> Tensor:
    t, k = p.one(), p.below(5) - 2
    f = [
        lambda: t + k, lambda: t * k, lambda: k - t, lambda: t.clamp(-1, 2), lambda: t.remainder(3),
        lambda: t > k, lambda: t.clamp_min(k), lambda: t.where(t > k, t + 1),
    ]  # fmt: skip
    return f[p.below(len(f))]()


@operation
def to_dtype(p: Pool) -> Tensor:
    return small(p.one()).to(p.dtypes[p.below(len(DTYPES))])


@operation
def laid_out(p: Pool) -> Tensor:
    t = p.one()
    last = torch.channels_last if t.dim() == 4 else torch.preserve_format
    return t.contiguous() if p.below(2) else t.clone(memory_format=last)


@operation
def where(p: Pool) -> Tensor:
    return torch.where(mask(p.one()), p.one(), p.one())


@operation
def cat(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    return torch.cat([t, t.flip(0)], dim) if p.below(2) else torch.stack([t, t + 1], -1)


@operation
def reduce(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    keep = bool(p.below(2))
    f = ["sum", "amax", "any", "all", "argmax", "argmin"]
    name = f[p.below(len(f))]
    return getattr(small(t) if name == "sum" else t, name)(dim, keepdim=keep)


@operation
def ordered(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    which = p.below(2)
    return [
        lambda: t.max(dim)[which],
        lambda: t.cummax(dim)[which],
        lambda: t.sort(dim=dim, stable=True, descending=bool(which))[which],
        lambda: t.detach().topk(1 + which, dim)[0],  # which of equal ones, torch does not say
        lambda: torch.unique(t, return_counts=True)[which],
    ][p.below(5)]()


@operation
def cumsum(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    return small(t).cumsum(dim)


@operation
def pick(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    return [
        lambda: t.index_select(dim, p.index(t, dim, 3)),
        lambda: t[p.index(t, 0, 4).reshape(2, 2)],
        lambda: t[:, p.index(t, 1, 2)],
        lambda: t[p.index(t, 0, 3), p.index(t, 1, 3)],
        lambda: t[mask(t)],
        lambda: t[mask(p.one())],
        t.nonzero,
        lambda: t.gather(dim, t.argsort(dim=dim, stable=True)),
    ][p.below(8)]()


@operation
def product(p: Pool) -> Tensor:
    t = small(p.one())
    rows = t.reshape(t.shape[0], -1) if t.dim() > 1 else t.reshape(1, -1)
    return rows @ rows.t()


@operation
def moved(p: Pool) -> Tensor:
    t, dim = p.with_dim()
    return [
        lambda: torch.nn.functional.pad(t, (p.below(3) - 1, p.below(3)), value=2),
        lambda: t.roll(p.below(5) - 2, dim),
        lambda: t.flip(dim),
        lambda: t.repeat_interleave(2, dim),
        t.tril,
    ][p.below(5)]()


@operation
def made(p: Pool) -> Tensor:
    n = p.below(30)
    dtype = p.dtypes[p.below(len(DTYPES))]
    return torch.arange(n + 1, dtype=torch.int64).remainder(5).to(dtype).to(p.device)


@operation
def round_trip(p: Pool) -> Tensor:
    return p.one().detach().to("cpu", copy=True).to(p.device)  # two nodes there, one here


@operation
def from_item(p: Pool) -> Tensor:
    t = p.one()
    return torch.full((2,), t.reshape(-1)[0].item(), device=p.device, dtype=t.dtype)


# ---- in place ------------------------------------------------------------------------------------


@operation
def in_place(p: Pool) -> None:
    a, b = p.two()
    f = ["add_", "sub_", "mul_", "copy_", "eq_", "logical_xor_", "copy_"]
    getattr(a, f[p.below(len(f))])(b)


@operation
def in_place_with_number(p: Pool) -> None:
    t, k = p.one(), p.below(4)
    f = [
        lambda: t.add_(k), lambda: t.mul_(k - 1), lambda: t.fill_(k), t.zero_, t.neg_,
        lambda: t.clamp_(-1, 3), lambda: t.remainder_(5), lambda: t.masked_fill_(mask(t), 1),
    ]  # fmt: skip
    f[p.below(len(f))]()


@operation
def put(p: Pool) -> None:
    t, dim = p.with_dim()
    [
        lambda: t.index_put_((p.index(t, 0, 3),), t.new_ones(())),
        lambda: t.index_put_((p.index(t, 0, 4),), t.new_ones(()), accumulate=True),
        lambda: t.index_add_(dim, p.index(t, dim, 3), t.index_select(dim, p.index(t, dim, 3))),
        lambda: t.scatter_(dim, t.argsort(dim=dim, stable=True), t.clone()),
        lambda: t.scatter_add_(dim, torch.zeros_like(t, dtype=torch.int64), torch.ones_like(t)),
        lambda: t.__setitem__(slice(1, None), t[:-1].clone()),
        lambda: t.__setitem__(mask(t), 3),
    ][p.below(7)]()


@operation
def lists(p: Pool) -> None:
    a, b = p.two()
    torch._foreach_add_([a, b], 1) if p.below(2) else torch._foreach_mul_([a], [b])


@operation
def into_given(p: Pool) -> Tensor | None:
    a, out = p.two()
    if p.below(3) == 0:
        return torch.mul(a, 2, out=torch.empty(0, device=p.device))
    torch.add(a, 1, out=out)
    return None


# ---- running -------------------------------------------------------------------------------------


def shared(tensors: list[Tensor]) -> list[tuple[int, int]]:
    at = [t.untyped_storage().data_ptr() if t.numel() else -i for i, t in enumerate(tensors)]
    return [(i, j) for i, a in enumerate(at) for j, b in enumerate(at[:i]) if a == b]


def unlike(ours: Tensor, theirs: Tensor) -> str | None:
    for name in (
        "dtype",
        "shape",
        "requires_grad",
        "is_conj",
        "is_neg",
        "storage_offset",
        "_version",
    ):
        a, b = (getattr(t, name) for t in (ours, theirs))
        a, b = (a(), b()) if callable(a) else (a, b)
        if a != b:
            return f"{name} {a}, not {b}"
    if theirs.numel() and ours.stride() != theirs.stride():
        return f"strides {ours.stride()}, not {theirs.stride()}, of {tuple(theirs.shape)}"
    values = [t.detach().cpu().resolve_conj().resolve_neg() for t in (ours, theirs)]
    plain = [torch.view_as_real(v) if v.is_complex() else v for v in values]
    same = torch.equal(*(v.nan_to_num() if v.is_floating_point() else v for v in plain))
    return None if same else f"values {values[0].tolist()}, not {values[1].tolist()}"


def said(result: object) -> str:
    return repr(result) if isinstance(result, Exception) else "a result"


def attempt(f: Operation, pool: Pool, numbers: Sequence[int]) -> Tensor | Exception | None:
    pool.numbers = iter([*numbers] + [0] * 16)
    try:
        return f(pool)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return error


def gradients_of(pool: Pool) -> list[Tensor | None]:
    real = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in pool.tensors]
    total = sum(t.to(pool.wide).tanh().sum() for t in real if t.requires_grad)
    if not isinstance(total, Tensor):
        return []
    return [*torch.autograd.grad(total, pool.leaves, allow_unused=True)]


def unlike_gradients(pools: Sequence[Pool]) -> str | None:
    """The device's function may differ from the CPU's in the last place, and so the gradients."""
    results: list[list[Tensor | None] | Exception] = []
    for pool in pools:
        try:
            results.append(gradients_of(pool))
        except RuntimeError as error:
            results.append(error)
    theirs, ours = results
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        same = type(theirs) is type(ours)
        return None if same else f"gradients: {said(theirs)} on the CPU, {said(ours)} here"
    for a, b in zip(ours, theirs, strict=True):
        if a is None or b is None:
            if a is not b:
                return f"gradients: {b} on the CPU, {a} here"
        elif a.stride() != b.stride():
            return f"gradients: strides {a.stride()}, not {b.stride()}"
        elif not torch.allclose(a.cpu(), b, rtol=1e-5, atol=1e-6, equal_nan=True):
            return f"gradients: values {a.tolist()}, not {b.tolist()}"
    return None


def difference(program: Sequence[Step], device: str, gradients: bool = False) -> str | None:
    """What is not as on the CPU after which step of the program; None where all is."""
    has = torch.get_device_module(device).get_device_properties(0).dtypes
    lacks = frozenset(DTYPES) - {*has}
    pools = [Pool("cpu", gradients, lacks), Pool(device, gradients, lacks)]
    log: list[str] = []
    for which, numbers in program:
        name, f = OPERATIONS[which % len(OPERATIONS)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs, ours = (attempt(f, pool, numbers) for pool in pools)
        log.append(f"{name}{tuple(numbers)}")
        if isinstance(theirs, NotImplementedError) and not isinstance(ours, Exception):
            return None  # the device takes more
        if type(theirs) is not type(ours):
            return f"{'; '.join(log)}: {said(theirs)} on the CPU, {said(ours)} here"
        kept = isinstance(theirs, Tensor) and theirs.numel() <= MOST_ELEMENTS
        if kept and theirs.dim() <= MOST_DIMS:
            for pool, result in zip(pools, (theirs, ours), strict=True):
                pool.tensors.append(result)
                if len(pool.tensors) > MOST_TENSORS:
                    del pool.tensors[numbers[-1] % (MOST_TENSORS - 1)]
        for i, (a, b) in enumerate(zip(pools[1].tensors, pools[0].tensors, strict=True)):
            if problem := unlike(a, b):
                return f"{'; '.join(log)}: tensor {i} has {problem}"
        if shared(pools[0].tensors) != shared(pools[1].tensors):
            return f"{'; '.join(log)}: other tensors share memory"
    problem = unlike_gradients(pools) if gradients else None
    return f"{'; '.join(log)}: {problem}" if problem else None


def program(seed: int, steps: int = 25) -> list[Step]:
    made = random.Random(seed)
    return [
        (made.randrange(len(OPERATIONS)), [made.randrange(1 << 16) for _ in range(NUMBERS)])
        for _ in range(steps)
    ]


def shortest(seed: int, device: str) -> str | None:
    """`difference` of a program, every second with gradients, without the steps that the difference
    can do without.
    """
    steps, gradients = program(seed), bool(seed % 2)
    found = difference(steps, device, gradients)
    left = 0
    while found and left < len(steps):
        without = steps[:left] + steps[left + 1 :]
        if shorter := difference(without, device, gradients):
            steps, found, left = without, shorter, 0
        else:
            left += 1
    return found


if __name__ == "__main__":  # python random_programs.py FROM TO: programs of these seeds
    chip = torch._C._get_privateuse1_backend_name()
    seeds = range(*map(int, sys.argv[1:3]))
    failed = [(seed, text) for seed in seeds if (text := shortest(seed, chip))]
    for seed, text in failed:
        print(f"{seed}: {text}")
    print(f"{len(seeds)} programs, {len(failed)} differ")
    sys.exit(bool(failed))
