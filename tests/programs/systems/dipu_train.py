"""CUDA code under torch_dipu, which redirects it."""

import torch
import torch_dipu
from torch_dipu import dipu

torch.manual_seed(9)
model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 6))
data = torch.randn(20, 6)
if torch.cuda.is_available():
    assert dipu.device_count() > 0
    model, data = model.cuda(), data.to("cuda", non_blocking=True)
print("device", data.device.type)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
for _ in range(5):
    loss = torch.nn.functional.mse_loss(model(data), data)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print("loss", loss.item())
torch_dipu.dipu.empty_cache()
