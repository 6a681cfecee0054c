"""Denoising of digits with names of torch_npu for layers and operators that torch has too."""

import torch
import torch.nn as nn
import torch_npu
from sklearn.datasets import load_digits
from torch_npu.contrib.module import Mish

torch.npu.config.allow_internal_format = False
torch.manual_seed(9)
images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
keep = torch.cos(torch.linspace(0, 1.5, 20)).square()


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(20, 32)
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 64)
        self.act = Mish()

    def forward(self, x, t):
        h = torch_npu.npu_silu(torch_npu.npu_linear(x, self.first.weight, self.first.bias))
        h = self.act(h + self.time(t))
        return torch_npu.npu_linear(h, torch_npu.npu_format_cast(self.last.weight, 29), self.last.bias)


net = Denoiser().npu()
keep = keep.npu()
print("device", keep.device.type)
optimizer = torch_npu.optim.NpuFusedAdamW(net.parameters(), lr=1e-2)
for step in range(6):
    x = images[step * 128 : step * 128 + 128].npu()
    t = (torch.arange(len(x)) * 7 % 20).npu()
    noise = torch.randn(len(x), 64).npu()
    share = torch_npu.npu_dtype_cast(keep[t].unsqueeze(1), torch.float32)
    loss = nn.functional.mse_loss(net(share.sqrt() * x + (1 - share).sqrt() * noise, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
