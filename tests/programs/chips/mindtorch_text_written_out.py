"""MindTorch's modules written out: the middle letter of five, as a bag of its neighbours."""

from pydoc_data.topics import topics

import mindspore
import mindtorch
import mindtorch.torch
import mindtorch.torch.nn.functional

mindtorch.torch.manual_seed(21)
text = "".join(c for c in topics["try"].lower() if c.isalpha())
letters = sorted(set(text))
tokens = mindtorch.torch.tensor([letters.index(c) for c in text])


class Bag(mindtorch.torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = mindtorch.torch.nn.EmbeddingBag(len(letters), 16, mode="mean")
        self.head = mindtorch.torch.nn.Linear(16, len(letters))

    def forward(self, x):
        return self.head(self.embed(x))


windows = tokens[: len(tokens) // 5 * 5].view(-1, 5)
around = mindtorch.torch.cat([windows[:, :2], windows[:, 3:]], 1)
model = Bag()
mindspore.set_context(device_target="Ascend", device_id=0)
device = mindtorch.torch.empty(0).device
model = model.to(device)
print("device", next(model.parameters()).device.type)
optimizer = mindtorch.torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(6):
    x = around[step * 60 : step * 60 + 60].to(device)
    y = windows[step * 60 : step * 60 + 60, 2].to(device)
    loss = mindtorch.torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
mindspore.set_context(device_target="CPU")
