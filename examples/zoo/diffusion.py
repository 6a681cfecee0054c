"""Denoising diffusion (Ho et al. 2020): digits drawn from noise, step by step.

python examples/zoo/diffusion.py [--epochs N] [--device cpu]
"""

from __future__ import annotations

import argparse
import math

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS, WIDTH = 50, 32


class Block(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, channels), nn.GroupNorm(4, out)
        self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(WIDTH, out)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.down, self.middle = Block(WIDTH, WIDTH), Block(WIDTH, 2 * WIDTH)
        self.up = Block(3 * WIDTH, WIDTH)
        self.outlet = nn.Conv2d(WIDTH, 1, 3, padding=1)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        rates = torch.exp(-math.log(1e3) * torch.arange(WIDTH // 2, device=x.device) / (WIDTH // 2))
        angles = step[:, None] * rates
        time = torch.cat([angles.sin(), angles.cos()], 1)
        fine = self.down(self.inlet(x), time)
        coarse = self.middle(F.avg_pool2d(fine, 2), time)
        coarse = F.interpolate(coarse, scale_factor=2, mode="nearest")
        return self.outlet(self.up(torch.cat([fine, coarse], 1), time))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default=torch.accelerator.current_accelerator() or "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)

    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    images = images[torch.randperm(len(images))].to(device)
    beta = torch.linspace(1e-3, 0.2, STEPS, device=device)
    kept = torch.cumprod(1 - beta, 0)  # of an image's variance

    model = UNet().to(device)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for real in images.split(128):
            step = torch.randint(STEPS, (len(real),), device=device)
            noise = torch.randn_like(real)
            share = kept[step][:, None, None, None]
            seen = share.sqrt() * real + (1 - share).sqrt() * noise
            loss = F.mse_loss(model(seen, step), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
        if epoch % 5 == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")

    average.eval()
    drawn = torch.randn(128, 1, 8, 8, device=device)
    with torch.no_grad():
        for t in reversed(range(STEPS)):
            noise = average(drawn, torch.full((len(drawn),), t, device=device))
            drawn = (drawn - beta[t] / (1 - kept[t]).sqrt() * noise) / (1 - beta[t]).sqrt()
            if t:
                drawn += beta[t].sqrt() * torch.randn_like(drawn)
    for row in ((drawn[0, 0].clamp(-1, 1) + 1) * 2).round().int().tolist():
        print("".join(" .:*#"[pixel] * 2 for pixel in row))
    near, far = (
        torch.cdist(x.flatten(1), images.flatten(1)).amin(1).mean().item()
        for x in (drawn, torch.rand_like(drawn) * 2 - 1)
    )
    print(f"{near / far:.2f} of noise's distance to the nearest digit, on {device.type}")


if __name__ == "__main__":
    main()
