"""An image classifier as Ascend's samples have it: arguments, meters, a device by its number."""

import argparse
import time

import torch
import torch.nn as nn
import torch_npu
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="digits on the NPU")
parser.add_argument("--npu", default=0, type=int, help="id of the NPU")
parser.add_argument("--lr", default=0.1, type=float)
parser.add_argument("--epochs", default=4, type=int)
parser.add_argument("--print-freq", default=8, type=int)


class AverageMeter:
    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def train(loader, model, criterion, optimizer, loc, args):
    losses, batch_time = AverageMeter("Loss"), AverageMeter("Time")
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(loader):
        images = images.to(loc, non_blocking=True)
        target = target.to(loc, non_blocking=True)
        loss = criterion(model(images), target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.npu.synchronize()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            print("loss", losses.avg)


@torch.no_grad()
def validate(loader, model, loc):
    model.eval()
    right = 0
    for images, target in loader:
        images, target = images.to(loc), target.to(loc)
        right += (model(images).argmax(1) == target).sum().item()
    return right / len(loader.dataset)


def main():
    args = parser.parse_args()
    loc = f"npu:{args.npu}"
    if torch.npu.is_available():
        torch.npu.set_device(loc)
    torch.manual_seed(1)
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    data = TensorDataset(images, torch.tensor(digits.target))
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(data, batch_size=128, shuffle=True, generator=order)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = model.to(loc)
    print("device", next(model.parameters()).device.type)
    criterion = nn.CrossEntropyLoss().to(loc)
    optimizer = torch_npu.optim.NpuFusedSGD(
        model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4
    )
    for _ in range(args.epochs):
        train(loader, model, criterion, optimizer, loc, args)
    accuracy = validate(loader, model, loc)
    print("accuracy", accuracy)
    assert accuracy > 0.7


if __name__ == "__main__":
    main()
