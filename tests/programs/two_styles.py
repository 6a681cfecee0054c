"""Mixed precision in the two ways that programs for CUDA have it: torch.cuda.amp, and apex."""

import torch
import torch.nn as nn
from torch.cuda.amp import GradScaler

from apex import amp

torch.manual_seed(0)
N, D_in, D_out = 16, 32, 4
data = [torch.randn(N, D_in).cuda() for _ in range(4)]
targets = [torch.randn(N, D_out).cuda() for _ in range(4)]
loss_fn = nn.MSELoss()


def make_model(in_size, out_size, num_layers):
    layers = []
    for _ in range(num_layers - 1):
        layers += [nn.Linear(in_size, in_size), nn.BatchNorm1d(in_size), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(in_size, out_size)).cuda()


# The first way.
use_amp = True
net = make_model(D_in, D_out, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.001)
scaler = GradScaler(enabled=use_amp)
for _epoch in range(3):
    for input, target in zip(data, targets, strict=True):
        with torch.autocast(device_type="cuda", dtype=torch.float16, enabled=use_amp):
            output = net(input)
            assert output.dtype is torch.float16
            loss = loss_fn(output, target)
            assert loss.dtype is torch.float32
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
    print("loss", loss.item())

# The second.
for level in ("O1", "O2"):
    torch.manual_seed(0)
    model = make_model(D_in, D_out, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model, optimizer = amp.initialize(model, optimizer, opt_level=level)
    for _epoch in range(3):
        for input, target in zip(data, targets, strict=True):
            loss = loss_fn(model(input), target)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print("loss", loss.item())
