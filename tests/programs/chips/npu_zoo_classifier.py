"""A training script of a model zoo: arguments, options, a fused optimizer, meters, a checkpoint."""

import argparse
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch_npu
from torch_npu.npu.amp import GradScaler, autocast
from torch_npu.optim import NpuFusedSGD

parser = argparse.ArgumentParser(description="classifier on NPU")
parser.add_argument("--device", default="npu", type=str)
parser.add_argument("--device_id", default=0, type=int)
parser.add_argument("--amp", default=True, action="store_true")
parser.add_argument("--loss-scale", default=128.0, type=float)
parser.add_argument("--steps", default=8, type=int)


class AverageMeter:
    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class ConvBNReLU(nn.Sequential):
    def __init__(self, i, o, stride=1, groups=1):
        super().__init__(
            nn.Conv2d(i, o, 3, stride, 1, groups=groups, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU6(inplace=True),
        )


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            ConvBNReLU(3, 8, 2), ConvBNReLU(8, 8, groups=8), nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16)
        )
        self.classifier = nn.Linear(16, 5)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")

    def forward(self, x):
        return self.classifier(self.features(x).mean([2, 3]))


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0) * 100.0 / target.size(0) for k in topk]


def main(args):
    if args.device == "npu" and torch.npu.is_available():
        torch.npu.set_device(f"npu:{args.device_id}")
        torch.npu.config.allow_internal_format = False
        torch_npu.npu.set_compile_mode(jit_compile=False)
        torch.npu.set_option(
            {"NPU_FUZZY_COMPILE_BLACKLIST": "ReduceProd", "ALLOW_INTERNAL_FORMAT": "disable"}
        )
        torch.npu.set_option({"ACL_OP_COMPILER_CACHE_DIR": "./cache"})
    loc = f"{args.device}:{args.device_id}"
    torch.manual_seed(3)
    model = MobileNet().to(loc)
    print("device", next(model.parameters()).device.type)
    criterion = nn.CrossEntropyLoss().to(loc)
    decay = [p for n, p in model.named_parameters() if p.dim() > 1]
    no_decay = [p for n, p in model.named_parameters() if p.dim() <= 1]
    optimizer = NpuFusedSGD(
        [{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": 1e-4}],
        0.05,
        momentum=0.9,
        nesterov=True,
    )
    scaler = GradScaler(enabled=args.amp, init_scale=args.loss_scale)
    images, labels = torch.randn(64, 3, 16, 16), torch.randint(0, 5, (64,))
    losses, top1, batch_time = AverageMeter("Loss"), AverageMeter("Acc@1"), AverageMeter("Time")
    model.train()
    for step in range(args.steps):
        start = time.time()
        at = step % 2 * 32
        x = images[at : at + 32].to(loc, non_blocking=True).to(torch.float)
        y = labels[at : at + 32].to(torch.int32).to(loc, non_blocking=True)
        with autocast(enabled=args.amp, dtype=torch.bfloat16):
            output = model(x)
            loss = criterion(output, y.long())
        acc1, _ = accuracy(output, y, topk=(1, 2))
        losses.update(loss.item(), x.size(0))
        top1.update(acc1.item(), x.size(0))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if torch.npu.is_available():
            torch.npu.synchronize()
        batch_time.update(time.time() - start)
        print("loss", loss.item())
    state = {
        "arch": "mobilenet",
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "amp": scaler.state_dict(),
    }
    path = os.path.join(tempfile.mkdtemp(), "checkpoint.pth.tar")
    torch.save(state, path)
    again = torch.load(path, map_location="cpu")
    model.load_state_dict(again["state_dict"])
    optimizer.load_state_dict(again["optimizer"])
    scaler.load_state_dict(again["amp"])
    assert losses.count == 32 * args.steps and 0 <= top1.avg <= 100


if __name__ == "__main__":
    main(parser.parse_args([]))
