"""torch_npu.utils, as far as torch has it."""

from __future__ import annotations

from causeway.compat.missing import getter

_PINNED = "threads are not pinned; use taskset or numactl"

__getattr__ = getter(
    "torch_npu.utils",
    {
        "npu_combine_tensors": "optimizers take many tensors at once with foreach=True",
        "get_part_combined_tensor": "optimizers take many tensors at once with foreach=True",
        "is_combined_tensor_valid": "optimizers take many tensors at once with foreach=True",
        "FlopsCounter": "torch.utils.flop_counter.FlopCounterMode",
        "set_thread_affinity": _PINNED,
        "reset_thread_affinity": _PINNED,
        "save_async": "torch.distributed.checkpoint.async_save",
        "get_cann_version": "`causeway doctor` says which vendor's library is in use",
        "cpp_extension": "torch.utils.cpp_extension, and the vendor's own operators in its table",
    },
)
