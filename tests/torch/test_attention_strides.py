"""What attention gives lies in memory as torch's meta kernels say, its gradients as the CPU's do.

The CPU's kernel gives the logsumexp with the heads innermost, where the operator that a foreign
device is asked for promises it contiguous.
"""

from __future__ import annotations

import pytest

PROGRAM = """
import torch

import causeway

ATTENTION = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
BACKWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
ABSENT = torch.empty(0), torch.empty(0)


def heads_last(b, h, s, d):
    return torch.randn(b, s, h, d).transpose(1, 2)


def batch_last(b, h, s, d):
    return torch.randn(h, s, d, b).permute(3, 0, 1, 2)


def expanded(b, h, s, d):
    return torch.randn(1, h, s, d).expand(b, h, s, d)


def steps(b, h, s, d):
    return torch.randn(b, h, s, 2 * d)[..., ::2]


def layout(tensors):
    # The stride of a dimension of one element says nothing: torch's CPU and meta differ there.
    long = [[s for n, s in zip(t.shape, t.stride()) if n > 1] for t in tensors]
    return [(tuple(t.shape), strides, t.dtype) for t, strides in zip(tensors, long)]


def check(what, made, dtype, queries, keys, causal, masked):
    q = made(2, 4, queries, 8).to(dtype)
    k, v = (made(2, 4, keys, 8).to(dtype) for _ in range(2))
    grad = torch.randn(2, 4, queries, 8, dtype=dtype)
    bias = torch.randn(2, 4, queries, keys, dtype=dtype) if masked else None
    words = f"{what} {dtype} {queries} {keys} causal {causal} masked {masked}"
    tensors = (q, k, v)

    def run(place):
        def to(t):
            if t is None:
                return None
            # As it lies: .to() would lay out some anew.
            whole = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
            return whole.to(place).as_strided(t.shape, t.stride(), t.storage_offset())

        ours = [to(t) for t in tensors]
        out = ATTENTION(*ours, to(bias), 0.0, causal)
        dense = torch.empty(0, dtype=dtype, device=place) if bias is None else to(bias)
        back = BACKWARD(
            to(grad), *ours, dense, [True, True, True, False], out[0], out[1], *ABSENT, queries,
            keys, 0.0, causal, out[6], out[7],
        )
        return list(out[:2]), list(back[:3])

    forward, backward = run(NAME)
    says_forward, says_backward = run("meta")
    ours, says = layout(forward), layout(says_forward)
    assert ours == says, (words, ours, says)
    ours = layout(backward)
    says = layout([t.transpose(1, 2).contiguous().transpose(1, 2) for t in says_backward])
    assert ours == says, (words, ours, says)

    loose = [t.detach().double().requires_grad_() for t in tensors]
    scores = loose[0] @ loose[1].transpose(-1, -2) / 8**0.5
    if causal:
        scores = scores.masked_fill(~torch.ones(queries, keys, dtype=torch.bool).tril(), -torch.inf)
    if bias is not None:
        scores = scores + bias.double()
    expected = scores.softmax(-1) @ loose[2]
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 5e-2, "atol": 5e-2}
    torch.testing.assert_close(forward[0].cpu().double(), expected, **near)
    torch.testing.assert_close(forward[1].cpu().double(), scores.logsumexp(-1), **near)
    wanted = torch.autograd.grad(expected, loose, grad.double())
    for got, want in zip(backward, wanted):
        torch.testing.assert_close(got.cpu().double(), want, **near)


NAME = torch._C._get_privateuse1_backend_name()
torch.manual_seed(0)
with causeway.ledger() as ledger:
    for made in (torch.randn, heads_last, batch_last, expanded, steps):
        for dtype in (torch.float32, torch.bfloat16):
            for queries, keys in ((16, 16), (3, 16), (1, 16)):
                for causal, masked in ((False, False), (True, False), (False, True)):
                    check(made.__name__, made, dtype, queries, keys, causal, masked)
for row in ledger.rows:
    print(row.operator, row.rung)
"""


@pytest.mark.parametrize(
    ("rung", "settings"),
    [
        ("host", {"CAUSEWAY_SIM_OPS": "none", "CAUSEWAY_SIM_CODE": "0"}),
        ("portable", {"CAUSEWAY_SIM_OPS": "none", "CAUSEWAY_SIM_CODE": "1"}),
    ],
)
def test_results_lie_as_meta_says_and_are_right(run_python, rung, settings) -> None:
    done = run_python(PROGRAM, **settings)
    for operator in ("flash_attention_for_cpu", "flash_attention_for_cpu_backward"):
        assert f"aten::_scaled_dot_product_{operator} {rung}\n" in done.stdout, done.stdout
