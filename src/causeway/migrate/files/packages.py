"""Packages that exist for CUDA alone, or in builds for CUDA: what it costs to do without, and how.

knowledge/packages.toml has them by the name that is imported, for Python's rules; here are the
names by which an index has them, and those that only an index has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from causeway.migrate import knowledge


@dataclass(frozen=True)
class Package:
    """What to do about a package. `effort` is hours, days or weeks."""

    effort: str
    alternative: str
    portable: bool = False  # works elsewhere too, with less


# Names on the index, and the module that knowledge/packages.toml knows.
_MODULES = {
    "flash-attn(-3)?|flash-attention": "flash_attn",
    "xformers": "xformers",
    "triton(-nightly)?|pytorch-triton": "triton",
    "apex|nvidia-apex": "apex",
    "bitsandbytes": "bitsandbytes",
    "nvidia-dali.*": "nvidia",
    r"cupy(-cuda\d+x?)?": "cupy",
    "pycuda": "pycuda",
    "numba-cuda": "numba",
    "cuda-(python|bindings|core)": "cuda",
    "nvidia-ml-py3?|pynvml|nvitop|gpustat": "pynvml",
    "gputil": "GPUtil",
    "nvtx": "nvtx",
    "(nvidia-)?tensorrt.*": "tensorrt",
    "torch-tensorrt": "torch_tensorrt",
    "torch2trt": "torch2trt",
    "transformer-engine.*": "transformer_engine",
    "deepspeed": "deepspeed",
    "megatron-(core|lm)": "megatron",
    "vllm(-flash-attn)?": "vllm",
    "spconv.*|cumm.*|torchsparse": "spconv",
    "minkowskiengine": "MinkowskiEngine",
    "nvdiffrast|kaolin": "nvdiffrast",
    "tinycudann|tiny-cuda-nn": "tinycudann",
    "auto-gptq|gptqmodel|exllamav2": "auto_gptq",
    "autoawq": "awq",
    "mamba-ssm": "mamba_ssm",
    "causal-conv1d|flash-linear-attention": "causal_conv1d",
    "cudf.*|dask-cuda|cucim.*": "cudf",
    "cuml.*": "cuml",
    "cugraph.*": "cugraph",
    "rmm.*": "rmm",
    "horovod": "horovod",
}
_OTHERS = {
    "onnxruntime-gpu": Package("hours", "onnxruntime, with the vendor's execution provider"),
    "faiss-gpu.*": Package("hours", "faiss-cpu"),
    "(tensorflow|paddlepaddle)-gpu": Package("hours", "the build without -gpu"),
    "torch-(scatter|sparse|cluster|spline-conv)|pyg-lib": Package(
        "days", "torch.scatter_reduce and torch_geometric's own fallbacks; on the host they work"
    ),
    "mmcv(-full)?": Package(
        "days",
        "mmcv builds its operators for some vendors (MMCV_WITH_OPS=1); torchvision.ops",
        True,
    ),
    "detectron2": Package(
        "days", "it works without its CUDA operators but for a few (deformable convolution)", True
    ),
    "pytorch3d": Package(
        "weeks", "it has operators for the CPU; rasterizers are to be written anew"
    ),
    "gsplat|diff-gaussian-rasterization|simple-knn|nerfacc": Package(
        "weeks", "rasterizers are to be written anew"
    ),
    "natten|unsloth|liger-kernel|flashinfer.*|sageattention": Package(
        "days", "torch's own operators, or a Triton backend of the vendor's"
    ),
    r"dgl-cu.*|jax-cuda.*|jaxlib-cuda.*|mxnet-cu\d+": Package("days", "the build without CUDA"),
    "nvidia-modelopt|nemo-toolkit|nvidia-resiliency-ext|warp-lang": Package(
        "weeks", "no equal in torch"
    ),
}
_NAMES = [(re.compile(rf"(?:{names})\Z"), module) for names, module in _MODULES.items()]
_OTHER_NAMES = [(re.compile(rf"(?:{names})\Z"), package) for names, package in _OTHERS.items()]
# Parts of CUDA itself; the packages above go first.
_PARTS = re.compile(
    r"(?:nvidia-[\w-]+?-cu1\d|nvidia-(?:cublas|cuda|cudnn|cufft|curand|cusolver|cusparse|nccl|"
    r"nvjitlink|nvtx|cufile|cusparselt|nvshmem)[\w-]*|cudatoolkit(?:-dev)?|pytorch-cuda|"
    r"cuda-(?:nvcc|toolkit|runtime|libraries|cudart|nvrtc|cupti|nvtx|compiler|command-line-tools|"
    r"libraries-dev|driver-dev|version|cccl|profiler-api)[\w-]*|cuda|cudnn|nccl|pytorch-gpu)\Z"
)


def find(name: str) -> Package | None:
    """What to do about the package with this name on the index, or None."""
    spelled = re.sub(r"[-_.]+", "-", name).lower()
    for pattern, module in _NAMES:
        if pattern.match(spelled):
            known = knowledge.packages()[module]
            return Package(known.effort, known.alternative, known.kind == "manual")
    return next((package for pattern, package in _OTHER_NAMES if pattern.match(spelled)), None)


def module(name: str) -> str:
    """What a package with this name on the index is imported as; the name itself where that is not
    known.
    """
    spelled = re.sub(r"[-_.]+", "-", name).lower()
    return next((found for pattern, found in _NAMES if pattern.match(spelled)), spelled)


def is_part_of_cuda(name: str) -> bool:
    """Whether a package is CUDA itself: its runtime, one of its libraries."""
    return bool(_PARTS.match(re.sub(r"[-_.]+", "-", name).lower()))
