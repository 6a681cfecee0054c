"""Speed of the portable kernels on OpenCL against stock torch on the CPU, in one process, in turn.

    make bench-opencl                              all; writes benchmarks/results/opencl.json
    python benchmarks/opencl.py models sgemm       some (groups as `--help` lists them)

It needs the OpenCL vendor: `PYTHONPATH=build/opencl/package CAUSEWAY_VENDOR=opencl`, with a runtime
that uses the same cores as torch does (PoCL). Everything is a ratio, as in run.py; even a launch is
told against the runtime's own launch of an empty kernel, which is timed in the same rounds.

After a call torch's threads wait for the next in a loop, up to some 20 ms, on a core that the
runtime wants: so there is a pause between the sides. Where others use the machine, a thread a side
is fairer: `POCL_MAX_PTHREAD_COUNT=1 ... benchmarks/opencl.py --threads 1`.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from models import PAUSE, programs_against_stock
from run import Figure, compare, device, main

from programs import gpt_block_step, gru_step, lstm_step, mnist_step, resnet_inference

Tensors = tuple[torch.Tensor, ...]


def models() -> Iterator[Figure]:
    """Whole programs; of speeds. No call may go to the host."""
    cases = {
        "MNIST training step": (mnist_step, 0.6),
        "ResNet-18 inference, 8 x 224 x 224": (resnet_inference, 0.6),
        "GPT block, forward, backward, AdamW": (gpt_block_step, 0.5),
        "LSTM, 2 layers, training step": (lstm_step, 0.7),
        "GRU, 2 layers, training step": (gru_step, 0.7),
    }
    return programs_against_stock("models", cases)


def _against(
    group: str, name: str, f: Callable[..., object], args: tuple[torch.Tensor, ...], bar: float
) -> Figure:
    """`f` of large operands on both sides; of speeds."""
    there = [a.to(device()) for a in args]

    def ours() -> None:
        f(*there)
        torch.accelerator.synchronize()

    stock, mine, ratio = compare(lambda: f(*args), ours, calls=3, rounds=15, pause=PAUSE)
    return Figure(group, name, "ms", stock * 1e3, mine * 1e3, 1 / ratio, bar, "higher")


def sgemm() -> Iterator[Figure]:
    """The product of two matrices of 1024 x 1024 in float32. Bar: 0.9."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    yield _against("sgemm", "1024 x 1024 x 1024", torch.mm, (a, b), 0.9)


def memory() -> Iterator[Figure]:
    """Operators that are bound by memory, 16 M floats, into memory that is there already: fresh
    memory costs torch more than the operator. Bar: 0.9.
    """
    a, b, out = (torch.randn(16 << 20) for _ in range(3))

    def rows(x: torch.Tensor, out: torch.Tensor) -> None:
        torch.softmax(x.view(-1, 1024), 1, out=out.view(-1, 1024))

    cases: dict[str, Callable[..., object]] = {
        "add, 16 M": lambda a, b, out: torch.add(a, b, out=out),
        "mul by a number, 16 M": lambda a, b, out: torch.mul(a, 3.0, out=out),
        "sum, 16 M": lambda a, b, out: a.sum(),
        "softmax of 16384 rows": lambda a, b, out: rows(a, out),
    }
    for name, f in cases.items():
        yield _against("memory", name, f, (a, b, out), 0.9)


# --- launches -------------------------------------------------------------------------------------

