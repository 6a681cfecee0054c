#!/usr/bin/env python
"""Classify small images, as written for CUDA in 2019: .cuda(), a flag --no-cuda, mixed precision."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.bn = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, 2)
        self.fc = nn.Linear(16 * 6 * 6, 10)

    def forward(self, x):
        x = F.relu(self.bn(self.conv1(x)))
        x = F.relu(self.conv2(x))
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


class AverageMeter(object):
    """Keeps values; has a .cuda() of its own, which is no tensor's."""

    def __init__(self):
        self.values = torch.zeros(0)

    def cuda(self):
        self.values = self.values.cuda()
        return self

    def update(self, value):
        self.values = torch.cat([self.values, value.detach().reshape(1).type(torch.cuda.FloatTensor)
                                 if value.is_cuda else value.detach().reshape(1)])


def batches(n):
    generator = torch.Generator().manual_seed(3)
    for _ in range(n):
        yield torch.randn(16, 1, 16, 16, generator=generator), torch.randint(
            10, (16,), generator=generator)


def main():
    parser = argparse.ArgumentParser(description="barracuda classifier")
    parser.add_argument("--no-cuda", action="store_true", help="disables CUDA training")
    parser.add_argument("--amp", action="store_true", help="mixed precision (torch.cuda.amp)")
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    args.cuda = not args.no_cuda and torch.cuda.is_available()
    torch.manual_seed(1)
    if args.cuda:
        torch.cuda.manual_seed(1)
        torch.backends.cudnn.benchmark = True
    device = torch.device("cuda:0" if args.cuda else "cpu")

    model = Net().to(device)
    criterion = nn.NLLLoss()
    if args.cuda:
        criterion = criterion.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = GradScaler(enabled=args.amp)
    meter = AverageMeter()
    if args.cuda:
        meter = meter.cuda()
    losses = []
    start = time.time()
    for data, target in batches(args.steps):
        if args.cuda:
            data, target = data.cuda(non_blocking=True), target.cuda(0, non_blocking=True)
        optimizer.zero_grad()
        with autocast(enabled=args.amp):
            loss = criterion(model(data), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        meter.update(loss)
        losses.append(loss.item())
    if args.cuda:
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() / 1e6
        print(f"took {time.time() - start:.1f} s, {peak:.1f} MB on {torch.cuda.get_device_name(0)}")
    torch.cuda.empty_cache()
    print("device", next(model.parameters()).device)
    for loss in losses:
        print("loss", loss)


if __name__ == "__main__":
    main()
