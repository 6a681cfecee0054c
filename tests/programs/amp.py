"""torch.cuda.amp with autocast as a decorator and a context, and GradScaler."""

import warnings

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.cuda.amp import GradScaler, autocast

warnings.filterwarnings("ignore", category=FutureWarning)
torch.manual_seed(5)
torch.cuda.manual_seed_all(5)
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    @autocast()
    def forward(self, x):
        assert torch.is_autocast_enabled()
        assert torch.get_autocast_gpu_dtype() is torch.float16
        return self.layers(x)


digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32).cuda() / 16
y = torch.tensor(digits.target).cuda()
model = nn.DataParallel(Net().cuda(), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = GradScaler(init_scale=1024.0)
for i in range(8):
    rows = slice(i * 128, (i + 1) * 128)
    optimizer.zero_grad()
    with autocast(dtype=torch.float16):
        output = model(x[rows])
        assert output.dtype is torch.float16
        loss = nn.functional.cross_entropy(output, y[rows])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(f"loss {loss.item():.6f}")
print(f"loss {scaler.get_scale():.1f}")
