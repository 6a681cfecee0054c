"""Words of a text by a GRU, with the device that DIPU calls its own."""

import re
from pydoc_data.topics import topics

import torch
import torch_dipu
from torch import nn

torch.manual_seed(18)
words = re.findall(r"[a-z]+", topics["exceptions"].lower() + topics["context-managers"].lower())
known = sorted(set(words))
tokens = torch.tensor([known.index(w) for w in words])
dipu = torch.device("dipu" if torch_dipu.dipu.is_available() else "cpu")


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(known), 16)
        self.gru = nn.GRU(16, 32, num_layers=2)
        self.head = nn.Linear(32, len(known))

    def forward(self, x, h=None):
        out, h = self.gru(self.embed(x), h)
        return self.head(out), h


model = Reader().to(dipu)
print("device", next(model.parameters()).device.type)
optimizer = torch.optim.NAdam(model.parameters(), lr=0.01)
state = None
for step in range(6):
    piece = tokens[: 8 * 21].view(8, 21).roll(-step, 1).t().to(dipu)
    out, state = model(piece[:-1], state)
    state = state.detach()
    loss = nn.functional.cross_entropy(out.flatten(0, 1), piece[1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
