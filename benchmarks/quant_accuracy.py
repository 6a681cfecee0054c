"""What integers cost three networks that are trained here: digits, and text that Python ships.

    python benchmarks/quant_accuracy.py            all
    python benchmarks/quant_accuracy.py digits     one of digits, resnet, lstm, gpt
    python benchmarks/quant_accuracy.py --docs     the tables of docs/quantize.md

What was run is kept in benchmarks/results/quant_accuracy.json.
Digits lose points of accuracy, the two language models percent of perplexity, each by its method of
calibration, per tensor and per channel, on numbers that training and calibration have not seen.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from causeway import atomic
from causeway.quant import convert, fold_norms, quantize_dynamic, quantize_weights
from causeway.quant.calibrate import METHODS

Score = Callable[[nn.Module], float]
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/quant_accuracy.json"
PAGE = ROOT / "docs/quantize.md"
BLOCK = re.compile(
    r"(<!-- from benchmarks/results/quant_accuracy.json -->\n).*?(\n<!-- end -->)", re.DOTALL
)
KINDS = ("int8", "int8, per channel", "int16", "int16, per channel")


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    order = torch.randperm(len(found.images), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    return x[order], torch.tensor(found.target)[order]


def text() -> torch.Tensor:
    import pydoc_data.topics

    whole = "".join(pydoc_data.topics.topics[k] for k in sorted(pydoc_data.topics.topics))
    return torch.tensor([min(c, 127) for c in whole.encode()], dtype=torch.long)


def table(
    name: str, unit: str, net: nn.Module, seen: list[torch.Tensor], score: Score
) -> dict[str, Any]:
    """`score` is better the larger it is for digits, the smaller for perplexity."""
    before = score(net)
    relative = unit == "%"

    def lost(q: nn.Module) -> str:
        after = score(q)
        return f"{100 * (after / before - 1):+.2f}" if relative else f"{before - after:+.2f}"

    found: dict[str, Any] = {
        "name": name, "unit": unit, "float32": f"{before:.2f}", "methods": {}, "weights": {},
    }  # fmt: skip
    print(f"\n{name}: {before:.2f} in float32; lost, in {unit}")
    print(f"{'':16}{'int8':>10}{'int8 ch.':>10}{'int16':>10}{'int16 ch.':>10}")
    for method in METHODS:
        cells = []
        for dtype in ("int8", "int16"):
            for per_channel in (False, True):
                spec = {"method": method, "per_channel": per_channel, "iteration": len(seen)}
                q = quantize_dynamic(net, spec, dtype, gen_quant=True)
                with torch.no_grad():
                    for x in seen:
                        q(x)
                cells.append(lost(convert(q)))
        found["methods"][method] = cells
        print(f"{method:16}" + "".join(f"{c:>10}" for c in cells), flush=True)
    for bits, group in ((8, 128), (4, 32)):
        packed = lost(quantize_weights(net, bits, group))
        found["weights"][f"{bits} bits, groups of {group}"] = packed
        print(f"weights alone in {bits} bits, groups of {group}: {packed}")
    return found


def on_digits(make: Callable[[], nn.Module], size: int, epochs: int) -> dict[str, Any]:
    torch.manual_seed(0)
    x, y = digits()
    if size != 8:
        x = F.interpolate(x, size=size, mode="bilinear").repeat(1, 3, 1, 1)
    net = make()
    optimizer = torch.optim.AdamW(net.parameters(), 2e-3)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, 25 * epochs)
    for _ in range(epochs):
        for part in torch.randperm(1200).split(48):
            optimizer.zero_grad()
            F.cross_entropy(net(x[part]), y[part]).backward()
            optimizer.step()
            rates.step()
    net = fold_norms(net.eval())

    def score(m: nn.Module) -> float:
        with torch.no_grad():
            return 100 * float((m(x[1200:]).argmax(1) == y[1200:]).float().mean())

    name = "Digits, CNN" if size == 8 else f"Digits at {size} x {size}, ResNet-18"
    return table(name, "points", net, list(x[:256].split(64)), score)


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(128, 64), nn.Linear(160, 128)
        self.cells = nn.LSTM(64, 160, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(self.table(ids))[0])  # type: ignore[no-any-return]


class Gpt(nn.Module):
    def __init__(self, width: int = 96, blocks: int = 3) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(128, width), nn.Parameter(torch.zeros(64, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * blocks + 1))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(blocks))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(blocks))
        self.head = nn.Linear(width, 128)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids) + self.places[: ids.shape[1]]
        for i, qkv in enumerate(self.qkv):
            b, t, d = x.shape
            q, k, v = qkv(self.norms[2 * i](x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out[i](seen.transpose(1, 2).reshape(b, t, d))
            x = x + self.down[i](F.gelu(self.up[i](self.norms[2 * i + 1](x))))
        return self.head(self.norms[-1](x))  # type: ignore[no-any-return]


def on_text(name: str, net: nn.Module, steps: int) -> dict[str, Any]:
    ids = text()
    train, held = ids[: int(len(ids) * 0.9)], ids[int(len(ids) * 0.9) :]
    optimizer = torch.optim.AdamW(net.parameters(), 2e-3)

    def batch(data: torch.Tensor, seed: int, rows: int = 24) -> torch.Tensor:
        g = torch.Generator().manual_seed(seed)
        at = torch.randint(0, len(data) - 65, (rows,), generator=g)
        return torch.stack([data[a : a + 65] for a in at])

    for step in range(steps):
        rows = batch(train, step)
        optimizer.zero_grad()
        F.cross_entropy(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()).backward()
        optimizer.step()
    net.eval()
    tests = [batch(held, 10_000 + i, 64) for i in range(4)]

    def score(m: nn.Module) -> float:
        with torch.no_grad():
            losses = [
                float(F.cross_entropy(m(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten()))
                for t in tests
            ]
        return math.exp(sum(losses) / len(losses))

    seen = [batch(train, 20_000 + i)[:, :-1] for i in range(4)]
    return table(f"{name}, perplexity", "%", net, seen, score)


def markdown(results: dict[str, Any]) -> str:
    """The tables of docs/quantize.md."""
    parts = []
    for found in results.values():
        lines = [f"{found['name']}: {found['float32']} in float32; lost, in {found['unit']}:", ""]
        lines += ["| | " + " | ".join(KINDS) + " |", "|" + " --- |" * (len(KINDS) + 1)]
        for method, cells in found["methods"].items():
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
        alone = [f"{value} in {what}" for what, value in found["weights"].items()]
        parts.append("\n".join([*lines, "", f"Weights alone: {'; '.join(alone)}."]))
    return "\n\n".join(parts)


def write_docs() -> None:
    tables = markdown(json.loads(RESULTS.read_text()))
    page = BLOCK.sub(lambda m: f"{m[1]}\n{tables}\n{m[2]}", PAGE.read_text())
    atomic.write(PAGE, page.encode())


def main(wanted: list[str]) -> None:
    if wanted == ["--docs"]:
        write_docs()
        return
    if wanted == ["--markdown"]:
        print(markdown(json.loads(RESULTS.read_text())))
        return
    from programs import resnet18

    def resnet() -> nn.Module:
        net = resnet18()
        net[-1] = nn.Linear(512, 10)
        return net

    torch.manual_seed(0)
    runs = {
        "digits": lambda: on_digits(cnn, 8, 12),
        "resnet": lambda: on_digits(resnet, 32, 10),
        "lstm": lambda: on_text("LSTM", Lstm(), 500),
        "gpt": lambda: on_text("GPT", Gpt(), 600),
    }
    for name in wanted or runs:
        if name not in runs:
            sys.exit(f"there is no {name}: choose of {', '.join(runs)}")
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        kept[name] = runs[name]()
        kept = {n: kept[n] for n in runs if n in kept}
        atomic.write(RESULTS, (json.dumps(kept, indent=1) + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
