"""The ledger: every call counted once, by operator, rung and dtype; ledgers nest."""

from __future__ import annotations

import io
import json
import threading

import pytest
import torch
from rich.console import Console

import causeway
from causeway.ops import ledger as module
from causeway.ops.ledger import LedgerRow, Table, size


def test_calls_are_counted_by_operator_and_dtype(device: torch.device) -> None:
    a = torch.ones(4, device=device)
    b = torch.ones(4, device=device, dtype=torch.int32)
    with causeway.ledger() as ledger:
        for _ in range(3):
            a.add_(1)
        b.add_(1)
    counts = {row.dtype: row.calls for row in ledger.rows if "add_" in row.operator}
    assert counts == {"float32": 3, "int32": 1}
    assert ledger.total() == 4
    assert ledger.total("seconds") > 0


def test_calls_add_up_over_rungs_and_operators(device: torch.device) -> None:
    a = torch.randn(8, 8, device=device)
    with causeway.ledger() as ledger:
        (a @ a).relu().sum().item()
    by_rung = [ledger.total(rung=rung) for rung in module.RUNGS]
    assert sum(by_rung) == ledger.total() >= 3
    assert ledger.total(operator="relu") == ledger.total(operator="aten::relu") == 1
    with pytest.raises(ValueError, match="no rung 'cpu'"):
        ledger.total(rung="cpu")


def test_ledgers_nest_and_stand_still_when_closed(device: torch.device) -> None:
    a = torch.ones(4, device=device)
    with causeway.ledger() as outer:
        a.add_(1)
        with causeway.ledger() as inner:
            a.add_(1)
        assert outer.total() == 2  # open: until now
        a.add_(1)
    a.add_(1)
    assert inner.total() == 1
    assert outer.total() == 3


def test_other_threads_are_seen(device: torch.device) -> None:
    a = torch.ones(4, device=device)
    with causeway.ledger() as ledger:
        threads = [threading.Thread(target=lambda: a.mul(2)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ledger.total() == 4


def test_copies_to_and_from_the_host_are_counted_in_bytes(device: torch.device) -> None:
    with causeway.ledger() as ledger:
        torch.ones(256, dtype=torch.float32).to(device)
    assert ledger.total("bytes") == 1024


def test_a_forced_operator_is_in_the_ledger_as_host(device: torch.device) -> None:
    a = torch.ones(4, device=device)
    with causeway.fallback("add.*"), causeway.ledger() as ledger:
        a + a
    assert ledger.total(rung="host") == ledger.total() == 1


def test_json_has_every_row(device: torch.device) -> None:
    with causeway.ledger() as ledger:
        torch.ones(4, device=device)
    rows = json.loads(ledger.to_json())["rows"]
    assert [LedgerRow(**row) for row in rows] == ledger.rows


SLOW = """
import torch, causeway
x = torch.ones(4, device="sim")
x + x
torch.accelerator.synchronize()
with causeway.ledger() as ledger:
    for _ in range(3):
        y = x + x  # each takes the latency, on the stream
    torch.special.zeta(x[:1] + 1, 2.0)  # on the host, which needs all of them
rows = {row.operator: row for row in ledger.rows}
add, zeta = rows["aten::add.Tensor"], rows["aten::special_zeta"]
assert zeta.rung == "host", zeta
assert zeta.waited > 0.25 and zeta.worked < 0.1, zeta
assert add.waited < 0.1 and add.worked < 0.1, add
parts = ledger.total("worked") + ledger.total("waited")
assert abs(ledger.total("seconds") - parts) < 1e-6, (ledger.total("seconds"), parts)
"""


def test_a_wait_for_earlier_work_is_not_the_time_of_who_waits(run_python) -> None:
    settings = {"OPS": "all", "EXECUTION": "async", "LATENCY_US": "100000"}
    run_python(SLOW, **{f"CAUSEWAY_SIM_{name}": value for name, value in settings.items()})


ROWS = [
    LedgerRow("aten::add.out", "native", "float32", 3, 0, 0.001),
    LedgerRow("aten::add.out", "host", "int64", 1, 2048, 0.002),
    LedgerRow("aten::mm", "native", "float32", 2, 0, 0.5, 0.02),
]


def test_the_table_has_a_line_per_operator_the_longest_first() -> None:
    lines = str(Table(ROWS)).splitlines()
    assert lines[0].split() == ["operator", "native", "host", "dtypes", "copied", "ms", "waited"]
    assert lines[2].split() == ["mm", "2", "-", "float32", "-", "500.0", "20.0"]
    assert lines[3].split() == [
        "add.out",
        "3",
        "1",
        "float32,",
        "int64",
        "2.0",
        "KiB",
        "3.0",
        "0.0",
    ]
    assert lines[5].split() == ["2", "operators", "5", "1", "2.0", "KiB", "503.0", "20.0"]


def test_rich_and_plain_tables_say_the_same() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(Table(ROWS))
    words = console.export_text().replace("─", "").split()
    plain = str(Table(ROWS)).replace("-" * 10, "").split()
    assert sorted(w for w in words if w.strip("-")) == sorted(w for w in plain if w.strip("-"))


def test_a_narrow_terminal_shortens_the_names_and_nothing_else() -> None:
    console = Console(width=70, record=True, file=io.StringIO())
    console.print(Table([*ROWS, LedgerRow("aten::" + "long" * 20, "host", "bool", 1, 0, 12.0)]))
    text = console.export_text()
    assert "longlo" in text
    assert text.count("…") == 1
    assert "12000.0" in text


def test_an_empty_table_says_so() -> None:
    assert str(Table([])) == "no operator was called"


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "-"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_bytes_are_written_for_people(n: int, text: str) -> None:
    assert size(n) == text


def test_the_setting_prints_a_summary_at_exit(run_python) -> None:
    program = "import torch; torch.ones(3, device='sim').add_(1)"
    assert run_python(program).stderr == ""
    done = run_python(program, CAUSEWAY_LEDGER="1")
    assert "causeway: operators by rung" in done.stderr
    assert "add_" in done.stderr


def test_the_ledger_of_the_process_can_be_switched_from_python(run_python) -> None:
    program = """
import torch, causeway
a = torch.ones(3, device='sim')
causeway.config.set("ledger", True)
a.add_(1)
if {stop}:
    causeway.config.set("ledger", False)
"""
    assert "add_" in run_python(program.format(stop=False)).stderr
    assert run_python(program.format(stop=True)).stderr == ""
