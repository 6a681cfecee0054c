"""What the tests of the debug tools share: a small trace made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from causeway.trace import tensors
from causeway.trace.trace import RecordedCall, Writer


def kept(writer: Writer, t: torch.Tensor, storages: dict[int, int]) -> tensors.TensorRecord:
    """The record of a CPU tensor with everything that can be kept of it."""
    here = tensors.at_home(t)
    record = replace(
        tensors.describe(t, storages),
        statistics=tensors.statistics(here),
        digest=tensors.digest(here),
    )
    return replace(record, data=writer.keep(record, here))


def write_trace(folder: Path, *, close: bool = True, calls: int = 3) -> Path:
    """A trace of `calls` additions and a product, their values kept whole."""
    writer = Writer(folder, {"keep": "full"})
    generator = torch.Generator().manual_seed(1)
    for number in range(calls):
        a, b = (torch.randn(4, 3, generator=generator) for _ in range(2))
        storages: dict[int, int] = {}
        args = [kept(writer, a, storages), kept(writer, b, storages), 2]
        results = [kept(writer, a + 2 * b, storages)]
        call = RecordedCall(number, "aten::add.Tensor", args, results, module="Net.fc", step=number)
        writer.write(call, str(torch.ops.aten.add.Tensor._schema))
    a = torch.randn(3, 4, generator=generator).t()
    storages = {}
    args = [kept(writer, a, storages), kept(writer, a.t(), storages)]
    call = RecordedCall(calls, "aten::mm", args, [kept(writer, a @ a.t(), storages)], step=calls)
    writer.write(call, str(torch.ops.aten.mm.default._schema))
    writer.flush()
    if close:
        writer.close()
    return folder


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "trace")
