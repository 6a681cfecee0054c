"""Ten small models, each with a step of training: what a program of its kind calls, in miniature.

A function `NAME(device)` does forward, backward and an optimizer step. All numbers are drawn on the
CPU, so that every device sees the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _integers(high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def _train(model: nn.Module, device: torch.device, make: Callable[..., torch.optim.Optimizer],
           loss: Callable[[nn.Module], Tensor], steps: int = 2) -> None:  # fmt: skip
    model.to(device)
    optimizer = make([p for p in model.parameters() if p.requires_grad])
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()


def _sgd(weights: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=0.01, momentum=0.9, weight_decay=1e-4)


def _adam(weights: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(weights, lr=1e-3, foreach=False)


def _adamw(weights: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(weights, lr=1e-3)


# --- images ---------------------------------------------------------------------------------------


def mlp(device: torch.device) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    x, y = _numbers(8, 32).to(device), _integers(10, 8).to(device)
    _train(model, device, _sgd, lambda m: F.cross_entropy(m(x), y))


def cnn(device: torch.device) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 10), nn.LogSoftmax(1),
    )  # fmt: skip
    x, y = _numbers(4, 1, 16, 16).to(device), _integers(10, 4).to(device)
    _train(model, device, _adam, lambda m: F.nll_loss(m(x), y))


class _Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm_a = nn.BatchNorm2d(outside)
        self.b = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm_b = nn.BatchNorm2d(outside)
        self.skip = nn.Sequential()
        if stride != 1 or inside != outside:
            conv = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.skip = nn.Sequential(conv, nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm_a(self.a(x)))
        return F.relu(self.norm_b(self.b(y)) + self.skip(x))


def resnet(device: torch.device) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), _Residual(8, 8, 1), _Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    x, y = _numbers(2, 3, 32, 32).to(device), _integers(10, 2).to(device)
    _train(model, device, _sgd, lambda m: F.cross_entropy(m(x), y, label_smoothing=0.1))


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.middle = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down(x)
        b = self.up(self.middle(a))
        b = F.interpolate(b, size=a.shape[-2:], mode="bilinear", align_corners=False)
        out: Tensor = self.out(torch.cat([a, b], 1))
        return out


def unet(device: torch.device) -> None:
    torch.manual_seed(0)
    x, y = _numbers(2, 3, 16, 16).to(device), _integers(2, 2, 16, 16).to(device)

    def loss(model: nn.Module) -> Tensor:
        out = model(x)
        p = out.softmax(1)[:, 1]
        dice = 1 - 2 * (p * y).sum() / (p.sum() + y.sum() + 1)
        return F.cross_entropy(out, y) + dice

    _train(_UNet(), device, _adamw, loss)


# --- sequences ------------------------------------------------------------------------------------


class _Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embed(x))
        out: Tensor = self.out(hidden)
        return out


def lstm(device: torch.device) -> None:
    torch.manual_seed(0)
    x, y = _integers(50, 3, 6).to(device), _integers(5, 3, 6, seed=1).to(device)

    def loss(model: nn.Module) -> Tensor:
        value = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return value

    _train(_Tagger(), device, _adam, loss)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.norm_a(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.mlp(self.norm_b(x))
        return out


class _GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(64, 32), nn.Embedding(16, 32)
        self.blocks = nn.ModuleList(_Block(32, 4, causal=True) for _ in range(2))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 64, bias=False)
        self.head.weight = self.token.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.token(x) + self.place(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.head(self.norm(h))
        return out


def gpt(device: torch.device) -> None:
    torch.manual_seed(0)
    x, y = _integers(64, 2, 12).to(device), _integers(64, 2, 12, seed=1).to(device)
    _train(_GPT(), device, _adamw, lambda m: F.cross_entropy(m(x).view(-1, 64), y.view(-1)))


class _BERT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.kind = nn.Embedding(64, 32), nn.Embedding(2, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pool, self.out = nn.Linear(32, 32), nn.Linear(32, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = self.token(x) + self.kind(torch.zeros_like(x))
        h = self.encoder(h, src_key_padding_mask=mask)
        out: Tensor = self.out(torch.tanh(self.pool(h[:, 0])))
        return out


def bert(device: torch.device) -> None:
    torch.manual_seed(0)
    x, y = _integers(64, 3, 10).to(device), _integers(2, 3, seed=1).to(device)
    lengths = torch.tensor([10, 7, 4]).to(device)
    mask = torch.arange(10, device=device)[None] >= lengths[:, None]
    _train(_BERT(), device, _adamw, lambda m: F.cross_entropy(m(x, mask), y))


class _ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.first = nn.Parameter(torch.zeros(1, 1, 32))
        self.place = nn.Parameter(torch.randn(1, 17, 32) / math.sqrt(32))
        self.blocks = nn.Sequential(*(_Block(32, 4, causal=False) for _ in range(2)))
        self.out = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.first.expand(len(h), -1, -1), h], 1) + self.place
        out: Tensor = self.out(self.blocks(h)[:, 0])
        return out


def vit(device: torch.device) -> None:
    torch.manual_seed(0)
    x, y = _numbers(2, 3, 32, 32).to(device), _integers(10, 2).to(device)
    _train(_ViT(), device, _adamw, lambda m: F.cross_entropy(m(x), y))


# --- detection and graphs -------------------------------------------------------------------------


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Greedy suppression: how many boxes are kept depends on the numbers."""
    order = scores.argsort(descending=True)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while order.numel() > 0:
        best = order[0]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[order, :2])
        high = torch.minimum(boxes[best, 2:], boxes[order, 2:])
        both = (high - low).clamp(min=0).prod(1)
        order = order[both / (area[best] + area[order] - both) <= threshold]
    return torch.stack(kept)


class _Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1))
        self.boxes, self.scores = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        boxes = self.boxes(h).permute(0, 2, 3, 1).reshape(-1, 4)
        return boxes, self.scores(h).flatten().sigmoid()


def detection(device: torch.device) -> None:
    torch.manual_seed(0)
    x = _numbers(1, 3, 16, 16).to(device)
    target = _numbers(16, 4, seed=1).to(device)
    labels = _integers(2, 16, seed=2).float().to(device)

    def loss(model: nn.Module) -> Tensor:
        boxes, scores = model(x)
        corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:].abs() + 0.1], 1)
        with torch.no_grad():
            kept = nms(corners, scores, 0.5)
        assert len(kept) > 0
        return F.smooth_l1_loss(boxes, target) + F.binary_cross_entropy(scores, labels)

    _train(_Detector(), device, _sgd, loss)


class _GCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = F.relu(torch.sparse.mm(edges, self.a(x)))
        return torch.sparse.mm(edges, self.b(F.dropout(h, 0.2, self.training)))


def gcn(device: torch.device) -> None:
    torch.manual_seed(0)
    places = torch.stack([torch.arange(12), (torch.arange(12) * 5 + 1) % 12])
    edges = torch.sparse_coo_tensor(places, torch.full((12,), 0.5), (12, 12)).coalesce()
    edges = edges.to(device)
    x, y = _numbers(12, 8).to(device), _integers(3, 12).to(device)
    _train(_GCN(), device, _adam, lambda m: F.cross_entropy(m(x, edges), y))


MODELS = (mlp, cnn, resnet, unet, lstm, gpt, bert, vit, detection, gcn)
