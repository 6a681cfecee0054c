"""torch.profiler sees the device: its kernels and copies at their true times, each with the
operator that launched it.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

import causeway
from causeway import config
from causeway.vendor import sim_library

DEVICE_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")


@pytest.fixture(params=["device", "events"])
def clock(request):
    """Both sources of times: the vendor's own record, and events around the work."""
    with config.using(profile_clock=request.param):
        yield request.param


@pytest.fixture(scope="module")
def has_operators(name) -> bool:
    """Whether the chip computes what is asked of it here itself."""
    x = torch.ones(4, 4, device=name)
    with causeway.ledger() as ledger:
        x.mul(2)
        torch.addmm(x, x, x)
        torch.ones(256, 256, device=name).add(1)
    return ledger.total(rung="host") == 0


def step(device) -> None:
    """A training step with work on the device, a copy, a wait, and an operator on the host rung."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 64).to(device)
    with record_function("forward"):
        loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    with causeway.fallback("cumsum"):
        x.cumsum(0)
    x.clone()
    loss.item()


def traced(device, tmp_path, work=step, **options):
    """(profile, events of the Chrome trace) of `work`."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], **options) as p:
        work(device)
    p.export_chrome_trace(str(tmp_path / "trace.json"))
    return p, json.loads((tmp_path / "trace.json").read_text())


