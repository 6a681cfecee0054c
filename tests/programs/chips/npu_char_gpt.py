"""A language model of characters that takes Ascend's fused operators where they are there."""

import math
from pydoc_data.topics import topics

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    import torch_npu

    IS_NPU = True
except ImportError:
    IS_NPU = False

torch.manual_seed(3)
device = torch.device("npu" if IS_NPU and torch.npu.is_available() else "cpu")
text = topics["assert"] + topics["lists"]
vocabulary = sorted(set(text))
tokens = torch.tensor([vocabulary.index(c) for c in text])


class RMSNorm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        if IS_NPU and x.device.type == "npu":
            return torch_npu.npu_rms_norm(x, self.weight, epsilon=self.eps)[0]
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(2 * size, size)
        self.norm1, self.norm2 = RMSNorm(size), RMSNorm(size)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)
        mask = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        attention = scores.masked_fill(mask, float("-inf")).softmax(-1)
        x = x + self.out((attention @ v).transpose(1, 2).reshape(b, t, c))
        h = self.up(self.norm2(x))
        if IS_NPU and h.device.type == "npu":
            h = torch_npu.npu_swiglu(h, dim=-1)
        else:
            a, gate = h.chunk(2, -1)
            h = F.silu(a) * gate
        return x + self.down(h)


class GPT(nn.Module):
    def __init__(self, size=32, length=32):
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(vocabulary), size), nn.Embedding(length, size)
        self.blocks = nn.Sequential(Block(size, 4), Block(size, 4))
        self.norm, self.head = RMSNorm(size), nn.Linear(size, len(vocabulary))

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(h)))


model = GPT().to(device)
print("device", next(model.parameters()).device.type)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(6):
    starts = torch.arange(8) * 37 + step * 11
    batch = torch.stack([tokens[s : s + 33] for s in starts]).to(device)
    loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print("loss", loss.item())
