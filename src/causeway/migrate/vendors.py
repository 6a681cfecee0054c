"""Vendors' names, in one place: their devices, and packages that are for one device or another.

Rules ask by what a package is to them, `packages("kernels")`, and name none themselves. What takes
its place is in `knowledge/packages.toml`, which is for those who read a report.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

# Devices of vendors that programs ask for, by `is_npu_available()` and the like.
ASKED = ("npu", "mlu", "hpu", "musa", "gcu", "sdaa")
# All that come with a package of their own; who names one knows what it does.
DEVICES = frozenset({*ASKED, "supa", "ipu", "dipu", "xla", "tpu"})
TORCHS = ("mps", "xpu")  # those come with torch, as CUDA's does
# Architectures, as lists and folders name them: no devices of torch.
ARCHITECTURES = ("rocm", "hip", "metal", "vulkan")
MAKERS = ("NVIDIA", "AMD", "INTEL", "ASCEND")  # of devices, as in IS_NVIDIA
# Methods that move to a vendor's device, as `x.cuda()` does.
METHODS = frozenset({"cuda", "npu", "mlu", "dipu"})
# What onnxruntime runs a model by.
PROVIDERS = ("CUDAExecutionProvider", "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")

Kind = Literal[
    "kernels",  # its functions take CUDA's tensors
    "runtime",  # runs models on CUDA by itself, with torch beside it
    "own",  # about what torch was built with, NVIDIA's driver or kernels: a report, a check
    "foreign",  # its "cuda" is no device of torch
    "framework",  # has tensors of its own
    "arrays",  # has arrays and devices of its own, as a text names it
    "tested",  # a test that is skipped without it is about kernels for CUDA
    "around",  # a module hands it tensors, and it has code for the CPU and for CUDA alone
    "loss",  # the same of a loss
    "bindings",  # those of NVIDIA's libraries
    "named",  # for CUDA, as names and messages say; a rule of its own converts it, or another kind
    "ctranslate2",  # runs by CTranslate2, on the CPU and on CUDA alone
]
# Triton is among none: it serves several devices.
_PACKAGES = """
apex              named
bit_decode        kernels own
bitsandbytes      kernels
catboost          foreign
causal_conv1d     kernels
ctranslate2       runtime own foreign ctranslate2
cublas            bindings
cuda              foreign
cudnn             bindings
cupy              kernels own foreign arrays tested
cutlass           bindings
cv2               foreign
dgl               around
faiss             foreign
faster_whisper    runtime own foreign ctranslate2
flash_attn        kernels
flashinfer        kernels
isaacgym          foreign
isaacgymenvs      foreign
jax               foreign framework arrays
jittor            arrays
kaldifeat         around
lightgbm          foreign
llama_cpp         foreign
mamba_ssm         kernels
mindspore         foreign framework arrays
mindtorch         foreign
mxnet             foreign framework arrays
numba             foreign arrays tested
numba.cuda        own
nvdiffrast        kernels
nvidia.dali       own
nvrtc             bindings
onnxruntime       runtime foreign
paddle            runtime foreign framework arrays
polygraphy        runtime
py3nvml           own
pycuda            runtime own foreign
pynvml            own
pynvrtc           tested
sglang            foreign
sklearn           foreign
spconv            kernels
taichi            foreign
tensorflow        foreign framework arrays
tensorrt          runtime own named
tinycudann        kernels
tinygrad          foreign framework arrays
torch2trt         runtime
torch_tensorrt    runtime
transformer_engine kernels
tvm               foreign framework arrays
vllm              foreign
warp              foreign
warp_rnnt         loss
warpctc_pytorch   loss
warprnnt_pytorch  loss
xformers          kernels
xgboost           foreign
"""
# What they are called beside their names.
_CALLED = {"bitsandbytes": "bnb", "flash_attn": "flash_attention", "tinycudann": "tcnn"}


@cache
def packages(kind: Kind) -> frozenset[str]:
    """The packages of a kind, by the names that they are imported by."""
    rows = (line.split() for line in _PACKAGES.split("\n") if line)
    return frozenset(name for name, *kinds in rows if kind in kinds)


@cache
def words(*kinds: Kind) -> str:
    """Packages of these kinds as names and messages have them, for a regular expression:
    `flash_attn`, "FlashAttention", "flash-attn".
    """
    names = frozenset().union(*map(packages, kinds))
    names |= {_CALLED[name] for name in names & _CALLED.keys()}
    return "|".join(re.escape(name).replace("_", "[ _.-]?") for name in sorted(names))
