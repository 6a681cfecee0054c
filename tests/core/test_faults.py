"""A planted fault for each promise is caught, and its message says what, where and what to do."""

from __future__ import annotations

import pytest

# What each program below starts with.
HEAD = """
import causeway, pytest, torch
def error(call, kind):
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)
def says(message, *words):
    for word in words:
        assert word in message, (word, message)
"""


@pytest.fixture(scope="session")
def plant(run):
    """Run a program on the chip with these settings; it checks for itself."""

    def plant(program: str, **settings: str) -> str:
        import textwrap

        return run(HEAD + textwrap.dedent(program), **settings)

    return plant


# --- wrong numbers ------------------------------------------------------------------------------


def test_a_kernel_that_gives_garbage_is_caught_by_a_comparison_with_the_host(plant) -> None:
    program = """
        x, y = torch.rand(2, 8, device="sim").unbind()
        def both(call):
            with causeway.fallback("add.*, mul.*"):
                host = call()
            return call().cpu(), host.cpu()
        torch.testing.assert_close(*both(lambda: x * y))
        message = error(lambda: torch.testing.assert_close(*both(lambda: x + y)), AssertionError)
        says(message, "not close", "Mismatched elements: 8 / 8")
        torch.testing.assert_close((x + y).cpu(), x.cpu() + y.cpu() + 1)  # wrong by one, as planted
    """
    plant(program, ops="all", corrupt="aten::add.out")


def test_the_sweep_over_operators_catches_a_wrong_kernel(plant) -> None:
    from pathlib import Path

    program = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import sweep
        count, found = sweep.differences("products")
        assert any(case.startswith("bmm") for case in found), found
        assert not any(case.startswith("linear") for case in found), found
    """
    plant(program, ops="all", corrupt="aten::bmm.out")


WAITS = """
import causeway, torch
side = torch.Stream("sim")
x = torch.zeros(64, device="sim")
x + x  # the first call of an operator may take longer than the latency
torch.accelerator.synchronize()
results = []
for i in range(1, 4):
    with side:
        for _ in range(3):  # each takes the latency, and so does the sum below
            x.fill_(i)
    torch.accelerator.current_stream().wait_stream(side)
    y = x + x
    results.append(y.cpu()[0].item())
    side.wait_stream(torch.accelerator.current_stream())
