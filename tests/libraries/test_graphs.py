"""A training step of GPT-2 of transformers, captured and replayed with new data: eager's bits."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = [pytest.mark.once, pytest.mark.slow]

PROGRAM = """
import torch, transformers

device = torch.device("sim")
generator = torch.Generator().manual_seed(1)
data = [torch.randint(0, 97, (3, 16), generator=generator) for _ in range(8)]

def train(captured):
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 97, "n_positions": 32}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **ends)).to(device).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=True)
    words, graph, loss, losses = data[0].to(device), torch.sim.CUDAGraph(), None, []

    def step():
        optimizer.zero_grad()
        loss = net(input_ids=words, labels=words).loss
        loss.backward()
        optimizer.step()
        return loss

    side = torch.sim.Stream()
    torch.sim.synchronize()
    torch.manual_seed(7)  # of the dropout
    with torch.sim.stream(side):
        for i, now in enumerate(data):
            words.copy_(now)
            if captured and i == 3:
                loss = None  # its nodes are of eager's step
                optimizer.zero_grad()
                with torch.sim.graph(graph, stream=side):
                    loss = step()
            if captured and i >= 3:
                graph.replay()
            else:
                loss = step()
            losses.append(loss.item())
    assert (len(graph) > 200) == captured, len(graph)
    return losses, [p.detach().cpu() for p in net.parameters()]

expected, got = train(False), train(True)
assert expected[0] == got[0], (expected[0], got[0])
assert all(torch.equal(a, b) for a, b in zip(expected[1], got[1], strict=True))
"""


def test_a_step_of_gpt2_is_replayed_with_eagers_bits(run_python: Run) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    run_python(PROGRAM, timeout=250, CAUSEWAY_SIM_CODE="1", HF_HUB_OFFLINE="1")
