"""Bugs in torch's own support for PrivateUse1, each worked around in one entry here.

Nothing else of torch is patched. An entry names the upstream issue and the torch versions that have
the bug, and `needed` says whether the torch at hand still has it: tests/device/test_workarounds.py
fails where it has not, and then the entry goes. `causeway doctor` lists those in force.
"""

from __future__ import annotations

import functools
import inspect
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import _tensor_str
from torch._prims_common import suggest_memory_format
from torch._subclasses import FakeTensorMode, fake_impls

from causeway import _C
from causeway.device import ipc
from causeway.device.lazy import device_name
from causeway.device.properties import get_device_properties
from causeway.dist import one_process
from causeway.dist.backend import serve_beside_gloo
from causeway.errors import UnsupportedDtypeError
from causeway.ops.ladder import policy


@dataclass(frozen=True)
class Workaround:
    """One bug of torch. `apply` runs at import and opens no device; `needed` may open one."""

    name: str
    upstream: str  # the issue or pull request
    since: tuple[int, int]  # the first torch version, of those that Causeway runs on, that has it
    until: tuple[int, int] | None  # the first version without it; None: none yet
    what: str
    apply: Callable[[], None]
    needed: Callable[[], bool]


def _version() -> tuple[int, int]:
    major, minor = re.findall(r"\d+", torch.__version__)[:2]
    return int(major), int(minor)


# --- printing where the chip has no float64 -----------------------------------------------------

_totype: Callable[[torch.Tensor], torch.Tensor] = _tensor_str.tensor_totype


def _fixed_totype(t: torch.Tensor) -> torch.Tensor:
    if t.device.type == device_name():
        return _totype(t.cpu())
    return _totype(t)


def _apply_print() -> None:
    _tensor_str.tensor_totype = _fixed_totype


def _needs_print() -> bool:
    try:
        return _totype(torch.ones(1, device=device_name())).device.type == device_name()
    except UnsupportedDtypeError:
        return True


# --- the check of a trace where the chip has no float64 ------------------------------------------

_check_trace: Callable[..., Any] = torch.jit._trace._check_trace


@functools.wraps(_check_trace)
def _fixed_check_trace(*args: Any, **kwargs: Any) -> Any:
    """What was traced ran without float64, so that only the comparison is narrowed."""
    with policy(dtypes="narrow"):
        return _check_trace(*args, **kwargs)


def _apply_check_trace() -> None:
    torch.jit._trace._check_trace = _fixed_check_trace


def _needs_check_trace() -> bool:
    return "orig.double()" in inspect.getsource(_check_trace)


# --- GradScaler where the chip has no float64 ----------------------------------------------------

_unscale = torch.amp.GradScaler.unscale_


