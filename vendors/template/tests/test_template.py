"""The device as a user has it. The package is installed: pip install --no-build-isolation ."""

import os
import subprocess
import sys

os.environ.setdefault("CAUSEWAY_VENDOR", "template")  # whatever else is installed

import torch
from causeway_template import library


def test_tensors_are_on_the_device():
    x = torch.ones(3, device="template") + 1
    assert x.device.type == "template"
    assert x.tolist() == [2, 2, 2]


def test_a_layer_learns():
    torch.manual_seed(0)
    x = torch.randn(64, 3, device="template")
    target = x.sum(1, keepdim=True)
    net = torch.nn.Linear(3, 1).to("template")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-4


def test_the_contract_is_kept():
    """Level 0; raise it as the library grows: without --level every operator is asked too."""
    program = "from causeway.cli import app; app()"
    command = [sys.executable, "-c", program, "conformance", "--level", "0", "--vendor", library()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
