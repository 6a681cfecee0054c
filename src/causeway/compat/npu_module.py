"""What torch.npu has in torch_npu and torch.<name> of Causeway lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.torch_version import TorchVersion

from causeway.compat.missing import Options, getter, no_effect
from causeway.compat.names import instead
from causeway.device import amp
from causeway.errors import CausewayError

_COMPILES = "kernels are built once for all shapes"
_FORMATS = "tensors have torch's strides alone, and a chip's own formats are the vendor's matter"
_LIMITS = "the table has no share of a chip's cores; the vendor's own tools have"


_DTYPES = "operators compute in the dtype of their operands"
_TUNES = "`causeway tune` measures and keeps what is fastest"

# Options of set_option and what becomes of each; the names are those of torch_npu 2.13, and those
# that its own functions set, which programs set too.
_OPTIONS = {
    "ALLOW_INTERNAL_FORMAT": _FORMATS,
    "ALLOW_CONV_HF32": _DTYPES,
    "ALLOW_MATMUL_HF32": _DTYPES,
    "autotune": _TUNES,
    "autotunegraphdumppath": _TUNES,
    "bmmv2_enable": _FORMATS,
    "mdldumpswitch": "set CAUSEWAY_DUMP",
    "mdldumpconfigpath": "set CAUSEWAY_DUMP_TO",
    "ACL_OP_DEBUG_LEVEL": "set CAUSEWAY_DUMP",
    "ACL_OP_COMPILER_CACHE_MODE": "what is built is kept in the vendor's cache",
    "ACL_OP_COMPILER_CACHE_DIR": "what is built is kept in the vendor's cache",
    "ACL_OP_SELECT_IMPL_MODE": _DTYPES,
    "ACL_OPTYPELIST_FOR_IMPLMODE": _DTYPES,
    "ACL_PRECISION_MODE": "operators compute in the dtype of their operands; autocast narrows",
    "ACL_AICORE_NUM": _LIMITS,
    "ACL_DEBUG_DIR": "set CAUSEWAY_DUMP_TO",
    "NPU_FUZZY_COMPILE_BLACKLIST": _COMPILES,
    "MM_BMM_ND_ENABLE": _FORMATS,
    "jitCompile": _COMPILES,
}


def set_option(option: Mapping[str, Any]) -> None:
    """torch_npu's options. None has an effect here, and each says why once; CausewayError for a
    name that torch_npu does not have.
    """
    for name in option:
        if name not in _OPTIONS:
            raise CausewayError(
                f"torch.npu.set_option: {name!r} is none of {', '.join(sorted(_OPTIONS))}"
            )
    for name in option:
        no_effect(f"torch.npu.set_option({name})", _OPTIONS[name])


def set_compile_mode(jit_compile: bool = False) -> None:
    """Whether operators are compiled for each shape: they never are, so True has no effect."""
    if jit_compile:
        no_effect("torch.npu.set_compile_mode(jit_compile=True)", _COMPILES)


def is_jit_compile_false() -> bool:
    """True: operators are not compiled for each shape."""
    return True


def set_mm_bmm_format_nd(is_nd: bool = True) -> None:
    """Whether products take plain memory: they do, so False has no effect."""
    if not is_nd:
        no_effect("torch.npu.set_mm_bmm_format_nd(False)", _FORMATS)


def get_mm_bmm_format_nd() -> bool:
    """True: products take plain memory."""
    return True


def set_task_queue_enable(mode: int = 1) -> None:
    """The levels of torch_npu's queue, which has none here: work is queued on streams."""
    no_effect("torch.npu.set_task_queue_enable", "work is queued on the device's streams")


def get_task_queue_enable() -> int:
    """1: work is queued."""
    return 1


def empty_virt_addr_cache() -> None:
    """torch.npu.empty_cache()."""
    torch.accelerator.empty_cache()


def is_autocast_enabled() -> bool:
    """torch.is_autocast_enabled("npu")."""
    return torch.is_autocast_enabled(_name())


def set_autocast_enabled(enable: bool) -> None:
    """torch.set_autocast_enabled("npu", enable)."""
    torch.set_autocast_enabled(_name(), enable)


def get_autocast_dtype() -> torch.dtype:
    """torch.get_autocast_dtype("npu")."""
    return torch.get_autocast_dtype(_name())


def set_autocast_dtype(dtype: torch.dtype) -> None:
    """torch.set_autocast_dtype("npu", dtype)."""
    torch.set_autocast_dtype(_name(), dtype)


def enable_deterministic_with_backward(tensor: torch.Tensor) -> torch.Tensor:
    """Deterministic algorithms from here on, as torch.use_deterministic_algorithms(True)."""
    torch.use_deterministic_algorithms(True)
    return tensor


def disable_deterministic_with_backward(tensor: torch.Tensor) -> torch.Tensor:
    """The former end of it: torch.use_deterministic_algorithms(False)."""
    torch.use_deterministic_algorithms(False)
    return tensor


