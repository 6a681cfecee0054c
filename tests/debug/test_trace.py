"""A trace holds what was written, and a damaged or hostile one is refused with the place."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.errors import TraceError
from causeway.observe.arguments import tensors_in
from causeway.trace import tensors, values
from causeway.trace.reader import Trace
from causeway.trace.tensors import Memory
from causeway.trace.trace import RecordedCall, Writer, seal

from .conftest import kept, write_trace

SCHEMA = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"


def lines(trace: Path) -> list[bytes]:
    return (trace / "calls.jsonl").read_bytes().splitlines(keepends=True)


def rewrite(trace: Path, *found: bytes) -> None:
    (trace / "calls.jsonl").write_bytes(b"".join(found))


def read_all(folder: Path) -> int:
    """Read whatever is there: metadata and all values."""
    opened = Trace(folder)
    for call in opened.calls:
        for record in tensors_in([call.args, call.results], tensors.TensorRecord):
            opened.values(record)
    return len(opened.calls)


# --- what is written is read ----------------------------------------------------------------------


def test_a_trace_gives_back_what_was_written(trace: Path) -> None:
    opened = Trace(trace)
    assert opened.complete
    assert opened.state() == ""
    assert [c.operator for c in opened.calls] == ["aten::add.Tensor"] * 3 + ["aten::mm"]
    first = opened.calls[0]
    assert first.module == "Net.fc"
    assert first.args[2] == 2
    a, b = (opened.values(r) for r in first.args[:2])
    torch.testing.assert_close(opened.values(first.results[0]), a + 2 * b, rtol=0, atol=0)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, -1.5, float("inf"), "gelu", [1, 2], [[True], None], 2 + 1j,
        torch.float16, torch.strided, torch.channels_last,
    ],
)  # fmt: skip
def test_arguments_survive_json(value: object) -> None:
    text = json.dumps(values.to_json(value), allow_nan=False)
    assert values.from_json(json.loads(text)) == value


def test_an_argument_that_json_cannot_hold_is_shown_by_its_type() -> None:
    assert values.from_json(values.to_json(object())) == values.Opaque("object")


@pytest.mark.parametrize(
    "t",
    [
        torch.randn(4, 6)[:, ::2],
        torch.randn(3, 1).expand(3, 4),
        torch.arange(10.0).as_strided((3, 4), (2, 1)),
        torch.randn(5, dtype=torch.bfloat16)[1:],
        torch.randn(2, 2, dtype=torch.complex128),
        torch.zeros(0, 3),
        torch.tensor(7),
        torch.randn(4).to(torch.float8_e5m2),
        torch.tensor([True, False]),
    ],
    ids=["sliced", "expanded", "overlapping", "offset", "complex128", "empty", "zero-dim",
         "float8", "bool"],
)  # fmt: skip
def test_tensors_come_back_with_their_layout(tmp_path: Path, t: torch.Tensor) -> None:
    writer = Writer(tmp_path / "t", {})
    record = kept(writer, t, {})
    writer.write(RecordedCall(0, "aten::add.Tensor", [record, record, 1]), SCHEMA)
    writer.close()
    opened = Trace(tmp_path / "t")
    again = opened.calls[0].args[0]
    memory = Memory(torch.device("cpu"), opened.values)
    memory.plan([again])
    made = memory.make(again)
    assert (made.dtype, made.shape, made.stride()) == (t.dtype, t.shape, t.stride())
    assert tensors.digest(tensors.at_home(made)) == tensors.digest(tensors.at_home(t))


def test_tensors_that_shared_memory_share_it_again(tmp_path: Path) -> None:
    base = torch.randn(6)
    writer = Writer(tmp_path / "t", {})
    storages: dict[int, int] = {}
    records = [kept(writer, t, storages) for t in (base[:4], base[2:])]
    writer.write(RecordedCall(0, "aten::add.Tensor", [*records, 1]), SCHEMA)
    writer.close()
    opened = Trace(tmp_path / "t")
    memory = Memory(torch.device("cpu"), opened.values)
    args = opened.calls[0].args[:2]
    memory.plan(args)
    first, second = (memory.make(r) for r in args)
    first[2:] = 5.0
    assert second[:2].tolist() == [5.0, 5.0]


def test_equal_values_are_kept_once(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t", {})
    one = torch.randn(1000)
    records = [kept(writer, one, {}), kept(writer, one.clone(), {})]
    assert records[0].data == records[1].data
    writer.close()


def test_a_budget_leaves_out_values_then_calls_and_says_so(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t", {}, budget=6000)
    for number in range(40):
        record = kept(writer, torch.randn(100), {})
        writer.write(RecordedCall(number, "aten::add.Tensor", [record, record, 1]), SCHEMA)
    writer.close()
    opened = Trace(tmp_path / "t")
    assert 0 < len(opened.calls) < 40
    assert "calls left out, for the budget was spent" in opened.state()
    assert "values left out" in opened.state()
    size = sum(f.stat().st_size for f in (tmp_path / "t").iterdir())
    assert size < 2 * 6000


def test_a_folder_that_is_there_is_not_written_over(trace: Path) -> None:
    with pytest.raises(TraceError, match="exists already"):
        Writer(trace, {})


def test_statistics_make_numbers_that_are_distributed_so() -> None:
    t = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * 3 + 10
    t[0, 0] = float("nan")
    record = replace(tensors.describe(t), statistics=tensors.statistics(t))
    made = tensors.generate(record, 1)
    assert int(made.isnan().sum()) == 1
    finite = made[made.isfinite()]
    assert abs(float(finite.mean()) - 10) < 0.5
    assert abs(float(finite.std()) - 3) < 0.5
    assert torch.equal(made.nan_to_num(), tensors.generate(record, 1).nan_to_num())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 300.0])
def test_statistics_are_those_of_float64(dtype: torch.dtype, scale: float) -> None:
    t = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0)).mul(scale).add(scale / 4)
    t = t.to(dtype)
    exact, found = t.double(), tensors.statistics(t)
    assert found["min"] == float(exact.min())
    assert found["max"] == float(exact.max())
    assert found["mean"] == pytest.approx(float(exact.mean()), abs=1e-4 * scale)
    assert found["norm"] == pytest.approx(float(exact.norm()), rel=1e-4)
    assert found["std"] == pytest.approx(float(exact.std()), rel=1e-3)


def test_places_stay_places_when_they_are_generated() -> None:
    t = torch.tensor([0, 3, 3, 9])
    record = replace(tensors.describe(t), statistics=tensors.statistics(t))
    made = tensors.generate(record, 1)
    assert made.dtype == torch.int64
    assert 0 <= int(made.min()) <= int(made.max()) <= 9
    assert bool((made[1:] >= made[:-1]).all())


# --- what was cut off -----------------------------------------------------------------------------


def test_a_trace_of_a_killed_program_is_read_up_to_there(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "t", close=False)
    opened = Trace(folder)
    assert not opened.complete
    assert len(opened.calls) == 4
    assert "was killed" in opened.state()


def test_a_torn_last_line_is_left_out_and_said(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "t", close=False)
    found = lines(folder)
    rewrite(folder, *found[:-1], found[-1][: len(found[-1]) // 2])
    opened = Trace(folder)
    assert len(opened.calls) == 3
    assert "torn" in opened.state()


def test_a_torn_last_line_of_a_complete_trace_is_refused(trace: Path) -> None:
    found = lines(trace)
    rewrite(trace, *found[:-1], found[-1][:-20])
    with pytest.raises(TraceError, match=r"calls.jsonl line 6: cut off"):
        _ = Trace(trace).calls


def test_a_program_that_is_killed_leaves_a_trace(run_python, tmp_path: Path) -> None:
    program = """
