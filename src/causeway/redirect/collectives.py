"""What NCCL becomes: the device's own backend of torch.distributed, else gloo on the host.

Where the device has no backend of its own, tensors are copied to the host, gloo does the work
there, and results are copied back. That is right and slow: it says so once, and it is for programs
that would not run at all otherwise. A group of this kind serves the host's tensors too.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _c10d
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]

NAME = "staged"
_groups: list[Any] = []  # torch keeps the C++ half of a group alive, not the Python one


def backend(device: str) -> str:
    """The backend of torch.distributed that serves tensors of `device`."""
    own = dist.Backend.default_device_backend_map.get(device)
    if own and own != NAME:
        return str(own)
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, devices=[device, "cpu"])
    return NAME


def _create(store: Any, rank: int, size: int, timeout: Any) -> Any:
    if rank == 0:
        warnings.warn(
            f"{torch._C._get_privateuse1_backend_name()} has no backend of torch.distributed: its "
            "tensors go through the host and gloo, which is slow",
            UserWarning,
            stacklevel=2,
        )
    group = Staged(store, rank, size, timeout)
    _groups.append(group)
    return group


_Base: Any = dist.ProcessGroup  # whose methods have many forms; torch calls one of each


class Staged(_Base):  # type: ignore[misc]
    """A process group that does on the host, by gloo, what it is asked to do on the device."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)
        self._gloo: Any = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._group_name = self._group_desc = ""
        self._lock = threading.Lock()
        kind = dist.ProcessGroup.BackendType.CUSTOM
        for device in (torch._C._get_privateuse1_backend_name(), "cpu"):
            self._register_backend(torch.device(device), kind, self._gloo)
        self._set_default_backend(kind)

    def getBackendName(self) -> str:
        return NAME

    def getGroupName(self) -> str:
        return self._group_name

    def setGroupName(self, name: str) -> None:
        self._group_name = name

    def getGroupDesc(self) -> str:
        return self._group_desc

    def setGroupDesc(self, text: str) -> None:
        self._group_desc = text

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    # --- collectives ----------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        return self._reduce("allreduce", tensors, opts or dist.AllreduceOptions())

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        for tensor in tensors:
            self.allreduce([tensor], opts)
        return _done(tensors)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        return self._reduce("reduce", tensors, opts or dist.ReduceOptions())

    def _reduce(self, name: str, tensors: Any, opts: Any) -> Any:
        average = opts.reduceOp == dist.ReduceOp.AVG
        if average:  # gloo has none
            opts.reduceOp = dist.ReduceOp.SUM
        self._run(lambda here: getattr(self._gloo, name)(here, opts), tensors)
        if average:
            for tensor in tensors:
                tensor.div_(self.size())
        return _done(tensors)

    def broadcast(self, tensors: Any, opts: Any) -> Any:
        return self._run(lambda here: self._gloo.broadcast(here, opts), tensors)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        options = opts or _c10d.AllgatherOptions()
        places = [_host(out) for out in outputs]
        self._wait(lambda: self._gloo.allgather(places, _host(inputs), options))
        for there, here in zip(outputs, places, strict=True):
            _copy(there, here)
        return _done(outputs)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        places = [_host(out) for out in outputs]
        self._wait(lambda: self._gloo.gather(places, _host(inputs), opts))
        for there, here in zip(outputs, places, strict=True):
            _copy(there, here)
        return _done(outputs)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        parts = [_host(part) for part in inputs]
        return self._run(lambda here: self._gloo.scatter(here, parts, opts), outputs)

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        parts = list(output.view(self.size(), *input.shape).unbind(0))
        self.allgather([parts], [input], opts)
        return _done(output)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        for output, parts in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, torch.stack(list(parts)), opts)
        return _done(outputs)

    def reduce_scatter_single(
        self,
        output: Any,
        input: Any,
        opts: Any = None,
    ) -> Any:
        options: Any = dist.AllreduceOptions()
        options.reduceOp = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        whole = input.clone()
        self._reduce("allreduce", [whole], options)
        output.copy_(whole.view(self.size(), *output.shape)[self.rank()])
        return _done(output)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        places, parts = _host(outputs), _host(inputs)
        for peer in range(self.size()):
            step = (self.rank() - peer) % self.size(), (self.rank() + peer) % self.size()
            source, target = step
            if peer == 0:
                places[source].copy_(parts[source])
                continue
            sent = self._gloo.send([parts[target].contiguous()], target, peer)
            self._gloo.recv([places[source]], source, peer).wait()
            sent.wait()
        _copy(outputs, places)
        return _done(outputs)

    def all_to_all_single(
        self,
        output: Any,
        input: Any,
        output_split_sizes: Any,
        input_split_sizes: Any,
        opts: Any = None,
    ) -> Any:
        here = list(output_split_sizes) or [output.size(0) // self.size()] * self.size()
        there = list(input_split_sizes) or [input.size(0) // self.size()] * self.size()
        return self.alltoall(list(output.split(here)), list(input.split(there)), opts)

    def barrier(self, opts: Any = None) -> Any:
        options = dist.BarrierOptions()
        options.device_ids = []
        self._wait(lambda: self._gloo.barrier(options))
        return _done([])

    def send(self, tensors: Any, target: int, tag: int) -> Any:
        self._wait(lambda: self._gloo.send(_host(tensors), target, tag))
        return _done(tensors)

    def recv(self, tensors: Any, source: int, tag: int) -> Any:
        return self._run(lambda here: self._gloo.recv(here, source, tag), tensors)

    def recv_anysource(self, tensors: Any, tag: int) -> Any:
        return self._run(lambda here: self._gloo.recv_anysource(here, tag), tensors)

    # Before torch 2.13 these were the names.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single

    def _run(self, call: Callable[[list[torch.Tensor]], Any], tensors: Any) -> Any:
        places = _host(tensors)
        self._wait(lambda: call(places))
        _copy(tensors, places)
        return _done(tensors)

    def _wait(self, start: Callable[[], Any]) -> None:
        work = start()
        if work is not None:
            work.wait()


def _host(tensors: Any) -> list[torch.Tensor]:
    return [tensor.detach().cpu().contiguous() for tensor in tensors]


def _copy(there: Any, here: list[torch.Tensor]) -> None:
    for tensor, place in zip(there, here, strict=True):
        if tensor.data_ptr() != place.data_ptr():
            tensor.detach().copy_(place)


def _done(result: Any) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(result)
    return _create_work_from_future(future)
