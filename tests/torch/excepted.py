"""Where the device need not agree with the CPU, with the reason.

An entry holds for each cell of its operators, kinds and dtypes ("*": all), and each of these cells
must fail without it: a cell that agrees is reported as a failure, so that the list stays true, but
where the CPU's own numbers are by chance.

The list is for the simulated chip as it comes. With all of its kernels (CAUSEWAY_SIM_OPS=all, on
either kind of memory) other cells differ, and may: the order of equal keys where stable= is not
asked for; numbers that a kernel of the chip draws; statistics of norms in half precision, float32
as on CUDA, and those of a batch norm that does not train, which the CPU leaves out; gelu and
narrow_copy into an out= with gaps, which the CPU does not fill; addr of halves, which the CPU
rounds at each step; strides of gradients and of tensors without elements; sums in another order,
by up to five times float32's bound here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch


@dataclass(frozen=True)
class Entry:
    """`operators`, `kinds` and `dtypes` are patterns with blanks between them.

    `here`: whether it holds on this CPU. `by_chance`: sometimes a cell of it agrees.
    """

    operators: str
    kinds: str
    dtypes: str
    reason: str
    here: bool = True
    by_chance: bool = False

    def holds(self, kind: str, dtype: str, operator: str) -> bool:
        if not self.here:
            return False
        given = ((self.operators, operator), (self.kinds, kind), (self.dtypes, dtype))
        return all(
            any(fnmatchcase(name, pattern) for pattern in patterns.split())
            for patterns, name in given
        )


EXCEPTED: tuple[Entry, ...] = (
    Entry(
        "nn.functional.max_pool1d",
        "forward",
        "*",
        "torch pools without indices only on a device called cpu; elsewhere the result is a "
        "squeezed view of what max_pool2d gave",
    ),
    Entry(
        "nn.functional.linear_cross_entropy.chunked_none",
        "backward",
        "float16",
        "LinearCrossEntropyOptions picks the dtype that it sums in by the name of the device",
    ),
    Entry(
        "nn.functional.linear_cross_entropy.chunked*",
        "backward",
        "bfloat16",
        "LinearCrossEntropyOptions picks the dtype that it sums in by the name of the device",
    ),
    Entry(
        "nn.functional.scaled_dot_product_attention",
        "vmap",
        "*",
        "vmap has a rule for the CPU's fused attention, not for other devices': taken apart, the "
        "result is no view",
    ),
    Entry(
        "nn.functional.conv_transpose3d",
        "second",
        "bfloat16",
        "with AMX the CPU's own kernel (oneDNN's) reads memory that nobody wrote, for an image of "
        "(1, 4, 5, 2) and a kernel of (4, 3, 1): on the CPU alone it gives numbers up to 1e25",
        here=torch.cpu._is_amx_tile_supported(),
        by_chance=True,
    ),
    Entry(
        "nn.LSTMCell",
        "module",
        "*",
        "autograd.grad() gives both biases one tensor, as torch's fused cell does on CUDA",
    ),
    Entry("nn.LinearCrossEntropyLoss", "module", "bfloat16 float16", "as for the function"),
)


def find(kind: str, dtype: str, operator: str) -> Entry | None:
    return next((entry for entry in EXCEPTED if entry.holds(kind, dtype, operator)), None)
