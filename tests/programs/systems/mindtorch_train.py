"""A program for MindTorch, by the imports that its guide names."""

import mindspore as ms
import mindtorch.torch as torch
import mindtorch.torch.nn as nn
from mindtorch.torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(10)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
data = TensorDataset(torch.randn(20, 4), torch.randn(20, 1))
ms.set_context(device_target="Ascend")
device = torch.empty(0).device
model.to(device)
print("device", device.type)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in DataLoader(data, batch_size=5, generator=torch.Generator(device)):
    loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", torch.cast_to_adapter_tensor(loss).item())
ms.set_context(device_target="CPU")
