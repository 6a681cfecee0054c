"""A variational autoencoder of digits, under torch_npu's profiler."""

import torch
import torch.nn.functional as F
import torch_npu
from sklearn.datasets import load_digits
from torch import nn

device = torch.device("npu:0" if torch.npu.is_available() else "cpu")
torch.manual_seed(6)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.mean, self.log = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.decode = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 64))

    def forward(self, x, noise):
        h = torch.tanh(self.encode(x))
        mean, log = self.mean(h), self.log(h)
        return self.decode(mean + noise * torch.exp(0.5 * log)), mean, log


images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
model = VAE().to(device)
print("device", next(model.parameters()).device.type)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with torch_npu.profiler.profile(
    activities=[torch_npu.profiler.ProfilerActivity.CPU, torch_npu.profiler.ProfilerActivity.NPU],
    schedule=torch_npu.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
    record_shapes=True,
) as prof:
    for step in range(6):
        x = images[step * 200 : step * 200 + 200].to(device)
        noise = torch.randn(len(x), 4).to(device)
        out, mean, log = model(x, noise)
        kl = -0.5 * (1 + log - mean.square() - log.exp()).sum() / len(x)
        loss = F.mse_loss(out, x, reduction="sum") / len(x) + kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
        print("loss", loss.item())
assert len(prof.events()) > 0