print(results)
"""


@pytest.mark.parametrize("model", ["unified", "discrete"])
def test_a_missing_wait_gives_other_numbers_and_none_missing_gives_right_ones(run, model) -> None:
    slow = {"ops": "all", "execution": "async", "latency_us": "20000", "memory_model": model}
    assert run(WAITS, **slow) == "[2.0, 4.0, 6.0]\n"
    assert run(WAITS, **slow, skip_wait="stream_wait") != "[2.0, 4.0, 6.0]\n"


def test_a_kernel_that_does_not_wait_for_its_turn_gives_other_numbers(run) -> None:
    program = """
        import torch
        x = torch.zeros(64, device="sim")
        x + x  # the first call of an operator may take longer than the latency
        torch.accelerator.synchronize()
        for i in range(4):
            x.fill_(i)
        print((x + x).cpu()[0].item())
    """
    slow = {"ops": "all", "execution": "async", "latency_us": "20000"}
    assert run(program, **slow) == "6.0\n"
    assert run(program, **slow, skip_wait="aten::add.out") != "6.0\n"


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["unified", "discrete"])
def test_out_of_memory_says_all_and_the_process_goes_on(plant, model: str) -> None:
    program = """
        MIB = 2**20
        kept = torch.empty(40 * MIB, dtype=torch.uint8, device="sim")
        hole = torch.empty(10 * MIB, dtype=torch.uint8, device="sim")
        message = error(lambda: torch.empty(30 * MIB, dtype=torch.uint8, device="sim"),
                        torch.OutOfMemoryError)
        says(message, "sim:0 is out of memory", "Tried to allocate 30.00 MiB", "64.00 MiB",
             "is free", "reserved", "the largest free block is", "memory_summary()", "Vendor:")
        assert torch.accelerator.memory_stats()["num_ooms"] == 1
        # An operator that needs memory says so too.
        says(error(lambda: kept + kept, torch.OutOfMemoryError), "Tried to allocate 40.00 MiB")
        del kept
        again = torch.ones(30 * MIB, dtype=torch.uint8, device="sim")
        assert again[0].item() == again[-1].item() == 1
        assert torch.ones(3, device="sim:1").sum().item() == 3
    """
    plant(program, memory="64M", memory_model=model)


BY_STREAM = pytest.mark.parametrize(
    ("entry", "without"), [("mem_alloc_on", ""), ("mem_alloc", "mem_alloc_on")]
)  # what a table offers decides which of the two takes memory; a rule for mem_alloc is of both


@BY_STREAM
def test_an_allocation_that_fails_once_is_tried_again_with_an_empty_cache(
    plant, entry: str, without: str
) -> None:
    program = """
        x = torch.ones(2**20, device="sim")
        del x
        y = torch.ones(2**23, device="sim")
        assert y.sum().item() == 2**23
        assert torch.accelerator.memory_stats()["num_ooms"] == 0
        assert torch.accelerator.memory_stats()["num_alloc_retries"] == 1
    """
    plant(program, fault="mem_alloc:2=OUT_OF_MEMORY", without=without)
    plant(program, fault=f"{entry}:2=OUT_OF_MEMORY", without=without)


@BY_STREAM
def test_an_allocation_that_fails_for_another_reason_is_no_out_of_memory(
    plant, entry: str, without: str
) -> None:
    program = f"""
        message = error(lambda: torch.ones(4, device="sim"), causeway.VendorError)
        says(message, "sim:0", "{entry} failed with FAILED", "call 1 of mem_alloc answers")
        assert torch.ones(4, device="sim").sum().item() == 4
    """
    plant(program, fault="mem_alloc:1=FAILED", without=without)


# --- calls that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_a_failed_copy_names_entry_device_and_the_vendors_words(plant, execution: str) -> None:
    program = """
        x = torch.arange(4.0)
        message = error(lambda: x.to("sim:1"), causeway.VendorError)
        says(message, "sim:1", "mem_copy failed with FAILED", "injected fault: call 1 of mem_copy",
             "causeway doctor")
        assert x.to("sim:1").cpu().tolist() == [0, 1, 2, 3]
    """
    plant(program, memory_model="discrete", execution=execution, fault="mem_copy:1=FAILED")


def test_a_failed_operator_names_itself_its_shapes_and_dtypes(plant) -> None:
    program = """
        x, whole = torch.rand(2, 3, device="sim"), torch.ones(3, dtype=torch.int32, device="sim")
        message = error(lambda: x + whole, causeway.VendorError)
        says(message, "sim:0", "aten::add.Tensor failed with FAILED", "Float[2, 3]", "Int[3]",
             "injected fault: call 1 of op:aten::add.out")
        torch.testing.assert_close((x + whole).cpu(), x.cpu() + 1)
        x.requires_grad_()
        says(error((x * x).sum().backward, causeway.VendorError), "aten::mul", "Float[2, 3]")
        assert x.grad is None
    """
    plant(program, ops="all", fault="op:aten::add.out:1=FAILED,op:aten::mul.out:2=FAILED")


def test_an_operator_that_fails_later_is_named_when_the_host_waits(plant) -> None:
    program = """
        x = torch.rand(2, 3, device="sim")
        x + x
        says(error(torch.accelerator.synchronize, causeway.VendorError), "aten::add.out", "sim:0")
        torch.accelerator.synchronize()
        x + x
        assert torch.equal((x + x).cpu(), x.cpu() * 2)
    """
    plant(program, ops="all", execution="async", fault="op:aten::add.out:1=FAILED")


def test_any_status_that_a_vendor_gives_is_named(plant) -> None:
    program = """
        x = torch.rand(4, device="sim")
        says(error(lambda: x + x, causeway.VendorError), "INVALID", "bug of Causeway or of the")
        says(error(lambda: x * x, torch.OutOfMemoryError), "sim:0 is out of memory in aten::mul")
        says(error(lambda: torch.Stream("sim"), causeway.VendorError), "stream_create", "FAILED")
        torch.Stream("sim")
        assert (x + x).sum().item() > 0
    """
    faults = "op:aten::add.out:1=INVALID,op:aten::mul.out:1=OUT_OF_MEMORY,stream_create:1=FAILED"
    plant(program, ops="all", fault=faults)


def test_a_driver_that_cannot_count_its_devices_says_so_at_first_use(plant) -> None:
    program = """
        torch.ones(1)
        message = error(lambda: torch.ones(1, device="sim"), RuntimeError)
        says(message, "injected fault", "device_count")
    """
    plant(program, fault="device_count:*=FAILED", PYTHONWARNINGS="ignore")


# --- a lost device ------------------------------------------------------------------------------


LOST = """
import time
x, other = torch.ones(4, device="sim:0"), torch.ones(4, device="sim:1")
torch.accelerator.synchronize(0)
torch.accelerator.synchronize(1)
def lose():
    x + x
    torch.accelerator.synchronize(0)
