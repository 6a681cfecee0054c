"""Digits in the style of Cambricon's first packages: ct, a count of cores, a device from ct."""

import argparse

import torch
import torch.nn as nn
import torch_mlu.core.mlu_model as ct
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--mlu", default=True, type=bool)
parser.add_argument("--batch_size", default=128, type=int)
parser.add_argument("--mcore", default="MLU270", type=str)
parser.add_argument("--core_number", default=16, type=int)


def get_network():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(54, 10)
    )


def main():
    args = parser.parse_args()
    ct.set_core_number(args.core_number)
    ct.set_core_version(args.mcore)
    torch.manual_seed(11)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    net = get_network()
    if args.mlu:
        net = net.to(ct.mlu_device())
    print("device", next(net.parameters()).device.type)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    for step in range(8):
        low = step * args.batch_size
        x = images[low : low + args.batch_size].to(ct.mlu_device())
        y = labels[low : low + args.batch_size].to(ct.mlu_device(), non_blocking=True)
        loss = nn.functional.nll_loss(torch.log_softmax(net(x), 1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())


if __name__ == "__main__":
    main()
