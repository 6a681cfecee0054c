"""Which of two chapters is a line from? An LSTM over characters, all by `.npu()`."""

import os
from pydoc_data.topics import topics

import torch
import torch.nn as nn
import torch_npu
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

os.environ.setdefault("ASCEND_RT_VISIBLE_DEVICES", "0")
os.environ["TASK_QUEUE_ENABLE"] = "1"


def setup_seed(seed):
    torch.manual_seed(seed)
    torch.npu.manual_seed(seed)
    torch.npu.manual_seed_all(seed)


def lines(topic):
    return [line.strip() for line in topics[topic].splitlines() if len(line.strip()) > 20][:40]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(128, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 24, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 2)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(
            self.embedding(x), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, (h, _) = self.lstm(packed)
        return self.head(torch.cat([h[0], h[1]], dim=-1))


setup_seed(4)
samples = [(line, 0) for line in lines("import")] + [(line, 1) for line in lines("numeric-types")]
texts = [torch.tensor([min(ord(c), 127) for c in line]) for line, _ in samples]
lengths = torch.tensor([len(t) for t in texts])
inputs = pad_sequence(texts, batch_first=True).npu()
labels = torch.tensor([label for _, label in samples]).npu()
model = Classifier().npu()
print("device", inputs.device.type)
if torch.npu.is_available():
    assert inputs.is_npu and model.head.weight.is_npu
criterion = nn.CrossEntropyLoss().npu()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for _ in range(6):
    loss = criterion(model(inputs, lengths), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
