"""A character GPT on a text that comes with Python, in the style of nanoGPT."""

import math
import os
import this
from codecs import decode
from contextlib import nullcontext

import torch
import torch.nn as nn
from torch.nn import functional as F

device = "cuda"
dtype = "float16" if os.environ.get("HALF") else "float32"
device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "float16": torch.float16}[dtype]
ctx = (
    nullcontext()
    if dtype == "float32"
    else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
)
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True

text = decode(this.s, "rot13") * 4
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])
block, width, heads = 32, 32, 4


def get_batch():
    ix = torch.randint(len(data) - block, (8,))
    x = torch.stack([data[i : i + block] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block] for i in ix])
    if device_type == "cuda":
        return (
            x.pin_memory().to(device, non_blocking=True),
            y.pin_memory().to(device, non_blocking=True),
        )
    return x.to(device), y.to(device)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (
            z.view(b, t, heads, c // heads).transpose(1, 2)
            for z in self.qkv(self.ln_1(x)).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(chars), width), nn.Embedding(block, width)
        self.h = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(width, len(chars), bias=False)
        self.wte.weight = self.head.weight

    def forward(self, idx, targets):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for layer in self.h:
            x = layer(x)
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


model = GPT()
model.to(device)
scaler = torch.cuda.amp.GradScaler(enabled=(dtype == "float16"))
use_fused = device_type == "cuda"
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=use_fused)
for step in range(12):
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * (0.1 + 0.9 * math.cos(step / 24))
    X, Y = get_batch()
    with ctx:
        loss = model(X, Y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(f"loss {loss.item():.6f}")
assert next(model.parameters()).device.type == device_type
print("device", next(model.parameters()).device)
assert torch.cuda.max_memory_allocated() >= 0
