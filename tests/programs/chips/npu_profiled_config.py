"""Steps under torch_npu's profiler as its manual has it: levels, metrics, a schedule, a handler."""

import os
import tempfile

import torch
import torch_npu

result = tempfile.mkdtemp()
torch.manual_seed(4)
x = torch.randn(32, 1, 12, 12)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3),
    torch.nn.GELU(),
    torch.nn.Flatten(),
    torch.nn.Linear(400, 16),
    torch.nn.Linear(16, 144),
)
device = "npu:0" if torch.npu.is_available() else "cpu"
model, x = model.to(device), x.to(device)
print("device", x.device.type)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def train_one_step():
    loss = torch.nn.functional.mse_loss(model(x), x.flatten(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())


experimental_config = torch_npu.profiler._ExperimentalConfig(
    export_type=[torch_npu.profiler.ExportType.Text, torch_npu.profiler.ExportType.Db],
    profiler_level=torch_npu.profiler.ProfilerLevel.Level1,
    aic_metrics=torch_npu.profiler.AiCMetrics.PipeUtilization,
    l2_cache=False,
    op_attr=False,
    msprof_tx=True,
    data_simplification=False,
    record_op_args=False,
    gc_detect_threshold=None,
)
with torch_npu.profiler.profile(
    activities=[torch_npu.profiler.ProfilerActivity.CPU, torch_npu.profiler.ProfilerActivity.NPU],
    schedule=torch_npu.profiler.schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1),
    on_trace_ready=torch_npu.profiler.tensorboard_trace_handler(result),
    record_shapes=True,
    profile_memory=True,
    with_stack=False,
    with_modules=False,
    with_flops=True,
    experimental_config=experimental_config,
) as prof:
    for step in range(6):
        train_one_step()
        prof.step()
assert any(name.endswith((".json", ".json.gz")) for name in os.listdir(result)), os.listdir(result)

# by hand, and exported
prof = torch_npu.profiler.profile(
    activities=[torch_npu.profiler.ProfilerActivity.NPU, torch_npu.profiler.ProfilerActivity.CPU]
)
prof.start()
train_one_step()
prof.stop()
prof.export_chrome_trace(os.path.join(result, "one.json"))
assert os.path.getsize(os.path.join(result, "one.json")) > 100
