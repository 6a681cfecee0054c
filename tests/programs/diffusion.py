"""A denoising diffusion model: streams, events, NVTX, generators, EMA; needs a device, says the author."""
import math
from contextlib import nullcontext

import torch
from torch import cuda as c
from torch import nn
from torch.cuda import nvtx

STEPS = 20


def get_device():
    return "cuda" if c.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(8, channels)

    def forward(self, x, t):
        return x + self.conv(torch.nn.functional.silu(self.norm(x) + self.time(t)[:, :, None, None]))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inlet = nn.Conv2d(1, 8, 3, padding=1)
        self.blocks = nn.ModuleList(Block(8) for _ in range(2))
        self.outlet = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x, t):
        freqs = torch.exp(-math.log(1000) * torch.arange(4, device=x.device) / 4)
        angles = t[:, None].float() * freqs
        embedding = torch.cat([angles.sin(), angles.cos()], dim=1)
        x = self.inlet(x)
        for block in self.blocks:
            x = block(x, embedding)
        return self.outlet(x)


class EMA:
    def __init__(self, model, decay=0.9):
        self.shadow = {k: v.clone().cuda() for k, v in model.state_dict().items()}
        self.decay = decay

    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)


def main():
    torch.manual_seed(2)
    c.manual_seed(2)
    model = UNet().cuda()
    ema = EMA(model)
    betas = torch.linspace(1e-4, 0.2, STEPS, device=get_device())
    bars = torch.cumprod(1 - betas, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    noise_source = torch.Generator(device="cpu").manual_seed(4)
    copies = c.Stream() if c.is_available() else None
    begin, end = (c.Event(enable_timing=True), torch.cuda.Event(True)) if c.is_available() else (None, None)
    losses = []
    if begin is not None:
        begin.record()
    for step in range(4):
        images = torch.randn(8, 1, 8, 8, generator=noise_source)
        noise = torch.randn(8, 1, 8, 8, generator=noise_source)
        t = torch.randint(STEPS, (8,), generator=noise_source)
        with torch.cuda.stream(copies) if c.is_available() else nullcontext():
            images, noise, t = images.cuda(non_blocking=True), noise.to("cuda"), t.cuda()
        if copies is not None:
            torch.cuda.current_stream().wait_stream(copies)
        with nvtx.range("step"):
            bar = bars[t][:, None, None, None]
            noisy = bar.sqrt() * images + (1 - bar).sqrt() * noise
            loss = ((model(noisy, t) - noise) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ema.update(model)
        losses.append(loss.item())
    if end is not None:
        end.record()
        c.synchronize()
        assert begin.elapsed_time(end) >= 0
        c.reset_peak_memory_stats(device="cuda")
        assert c.memory_allocated(device=torch.device("cuda:0")) >= 0
    losses.append(sum(v.abs().sum().item() for v in ema.shadow.values()))
    print("device", bars.device)
    for loss in losses:
        print("loss", loss)


if __name__ == "__main__":
    main()
