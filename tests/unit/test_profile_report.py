"""Traces are read with care, and their sums are right."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from causeway.profile import report as sums
from causeway.profile import trace as traces


def x(kind: str, name: str, tid: int, ts: float, dur: float, pid: int = 100, **args: Any) -> dict:
    entry = {"ph": "X", "cat": kind, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return entry | {"args": args}


def launch(op: int, ts: float, device_ts: float, dur: float, **args: Any) -> list[dict]:
    ids = {"External id": op, "correlation": op, "rung": "native"} | args
    return [
        x("privateuse1_runtime", "launch k", 1, ts, 1, **ids),
        x("kernel", "k", 0, device_ts, dur, pid=0, **ids),
    ]


def example() -> dict[str, Any]:
    """Two multiplications with an operator on the host rung between them, and a copy."""
    host = {"External id": 2, "rung": "host", "operator": "aten::sin"}
    return {
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "sim:0"}},
            x("cpu_op", "aten::mul", 1, 0, 10, **{"External id": 1}),
            *launch(1, 2, 5, 20),
            x("cpu_op", "aten::sin", 1, 30, 100, **{"External id": 2}),
            x("privateuse1_runtime", "host rung: aten::sin", 1, 40, 80, **host),
            x("cpu_op", "aten::mul", 1, 140, 10, **{"External id": 3}),
            *launch(3, 142, 145, 30),
            x("cpu_op", "aten::copy_", 1, 180, 10, **{"External id": 4}),
            x("gpu_memcpy", "Memcpy DtoD", 0, 185, 10, pid=0, bytes=4000, **{"External id": 4}),
        ]
    }


def test_operators_have_their_time_on_the_device_and_the_host() -> None:
    found = sums.report(traces.parse(example()))
    mul = found.operators[0]
    assert (mul.name, mul.calls, mul.kernels) == ("aten::mul", 2, 2)
    assert mul.device_ms == pytest.approx(0.05)
    assert mul.host_ms == pytest.approx(0.02)
    assert [row.name for row in found.operators] == ["aten::mul", "aten::copy_", "aten::sin"]
    assert sum(row.device_ms for row in found.operators) == pytest.approx(0.06)


def test_a_wait_is_not_the_work_of_the_operator_that_waits() -> None:
    data = example()
    within = {"External id": 2}
    data["traceEvents"] += [
        x("privateuse1_runtime", "stream_sync", 1, 45, 50, **within),  # in the host rung
        x("privateuse1_runtime", "sync", 1, 200, 7),  # of no operator
    ]
    found = sums.report(traces.parse(data))
    for rows, name in ((found.operators, "aten::sin"), (found.rungs, "host")):
        row = {r.name: r for r in rows}[name]
        assert row.waited_ms == pytest.approx(0.05)
        assert row.host_ms == pytest.approx(0.05 if rows is found.operators else 0.03)
    assert sum(r.waited_ms for r in found.operators) == pytest.approx(0.05)
    assert found.fallbacks[0].waited_ms == pytest.approx(0.05)


def test_gaps_are_put_down_to_what_the_host_did() -> None:
    found = sums.report(traces.parse(example()))
    (device,) = found.devices
    assert device.name == "sim:0"
    assert device.span_ms == pytest.approx(0.190)
    assert device.busy_ms == pytest.approx(0.060)
    assert device.gaps == 2
    causes = {row.name: row.host_ms for row in found.gaps}
    # The gap is 25 to 145 us: 80 of them in the host rung, the rest around it.
    assert causes["host rung: aten::sin"] == pytest.approx(0.080)
    assert found.gaps[0].name == "host rung: aten::sin"
    assert sum(causes.values()) == pytest.approx(0.130)


def test_rungs_and_copies_are_summed() -> None:
    found = sums.report(traces.parse(example()))
    rungs = {row.name: row for row in found.rungs}
    assert (rungs["native"].calls, rungs["native"].kernels) == (2, 2)
    assert rungs["host"].host_ms == pytest.approx(0.08)
    assert [(row.name, row.calls) for row in found.fallbacks] == [("aten::sin", 1)]
    (copy,) = found.copies
    assert (copy.name, copy.bytes, copy.calls) == ("Memcpy DtoD", 4000, 1)


def test_work_on_two_streams_counts_once_as_busy() -> None:
    data = example()
    data["traceEvents"].append(x("kernel", "k", 7, 5, 20, pid=0))
    (device,) = sums.report(traces.parse(data)).devices
    assert device.busy_ms == pytest.approx(0.060)


def test_an_operator_within_another_is_not_counted_twice() -> None:
    data = {
        "traceEvents": [
            x("cpu_op", "outer", 1, 0, 100, **{"External id": 1}),
            x("cpu_op", "inner", 1, 10, 30, **{"External id": 2}),
            x("cpu_op", "inner", 1, 50, 20, **{"External id": 3}),
            x("cpu_op", "elsewhere", 2, 20, 30, **{"External id": 4}),
        ]
    }
    times = {r.name: r.host_ms for r in sums.report(traces.parse(data)).operators}
    assert times == {
        "outer": pytest.approx(0.05),
        "inner": pytest.approx(0.05),
        "elsewhere": pytest.approx(0.03),
    }


def test_a_compressed_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(example()).encode()))
    assert len(traces.read(path).device) == 3


def without(key: str) -> dict[str, Any]:
    data = example()
    del data["traceEvents"][1][key]
    return data


def with_value(key: str, value: Any) -> dict[str, Any]:
    data = example()
    data["traceEvents"][1][key] = value
    return data


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\x80\x04cos\nsystem\n", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "no list traceEvents"),
        (b'{"traceEvents": 3}', "no list traceEvents"),
        (b'{"traceEvents": []}', "neither operators nor work"),
        (b'{"traceEvents": [1]}', "entry 0 .* is no object"),
        (without("ts"), "entry 1 .* damaged"),
        (with_value("dur", "NaN"), "entry 1 .* damaged"),
        (with_value("dur", -1), "entry 1 .* damaged"),
        (with_value("pid", []), "entry 1 .* damaged"),
        (with_value("args", "text"), "entry 1 .* damaged"),
        (with_value("tid", "main"), "entry 1 .* damaged"),
    ],
)
def test_a_damaged_trace_is_refused_with_its_reason(
    tmp_path: Path, content: bytes | dict[str, Any], words: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(traces.TraceError, match=words):
        traces.read(path)


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(example()).encode())[:-20])
    with pytest.raises(traces.TraceError, match="cannot be read"):
        traces.read(path)


def test_the_page_escapes_what_it_shows() -> None:
    data = example()
    data["traceEvents"][1]["name"] = "<script>alert(1)</script>"
    data["traceEvents"][0]["args"]["name"] = "<b>chip</b>"
    page = sums.report(traces.parse(data)).to_html()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>chip" not in page


def test_a_trace_without_a_device_has_sums_too() -> None:
    data = {"traceEvents": [x("cpu_op", "aten::add", 1, 0, 10, **{"External id": 1})]}
    found = sums.report(traces.parse(data))
    assert found.devices == []
    assert "No work was put on a device" in found.to_html()
    assert json.loads(found.to_json())["operators"][0]["name"] == "aten::add"
