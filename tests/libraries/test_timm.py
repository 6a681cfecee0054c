"""timm's models train on the device.

timm imports torchvision, whose wheel on PyPI is for CUDA's torch: see test_torchvision.py.
`make test-libraries` puts both into build/timm. In a process of its own, since other libraries look
whether there is a timm or a torchvision.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[2] / "build" / "timm"
pytestmark = [
    pytest.mark.once,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (PACKAGES / "timm").exists(),
        reason="timm and torchvision are not there: `make test-libraries` gets them",
    ),
]

PROGRAM = f"""
import sys, torch
sys.path.append({str(PACKAGES)!r})
import timm, timm.optim
import causeway
from timm.data.loader import PrefetchLoader

device = torch.device(torch.accelerator.current_accelerator().type, 0)
images = torch.randint(256, (8, 3, 32, 32), generator=torch.Generator().manual_seed(0))
data = [(images.to(torch.uint8), torch.arange(8) % 4)]
MODELS = {{
    "resnet10t": {{}},
    "mobilenetv3_small_050": {{}},
    "vit_tiny_patch16_224": {{"img_size": 32, "patch_size": 8, "depth": 2}},
    "convnext_atto": {{"depths": (1, 1, 1, 1)}},
}}

def train(name, place):
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=4, drop_rate=0.0, **MODELS[name])
    model = model.to(place)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    losses = []
    for _ in range(4):
        loader = PrefetchLoader(data, device=place)
        for inputs, classes in loader:
            assert inputs.device == classes.device == place
            loss = torch.nn.functional.cross_entropy(model(inputs), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, loader

for name in MODELS:
    with causeway.ledger() as ledger:
        there, loader = train(name, device)
    assert ledger.total() > 0 and loader.is_npu and loader.stream is not None
    here, loader = train(name, torch.device("cpu"))
    assert loader.stream is None
    torch.testing.assert_close(there, here, rtol=2e-2, atol=2e-2)
    assert there[-1] < there[0], there
    print(name)
"""


def test_models_train_on_the_device_with_the_losses_of_the_cpu(run_python) -> None:
    assert len(run_python(PROGRAM).stdout.split()) == 4
