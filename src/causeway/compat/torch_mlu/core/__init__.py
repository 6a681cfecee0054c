"""torch_mlu.core: the device (mlu_model), integers (mlu_quantize), a dump (dumptool)."""

from causeway.compat.torch_mlu.core import dumptool, mlu_model, mlu_quantize

__all__ = ["dumptool", "mlu_model", "mlu_quantize"]
