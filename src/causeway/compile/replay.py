"""`mode="reduce-overhead"`: the calls of a compiled graph as device graphs.

The first calls with some sizes run as they are, until it is known which inputs stay in their
places; then one is captured, and all later ones are replays. An input that stays, such as a
parameter, is read where it is; others are copied to where the graph reads them. All graphs share
one pool of memory: what one has in between its inputs and results, the next one uses too, as they
run one after the other. Results are in another pool, and are the program's, as without graphs: see
GraphCall in csrc/torch/graph.cpp.

What cannot be captured runs as it is from then on, and that is said once. Nor is a graph captured
that has tensors of the CPU or of two devices: a replay would compute with the numbers of the
capture, and leave what the CPU does out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from causeway import _C
from causeway.compile import report
from causeway.errors import CausewayError

MOST_SIZES = 32  # graphs of one compiled graph; further sizes run as they are
_MOST_PLACES = 3  # captures for an input that keeps moving, before it is copied

_pools: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}  # in between, and results
_streams: dict[int, torch.Stream] = {}


class Replayed:
    """A compiled graph's `call`, which takes its inputs as a list and empties it."""

    def __init__(
        self,
        call: Callable[[list[Any]], Any],
        device: int,
        mutated: tuple[int, ...],
        name: str,
        refused: str,
    ) -> None:
        self.call = call
        self.device = device
        self.mutated = set(mutated)
        self.name = name
        self.graphs: dict[Any, Any] = {}  # by sizes: a GraphCall
        self.last: Any = None  # the sizes of the last replay
        self.places: dict[Any, list[int]] = {}  # by sizes: addresses in the first call
        self.copied: dict[Any, set[int]] = {}
        self.moved: dict[int, int] = {}  # how often an input was found in another place
        self.refused = ""
        if refused:
            self._refuse(refused)

    def __call__(self, args: list[Any]) -> Any:
        if self.refused or _C.is_capturing(self.device):
            return self.call(args)
        known = self.graphs.get(self.last)
        result = known(args) if known is not None else None
        if result is None:
            result = self._other_sizes(args)
        if type(result) is int:
            result = self._elsewhere(args, result)
        if type(result) is list:
            report.replayed(self.name)
            args.clear()
            return tuple(result)
        return self.call(args)

    def _other_sizes(self, args: list[Any]) -> Any:
        """Replay the graph for these sizes. None: it is not there, or not captured."""
        sizes = _sizes(args)
        if sizes not in self.graphs:
            if sizes not in self.places:
                if len(self.places) < MOST_SIZES:
                    self.places[sizes] = _places(args)
                elif len(self.places) == MOST_SIZES:
                    self.places[None] = []
                    warnings.warn(
                        f"causeway: mode='reduce-overhead' captured a graph for {MOST_SIZES} sizes "
                        f"({self.name}); others run without. Pad inputs to a few sizes",
                        stacklevel=2,
                    )
                return None
            now = _places(args)
            moved = {
                i
                for i, (old, new) in enumerate(zip(self.places[sizes], now, strict=True))
                if old != new
            }
            few = self.copied.get(sizes)
            self.places[sizes], self.copied[sizes] = now, moved
            # Results of another graph stay in their places once that is captured: wait for it.
            if moved and (few is None or len(moved) < len(few)):
                return None
            if not self._capture(args, sizes):
                return None
        self.last = sizes
        return self.graphs[sizes](args)

    def _elsewhere(self, args: list[Any], which: int) -> Any:
        """Input `which` is not where the graph reads it: capture again."""
        sizes = _sizes(args)
        while True:
            self.moved[which] = self.moved.get(which, 0) + 1
            always_there = isinstance(args[which], torch.nn.Parameter)
            if self.moved[which] >= _MOST_PLACES and not always_there:
                self.copied[sizes].add(which)
            del self.graphs[sizes]
            if not self._capture(args, sizes):
                return None
            result = self.graphs[sizes](args)
            if type(result) is not int:
                return result
            which = result

    def _capture(self, args: list[Any], sizes: Any) -> bool:
        copied = self.copied[sizes]
        if self.device not in _pools:
            _pools[self.device] = (_C.new_pool_id(), _C.new_pool_id())
        pool, results = _pools[self.device]
        try:
            inputs = [_own(a) if i in copied else a for i, a in enumerate(args)]
            # Twice: what turns out to be a result gets memory that no other graph writes to.
            graph, outputs = self._record(inputs, pool)
            last = {address: i for i, address in enumerate(graph.allocations())}
            found = {last.get(_start(o)) for o in outputs if isinstance(o, torch.Tensor)}
            count = len(graph.allocations())
            del outputs
            graph.reset()
            apart = sorted(i for i in found if i is not None)
            graph, outputs = self._record(inputs, pool, apart, results)
            if len(graph.allocations()) != count:
                raise CausewayError("two captures of it asked for different memory")
        except CausewayError as error:
            self._refuse(str(error))
            return False
        self.graphs[sizes] = _C.GraphCall(
            graph,
            inputs,
            [i in copied for i in range(len(args))],
            [i in self.mutated for i in range(len(args))],
            outputs,
        )
        return True

    def _refuse(self, why: str) -> None:
        self.refused = why
        report.not_replayed(self.name, why)
        warnings.warn(
            f"causeway: a compiled graph ({self.name}) runs without mode='reduce-overhead': {why}",
            stacklevel=4,
        )

    def _record(self, inputs: list[Any], pool: Any, *apart: Any) -> tuple[_C.Graph, list[Any]]:
        if self.device not in _streams:
            _streams[self.device] = torch.Stream(device=self.device)
        stream = _streams[self.device]
        stream.wait_stream(torch.accelerator.current_stream(self.device))
        graph = _C.Graph()
        with stream:
            graph.begin(pool, *apart)
            try:
                outputs = list(self.call(list(inputs)))
            except BaseException:
                graph.abort()
                raise
            graph.end()
        return graph, outputs


def replayed(
    call: Callable[[list[Any]], Any],
    device: int,
    mutated: tuple[int, ...],
    name: str,
    refused: str = "",
) -> Replayed:
    """`call` of a compiled graph's module, by device graphs; `refused` says why not."""
    return Replayed(call, device, mutated, name, refused)


def _sizes(args: list[Any]) -> tuple[Any, ...]:
    return tuple(
        (a.shape, a.dtype, a.device, a.stride()) if isinstance(a, torch.Tensor) else a for a in args
    )


def _places(args: list[Any]) -> list[int]:
    return [a.data_ptr() if isinstance(a, torch.Tensor) else 0 for a in args]


def _start(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _own(value: Any) -> Any:
    """A copy in the same strides, in memory of its own."""
    if not isinstance(value, torch.Tensor):
        return value
    if any(step == 0 and size > 1 for size, step in zip(value.shape, value.stride(), strict=True)):
        raise CausewayError("an input is expanded, and in another place at each call; clone() it")
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(value)
