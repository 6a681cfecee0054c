"""A transformer of torch's layers that guesses the next character, tensors made with a device."""

from pydoc_data.topics import topics

import torch
import torch.nn as nn
import torch_mlu

torch.manual_seed(14)
text = topics["while"] + topics["for"]
letters = sorted(set(text))
number = {c: i for i, c in enumerate(letters)}
data = torch.tensor([number[c] for c in text])
size, length = 24, 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(letters), size)
        layer = nn.TransformerEncoderLayer(size, 4, 48, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(size, len(letters))
        self.register_buffer("places", self.waves(length))

    @staticmethod
    def waves(n):
        place = torch.arange(n, device="mlu").unsqueeze(1)
        speed = torch.exp(torch.arange(0, size, 2, device="mlu") * -0.3)
        return torch.stack([torch.sin(place * speed), torch.cos(place * speed)], -1).flatten(1)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=torch.device("mlu"))
        return self.head(self.encoder(self.embed(x) + self.places, mask=mask, is_causal=True))


model = Model().to(torch.device("mlu"))
print("device", model.places.device.type)
optimizer = torch.optim.RAdam(model.parameters(), lr=0.01)
for step in range(6):
    starts = [step * 9 + i * 31 for i in range(8)]
    batch = torch.stack([data[s : s + length + 1] for s in starts]).to("mlu")
    loss = nn.functional.cross_entropy(model(batch[:, :-1]).transpose(1, 2), batch[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
