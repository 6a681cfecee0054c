"""DeepSpeed: an accelerator for the device, set before DeepSpeed looks at its list of vendors.

DeepSpeed asks one object for everything of a device, `get_accelerator()`, and takes one from
outside by `set_accelerator`. Its fused operators are C++ for each vendor; here Adam is torch's
fused one, and the others say that they are not there (see deepspeed_ops). DS_ACCELERATOR still
decides.
"""

from __future__ import annotations

import importlib
import inspect
import os
import types
from collections.abc import Callable
from typing import Any

import torch

from causeway import integrations

# Methods that are torch.<name>'s own functions, under the same names.
FUNCTIONS = (
    *("current_device", "set_device", "device_count", "is_available", "synchronize"),
    *("get_rng_state", "initial_seed", "manual_seed", "manual_seed_all"),
    *("stream", "current_stream", "default_stream"),
    *("empty_cache", "memory_stats", "reset_peak_memory_stats", "is_bf16_supported"),
    *("memory_allocated", "max_memory_allocated", "reset_max_memory_allocated"),
    *("memory_reserved", "max_memory_reserved"),
    *("memory_cached", "max_memory_cached", "reset_max_memory_cached"),
)
# Properties that are its classes.
CLASSES = (
    *("BFloat16Tensor", "ByteTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor"),
    *("LongTensor", "Stream", "Event"),
)
OPERATORS = "causeway.integrations.deepspeed_ops"


def _module() -> Any:
    return torch.get_device_module(integrations.state.device)