def set_deterministic_level(level: int) -> None:
    """0 is off, more is torch.use_deterministic_algorithms(True)."""
    torch.use_deterministic_algorithms(level > 0)


def use_compatible_impl(is_enable: bool) -> None:
    """Numbers as the CPU's are the only implementation here."""


def are_compatible_impl_enabled() -> bool:
    """True: operators give the CPU's numbers, within their tolerances."""
    return True


def set_op_timeout_ms(timeout: int) -> None:
    """A limit of an operator's time, which the table does not have."""
    no_effect("torch.npu.set_op_timeout_ms", "the table has no limit of an operator's time")


def host_empty_cache() -> None:
    """torch._C._host_emptyCache(), of pinned memory."""
    torch._C._host_emptyCache()


class GradScaler(amp.GradScaler):
    """torch.amp.GradScaler. With `dynamic=False` the scale stays as it is, and a step with an
    overflow is made like any other, as in torch_npu.
    """

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, dynamic: bool = True,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._dynamic = dynamic

    def _maybe_opt_step(
        self, optimizer: torch.optim.Optimizer, optimizer_state: Any, *args: Any, **options: Any
    ) -> Any:
        if not self._dynamic:
            return optimizer.step(*args, **options)
        return super()._maybe_opt_step(optimizer, optimizer_state, *args, **options)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """As torch's."""
        if new_scale is None and not self._dynamic and self.is_enabled():
            new_scale = self._scale
        super().update(new_scale)

    def state_dict(self) -> dict[str, Any]:
        """As torch's, with `dynamic`."""
        return super().state_dict() | ({"dynamic": self._dynamic} if self.is_enabled() else {})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What state_dict() gave, here, in torch_npu or in torch."""
        super().load_state_dict(state_dict)
        self._dynamic = state_dict.get("dynamic", True)


class Mstx:
    """Ranges and marks for a profiler, by torch's own."""

    def __init__(self) -> None:
        self._open: dict[int, Any] = {}

    def mark(self, message: str, stream: Any = None, domain: str = "default") -> None:
        """A mark in a trace of torch.profiler."""
        with torch.profiler.record_function(message):
            pass

    def range_start(self, message: str, stream: Any = None, domain: str = "default") -> int:
        """Begin a range; its number."""
        entered = torch.profiler.record_function(message)
        entered.__enter__()  # type: ignore[no-untyped-call]
        number = max(self._open, default=0) + 1
        self._open[number] = entered
        return number

    def range_end(self, range_id: int, domain: str = "default") -> None:
        """End a range. CausewayError for a number that is none."""
        if range_id not in self._open:
            raise CausewayError(f"mstx.range_end: no range {range_id} is open")
        self._open.pop(range_id).__exit__(None, None, None)


def _name() -> str:
    return str(torch._C._get_privateuse1_backend_name())


def extend() -> None:
    """Put the names into torch.npu, whatever the device is called."""
    from causeway.compat.torch_npu import distributed
    from causeway.device import graphs, module

    names: dict[str, Any] = {n: f for n, f in globals().items() if callable(f) and n in _PUBLIC}
    names |= {
        "NPUGraph": graphs.CUDAGraph,
        "mstx": Mstx(),
        "config": Options("torch.npu.config", {"allow_internal_format": False}, _FORMATS),
        "matmul": Options(
            "torch.npu.matmul", {"allow_hf32": False, "cube_math_type": -1},
            "products compute in the dtype of their operands",
        ),
        "conv": Options(
            "torch.npu.conv", {"allow_hf32": False},
            "convolutions compute in the dtype of their operands",
        ),
    }  # fmt: skip
    for name, value in names.items():
        setattr(module, name, value)
    amp.GradScaler = GradScaler  # type: ignore[misc, assignment]
    torch.distributed.is_hccl_available = distributed.is_hccl_available  # type: ignore[attr-defined]
    _compare_versions_with_numbers()
    former = module.__getattr__
    elsewhere = instead("torch.npu")
    missing = getter("torch.npu")

    def get(name: str) -> Any:
        return missing(name) if name in elsewhere else former(name)

    module.__getattr__ = get  # type: ignore[method-assign]


def _compare_versions_with_numbers() -> None:
    """`torch.__version__ > 1.5`, which programs for torch_npu ask, is TypeError in torch."""
    former = TorchVersion._convert_to_version

    def convert(self: TorchVersion, given: Any) -> Any:
        return former(self, str(given) if isinstance(given, int | float) else given)

    TorchVersion._convert_to_version = convert  # type: ignore[method-assign,assignment]


_PUBLIC = frozenset({
    "set_option", "set_compile_mode", "is_jit_compile_false", "set_mm_bmm_format_nd",
    "get_mm_bmm_format_nd", "set_task_queue_enable", "get_task_queue_enable",
    "empty_virt_addr_cache", "is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype",
    "set_autocast_dtype", "enable_deterministic_with_backward",
    "disable_deterministic_with_backward", "set_deterministic_level", "use_compatible_impl",
    "are_compatible_impl_enabled", "set_op_timeout_ms", "host_empty_cache",
})  # fmt: skip
