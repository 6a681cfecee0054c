"""Checkpoints whose paths and keys contain "cuda", loaded in every way."""

import copy
import os
import pickle
import tempfile

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data = torch.randn(16, 4, device="cpu").cuda()


def train():
    loss = model(data).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.6f}")


train()
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "cuda:0.pt")
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "cuda": "cuda:0"}, path
    )
    train()
    weight = model[0].weight.detach().cpu().clone()
    for where in (None, "cuda", "cuda:0", torch.device("cuda"), {"cuda:0": "cuda:0"}):
        loaded = torch.load(path, map_location=where)
        assert loaded["model"]["0.weight"].device.type == data.device.type, where
        assert loaded["cuda"] == "cuda:0"
    for where in ("cpu", torch.device("cpu"), {"cuda:0": "cpu"}, lambda storage, loc: storage):
        loaded = torch.load(path, map_location=where)
        assert loaded["model"]["0.weight"].sum() == weight.sum() or where, where
    seen = []
    torch.load(path, map_location=lambda storage, loc: seen.append(loc) or storage.cuda(0))
    assert set(seen) <= {"cuda:0", "cpu"}, seen
    checkpoint = torch.load(path, weights_only=True, map_location="cuda:0")
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
train()
assert torch.equal(weight, model[0].weight.detach().cpu())
twin = copy.deepcopy(model)
assert twin[0].weight.is_cuda == model[0].weight.is_cuda
again = pickle.loads(pickle.dumps(data))
assert again.device == data.device
device = pickle.loads(pickle.dumps(torch.device("cuda:1")))
assert device == torch.device("cuda:1")
assert isinstance(device, torch.device)
train()
