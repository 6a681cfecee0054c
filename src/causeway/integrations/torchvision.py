"""torchvision: its operators, where its own library does not load, and autocast for them.

torchvision's wheel on PyPI has its operators in a library for a torch with CUDA. Beside a CPU build
of torch, which is what an accelerator's user has, it does not load, and `import torchvision` fails.
Then the operators are declared here: the device computes `nms` and `roi_align` with its gradient by
the ladder, the CPU by what is below; the others say which wheel has them. Formulas: He et al. 2017,
https://arxiv.org/abs/1703.06870.
"""

from __future__ import annotations

import importlib.util
import types
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from causeway import integrations

_ALIGN = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_IMAGE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_DEFORM = (
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
    "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask"
)
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align(Tensor input, Tensor rois, {_ALIGN}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_ALIGN}, {_IMAGE}, int sampling_ratio, "
    "bool aligned) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, "
    f"float rois_scale, int rois_zero_point, {_ALIGN}, int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, {_ALIGN}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_ALIGN}, {_IMAGE}) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, {_ALIGN}, int sampling_ratio) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_ALIGN}, "
    f"int sampling_ratio, {_IMAGE}) -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, {_ALIGN}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_ALIGN}, "
    f"{_IMAGE}) -> Tensor",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    f"{_DEFORM}) -> Tensor",
    "_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, "
    f"Tensor bias, {_DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    "_cuda_version() -> int",
)
# CUDA's autocast gives them float32, and their results back in the dtype of the first.
_AUTOCAST = ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
_KEY = "AutocastPrivateUse1"

_libraries: list[torch.library.Library] = []  # as long as the process


def _loaded(module: types.ModuleType) -> None:
    if module.__name__ != "torchvision.extension":
        return
    if not module._has_ops():
        _declare()
        module._has_ops = lambda: True  # type: ignore[attr-defined]
        integrations.note(
            "torchvision", "its own library did not load: nms and roi_align are Causeway's"
        )
    library = _library("IMPL", _KEY)
    for name in _AUTOCAST:
        library.impl(name, _in_float32(name))
    integrations.note("torchvision", "autocast on the device computes its operators in float32")


def _library(kind: str, key: str = "") -> Any:  # torch has no types for its methods
    library = torch.library.Library("torchvision", kind, key)  # type: ignore[no-untyped-call]
    _libraries.append(library)
    return library


def _in_float32(name: str) -> Any:
    def call(first: Tensor, *rest: Any) -> Any:
        function = getattr(torch.ops.torchvision, name)
        autocast = torch._C.DispatchKeySet(torch._C._dispatch_key_parse(_KEY))
        with torch._C._ExcludeDispatchKeyGuard(autocast):
            found = function(*(_as_float(v) for v in (first, *rest)))
        return tree_map_only(Tensor, lambda t: t.to(first.dtype) if _is_float(t) else t, found)

    return call


def _is_float(v: Any) -> bool:
    return isinstance(v, Tensor) and v.is_floating_point() and v.dtype != torch.float64


def _as_float(v: Any) -> Any:
    return v.float() if _is_float(v) else v


# --- where torchvision's library did not load -----------------------------------------------------


def _declare() -> None:
    library = _library("FRAGMENT")
    kernels = {"nms": nms, "roi_align": roi_align, "_roi_align_backward": roi_align_backward}
    for schema in _SCHEMAS:
        name = schema.partition("(")[0]
        library.define(schema)
        if name == "_cuda_version":
            library.impl(name, lambda: -1, "CompositeExplicitAutograd")
        else:
            library.impl(name, kernels.get(name) or _missing(name), "CPU")
    # From 0.27 on torchvision differentiates in Python.
    if importlib.util.find_spec("torchvision._autograd_registrations") is None:
        torch.library.register_autograd(
            "torchvision::roi_align", _gradient, setup_context=_context, lib=library
        )


def _missing(name: str) -> Any:
    def refuse(*_: Any) -> Any:
        raise NotImplementedError(
            f"torchvision::{name} is in torchvision's own library, which did not load: the wheel "
            "of PyPI wants CUDA's torch. Install the CPU's: pip install torchvision "
            "--index-url https://download.pytorch.org/whl/cpu"
        )

    return refuse


