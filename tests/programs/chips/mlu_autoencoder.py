"""An autoencoder with ranges for Cambricon's profiler and times from events."""

import torch
import torch.nn as nn
import torch_mlu
from sklearn.datasets import load_digits

torch.manual_seed(13)
torch.mlu.manual_seed(13)
torch.backends.mlu.matmul.allow_tf32 = False
mlu_id = torch.mlu.current_device() if torch.mlu.is_available() else 0
images = (torch.tensor(load_digits().images, dtype=torch.float32) / 16).unsqueeze(1)
encoder = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(8, 4, 3, 2, 1))
decoder = nn.Sequential(
    nn.ConvTranspose2d(4, 8, 2, 2), nn.LeakyReLU(0.1), nn.ConvTranspose2d(8, 1, 2, 2), nn.Sigmoid()
)
model = nn.Sequential(encoder, decoder).to(f"mlu:{mlu_id}")
print("device", next(model.parameters()).device.type)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
if torch.mlu.is_available():
    begin = torch.mlu.Event(enable_timing=True)
    finish = torch.mlu.Event(enable_timing=True)
    begin.record()
for step in range(6):
    x = images[step * 150 : step * 150 + 150].mlu(non_blocking=True)
    with torch.mlu.cnpx.range("forward"):
        loss = nn.functional.binary_cross_entropy(model(x), x)
    with torch.mlu.cnpx.range("backward"):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
if torch.mlu.is_available():
    assert loss.is_mlu
    finish.record()
    finish.synchronize()
    assert begin.elapsed_time(finish) > 0 and torch.mlu.max_memory_allocated() > 0
