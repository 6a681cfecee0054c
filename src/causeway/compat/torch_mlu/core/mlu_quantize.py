"""torch_mlu.core.mlu_quantize: causeway.quant under Cambricon's names."""

from __future__ import annotations

from causeway.compat.missing import getter
from causeway.quant import adaptive_quantize as adaptive_quantize
from causeway.quant import dequantize as dequantize
from causeway.quant import quantize_dynamic as quantize_dynamic

quantize_dynamic_mlu = quantize_dynamic

__getattr__ = getter("torch_mlu.core.mlu_quantize")
