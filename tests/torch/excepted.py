"""Where the device need not agree with the CPU, with the reason, and what waits for the core.

An entry holds for each cell of its operators, kinds and dtypes ("*": all), and each of these cells
must fail without it: a cell that agrees is reported as a failure, so that the list stays true.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Entry:
    """`operators`, `kinds` and `dtypes` are patterns with blanks between them."""

    operators: str
    kinds: str
    dtypes: str
    reason: str
    fatal: bool = False  # it ends the process: only the command, which has workers, runs it

    def holds(self, kind: str, dtype: str, operator: str) -> bool:
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
        "nn.LSTMCell",
        "module",
        "*",
        "autograd.grad() gives both biases one tensor, as torch's fused cell does on CUDA",
    ),
    Entry("nn.LinearCrossEntropyLoss", "module", "bfloat16 float16", "as for the function"),
)

# TEMPORARY: the core is to be made to agree, and then the entry goes. Must be empty in a release.
WAITING: tuple[Entry, ...] = (
    Entry("sparse.mm.reduce", "backward", "*", "amax and amin", fatal=True),
    Entry(
        "nn.functional.scaled_dot_product_attention",
        "vmap",
        "*",
        "_scaled_dot_product_fused_attention_overrideable has no batching rule",
    ),
)


def find(entries: tuple[Entry, ...], kind: str, dtype: str, operator: str) -> Entry | None:
    return next((entry for entry in entries if entry.holds(kind, dtype, operator)), None)
