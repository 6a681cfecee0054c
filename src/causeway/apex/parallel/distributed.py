"""apex's DistributedDataParallel over torch's, and the Reducer."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

Bucket = torch.distributed.GradBucket


class DistributedDataParallel(nn.parallel.DistributedDataParallel):
    """torch's DistributedDataParallel with apex's arguments.

    `message_size` is the size of a bucket in elements. `delay_allreduce` makes a parameter without
    gradient no error. `allreduce_always_fp32` reduces in float32 whatever the gradients are, with
    `gradient_average` they are divided by the number of processes, by `gradient_predivide_factor`
    of it before and the rest after. What places work on streams or communicators of NVIDIA's is
    refused where it would change a result and else ignored with a warning.
    """

    def __init__(
        self,
        module: nn.Module,
        message_size: int = 10_000_000,
        delay_allreduce: bool = False,
        shared_param: bool | None = None,
        allreduce_trigger_params: Any = None,
        retain_allreduce_buffers: bool = False,
        allreduce_always_fp32: bool = False,
        num_allreduce_streams: int = 1,
        allreduce_communicators: Any = None,
        gradient_average: bool = True,
        gradient_predivide_factor: float = 1.0,
        gradient_average_split_factor: float | None = None,
        prof: bool = False,
    ) -> None:
        if shared_param is not None:
            raise ValueError(
                "shared_param is no longer supported as an option: set delay_allreduce=True"
            )
        if gradient_average_split_factor is not None:
            raise ValueError(
                "gradient_average_split_factor is apex's name of before 2019 for "
                "gradient_predivide_factor"
            )
        ignored = {
            "allreduce_trigger_params": allreduce_trigger_params,
            "retain_allreduce_buffers": retain_allreduce_buffers,
            "num_allreduce_streams": num_allreduce_streams > 1,
            "allreduce_communicators": allreduce_communicators,
        }
        for name, given in ignored.items():
            if given:
                warnings.warn(
                    f"apex.parallel.DistributedDataParallel: {name} has no effect, torch's own "
                    "buckets are reduced",
                    stacklevel=2,
                )
        super().__init__(
            module,
            bucket_cap_mb=max(1, message_size * 4 // 2**20),
            find_unused_parameters=delay_allreduce,
        )
        special = allreduce_always_fp32 or not gradient_average or gradient_predivide_factor != 1.0
        if special:
            world = torch.distributed.get_world_size()
            before = gradient_predivide_factor
            after = world / before if gradient_average else 1.0 / before

            def reduce(state: None, bucket: Bucket) -> torch.futures.Future[Tensor]:
                buffer = bucket.buffer()
                sent = buffer.float() if allreduce_always_fp32 else buffer
                sent.div_(before)
                work = torch.distributed.all_reduce(sent, async_op=True)
                assert work is not None

                def finish(future: torch.futures.Future[Any]) -> Tensor:
                    found = future.value()[0] if isinstance(future.value(), list) else sent
                    return buffer.copy_(found.div_(after))

                future: torch.futures.Future[Tensor] = work.get_future().then(finish)
                return future

            reduce.__annotations__ = {}  # torch compares them, and does not read text
            self.register_comm_hook(None, reduce)


class Reducer:
    """Averages gradients over processes when `reduce()` is called, and not before.

    `module_or_grads_list` is a module, whose parameters the first process gives to all, or a list
    of gradients.
    """

    def __init__(self, module_or_grads_list: nn.Module | list[Tensor]) -> None:
        self.module: nn.Module | None = None
        self.grads: list[Tensor] = []
        if isinstance(module_or_grads_list, nn.Module):
            self.module = module_or_grads_list
            for param in self.module.parameters():
                torch.distributed.broadcast(param.detach(), 0)
        else:
            self.grads = list(module_or_grads_list)

    def reduce(self) -> None:
        """Average all gradients in place."""
        grads = self.grads
        if self.module is not None:
            grads = [p.grad for p in self.module.parameters() if p.grad is not None]
        world = torch.distributed.get_world_size()
        works = [torch.distributed.all_reduce(g.div_(world), async_op=True) for g in grads]
        for work in works:
            if work is not None:
                work.wait()
