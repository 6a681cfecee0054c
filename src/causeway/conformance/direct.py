"""Kernels that Causeway does not call today, asked through the table alone.

An operator may be offered and yet never reach the vendor: torch makes it of others, or its shape
depends on data. Its kernel is then run here as the core would run it: outputs first, then the other
arguments, on a fresh copy of the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from causeway.conformance.families import Family, inputs_of
from causeway.conformance.placement import GUARD, Placement, poisoned
from causeway.conformance.table import DeviceTensor, Dtype, Library, TableError
from causeway.observe.arguments import overload

CONTIGUOUS, BROADCAST, PROMOTION, ELEMENTS = 1, 2, 4, 8


class Declined(Exception):
    """The kernel does not take the call, or asks for what only the core prepares."""


class _Memory(Placement):
    """Buffers in memory of the table."""

    def __init__(self, library: Library) -> None:
        super().__init__(torch.device("cpu"))
        self.library = library
        self._taken: list[int] = []

    def _upload(self, before: Tensor, dtype: torch.dtype) -> int:
        address = self.library.alloc(len(before))
        self._taken.append(address)
        self.library.write(address, before.numpy().tobytes())
        return address

    def _download(self, there: Any, size: int) -> Tensor:
        return torch.frombuffer(bytearray(self.library.read(there, size)), dtype=torch.uint8)

    def _view(self, there: Any, t: Tensor) -> DeviceTensor:
        address = there + GUARD + t.storage_offset() * t.element_size()
        return DeviceTensor(address, str(t.dtype)[6:], t.shape, t.stride())

    def result(self, t: Tensor, given: DeviceTensor) -> Tensor:
        """What the kernel left in output `t`, in the shape that it asked for."""
        bytes = self.after(t)[GUARD:].clone()[: t.numel() * t.element_size()]
        shape = given.shape_now
        if tuple(t.shape) != shape:
            n = torch.Size(shape).numel()
            return bytes.view(t.dtype)[:n].view(shape)
        return bytes.view(t.dtype).view(shape)

    def free(self) -> None:
        self.library.sync()
        for address in self._taken:
            self.library.free(address)


class Direct:
    """Runs kernels of one library."""

    def __init__(self, path: str, setting: Callable[[str], str | None]) -> None:
        self.library = Library(path, setting)

    def run(self, family: Family, needs: int, inputs: tuple[Any, ...], like: list[Tensor]) -> Any:
        """The results of the kernel, dense. Raises Declined, TableError, or what `damage` says."""
        schema = overload(family.offered)._schema
        named = {a.name: v for a, v in zip(inputs_of(family.schema), inputs, strict=True)}
        mask = named.get("output_mask")
        returns = len(schema.returns)
        if needs & (BROADCAST | PROMOTION) or (needs & ELEMENTS and not like[0].numel()):
            raise Declined("only the core prepares such a call")
        memory = _Memory(self.library)
        try:
            results = iter(like)
            outs: list[Tensor | None] = []
            for k in range(returns):
                off = mask is not None and len(mask) == returns and not mask[k]
                outs.append(None if off else self._output(next(results)))
            given = [o if o is None else memory.put(o, f"output {k}") for k, o in enumerate(outs)]
            for out in outs:
                if out is not None:
                    memory.writes(out)
            values = [self._value(memory, named[a.name], needs) for a in inputs_of(schema)]
            self._call(family.offered, [*given, *values])
            found = [
                memory.result(out, there)
                for out, there in zip(outs, given, strict=True)
                if out is not None and there is not None
            ]
            return found, memory.damage()
        finally:
            memory.free()

    def _output(self, like: Tensor) -> Tensor:
        dense = torch.empty(like.shape, device="meta").stride()
        return poisoned(tuple(like.shape), dense, like.dtype)

    def _value(self, memory: _Memory, value: Any, needs: int) -> Any:
        if isinstance(value, Tensor):
            dense = value.contiguous() if needs & CONTIGUOUS else value
            return memory.put(dense, "an input")
        if isinstance(value, torch.dtype):
            return Dtype(str(value)[6:])
        if isinstance(value, (list, tuple)):
            return [self._value(memory, v, needs) for v in value]
        return value

    def _call(self, name: str, values: list[Any]) -> None:
        try:
            self.library.run(name, *values)
            self.library.sync()
        except TableError as error:
            if error.status == "UNSUPPORTED":
                raise Declined(error.words) from error
            raise
