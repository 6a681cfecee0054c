"""A detector in two stages, with torchvision's nms and roi_align: where digits are, then which.

A scene is 48 x 48 with scikit-learn's digits at random places. The first stage says at each place
of a coarse image whether a digit's centre is there, and its box; the second looks at each box.

    python examples/zoo/detector.py [--steps N] [--device cpu]
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torchvision.ops import box_iou, nms, roi_align

SIDE, STRIDE, DIGITS = 48, 4, 3


def scenes(n: int, pixels: Tensor, labels: Tensor, pick: torch.Generator) -> tuple[Tensor, ...]:
    """Images [n, 1, side, side], boxes [n, digits, 4] and classes [n, digits]."""
    images = torch.rand(n, 1, SIDE, SIDE, generator=pick) * 0.3
    boxes, classes = torch.empty(n, DIGITS, 4), torch.empty(n, DIGITS, dtype=torch.long)
    for i in range(n):
        for k, corner in enumerate(torch.randperm(4, generator=pick)[:DIGITS].tolist()):
            size = int(torch.randint(12, 21, (), generator=pick))
            free = SIDE // 2 - size + 1
            x, y = (torch.randint(free, (2,), generator=pick)).tolist()
            x, y = x + corner % 2 * SIDE // 2, y + corner // 2 * SIDE // 2
            which = int(torch.randint(len(pixels), (), generator=pick))
            digit = F.interpolate(pixels[which][None, None], size=(size, size), mode="bilinear")
            images[i, 0, y : y + size, x : x + size] += digit[0, 0]
            boxes[i, k] = torch.tensor([x, y, x + size, y + size])
            classes[i, k] = labels[which]
    return images, boxes, classes


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width, out, stride in ((1, 16, 1), (16, 32, 2), (32, 48, 2), (48, 48, 1)):
            conv = nn.Conv2d(width, out, 3, stride, 1, bias=False)
            layers += [conv, nn.BatchNorm2d(out), nn.ReLU()]
        self.backbone = nn.Sequential(*layers)
        self.proposals = nn.Conv2d(48, 5, 3, padding=1)  # a centre is here; log distances to sides
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(48 * 16, 96), nn.ReLU(), nn.Linear(96, 10)
        )

    def stage_one(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features, scores [n, places] and boxes [n, places, 4]."""
        features = self.backbone(images)
        score, sides = self.proposals(features).flatten(2).split([1, 4], 1)
        rows, columns = features.shape[2:]
        y, x = torch.meshgrid(
            torch.arange(rows, device=images.device),
            torch.arange(columns, device=images.device),
            indexing="ij",
        )
        x, y = (STRIDE * (t.flatten() + 0.5) for t in (x, y))
        left, top, right, bottom = (8 * sides.clamp(max=3).exp()).unbind(1)
        return (
            features,
            score.squeeze(1),
            torch.stack([x - left, y - top, x + right, y + bottom], -1),
        )

    def stage_two(self, features: Tensor, boxes: list[Tensor]) -> Tensor:
        """Classes of the boxes of all images, [boxes, 10]."""
        return self.head(roi_align(features, boxes, 4, 1 / STRIDE, 2, aligned=True))


def loss_of(model: Detector, images: Tensor, boxes: Tensor, classes: Tensor) -> Tensor:
    features, score, found = model.stage_one(images)
    centre = (boxes[..., :2] + boxes[..., 2:]) / 2
    cell = (centre / STRIDE).long()
    place = cell[..., 1] * (SIDE // STRIDE) + cell[..., 0]
    there = torch.zeros_like(score).scatter_(1, place, 1.0)
    at_centres = found.gather(1, place[..., None].expand(-1, -1, 4))
    shaken = boxes + torch.randn(boxes.shape).to(boxes.device)
    return (
        F.binary_cross_entropy_with_logits(score, there, pos_weight=score.new_tensor(10.0))
        + F.smooth_l1_loss(at_centres, boxes) / 4
        + F.cross_entropy(model.stage_two(features, list(shaken)), classes.flatten())
    )


@torch.no_grad()
def detect(model: Detector, images: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Boxes and classes of each image."""
    features, score, found = model.stage_one(images)
    kept = []
    for scores, boxes in zip(score.sigmoid(), found, strict=True):
        likely = scores > 0.5
        some = boxes[likely].clamp(0, SIDE)
        kept.append(some[nms(some, scores[likely], 0.3)])
    classes = model.stage_two(features, kept).argmax(1).split([len(b) for b in kept])
    return list(zip(kept, classes, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--device", default=torch.accelerator.current_accelerator() or "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    pick = torch.Generator().manual_seed(0)

    digits = load_digits()
    pixels = torch.tensor(digits.images, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    train = [t.to(device) for t in scenes(512, pixels[:1400], labels[:1400], pick)]
    test = scenes(64, pixels[1400:], labels[1400:], pick)

    model = Detector().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, args.steps)
    for step in range(args.steps):
        batch = torch.randint(len(train[0]), (16,)).to(device)
        loss = loss_of(model, *(t[batch] for t in train))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.2f}")

    model.eval()
    right = found = 0
    for (boxes, kinds), real, classes in zip(
        detect(model, test[0].to(device)), *test[1:], strict=True
    ):
        overlap = box_iou(real, boxes.cpu()) * (classes[:, None] == kinds.cpu())
        right += int((overlap > 0.5).any(1).sum()) if len(boxes) else 0
        found += len(boxes)
    total = test[2].numel()
    print(
        f"{right / total:.1%} of {total} digits found and read right, "
        f"{found} boxes, on {device.type}"
    )


if __name__ == "__main__":
    main()
