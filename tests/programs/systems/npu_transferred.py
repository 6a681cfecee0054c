"""CUDA code that runs on the NPU by transfer_to_npu, for either device."""

import torch

try:
    import torch_npu
    from torch_npu.contrib import transfer_to_npu
except ImportError:
    pass

torch.manual_seed(6)
torch.cuda.manual_seed_all(6)
net = torch.nn.GRU(4, 8, batch_first=True)
head = torch.nn.Linear(8, 1)
x, y = torch.randn(8, 5, 4), torch.randn(8, 1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net, head = net.to(device), head.to(device)
print("device", next(net.parameters()).device.type)
optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=0.02)
for _ in range(5):
    out, _ = net(x.to(device))
    loss = torch.nn.functional.l1_loss(head(out[:, -1]), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
if torch.cuda.is_available():
    torch.cuda.synchronize()
