"""CW111: NVTX and NVIDIA's profiler."""

from __future__ import annotations

from causeway.migrate import knowledge
from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table

RULE = Rule(
    code="CW111",
    name="profiling",
    title="Ranges for NVIDIA's profilers",
    why="NVTX writes for NVIDIA's tools; torch.profiler.record_function for every profiler of "
    "torch.",
    by_hand="`with torch.profiler.record_function(name):` around the lines.",
    before='import torch\n\nwith torch.cuda.nvtx.range("step"):\n    pass\n',
    after='import torch\n\nwith torch.profiler.record_function("step"):\n    pass\n',
)


def run(module: Module) -> None:
    for use in module.uses("torch.cuda.nvtx"):
        if use.api != "torch.cuda.nvtx.range" or module.vendor:
            continue
        call, api = use.call, knowledge.find(use.api)
        if call and len(call.args) == 1 and not call.keywords and api:
            module.change(RULE, call, module.rename(use, api.to), "a range for every profiler",
                          tip=api.tip, api=use.api)  # fmt: skip
            module.done.add(id(use.node))
    for use in module.uses("torch.cuda.nvtx"):
        api = knowledge.find(use.api)
        if api and api.action == "special":
            module.report(RULE, use.node, "manual", "NVTX writes for NVIDIA's tools", tip=api.tip,
                          api=use.api, breaking=True)  # fmt: skip
    table.run(module, RULE)
