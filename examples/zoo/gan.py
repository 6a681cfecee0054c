"""A generative adversarial network that draws digits, judged by how near they come to real ones.

python examples/zoo/gan.py [--epochs N] [--device cpu]
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

NOISE = 32


def networks() -> tuple[nn.Module, nn.Module]:
    """One that draws from noise [n, 32, 1, 1], one that judges images [n, 1, 8, 8]."""
    generator = nn.Sequential(
        nn.ConvTranspose2d(NOISE, 64, 4, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 1, 4, stride=2, padding=1),
        nn.Tanh(),
    )
    critic = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(32, 64, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(64 * 16, 1),
    )
    return generator, critic


def distance(drawn: Tensor, real: Tensor) -> float:
    """From a drawn image to the nearest real one, on average."""
    return torch.cdist(drawn.flatten(1), real.flatten(1)).amin(1).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--device", default=torch.accelerator.current_accelerator() or "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)

    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    images = images[torch.randperm(len(images))].to(device)
    generator, critic = (network.to(device) for network in networks())
    drawing = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    judging = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
    for epoch in range(args.epochs):
        for real in images.split(64):
            drawn = generator(torch.randn(len(real), NOISE, 1, 1, device=device))
            loss = F.softplus(-critic(real)).mean() + F.softplus(critic(drawn.detach())).mean()
            judging.zero_grad()
            loss.backward()
            judging.step()

            fooled = F.softplus(-critic(drawn)).mean()
            drawing.zero_grad()
            fooled.backward()
            drawing.step()
        if epoch % 5 == 0:
            print(f"epoch {epoch}: critic {loss.item():.2f}, generator {fooled.item():.2f}")

    generator.eval()
    with torch.no_grad():
        drawn = generator(torch.randn(256, NOISE, 1, 1, device=device))
        noise = torch.rand_like(drawn) * 2 - 1
    for row in ((drawn[0, 0] + 1) * 2).round().int().tolist():
        print("".join(" .:*#"[pixel] * 2 for pixel in row))
    near, far = distance(drawn, images), distance(noise, images)
    print(f"{near / far:.2f} of noise's distance to the nearest digit, on {device.type}")


if __name__ == "__main__":
    main()