def _expect(fits: bool, error: str) -> None:
    if not fits:
        raise RuntimeError(error)


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Places [k] of the boxes [n, 4] to keep, the best first: none overlaps a better one by more
    than `iou_threshold`, as a share of their union. Raises RuntimeError for other shapes.
    """
    _expect(dets.dim() == 2, f"boxes should be a 2d tensor, got {dets.dim()}D")
    _expect(dets.shape[1] == 4, f"boxes should have 4 elements in dimension 1, got {dets.shape[1]}")
    _expect(scores.dim() == 1, f"scores should be a 1d tensor, got {scores.dim()}D")
    _expect(
        len(dets) == len(scores),
        f"boxes and scores should have as many elements, got {len(dets)} and {len(scores)}",
    )
    _expect(
        dets.dtype == scores.dtype,
        f"dets should have the same type as scores, got {dets.dtype} and {scores.dtype}",
    )
    order = scores.sort(descending=True, stable=True).indices
    left, top, right, bottom = dets[order].unbind(1)
    areas = (right - left) * (bottom - top)
    gone = torch.zeros(len(order), dtype=torch.bool)
    for i in range(len(order)):
        if gone[i]:
            continue
        width = torch.minimum(right[i], right[i + 1 :]) - torch.maximum(left[i], left[i + 1 :])
        height = torch.minimum(bottom[i], bottom[i + 1 :]) - torch.maximum(top[i], top[i + 1 :])
        both = width.clamp(min=0) * height.clamp(min=0)
        share = both / (areas[i] + areas[i + 1 :] - both)
        gone[i + 1 :] |= share.double() > iou_threshold
    return order[~gone]


def _weights(start: Tensor, bin: Tensor, bins: int, grid: int, size: int) -> Tensor:
    """[bins, size]: what each place of a side adds to the mean of each bin's samples."""
    bin_at, sample = (torch.arange(n, dtype=start.dtype) for n in (bins, grid))
    at = start + bin_at[:, None] * bin + (sample + 0.5) * bin / max(grid, 1)
    inside = (at >= -1) & (at <= size)
    at = at.clamp(min=0)
    low = at.long().clamp(max=size - 1)
    share = torch.where(low == size - 1, 0, at - low)
    result = torch.zeros(bins, size, dtype=start.dtype)
    result.scatter_add_(1, low, torch.where(inside, 1 - share, 0))
    result.scatter_add_(1, (low + 1).clamp(max=size - 1), torch.where(inside, share, 0))
    return result / max(grid, 1)


def _region(
    roi: Tensor, scale: float, bins: tuple[int, int], shape: Any, ratio: int, aligned: bool
) -> tuple[int, Tensor, Tensor]:
    """The image that a region is in, and the weights of its rows and columns."""
    image = int(roi[0])
    if not 0 <= image < shape[0]:
        raise IndexError(f"roi_align: there is no image {image} of {shape[0]}")
    offset = 0.5 if aligned else 0.0
    left, top, right, bottom = (roi[1:] * scale - offset).unbind()
    sides = []
    for start, extent, count, size in (
        (top, bottom - top, bins[0], shape[2]),
        (left, right - left, bins[1], shape[3]),
    ):
        _expect(not aligned or bool(extent >= 0), "a region of roi_align has a negative size")
        bin = (extent if aligned else extent.clamp(min=1)) / count
        grid = ratio if ratio > 0 else int(torch.ceil(bin))
        sides.append(_weights(start, bin, count, grid, size))
    return image, sides[0], sides[1]


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Means [k, channels, pooled_height, pooled_width] of `input` [n, channels, height, width] over
    the bins of regions `rois` [k, 5]: number of the image, left, top, right, bottom. Raises
    IndexError for a region of no image, RuntimeError for other shapes.
    """
    _expect(rois.dim() == 2 and rois.shape[1] == 5, "rois must have shape [K, 5]")
    _expect(
        input.dtype == rois.dtype,
        f"input and rois must have one dtype, got {input.dtype} and {rois.dtype}",
    )
    result = input.new_zeros(len(rois), input.shape[1], pooled_height, pooled_width)
    bins, wide = (pooled_height, pooled_width), _wide(input)
    for k, roi in enumerate(_wide(rois)):
        image, rows, columns = _region(
            roi, spatial_scale, bins, input.shape, sampling_ratio, aligned
        )
        result[k] = rows @ wide[image] @ columns.t()
    return result


def roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """The gradient [batch_size, channels, height, width] of roi_align's input."""
    shape, bins = (batch_size, channels, height, width), (pooled_height, pooled_width)
    wide = _wide(grad)
    result = wide.new_zeros(shape)
    for g, roi in zip(wide, _wide(rois), strict=True):
        image, rows, columns = _region(roi, spatial_scale, bins, shape, sampling_ratio, aligned)
        result[image] += rows.t() @ g @ columns
    return result.to(grad.dtype)


def _wide(t: Tensor) -> Tensor:
    return t if t.dtype == torch.float64 else t.float()


def _context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    image, rois, *ctx.rest = inputs
    ctx.shape = image.shape
    ctx.save_for_backward(rois)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (rois,) = ctx.saved_tensors
    scale, height, width, ratio, aligned = ctx.rest
    back = torch.ops.torchvision._roi_align_backward(
        grad, rois, scale, height, width, *ctx.shape, ratio, aligned
    )
    return back, None, None, None, None, None, None


INTEGRATION = integrations.Integration(
    ("0.28.0", "0.28.0"),
    "autocast for its operators; nms and roi_align, where its own library does not load",
    _loaded,
)