def of_kind(trace, *kinds):
    return [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") in kinds]


def kernels_of(trace, part: str):
    """The kernels of operators with `part` in their name: a chip's kernels may have other names."""
    numbers = {
        e["args"]["correlation"]
        for e in of_kind(trace, "privateuse1_runtime")
        if e["name"].startswith("launch ") and part in e["name"]
    }
    return [e for e in of_kind(trace, "kernel") if e["args"]["correlation"] in numbers]


@pytest.mark.skipif(
    torch.__version__ < torch.torch_version.TorchVersion("2.13"),
    reason="torch names the activity since 2.13",
)
def test_the_activity_bears_the_devices_name(name) -> None:
    assert getattr(ProfilerActivity, name.upper()) == ProfilerActivity.PrivateUse1
    assert ProfilerActivity.PrivateUse1 in torch.profiler.supported_activities()


def check_structure(trace) -> None:
    """What Perfetto needs, and what a reader relies on. Raises AssertionError with the event."""
    operators = {e["args"]["External id"]: e for e in of_kind(trace, "cpu_op")}
    ranges = {e["args"]["External id"] for e in of_kind(trace, "user_annotation")}
    runtime = {e["args"]["correlation"]: e for e in of_kind(trace, "privateuse1_runtime")}
    host = of_kind(trace, "cpu_op", "user_annotation", "privateuse1_runtime")
    first, last = min(e["ts"] for e in host), max(e["ts"] + e["dur"] for e in host)
    starts = {e["id"]: e for e in trace["traceEvents"] if e.get("cat") == "ac2g" and e["ph"] == "s"}
    ends = {e["id"]: e for e in trace["traceEvents"] if e.get("cat") == "ac2g" and e["ph"] == "f"}
    tracks = defaultdict(list)
    for e in of_kind(trace, *DEVICE_KINDS):
        number = e["args"]["correlation"]
        tracks[e["pid"], e["tid"]].append(e)
        launch = runtime[number]
        cause = e["args"]["External id"]
        assert cause in operators or cause in ranges, f"no operator: {e}"
        assert launch["args"]["External id"] == cause, (launch, e)
        if cause in operators:
            op = operators[cause]
            assert op["tid"] == launch["tid"], (op, launch)
            assert op["ts"] - 0.002 <= launch["ts"], (op, launch)
            assert launch["ts"] + launch["dur"] <= op["ts"] + op["dur"] + 0.002, (op, launch)
        assert e["ts"] >= launch["ts"] - 0.002, f"began before it was launched: {launch} {e}"
        assert first <= e["ts"], e
        assert e["ts"] + e["dur"] <= last + 1000, f"outside the window: {e}"
        arrow = starts[number], ends[number]
        assert (arrow[0]["pid"], arrow[0]["tid"]) == (launch["pid"], launch["tid"])
        assert (arrow[1]["pid"], arrow[1]["tid"]) == (e["pid"], e["tid"])
    for track in tracks.values():
        track.sort(key=lambda e: e["ts"])
        for one, next in itertools.pairwise(track):
            assert one["ts"] + one["dur"] <= next["ts"] + 0.002, f"they overlap: {one} {next}"
            assert one["args"]["correlation"] <= next["args"]["correlation"], "not as launched"
    names = {e["pid"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert {pid for pid, _ in tracks} <= names
    assert set(tracks) <= threads


def test_the_trace_is_sound(device, tmp_path, clock, has_operators) -> None:
    _, trace = traced(device, tmp_path)
    check_structure(trace)
    if has_operators:
        assert of_kind(trace, "kernel")
    else:
        assert not of_kind(trace, "kernel")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda e, _: e.update(dur=1e6), "outside the window"),
        (lambda e, o: o.update(dur=e["ts"] + e["dur"] - o["ts"]), "they overlap"),
        (lambda e, _: e.update(ts=e["ts"] - 1e6), "before it was launched"),
        (lambda e, _: e["args"].update({"External id": 10**6}), "no operator"),
        (lambda e, o: e["args"].update(correlation=o["args"]["correlation"]), r"assert \d+ == \d+"),
    ],
)
def test_a_damaged_trace_is_found(device, tmp_path, damage, words, has_operators) -> None:
    if not has_operators:
        pytest.skip("no kernels")
    _, trace = traced(device, tmp_path)
    kernels = of_kind(trace, "kernel")
    damage(kernels[len(kernels) // 2], kernels[0])
    with pytest.raises(AssertionError, match=words):
        check_structure(trace)


NOISY = """
import sys, torch
from torch.profiler import ProfilerActivity, profile
x = torch.ones(16, 16, device="DEVICE")
for path in {paths}:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as p:
        for _ in range(10):
            torch.addmm(x, x, x)
        torch.accelerator.synchronize()
    p.export_chrome_trace(path)
"""


def test_launches_are_within_their_operators_where_the_wall_clock_jumps(
    run, tmp_path, clock, has_operators
) -> None:
    """Torch measures how the processor's counter becomes a time anew for each trace, and so did
    the device's profiler: the two of them disagreed by what the wall clock was off meanwhile.
    """
    if not has_operators:
        pytest.skip("no kernels")
    noisy = tmp_path / "noisy_clock.so"
    source = Path(__file__).parent / "noisy_clock.c"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", noisy, source], check=True)
    paths = [str(tmp_path / f"{i}.json") for i in range(3)]
    preload = f"{noisy} {os.environ.get('LD_PRELOAD', '')}".strip()
    run(NOISY.replace("{paths}", repr(paths)), LD_PRELOAD=preload, CAUSEWAY_PROFILE_CLOCK=clock)
    for path in paths:
        trace = json.loads(Path(path).read_text())
        check_structure(trace)
        assert len(kernels_of(trace, "addmm")) == 10


LATE = """
import time, torch
from torch.profiler import ProfilerActivity, profile, record_function
x = torch.ones(16, 16, device="sim")
torch.addmm(x, x, x)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as p:
    with record_function("all of it"):
        for _ in range(5):
            torch.addmm(x, x, x)
            torch.accelerator.synchronize()
    time.sleep(0.1)  # the end of the trace says little about when the work was over
p.export_chrome_trace({path!r})
"""


@pytest.mark.once
@pytest.mark.parametrize("late", ["", "before", "after"])
def test_work_is_between_its_launch_and_the_wait_for_it_where_the_devices_clock_answers_late(
    run, tmp_path, clock, late
) -> None:
    """A reading of the clock places the work 30 ms too early or too late here."""
    vendor = tmp_path / "libcw_sim.so"  # the name by which it finds its settings
    include = Path(__file__).parents[2] / "include"
    source = Path(__file__).parent / "late_clock.c"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run(["cc", *flags, "-o", vendor, source], check=True)
    path = tmp_path / "trace.json"
    run(
        LATE.format(path=str(path)),
        CAUSEWAY_VENDOR=str(vendor), CW_SIM_LIBRARY=sim_library(), LATE=late,
        CAUSEWAY_PROFILE_CLOCK=clock, CAUSEWAY_SIM_EXECUTION="async", CAUSEWAY_SIM_OPS="all",
    )  # fmt: skip
    trace = json.loads(path.read_text())
    check_structure(trace)
    (whole,) = [e for e in of_kind(trace, "user_annotation") if e["name"] == "all of it"]
    kernels = [e for e in of_kind(trace, "kernel") if "addmm" in e["name"]]
    assert len(kernels) == 5
    for e in kernels:
        assert e["dur"] > 0, f"cut at its launch: {e}"
        assert whole["ts"] <= e["ts"]
        assert e["ts"] + e["dur"] <= whole["ts"] + whole["dur"] + 1000, (e, whole)


def test_a_kernel_is_where_its_operator_is_in_the_program(device, tmp_path, has_operators) -> None:
    if not has_operators:
        pytest.skip("no kernels")
    _, trace = traced(device, tmp_path)
    operators = {e["args"]["External id"]: e["name"] for e in of_kind(trace, "cpu_op")}
    launches = {e["args"]["correlation"]: e for e in of_kind(trace, "privateuse1_runtime")}
    by = defaultdict(set)
    for e in of_kind(trace, "kernel"):
        launched = launches[e["args"]["correlation"]]["name"].removeprefix("launch ")
        by[operators.get(e["args"]["External id"])].add((launched, e["args"]["rung"]))
    own = causeway._C.vendor_state()["entries"]["op_find"]  # else they are Causeway's
    other_form, same_form = ("derived", "native") if own else ("portable", "portable")
    assert by["aten::addmm"] == {("aten::addmm.out", other_form)}  # through its other form
    assert by["aten::fill_"] == {("aten::fill_.Scalar", same_form)}
    # The backward pass runs on another thread, and is correlated there.
    assert any("backward" in str(op) or op == "aten::mm" for op in by)


def test_copies_have_direction_and_bytes(device, tmp_path, host_addressable) -> None:
    def work(device):
        x = torch.ones(1000, dtype=torch.float32)
        y = x.to(device)
        y.clone()
        y.cpu()

    _, trace = traced(device, tmp_path, work)
    copies = {
        e["name"].split(" (")[0]: e["args"]["bytes"]
        for e in of_kind(trace, "gpu_memcpy", "privateuse1_runtime")
        if e["name"].startswith("Memcpy")
    }
    assert copies == {"Memcpy HtoD": 4000, "Memcpy DtoD": 4000, "Memcpy DtoH": 4000}
    by_host = [
        e["name"] for e in of_kind(trace, "privateuse1_runtime") if "by the host" in e["name"]
    ]
    assert len(by_host) == (2 if host_addressable else 0)


def test_the_host_rung_shows_as_such(device, tmp_path) -> None:
    def work(device):
        x = torch.ones(8, device=device)
        with causeway.fallback("sin.*"):
            x.sin()

    _, trace = traced(device, tmp_path, work)
    spans = [e for e in of_kind(trace, "privateuse1_runtime") if "aten::sin" in e["name"]]
    assert [e["args"]["rung"] for e in spans] == ["host"]
    assert spans[0]["name"].startswith("host rung: ")
    assert not [e for e in of_kind(trace, "kernel") if "sin" in e["name"]]


def test_key_averages_have_time_on_the_device(device, tmp_path, name, clock, has_operators) -> None:
    if not has_operators:
        pytest.skip("no kernels")
    p, trace = traced(device, tmp_path)
    averages = {e.key: e for e in p.key_averages()}
    assert averages["aten::addmm"].self_device_time_total > 0
    assert (
        averages["aten::addmm"].device_time_total >= averages["aten::addmm"].self_device_time_total
    )
    kernels = sum(e["dur"] for e in of_kind(trace, "kernel", "gpu_memcpy"))
    of_operators = sum(
        e.self_device_time_total
        for e in p.key_averages()
        if e.device_type == torch.autograd.DeviceType.CPU and not e.is_user_annotation
    )
    assert of_operators == pytest.approx(kernels, rel=0.05)
    for key in ("self_device_time_total", "self_privateuse1_time_total", "device_time_total"):
        table = p.key_averages().table(sort_by=key, row_limit=5)
        assert f"Self {name.upper()}" in table


def test_shapes_stacks_modules_and_memory_are_recorded(device, tmp_path) -> None:
    p, trace = traced(
        device, tmp_path, record_shapes=True, with_stack=True, profile_memory=True, with_flops=True
    )
    linear = [e for e in p.events() if e.name == "aten::addmm"]
    assert linear[0].input_shapes[1:3] == [[32, 64], [64, 64]]
    assert sum(e.flops or 0 for e in p.key_averages()) > 0
    functions = [e["name"] for e in of_kind(trace, "python_function")]
    assert any(name.endswith(": step") for name in functions)
    assert any("Linear" in name for name in functions)
    assert sum(e.device_memory_usage for e in p.events() if e.device_memory_usage > 0) > 0
    memory = [e for e in trace["traceEvents"] if e["name"] == "[memory]"]
    device_type = 20  # c10::DeviceType::PrivateUse1
    ours = [e["args"] for e in memory if e["args"]["Device Type"] == device_type]
    assert any(a["Bytes"] > 0 for a in ours)
    assert any(a["Bytes"] < 0 for a in ours)
    assert all(a["Total Allocated"] >= 0 for a in ours)


def test_a_schedule_traces_its_steps(device, tmp_path) -> None:
    ready = []
    x = torch.ones(16, device=device)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda p: ready.append(
            (p.step_num, {e.key: e.count for e in p.key_averages()})
        ),
    ) as p:
        for _ in range(8):
            x.add(1)
            p.step()
    assert [number for number, _ in ready] == [4, 8]
    assert [counts["aten::add"] for _, counts in ready] == [2, 2]


def test_the_tensorboard_handler_writes_a_trace(device, tmp_path) -> None:
    handler = torch.profiler.tensorboard_trace_handler(str(tmp_path), worker_name="one")
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], on_trace_ready=handler
    ):
        torch.ones(4, device=device).add(1)
    (file,) = tmp_path.glob("one.*.pt.trace.json")
    check_structure(json.loads(file.read_text()))


