"""Models in integers: `quantize_dynamic` for inference. See docs/quantize.md."""

from causeway.quant.dynamic import convert as convert
from causeway.quant.dynamic import quantize_dynamic as quantize_dynamic
from causeway.quant.formats import FixedPoint as FixedPoint

__all__ = ["FixedPoint", "convert", "quantize_dynamic"]