def _function(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(_module(), name)(*args, **options)

    call.__name__ = name
    return call


def _class(name: str) -> property:
    return property(lambda self: getattr(_module(), name))


class _Methods:
    """What DeepSpeed asks, where it is more than a call of torch.<name>'s function."""

    def __init__(self) -> None:
        super().__init__()
        self._name = integrations.state.device
        self._communication_backend_name = (
            torch.distributed.get_default_backend_for_device(self._name)
            if self._name in torch.distributed.Backend.default_device_backend_map
            else "gloo"
        )
        self._compile_backend = "aot_eager"
        self._builders: dict[str, type] | None = None

    # --- what it is -------------------------------------------------------------------------------

    def is_synchronized_device(self) -> bool:
        """Return False: calls return before the work is done, as on CUDA."""
        return False

    use_host_timers = is_synchronized_device
    resolves_data_dependency = is_synchronized_device
    handles_memory_backpressure = is_synchronized_device

    def device_name(self, device_index: int | None = None) -> str:
        """Return "sim", or "sim:1" for an index."""
        return self._name if device_index is None else f"{self._name}:{device_index}"

    def device(self, device_index: int | None = None) -> Any:
        """Return a context in which the device is the current one, as DeepSpeed's for CUDA does."""
        return _module().device(device_index)

    def current_device_name(self) -> str:
        """Return "sim:0"."""
        return self.device_name(_module().current_device())

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is on the device."""
        return tensor.device.type == self._name

    # --- random numbers, memory, dtypes -----------------------------------------------------------

    def random(self) -> Any:
        """Return torch.random."""
        return torch.random

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        """Set the random state of a device, the current one by default."""
        _module().set_rng_state(new_state, self._name if device_index is None else device_index)

    def default_generator(self, device_index: int) -> torch.Generator:
        """Return the generator of a device."""
        generator: torch.Generator = _module().default_generators[device_index]
        return generator

    def total_memory(self, device_index: int | None = None) -> int:
        """Return the bytes of a device, the current one by default."""
        return int(_module().get_device_properties(device_index).total_memory)

    def available_memory(self, device_index: int | None = None) -> int:
        """Return the bytes that are free."""
        return int(_module().mem_get_info(device_index)[0])

    def supported_dtypes(self) -> list[torch.dtype]:
        """Return those of DeepSpeed's three dtypes that the chip has."""
        has = _module().get_device_properties().dtypes
        return [d for d in (torch.float32, torch.float16, torch.bfloat16) if d in has]

    def is_fp16_supported(self) -> bool:
        """Return whether the chip has float16."""
        return torch.float16 in self.supported_dtypes()

    def is_fp64_supported(self) -> bool:
        """Return whether the chip has float64."""
        return torch.float64 in _module().get_device_properties().dtypes

    # --- ranges, calls, graphs --------------------------------------------------------------------

    def range_push(self, msg: str, domain: Any = None, category: Any = None) -> None:
        """Do nothing: use torch.profiler.record_function."""

    def range_pop(self, domain: Any = None) -> None:
        """Do nothing."""

    def lazy_call(self, callback: Callable[[], None]) -> None:
        """Call when the device is opened, or now."""
        _module()._lazy_call(callback)

    def is_triton_supported(self) -> bool:
        """Return False."""
        return False

    def create_graph(self) -> Any:
        """Return a graph that holds nothing yet."""
        return _module().CUDAGraph()

    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Any:
        """Return a context manager that captures its body into `graph`."""
        return _module().graph(graph, pool, stream)

    def replay_graph(self, graph: Any) -> None:
        """Put the captured work on the current stream."""
        graph.replay()

    # --- processes --------------------------------------------------------------------------------

    def communication_backend_name(self) -> str:
        """Return torch.distributed's backend for the device; gloo where it has none."""
        return self._communication_backend_name

    def export_envs(self) -> list[str]:
        """Return the beginnings of names of variables that other hosts get."""
        return ["CAUSEWAY", "LD_LIBRARY", "PATH"]

    def visible_devices_envs(self) -> list[str]:
        """Return the variable that hides devices."""
        return ["CAUSEWAY_VISIBLE_DEVICES"]

    def set_visible_devices_envs(
        self, current_env: dict[str, str], local_accelerator_ids: list[int]
    ) -> None:
        """Let a process see these devices only."""
        for name in self.visible_devices_envs():
            current_env[name] = ",".join(map(str, local_accelerator_ids))

    # --- operators, compilation -------------------------------------------------------------------

    def op_builder_dir(self) -> str:
        """Return the package of the builders."""
        return OPERATORS

    def get_op_builder(self, class_name: str) -> type:
        """Return the builder of an operator; one that says so where there is none."""
        if self._builders is None:
            package = importlib.import_module(OPERATORS)
            self._builders = dict(inspect.getmembers(package, inspect.isclass))
        return self._builders.get(class_name, self._builders["NotImplementedBuilder"])

    def create_op_builder(self, class_name: str) -> Any:
        """Return an instance of it."""
        return self.get_op_builder(class_name)()

    def build_extension(self) -> Any:
        """Return torch's builder of extensions."""
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    def get_compile_backend(self) -> str:
        """Return the backend of torch.compile."""
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        """Choose another; raise ValueError for one that torch does not have."""
        known = torch._dynamo.list_backends(exclude_tags=())
        if backend not in known:
            raise ValueError(f"there is no backend {backend!r} of torch.compile: {known}")
        self._compile_backend = backend


def accelerator(base: type) -> type:
    """A class of DeepSpeed's `base` for the device, with every method that is abstract there."""
    members: dict[str, Any] = {name: _function(name) for name in FUNCTIONS}
    members |= {name: _class(name) for name in CLASSES}
    members["__module__"] = __name__
    made = type(f"{integrations.state.device.upper()}_Accelerator", (_Methods, base), members)
    missing = sorted(getattr(made, "__abstractmethods__", ()))
    if missing:
        raise LookupError(f"DeepSpeed's accelerator has more to be defined: {', '.join(missing)}")
    return made


def _loaded(module: types.ModuleType) -> None:
    if module.__name__ != "deepspeed.accelerator.real_accelerator":
        return
    name = integrations.state.device
    if os.environ.get("DS_ACCELERATOR", name) != name or not _module().is_available():
        return  # somebody wants another, or there is nothing to be had
    base = importlib.import_module("deepspeed.accelerator.abstract_accelerator")
    module.SUPPORTED_ACCELERATOR_LIST.append(name)
    module.set_accelerator(accelerator(base.DeepSpeedAccelerator)())
    integrations.note("deepspeed", f"get_accelerator() is {name.upper()}_Accelerator")


INTEGRATION = integrations.Integration(
    ("0.19.8", "0.19.8"), "get_accelerator() gives one for the device", _loaded
)
