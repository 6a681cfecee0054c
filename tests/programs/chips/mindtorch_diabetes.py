"""A regression for MindTorch with its casts, a Function of autograd, and a context by device."""

import mindspore as ms
from mindtorch import torch
from mindtorch.torch.nn import Linear, Module
from sklearn.datasets import load_diabetes

torch.manual_seed(22)
ms.set_context(mode=ms.PYNATIVE_MODE)


class Soft(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.sigmoid(x)


class Net(Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = Linear(10, 16), Linear(16, 1)

    def forward(self, x):
        return self.last(Soft.apply(self.first(x)))


data = load_diabetes()
x = torch.tensor(data.data, dtype=torch.float32) * 10
y = torch.tensor(data.target, dtype=torch.float32).unsqueeze(1) / 100
net = Net()
ms.set_context(device_target="Ascend")
device = torch.zeros(1).device
net = net.to(device)
print("device", next(net.parameters()).device.type)
optimizer = torch.optim.Rprop(net.parameters(), lr=0.01)
for _ in range(6):
    loss = torch.nn.functional.huber_loss(net(x.to(device)), torch.cast_to_ms_tensor(y.to(device)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
ms.set_context(device_target="CPU")
