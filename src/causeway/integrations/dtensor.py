"""DTensor: attention on the device, which torch has rules for on CUDA only.

The device's `scaled_dot_product_attention` is `_scaled_dot_product_fused_attention_overrideable`.
torch.distributed.tensor knows how CUDA's attentions are sharded, and the ring that context_parallel
makes of them, but has no rule for this one. Both are added where DTensor is imported, by its own
`register_sharding` and its table of handlers.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from causeway import integrations

FORWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
BACKWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default
RINGS = "torch.distributed.tensor.experimental._context_parallel._attention"

Placements = list[Any]
Shardings = list[tuple[Placements, Placements]]


def _loaded(module: types.ModuleType) -> None:
    if module.__name__ == "torch.distributed.tensor":
        from torch.distributed.tensor.experimental import register_sharding

        register_sharding(FORWARD)(forward_shardings)
        register_sharding(BACKWARD)(backward_shardings)
        integrations.note("dtensor", "scaled_dot_product_attention has a sharding rule")
    elif module.__name__ == RINGS:
        module.custom_ops[FORWARD] = functools.partial(_ring, module, _ring_forward)
        module.custom_ops[BACKWARD] = functools.partial(_ring, module, _ring_backward)
        integrations.note("dtensor", "context_parallel has a ring of the device's attention")


# --- sharding -------------------------------------------------------------------------------------


def _parts(mask: Any) -> list[tuple[Any, Any]]:
    """The placements that (queries and all of their shape, the mask) may have: whole, or by heads
    or batches, each of which is computed by itself. A mask is broadcast: it is whole where it has
    one of what is shared out, and else shared out too.
    """
    from torch.distributed.tensor import Replicate, Shard

    found: list[tuple[Any, Any]] = [(Replicate(), Replicate())]
    for dim in (1, 0):
        of_mask: Any = Replicate()
        if mask is not None:
            own = dim + len(mask.shape) - 4  # a mask has 4 dimensions or fewer
            of_mask = Shard(own) if own >= 0 and mask.shape[own] != 1 else Replicate()
        found.append((Shard(dim), of_mask))
    return found


def forward_shardings(
    query: Any, key: Any, value: Any, attn_bias: Any = None, *_: Any, **__: Any
) -> Shardings:
    """The placements of (outputs, inputs) that attention takes, for `register_sharding`."""
    from torch.distributed.tensor import Replicate

    whole = Replicate()
    found: Shardings = []
    for part, mask in _parts(attn_bias):
        # output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, philox_seed, philox_offset, debug
        outputs = [part, part, whole, whole, None, None, whole, whole, whole]
        found.append((outputs, [part] * 3 + ([] if attn_bias is None else [mask])))
    return found


def backward_shardings(*args: Any, **_: Any) -> Shardings:
    """The placements of (gradients, inputs) that attention's backward takes."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor._dtensor_spec import DTensorSpec

    bias = args[4] if isinstance(args[4], DTensorSpec) else None
    # grad_out, query, key, value, attn_bias, (which gradients), out, logsumexp, random state
    there = [i for i, a in enumerate(args) if isinstance(a, DTensorSpec)]
    found: Shardings = []
    for part, mask in _parts(bias):
        inputs = [mask if i == 4 else part if i <= 7 else Replicate() for i in there]
        found.append(([part, part, part, None if bias is None else mask], inputs))
    return found


# --- context_parallel -----------------------------------------------------------------------------


def _ring(
    rings: Any, run: Callable[..., Any], op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A handler of DTensor's: attention over a sequence whose parts lie on the ranks of a mesh."""
    from torch.distributed.tensor import DTensor

    first = next(a for a in args if isinstance(a, DTensor))

    def local(value: Any) -> Any:
        return value.to_local() if isinstance(value, DTensor) else value

    def shared_out(value: Any) -> Any:
        # The output, its logsumexp and gradients are of a sequence; the rest says nothing.
        if not isinstance(value, torch.Tensor) or value.dim() < 3:
            return value
        return DTensor.from_local(value, first.device_mesh, first.placements, run_check=False)

    results = run(
        rings,
        first.device_mesh.get_group(),
        *map(local, args),
        **{name: local(value) for name, value in kwargs.items()},
    )
    return tuple(shared_out(value) for value in results)


def _no_mask(bias: Any) -> None:
    if bias is not None:
        raise NotImplementedError(
            "context_parallel takes no attn_mask, as its ring sees a part of the keys at a time; "
            "is_causal works"
        )


def _ring_forward(
    rings: Any, group: Any, query: Any, key: Any, value: Any, attn_bias: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    _no_mask(attn_bias)
    return rings._templated_ring_attention(
        group, 2, FORWARD, query=query, key=key, value=value, is_causal=is_causal,
        dropout_p=dropout_p, scale=scale,
    )  # fmt: skip


def _ring_backward(
    rings: Any, group: Any, grad_out: Any, query: Any, key: Any, value: Any, attn_bias: Any,
    grad_input_mask: Any, out: Any, logsumexp: Any, cum_seq_q: Any, cum_seq_k: Any, max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, philox_seed: Any, philox_offset: Any, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    _no_mask(attn_bias)
    return rings._templated_ring_attention_backward(
        group, 2, BACKWARD, grad_out=grad_out, grad_out_name="grad_out", query=query, key=key,
        value=value, out=out, logsumexp=logsumexp, is_causal=is_causal, attn_bias=None,
        grad_input_mask=grad_input_mask, cum_seq_q=cum_seq_q, cum_seq_k=cum_seq_k, max_q=max_q,
        max_k=max_k, dropout_p=dropout_p, philox_seed=philox_seed, philox_offset=philox_offset,
        scale=scale,
    )  # fmt: skip


INTEGRATION = integrations.Integration(
    ("2.13.0", "2.13.0"),
    "attention on the device gets the sharding rule and the ring that CUDA's have",
    _loaded,
    "torch",
)
