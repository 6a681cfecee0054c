"""One side of benchmarks/gpu.py: times what it is asked for, on one device of its own torch.

`python gpu_side.py DEVICE`: says which torch and which device as a line of JSON; then for each line
"NAME CALLS" of its input, the seconds of a call. It needs nothing but torch.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from programs import gpt_block_step, gpt_step, mnist_step, resnet_inference

Step = Callable[[], object]
KIB = 1024


def wait(where: torch.device) -> None:
    if where.type != "cpu":
        torch.accelerator.synchronize()


def randn(where: torch.device, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))
    return made.to(dtype).to(where)


def product(where: torch.device, size: int, dtype: torch.dtype) -> Step:
    a, b = (randn(where, size, size, dtype=dtype) for _ in range(2))
    return lambda: a @ b


def linear(where: torch.device, rows: int, width: int, dtype: torch.dtype) -> Step:
    x, w = randn(where, rows, width, dtype=dtype), randn(where, 4 * width, width, dtype=dtype)
    b = randn(where, 4 * width, dtype=dtype)
    return lambda: F.linear(x, w, b)


def convolution(where: torch.device, dtype: torch.dtype, last: bool) -> Step:
    lay = torch.channels_last if last else torch.contiguous_format
    x = randn(where, 32, 128, 28, 28, dtype=dtype).to(memory_format=lay).requires_grad_()
    w = randn(where, 128, 128, 3, 3, dtype=dtype).to(memory_format=lay).requires_grad_()
    grad = F.conv2d(x, w, padding=1).detach().clone()

    def step() -> None:
        torch.autograd.grad(F.conv2d(x, w, padding=1), (x, w), grad)

    return step


def attention(where: torch.device, dtype: torch.dtype) -> Step:
    q, k, v = (randn(where, 8, 16, KIB, 64, dtype=dtype) for _ in range(3))
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)


def pointwise(where: torch.device) -> Step:
    a, b, out = (randn(where, 64 << 20) for _ in range(3))
    return lambda: torch.add(a, b, out=out)


def of(where: torch.device, f: Callable[[torch.Tensor], object], *shape: int) -> Step:
    x = randn(where, *shape)
    return lambda: f(x)


def rows(where: torch.device, f: Callable[[torch.Tensor], object]) -> Step:
    return of(where, f, 16 * KIB, 4 * KIB)


def tf32(where: torch.device, make: Callable[[torch.device], Step]) -> Step:
    """With float32's factors in TF32 on both sides, as programs ask for it; without, on neither."""

    def run() -> None:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.conv.fp32_precision = "tf32"
        try:
            step()
        finally:
            exact()

    torch.set_float32_matmul_precision("high")
    step = make(where)
    return run


def exact() -> None:
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.conv.fp32_precision = "ieee"


def attention_step(where: torch.device, dtype: torch.dtype) -> Step:
    q, k, v = (randn(where, 8, 16, KIB, 64, dtype=dtype).requires_grad_() for _ in range(3))
    grad = randn(where, 8, 16, KIB, 64, dtype=dtype)

    def step() -> None:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(out, (q, k, v), grad)

    return step


def autocast(where: torch.device, make: Callable[[torch.device], Step]) -> Step:
    step = make(where)

    def run() -> None:
        with torch.autocast(where.type, dtype=torch.bfloat16):
            step()

    return run


HALF, SINGLE = torch.bfloat16, torch.float32
CASES: dict[str, tuple[int, Callable[[torch.device], Step]]] = {  # calls a round, what is called
    "tiny: add": (1000, lambda d: of(d, lambda a: a + a, 4)),
    "tiny: mm": (1000, lambda d: of(d, lambda a: a @ a, 2, 2)),
    "tiny: softmax": (1000, lambda d: of(d, lambda a: a.softmax(1), 2, 2)),
    "mm: 4096, float32": (5, lambda d: product(d, 4096, SINGLE)),
    "mm: 8192, bfloat16": (5, lambda d: product(d, 8192, HALF)),
    "mm: 4096, float16": (20, lambda d: product(d, 4096, torch.float16)),
    "mm: 2048, float64": (5, lambda d: product(d, 2048, torch.float64)),
    "linear: 8192 x 1024 to 4096, bfloat16": (20, lambda d: linear(d, 8192, 1024, HALF)),
    "conv2d and gradients: float32": (5, lambda d: convolution(d, SINGLE, False)),
    "conv2d and gradients: float32 by TF32": (
        5,
        lambda d: tf32(d, lambda e: convolution(e, SINGLE, False)),
    ),
    "conv2d and gradients: bfloat16, channels last": (10, lambda d: convolution(d, HALF, True)),
    "attention: 8 x 16 x 1024 x 64, bfloat16": (10, lambda d: attention(d, HALF)),
    "attention and gradients: bfloat16": (10, lambda d: attention_step(d, HALF)),
    "memory: add, 64 M": (20, pointwise),
    "memory: sum of rows": (20, lambda d: rows(d, lambda x: x.sum(1))),
    "memory: sum of columns": (20, lambda d: rows(d, lambda x: x.sum(0))),
    "memory: softmax of rows": (20, lambda d: rows(d, lambda x: x.softmax(1))),
    "memory: layer norm": (20, lambda d: rows(d, lambda x: F.layer_norm(x, x.shape[1:]))),
    "memory: transposed copy": (20, lambda d: rows(d, lambda x: x.t().contiguous())),
    "step: MNIST network": (20, mnist_step),
    "step: 2 GPT blocks": (20, gpt_step),
    "step: GPT block, width 384": (20, gpt_block_step),
    "step: 2 GPT blocks, bfloat16 autocast": (20, lambda d: autocast(d, gpt_step)),
    "ResNet-18 inference, 8 x 224 x 224": (10, resnet_inference),
    "ResNet-18 inference by TF32": (10, lambda d: tf32(d, resnet_inference)),
}


def main() -> None:
    where = torch.device(sys.argv[1])
    module = None if where.type == "cpu" else torch.get_device_module(where)
    name = "the CPU" if module is None else module.get_device_name(0)
    about = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": name}
    exact()  # what torch.cuda does else: TF32 in convolutions, not in products
    about["privateuse1"] = torch._C._get_privateuse1_backend_name()  # as torch names it: stock
    print(json.dumps(about), flush=True)
    made: dict[str, Step] = {}
    for line in sys.stdin:
        name, _, calls = line.strip().rpartition(" ")
        if name not in made:
            made.clear()  # its tensors
            made[name] = CASES[name][1](where)
            for _ in range(3):
                made[name]()
        step = made[name]
        wait(where)
        start = time.perf_counter()
        for _ in range(int(calls)):
            step()
        wait(where)
        print((time.perf_counter() - start) / int(calls), flush=True)


if __name__ == "__main__":
    main()
