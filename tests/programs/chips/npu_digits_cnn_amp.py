"""Convolutions in mixed precision: torch_npu.npu.amp, a scaler, a learning rate that falls."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_npu
from sklearn.datasets import load_digits
from torch_npu.npu.amp import GradScaler, autocast

CALCULATE_DEVICE = "npu:0"
if torch.npu.is_available():
    torch_npu.npu.set_device(CALCULATE_DEVICE)
torch.npu.set_compile_mode(jit_compile=False)
torch.manual_seed(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
net = Net().to(CALCULATE_DEVICE)
print("device", next(net.parameters()).device.type)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
scaler = GradScaler(init_scale=256.0)
for step in range(10):
    x = images[step * 128 : step * 128 + 128].to(CALCULATE_DEVICE)
    y = labels[step * 128 : step * 128 + 128].to(CALCULATE_DEVICE)
    optimizer.zero_grad()
    with autocast():
        out = net(x)
        loss = F.cross_entropy(out.float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
    print("loss", loss.item())
