"""Every public name of torch.cuda: it works on this device, or it does not, because.

The table of docs/device.md is written from here (`python -m causeway.device --markdown`), and a
test holds it against the installed torch. A name that does not work raises AttributeError with its
reason, so hasattr() tells the truth. The names are those of all releases that Causeway supports;
RELEASES says of which, where that is not all of them.
"""

from __future__ import annotations

OLDEST = (2, 11)  # the first torch that Causeway supports

# --- works --------------------------------------------------------------------------------------

_SENSORS = "VendorError where the vendor's library does not say"

# Name: what differs from torch.cuda, if anything.
WORKS: dict[str, str] = {
    # selection
    "can_device_access_peer": "False where the vendor does not say; copies work in any case",
    "clock_rate": _SENSORS,
    "current_device": "",
    "device": "",
    "device_count": "",
    "device_of": "",
    "get_arch_list": "always []: the vendor's library holds the kernels",
    "get_device_capability": "the vendor's numbers, not compute capabilities",
    "get_device_name": "",
    "get_device_properties": "also dtypes, host_addressable, alignment, padding, and whatever "
    "key the vendor's library knows; AttributeError for what it does not",
    "get_gencode_flags": "always empty",
    "init": "",
    "is_available": "",
    "is_bf16_supported": "",
    "is_initialized": "",
    "is_tf32_supported": "always False: the format is NVIDIA's",
    "ipc_collect": "",
    "memory_usage": _SENSORS,
    "power_draw": _SENSORS,
    "set_device": "",
    "synchronize": "",
    "temperature": _SENSORS,
    "utilization": _SENSORS,
    # streams and events
    "Event": "makes a torch.Event; not interprocess=True",
    "ExternalStream": "by the vendor's handle",
    "Stream": "",
    "StreamContext": "",
    "current_stream": "",
    "default_stream": "",
    "get_stream_from_external": "by the vendor's handle",
    "get_sync_debug_mode": "",
    "set_stream": "",
    "set_sync_debug_mode": "warns of, or refuses, every wait of the host for a stream with work, "
    "also one that the program asks for",
    "stream": "",
    "streams": "",
    # graphs
    "CUDAGraph": "its capture refuses what runs on the host; no raw_cuda_graph (docs/graphs.md)",
    "graph": "",
    "graph_pool_handle": "",
    "graphs": "",
    "is_current_stream_capturing": "",
    "make_graphed_callables": "",
    # memory
    "AcceleratorError": "torch's",
    "MemPool": "no allocator of the program's",
    "OutOfMemoryError": "torch's",
    "caching_allocator_alloc": "",
    "caching_allocator_delete": "",
    "device_memory_used": "",
    "empty_cache": "",
    "get_allocator_backend": "",
    "get_per_process_memory_fraction": "",
    "host_memory_stats": "",
    "host_memory_stats_as_nested_dict": "",
    "max_memory_allocated": "",
    "max_memory_cached": "deprecated",
    "max_memory_reserved": "",
    "mem_get_info": "",
    "memory": "",
    "memory_allocated": "",
    "memory_cached": "deprecated",
    "memory_reserved": "",
    "memory_snapshot": "stacks and events by _record_memory_history, as torch.cuda's",
    "memory_stats": "",
    "memory_stats_as_nested_dict": "",
    "memory_summary": "",
    "reset_accumulated_host_memory_stats": "",
    "reset_accumulated_memory_stats": "",
    "reset_max_memory_allocated": "deprecated",
    "reset_max_memory_cached": "deprecated",
    "reset_peak_host_memory_stats": "",
    "reset_peak_memory_stats": "",
    "set_per_process_memory_fraction": "",
    "use_mem_pool": "",
    # random numbers
    "default_generators": "",
    "get_rng_state": "",
    "get_rng_state_all": "",
    "initial_seed": "",
    "manual_seed": "",
    "manual_seed_all": "",
    "random": "",
    "seed": "",
    "seed_all": "",
    "set_rng_state": "",
    "set_rng_state_all": "",
    # mixed precision, several devices
    "amp": "",
    "comm": "by copies, one device after the other; use torch.distributed for speed",
    # typed names of old code
    "BFloat16Tensor": "",
    "BoolTensor": "",
    "ByteTensor": "",
    "CharTensor": "",
    "DoubleTensor": "",
    "FloatTensor": "not for torch.set_default_tensor_type; use torch.set_default_device",
    "HalfTensor": "",
    "IntTensor": "",
    "LongTensor": "",
    "ShortTensor": "",
    "BFloat16Storage": "deprecated",
    "BoolStorage": "deprecated",
    "ByteStorage": "deprecated",
    "CharStorage": "deprecated",
    "ComplexDoubleStorage": "deprecated",
    "ComplexFloatStorage": "deprecated",
    "DoubleStorage": "deprecated",
    "FloatStorage": "deprecated",
    "HalfStorage": "deprecated",
    "IntStorage": "deprecated",
    "LongStorage": "deprecated",
    "ShortStorage": "deprecated",
    "has_half": "",
    "has_magma": "always False",
}

