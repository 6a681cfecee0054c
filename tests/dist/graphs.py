"""Graphs beside collectives: one is refused in a capture, and called between two replays."""

from __future__ import annotations

import dist_checks
import torch
import torch.distributed as dist


def device() -> torch.device:
    return torch.device(torch.accelerator.current_accelerator().type, dist.get_rank())


def a_collective_in_a_capture_is_refused() -> None:
    x = torch.ones(4, device=device())
    dist.all_reduce(x)
    module = torch.get_device_module()
    try:
        with module.graph(module.CUDAGraph()):
            dist.all_reduce(x * 2)
    except RuntimeError as error:
        assert "a collective (all_reduce) cannot be part of it" in str(error), error
    else:
        raise AssertionError("it was captured")
    dist.all_reduce(x)
    assert x.tolist() == [4.0] * 4, x


def collectives_come_between_replays() -> None:
    module, x = torch.get_device_module(), torch.full((8,), 1.0 + dist.get_rank(), device=device())
    w = torch.ones(8, device=device(), requires_grad=True)
    before, after = module.CUDAGraph(), module.CUDAGraph()
    (w * x).sum().backward()
    w.grad.zero_()
    w.data.mul_(1)
    with module.graph(before):
        gradient = torch.autograd.grad((w * x).sum(), w)[0]
    with module.graph(after):
        w.data.sub_(gradient, alpha=0.5)
    for _ in range(2):
        before.replay()
        dist.all_reduce(gradient)
        after.replay()
    assert w.tolist() == [1 - 2 * 0.5 * 3.0] * 8, w


if __name__ == "__main__":
    dist_checks.run([a_collective_in_a_capture_is_refused, collectives_come_between_replays])
