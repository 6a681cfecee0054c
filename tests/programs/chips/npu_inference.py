"""A trained classifier is stored, loaded on a named NPU, timed by events and asked in batches."""

import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch_npu
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--device_id", type=int, default=0)
args = parser.parse_args()
device = torch.device(f"npu:{args.device_id}")
if torch.npu.is_available():
    torch.npu.set_device(device)
torch.manual_seed(8)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)


def make():
    return nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))


model = make()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=8)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images[:600]), labels[:600])
    loss.backward()
    return loss


optimizer.step(closure)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "digits_npu.pth")
    torch.save(model.state_dict(), path)
    loaded = make().to(device)
    loaded.load_state_dict(torch.load(path, map_location="cpu"))
loaded.eval()
print("device", next(loaded.parameters()).device.type)
use_npu = torch.npu.is_available()
if use_npu:
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    stream = torch.npu.Stream()
    start.record()
with torch.no_grad():
    for batch, target in zip(images.split(300), labels.split(300)):
        if use_npu:
            stream.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(stream):
                out = loaded(batch.to(device, non_blocking=True))
            torch.npu.current_stream().wait_stream(stream)
        else:
            out = loaded(batch)
        print("loss", nn.functional.cross_entropy(out, target.to(device)).item())
print("accuracy", (loaded(images.npu()).argmax(-1).cpu() == labels).float().mean().item())
if use_npu:
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert torch.npu.memory_allocated() <= torch.npu.max_memory_allocated()
    torch.npu.empty_cache()
