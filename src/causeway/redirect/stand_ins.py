"""Stand-ins for names of torch.cuda that are NVIDIA's own: a program that calls them goes on.

Each does what its line in `targets.STAND_INS` says. One that drops what was asked for warns, once.
"""

from __future__ import annotations

import pickle
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from causeway import _C
from causeway.device.lazy import _lazy_init
from causeway.redirect.devices import Devices
from causeway.redirect.readings import NO_PROCESSES


def make(name: str, devices: Devices, module: Any) -> Any:
    """The stand-in for torch.cuda.`name`; `module` is what serves torch.cuda."""
    if name == "_utils._get_device_index":
        return module._get_device_index
    if name in _GRAPHS and devices.target != "cpu" and _captures():
        return getattr(module, name.rpartition(".")[2])
    if name.startswith("memory.") and devices.target != "cpu":
        return getattr(module.memory, name.removeprefix("memory."))
    return _NAMES[name]


_GRAPHS = frozenset(
    [
        "CUDAGraph",
        "graph",
        "graph_pool_handle",
        "graphs.make_graphed_callables",
        "make_graphed_callables",
    ]
)


def _captures() -> bool:
    """Whether device graphs are worth a try: without a compiler most operators run on the host,
    which no graph can hold."""
    return "code.v1" in _C.vendor_state().get("extensions", ())


# --- NVTX ---------------------------------------------------------------------------------------

_local = threading.local()
_ranges: dict[int, Any] = {}


def range_push(msg: str) -> int:
    stack = _local.__dict__.setdefault("stack", [])
    opened = torch.profiler.record_function(msg)
    opened.__enter__()  # type: ignore[no-untyped-call]
    stack.append(opened)
    return len(stack) - 1


def range_pop() -> int:
    stack = _local.__dict__.setdefault("stack", [])
    if not stack:
        return -1  # NVTX's answer
    stack.pop().__exit__(None, None, None)
    return len(stack)


def range_start(msg: str) -> int:
    opened = torch.profiler.record_function(msg)
    opened.__enter__()  # type: ignore[no-untyped-call]
    key = id(opened)
    _ranges[key] = opened
    return key


def range_end(range_id: int) -> None:
    opened = _ranges.pop(range_id, None)
    if opened is not None:
        opened.__exit__(None, None, None)


def mark(msg: str) -> None:
    with torch.profiler.record_function(msg):
        pass


@contextmanager
def nvtx_range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


# --- NVIDIA's profilers, the debug mode, the history of memory -----------------------------------


def profiler_start() -> None:
    pass


def profiler_stop() -> None:
    pass


@contextmanager
def profile() -> Iterator[None]:
    yield


class Cudart:
    """The part of CUDA's runtime that programs call by themselves."""

    def cudaProfilerStart(self) -> int:
        return 0

    def cudaProfilerStop(self) -> int:
        return 0

    def cudaHostRegister(self, ptr: int, size: int, flags: int) -> int:
        _lazy_init()
        _C.host_register(ptr, size)
        return 0

    def cudaHostUnregister(self, ptr: int) -> int:
        _C.host_unregister(ptr)
        return 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"cudart().{name} has no stand-in: it is of CUDA's own runtime")


def cudart() -> Cudart:
    return Cudart()


_sync_mode = 0


def set_sync_debug_mode(debug_mode: int | str) -> None:
    global _sync_mode
    words = {"default": 0, "warn": 1, "error": 2}
    mode = words.get(debug_mode, debug_mode) if isinstance(debug_mode, str) else debug_mode
    if mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode: {debug_mode!r}")
    if mode:
        _dropped("set_sync_debug_mode", "calls that wait are not reported")
    _sync_mode = int(mode)


def get_sync_debug_mode() -> int:
    return _sync_mode


def record_memory_history(*args: Any, **kwargs: Any) -> None:
    if not args or args[0] is not None:
        _dropped("memory._record_memory_history", "no history is kept")


