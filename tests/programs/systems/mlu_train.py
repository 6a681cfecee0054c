"""A classifier in the style of Cambricon's first packages: ct, core numbers, .to(ct.mlu_device())."""

import argparse

import torch
import torch_mlu.core.mlu_model as ct

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="mlu", type=str, help="mlu or cpu")
parser.add_argument("--core_number", default=4, type=int)
args = parser.parse_args()

ct.set_core_number(args.core_number)
ct.set_core_version("MLU270")
torch.set_grad_enabled(True)
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 3))
images, labels = torch.randn(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
model = model.to(ct.mlu_device())
images = images.to(ct.mlu_device())
print("device", images.device.type)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(5):
    loss = torch.nn.functional.cross_entropy(model(images), labels.to(args.device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
