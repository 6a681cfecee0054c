"""Settings: each does what it says, and a bad value is named when the chip is first asked for."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable

import pytest
from sim import DTYPES, Host, Op, Sim, SimError, i32

Make = Callable[..., Sim]


def bits(*names: str) -> int:
    return sum(1 << DTYPES[name][2] for name in names)


def test_devices_and_memory(make_sim: Make) -> None:
    sim = make_sim(devices=3, memory="100MiB")
    assert sim.get("device_count", i32) == 3
    assert (sim.info(2).name, sim.info(2).memory) == (b"Sim 2", 100 << 20)


@pytest.mark.parametrize(
    ("text", "bytes"), [("2097152", 1 << 21), ("3M", 3 << 20), ("2GiB", 2 << 30), ("1 gb", 1 << 30)]
)
def test_sizes_are_written_as_people_do(make_sim: Make, text: str, bytes: int) -> None:
    assert make_sim(memory=text).info().memory == bytes


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("devices", "two", "a number from 0 to 64"),
        ("memory", "4 lemons", "bytes from 1M to 1T"),
        ("personality", "no-fp64,no-legs", "no-int64"),
        ("memory_model", "shared", "unified, discrete"),
        ("execution", "later", "inline, async"),
        ("ops", "some", "all, fastest, none"),
        ("level", "3", "0, 1, 2"),
        ("latency_us", "-1", "microseconds"),
        ("fault", "mem_alloc=FAILED", "<entry>:<n>=<status>"),
        ("fault", "mem_eat:1=FAILED", "<entry>:<n>=<status>"),
        ("skip_wait", "mem_alloc", "stream_wait"),
        ("corrupt", "garbage", "<operator>"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(
    make_sim: Make, setting: str, value: str, allowed: str
) -> None:
    sim = make_sim(**{setting: value})
    for ask in (lambda: sim.get("device_count", i32), lambda: sim.alloc(1)):
        with pytest.raises(SimError) as caught:
            ask()
        words = str(caught.value)
        assert caught.value.status == "INVALID"
        assert f'setting "{setting}"' in words
        assert f"CAUSEWAY_SIM_{setting.upper()}" in words
        assert f'is "{value}"' in words
        assert allowed in words


def test_no_devices_is_no_error(make_sim: Make) -> None:
    assert make_sim(devices=0).get("device_count", i32) == 0


def test_personality_removes_dtypes_everywhere(make_sim: Make) -> None:
    sim = make_sim(ops="all", personality="no-fp64, no-int64,no-complex")
    gone = bits("float64", "int64", "complex64", "complex128")
    assert sim.info().dtypes & gone == 0
    assert sim.info().dtypes & bits("float32", "int32", "bfloat16") == bits(
        "float32", "int32", "bfloat16"
    )
    add = sim.find("aten::add.out")
    assert add.dtypes & gone == 0
    assert add.dtypes & bits("float32")


@pytest.mark.parametrize(
    ("level", "has"), [(0, ()), (1, ("op_find",)), (2, ("op_find", "stream_create", "extension"))]
)
def test_level_takes_away_the_entries_above(
    make_sim: Make, level: int, has: tuple[str, ...]
) -> None:
    table = make_sim(level=level).table
    assert table.mem_copy
    assert table.bind
    for entry in (
        "op_find",
        "stream_create",
        "stream_wait",
        "event_create",
        "event_elapsed",
        "extension",
    ):
        group = entry.split("_")[0]
        assert (
            bool(getattr(table, entry)) == any(h.split("_")[0] == group for h in has) or level == 2
        )


def test_level_0_computes_nothing_but_moves_bytes(make_sim: Make) -> None:
    sim = make_sim(level=0, execution="async")
    address = sim.alloc(64)
    sim.write(address, b"alone")
    assert sim.read(address, 5) == b"alone"


def test_ops_says_which_are_offered(make_sim: Make) -> None:
    def offers(ops: str, name: str) -> bool:
        status = make_sim(ops=ops).status("op_find", name.encode(), C.byref(Op(C.sizeof(Op))))
        assert status in ("OK", "UNSUPPORTED")
        return status == "OK"

    assert offers("all", "aten::mm.out")
    assert offers("all", "aten::zero_")
    assert not offers("fastest", "aten::mm.out")
    assert offers("fastest", "aten::nll_loss_backward.grad_input")
    assert not offers("none", "aten::zero_")
    assert not offers("all", "aten::no_such_operator")


def test_a_host_of_another_contract_gets_nothing(sim_library: object) -> None:
    library = C.CDLL(str(sim_library))
    library.cw_open_v1.restype = C.c_void_p
    host = Host(C.sizeof(Host), 2)
    assert library.cw_open_v1(C.byref(host)) is None
