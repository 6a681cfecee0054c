"""The check of launches passes the simulated chip, and finds a vendor that keeps some back."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from typing import Any

import pytest

from causeway import vendor
from causeway.conformance import abi
from causeway.conformance.table import CodeArg, Library


@pytest.fixture
def chip() -> abi.Chip:
    settings = {"code": "1", "execution": "async"}
    return abi.Chip(Library(vendor.sim_library(), settings.get), [])


class Holding:
    """The vendor's code.v1, which launches when a stream has three, or when `put` is called."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.held: dict[Any, list[Callable[[], int]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def launch(self, function: Any, grid: Any, group: Any, args: Any, n: int, stream: Any) -> int:
        # The values' addresses are the caller's: kept as they were.
        kept = [bytes((C.c_char * a.bytes).from_address(a.at)) for a in args[:n]]
        values = [C.create_string_buffer(k, len(k)) if k else None for k in kept]
        copied = (CodeArg * n)(
            *[
                CodeArg(a.bytes, 0, C.addressof(v) if v else a.at)
                for a, v in zip(args[:n], values, strict=True)
            ]
        )
        held = self.held.setdefault(stream, [])
        held.append(
            lambda: (values, self.table.launch(function, grid, group, copied, n, stream))[1]
        )
        if len(held) == 3:
            self.put(stream)
        return 0

    def put(self, stream: Any) -> None:
        for launch in self.held.pop(stream, []):
            launch()  # refused where the memory is gone, after a check that failed


def test_the_simulated_chip_passes(chip: abi.Chip) -> None:
    abi.small_launches_are_waited_for(chip)


# Where the stream is among the arguments.
WAITS = {"stream_sync": 1, "stream_query": 1, "sync": None, "event_record": 2, "mem_copy": 5}


@pytest.mark.parametrize("forgets", [None, *WAITS])
def test_launches_that_a_wait_forgets_are_found(chip: abi.Chip, forgets: str | None) -> None:
    code = Holding(chip.library.code())
    chip.library.code = lambda: code  # type: ignore[method-assign]
    call, status = chip.library.call, chip.library.status

    def putting(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(entry: str, *args: object) -> Any:
            if entry in WAITS and entry != forgets:
                at = WAITS[entry]
                for stream in list(code.held) if at is None else [args[at]]:
                    code.put(stream)
            return ask(entry, *args)

        return asked

    chip.library.call = putting(call)  # type: ignore[method-assign]
    chip.library.status = putting(status)  # type: ignore[method-assign]
    if forgets is None:
        abi.small_launches_are_waited_for(chip)
        return
    with pytest.raises(abi.Differs, match="launches after"):
        abi.small_launches_are_waited_for(chip)
