"""The allocator's history, in the form that torch's own memory viewer reads."""

from __future__ import annotations

import base64
import pickle
import re
import sys

import pytest
import torch
from torch.cuda import _memory_viz as viz

MIB = 1 << 20


@pytest.fixture
def memory(module):
    """torch.sim.memory; a history ends with the test."""
    torch.accelerator.synchronize()
    module.empty_cache()
    yield module.memory
    module.memory._record_memory_history(None)


def actions(memory, address=None):
    trace = memory._snapshot()["device_traces"][0]
    return [e["action"] for e in trace if address is None or e.get("addr") == address]


def allocate_here(device):
    return torch.empty(3 * MIB, dtype=torch.uint8, device=device)


def test_the_history_of_a_tensor_is_kept_with_its_stack(memory, device) -> None:
    memory._record_memory_history(stacks="python")
    x = allocate_here(device)
    address = x.data_ptr()
    del x
    events = [
        e for e in memory._snapshot()["device_traces"][0] if e.get("addr") == address and e["size"]
    ]
    kinds = [e["action"] for e in events if not e["action"].startswith("segment")]
    assert kinds == ["alloc", "free_requested", "free_completed"]
    frames = events[0]["frames"]
    assert frames[0]["name"] == "allocate_here"
    assert frames[0]["filename"] == __file__
    line = allocate_here.__code__.co_firstlineno + 1
    assert frames[0]["line"] == line
    assert {e["size"] for e in events if not e["action"].startswith("segment")} == {3 * MIB}
    assert events[0]["time_us"] <= events[-1]["time_us"]


def test_segments_come_and_go(memory, module, device) -> None:
    memory._record_memory_history(stacks="python")
    bytes = 30 * MIB - module.get_device_properties().padding
    x = torch.empty(bytes, dtype=torch.uint8, device=device)
    del x
    module.empty_cache()
    found = [
        (e["action"], e["size"])
        for e in memory._snapshot()["device_traces"][0]
        if e["action"].startswith("segment")
    ]
    assert ("segment_alloc", 30 * MIB) in found
    assert ("segment_free", 30 * MIB) in found


def test_memory_in_use_tells_who_asked(memory, device) -> None:
    memory._record_memory_history("state", stacks="python")
    x = allocate_here(device)
    snapshot = memory._snapshot()
    (block,) = [
        b for s in snapshot["segments"] for b in s["blocks"] if b["address"] == x.data_ptr()
    ]
    assert block["frames"][0]["name"] == "allocate_here"
    assert block["state"] == "active_allocated"
    assert [e["action"] for e in snapshot["device_traces"][0]] == []


def test_a_block_that_another_stream_uses_is_freed_later(memory, module, device) -> None:
    other = module.Stream(device)
    if other == module.current_stream():
        pytest.skip("one stream")
    memory._record_memory_history(stacks="python")
    x = allocate_here(device)
    address = x.data_ptr()
    x.record_stream(other)
    del x
    module.synchronize()
    allocate_here(device)  # collects what waits
    kinds = [a for a in actions(memory, address) if not a.startswith("segment")]
    assert kinds[:3] == ["alloc", "free_requested", "free_completed"]


def test_out_of_memory_is_an_event(memory, module, device) -> None:
    memory._record_memory_history(stacks="python")
    total = module.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2 * total, dtype=torch.uint8, device=device)
    (event,) = [e for e in memory._snapshot()["device_traces"][0] if e["action"] == "oom"]
    assert event["size"] == 2 * total
    assert 0 < event["device_free"] <= total
    assert event["frames"]


def test_contexts_say_which_stacks_are_kept(memory, device) -> None:
    for context, of_alloc, of_free in (
        (None, False, False),
        ("state", False, False),
        ("alloc", True, False),
        ("all", True, True),
    ):
        memory._record_memory_history(context=context, stacks="python", clear_history=True)
        x = allocate_here(device)
        address = x.data_ptr()
        del x
        by = {
            e["action"]: bool(e["frames"])
            for e in memory._snapshot()["device_traces"][0]
            if e.get("addr") == address
        }
        assert by["alloc"] is of_alloc, context
        assert by["free_requested"] is of_free, context


def test_the_last_events_are_kept(memory, device) -> None:
    memory._record_memory_history(max_entries=4, stacks="python")
    for _ in range(9):
        torch.empty(1, device=device)
    assert len(actions(memory)) == 4


def test_actions_can_be_skipped(memory, device) -> None:
    memory._record_memory_history(skip_actions=["free_requested", "snapshot"], stacks="python")
    torch.empty(1, device=device)
    assert set(actions(memory)) == {"alloc", "free_completed"} | (
        {"segment_alloc"} & set(actions(memory))
    )


def test_none_ends_the_history_and_forgets_it(memory, device) -> None:
    memory._record_memory_history(stacks="python")
    torch.empty(1, device=device)
    memory._record_memory_history(enabled=None)
    torch.empty(1, device=device)
    assert actions(memory) == []


