"""What an operator of another library gives, by its kernel for fake tensors (register_fake).

torch's meta kernels are asked first, in C++. They do not say a size that depends on the data, as of
`torchvision::nms`: with fake tensors it is a symbol, which the kernel of the vendor's settles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

Results = list[tuple[list[int], list[int], torch.dtype, bool] | None]


def describer(name: str) -> Callable[..., Results | None] | None:
    """What gives sizes, strides, dtype and "depends on the data" of each result; None: no such."""
    space, _, rest = name.partition("::")
    base, _, variant = rest.partition(".")
    func = getattr(getattr(getattr(torch.ops, space), base), variant or "default")
    known = torch._library.simple_registry.singleton.find(name)
    if known.fake_impl.kernel is None:
        return None

    def describe(*args: Any, **kwargs: Any) -> Results | None:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        try:
            with torch.no_grad(), FakeTensorMode(shape_env=ShapeEnv()):

                def fake(t: Tensor) -> Tensor:
                    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")

                results = func(
                    *tree_map_only(Tensor, fake, args), **tree_map_only(Tensor, fake, kwargs)
                )
        except Exception:  # what it refuses the CPU refuses too, in words
            return None
        some = results if isinstance(results, (list, tuple)) else [results]
        return [_described(t) if isinstance(t, Tensor) else None for t in some]

    return describe


def _described(t: Tensor) -> tuple[list[int], list[int], torch.dtype, bool]:
    if all(isinstance(n, int) for n in t.shape):
        return list(t.shape), list(t.stride()), t.dtype, False
    sizes = [n if isinstance(n, int) else 0 for n in t.shape]
    strides = torch.empty(sizes, device="meta").stride()
    return sizes, list(strides), t.dtype, True
