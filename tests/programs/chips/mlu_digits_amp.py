"""torch.mlu, its autocast and its scaler, for a net with batch norm and groups."""

import torch
import torch_mlu
from sklearn.datasets import load_digits
from torch import nn

assert torch.mlu.device_count() >= 0
device = "mlu" if torch.mlu.is_available() else "cpu"
torch.manual_seed(12)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardswish(),
    nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.GroupNorm(2, 8), nn.ReLU6(),
    nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(32, 10),
).to(device)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
print("device", next(net.parameters()).device.type)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
scaler = torch.mlu.amp.GradScaler(init_scale=512.0, enabled=device == "mlu")
for step in range(6):
    x = images[step * 100 : step * 100 + 100].to(device)
    y = labels[step * 100 : step * 100 + 100].to(device)
    with torch.autocast(device_type=device, dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(x).float(), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 2.0)
    scaler.step(optimizer)
    scaler.update()
    print("loss", loss.item())