def test_streams_have_tracks_of_their_own(device, tmp_path, has_streams, has_operators) -> None:
    if not has_streams or not has_operators:
        pytest.skip("one stream")
    module = torch.get_device_module(device)

    def work(device):
        streams = [module.Stream(device) for _ in range(2)]
        x = torch.ones(1 << 16, device=device)
        for _ in range(3):
            for s in streams:
                s.wait_stream(module.current_stream())
                with module.stream(s):
                    x.mul(2)
        module.synchronize()

    _, trace = traced(device, tmp_path, work)
    check_structure(trace)
    muls = kernels_of(trace, "mul")
    assert len(muls) == 6
    assert len({e["tid"] for e in muls}) == 2


def test_two_devices_have_processes_of_their_own(device, other, tmp_path, has_operators) -> None:
    if not has_operators:
        pytest.skip("no kernels")

    def work(device):
        for d in (device, other):
            torch.ones(8, device=d).mul_(2)
        torch.ones(8, device=device).to(other)

    _, trace = traced(device, tmp_path, work)
    check_structure(trace)
    labels = {
        e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"
    }
    assert labels[0] == str(device)
    assert labels[1] == str(other)
    assert {e["pid"] for e in of_kind(trace, "kernel")} == {0, 1}
    assert [e["pid"] for e in of_kind(trace, "gpu_memcpy") if e["name"] == "Memcpy PtoP"]