says(error(lose, causeway.DeviceLostError), "sim:0 is lost: ", "start a new process")
begin = time.perf_counter()
for call in (lambda: x + x, lambda: x.add_(1), lambda: x.sum(), lambda: x.sin(), lambda: x.cpu(),
             lambda: x[0].item(), lambda: x.to("sim:1"), lambda: torch.ones(3).to("sim:0"),
             lambda: torch.ones(2, device="sim:0"), lambda: torch.Stream("sim:0"),
             lambda: torch.accelerator.synchronize(0)):
    says(error(call, causeway.DeviceLostError), "sim:0 is lost: ", "start a new process")
assert time.perf_counter() - begin < 1
assert (other + 1).tolist() == [2, 2, 2, 2]
torch.accelerator.synchronize(1)
del x
torch.accelerator.memory_allocated(1)
"""


@pytest.mark.parametrize("execution", ["inline", "async"])
@pytest.mark.parametrize("model", ["unified", "discrete"])
def test_a_lost_device_says_so_at_once_and_the_other_goes_on(plant, execution, model) -> None:
    chip = {"ops": "all", "execution": execution, "memory_model": model}
    plant(LOST, **chip, fault="op:aten::add.out:1=DEVICE_LOST")


# --- fork ---------------------------------------------------------------------------------------


def test_a_child_forked_after_use_gets_a_clear_error_and_the_parent_goes_on(plant) -> None:
    program = """
        import os
        x = torch.ones(4, device="sim")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            words = []
            for call in (lambda: x + 1, lambda: torch.ones(2, device="sim"), lambda: x.cpu(),
                         lambda: torch.ones(2).to("sim"), torch.sim.synchronize):
                try:
                    call()
                    words.append("nothing")
                except RuntimeError as e:
                    words.append(str(e))
            os.write(write, "|".join(words).encode())
            os._exit(0)
        os.waitpid(child, 0)
        for words in os.read(read, 10000).decode().split("|"):
            says(words, "Cannot re-initialize", "forked subprocess", "'spawn' start method")
        assert (x + 1).tolist() == [2, 2, 2, 2]
    """
    plant(program, PYTHONWARNINGS="ignore")
    plant(program, PYTHONWARNINGS="ignore", memory_model="discrete", execution="async", ops="all")


def test_discrete_memory_that_the_host_touches_ends_the_process_with_a_clear_line(run) -> None:
    program = """
        import ctypes, torch
        x = torch.ones(4, device="sim")
        ctypes.c_float.from_address(x.data_ptr()).value
    """
    said = run(program, status=None, memory_model="discrete")
    assert "the host touched memory of device 0" in said
    assert ".cpu() first" in said


# --- a failure in the middle of a change --------------------------------------------------------


REUSED = """
n = 65536
a, b, c = (torch.empty(n, device="sim") for _ in range(3))
side = torch.Stream("sim")
with side:
    b.fill_(7.0)
    b.fill_(7.0)
