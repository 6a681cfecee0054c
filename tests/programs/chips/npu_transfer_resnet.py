"""A CUDA program that one import moves to the NPU: residual blocks, a checkpoint, an evaluation."""

import io

import torch
import torch.nn as nn
import torch_npu
from sklearn.datasets import load_digits
from torch_npu.contrib import transfer_to_npu

torch.backends.cudnn.benchmark = True
torch.manual_seed(5)
if torch.cuda.is_available():
    torch.cuda.manual_seed_all(5)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU(inplace=True),
            nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), Block(8), nn.MaxPool2d(2), Block(8),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = model.to(device)
print("device", next(model.parameters()).device.type)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
for step in range(6):
    x = images[step * 64 : step * 64 + 64].to(device, non_blocking=True)
    y = labels[step * 64 : step * 64 + 64].to(device, non_blocking=True)
    loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
stored = io.BytesIO()
torch.save({"state_dict": model.state_dict(), "step": 6}, stored)
stored.seek(0)
checkpoint = torch.load(stored, map_location="cpu")
model.load_state_dict(checkpoint["state_dict"])
model.eval()
with torch.no_grad():
    print("loss", nn.functional.cross_entropy(model(images[:200].to(device)), labels[:200].to(device)).item())
if torch.cuda.is_available():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
