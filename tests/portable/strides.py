"""Results have the strides of the CPU's, whatever layouts the inputs have.

`strides.py all` prints an operator's first call whose results have others, and how many calls were
made; `few` asks every twentieth pointwise operator, in float32.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

DEVICE = torch._C._get_privateuse1_backend_name()
Layout = Callable[[Tensor], Tensor]


def permuted(*order: int) -> Layout:
    """Dense, its dimensions in memory in this order; the order is that of the last ones."""

    def layout(t: Tensor) -> Tensor:
        first = t.dim() - len(order)
        if first < 0:
            return t
        to = [*range(first), *(first + d for d in order)]
        return t.permute(to).contiguous().permute([to.index(d) for d in range(t.dim())])

    return layout


def last(t: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats[t.dim()]) if t.dim() in formats else t


def sliced(t: Tensor) -> Tensor:
    return torch.stack([t, t], -1).flatten(-2)[..., ::2] if t.dim() else t


def expanded(t: Tensor) -> Tensor:
    return t[:1].expand_as(t) if t.dim() else t


def ones_with(stride: int) -> Layout:
    """The strides of dimensions of one element, which mean nothing, are these."""

    def layout(t: Tensor) -> Tensor:
        t = t.contiguous()
        return t.as_strided(
            t.shape, [stride if n == 1 else s for n, s in zip(t.shape, t.stride(), strict=True)]
        )

    return layout


LAYOUTS: dict[str, Layout] = {
    "dense": Tensor.contiguous,
    "reversed": lambda t: permuted(*range(t.dim() - 1, -1, -1))(t),
    "rotated": permuted(1, 2, 0),
    "swapped": permuted(1, 0),
    "last": last,
    "sliced": sliced,
    "expanded": expanded,
    "ones of 7": ones_with(7),
    "ones of 1": ones_with(1),
}
SHAPES = {
    "full": (2, 3, 2, 2), "ones": (5, 1, 4), "few": (3, 2, 2), "one": (2,), "none": (),
}  # fmt: skip
SHAPES_OF_CALLS = [
    ("full", "full"), ("ones", "ones"), ("full", "none"), ("none", "full"), ("full", "few"),
    ("few", "full"), ("full", "one"),
]  # fmt: skip
LAYOUTS_OF_CALLS = [
    *((name, name) for name in LAYOUTS),
    *(("dense", name) for name in LAYOUTS),
    *((name, "dense") for name in LAYOUTS),
    ("reversed", "swapped"), ("expanded", "reversed"), ("reversed", "expanded"),
    ("ones of 7", "ones of 1"),
]  # fmt: skip
# The CPU reads beyond the inputs of the one; gradients of the other that are integers differ.
EXCEPT = {
    "aten::gelu_backward",
    "aten::native_dropout_backward.int64",
    "aten::native_dropout_backward.bool",
}


def pointwise() -> Iterator[Any]:
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::") or any(a.alias_info for a in schema.arguments):
            continue
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
        op = getattr(packet, schema.overload_name or "default", None)
        if op is not None and torch.Tag.pointwise in op.tags and schema.name not in EXCEPT:
            yield op


def filled(op: Any, tensors: list[Tensor]) -> tuple[list[Any], dict[str, Any]] | None:
    """Arguments for an operator; None where it wants what we have none of."""
    left = iter(tensors)
    plain = {"number": 2, "int": 2, "float": 2, "bool": True, "str": "none"}
    args: list[Any] = []
    named: dict[str, Any] = {}
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if argument.has_default_value() and kind != "Tensor":
            continue
        if kind != "Tensor" and kind not in plain and not kind.startswith("Optional"):
            return None
        value = next(left, tensors[-1]) if kind == "Tensor" else plain.get(kind)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            args.append(value)
    return args, named


def on_device(t: Tensor) -> Tensor:
    """With the same strides and offset."""
    memory = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage()).to(DEVICE)
    return memory.as_strided(t.shape, t.stride(), t.storage_offset())


def results(f: Callable[..., Any], tensors: list[Tensor]) -> list[Tensor] | None:
    try:
        made = f(tensors)
    except (RuntimeError, NotImplementedError, IndexError):
        return None
    made = made if isinstance(made, (tuple, list)) else [made]
    return [t for t in made if isinstance(t, Tensor)]


def gradient(f: Callable[[Tensor], Tensor], t: Tensor, layout: str = "dense") -> Tensor:
    x = t.detach().requires_grad_()
    out = f(x)
    (grad,) = torch.autograd.grad(out, x, on_like(LAYOUTS[layout](torch.ones(out.shape)), out))
    return grad


def on_like(t: Tensor, other: Tensor) -> Tensor:
    return on_device(t) if other.device.type == DEVICE else t


CALLS: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Any]]] = {
    "softmax": ((2, 3, 1, 2), lambda t: t.softmax(1)),
    "log_softmax": ((2, 3, 4, 5), lambda t: t.log_softmax(-1)),
    "cross_entropy": ((2, 3, 1, 2), lambda t: gradient(lambda x: F.cross_entropy(t, x), t)),
    "nll_loss": (
        (2, 3, 2, 2),
        lambda t: F.nll_loss(t, t.argmax(1).clamp(0, 2).transpose(1, 2), reduction="none"),
    ),
    "sort": ((1, 2), lambda t: t.sort(0)),
    "sort of four": ((2, 3, 2, 2), lambda t: t.sort(dim=1, stable=True)),
    "tril": ((2, 3, 1, 1, 2), torch.tril),
    "flip": ((3, 3, 1, 2), lambda t: t.flip(0)),
    "layer_norm": ((1, 2, 3), lambda t: F.layer_norm(t, (2, 3))),
    "layer_norm, gradient": (
        (2, 2, 3),
        lambda t: gradient(lambda x: F.layer_norm(x, (3,)), t, "swapped"),
    ),
    "batch_norm": ((5, 5, 5), lambda t: F.batch_norm(t, None, None, training=True)),
    "batch_norm of four": ((2, 3, 2, 2), lambda t: F.batch_norm(t, None, None, training=True)),
    "relu, gradient": ((5, 5), lambda t: gradient(F.relu, t, "reversed")),
    "leaky_relu, gradient": ((2, 3, 2, 2), lambda t: gradient(F.leaky_relu, t, "expanded")),
    "glu, gradient": ((2, 2, 3, 4, 2), lambda t: gradient(lambda x: F.glu(x, 1), t)),
    "pixel_shuffle": ((1, 9, 2, 2), lambda t: F.pixel_shuffle(t, 3)),
    "pixel_unshuffle": ((1, 1, 6, 6), lambda t: F.pixel_unshuffle(t, 3)),
    "reflect": ((1, 3, 3, 3, 3), lambda t: F.pad(t, (1,) * 6, mode="reflect")),
    "replicate": ((1, 3, 3, 3, 3), lambda t: F.pad(t, (1,) * 6, mode="replicate")),
    "reflect, gradient": (
        (1, 3, 3, 3, 3),
        lambda t: gradient(lambda x: F.pad(x, (1,) * 6, mode="reflect"), t),
    ),
    "conv2d": ((2, 3, 4, 4), lambda t: F.conv2d(t, t[:, :, :2, :2])),
    "index": ((4, 2, 3), lambda t: t[:, on_like(torch.tensor([1, 0]), t)]),
    "two indices": ((4, 2, 3), lambda t: t[(on_like(torch.tensor([1, 0]), t),) * 2]),
    "index of windows": (
        (1, 3, 4),
        lambda t: t.unfold(1, 2, 1)[:, on_like(torch.tensor([1, 0]), t)],
    ),
    "mask": ((4, 2, 3), lambda t: t[on_like(torch.tensor([True, False, True, True]), t)]),
    "mask of two": ((4, 2, 3), lambda t: t[t.sum(-1) > 0]),
    "mask in the middle": ((4, 2, 3), lambda t: t[:, on_like(torch.tensor([True, True]), t)]),
    "mask and index": (
        (2, 2, 3),
        lambda t: t[
            on_like(torch.tensor([True, False]), t), on_like(torch.tensor([1]), t)
        ],
    ),
    "nonzero": ((4, 2, 3), torch.nonzero),
}  # fmt: skip


def calls(few: bool) -> Iterator[tuple[str, Callable[[list[Tensor]], Any], list[Tensor]]]:
    for op in itertools.islice(pointwise(), 0, None, 20 if few else 1):
        for dtype in (torch.float32, torch.int64, torch.bool)[: 1 if few else None]:
            if f"{op._schema.name}.{str(dtype)[6:]}" in EXCEPT:
                continue
            for shapes in SHAPES_OF_CALLS:
                for layouts in LAYOUTS_OF_CALLS:
                    tensors = [
                        LAYOUTS[layout](torch.ones(SHAPES[shape], dtype=dtype))
                        for shape, layout in zip(shapes, layouts, strict=True)
                    ]
                    if filled(op, tensors) is None:
                        break

                    def call(tensors: list[Tensor], op: Any = op) -> Any:
                        args, named = filled(op, tensors)
                        return op(*args, **named)

                    yield f"{op} {str(dtype)[6:]} {shapes} {layouts}", call, tensors
    for name, (shape, f) in CALLS.items():
        values = torch.arange(float(torch.Size(shape).numel())).reshape(shape) - 3
        for layout in LAYOUTS:
            yield f"{name} {layout}", lambda tensors, f=f: f(tensors[0]), [LAYOUTS[layout](values)]


def main(which: str) -> None:
    warnings.simplefilter("ignore")
    made, seen = 0, set()
    for name, call, tensors in calls(which == "few"):
        theirs = results(call, tensors)
        if theirs is None:
            continue
        made += 1
        ours = results(call, [on_device(t) for t in tensors])
        want = [t.stride() for t in theirs]
        have = "an error" if ours is None else [t.stride() for t in ours]
        if have != want and name.split()[0] not in seen:
            seen.add(name.split()[0])
            print(f"{name}: {have}, not {want}")
    print("calls", made)
    sys.exit(bool(seen))


if __name__ == "__main__":
    main(sys.argv[1])