def test_the_older_form_is_understood(memory, device) -> None:
    memory._record_memory_history(
        True, trace_alloc_max_entries=100, trace_alloc_record_context=True
    )
    x = allocate_here(device)
    events = [e for e in memory._snapshot()["device_traces"][0] if e.get("addr") == x.data_ptr()]
    assert events[-1]["frames"][0]["name"] == "allocate_here"
    memory._record_memory_history(False)
    assert actions(memory) == []


@pytest.mark.parametrize(
    "options",
    [
        {"enabled": "some"},
        {"context": "some"},
        {"stacks": "cpp"},
        {"max_entries": 0},
        {"skip_actions": ["alloc", "free"]},
    ],
)
def test_a_wrong_option_raises(memory, options) -> None:
    with pytest.raises(ValueError, match=r"must be|is one of"):
        memory._record_memory_history(**options)
    assert actions(memory) == []


def test_frames_of_cpp_come_where_asked_for(memory, device) -> None:
    memory._record_memory_history(stacks="all")
    x = allocate_here(device)
    event = next(e for e in memory._snapshot()["device_traces"][0] if e.get("addr") == x.data_ptr())
    names = [frame["name"] for frame in event["frames"]]
    assert "allocate_here" in names
    assert any("::" in name for name in names[: names.index("allocate_here")])


# --- torch's own viewer ---------------------------------------------------------------------------


@pytest.fixture
def dump(memory, device, tmp_path):
    """A dump of some history, as the viewer's command line reads it."""
    memory._record_memory_history(stacks="python")
    kept = [allocate_here(device) for _ in range(3)]
    (kept[0].float() + 1).sum().item()
    del kept[1]
    memory._dump_snapshot(tmp_path / "snapshot.pickle")
    with open(tmp_path / "snapshot.pickle", "rb") as file:
        return pickle.load(file)


def test_the_dump_is_made_of_plain_things(dump) -> None:
    def plain(value) -> bool:
        if isinstance(value, dict):
            return all(type(k) is str and plain(v) for k, v in value.items())
        if isinstance(value, list | tuple):
            return all(map(plain, value))
        return value is None or type(value) in (int, float, str, bool)

    assert plain(dump)


def test_torchs_viewer_sums_segments_and_tells_the_trace(dump) -> None:
    assert "total_reserved" in viz.segsum(dump)  # it checks that blocks add up
    told = viz.trace(dump)
    assert "Device 0" in told
    assert re.search(r"\w+ = seg_\d|\w+ = \w+\[", told)


def test_torchs_flame_graphs_have_the_stacks(dump) -> None:
    lines = viz.segments(dump, format_flamegraph=lambda text: text)
    assert "test_memory_history.py" in lines
    assert "allocate_here" in lines
    assert "allocate_here" in viz.memory(dump, format_flamegraph=lambda text: text)
    assert viz.compare([], dump["segments"], format_flamegraph=lambda t: t).startswith("only_after")


@pytest.mark.parametrize("kind", ["trace", "cached", "filtered", "segment"])
def test_torchs_plots_hold_the_snapshot(dump, kind) -> None:
    page = {
        "trace": lambda: viz.trace_plot(dump),
        "cached": lambda: viz.trace_plot(dump, plot_segments=True),
        "filtered": lambda: viz.trace_plot(dump, filter_freed=True),
        "segment": lambda: viz.segment_plot(dump),
    }[kind]()
    (encoded,) = re.findall(r'"base64": "([^"]+)"', page)
    assert pickle.loads(base64.b64decode(encoded))["device_traces"] == dump["device_traces"]


def test_torchs_command_line_reads_a_dump(memory, device, tmp_path) -> None:
    import runpy

    memory._record_memory_history(stacks="python")
    kept = allocate_here(device)
    memory._dump_snapshot(tmp_path / "snapshot.pickle")
    page = tmp_path / "page.html"
    argv, sys.argv = (
        sys.argv,
        ["viz", "trace_plot", str(tmp_path / "snapshot.pickle"), "-o", str(page)],
    )
    try:
        runpy.run_path(viz.__file__, run_name="__main__")
    finally:
        sys.argv = argv
    assert "Active Memory Timeline" in page.read_text()
    del kept


def test_a_profile_plots_its_memory(device) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(
        activities=activities, profile_memory=True, record_shapes=True, with_stack=True
    ) as p:
        model = torch.nn.Linear(256, 256).to(device)
        model(torch.ones(64, 256, device=device)).sum().backward()
    page = viz.profile_plot(p)
    (encoded,) = re.findall(r'"base64": "([^"]+)"', page)
    events = [e for t in pickle.loads(base64.b64decode(encoded))["device_traces"] for e in t]
    assert {"alloc", "free_completed"} <= {e["action"] for e in events}


def test_a_dump_that_fails_leaves_the_old_one(memory, device, tmp_path, monkeypatch) -> None:
    path = tmp_path / "snapshot.pickle"
    memory._dump_snapshot(path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(pickle, "dump", fail)
    with pytest.raises(OSError, match="no space"):
        memory._dump_snapshot(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["snapshot.pickle"]
