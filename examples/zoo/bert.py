"""BERT: learns from text with words left out, then is fine-tuned to tell where a line comes from.

The text is Python's own: its language reference against the docstrings of its library.

    python examples/zoo/bert.py [--steps N] [--device cpu]
"""

from __future__ import annotations

import argparse
import asyncio
import email.message
import inspect
import logging
import re
import threading
from collections import Counter
from pydoc_data.topics import topics

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

PAD, MASK, START, UNKNOWN, LENGTH, BATCH = 0, 1, 2, 3, 24, 32


def texts() -> list[str]:
    """The reference, and docstrings."""
    modules = (asyncio, email.message, logging, threading, argparse, inspect)
    members = [value for m in modules for value in vars(m).values() if callable(value)]
    methods = [v for m in members if inspect.isclass(m) for v in vars(m).values() if callable(v)]
    docs = dict.fromkeys(inspect.getdoc(value) or "" for value in [*members, *methods])
    return ["\n".join(topics.values()), "\n".join(docs)]


def windows() -> tuple[Tensor, Tensor, int]:
    """Token numbers [n, LENGTH], which text each is from, and how many tokens there are."""
    words = [re.findall(r"[a-z]+|[^\sa-z]", text.lower()) for text in texts()]
    words[0] = words[0][: len(words[1])]
    known = [word for word, _ in Counter(words[0] + words[1]).most_common(1500)]
    number = {word: i + 4 for i, word in enumerate(known)}
    rows = [
        ([START, *(number.get(w, UNKNOWN) for w in text[i : i + LENGTH - 1])], label)
        for label, text in enumerate(words)
        for i in range(0, len(text) - LENGTH, LENGTH)
    ]
    return torch.tensor([r for r, _ in rows]), torch.tensor([c for _, c in rows]), len(known) + 4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default=torch.accelerator.current_accelerator() or "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)

    tokens, labels, vocabulary = windows()
    order = torch.randperm(len(tokens))
    tokens, labels = tokens[order].to(device), labels[order].to(device)
    train = len(tokens) * 4 // 5
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        max_position_embeddings=LENGTH,
        pad_token_id=PAD,
    )

    learner = BertForMaskedLM(config).to(device).train()
    optimizer = torch.optim.AdamW(learner.parameters(), lr=2e-3)
    for step in range(args.steps):
        batch = tokens[torch.randint(train, (BATCH,)).to(device)]
        hidden = (torch.rand(batch.shape) < 0.15).to(device)
        loss = learner(
            input_ids=batch.masked_fill(hidden, MASK), labels=batch.masked_fill(~hidden, -100)
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"masked words, step {step}: loss {loss.item():.2f}")

    model = BertForSequenceClassification(config).to(device)
    model.bert.load_state_dict(learner.bert.state_dict(), strict=False)  # its pooler is new
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for step in range(args.steps):
        batch = torch.randint(train, (BATCH,)).to(device)
        loss = model(input_ids=tokens[batch], labels=labels[batch]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"fine-tuning, step {step}: loss {loss.item():.2f}")

    model.eval()
    with torch.no_grad():
        found = model(input_ids=tokens[train:]).logits.argmax(-1)
    right = (found == labels[train:]).float().mean().item()
    print(f"{right:.1%} of {len(found)} new lines placed right, on {device.type}")


if __name__ == "__main__":
    main()
