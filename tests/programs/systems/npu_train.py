"""A training loop as in Ascend's samples: the package, its switches, private formats."""

import os

import torch
import torch.nn as nn

if torch.__version__ >= "1.8":
    import torch_npu

os.environ["HCCL_WHITELIST_DISABLE"] = "1"
torch.npu.set_compile_mode(jit_compile=False)
torch.npu.config.allow_internal_format = False

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 2))
data, target = torch.randn(32, 8), torch.randint(0, 2, (32,))
device = torch.device("npu:0" if torch.npu.is_available() else "cpu")
if torch.npu.is_available():
    torch.npu.set_device(device)
print("device", device.type)
model = model.to(device)
model[0].weight.data = torch_npu.npu_format_cast(model[0].weight.data, 29)
criterion = nn.CrossEntropyLoss().to(device)
optimizer = torch_npu.optim.NpuFusedSGD(model.parameters(), lr=0.5, momentum=0.9)
for _ in range(6):
    out = model(data.to(device, non_blocking=True))
    loss = criterion(out, target.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
if loss.is_npu:
    torch.npu.synchronize()
    assert torch.npu.max_memory_allocated() > 0
