"""An LSTM that learns to spell from Python's own documentation, letter by letter, and then writes.

python examples/zoo/lstm.py [--steps N] [--device cpu]
"""

from __future__ import annotations

import argparse
import math
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH, LENGTH = 32, 48


class Speller(nn.Module):
    def __init__(self, letters: int, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, 32)
        self.lstm = nn.LSTM(32, width, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, letters)

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, state = self.lstm(self.embedding(x), state)
        return self.head(y), state


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default=torch.accelerator.current_accelerator() or "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)

    text = "".join(topics.values())
    letters = sorted(set(text))
    place = {letter: i for i, letter in enumerate(letters)}
    codes = torch.tensor([place[letter] for letter in text], device=device)

    model = Speller(len(letters)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    span = torch.arange(LENGTH + 1, device=device)
    for step in range(args.steps):
        starts = torch.randint(len(codes) - LENGTH - 1, (BATCH, 1)).to(device)
        window = codes[starts + span]
        logits, _ = model(window[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item() / math.log(2):.2f} bits a letter")

    model.eval()
    letter, state, written = codes[:1][None], None, ""
    with torch.no_grad():
        for _ in range(120):
            logits, state = model(letter, state)
            letter = torch.multinomial(F.softmax(logits[:, -1] / 0.7, dim=-1), 1)
            written += letters[letter.item()]
    print(repr(written))
    print(f"{loss.item() / math.log(2):.2f} bits a letter, on {device.type}")


if __name__ == "__main__":
    main()
