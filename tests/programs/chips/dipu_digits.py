"""A CUDA classifier of digits that DIPU runs by its import."""

import torch
import torch_dipu
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(17)
torch.cuda.manual_seed(17)
digits = load_digits()
data = TensorDataset(
    torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
)
loader = DataLoader(
    data, batch_size=200, shuffle=True, pin_memory=torch.cuda.is_available(),
    generator=torch.Generator().manual_seed(17),
)
device = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
model = nn.Sequential(nn.Linear(64, 48), nn.PReLU(), nn.LayerNorm(48), nn.Linear(48, 10)).to(device)
print("device", next(model.parameters()).device.type)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=len(loader))
for images, labels in loader:
    images = images.to(device, non_blocking=True)
    labels = labels.to(device, non_blocking=True)
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    schedule.step()
    print("loss", loss.item())
if torch.cuda.is_available():
    torch.cuda.synchronize()
    print("memory", torch.cuda.memory_allocated() > 0)
