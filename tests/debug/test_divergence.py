"""first_divergence: the step, the module and the operator at which a run parts from the CPU's."""

from __future__ import annotations

import json

import pytest
import torch

import causeway

SCRIPT = """
import json, sys, torch, causeway

class Block(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.linear, self.act = torch.nn.Linear(8, 8), act
    def forward(self, x):
        return x + self.act(self.linear(x))

class Net(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.first, self.second = Block(torch.nn.ReLU()), Block(act)
        self.head = torch.nn.Linear(8, 8)
    def forward(self, x):
        return self.head(self.second(self.first(x)))

def run(act, optimizer, steps, **options):
    def make(device):
        net = Net(act()).to(device)
        x = torch.rand(16, 8).to(device)
        return net, optimizer(net.parameters()), x
    def step(state, device):
        net, o, x = state
        o.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), x)
        loss.backward()
        o.step()
        return loss
    d = causeway.first_divergence(make, step, steps=steps, **options)
    return {"operator": d.operator, "module": d.module, "step": d.step, "phase": d.phase,
            "what": d.value.what if d.value else "", "words": str(d), "passes": d.passes}

sgd = lambda p: torch.optim.SGD(p, lr=0.01)
adam = lambda p: torch.optim.Adam(p, lr=0.01, fused=False)
out = {name: run(*eval(call)) for name, call in json.loads(sys.argv[1]).items()}
out |= {name + " in little memory": run(*eval(call), memory=2000)
        for name, call in json.loads(sys.argv[2]).items()}
print(json.dumps(out))
"""

RUNS = {
    "late_error": "(torch.nn.ReLU, sgd, 37)",  # first: the chip counts calls
    "wrong_backward": "(torch.nn.GELU, sgd, 1)",
    "wrong_step": "(torch.nn.ReLU, adam, 1)",
}
RACE = {"missing_wait": "(torch.nn.Tanh, sgd, 1)"}
FOUND = {
    "wrong_backward": ("aten::gelu_backward", "Net.second.act", 1, "backward"),
    "wrong_step": ("aten::addcdiv_", "Adam", 1, "optimizer"),
    "late_error": ("aten::mse_loss", "", 37, "forward"),
    "missing_wait": ("aten::tanh", "Net.second.act", 1, "forward"),
}


@pytest.fixture(scope="module")
def found(run_python) -> dict:
    variables = {"CAUSEWAY_SIM_OPS": "all", "CAUSEWAY_SIM_BUG": ",".join(RUNS)}
    little = {"wrong_backward": RUNS["wrong_backward"]}
    args = (json.dumps(RUNS), json.dumps(little))
    found = json.loads(run_python(SCRIPT, args=args, **variables).stdout)
    # Slow enough that what does not wait comes too early.
    variables |= {"CAUSEWAY_SIM_EXECUTION": "async", "CAUSEWAY_SIM_LATENCY_US": "10000"}
    variables["CAUSEWAY_SIM_BUG"] = ",".join(RACE)
    args = (json.dumps(RACE), "{}")
    return found | json.loads(run_python(SCRIPT, args=args, **variables).stdout)


@pytest.mark.parametrize("fault", [*RUNS, *RACE])
def test_a_planted_fault_is_named_with_operator_module_and_step(found, fault) -> None:
    came = found[fault]
    assert (came["operator"], came["module"], came["step"], came["phase"]) == FOUND[fault], came


def test_little_memory_takes_more_passes_and_finds_the_same(found) -> None:
    much, little = found["wrong_backward"], found["wrong_backward in little memory"]
    assert little["passes"] > much["passes"]
    assert {k: v for k, v in little.items() if k != "passes"} == {
        k: v for k, v in much.items() if k != "passes"
    }


def test_a_right_device_does_not_part_from_the_cpu(device) -> None:
    def make(where):
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).to(where)
        return net, torch.optim.AdamW(net.parameters())

    def step(state, where):
        net, optimizer = state
        optimizer.zero_grad()
        net(torch.ones(2, 4, device=where)).sum().backward()
        optimizer.step()

    found = causeway.first_divergence(make, step, steps=3)
    assert not found
    assert found.values > 20
    assert "no divergence" in str(found)


def test_runs_that_go_different_ways_are_told(device) -> None:
    def step(net, where):
        for _ in range(1 if where.type == "cpu" else 2):
            net(torch.ones(2, 4, device=where))
        torch.nn.ReLU()(torch.ones(1, device=where))

    found = causeway.first_divergence(lambda where: torch.nn.Linear(4, 4).to(where), step)
    assert "went different ways" in str(found)
