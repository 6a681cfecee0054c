"""The checks of entries that stand alone pass the simulated chip, and find planted faults."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from typing import Any

import pytest

from causeway import vendor
from causeway.conformance import abi
from causeway.conformance.table import Library

FAILED = 5


def chip(**settings: str) -> abi.Chip:
    return abi.Chip(Library(vendor.sim_library(), settings.get), [])


ALONE = {
    "peer_access": abi.peers_are_told,
    "device_attribute": abi.attributes_have_their_types,
    "host_register": abi.host_memory_is_registered,
    "fault": abi.a_fault_is_of_the_last_failure,
    "close": abi.close_comes_last,
}


@pytest.mark.parametrize("entry", ALONE)
@pytest.mark.parametrize("execution", ["inline", "async"])
def test_the_simulated_chip_passes(entry: str, execution: str) -> None:
    ALONE[entry](chip(execution=execution))


@pytest.mark.parametrize("entry", ALONE)
def test_a_vendor_without_it_is_not_asked(entry: str) -> None:
    with pytest.raises(abi.Skipped, match=entry):
        ALONE[entry](chip(without=entry))


def inner(found: abi.Chip, entry: str) -> Any:
    """The entry as it is now: what ctypes gives of a table's field changes with the field."""
    field = getattr(found.library.table, entry)
    return type(field)(C.cast(field, C.c_void_p).value)


def maybe(found: abi.Chip) -> Callable[..., int]:
    def peer_access(device: int, peer: int, out: Any) -> int:
        C.cast(out, C.POINTER(C.c_int32))[0] = 7
        return 0

    return peer_access


def one_way(found: abi.Chip) -> Callable[..., int]:
    """Says that memory of device 1 is reached, and copies none of it."""
    copy = inner(found, "mem_copy")

    def mem_copy(dst: int, to: int, src: int, from_: int, bytes: int, stream: Any) -> int:
        return 0 if (to, from_) == (0, 1) else copy(dst, to, src, from_, bytes, stream)

    found.library.table.mem_copy = type(copy)(mem_copy)
    return inner(found, "peer_access")


def every_key(found: abi.Chip) -> Callable[..., int]:
    def device_attribute(device: int, key: bytes, out: Any) -> int:
        out[0].tag, out[0].v.i = 1, 3
        return 0

    return device_attribute


def over_the_top(found: abi.Chip) -> Callable[..., int]:
    ask = inner(found, "device_attribute")

    def device_attribute(device: int, key: bytes, out: Any) -> int:
        status = ask(device, key, out)
        if key == b"utilization":
            out[0].v.i = 101
        return status

    return device_attribute


def forgets(found: abi.Chip) -> Callable[..., int]:
    return lambda device, at: 0


def loses_the_end(found: abi.Chip) -> Callable[..., int]:
    """Copies of registered memory stop a byte early."""
    copy = inner(found, "mem_copy")

    def mem_copy(dst: int, to: int, src: int, from_: int, bytes: int, stream: Any) -> int:
        short = bytes - (from_ == abi.HOST and bytes > abi.MIB)
        return copy(dst, to, src, from_, short, stream)

    found.library.table.mem_copy = type(copy)(mem_copy)
    return inner(found, "host_register")


def writes_it_all(found: abi.Chip) -> Callable[..., int]:
    def fault(device: int, out: Any) -> int:
        C.memset(C.addressof(out[0]) + 8, 1, 72)
        return 0

    return fault


@pytest.mark.parametrize(
    ("entry", "plant", "words"),
    [
        ("peer_access", maybe, "0 or 1"),
        ("peer_access", one_way, "what came from 1 to 0"),
        ("device_attribute", every_key, "pci_bus_id: tag 6"),
        ("device_attribute", over_the_top, "from 0 to 100"),
        ("host_unregister", forgets, "host_unregister fails"),
        ("host_register", loses_the_end, "what came back"),
        ("fault", writes_it_all, "behind byte 72"),
        ("close", lambda found: lambda: FAILED, "FAILED"),
    ],
)
def test_a_planted_fault_is_found(entry: str, plant: Any, words: str) -> None:
    found = chip()
    kind = type(getattr(found.library.table, entry))
    setattr(found.library.table, entry, kind(plant(found)))
    check = ALONE.get(entry, abi.host_memory_is_registered)
    answer = abi.answered(abi.Check(0, entry, "", "planned"), lambda: check(found))
    assert answer.state == "failed"
    assert words in f"{answer.expected} {answer.came}"
