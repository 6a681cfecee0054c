"""Models in integers: `quantize_dynamic` for inference, `adaptive_quantize` for training. See
docs/quantize.md.
"""

from causeway.quant.adaptive import adaptive_quantize as adaptive_quantize
from causeway.quant.adaptive import bits_of as bits_of
from causeway.quant.adaptive import dequantize as dequantize
from causeway.quant.attention import integer_attention as integer_attention
from causeway.quant.balance import equalize as equalize
from causeway.quant.balance import smooth_quant as smooth_quant
from causeway.quant.checkpoints import load_packed as load_packed
from causeway.quant.correct import correct_bias as correct_bias
from causeway.quant.dynamic import convert as convert
from causeway.quant.dynamic import quantize_dynamic as quantize_dynamic
from causeway.quant.fold import fold_norms as fold_norms
from causeway.quant.formats import FixedPoint as FixedPoint
from causeway.quant.pt2e import lower as lower
from causeway.quant.pt2e import lowered as lowered
from causeway.quant.sums import integer_sums as integer_sums
from causeway.quant.weights import quantize_weights as quantize_weights

__all__ = [
    "FixedPoint",
    "adaptive_quantize",
    "bits_of",
    "convert",
    "correct_bias",
    "dequantize",
    "equalize",
    "fold_norms",
    "integer_attention",
    "integer_sums",
    "load_packed",
    "lower",
    "lowered",
    "quantize_dynamic",
    "quantize_weights",
    "smooth_quant",
]
