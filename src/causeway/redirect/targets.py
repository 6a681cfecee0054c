"""What is redirected, as a table. The page docs/transfer.md and most tests are written from it.

A row names one function, method, class or value of torch by its dotted path, says how it is
replaced (a key of `replacements.HOW`), and has an expression that is true while CUDA is redirected.
The names of torch.cuda itself come from `device/names.py`; rows here are those that need more.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One name that is replaced."""

    name: str
    how: str = "argument"
    argument: str = "device"  # whose value is a device
    position: int | None = None  # of the argument where it may come without its name
    says: str = ""  # what a reader of the docs should know
    example: str = ""  # true while CUDA is redirected; `d` is the real device's type


def _made(name: str, call: str, position: int | None = None) -> Target:
    example = f'torch.{name}({call}device="cuda").is_cuda'
    return Target(f"torch.{name}", position=position, example=example)


# Factories: the device is taken by its name, or at the position given.
_CSR = "[0, 1], [0], [1.0], "
FACTORIES = (
    _made("arange", "3, "),
    _made("as_tensor", "[1.0], ", position=2),
    _made("asarray", "[1.0], "),
    _made("bartlett_window", "3, "),
    _made("blackman_window", "3, "),
    _made("empty", "2, "),
    _made("empty_like", "torch.ones(2), "),
    _made("empty_permuted", "(2, 3), (1, 0), "),
    Target("torch.empty_quantized"),
    _made("empty_strided", "(2,), (1,), "),
    _made("eye", "2, "),
    Target("torch.from_file", says="a mapped file is in host memory, on CUDA too"),
    _made("full", "(2,), 1.0, "),
    _made("full_like", "torch.ones(2), 3.0, "),
    _made("hamming_window", "3, "),
    _made("hann_window", "3, "),
    Target("torch.kaiser_window"),
    _made("linspace", "0, 1, 3, "),
    _made("logspace", "0, 1, 3, "),
    _made("normal", "0.0, 1.0, (2,), "),
    _made("ones", "2, "),
    _made("ones_like", "torch.ones(2), "),
    _made("rand", "2, "),
    _made("rand_like", "torch.ones(2), "),
    _made("randint", "5, (2,), "),
    _made("randint_like", "torch.ones(2), 5, "),
    _made("randn", "2, "),
    _made("randn_like", "torch.ones(2), "),
    _made("randperm", "3, "),
    Target("torch.range", says="deprecated by torch"),
    _made("scalar_tensor", "1.0, "),
    Target("torch.sparse_bsc_tensor"),
    Target("torch.sparse_bsr_tensor"),
    Target("torch.sparse_compressed_tensor"),
    _made("sparse_coo_tensor", "[[0]], [1.0], "),
    Target("torch.sparse_csc_tensor"),
    _made("sparse_csr_tensor", _CSR),
    _made("tensor", "[1.0], "),
    _made("tril_indices", "2, 2, "),
    _made("triu_indices", "2, 2, "),
    _made("zeros", "2, "),
    _made("zeros_like", "torch.ones(2), "),
    Target("torch._efficientzerotensor"),
    Target("torch._empty_affine_quantized"),
    Target("torch._empty_per_channel_affine_quantized"),
    Target("torch.from_dlpack"),
    _made("fft.fftfreq", "3, "),
    _made("fft.rfftfreq", "3, "),
    Target("torch.nested.nested_tensor"),
    Target("torch.nested.as_nested_tensor", position=2),
)

# Methods of tensors and storages.
METHODS = (
    Target("torch.Tensor.cuda", "move", example="torch.ones(2).cuda(0).is_cuda"),
    Target("torch.Tensor.to", position=1, example='torch.ones(2).to("cuda:0").is_cuda'),
    Target(
        "torch.Tensor.type",
        "type",
        says='`"torch.cuda.FloatTensor"` both ways',
        example='torch.ones(2).cuda().type() == "torch.cuda.FloatTensor"',
    ),
    Target("torch.Tensor.new_empty", example='torch.ones(2).new_empty(2, device="cuda").is_cuda'),
    Target("torch.Tensor.new_empty_strided"),
    Target(
        "torch.Tensor.new_full", example='torch.ones(2).new_full((2,), 1, device="cuda").is_cuda'
    ),
    Target("torch.Tensor.new_ones", example='torch.ones(2).new_ones(2, device="cuda").is_cuda'),
    Target(
        "torch.Tensor.new_tensor", example='torch.ones(2).new_tensor([1], device="cuda").is_cuda'
    ),
    Target("torch.Tensor.new_zeros", example='torch.ones(2).new_zeros(2, device="cuda").is_cuda'),
    Target("torch.Tensor.pin_memory", "pin", position=1),
    Target("torch.Tensor.is_pinned", "pin", position=1),
    Target("torch.Tensor.record_stream", "record stream"),
    Target(
        "torch._C._nn._parse_to",
        "plain",  # the compiler has an entry for it, and takes nothing else there
        position=0,
        says="what `Module.to` reads its arguments with; `Module.cuda` uses `Tensor.cuda`",
        example='torch.nn.Linear(2, 2).to("cuda").weight.is_cuda',
    ),
    Target(
        "torch.storage._StorageBase.to", example="torch.ones(2).untyped_storage().cuda().is_cuda"
    ),
)