import os, signal, sys, torch, causeway
with causeway.record(sys.argv[1], via="dispatch"):
    x = torch.ones(4)
    for _ in range(50):
        x = x + 1
    os.kill(os.getpid(), signal.SIGKILL)
"""
    run_python(program, status=-9, args=(str(tmp_path / "t"),))
    opened = Trace(tmp_path / "t")
    assert not opened.complete
    assert sum(c.operator == "aten::add.Tensor" for c in opened.calls) == 50


# --- damage ---------------------------------------------------------------------------------------


def test_another_folder_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace"):
        Trace(tmp_path)


def test_a_later_version_is_refused(trace: Path) -> None:
    header = json.loads((trace / "trace.json").read_text())
    (trace / "trace.json").write_text(json.dumps(header | {"version": 2}))
    with pytest.raises(TraceError, match="version 2; this Causeway reads version 1"):
        Trace(trace)


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b"{", b"\xff\xfe{}", b"[" * 100_000, b'{"version": NaN}',
     b'{"version": ' + b"9" * 5000 + b"}"],
    ids=["empty", "a list", "half", "not UTF-8", "nested", "NaN", "digits"],
)  # fmt: skip
def test_a_header_that_is_none_is_refused(trace: Path, content: bytes) -> None:
    (trace / "trace.json").write_bytes(content)
    with pytest.raises(TraceError, match=r"trace\.json"):
        Trace(trace)


def test_a_changed_line_is_refused(trace: Path) -> None:
    found = lines(trace)
    rewrite(trace, *found[:2], found[2].replace(b"Net.fc", b"Net.fb"), *found[3:])
    with pytest.raises(TraceError, match=r"line 3: the checksum is another"):
        _ = Trace(trace).calls


def test_a_missing_line_is_refused(trace: Path) -> None:
    found = lines(trace)
    rewrite(trace, *found[:2], *found[3:])
    with pytest.raises(TraceError, match=r"line 3: it says that it is line 4"):
        _ = Trace(trace).calls


def test_missing_lines_at_the_end_are_refused(trace: Path) -> None:
    rewrite(trace, *lines(trace)[:-1])
    with pytest.raises(TraceError, match="5 lines and 3 calls"):
        _ = Trace(trace).calls


def call_with(argument: object, **fields: object) -> bytes:
    """A line that an adversary made: its checksum is right."""
    call = {"sequence": 0, "operator": "aten::add.Tensor", "args": [argument], "results": []}
    return seal({"line": 2, "call": call | fields})


def tensor(**fields: object) -> dict[str, object]:
    record = {"shape": [2], "dtype": "float32", "device": "cpu", "stride": [1], "storage": 0}
    return {"tensor": record | fields}


HOSTILE = {
    "an operator that is a path": (call_with(1, operator="../x::y"), "no name of an operator"),
    "a huge tensor": (call_with(tensor(shape=[1 << 60])), "cannot be"),
    "a huge product": (call_with(tensor(shape=[1 << 40, 1 << 40], stride=[1, 1])), "cannot be"),
    "a far stride": (call_with(tensor(stride=[1 << 61])), "cannot be"),
    "a negative size": (call_with(tensor(shape=[-1])), "shape"),
    "a size that is a float": (call_with(tensor(shape=[1.5])), "shape"),
    "too many dimensions": (call_with(tensor(shape=[1] * 65)), "at most 64"),
    "strides that do not fit": (call_with(tensor(stride=[1, 1])), "2 strides for 1"),
    "an unknown dtype": (call_with(tensor(dtype="float33")), "no dtype 'float33'"),
    "values in another folder": (call_with(tensor(data="../../etc:1")), "expected <shard>:<key>"),
    "an unknown field": (call_with(tensor(evil=1)), "unknown field 'evil'"),
    "an unknown kind": (call_with({"pickle": "x"}), "unknown kind 'pickle'"),
    "lists without end": (call_with([[[[[[[[[[1]]]]]]]]]]), "lists in lists"),
    "an unknown phase": (call_with(1, phase="later"), "the phase"),
    "an argument that is not there": (call_with(1, written=[[7, None]]), "argument 7"),
    "a field of a call": (call_with(1, code="x"), "unknown field 'code'"),
    "statistics that are words": (call_with(tensor(statistics={"min": "x"})), "statistics"),
    "a short digest": (call_with(tensor(digest="00")), "digest"),
    "a record of no kind": (seal({"line": 2, "code": "x"}), "unknown kind"),
    "no record": (b"[1]\n", "no checksum"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_line_is_refused_with_its_place(trace: Path, what: str) -> None:
    line, why = HOSTILE[what]
    rewrite(trace, lines(trace)[0], line)
    with pytest.raises(TraceError, match=rf"calls\.jsonl line 2: .*{why}"):
        _ = Trace(trace).calls


def test_values_that_were_changed_are_refused(trace: Path) -> None:
    shard = trace / "tensors-0.safetensors"
    content = bytearray(shard.read_bytes())
    content[-3] ^= 1
    shard.write_bytes(content)
    with pytest.raises(TraceError, match="other values than those that were recorded"):
        read_all(trace)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 20) + b"{]" * 10,
        struct.pack("<Q", 2) + b"{}",
        b"\x80\x04\x95cos\nsystem\n",
    ],
    ids=["empty", "a byte", "a huge header", "no JSON", "no tensor", "a pickle"],
)
def test_a_shard_that_is_none_is_refused(trace: Path, content: bytes) -> None:
    (trace / "tensors-0.safetensors").write_bytes(content)
    with pytest.raises(TraceError, match=r"tensors-0\.safetensors"):
        read_all(trace)


def test_a_shard_of_other_shapes_is_refused(trace: Path) -> None:
    from safetensors.torch import save_file

    save_file({str(k): torch.zeros(2) for k in range(20)}, trace / "tensors-0.safetensors")
    with pytest.raises(TraceError, match="the index says"):
        read_all(trace)


def test_a_file_that_is_a_link_is_refused(trace: Path, tmp_path: Path) -> None:
    shard = trace / "tensors-0.safetensors"
    shutil.move(shard, tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TraceError, match="not a regular file"):
        read_all(trace)


def test_nothing_of_a_trace_is_unpickled(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    assert read_all(trace) == 4


_pristine: dict[str, bytes] = {}


def pristine() -> dict[str, bytes]:
    if not _pristine:
        with tempfile.TemporaryDirectory() as folder:
            made = write_trace(Path(folder) / "t")
            _pristine.update({path.name: path.read_bytes() for path in made.iterdir()})
    return _pristine


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.sampled_from(["trace.json", "calls.jsonl", "complete.json", "tensors-0.safetensors"]),
    st.floats(0, 0.999),
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 7)),
        st.tuples(st.just("cut"), st.just(0)),
        st.tuples(st.just("drop"), st.integers(1, 200)),
        st.tuples(st.just("insert"), st.binary(min_size=1, max_size=40)),
    ),
)
def test_no_mutation_of_a_trace_is_accepted_in_silence(name, where, change) -> None:
    """A mutated trace is refused with a TraceError, or reads as what was written."""
    files = dict(pristine())
    content = bytearray(files[name])
    at, (kind, how) = int(where * len(content)), change
    if kind == "flip":
        content[at] ^= 1 << how
    elif kind == "cut":
        del content[at:]
    elif kind == "drop":
        del content[at : at + how]
    else:
        content[at:at] = how
    with tempfile.TemporaryDirectory() as folder:
        for other, old in files.items():
            Path(folder, other).write_bytes(bytes(content) if other == name else old)
        try:
            count = read_all(Path(folder))
        except TraceError:
            return
        assert count == 4
        assert name != "calls.jsonl" or bytes(content) == files[name]


def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t", {})
    writer.write(RecordedCall(0, "aten::add.Tensor", [1, 2, 3]), SCHEMA)
    child = os.fork()
    if child == 0:
        writer.write(RecordedCall(1, "aten::add.Tensor", [1, 2, 3]), SCHEMA)
        writer.close()
        os._exit(0)
    os.waitpid(child, 0)
    writer.close()
    assert len(Trace(tmp_path / "t").calls) == 1
