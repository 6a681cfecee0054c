"""Calls of other libraries' operators, of which torch has no samples: by hand for torchvision's,
and for any other by what its schema says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from causeway.conformance.dtypes import numbers

Inputs = tuple[Any, ...]

SHAPES = ((3, 5), (1,), (7,), (64, 33), (2, 3, 4), (2, 3, 6, 7), ())
NUMBERS = {"int": (1, 2), "float": (0.5, -1.5), "bool": (False, True)}


def _boxes(dtype: torch.dtype) -> Iterator[Inputs]:
    for n in (1, 3, 20) if dtype.is_floating_point else ():
        generator = torch.Generator().manual_seed(n)
        start, size = torch.rand(2, n, 2, generator=generator, dtype=torch.float64)
        boxes = torch.cat([start, start + size * 0.8], 1).to(dtype)
        scores = torch.rand(n, generator=generator, dtype=torch.float64).to(dtype)
        for threshold in (0.0, 0.3, 0.9):
            yield boxes, scores, threshold


def _regions(dtype: torch.dtype) -> Iterator[Inputs]:
    """Regions of two images, some of which reach beyond them."""
    for seed, (k, channels) in enumerate(((1, 1), (5, 3)) if dtype.is_floating_point else ()):
        generator = torch.Generator().manual_seed(seed)
        start, size = torch.rand(2, k, 2, generator=generator, dtype=torch.float64)
        number = torch.arange(k)[:, None] % 2
        rois = torch.cat([number, start * 20 - 4, start * 20 + size * 12], 1).to(dtype)
        images = numbers(2, channels, 8, 11, dtype=dtype, seed=seed)
        for ratio, aligned in ((-1, False), (2, True)):
            yield images, rois, 0.5, 2, 3, ratio, aligned


def _region_gradients(dtype: torch.dtype) -> Iterator[Inputs]:
    for images, rois, scale, height, width, *rest in _regions(dtype):
        grad = numbers(len(rois), images.shape[1], height, width, dtype=dtype, seed=2)
        yield grad, rois, scale, height, width, *images.shape, *rest


def of_schema(schema: Any, dtype: torch.dtype) -> Iterator[Inputs]:
    """Calls with tensors of one shape and plain numbers; the CPU refuses those that do not fit.
    Nothing where an argument without a default is something else.
    """
    arguments = [a for a in schema.arguments if not a.is_out]
    for shape in SHAPES:
        for choice in (0, 1):
            inputs: list[Any] = []
            for seed, argument in enumerate(arguments):
                kind = str(argument.real_type)
                if kind == "Tensor":
                    inputs.append(numbers(*shape, dtype=dtype, seed=seed))
                elif kind == "List[Tensor]":
                    some = (numbers(*shape, dtype=dtype, seed=seed + k) for k in (0, 7))
                    inputs.append(list(some))
                elif argument.has_default_value() and choice == 0:
                    inputs.append(argument.default_value)
                elif kind in NUMBERS:
                    inputs.append(NUMBERS[kind][choice])
                elif argument.has_default_value():
                    inputs.append(argument.default_value)
                else:
                    return
            yield tuple(inputs)


LIBRARIES: dict[str, Callable[[torch.dtype], Iterator[Inputs]]] = {
    "torchvision::nms": _boxes,
    "torchvision::roi_align": _regions,
    "torchvision::_roi_align_backward": _region_gradients,
}