def snapshot(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """A snapshot of an allocator that holds nothing, in the form that torch's viewers read."""
    return {
        "segments": [],
        "device_traces": [],
        "allocator_settings": {},
        "external_annotations": [],
    }


def dump_snapshot(filename: str = "dump_snapshot.pickle", *args: Any, **kwargs: Any) -> None:
    with open(filename, "wb") as file:
        pickle.dump(snapshot(), file)


def sleep(cycles: int) -> None:
    pass


def list_gpu_processes(device: Any = None) -> str:
    """A text, as torch gives one where it cannot ask NVML."""
    return f"{NO_PROCESSES}; its vendor's own tool may"


def _dropped(name: str, what: str) -> None:
    warnings.warn(
        f"torch.cuda.{name} has no effect on this device: {what}", UserWarning, stacklevel=4
    )


# --- graphs -------------------------------------------------------------------------------------


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result


class CUDAGraph:
    """A sequence of operators that was recorded once and is called again by `replay`.

    As with CUDA, tensors keep their places: inputs are read anew, and results are written to the
    tensors that the capture made. Operators still run one by one, so it is no faster than without.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._recorder: _Recorder | None = None
        self._calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        self._recorder = _Recorder()
        self._recorder.__enter__()  # type: ignore[no-untyped-call]

    def capture_end(self) -> None:
        if self._recorder is None:
            raise RuntimeError("capture_end() without capture_begin()")
        recorder, self._recorder = self._recorder, None
        recorder.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._calls = recorder.calls

    def replay(self) -> None:
        """Call what was recorded once more."""
        with torch.no_grad():
            for func, args, kwargs, former in self._calls:
                if _is_view(func):
                    continue  # it still looks at the same memory
                result = func(*args, **kwargs)
                for old, new in zip(_tensors(former), _tensors(result), strict=True):
                    if old is not new and old.data_ptr() != new.data_ptr():
                        old.detach().copy_(new)

    def reset(self) -> None:
        """Forget what was recorded."""
        self._calls = []

    def pool(self) -> tuple[int, int]:
        """A name for the graph's memory, which it does not keep apart."""
        return (0, id(self))

    def instantiate(self) -> None:
        """Nothing is left to do."""

    def enable_debug_mode(self) -> None:
        """Nothing to show."""

    def debug_dump(self, debug_path: str) -> None:
        """Write the names of the recorded operators."""
        with open(debug_path, "w") as file:
            file.writelines(f"{call[0]}\n" for call in self._calls)


def _is_view(func: Any) -> bool:
    return bool(func.is_view)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


class graph:
    """Context manager that captures into a CUDAGraph."""

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        **kwargs: Any,
    ) -> None:
        self.cuda_graph = cuda_graph
        self.stream = torch.cuda.stream(stream) if stream is not None else None

    def __enter__(self) -> None:
        torch.cuda.synchronize()
        if self.stream is not None:
            self.stream.__enter__()  # type: ignore[no-untyped-call]
        self.cuda_graph.capture_begin()

    def __exit__(self, *args: Any) -> None:
        self.cuda_graph.capture_end()
        if self.stream is not None:
            self.stream.__exit__(*args)


def graph_pool_handle() -> tuple[int, int]:
    return (0, 1)


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    return callables


_NAMES: dict[str, Callable[..., Any] | types.FunctionType | type] = {
    "CUDAGraph": CUDAGraph,
    "memory._dump_snapshot": dump_snapshot,
    "memory._record_memory_history": record_memory_history,
    "memory._snapshot": snapshot,
    "_sleep": sleep,
    "cudart": cudart,
    "get_sync_debug_mode": get_sync_debug_mode,
    "graph": graph,
    "graph_pool_handle": graph_pool_handle,
    "graphs.make_graphed_callables": make_graphed_callables,
    "list_gpu_processes": list_gpu_processes,
    "make_graphed_callables": make_graphed_callables,
    "nvtx.mark": mark,
    "nvtx.range": nvtx_range,
    "nvtx.range_end": range_end,
    "nvtx.range_pop": range_pop,
    "nvtx.range_push": range_push,
    "nvtx.range_start": range_start,
    "profiler.profile": profile,
    "profiler.start": profiler_start,
    "profiler.stop": profiler_stop,
    "set_sync_debug_mode": set_sync_debug_mode,
}
