"""CW141: DataParallel, one process for several devices."""

from __future__ import annotations

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule
from causeway.migrate.rules import notes

_EXAMPLE = "import torch\n\nmodel = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"
RULE = Rule(
    code="CW141",
    name="data-parallel",
    title="DataParallel, one process for several devices",
    why="It copies the model among the devices at each step, from one thread of Python each; "
    "DistributedDataParallel is faster on all. CUDA and Causeway's devices serve it, MPS and the "
    "CPU run the model itself, and torch serves no other.",
    by_hand="Start one process a device (torchrun --nproc-per-node=auto), call "
    "torch.distributed.init_process_group(), wrap with "
    "torch.nn.parallel.DistributedDataParallel, give the DataLoader a "
    "DistributedSampler.",
    before=_EXAMPLE,
    after=_EXAMPLE,
)


def run(module: Module) -> None:
    notes.run(module, RULE)
