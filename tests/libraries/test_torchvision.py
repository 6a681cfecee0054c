"""torchvision from PyPI, whose library wants CUDA's torch: a detector trains and finds boxes.

`make test-libraries` puts it into build/timm. In a process of its own, as other libraries look
whether there is a torchvision.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[2] / "build" / "timm"
pytestmark = [
    pytest.mark.once,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (PACKAGES / "torchvision").exists(),
        reason="torchvision is not there: `make test-libraries` gets it",
    ),
]

HEAD = f"""
import copy, sys, warnings
sys.path.append({str(PACKAGES)!r})
import torch, torchvision, causeway
from torchvision.models import detection
warnings.simplefilter("error", UserWarning)
device = torch.accelerator.current_accelerator()
torch.manual_seed(0)
images = [torch.rand(3, 96, 128), torch.rand(3, 112, 96)]
targets = [
    {{"boxes": torch.tensor([[8.0, 8, 48, 56], [40, 30, 90, 80]]), "labels": torch.tensor([1, 2])}},
    {{"boxes": torch.tensor([[16.0, 24, 72, 80]]), "labels": torch.tensor([3])}},
]
def on_device(values):
    return [{{k: v.to(device) for k, v in d.items()}} for d in values]
"""


def run(run_python, program: str) -> str:
    return run_python(
        HEAD + program, timeout=600, CAUSEWAY_SIM_OPS="all", CAUSEWAY_SIM_CODE="1"
    ).stdout


def test_a_detector_finds_the_boxes_that_the_cpu_finds(run_python) -> None:
    program = """
model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(
    weights=None, weights_backbone=None, num_classes=4, box_detections_per_img=20).eval()
there = copy.deepcopy(model).to(device)
with torch.no_grad(), causeway.ledger() as ledger:
    for right, found in zip(model(images), there([i.to(device) for i in images])):
        for name in right:
            torch.testing.assert_close(found[name].cpu(), right[name], rtol=1e-3, atol=1e-3)
print({r.operator: r.rung for r in ledger.rows if r.operator.startswith("torchvision::")})
"""
    served = "{'torchvision::nms': 'native', 'torchvision::roi_align': 'portable'}\n"
    assert run(run_python, program) == served


def test_a_detector_trains(run_python) -> None:
    program = """
model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(
    weights=None, weights_backbone=None, num_classes=4).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for _ in range(6):
    loss = sum(model([i.to(device) for i in images], on_device(targets)).values())
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item())
assert losses[-1] < 0.7 * losses[0], losses
print("trained")
"""
    assert run(run_python, program) == "trained\n"


def test_regions_are_torchvisions_own(run_python) -> None:
    program = """
from torchvision.ops import roi_align
from torchvision.ops.roi_align import _roi_align
plain = _roi_align.__wrapped__  # torchvision's own in Python; of regions within the image
x = torch.randn(2, 4, 16, 20)
at = torch.rand(9, 2) * 8
rois = torch.cat([torch.arange(9)[:, None] % 2, at, at + 1 + torch.rand(9, 2) * 6], 1)
for aligned in (False, True):
    for place in ("cpu", device):
        found = roi_align(x.to(place), rois.to(place), (3, 2), 1.0, 2, aligned)
        torch.testing.assert_close(found.cpu(), plain(x, rois, 1.0, 3, 2, 2, aligned))
print("same")
"""
    assert run(run_python, program) == "same\n"
