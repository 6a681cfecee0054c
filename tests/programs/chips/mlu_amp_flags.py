"""torch.mlu.amp with a scaler, TF32's switches, events that time, memory's statistics."""

import torch
import torch.nn as nn
import torch_mlu
from torch.mlu.amp import GradScaler, autocast

torch.backends.cnnl.allow_tf32 = False
torch.backends.mlu.matmul.allow_tf32 = False
torch.backends.mlu.custom.allow_tf32 = False
torch.manual_seed(17)
torch.mlu.manual_seed_all(17)
device = torch.device("mlu:0" if torch.mlu.is_available() else "cpu")
model = nn.Sequential(
    nn.Conv1d(4, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Flatten(), nn.Linear(64, 3)
).to(device)
print("device", next(model.parameters()).device.type)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scaler = GradScaler(init_scale=1024.0, enabled=torch.mlu.is_available())
x, y = torch.randn(32, 4, 8).to(device), torch.randint(0, 3, (32,)).to(device)
if torch.mlu.is_available():
    start, end = torch.mlu.Event(enable_timing=True), torch.mlu.Event(enable_timing=True)
    torch.mlu.reset_peak_memory_stats()
    start.record()
for step in range(6):
    optimizer.zero_grad(set_to_none=True)
    with autocast(dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print("loss", loss.item())
if torch.mlu.is_available():
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert torch.mlu.max_memory_allocated() >= torch.mlu.memory_allocated() > 0
    assert torch.mlu.get_device_name(0) and torch.mlu.get_device_properties(0).total_memory > 0
    torch.mlu.empty_cache()
