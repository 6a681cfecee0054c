"""An estimate of time that is stated and simple: a call takes what its bytes or its operations
take, whichever is longer, and a constant.

Shares of it rank operators. It is no prediction of seconds: a machine's numbers are round, kernels
reach neither roof, and caches are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from causeway.ops import facts

# Names of ours for what torch's flop counter knows by another.
_SAME = {
    **{facts.base(other): facts.base(own) for other, own in facts.own_names().items()},
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": (
        "_scaled_dot_product_flash_attention_backward"
    ),
}


@dataclass(frozen=True)
class Machine:
    """Operations and bytes in a second, and seconds a call, of the chip, its host and the link."""

    flops: float = 50e12
    bandwidth: float = 1e12
    launch: float = 5e-6
    host_flops: float = 0.5e12
    host_bandwidth: float = 50e9
    link: float = 16e9  # between them, each way; not used where the host can address the memory

    @property
    def words(self) -> str:
        """What is assumed, for people."""
        return (
            f"a chip of {self.flops / 1e12:g} TFLOP/s, {self.bandwidth / 1e12:g} TB/s and "
            f"{1e6 * self.launch:g} µs a call; a host of {self.host_flops / 1e12:g} TFLOP/s and "
            f"{self.host_bandwidth / 1e9:g} GB/s; a link of {self.link / 1e9:g} GB/s"
        )

    def seconds(self, rung: str, size: int, flops: float, addressable: bool) -> float:
        """One call of `size` bytes. A decomposed one is what it calls, and nothing itself."""
        if rung == "decomposed":
            return 0.0
        if rung not in ("host", "error"):
            return self.launch + max(size / self.bandwidth, flops / self.flops)
        moved = 0.0 if addressable else size / self.link
        return self.launch + moved + max(size / self.host_bandwidth, flops / self.host_flops)


def tensors(signature: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """dtype and shape of every tensor of a signature; of sparse ones nobody knows the size."""
    for value in signature:
        if is_tensor(value):
            yield str(value[1]), tuple(value[2])
        elif isinstance(value, list | tuple):
            yield from tensors(value)


def is_tensor(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 3
        and isinstance(value[0], str)
        and isinstance(value[1], str)
        and isinstance(value[2], list | tuple)
    )


def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    return int(math.prod(shape)) * int(getattr(torch, dtype).itemsize)


def size(arguments: Any, results: Any) -> int:
    """Bytes of all tensors that a call reads and writes, each once."""
    return sum(size_of(*t) for t in (*tensors(arguments), *tensors(results)))


@cache
def _counters() -> dict[str, Any]:
    from torch.utils.flop_counter import flop_registry

    return {packet.__name__: counter for packet, counter in flop_registry.items()}


def flops(operator: str, arguments: Any, results: Any) -> float:
    """By torch's flop counter where it knows the operator; else one for each element."""
    found = counted(operator, arguments, results)
    if found is not None:
        return found
    made = [math.prod(shape) for _, shape in tensors(results)]
    read = [math.prod(shape) for _, shape in tensors(arguments)]
    return float(max([*made, *read], default=0))


def counted(operator: str, arguments: Any, results: Any) -> float | None:
    """By torch's flop counter; None where it does not know the operator."""
    base = operator.partition("::")[2].partition(".")[0]
    counter = _counters().get(_SAME.get(base, base)) or _counters().get(base.rstrip("_"))
    if counter is not None:
        try:
            schema = _schema(operator)
            given = [
                _on_meta(value)
                for value, argument in zip(arguments, schema.arguments, strict=True)
                if not argument.kwarg_only
            ]
            if base.endswith("convolution_backward_overrideable"):
                given.insert(3, None)
            out = _on_meta(results[0]) if len(results) == 1 else tuple(map(_on_meta, results))
            return float(counter(*given, out_val=out))
        except Exception:  # noqa: S110 - a shape it does not expect; an estimate has a next best
            pass
    return None


def _schema(operator: str) -> Any:
    name, _, overload = operator.partition(".")
    return torch._C._get_schema(name, overload)


def _on_meta(value: Any) -> Any:
    if is_tensor(value):
        return torch.empty(tuple(value[2]), dtype=getattr(torch, value[1]), device="meta")
    if isinstance(value, list | tuple):
        return [_on_meta(v) for v in value]
    return value
