"""A checkpoint of a model on the NPU, and the state of its random numbers."""

import os
import tempfile

import torch
import torch_npu

device = "npu" if hasattr(torch, "npu") and torch.npu.is_available() else "cpu"
torch.manual_seed(4)
torch.npu.manual_seed_all(4)
model = torch.nn.Linear(6, 3)
data = torch.randn(12, 6)
model = model.to(device)
print("device", next(model.parameters()).device.type)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "npu.pt")
    for step in range(5):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        loss = model(data.to(device)).square().mean()
        loss.backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "step": step, "npu": True}, path)
        state = torch.load(path, map_location="npu:0" if device == "npu" else "cpu")
        assert state["npu"] and state["step"] == step
        model.load_state_dict(state["model"])
        model.zero_grad()
        print("loss", loss.item())
