"""Many threads, many steps, two devices: right numbers, and no byte more at the end.

CW_TEST_SECONDS says how long the threads run (8; the release run takes 60).
"""

from __future__ import annotations

import os
import threading

import pytest
import torch
import torch.nn.functional as F
from elsewhere import on

SECONDS = os.environ.get("CW_TEST_SECONDS", "8")
INLINE = {"ops": "all"}
LATER = {"ops": "all", "memory_model": "discrete", "execution": "async"}
UNIFIED_LATER = {"execution": "async"}

THREADS = """
import gc, os, random, sys, threading, time, torch
seconds = float(sys.argv[1])
devices = [torch.device("sim", i) for i in range(2)]
streams = [torch.Stream(d) for d in devices for _ in range(3)]
weights = [torch.ones(16, 16, device=d) / 16 for d in devices]
def settled():
    gc.collect()
    for d in devices:
        torch.accelerator.synchronize(d)
    return [torch.accelerator.memory_allocated(d) for d in devices]
before, wrong, rounds = settled(), [], [0] * 8

def step(rng, number):
    stream = rng.choice(streams)
    d = stream.device
    rows, value = rng.choice([1, 5, 64, 700]), float(rng.randrange(1, 50))
    host = torch.full((rows, 16), value)
    if rng.random() < 0.5:
        host = host.pin_memory()
    with stream:
        x = host.to(d, non_blocking=True)
        y = x @ weights[d.index]  # each row's mean
        z = torch.empty(rows, 16, device=d).copy_(y).mul_(2).add_(x)
        z[::2] -= 1
        w = torch.cumsum(z.t().contiguous()[0], 0)  # on the host rung
        back = z.to("cpu", non_blocking=True)
        other = rng.choice(streams)
        event = stream.record_event()
    with other:  # another thread may be at it too
        other.wait_event(event)
        moved = z.to(other.device) + 1
        z.record_stream(other) if other.device == d else None
    other.synchronize()
    stream.synchronize()
    want = torch.full((rows, 16), 3 * value)
    want[::2] -= 1
    for name, have, expected in (
        ("back", back, want), ("moved", moved.cpu(), want + 1),
        ("cumsum", w.cpu(), want[:, 0].cumsum(0)),
    ):
        if not torch.allclose(have, expected):
            wrong.append((number, name, rows, value, have, expected))
    p = torch.full((4,), value, device=d, requires_grad=True)
    (p * p).sum().backward()
    if p.grad.tolist() != [2 * value] * 4:
        wrong.append((number, "grad", p.grad))

def work(number):
    rng = random.Random(number)
    end = time.monotonic() + seconds
    try:
        # A thread that the machine gave no turn has its four rounds in the end.
        while (time.monotonic() < end or rounds[number] < 4) and not wrong:
            step(rng, number)
            rounds[number] += 1
    except BaseException as error:
        wrong.append((number, repr(error)))

threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert not wrong, wrong[0]
assert min(rounds) > 3, rounds
after = settled()
assert after == before, (before, after)
for d in devices:
    torch.accelerator.empty_cache()
"""


@pytest.mark.parametrize(
    "setup", [INLINE, LATER, UNIFIED_LATER], ids=lambda s: "-".join(s.values())
)
def test_eight_threads_with_shared_streams_get_right_numbers_and_give_all_back(run, setup) -> None:
    run(THREADS, args=(SECONDS,) if setup is INLINE else (str(float(SECONDS) / 2),), **setup)


@on(INLINE, LATER, {"level": "0"})
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_a_thousand_steps_end_with_the_bytes_of_the_tenth(name: str) -> None:
    steps = 1000 if name == "AdamW" else 200
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 3))
    net = net.to("sim")
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=1e-2)
    x, y = torch.randn(16, 8).to("sim"), torch.arange(16).remainder(3).to("sim")
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(F.dropout(net(x), 0.1), y)
        loss.backward()
        optimizer.step()
        if step == 10:
            torch.accelerator.synchronize()
            allocated = torch.accelerator.memory_allocated()
            reserved = torch.accelerator.memory_reserved()
            first = loss.item()
    torch.accelerator.synchronize()
    assert torch.accelerator.memory_allocated() == allocated
    assert torch.accelerator.memory_reserved() <= reserved + 2 * 2**20
    assert loss.item() < first


@on(INLINE, LATER)
def test_steps_of_changing_shapes_keep_no_memory() -> None:
    net = torch.nn.Linear(8, 8).to("sim")
    for step in range(300):
        rows = 1 + step * 7 % 97
        net(torch.ones(rows, 8, device="sim")).sum().backward()
        net.zero_grad()
        if step == 10:
            torch.accelerator.synchronize()
            allocated = torch.accelerator.memory_allocated()
    torch.accelerator.synchronize()
    assert torch.accelerator.memory_allocated() == allocated


@on(INLINE, LATER, {"level": "0", "memory_model": "discrete"})
@pytest.mark.parametrize("foreach", [False, True])
def test_tensors_and_optimizer_state_stay_on_the_second_device(foreach: bool) -> None:
    torch.accelerator.synchronize(0)
    before = torch.accelerator.memory_allocated(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    net = net.to("sim:1")
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1, foreach=foreach, amsgrad=True)
    x = torch.randn(16, 4, device="sim:1")
    for _ in range(3):
        optimizer.zero_grad()
        out = net(x)
        (out * out.detach().sigmoid()).mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=foreach)
        optimizer.step()
    tensors = [x, out, *net.parameters(), *net.buffers(), *(p.grad for p in net.parameters())]
    state = [v for s in optimizer.state.values() for k, v in s.items() if k != "step"]
    assert {t.device.index for t in [*tensors, *state]} == {1}
    assert len(state) == 3 * 6
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.synchronize(0)
    assert torch.accelerator.memory_allocated(0) == before


@on(INLINE, LATER)
def test_threads_have_current_devices_and_streams_of_their_own() -> None:
    seen, go = {}, threading.Barrier(4)

    def work(number: int) -> None:
        torch.accelerator.set_device_index(number % 2)
        stream = torch.Stream(f"sim:{number % 2}")
        with stream:
            go.wait(20)
            x = torch.full((3,), float(number), device="sim")
            seen[number] = (x.device.index, torch.accelerator.current_stream() == stream, x.cpu())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        index, mine, x = seen[number]
        assert (index, mine, x.tolist()) == (number % 2, True, [number] * 3)
    assert torch.accelerator.current_device_index() == 0


@on(INLINE, LATER)
def test_a_route_is_decided_once_for_all_threads() -> None:
    def work() -> None:
        for rows in range(1, 60):
            x = torch.ones(rows, 3, device="sim")
            results.append((x + x).relu().sum().item() == 6 * rows)

    results: list[bool] = []
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6 * 59
    assert all(results)
