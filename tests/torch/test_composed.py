"""Operators that torch has kernels for on CUDA alone are right on the device, by others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from same import NAME
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn
from torch.sparse import (
    SparseSemiStructuredTensor,
    SparseSemiStructuredTensorCUSPARSELT,
    SparseSemiStructuredTensorCUTLASS,
    to_sparse_semi_structured,
)
from torch.sparse._semi_structured_conversions import _sparse_semi_structured_tile

import causeway

Function = Callable[..., Tensor]
FP8 = torch.float8_e4m3fn


def with_gradients(function: Function, given: Sequence[Tensor], place: str) -> list[Tensor]:
    leaves = [x.detach().to(place).requires_grad_() for x in given]
    out = function(*leaves)
    weight = torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out)
    grads = torch.autograd.grad((out * weight).sum(), leaves)
    return [x.detach().cpu() for x in (out, *grads)]


def agree(
    ours: Function, theirs: Function, *given: Tensor, served: str, rtol: float = 1e-5
) -> None:
    """The device's `ours` and the CPU's `theirs`, forward and backward; `served` was decomposed."""
    with causeway.ledger() as ledger:
        got = with_gradients(ours, given, NAME)
    for found, expected in zip(got, with_gradients(theirs, given, "cpu"), strict=True):
        torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol)
    rungs = {row.operator.split(".")[0]: row.rung for row in ledger.rows}
    if NAME == "sim":  # which offers none of them
        assert rungs[served] == "decomposed", rungs


# --- attention ------------------------------------------------------------------------------------

BY_NAME = {
    SDPBackend.EFFICIENT_ATTENTION: "aten::_scaled_dot_product_efficient_attention",
    SDPBackend.CUDNN_ATTENTION: "aten::_scaled_dot_product_cudnn_attention",
}


@pytest.mark.parametrize("mask", ["none", "causal", "given"])
@pytest.mark.parametrize("backend", BY_NAME, ids=str)
def test_attention_that_is_asked_for_by_name_has_that_name(backend: SDPBackend, mask: str) -> None:
    bias = torch.randn(6, 6)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        chosen = {"attn_mask": bias.to(q.device)} if mask == "given" else {}
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal", **chosen)

    def ours(*given: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return attend(*given)

    given = [torch.randn(2, 4, 6, 16) for _ in range(3)]
    agree(ours, attend, *given, served=BY_NAME[backend])


def test_the_gradient_of_a_bias_is_right() -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, True)[0]

    def theirs(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    given = [torch.randn(2, 4, 6, 16) for _ in range(3)]
    served = "aten::_scaled_dot_product_efficient_attention"
    agree(ours, theirs, *given, torch.randn(2, 4, 6, 6), served=served)


LOW = {
    "flash": ("aten::_flash_attention_forward", (None, None, 6, 6, 0.0, True, False)),
    "efficient": (
        "aten::_efficient_attention_forward",
        (None, None, None, None, None, 0.0, 1, True),
    ),
}


@pytest.mark.parametrize("kind", LOW)
def test_kernels_of_attention_are_called_as_on_cuda(kind: str) -> None:
    served, rest = LOW[kind]
    operator = getattr(torch.ops.aten, served.removeprefix("aten::"))

    def theirs(*given: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in given)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    given = [torch.randn(2, 6, 4, 16) for _ in range(3)]
    agree(lambda *qkv: operator(*qkv, *rest)[0], theirs, *given, served=served)


ENDS = (0, 3, 8, 9, 9, 16)  # one sequence is empty


def by_sequence(causal: bool, left: int) -> Function:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        outs = []
        for begin, end in itertools.pairwise(ENDS):
            if begin == end:
                continue
            seen = torch.ones(end - begin, end - begin, dtype=torch.bool)
            seen = seen.tril() if causal else seen
            seen = seen.triu(-left) if left >= 0 else seen
            wide = [t[begin:end].repeat_interleave(q.size(1) // t.size(1), 1) for t in (q, k, v)]
            whole = [t.transpose(0, 1)[None] for t in wide]
            outs.append(F.scaled_dot_product_attention(*whole, attn_mask=seen)[0].transpose(0, 1))
        return torch.cat(outs)

    return attend


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize(("causal", "left"), [(False, -1), (True, -1), (True, 2)])
def test_sequences_in_a_row_attend_each_to_itself(causal: bool, left: int, heads: int) -> None:
    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ends = torch.tensor(ENDS, dtype=torch.int32, device=q.device)
        window = (left, 0 if causal else -1)
        return varlen_attn(q, k, v, ends, ends, 7, 7, window_size=window, enable_gqa=heads != 4)

    given = [torch.randn(16, n, 16) for n in (4, heads, heads)]
    theirs = by_sequence(causal, left)
    agree(ours, theirs, *given, served="aten::_flash_attention_forward")


def test_a_cache_in_pages_is_read_as_far_as_it_is_used() -> None:
    used, page = (5, 9), 4
    q = torch.randn(2, 4, 16)
    k, v = torch.randn(6, page, 4, 16), torch.randn(6, page, 4, 16)
    table = torch.tensor([[4, 0, 0], [1, 5, 2]], dtype=torch.int32)
    ends = torch.tensor([0, 1, 2], dtype=torch.int32)
    given = (x.to(NAME) for x in (q, k, v, ends))
    got = varlen_attn(
        *given, None, 1, 12,
        seqused_k=torch.tensor(used, dtype=torch.int32, device=NAME), block_table=table.to(NAME),
    )  # fmt: skip
    for row, count in enumerate(used):
        whole = [t[table[row].long()].flatten(0, 1)[:count].transpose(0, 1)[None] for t in (k, v)]
        expected = F.scaled_dot_product_attention(q[row, :, None][None], *whole)[0, :, 0]
        torch.testing.assert_close(got[row].cpu(), expected)


def test_what_needs_a_kernel_of_the_vendors_says_so() -> None:
    q = torch.randn(2, 6, 4, 16, device=NAME)
    low, high = torch.ops.aten._flash_attention_forward, torch.ops.aten
    with pytest.raises(NotImplementedError, match=r"dropout.*SDPBackend\.MATH"):
        low(q, q, q, None, None, 6, 6, 0.5, False, False)
    with pytest.raises(NotImplementedError, match="alibi_slopes"):
        low(q, q, q, None, None, 6, 6, 0.0, False, False, alibi_slopes=q[:, 0, :, 0])
    ends = torch.tensor([0, 6], dtype=torch.int32, device=NAME)
    with pytest.raises(NotImplementedError, match="varlen_attn"):
        high._efficient_attention_forward(q, q, q, None, ends, ends, 6, 6, 0.0, 0, True)


# --- products -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products_of_groups_agree_with_the_cpu(dtype: torch.dtype) -> None:
    def product(a: Tensor, b: Tensor) -> Tensor:
        ends = torch.tensor([4, 9, 16], dtype=torch.int32, device=a.device)
        return torch._grouped_mm(a, b, offs=ends)

    a, b = torch.randn(16, 32, dtype=dtype), torch.randn(3, 32, 24, dtype=dtype)
    rtol = 1e-5 if dtype == torch.float32 else 2e-2
    agree(product, product, a, b, served="aten::_grouped_mm", rtol=rtol)


def test_scaled_products_of_groups_are_scaled_by_row_and_column() -> None:
    a, b = torch.randn(16, 32).to(FP8), torch.randn(3, 24, 32).to(FP8).transpose(1, 2)
    ends = torch.tensor([4, 9, 16], dtype=torch.int32)
    by_row, by_column = torch.rand(16), torch.rand(3, 24)
    given = (x.to(NAME) for x in (a, b, by_row, by_column, ends))
    got = torch._scaled_grouped_mm(*given, out_dtype=torch.bfloat16)
    parts = [
        (a[begin:end].float() @ b[g].float()) * by_row[begin:end, None] * by_column[g]
        for g, (begin, end) in enumerate(((0, 4), (4, 9), (9, 16)))
    ]
    torch.testing.assert_close(got.cpu(), torch.cat(parts).bfloat16())


@pytest.mark.parametrize("scale", [(), (16, 1)])
def test_scaled_products_agree_with_the_cpu(scale: tuple[int, ...]) -> None:
    a, b = torch.randn(16, 32).to(FP8), torch.randn(32, 32).to(FP8).t()
    by_row = torch.rand(scale) + 0.5
    by_column = torch.rand((1, 32) if scale else ()) + 0.5

    def product(place: str) -> Tensor:
        given = [x.to(place) for x in (a, b, by_row, by_column)]
        return torch._scaled_mm(*given, out_dtype=torch.bfloat16).cpu()

    torch.testing.assert_close(product(NAME), product("cpu"))


# --- 2:4 sparsity ---------------------------------------------------------------------------------

KINDS = {
    "cutlass": (SparseSemiStructuredTensorCUTLASS, True),
    "cusparselt": (SparseSemiStructuredTensorCUSPARSELT, False),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    chosen, cutlass = KINDS[request.param]
    monkeypatch.setattr(SparseSemiStructuredTensor, "_FORCE_CUTLASS", cutlass)
    return chosen


def halved(dtype: torch.dtype) -> Tensor:
    """Of 128 x 128: two of each four in a row are zero; of float32, one of each two."""
    kept = torch.tensor([0, 1] if dtype == torch.float32 else [0, 0, 1, 1]).bool()
    return (torch.randn(128, 128) * 3).to(dtype).masked_fill(~kept.tile(128, 128 // len(kept)), 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_sparse_matrix_multiplies_as_the_dense_one(kind: Any, dtype: torch.dtype) -> None:
    if dtype not in kind._DTYPE_SHAPE_CONSTRAINTS:
        pytest.skip(f"{kind.__name__} has no {dtype}, on CUDA either")
    dense, x, bias = halved(dtype), torch.randn(64, 128).to(dtype), torch.randn(128).to(dtype)
    sparse: Any = to_sparse_semi_structured(dense.to(NAME))
    assert type(sparse) is kind
    single = dtype == torch.float32
    # Of float32 torch's to_dense scatters halves; torch's CPU kernel changes signalling NaNs.
    if not single:
        torch.testing.assert_close(sparse.to_dense().cpu(), dense)
    near = {"rtol": 1e-4, "atol": 1e-3} if single else {"rtol": 2e-2, "atol": 2e-1}
    got = F.linear(x.to(NAME), sparse, bias.to(NAME))
    torch.testing.assert_close(got.cpu(), F.linear(x, dense, bias), **near)
    torch.testing.assert_close(torch.mm(sparse, x.t().to(NAME)).cpu(), dense @ x.t(), **near)


def test_integers_multiply_exactly(kind: Any) -> None:
    dense, x = halved(torch.int8), torch.randint(-3, 4, (64, 128), dtype=torch.int8)
    got = torch.mm(to_sparse_semi_structured(dense.to(NAME)), x.t().to(NAME))
    exact = dense.int() @ x.t().int()
    # CUTLASS gives int32; cuSPARSELt gives int8, and the nearest there is.
    expected = exact if got.dtype == torch.int32 else exact.clamp(-128, 127).to(torch.int8)
    assert torch.equal(got.cpu(), expected)


def test_a_linear_layer_becomes_sparse(kind: Any) -> None:
    net = torch.nn.Linear(128, 128).half()
    with torch.no_grad():
        net.weight.copy_(halved(torch.float16))
        x = torch.randn(64, 128).half()
        expected = net(x)
        net.to(NAME)
        net.weight = torch.nn.Parameter(to_sparse_semi_structured(net.weight))
        torch.testing.assert_close(net(x.to(NAME)).cpu(), expected, rtol=2e-2, atol=5e-2)


def test_pruning_keeps_the_largest_of_each_tile(kind: Any) -> None:
    x = torch.randn(64, 128).half()
    given = x.to(NAME)
    pruned = kind.prune_dense_static_sort(given)
    assert torch.equal(given.cpu(), x)  # what is given stays
    expected = _sparse_semi_structured_tile(x.clone())
    torch.testing.assert_close(pruned.to_dense().cpu(), expected)
    torch.testing.assert_close(pruned.t().to_dense().cpu(), expected.t())


# What torch's own test says of CUDA's kernels.
TILE = [[4, 3, 2, 1], [-1, -3, 0.6, 0.5], [1, 2, 3, 4], [10, 2, -1, 5]]
ALGORITHMS = {
    "largest_abs_values_greedy": [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]],
    "causal1122": [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]],
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ways_to_prune_are_cudas(algorithm: str) -> None:
    x = F.pad(torch.tensor(TILE), (0, 60, 0, 60), value=1).half().to(NAME)
    pruned = SparseSemiStructuredTensorCUTLASS.prune_dense_static_sort(x, algorithm=algorithm)
    kept = (pruned.to_dense() / x)[:4, :4].int()
    assert kept.tolist() == ALGORITHMS[algorithm]
    with pytest.raises(ValueError, match="none of largest_values_greedy"):
        torch._sparse_semi_structured_tile(x, "smallest")


def test_a_pattern_is_laid_over_other_values() -> None:
    x, other = torch.randn(64, 128).half(), torch.randn(64, 128).half()
    other[other.abs() < 0.3] = 0  # what is kept may be zero
    _, meta, _, meta_t, masks = torch._sparse_semi_structured_tile(x.to(NAME))
    kept = _sparse_semi_structured_tile(x.clone()) != 0
    dense = torch._sparse_semi_structured_apply_dense(other.to(NAME), masks)
    assert torch.equal(dense.cpu(), other * kept)
    first, turned = torch._sparse_semi_structured_apply(other.to(NAME), masks)
    one = torch.eye(128, dtype=torch.float16, device=NAME)
    back = torch._sparse_semi_structured_mm(first, meta.view(64, -1), one)
    assert torch.equal(back.cpu(), other * kept)
    back = torch._sparse_semi_structured_mm(turned, meta_t.view(128, -1), one[:64, :64])
    assert torch.equal(back.cpu(), (other * kept).t())