# What a program reads.
VIEW = (
    Target(
        "torch.Tensor.device",
        "device",
        says='reads "cuda" in a program and in its libraries, the real device in torch\'s own code',
        example='torch.ones(2).cuda().device == torch.device("cuda:0")',
    ),
    Target("torch.Tensor.is_cuda", "is_cuda", example="torch.ones(2).cuda().is_cuda"),
    Target("torch.UntypedStorage.device", "device"),
    Target("torch.UntypedStorage.is_cuda", "is_cuda"),
    Target("torch.TypedStorage.device", "device"),
    Target("torch.TypedStorage.is_cuda", "is_cuda"),
    Target(
        "torch.Generator.device",
        "device",
        example='torch.Generator("cuda").device == torch.device("cuda:0")',
    ),
    Target(
        "torch.Stream.device",
        "device",
        says="of `torch.cuda.Stream` too",
        example='torch.cuda.Stream().device == torch.device("cuda:0")',
    ),
    Target(
        "torch.Event.device",
        "device",
        says="of `torch.cuda.Event` too",
        example='torch.Event("cuda").device.type == "cuda"',
    ),
    Target(
        "torch.accelerator.current_accelerator",
        "returns",
        example='torch.accelerator.current_accelerator().type == "cuda"',
    ),
    Target("torch.get_default_device", "returns"),
    Target(
        "torch.version.cuda",
        "version",
        says='"12.6", since a program takes None for a torch that has no CUDA',
        example='torch.version.cuda == "12.6"',
    ),
    Target(
        "torch.backends.cuda.is_built",
        "true",
        says="agrees with `torch.cuda.is_available()`",
        example="torch.backends.cuda.is_built()",
    ),
)

# Classes and functions with a device or a device's type among their arguments.
OTHERS = (
    Target(
        "torch.Generator",
        "class",
        position=0,
        example='torch.rand(2, device="cuda", generator=torch.Generator("cuda")).is_cuda',
    ),
    Target("torch.Stream", "class", position=0),
    Target("torch.Event", "class", position=0),
    Target(
        "torch.utils._device.DeviceContext.__init__",
        position=1,
        says="`with torch.device(...)` and `torch.set_default_device`",
        example='[torch.set_default_device(d) or torch.ones(2) for d in ("cuda", None)][0].is_cuda',
    ),
    Target(
        "torch.set_default_tensor_type",
        "default type",
        says="of a CUDA type: the default dtype and the default device",
    ),
    Target(
        "torch.amp.autocast_mode.autocast.__init__",
        argument="device_type",
        position=1,
        says="`torch.autocast`, and `torch.cuda.amp.autocast`, a subclass",
        example='torch.autocast("cuda").device == d',
    ),
    Target(
        "torch.amp.grad_scaler.GradScaler.__init__",
        "scaler",
        position=1,
        says='`torch.cuda.amp.GradScaler` too; the default is "cuda"',
        example="torch.amp.GradScaler()._device == d",
    ),
    Target("torch.amp.custom_fwd", argument="device_type"),
    Target("torch.amp.custom_bwd", argument="device_type"),
    Target("torch.amp.is_autocast_available", argument="device_type", position=0),
    Target("torch.is_autocast_enabled", "autocast state", argument="device_type", position=0),
    Target("torch.get_autocast_dtype", argument="device_type", position=0),
    Target("torch.set_autocast_dtype", argument="device_type", position=0),
    Target("torch.set_autocast_enabled", "autocast switch", argument="device_type", position=0),
    Target("torch.get_autocast_gpu_dtype", "autocast state"),
    Target("torch.set_autocast_gpu_dtype", "autocast switch"),
    Target(
        "torch.get_device_module",
        position=0,
        example='torch.get_device_module("cuda").is_available()',
    ),
    Target(
        "torch.random.fork_rng",
        argument="device_type",
        says='its default, "cuda", is `torch.cuda`, which is redirected',
    ),
    Target(
        "torch.utils.data.DataLoader.__init__",
        "loader",
        argument="pin_memory_device",
        says="deprecated by torch",
    ),
    Target("torch.jit.load", argument="map_location", position=1),
    Target(
        "torch._utils._get_available_device_type",
        "name",
        says="what `nn.DataParallel` asks",
        example="torch._utils._get_available_device_type() == d",
    ),
    Target("torch._utils._rebuild_device_tensor_from_numpy", position=2),
    Target(
        "torch.accelerator._utils._get_device_index",
        position=0,
        says="what the functions of `torch.accelerator` on memory and capability ask",
        example='torch.accelerator.memory_allocated("cuda:0") >= 0',
    ),
    Target(
        "torch.profiler.profiler._KinetoProfile.__init__",
        "activities",
        argument="activities",
        says="of `torch.profiler.profile`: `ProfilerActivity.CUDA` is the device's activity",
    ),
    Target(
        "torch.profiler.supported_activities",
        "supported",
        example="torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities()",
    ),
    Target(
        "torch.autograd.profiler.profile.__init__",
        "events",
        argument="use_device",
        says="`use_cuda` too",
        example='torch.autograd.profiler.profile(use_device="cuda").use_device == d',
    ),
    Target(
        "torch.autograd.profiler.emit_nvtx.__init__",
        "emit nvtx",
        says="sends no ranges, which NVIDIA's tools would read; a warning says so",
    ),
    Target("torch.accelerator.set_device_index", position=0),
    Target("torch.accelerator.current_stream", position=0),
    Target("torch.accelerator.synchronize", position=0),
)

