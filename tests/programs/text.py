"""A language model on characters: hard-coded "cuda" strings, a device option, checkpoints."""
import argparse, io, math

import torch
import torch as th
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu', choices=['cuda', 'cpu', 'sim'])
parser.add_argument('--checkpoint', default='cuda/lm_cuda.pt')
args = parser.parse_args()
device = args.device
device_type = 'cuda' if 'cuda' in device else 'cpu'
TEXT = "the cuda barracuda swims in torch.cuda seas and does not mind the cuda flag " * 4


class Model(nn.Module):
    def __init__(self, vocabulary, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, 2, batch_first=True)
        layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.out = nn.Linear(width, vocabulary)
        self.out.weight = self.embed.weight

    def init_hidden(self, batch):
        weight = next(self.parameters())
        hidden = weight.new_zeros(2, batch, 32), weight.new_zeros(2, batch, 32)
        return tuple(h.cuda() if weight.is_cuda else h for h in hidden)

    def forward(self, x):
        y, _ = self.rnn(self.embed(x), self.init_hidden(x.size(0)))
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1)).to(device)
        return self.out(self.encoder(y, mask=mask, is_causal=True))


torch.manual_seed(7)
th.cuda.manual_seed_all(7)
chars = sorted(set(TEXT))
data = th.tensor([chars.index(c) for c in TEXT], dtype=th.long)
if device_type == 'cuda':
    data = data.pin_memory()
data = data.to(device, non_blocking=True)
model = Model(len(chars)).to(device)
if device_type == "cuda":
    print("weights on %s %d" % (device_type, th.cuda.current_device()))
optimizer = th.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(4):
    x = torch.stack([data[i:i + 24] for i in range(step, step + 64, 16)])
    y = torch.stack([data[i + 1:i + 25] for i in range(step, step + 64, 16)])
    logits = model(x)
    loss = nn.functional.cross_entropy(logits.reshape(-1, len(chars)), y.reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())

buffer = io.BytesIO()
torch.save(model.state_dict(), buffer)
buffer.seek(0)
state = torch.load(buffer, map_location=lambda storage, loc: storage.cuda()) if device_type == 'cuda' else torch.load(buffer, map_location='cpu')
assert all(v.is_cuda for v in state.values()) == (device_type == 'cuda')
model.load_state_dict(state)
with torch.no_grad():
    losses.append(math.exp(loss.item()) / model(x).float().std().item())
print("device", next(model.parameters()).device)
for loss in losses:
    print("loss", loss)
