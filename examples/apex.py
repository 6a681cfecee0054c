"""Train on real handwritten digits with apex's amp, at each of its levels.

A program written for NVIDIA's apex keeps its calls: only the import differs, `from causeway import
apex` (under `causeway run`, or with CAUSEWAY_APEX=1, `from apex import amp` will do too). It runs
on any device (`--device cpu`). One loss is made infinite where the scale is dynamic: the step is
left out, the scale is halved, training goes on. Exits with 1 where an accuracy is missed.
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.nn.functional as F
from amp import OVERFLOW, digits, network

from causeway import apex

amp = apex.amp


def train(level: str, device: str, epochs: int) -> float:
    """Train one network; give its accuracy on the test images."""
    torch.manual_seed(0)
    train_x, test_x, train_y, test_y = digits(device)
    net = network().to(device)
    optimizer = apex.optimizers.FusedAdam(net.parameters(), lr=2e-3, weight_decay=0.01)
    net, optimizer = amp.initialize(
        net, optimizer, opt_level=level, combine_grad=True, verbosity=0, max_loss_scale=2.0**12
    )
    step = 0
    for _ in range(epochs):
        for batch in torch.randperm(len(train_y)).to(device).split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(train_x[batch]), train_y[batch])
            before = amp.state_dict()["loss_scaler0"]["loss_scale"]
            if step == OVERFLOW and level in ("O1", "O2"):
                loss = loss * float("inf")
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
            optimizer.step()
            scale = amp.state_dict()["loss_scaler0"]["loss_scale"]
            if scale < before:
                print(f"step {step}: overflow, the scale goes to {scale:g}")
            step += 1
    net.eval()
    with torch.no_grad():
        accuracy = (net(test_x).argmax(1) == test_y).float().mean().item()
    amp.deactivate()  # the next level begins anew; a program with one level needs no such call
    return accuracy


def main() -> int:
    accelerator = torch.accelerator.current_accelerator()
    parser = argparse.ArgumentParser(description="Digits at apex's levels.")
    parser.add_argument("--device", default=accelerator.type if accelerator else "cpu")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--levels", default="O0,O1,O2,O5")
    parser.add_argument("--accuracy", type=float, default=0.95, help="test accuracy to reach")
    args = parser.parse_args()
    good = True
    for level in args.levels.split(","):
        accuracy = train(level, args.device, args.epochs)
        print(f"{level} accuracy {accuracy:.3f}")
        good = good and accuracy >= args.accuracy
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
