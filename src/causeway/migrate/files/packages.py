"""Packages that exist for CUDA alone, or in builds for CUDA: what it costs to do without, and how.

`effort` is hours (another package, or a line), days (calls have to be rewritten) or weeks (kernels
have to be written, or the thing has no equal).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Effort = Literal["hours", "days", "weeks"]


@dataclass(frozen=True)
class Package:
    """A package: its names on the index (patterns), what it is imported as, and what to do."""

    names: str
    imports: tuple[str, ...]
    effort: Effort
    alternative: str
    portable: bool = False  # works elsewhere too, with less


_SDPA = "torch.nn.functional.scaled_dot_product_attention; for variable lengths, nested tensors"
_TRITON = "torch's own operators, or a Triton backend of the vendor's"
_TABLE = (
    Package("flash-attn|flash-attention|flash-attn-3", ("flash_attn",), "hours", _SDPA),
    Package("xformers", ("xformers",), "days", _SDPA + "; its other parts have no equal"),
    Package("triton|triton-nightly|pytorch-triton", ("triton",), "days", _TRITON),
    Package("apex|nvidia-apex", ("apex",), "hours",
            "torch.amp for apex.amp, torch.nn.LayerNorm and fused=True optimizers for its layers, "
            "DistributedDataParallel for its own"),
    Package("bitsandbytes", ("bitsandbytes",), "days",
            "torchao's quantization, torch.optim.AdamW for its 8-bit optimizers (more memory)"),
    Package("nvidia-dali.*", ("nvidia.dali",), "days",
            "torch.utils.data with torchvision.transforms.v2 on the host"),
    Package(r"cupy(-cuda\d+x?|-rocm.*)?", ("cupy", "cupyx"), "days",
            "torch's operators, which share memory with others by DLPack"),
    Package("pycuda", ("pycuda",), "weeks", "torch.Stream and torch's operators; kernels anew"),
    Package("numba-cuda", ("numba.cuda",), "weeks", "torch's operators; kernels anew"),
    Package("cuda-python|cuda-bindings|cuda-core", ("cuda",), "weeks", "torch.accelerator"),
    Package("pynvml|nvidia-ml-py3?|gpustat|gputil|nvitop", ("pynvml", "GPUtil"), "hours",
            "torch.accelerator.get_memory_info and the vendor's tool"),
    Package("nvtx", ("nvtx",), "hours", "torch.profiler.record_function"),
    Package("tensorrt.*|torch-tensorrt|torch2trt|nvidia-tensorrt", ("tensorrt", "torch_tensorrt"),
            "weeks", "torch.export, and the vendor's compiler for what it gives"),
    Package("transformer-engine.*", ("transformer_engine",), "weeks",
            "torch.nn layers with torch.amp; its fp8 recipes have no equal"),
    Package("deepspeed", ("deepspeed",), "days",
            "it has accelerators for several vendors (DS_ACCELERATOR); else torch's FSDP",
            portable=True),
    Package("megatron-core|megatron-lm", ("megatron",), "weeks",
            "the vendor's fork, or torch's FSDP and tensor parallelism"),
    Package("vllm|vllm-flash-attn", ("vllm",), "days", "vllm's plugin for the vendor's device"),
    Package("onnxruntime-gpu", ("onnxruntime",), "hours",
            "onnxruntime, with the vendor's execution provider"),
    Package("faiss-gpu.*", ("faiss",), "hours", "faiss-cpu"),
    Package("tensorflow-gpu|paddlepaddle-gpu", (), "hours", "the build without -gpu"),
    Package("torch-scatter|torch-sparse|torch-cluster|torch-spline-conv|pyg-lib",
            ("torch_scatter", "torch_sparse", "torch_cluster"), "days",
            "torch.scatter_reduce, torch_geometric's own fallbacks; on the host they work"),
    Package(r"spconv.*|cumm.*|torchsparse|minkowskiengine", ("spconv", "torchsparse"), "weeks",
            "no equal in torch: dense convolutions where they fit, else kernels anew"),
    Package(r"mmcv-full|mmcv", ("mmcv",), "days",
            "mmcv builds its operators for some vendors (MMCV_WITH_OPS=1); torchvision.ops",
            portable=True),
    Package("detectron2", ("detectron2",), "days",
            "it works without its CUDA operators but for a few (deformable convolution)",
            portable=True),
    Package("pytorch3d|kaolin|nvdiffrast", ("pytorch3d", "kaolin", "nvdiffrast"), "weeks",
            "pytorch3d has operators for the CPU; rasterizers have to be written anew"),
    Package("tinycudann|tiny-cuda-nn|gsplat|diff-gaussian-rasterization|simple-knn|nerfacc",
            ("tinycudann", "gsplat", "diff_gaussian_rasterization", "simple_knn"), "weeks",
            "torch modules of the same form are slower; rasterizers have to be written anew"),
    Package("auto-gptq|autoawq|gptqmodel|exllamav2", ("auto_gptq", "awq"), "days",
            "torchao's quantization, or the unquantized weights"),
    Package("mamba-ssm|causal-conv1d|flash-linear-attention", ("mamba_ssm", "causal_conv1d"),
            "weeks", "the plain versions in transformers are slower; kernels anew"),
    Package("natten|unsloth|liger-kernel|flashinfer.*|sageattention|quanto",
            ("natten", "unsloth", "liger_kernel", "flashinfer"), "days", _TRITON),
    Package("cudf.*|cuml.*|cugraph.*|rmm.*|dask-cuda|cucim.*", ("cudf", "cuml"), "days",
            "pandas, scikit-learn and networkx on the host"),
    Package(r"dgl-cu.*|jax-cuda.*|jaxlib-cuda.*|mxnet-cu\d+", (), "days",
            "the build without CUDA"),
    Package("horovod", ("horovod",), "days", "torch.nn.parallel.DistributedDataParallel",
            portable=True),
    Package("nvidia-modelopt|nemo-toolkit|nvidia-resiliency-ext|warp-lang",
            ("modelopt", "nemo", "warp"), "weeks", "no equal in torch"),
)  # fmt: skip

_NAMES = [(re.compile(rf"(?:{package.names})\Z", re.IGNORECASE), package) for package in _TABLE]
# Parts of CUDA itself; the packages of the table above go first.
_PARTS = re.compile(
    r"(?:nvidia-[\w-]+?-cu1\d|nvidia-(?:cublas|cuda|cudnn|cufft|curand|cusolver|cusparse|nccl|"
    r"nvjitlink|nvtx|cufile|cusparselt|nvshmem)[\w-]*|cudatoolkit(?:-dev)?|pytorch-cuda|"
    r"cuda-(?!python|bindings|core)[\w-]+|cuda|cudnn|nccl|pytorch-gpu)\Z",
    re.IGNORECASE,
)


def find(name: str) -> Package | None:
    """The package with this name on the index, or None."""
    spelled = re.sub(r"[-_.]+", "-", name).lower()
    return next((package for pattern, package in _NAMES if pattern.match(spelled)), None)


def imported_as(module: str) -> Package | None:
    """The package that `import module` needs, or None."""
    for package in _TABLE:
        if any(module == name or module.startswith(f"{name}.") for name in package.imports):
            return package
    return None


def is_part_of_cuda(name: str) -> bool:
    """Whether a package is CUDA itself: its runtime, one of its libraries."""
    return bool(_PARTS.match(re.sub(r"[-_.]+", "-", name).lower()))