class _Scale(torch.Tensor):
    """The scale for the time of `unscale_`, which asks for its reciprocal in float64. A scale is a
    power of two unless the user's factors are none, so the reciprocal in float32 is exact.
    """

    def double(self, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


@functools.wraps(_unscale)
def _fixed_unscale(self: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
    scale = getattr(self, "_scale", None)  # a disabled scaler has none
    if scale is None or scale.device.type != device_name():
        return _unscale(self, optimizer)
    if torch.float64 in get_device_properties(scale.device).dtypes:
        return _unscale(self, optimizer)
    self._scale = scale.as_subclass(_Scale)
    try:
        _unscale(self, optimizer)
    finally:
        self._scale = scale


def _apply_unscale() -> None:
    torch.amp.GradScaler.unscale_ = _fixed_unscale  # type: ignore[method-assign]


def _needs_unscale() -> bool:
    return "self._scale.double()" in inspect.getsource(_unscale)


# --- Tensor.__dlpack_device__ -------------------------------------------------------------------

_dlpack_device = torch.Tensor.__dlpack_device__


def _fixed_dlpack_device(self: torch.Tensor) -> tuple[Any, int]:
    """The (device type, index) of DLPack: kDLExtDev for a tensor of this device."""
    plain = type(self) is torch.Tensor or not torch.overrides.has_torch_function_unary(self)
    if plain and self.device.type == device_name():
        from torch.utils.dlpack import DLDeviceType

        return DLDeviceType.kDLExtDev, self.device.index or 0
    return _dlpack_device(self)


def _apply_dlpack_device() -> None:
    torch.Tensor.__dlpack_device__ = _fixed_dlpack_device  # type: ignore[method-assign]


def _needs_dlpack_device() -> bool:
    try:
        _dlpack_device(torch.empty(0, device=device_name()))
    except ValueError:
        return True
    return False


# --- Module.to() and `parameter.data = ` --------------------------------------------------------


def _apply_shallow_copy() -> None:
    """Nothing: the core registers its own rule, in csrc/aten/tensor.cpp."""


def _needs_shallow_copy() -> bool:
    rule = torch.ops.aten._has_compatible_shallow_copy_type.default
    stock = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    ours = torch.empty(0, device=device_name())
    return not rule.redispatch(stock, torch.empty(0), ours)


# --- torch.multiprocessing ----------------------------------------------------------------------


def _needs_reducer() -> bool:
    from torch.multiprocessing.reductions import reduce_storage

    try:
        storage = torch.empty(1, device=device_name()).untyped_storage()
        reduce_storage(storage)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return True
    return False


# --- torch.nn.DataParallel ----------------------------------------------------------------------

# What torch.nn.parallel.comm calls. Builds without CUDA lack them; those of builds with CUDA look
# at a device's index alone, and would take this device's tensors for CUDA's.
_COMM: dict[str, Callable[..., Any] | None] = {
    name: getattr(torch._C, name, None) for name in one_process.FUNCTIONS
}


def _ours(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.device.type == device_name()
    return isinstance(value, list | tuple) and any(_ours(x) for x in value)


def _here(ours: Callable[..., Any], stock: Callable[..., Any] | None) -> Callable[..., Any]:
    """`ours` for tensors of this device, and for the CPU's where CUDA does not take them."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if _ours((*args, *kwargs.values())) or stock is None or not torch.cuda.is_available():
            return ours(*args, **kwargs)
        return stock(*args, **kwargs)

    return call


def _apply_data_parallel() -> None:
    for name, stock in _COMM.items():
        setattr(torch._C, name, _here(one_process.FUNCTIONS[name], stock))


def _needs_data_parallel() -> bool:
    broadcast = _COMM["_broadcast"]
    if broadcast is None:
        return True
    try:
        copies = broadcast(torch.empty(1, device=device_name()), [0, 1])
    except RuntimeError:
        return True
    return not all(copy.device.type == device_name() for copy in copies)


# --- DistributedDataParallel.register_comm_hook ---------------------------------------------------

_parallel: Any = torch.nn.parallel.DistributedDataParallel
_check_comm_hook = _parallel._check_comm_hook
_BF16 = ("bf16_compress_hook", "bf16_compress_wrapper_hook")


def _fixed_check_comm_hook(self: Any, hook: Any) -> None:
    """torch's checks, without the one by name that asks for NCCL or XCCL on a device of ours."""
    if getattr(hook, "__name__", "") in _BF16 and self.device_type == device_name():
        original = hook

        def hook(*args: Any, **options: Any) -> Any:
            return original(*args, **options)

        hook.__signature__ = inspect.signature(original)
    _check_comm_hook(self, hook)


def _apply_comm_hook() -> None:
    _parallel._check_comm_hook = _fixed_check_comm_hook


def _needs_comm_hook() -> bool:
    from unittest import mock

    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    class Parallel:
        device_type = device_name()

        def _log_and_throw(self, kind: type[Exception], words: str) -> None:
            raise kind(words)

    # The check is of the build: one with CUDA and NCCL passes any device, and the bug is there too.
    with mock.patch.multiple(torch.version, cuda=None, hip=None):
        try:
            _check_comm_hook(Parallel(), default_hooks.bf16_compress_hook)
        except TypeError:
            return True
    return False


# --- an explicit gloo -----------------------------------------------------------------------------

_config_of_backends: Callable[..., None] | None = None


def _fixed_config_of_backends(self: Any, backend: Any) -> None:
    """torch's, and where that has gloo for the CPU by its name alone, the device has its part."""
    assert _config_of_backends is not None
    _config_of_backends(self, backend)
    serve_beside_gloo(self.device_backend_map, str(backend), device_name())


def _apply_gloo() -> None:
    global _config_of_backends
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    _config_of_backends = distributed_c10d.BackendConfig.__init__
    distributed_c10d.BackendConfig.__init__ = _fixed_config_of_backends  # type: ignore[method-assign]


def _needs_gloo() -> bool:
    return device_name() not in torch.distributed.Backend.backend_capability["gloo"]


# --- torch.sparse.to_sparse_semi_structured -----------------------------------------------------

_semi_structured = torch.sparse.SparseSemiStructuredTensor
_check_semi_structured: Callable[..., None] = (
    _semi_structured._validate_device_dim_dtype_shape.__func__  # type: ignore[attr-defined]
)


def _convolutions() -> list[Any]:
    aten = torch.ops.aten
    forward = [aten.convolution.default, aten._convolution.default, aten._convolution.deprecated]
    return [*forward, aten.convolution_backward.default]


def _convolution_format(
    input: torch.Tensor, weight: torch.Tensor, transposed: bool
) -> torch.memory_format | None:
    """That of a convolution's result in eager mode, the CPU's; None: dense. `convolved` of
    csrc/ladder/strides.cpp is the same rule for tensors that are there.
    """
    formats = [suggest_memory_format(t) for t in (weight, input)]
    last = next((f for f in formats if f is not torch.contiguous_format), None)
    if last is torch.channels_last_3d and (transposed or input.dtype == torch.float64):
        return None
    return last


def _fake_convolution_here(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def convolution(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        found = stock(mode, func, *args, **kwargs)
        results = found if isinstance(found, tuple) else (found,)
        if not any(_ours(t) for t in results):
            return found
        names = [argument.name for argument in func._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        last = _convolution_format(given["input"], given["weight"], given["transposed"])
        if last is None:
            return found
        laid = [t.to(memory_format=last) if _ours(t) and t.dim() > 1 else t for t in results]
        return tuple(laid) if isinstance(found, tuple) else laid[0]

    return convolution


def _apply_fake_convolution() -> None:
    table = fake_impls.op_implementations_dict
    stock = {func: table[func] for func in _convolutions() if func in table}
    made = {f: _fake_convolution_here(f) for f in set(stock.values())}
    table.update({func: made[f] for func, f in stock.items()})


def _needs_fake_convolution() -> bool:
    stock = fake_impls.op_implementations_dict[torch.ops.aten.convolution.default]
    stock = getattr(stock, "__wrapped__", stock)
    with FakeTensorMode() as mode:
        x, w = (torch.empty(2, 3, 5, 5, device=device_name()) for _ in range(2))
        x = x.to(memory_format=torch.channels_last)
        one = [1, 1]
        given = (x, w, None, one, one, one, False, [0, 0], 1)
        out = stock(mode, torch.ops.aten.convolution.default, *given)
    return not out.is_contiguous(memory_format=torch.channels_last)


def _check_semi_structured_here(cls: type, original_tensor: torch.Tensor) -> None:
    """torch's check; a tensor of this device is as good as one of CUDA's."""
    given: Any = original_tensor
    if original_tensor.device.type == device_name():
        given = SimpleNamespace(
            is_cuda=True,
            device=original_tensor.device,
            dtype=original_tensor.dtype,
            shape=original_tensor.shape,
            dim=original_tensor.dim,
            is_contiguous=original_tensor.is_contiguous,
        )
    _check_semi_structured(cls, given)


def _apply_semi_structured() -> None:
    _semi_structured._validate_device_dim_dtype_shape = classmethod(  # type: ignore[assignment]
        _check_semi_structured_here
    )


def _needs_semi_structured() -> bool:
    sparse = torch.zeros(128, 128, dtype=torch.float16, device=device_name())
    try:
        _check_semi_structured(torch.sparse.SparseSemiStructuredTensorCUTLASS, sparse)
    except RuntimeError:
        return True
    return False


# --- torch.save and torch.load ask for a pointer to write by ------------------------------------

_storage_pointer = torch.UntypedStorage.data_ptr
# Whose calls compare the pointer, or ask whether there is one, and write nothing.
_COMPARE = frozenset(
    {"torch.serialization", "safetensors.torch", "huggingface_hub.serialization._torch"}
)
_PASS_ON = (torch.TypedStorage._data_ptr.__code__, torch.TypedStorage.data_ptr.__code__)


def _fixed_storage_pointer(self: torch.UntypedStorage) -> int:
    """The address of a storage. Who is given one to write by ends what is kept of a tensor beside
    it (layout.v1), as nobody would know of the writes; saving and loading are no such callers.
    """
    if self.device.type == device_name():
        caller = inspect.currentframe()
        caller = caller.f_back if caller else None
        while caller is not None and caller.f_code in _PASS_ON:
            caller = caller.f_back
        if caller is not None and caller.f_globals.get("__name__") in _COMPARE:
            return _C.storage_address(self)
    return _storage_pointer(self)


def _apply_storage_pointer() -> None:
    torch.UntypedStorage.data_ptr = _fixed_storage_pointer  # type: ignore[method-assign, assignment]


def _needs_storage_pointer() -> bool:
    shared = torch._lazy_clone(torch.ones(1))
    torch.save(shared, io.BytesIO())
    return not torch._C._is_cow_tensor(shared)  # type: ignore[attr-defined]


ALL = (
    Workaround(
        "storage_pointer",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/serialization.py#L1224",
        (2, 11),
        None,
        "torch.save and torch.load ask each storage for a pointer to write by, which they compare "
        "only: it copies what copy-on-write shares, and ends a tensor's form in the chip's layout",
        _apply_storage_pointer,
        _needs_storage_pointer,
    ),
    Workaround(
        "comm_hook",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/distributed.py#L2484",
        (2, 11),
        None,
        "DistributedDataParallel refuses bf16_compress_hook where there is neither NCCL nor XCCL, "
        "whatever device and backend the gradients are on",
        _apply_comm_hook,
        _needs_comm_hook,
    ),
    Workaround(
        "data_parallel",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/comm.py#L203",
        (2, 11),
        None,
        "torch.nn.DataParallel takes any device and then fails in its first forward, with an "
        "AttributeError or, where torch is built with CUDA, for want of a GPU; its copies among "
        "devices are served here (causeway.dist.one_process)",
        _apply_data_parallel,
        _needs_data_parallel,
    ),
    Workaround(
        "gloo",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/distributed_c10d.py#L435",
        (2, 11),
        None,
        "a process group of gloo takes tensors of the CPU and of CUDA, and of no other device: "
        "torch's table gives all devices of a group one backend",
        _apply_gloo,
        _needs_gloo,
    ),
    Workaround(
        "dlpack_device",
        "https://github.com/pytorch/pytorch/pull/195815",
        (2, 11),
        None,
        "Tensor.__dlpack_device__ compares with the literal 'privateuse1', so it raises for a "
        "renamed device",
        _apply_dlpack_device,
        _needs_dlpack_device,
    ),
    Workaround(
        "shallow_copy",
        "https://github.com/pytorch/pytorch/issues/196975",
        (2, 11),
        None,
        "Module.to() makes new Parameters, so that optimizers and tied weights keep the old "
        "ones: the rule for "
        "`parameter.data = tensor` does not list PrivateUse1",
        _apply_shallow_copy,
        _needs_shallow_copy,
    ),
    Workaround(
        "print",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_tensor_str.py#L117",
        (2, 11),
        None,
        "printing a tensor of floats converts it to float64 on the device, which a chip may lack",
        _apply_print,
        _needs_print,
    ),
    Workaround(
        "grad_scaler",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/amp/grad_scaler.py#L351",
        (2, 11),
        None,
        "GradScaler divides by its scale in float64 on the device, which a chip may lack",
        _apply_unscale,
        _needs_unscale,
    ),
    Workaround(
        "check_trace",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/jit/_trace.py#L566",
        (2, 11),
        None,
        "torch.jit.trace compares results in float64 on the device, which a chip may lack",
        _apply_check_trace,
        _needs_check_trace,
    ),
    Workaround(
        "multiprocessing",
        "https://github.com/pytorch/pytorch/issues/195964",
        (2, 11),
        None,
        "torch.multiprocessing sends only CPU and CUDA tensors: there is no hook for another "
        "device's memory",
        ipc.install,
        _needs_reducer,
    ),
    Workaround(
        "semi_structured",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/sparse/semi_structured.py#L250",
        (2, 11),
        None,
        "torch.sparse.to_sparse_semi_structured asks for CUDA by name, whatever device has its "
        "operators",
        _apply_semi_structured,
        _needs_semi_structured,
    ),
    Workaround(
        "fake_convolution",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_subclasses/fake_impls.py#L1821",
        (2, 11),
        None,
        "a convolution of fake tensors is dense, whatever the layout of its inputs: compiled code "
        "then copies each result in channels_last",
        _apply_fake_convolution,
        _needs_fake_convolution,
    ),
)

_in_force: list[Workaround] = []


def apply() -> None:
    """Apply, once, those that the installed torch needs by its version."""
    version = _version()
    for entry in ALL:
        if entry in _in_force or version < entry.since:
            continue
        if entry.until is None or version < entry.until:
            entry.apply()
            _in_force.append(entry)


def in_force() -> list[Workaround]:
    """Those that were applied in this process."""
    return list(_in_force)
