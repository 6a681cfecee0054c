"""Mixed precision by torch_npu.npu.amp."""

import torch
import torch_npu
from torch_npu.npu.amp import GradScaler, autocast

torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).npu()
data = torch.randn(64, 8).npu()
target = torch.randn(64, 1).npu(non_blocking=True)
print("device", data.device.type)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = GradScaler(init_scale=128.0)
for _ in range(6):
    optimizer.zero_grad()
    with autocast():
        loss = torch.nn.functional.mse_loss(model(data).float(), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print("loss", loss.item())
torch_npu.npu.empty_cache()
