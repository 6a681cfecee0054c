"""Training under torch_npu.profiler."""

import torch
import torch_npu

torch.manual_seed(5)
model = torch.nn.Linear(5, 5)
data = torch.randn(10, 5)
model, data = model.npu(), data.npu()
print("device", data.device.type)
with torch_npu.profiler.profile(
    activities=[torch_npu.profiler.ProfilerActivity.CPU, torch_npu.profiler.ProfilerActivity.NPU],
    schedule=torch_npu.profiler.schedule(wait=0, warmup=1, active=3, repeat=1),
    record_shapes=True,
) as prof:
    for _ in range(5):
        loss = (model(data) - data).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        prof.step()
        print("loss", loss.item())
assert any("linear" in event.key or "addmm" in event.key for event in prof.key_averages())