# --- does not -----------------------------------------------------------------------------------

_RUNTIME = "it is of CUDA's own runtime"
_DOT = "debug_dump writes a graph's steps; there are no annotations"
_POOL = "memory comes from the vendor's mem_alloc, which a program cannot replace"
_SENSOR = "the contract's sensors are of devices, not of processes; ask the vendor's own tool"
_NVCC = "it describes NVIDIA's compiler and architectures"
_IMPORT = "it is no name of the interface: torch.cuda's source imports it"

NOT: dict[str, str] = {
    "CUDAPluggableAllocator": _POOL,
    "CudaError": _RUNTIME,
    "DEVICE_REQUIREMENT": _NVCC,
    "DEVICE_REQUIREMENT_POST_JETSON_SBSA_UNIFICATION": _NVCC,
    "DeferredCudaCallError": _RUNTIME + "; a late seed that fails raises DeferredCallError",
    "GreenContext": "a share of the chip's cores is CUDA's notion",
    "PYTORCH_RELEASES_CODE_CC": _NVCC,
    "caching_allocator_disabled": _POOL,
    "caching_allocator_enable": _POOL,
    "change_current_allocator": _POOL,
    "check_error": _RUNTIME,
    "cudaStatus": _RUNTIME,
    "cudart": _RUNTIME,
    "current_blas_handle": "it is a handle of cuBLAS",
    "current_solver_handle": "it is a handle of cuSOLVER",
    "export_dot": _DOT,
    "export_graph_data": _DOT,
    "gds": "GPUDirect Storage is NVIDIA's",
    "graph_annotations": _DOT,
    "green_contexts": "a share of the chip's cores is CUDA's notion",
    "jiterator": "it compiles CUDA source",
    "list_gpu_processes": _SENSOR,
    "nccl": "NCCL is NVIDIA's; use torch.distributed",
    "nvtx": "NVTX is NVIDIA's; use torch.profiler.record_function",
    "profiler": "it steers NVIDIA's profilers; use torch.profiler",
    "sparse": "it is empty",
    "tunable": "it tunes NVIDIA's and AMD's matrix libraries",
    **dict.fromkeys(
        (
            "Any",
            "Callable",
            "Device",
            "Enum",
            "NewType",
            "Optional",
            "TYPE_CHECKING",
            "Union",
            "auto",
            "cache",
            "cast",
            "classproperty",
            "glob",
            "importlib",
            "lru_cache",
            "os",
            "platform",
            "threading",
            "torch",
            "traceback",
            "warnings",
        ),
        _IMPORT,
    ),
}

# Names that not every supported torch has: the first release with it, the first without it again.
RELEASES: dict[str, tuple[tuple[int, int], tuple[int, int] | None]] = {
    "DEVICE_REQUIREMENT_POST_JETSON_SBSA_UNIFICATION": ((2, 14), None),
    "Enum": ((2, 15), None),
    "Union": ((2, 11), (2, 12)),
    "auto": ((2, 15), None),
    "cache": ((2, 15), None),
    "caching_allocator_disabled": ((2, 12), None),
    "current_solver_handle": ((2, 13), None),
    "export_dot": ((2, 14), None),
    "export_graph_data": ((2, 14), None),
    "glob": ((2, 14), None),
    "graph_annotations": ((2, 14), None),
    "platform": ((2, 13), None),
}

# Names that torch documents with an underscore, and libraries use; not in the table of docs.
PRIVATE_NOT: dict[str, str] = {
    "_compile_kernel": "the contract's code.v1, to compile source, is not used yet",
    "_sleep": "the contract has no kernel that waits",
}


def reason(name: str) -> str | None:
    """Why `name` of torch.cuda is not for this device, or None."""
    return NOT.get(name) or PRIVATE_NOT.get(name)


def markdown() -> str:
    """The page docs/device.md."""
    lines = [
        "# The device module, `torch.<name>`",
        "",
        "Written by `python -m causeway.device --markdown` from `src/causeway/device/names.py`.",
        "",
        "`torch.sim`, or whatever the device is called, has everything of `torch.cuda` that has a",
        "meaning for any device, with the same signatures. New code is served better by",
        "`torch.accelerator`, `torch.amp`, `torch.Stream` and `torch.Event`, which need no name. A",
        "name that is not for this device raises `AttributeError` with the reason below.",
        "",
        f"{len(WORKS)} names work, {len(NOT)} do not.",
        "",
        "| `torch.cuda.` | here |",
        "| --- | --- |",
    ]
    for name in sorted({**WORKS, **NOT}, key=lambda n: (n.lower(), n)):
        if name in NOT:
            here = f"not for this device, because {NOT[name]}"
        else:
            here = "works" + (f"; {WORKS[name]}" if WORKS[name] else "")
        if name in RELEASES:
            since, until = RELEASES[name]
            first = f" from torch {since[0]}.{since[1]} on" if since > OLDEST else ""
            last = f" before torch {until[0]}.{until[1]}" if until else ""
            here += f" (there{first}{last})"
        lines.append(f"| `{name}` | {here} |")
    return "\n".join(lines) + "\n"
