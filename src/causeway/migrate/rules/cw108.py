"""CW108: random numbers."""

from __future__ import annotations

from causeway.migrate import knowledge
from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table

RULE = Rule(
    code="CW108",
    name="random",
    title="Seeds and states of random numbers",
    why="torch.manual_seed seeds the CPU and every accelerator; torch.cuda's functions CUDA alone.",
    by_hand="`torch.manual_seed(seed)` once; states by torch.get_device_module().get_rng_state().",
    before="import torch\n\ntorch.manual_seed(1)\ntorch.cuda.manual_seed_all(1)\n",
    after="import torch\n\ntorch.manual_seed(1)\ntorch.manual_seed(1)\n",
)


def run(module: Module) -> None:
    for use in module.uses("torch.cuda"):
        api = knowledge.find(use.api)
        if api and api.rule == RULE.code and api.action == "special":
            if module.vendor:
                table.apply(module, RULE, use, api)
                continue
            edits = module.rename(use, api.to)
            module.change(RULE, use.call or use.node, edits,
                          f"`{api.to}` seeds the CPU and every accelerator", tip=api.tip,
                          api=use.api)  # fmt: skip
            module.done.add(id(use.node))
    table.run(module, RULE)
