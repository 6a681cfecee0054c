"""The later torch_mlu: torch.mlu, streams, events, autocast of torch.amp."""

import torch
import torch_mlu

use_mlu = torch.mlu.is_available()
device = torch.device("mlu" if use_mlu else "cpu")
torch.manual_seed(8)
model = torch.nn.Embedding(10, 6)
head = torch.nn.Linear(6, 10)
tokens = torch.arange(9)
model, head = model.to(device), head.to(device)
print("device", next(model.parameters()).device.type)
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=0.1)
for _ in range(5):
    loss = torch.nn.functional.cross_entropy(head(model(tokens.to(device))), (tokens + 1).to(device))
    optimizer.zero_grad()
    loss.backward()
    if use_mlu:
        stream = torch.mlu.Stream()
        stream.wait_stream(torch.mlu.current_stream())
        with torch.mlu.stream(stream):
            optimizer.step()
        torch.mlu.current_stream().wait_stream(stream)
    else:
        optimizer.step()
    print("loss", loss.item())
if loss.is_mlu:
    done = torch.mlu.Event(enable_timing=True)
    done.record()
    done.synchronize()