def test_ranges_show_on_the_stream(device, tmp_path, has_operators) -> None:
    if not has_operators:
        pytest.skip("no kernels")
    _, trace = traced(device, tmp_path)
    (shadow,) = [e for e in of_kind(trace, "gpu_user_annotation") if e["name"] == "forward"]
    within = [
        e
        for e in kernels_of(trace, "addmm.out")
        if shadow["ts"] - 0.002 <= e["ts"]
        and e["ts"] + e["dur"] <= shadow["ts"] + shadow["dur"] + 0.002
    ]
    assert within


def test_a_cpu_profile_has_nothing_of_the_device(device, tmp_path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as p:
        step(device)
    p.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert not of_kind(trace, *DEVICE_KINDS, "privateuse1_runtime")
    assert "aten::addmm" in {e.key for e in p.key_averages()}


@pytest.mark.parametrize("use_kineto", [True, False])
def test_the_older_profiler_times_the_device(device, name, use_kineto, has_operators) -> None:
    x = torch.ones(256, 256, device=device)
    with torch.autograd.profiler.profile(use_device=name, use_kineto=use_kineto) as p:
        x.mm(x)
    (row,) = [e for e in p.key_averages() if e.key == "aten::mm"]
    if has_operators or not use_kineto:
        assert row.device_time_total > 0
    assert row.count == 1


def test_two_profiles_in_turn_do_not_mix(device, tmp_path) -> None:
    x = torch.ones(8, device=device)
    for _ in range(2):
        _, trace = traced(device, tmp_path, lambda _: x.mul(2))
        check_structure(trace)
        assert len([e for e in of_kind(trace, "cpu_op") if e["name"] == "aten::mul"]) == 1
        numbers = [e["args"]["correlation"] for e in of_kind(trace, "privateuse1_runtime")]
        assert numbers
        assert min(numbers) == 1


def test_an_operator_that_fails_leaves_a_sound_trace(device, tmp_path) -> None:
    def work(device):
        x = torch.ones(2, 3, device=device)
        with pytest.raises(RuntimeError):
            x.mm(x)
        x.mul(2)

    _, trace = traced(device, tmp_path, work)
    check_structure(trace)


def test_a_long_trace_gives_events_back(device, tmp_path, has_operators) -> None:
    if not has_operators:
        pytest.skip("no kernels")

    def work(device):
        x = torch.ones(4, device=device)
        for _ in range(600):  # more than wait for their times at once
            x.add_(1)

    with config.using(profile_clock="events"):
        _, trace = traced(device, tmp_path, work)
    check_structure(trace)
    assert len([e for e in of_kind(trace, "kernel") if "add" in e["name"]]) == 600
