"""Train on real handwritten digits in float32, in bfloat16 and in float16 with a loss scale.

Nothing of Causeway is imported: torch.autocast and torch.amp.GradScaler take the device's name, and
the same file runs on CUDA or on the CPU (`--device cpu`). All three reach the same accuracy. With
float16 one loss is made infinite, to show what becomes of it: the step is left out, the scale is
halved, training goes on. Exits with 1 where an accuracy is missed.
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

OVERFLOW = 20  # the step whose loss is made infinite


def digits(device: str) -> tuple[torch.Tensor, ...]:
    """scikit-learn's 1,797 scans of 8x8 pixels: images and labels to train with, and to test."""
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        pixels.reshape(-1, 1, 8, 8) / 8 - 1, labels, test_size=0.2, random_state=0, stratify=labels
    )
    dtypes = (torch.float32, torch.float32, torch.long, torch.long)
    return tuple(torch.tensor(p, dtype=d).to(device) for p, d in zip(parts, dtypes, strict=True))


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train(precision: str, device: str, epochs: int) -> float:
    """Train one network; give its accuracy on the test images."""
    torch.manual_seed(0)
    train_x, test_x, train_y, test_y = digits(device)
    net = network().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    mixed = precision != "float32"
    dtype = getattr(torch, precision) if mixed else None
    # bfloat16 has float32's range and needs no scale.
    scaler = torch.amp.GradScaler(device, init_scale=2.0**12, enabled=precision == "float16")
    step = 0
    for _ in range(epochs):
        for batch in torch.randperm(len(train_y)).to(device).split(64):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=dtype, enabled=mixed):
                loss = F.cross_entropy(net(train_x[batch]), train_y[batch])
            if step == OVERFLOW and scaler.is_enabled():
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            before = scaler.get_scale()
            scaler.update()
            if scaler.get_scale() < before:
                print(f"step {step}: overflow, the scale goes to {scaler.get_scale():g}")
            step += 1
    net.eval()
    with torch.no_grad(), torch.autocast(device, dtype=dtype, enabled=mixed):
        return (net(test_x).argmax(1) == test_y).float().mean().item()


def main() -> int:
    accelerator = torch.accelerator.current_accelerator()
    parser = argparse.ArgumentParser(description="Digits in three precisions.")
    parser.add_argument("--device", default=accelerator.type if accelerator else "cpu")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--accuracy", type=float, default=0.95, help="test accuracy to reach")
    args = parser.parse_args()
    good = True
    for precision in ("float32", "bfloat16", "float16"):
        accuracy = train(precision, args.device, args.epochs)
        print(f"{precision:9} accuracy {accuracy:.3f}")
        good = good and accuracy >= args.accuracy
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