# An empty kernel put on an in-order queue again and again: the least that a launch costs.
EMPTY = r"""
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
static cl_command_queue queue;
static cl_kernel kernel;
int open_empty(const char* wanted) {
  cl_platform_id platforms[16];
  cl_uint n = 0;
  cl_device_id device;
  if (clGetPlatformIDs(16, platforms, &n)) return 1;
  for (cl_uint i = 0; i < n; ++i) {
    char name[256] = "";
    if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, 0)) continue;
    clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - 1, name, 0);
    if (__builtin_strncmp(name, wanted, __builtin_strlen(wanted))) continue;
    const char* text = "__kernel void empty() {}";
    cl_context context = clCreateContext(0, 1, &device, 0, 0, 0);
    cl_program program = clCreateProgramWithSource(context, 1, &text, 0, 0);
    if (clBuildProgram(program, 1, &device, "", 0, 0)) return 2;
    queue = clCreateCommandQueue(context, device, 0, 0);
    kernel = clCreateKernel(program, "empty", 0);
    return queue && kernel ? 0 : 3;
  }
  return 4;
}
void launch_empty(int count) {
  const size_t one = 1;
  for (int i = 0; i < count; ++i) clEnqueueNDRangeKernel(queue, kernel, 1, 0, &one, &one, 0, 0, 0);
  clFinish(queue);
}
"""


def _empty_launches(folder: str) -> Callable[[int], object]:
    """A function that launches an empty kernel so many times and waits."""
    source, library = Path(folder, "empty.c"), Path(folder, "empty.so")
    source.write_text(EMPTY)
    subprocess.run(
        ["cc", "-O2", "-w", "-shared", "-fPIC", source, "-o", library, "-l:libOpenCL.so.1"],
        check=True,
    )
    loaded = ctypes.CDLL(str(library))
    name = torch.get_device_module(device()).get_device_name(0)
    if status := loaded.open_empty(name.encode()):
        sys.exit(f"the empty kernel cannot be launched on {name!r} (step {status})")
    return loaded.launch_empty


def launch() -> Iterator[Figure]:
    """Dispatch and launch of small operators, one after the other, against the runtime's own launch
    of an empty kernel. The aim is 10 µs where the latter takes 2. Bar: 5 times.
    """
    calls = 300
    a, b, m = torch.randn(4), torch.rand(4) + 0.5, torch.randn(2, 2)
    cases: dict[str, Callable[..., object]] = {
        "add": lambda a, b, m: a + b,
        "mul_ by a number": lambda a, b, m: b.mul_(1.0),
        "relu": lambda a, b, m: torch.relu(a),
        "sum": lambda a, b, m: m.sum(),
        "softmax": lambda a, b, m: torch.softmax(m, 1),
        "mm": lambda a, b, m: torch.mm(m, m),
    }
    there = [t.to(device()) for t in (a, b, m)]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        empty = _empty_launches(folder)
        for name, f in cases.items():

            def ours(f: Callable[..., object] = f) -> None:
                for _ in range(calls):
                    f(*there)
                torch.accelerator.synchronize()

            stock, mine, ratio = compare(lambda: empty(calls), ours, calls=1, rounds=61)
            yield Figure(
                "launch", name, "µs", stock / calls * 1e6, mine / calls * 1e6, ratio, 5, "lower"
            )


# --- the roofline ---------------------------------------------------------------------------------