DISTRIBUTED = (
    Target(
        "torch.distributed.init_process_group",
        "init group",
        says='"nccl" becomes what the device has, see below',
    ),
    Target(
        "torch.nn.parallel.DistributedDataParallel.__init__",
        "parallel",
        says="with target cpu, device_ids and output_device are dropped",
    ),
    Target("torch.distributed.new_group", "group", argument="backend", position=2),
    Target(
        "torch.distributed.is_nccl_available",
        "true",
        example="torch.distributed.is_nccl_available()",
    ),
    Target(
        "torch.cuda.nccl.version",
        "nccl version",
        says="(2, 27, 7), since programs print it or compare it; there is no NCCL",
        example="torch.cuda.nccl.version() == (2, 27, 7)",
    ),
    Target(
        "torch.distributed.is_backend_available",
        "backend available",
        example='torch.distributed.is_backend_available("nccl")',
    ),
    Target("torch.distributed.get_backend", "backend name"),
    Target(
        "torch.distributed.device_mesh.init_device_mesh",
        argument="device_type",
        position=0,
    ),
    Target(
        "torch.distributed.device_mesh.DeviceMesh.__init__",
        argument="device_type",
        position=1,
    ),
)

SECTIONS: dict[str, tuple[Target, ...]] = {
    "Factories": FACTORIES,
    "Methods": METHODS,
    "What a program reads": VIEW,
    "Classes and functions": OTHERS,
    "torch.distributed": DISTRIBUTED,
}
ALL: tuple[Target, ...] = tuple(row for rows in SECTIONS.values() for row in rows)

# Names below torch.cuda that no other device has, and what stands in for them.
STAND_INS: dict[str, str] = {
    "CUDAGraph": "the device's; where the vendor has no compiler it records operators while it "
    "captures, and calls them again to replay: no faster",
    "memory._dump_snapshot": "the device's; with target cpu a snapshot of nothing",
    "memory._record_memory_history": "the device's; with target cpu no history is kept; a warning "
    "says so",
    "memory._snapshot": "the device's; with target cpu a snapshot of nothing",
    "_sleep": "returns at once",
    "_utils._get_device_index": "",
    "cudart": "cudaProfilerStart and cudaProfilerStop, which do nothing; cudaHostRegister and "
    "cudaHostUnregister",
    "get_sync_debug_mode": "what was set",
    "graph": "see `CUDAGraph`",
    "graph_pool_handle": "see `CUDAGraph`",
    "graphs.make_graphed_callables": "the device's; where the vendor has no compiler it gives the "
    "callables back as they are",
    "list_gpu_processes": "says that the device does not tell its processes",
    "make_graphed_callables": "see `graphs.make_graphed_callables`",
    "nvtx.mark": "torch.profiler.record_function",
    "nvtx.range": "torch.profiler.record_function",
    "nvtx.range_end": "torch.profiler.record_function",
    "nvtx.range_pop": "torch.profiler.record_function",
    "nvtx.range_push": "torch.profiler.record_function",
    "nvtx.range_start": "torch.profiler.record_function",
    "profiler.profile": "does nothing; use torch.profiler",
    "profiler.start": "does nothing; use torch.profiler",
    "profiler.stop": "does nothing; use torch.profiler",
    "set_sync_debug_mode": "kept, without effect; a warning says so",
}
