"""What launch.sh starts: options, a configuration, as many devices as the script allows."""

import argparse

import torch
import torch_npu
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="npu")
parser.add_argument("--config", required=True)
args = parser.parse_args()
with open(args.config) as file:
    config = yaml.safe_load(file)
width = config["model"]["width"]
torch.manual_seed(11)
model, data = torch.nn.Linear(width, width), torch.randn(7, width)
model.to(args.device)
print("device", next(model.parameters()).device.type)
if torch.npu.is_available():
    print("devices", torch.npu.device_count())
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for _ in range(5):
    loss = model(data.to(args.device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