def _of_memory(name: str, f: Callable[..., object], tensors: Tensors, moved: int) -> Figure:
    """The share of the speed of the machine's own copy of as many bytes, half of them read."""
    from_, to = (
        torch.ones(moved // 2, dtype=torch.uint8),
        torch.empty(moved // 2, dtype=torch.uint8),
    )
    return _share("memory", name, f, tensors, lambda: to.copy_(from_), 0.8)


def _of_product(name: str, f: Callable[..., object], tensors: Tensors, operations: int) -> Figure:
    """The share of the speed of the machine's own product of matrices, with as many operations."""
    n = round((operations / 2) ** (1 / 3))
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    return _share("product", name, f, tensors, lambda: torch.mm(a, b, out=out), None)


def _share(
    of: str,
    name: str,
    f: Callable[..., object],
    tensors: Tensors,
    limit: Callable[[], object],
    bar: float | None,
) -> Figure:
    there = [t.to(device()) for t in tensors]

    def ours() -> None:
        f(*there)
        torch.accelerator.synchronize()

    for _ in range(2):
        ours(), limit()
    best, mine, ratio = compare(limit, ours, calls=2, rounds=11, pause=PAUSE)
    return Figure(
        "roofline", f"{name} (of {of})", "ms", best * 1e3, mine * 1e3, 1 / ratio, bar, "higher"
    )


def roofline() -> Iterator[Figure]:
    """Each family of kernels, as a share of what the machine's own copy or product reaches; both
    are torch's on the CPU, with the same threads. Results go into memory that is there already.
    Bar: 0.8 of the copy.
    """
    side = 2048
    size = 4 * side * side  # bytes of a matrix
    a, b, out = (torch.randn(side, side) for _ in range(3))
    half, row = torch.empty(side, side, dtype=torch.half), torch.empty(side)
    index, weight = torch.randperm(side), torch.randn(side)
    image, pooled = torch.randn(16, 64, 64, 64), torch.empty(16, 64, 32, 32)
    memory: dict[str, tuple[Callable[..., object], Tensors, int]] = {
        "add": (lambda a, b, out: torch.add(a, b, out=out), (a, b, out), 3 * size),
        "GELU": (lambda a, out: torch.ops.aten.gelu.out(a, out=out), (a, out), 2 * size),
        "copy": (lambda a, out: out.copy_(a), (a, out), 2 * size),
        "copy of a transpose": (lambda a, out: out.copy_(a.t()), (a, out), 2 * size),
        "cast to float16": (lambda a, half: half.copy_(a), (a, half), size + size // 2),
        "sum of all": (lambda a: a.sum(), (a,), size),
        "sum of rows": (lambda a, row: torch.sum(a, 1, out=row), (a, row), size),
        "sum of columns": (lambda a, row: torch.sum(a, 0, out=row), (a, row), size),
        "largest of rows": (lambda a, row: torch.amax(a, 1, out=row), (a, row), size),
        "softmax": (lambda a, out: torch.softmax(a, 1, out=out), (a, out), 2 * size),
        "layer norm": (
            lambda a, w, b: torch.nn.functional.layer_norm(a, w.shape, w, b),
            *((a, weight, weight.clone()), 2 * size),
        ),
        "rows by an index": (
            lambda a, index, out: torch.index_select(a, 0, index, out=out),
            *((a, index, out), 2 * size),
        ),
        "max pooling 2 x 2": (
            lambda x, out: torch.ops.aten.max_pool2d_with_indices(x, [2, 2]),
            *((image, pooled), 4 * image.numel() * 7 // 4),  # 8 bytes of an index, too
        ),
        "matrix by a vector": (
            lambda a, w, out: torch.mv(a, w, out=out),
            *((a, weight, row), size),
        ),
    }
    for name, (f, tensors, moved) in memory.items():
        yield _of_memory(name, f, tensors, moved)
    q = torch.randn(1, 8, 512, 64)
    filters, channels = torch.randn(64, 64, 3, 3), torch.randn(4, 64, 56, 56)
    batches = torch.randn(16, 256, 256)
    product: dict[str, tuple[Callable[..., object], Tensors, int]] = {
        "mm": (torch.mm, (a[:1024, :1024].clone(), b[:1024, :1024].clone()), 2 << 30),
        "bmm": (torch.bmm, (batches, batches.clone()), 2 * 16 << 24),
        "convolution 3 x 3": (
            lambda x, w: torch.nn.functional.conv2d(x, w, padding=1),
            *((channels, filters), 2 * 4 * 56 * 56 * 64 * 64 * 9),
        ),
        "attention": (
            torch.nn.functional.scaled_dot_product_attention,
            *((q, q.clone(), q.clone()), 4 * 8 * 512 * 512 * 64),
        ),
    }
    with torch.no_grad():
        for name, (f, tensors, operations) in product.items():
            yield _of_product(name, f, tensors, operations)


GROUPS = {
    "models": models,
    "sgemm": sgemm,
    "memory": memory,
    "roofline": roofline,
    "launch": launch,
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, "opencl", "Speed of the portable kernels on OpenCL against stock torch."))
