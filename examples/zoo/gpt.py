"""A small GPT that learns from Python's own documentation, letter by letter, and then writes.

python examples/zoo/gpt.py [--steps N] [--device cpu]
"""

from __future__ import annotations

import argparse
import math
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH, LENGTH, WIDTH, HEADS, LAYERS = 16, 64, 96, 4, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, letters, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.letter(x) + self.place(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(x)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default=torch.accelerator.current_accelerator() or "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)

    text = "".join(topics.values())
    letters = sorted(set(text))
    place = {letter: i for i, letter in enumerate(letters)}
    codes = torch.tensor([place[letter] for letter in text], device=device)

    model = GPT(len(letters)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    span = torch.arange(LENGTH + 1, device=device)
    for step in range(args.steps):
        starts = torch.randint(len(codes) - LENGTH - 1, (BATCH, 1)).to(device)
        window = codes[starts + span]
        loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item() / math.log(2):.2f} bits a letter")

    model.eval()
    window = codes[None, :8]
    with torch.no_grad():
        for _ in range(120):
            chances = F.softmax(model(window[:, -LENGTH:])[:, -1] / 0.7, dim=-1)
            window = torch.cat([window, torch.multinomial(chances, 1)], dim=1)
    print(repr("".join(letters[i] for i in window[0].tolist())))
    print(f"{loss.item() / math.log(2):.2f} bits a letter, on {device.type}")


if __name__ == "__main__":
    main()
