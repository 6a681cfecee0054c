"""Vendors' names, in one place: their devices, and packages that are for one device or another.

Rules ask by what a package is to them, `packages("kernels")`, and name none themselves. What takes
its place is in `knowledge/packages.toml`, which is for those who read a report.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

# Devices of vendors that programs ask for, by `is_npu_available()` and the like.
ASKED = ("npu", "mlu", "hpu", "musa", "gcu", "sdaa")
# All that come with a package of their own; who names one knows what it does.
DEVICES = frozenset({*ASKED, "supa", "ipu", "dipu", "xla", "tpu"})
TORCHS = ("mps", "xpu")  # those come with torch, as CUDA's does
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
]
# Triton is among none: it serves several devices.
_PACKAGES = """
bit_decode        kernels own
bitsandbytes      kernels
catboost          foreign
causal_conv1d     kernels
ctranslate2       own foreign
cublas            bindings
cuda              foreign
cudnn             bindings
cupy              kernels own foreign arrays tested
cutlass           bindings
cv2               foreign
dgl               around
faiss             foreign
faster_whisper    own foreign
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
tensorrt          runtime own
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


@cache
def packages(kind: Kind) -> frozenset[str]:
    """The packages of a kind, by the names that they are imported by."""
    rows = (line.split() for line in _PACKAGES.split("\n") if line)
    return frozenset(name for name, *kinds in rows if kind in kinds)
