"""Train a small network on handwritten digits, and write it to a file for infer.c, infer.cpp and
infer.py.

The folder that is named gets `digits.cw`, a model of 36 images a run, and `images.bin`, the 360
test images as float32. Prints the digits that stock torch predicts on the CPU, 36 a line: each of
the three programs prints the same. The digits are scikit-learn's, so nothing is downloaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import causeway

BATCH = 36
TEST = 360


class Net(nn.Module):
    """Two linear layers: 64 pixels, ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layers(image)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pixels, labels = load_digits(return_X_y=True)
    images, targets = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(model(images[:-TEST]), targets[:-TEST]).backward()
        optimizer.step()
    test = images[-TEST:].contiguous()
    with torch.no_grad():
        digits = model(test).argmax(1)
    for line in digits.split(BATCH):
        print("".join(map(str, line.tolist())))
    right = int((digits == targets[-TEST:]).sum())
    print(f"{right} of {TEST} are right", file=sys.stderr)

    device = torch.accelerator.current_accelerator()
    example = test[:BATCH].to(device)
    causeway.export(model.to(device).eval(), (example,), folder / "digits.cw")
    (folder / "images.bin").write_bytes(test.numpy().tobytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
