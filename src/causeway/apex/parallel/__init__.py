"""apex.parallel: data parallelism and synchronized batch norm, on torch's own."""

from __future__ import annotations

import torch

from causeway.apex.parallel.distributed import DistributedDataParallel, Reducer
from causeway.apex.parallel.larc import LARC
from causeway.apex.parallel.sync_batchnorm import SyncBatchNorm, convert_syncbn_model

__all__ = [
    "LARC",
    "DistributedDataParallel",
    "Reducer",
    "SyncBatchNorm",
    "convert_syncbn_model",
    "create_syncbn_process_group",
]


def create_syncbn_process_group(
    group_size: int,
) -> torch.distributed.ProcessGroup | None:
    """The group of this process where processes are taken `group_size` at a time; None for 0, which
    is all of them. Every process must call it.
    """
    if group_size == 0:
        return None
    world, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    if world < group_size or world % group_size:
        raise ValueError(
            f"group_size is {group_size}: expected a divisor of the {world} processes there are"
        )
    mine = None
    for first in range(0, world, group_size):
        group = torch.distributed.new_group(list(range(first, first + group_size)))
        if first <= rank < first + group_size:
            mine = group
    return mine
