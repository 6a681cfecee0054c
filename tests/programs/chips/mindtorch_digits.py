"""A CUDA program of digits that MindTorch runs by its switch."""

from mindtorch.tools import mstorch_enable  # isort: skip

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(20)


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.fc1 = nn.Linear(54, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
data = TensorDataset(images[:800], torch.tensor(digits.target[:800]))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = Net().to(device)
print("device", next(net.parameters()).device.type)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for inputs, labels in DataLoader(data, batch_size=100):
    optimizer.zero_grad()
    loss = criterion(net(inputs.to(device)), labels.to(device))
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
