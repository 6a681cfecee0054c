"""torch.nn.attention.flex_attention, called as it is: operators of the ladder."""

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's word that it is faster compiled


def test_it_computes_what_the_cpu_does(device):
    from torch.nn.attention import flex_attention as flex

    def causal(batch, head, query, key):
        return query >= key

    def near(score, batch, head, query, key):
        return score - (query - key).abs() * 0.1

    q, k, v = torch.randn(3, 2, 2, 16, 8)

    def found(where):
        mask = flex.create_block_mask(causal, None, None, 16, 16, device=where)
        there = [t.to(where) for t in (q, k, v)]
        return flex.flex_attention(*there, score_mod=near, block_mask=mask).cpu()

    torch.testing.assert_close(found(device), found("cpu"))


def test_its_gradients_are_those_of_attention(device):
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 8, 4)
    found = []
    for attention in (flex_attention, torch.nn.functional.scaled_dot_product_attention):
        x = q.to(device).requires_grad_()
        attention(x, x, x).square().sum().backward()
        found.append(x.grad.cpu())
    torch.testing.assert_close(*found)
