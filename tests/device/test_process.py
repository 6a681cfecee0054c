"""A process as a whole: it ends well, and threads get right numbers."""

import time

import pytest

# The last thing is a backward. Half of the time the device's autograd thread is the one that lets
# go of `Slow`, and is still at it when the interpreter goes down: without a wait at exit, 7 of 20
# abort.
ENDS_AFTER_BACKWARD = """
import os, sys, threading, time, torch
from torch.utils._python_dispatch import TorchDispatchMode

class Slow(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

    def __del__(self):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.3)

def work(place):
    x = torch.ones(3, device=place, requires_grad=True)
    y = (x * 2).sum()
    with Slow():
        y.backward()

# Forked after `import torch` and before the device is used, so that twenty take seconds.
for start in range(0, 20, 4):
    children = []
    for i in range(4):
        child = os.fork()
        if child == 0:
            work(f"DEVICE:{i % torch.accelerator.device_count()}")
            sys.exit(0)
        children.append(child)
    for child in children:
        status = os.waitpid(child, 0)[1]
        assert status == 0, status
"""


@pytest.mark.once
@pytest.mark.long
def test_twenty_scripts_that_end_right_after_a_backward_exit_well(run):
    run(ENDS_AFTER_BACKWARD, PYTHONWARNINGS="ignore")


def test_exit_with_work_in_flight(run):
    run(
        """
        import torch
        stream = torch.Stream("DEVICE")
        with stream:
            x = torch.randn(500, 500, device="DEVICE")
            for _ in range(5):
                x = x @ x
        event = torch.Event("DEVICE"); event.record(stream)
        """
    )


def test_exit_with_globals_that_hold_everything(run):
    run(
        """
        import torch, atexit, threading
        x = torch.ones(10, device="DEVICE", requires_grad=True)
        y = (x * 2).sum(); y.backward()
        generator, stream = torch.Generator("DEVICE"), torch.Stream("DEVICE")
        event = stream.record_event()
        pinned = torch.empty(10, pin_memory=True)
        module = torch.DEVICE
        class Late:
            def __del__(self): self.kept = None
        late = Late(); late.kept = torch.ones(3, device="DEVICE")
        atexit.register(lambda: print((x + 1).sum().item()))
        """
    )


@pytest.mark.once
@pytest.mark.not_compared("it measures time")
@pytest.mark.long
def test_exit_is_not_slower(run):
    def exit_seconds(place):
        done = run(
            f"""
            import torch, time
            torch.ones(2, device={place!r}, requires_grad=True).sum().backward()
            print(time.monotonic())
            """
        )
        return time.monotonic() - float(done.stdout)

    fastest = {place: min(exit_seconds(place) for _ in range(3)) for place in ("DEVICE", "cpu")}
    assert fastest["DEVICE"] < fastest["cpu"] + 0.5, fastest


THREADS = """
import random, threading, time, torch
SECONDS = {seconds}
name = "DEVICE"
count = torch.accelerator.device_count()
devices = [torch.device(name, i) for i in range(count)]
shared = [torch.Stream(d) for d in devices for _ in range(2)]
for d in devices:  # what has a compiler builds its kernels before the time is taken
    x = torch.ones(7).to(d)
    z = (x * 2 + 1).clone()
    z += x
    del x, z
torch.accelerator.synchronize()
before = [torch.accelerator.memory_allocated(d) for d in devices]
errors, rounds = [], [0] * 8

def work(number):
    rng = random.Random(number)
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end and not errors:
            stream = rng.choice(shared)
            size = rng.choice([1, 7, 100, 5000, 100_000])
            value = rng.randrange(1, 100)
            host = torch.full((size,), float(value))
            with stream:
                x = host.to(stream.device)
                y = x * 2 + 1
                z = y.clone()
                z += x
                back = z.cpu()
            stream.synchronize()
            if back.min().item() != 3 * value + 1 or back.max().item() != 3 * value + 1:
                errors.append((number, size, value, back))
            if count > 1:
                other = devices[1 - stream.device.index]
                moved = z.to(other).cpu()
                if not torch.equal(moved, back):
                    errors.append((number, "moved", size, moved, back))
            rounds[number] += 1
    except BaseException as error:
        errors.append(error)

threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert not errors, errors[:2]
assert min(rounds) > 3, rounds
for d in devices:
    torch.accelerator.synchronize(d)
after = [torch.accelerator.memory_allocated(d) for d in devices]
assert after == before, (before, after)
"""


def test_eight_threads_that_share_streams_get_right_numbers(run):
    run(THREADS.format(seconds=5))


@pytest.mark.long
def test_eight_threads_for_a_minute(run):
    run(THREADS.format(seconds=60))