b.record_stream(side)
torch.sim.memory_stats()
del b, c
assert torch.sim.memory_stats()["active_bytes.all.current"] == 2 * 4 * n  # a, and b until then
d = torch.empty(2 * n, device="sim")
d.fill_(1.0)
torch.sim.synchronize()
assert d.cpu().unique().tolist() == [1.0], d.cpu().unique()
del a, d
torch.sim.synchronize()
torch.sim.empty_cache()
stats = torch.sim.memory_stats()
for what in ("active_bytes", "allocated_bytes", "reserved_bytes", "active", "segment"):
    assert stats[what + ".all.current"] == 0, (what, stats[what + ".all.current"])
"""


@pytest.mark.parametrize("entry", ["event_create:1", "event_record:1", "event_query:1"])
def test_memory_that_another_stream_writes_is_not_handed_out_where_its_event_fails(
    plant, entry: str
) -> None:
    program = REUSED
    if entry == "event_query:1":  # the next allocation asks; it says so once, and the next goes on
        program = program.replace(
            "d = torch",
            "error(lambda: torch.empty(1, device='sim'), causeway.VendorError)\nd = torch",
        )
    settings = {"execution": "async", "ops": "all", "latency_us": "100000"}
    said = plant(program, fault=f"{entry}=FAILED", **settings)
    if entry != "event_query:1":
        assert f"while memory of sim:0 was freed: sim:0: {entry[:-2]} failed with FAILED" in said


def test_what_went_wrong_while_memory_was_freed_is_said_without_a_backtrace(plant) -> None:
    said = plant(
        REUSED,
        fault="event_create:1=OUT_OF_MEMORY",
        execution="async",
        ops="all",
        latency_us="100000",
    )
    assert "while memory of sim:0 was freed: sim:0 is out of memory in event_create" in said
    assert "frame #" not in said


@pytest.mark.parametrize(
    ("entry", "without"),
    [
        ("stream_callback:1", ""),
        ("event_create:1", "stream_callback"),
        ("event_record:1", "stream_callback"),
    ],
)
def test_pinned_memory_that_a_copy_reads_is_not_handed_out_where_its_event_fails(
    plant, entry: str, without: str
) -> None:
    program = """
        x = torch.full((65536,), 3.0).pin_memory()
        d = torch.empty(65536, device="sim")
        d.fill_(0.0)  # the copy comes after this
        d.copy_(x, non_blocking=True)
        del x
        y = torch.empty(65536).pin_memory()
        y.fill_(9.0)
        assert d.cpu().unique().tolist() == [3.0], d.cpu().unique()
        del y
        torch.accelerator.empty_host_cache()
        stats = torch.sim.host_memory_stats()
        for what in ("active_requests", "active_bytes", "allocations", "allocated_bytes"):
            assert stats[what + ".current"] == 0, (what, stats)
    """
    slow = {"execution": "async", "ops": "all", "latency_us": "100000"}
    said = plant(program, **slow, fault=f"{entry}=FAILED", without=without)
    assert "while pinned memory was freed: sim:0: " in said


def test_pinned_memory_that_cannot_be_freed_stays_in_the_cache(plant) -> None:
    program = """
        import gc
        torch.ones(1, device="sim")
        def six():
            return [torch.empty(1024).pin_memory() for _ in range(6)]
        t = six()
        del t
        gc.collect()
        message = error(torch.accelerator.empty_host_cache, causeway.VendorError)
        says(message, "host_free_for failed")
        assert torch.sim.host_memory_stats()["allocations.current"] == 4
        t = six()
        assert all(x.is_pinned() for x in t)
        assert torch.sim.host_memory_stats()["allocations.current"] == 6
        del t
        gc.collect()
        torch.accelerator.empty_host_cache()
        assert torch.sim.host_memory_stats()["allocated_bytes.current"] == 0
    """
    plant(program, fault="host_free:3=FAILED")


def test_memory_that_cannot_be_freed_stays_in_the_cache(plant) -> None:
    program = """
        x = [torch.ones(2**20, device="sim") for _ in range(3)]
        def now(what):
            return torch.sim.memory_stats()[what + ".all.current"]
        reserved, segments = now("reserved_bytes"), now("segment")
        x = [torch.ones(2**23, device="sim") for _ in range(3)]
        reserved, segments = now("reserved_bytes"), now("segment")
        del x
        says(error(torch.sim.empty_cache, causeway.VendorError), "mem_free_on failed with FAILED")
        assert 0 < now("reserved_bytes") < reserved and 0 < now("segment") < segments
        kept = now("segment")
        y = torch.ones(2**23, device="sim")
        assert now("segment") == kept  # what is there is used
        assert y.sum().item() == 2**23
        del y
        torch.sim.empty_cache()
        assert now("reserved_bytes") == now("segment") == 0
    """
    plant(program, fault="mem_free:2=FAILED")


def test_each_rule_for_an_entry_counts_all_of_its_calls(plant) -> None:
    program = """
        error(lambda: torch.ones(1, device="sim"), torch.OutOfMemoryError)
        torch.ones(1, device="sim")
    """
    plant(program, fault=",".join(f"mem_alloc:{n}=OUT_OF_MEMORY" for n in (1, 2, 3)))


# --- devices and streams that are not there -----------------------------------------------------


def test_an_index_that_no_device_has_is_an_error_wherever_it_comes(plant) -> None:
    program = """
        x = torch.ones(1, device="sim")
        kind = torch.Stream("sim").device_type
        def stream(index, id=0):
            return torch.Stream(stream_id=id, device_index=index, device_type=kind)
        for index in (2, 63, 64, 70, 99, 127):
            for call in (
                lambda: torch.accelerator.current_stream(index),
                lambda: torch.sim.current_stream(index),
                lambda: torch.sim.default_stream(index),
                lambda: stream(index).synchronize(),
                lambda: stream(index).query(),
                lambda: stream(index, 5).query(),
                lambda: x.record_stream(stream(index)),
                lambda: torch.accelerator.set_stream(stream(index)),
                lambda: torch.Generator(f"sim:{index}"),
                lambda: torch.Stream(f"sim:{index}"),
            ):
                says(error(call, causeway.CausewayError), f"there is no device sim:{index}")
        assert torch.accelerator.current_stream().device.index == 0
        for id in (2, 500, 2**40, -7):
            says(error(lambda: stream(0, id).query(), causeway.CausewayError), f"stream id {id}")
    """
    plant(program)


def test_waiting_in_empty_cache_leaves_python_to_other_threads(plant) -> None:
    program = """
        import threading, time
        x = torch.zeros(4, device="sim")
        torch.sim.synchronize()
        ticks, over = [], threading.Event()
        def tick():
            while not over.is_set():
                ticks.append(time.monotonic())
                time.sleep(0.01)
        thread = threading.Thread(target=tick)
        thread.start()
        y = torch.ones(2**22, device="sim")  # something to give back
        del y
        for _ in range(5):
            x.fill_(1)
        begin = time.monotonic()
        torch.sim.empty_cache()
        took = time.monotonic() - begin
        over.set()
        thread.join()
        assert took > 0.3, took
        assert sum(begin < t < begin + took for t in ticks) > 5, (took, len(ticks))
    """
    slow = {"execution": "async", "ops": "all", "latency_us": "100000"}
    plant(program, **slow, without="mem_alloc_on")  # memory given back by stream waits for nothing


def test_a_child_forked_after_use_asks_for_memory_as_on_cuda(plant) -> None:
    program = """
        import os
        x = torch.ones(4, device="sim")
        child = os.fork()
        if child == 0:
            torch.sim.empty_cache()  # nothing to do, as torch.cuda's
            torch.accelerator.empty_cache()
            good = torch.sim.is_available() and torch.sim.memory_allocated() == 0
            good = good and not torch.sim.is_initialized()
            os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (x + 1).tolist() == [2, 2, 2, 2]
    """
    plant(program, PYTHONWARNINGS="ignore", execution="async")
