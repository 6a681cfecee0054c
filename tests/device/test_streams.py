"""Streams and events: order, waits between streams, times."""

import pytest
import torch


def test_stream_is_torchs(module, device):
    stream = module.Stream()
    assert isinstance(stream, torch.Stream)
    assert stream.device == device
    assert stream.query() in (True, False)
    stream.synchronize()
    assert stream.query()
    assert stream == stream
    assert hash(stream) == hash(stream)
    assert str(device) in repr(stream)


def test_stream_has_a_native_handle_under_both_names(module, name):
    stream = module.Stream()
    assert stream.native_handle == getattr(stream, f"{name}_stream")
    assert module.default_stream().native_handle == 0
    with pytest.raises(AttributeError):
        stream.no_such_name  # noqa: B018


def test_current_and_default_stream(module, has_streams):
    assert module.current_stream() == module.default_stream()
    stream = module.Stream()
    with module.stream(stream):
        assert module.current_stream() == stream
        assert torch.accelerator.current_stream() == stream
        with module.stream(None):
            assert module.current_stream() == stream
    assert module.current_stream() == module.default_stream()
    assert (stream != module.default_stream()) == has_streams


def test_stream_of_another_device_makes_it_current(module, other):
    stream = module.Stream(device=other)
    assert stream.device == other
    before = module.current_stream(other)
    with module.stream(stream):
        assert module.current_device() == 1
        assert module.current_stream() == stream
    assert module.current_device() == 0
    assert module.current_stream(other) == before


def test_set_stream_makes_it_current(module):
    stream = module.Stream()
    module.set_stream(None)
    module.set_stream(stream)
    assert module.current_stream() == stream
    module.set_stream(module.default_stream())


def test_torchs_own_stream_context(module, device):
    stream = torch.Stream(device)
    with stream:
        assert module.current_stream() == stream
        x = torch.ones(4, device=device) * 2
    stream.synchronize()
    assert x.sum().item() == 8


@pytest.mark.parametrize("priority", [-100, -1, 0, 1, 100])
def test_any_priority_is_taken(module, device, has_streams, priority):
    stream = module.Stream(priority=priority)
    with module.stream(stream):
        x = torch.arange(10, device=device) + 1
    stream.synchronize()
    assert x.sum().item() == 55
    lowest, highest = module.Stream.priority_range()
    assert highest <= lowest
    assert stream.priority == (min(max(priority, highest), lowest) if has_streams else 0)
    again = module.ExternalStream(stream.native_handle) if has_streams else stream
    assert again.priority == stream.priority  # it is of the stream, not of the object


def test_the_current_stream_tells_its_priority(module, device, has_streams):
    assert module.default_stream().priority == 0
    stream = module.Stream(priority=module.Stream.priority_range()[1])
    with module.stream(stream):
        assert module.current_stream().priority == stream.priority


def test_work_on_one_stream_is_in_order(module, device):
    x = torch.zeros(1000, device=device)
    with module.stream(module.Stream()) as _:
        module.current_stream().wait_stream(module.default_stream())
        for _ in range(50):
            x += 1
            x *= 2
            x -= x / 2
        module.current_stream().synchronize()
    y = torch.zeros(1000)
    for _ in range(50):
        y += 1
        y *= 2
        y -= y / 2
    torch.testing.assert_close(x.cpu(), y)


def test_stream_waits_for_another(module, device):
    first, second = module.Stream(), module.Stream()
    for _ in range(20):
        with module.stream(first):
            x = torch.ones(100_000, device=device)
            for _ in range(5):
                x = x * 2
        second.wait_stream(first)
        with module.stream(second):
            y = x + 1
            x.record_stream(second)
        second.synchronize()
        assert y.cpu().unique().tolist() == [33.0]


def test_event_orders_two_devices(module, device, other):
    there = module.Stream(device=other)
    x = torch.full((100_000,), 3.0, device=device)
    event = module.current_stream().record_event()
    there.wait_event(event)
    with module.stream(there):
        y = x.to(other) + 1
    there.synchronize()
    assert y.cpu().unique().tolist() == [4.0]


def test_event_is_torchs(module, name):
    event = module.Event(enable_timing=True)
    assert isinstance(event, torch.Event)
    assert isinstance(event, module.Event)
    assert not isinstance(3, module.Event)
    assert event.device.type == name
    event.record()
    event.synchronize()
    assert event.query()


def test_elapsed_time_is_milliseconds(module, device):
    start, end = module.Event(enable_timing=True), torch.Event(device, enable_timing=True)
    x = torch.ones(256, 256, device=device)
    start.record()
    for _ in range(20):
        x = x @ x / 256
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000


def test_elapsed_time_needs_timing(module):
    start, end = module.Event(), module.Event()
    start.record()
    end.record()
    module.synchronize()
    with pytest.raises((RuntimeError, ValueError), match="timing"):
        start.elapsed_time(end)


def test_elapsed_time_needs_a_record(module):
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    start.record()
    with pytest.raises((RuntimeError, ValueError), match="record"):
        start.elapsed_time(end)


def test_event_waits_and_is_recorded_again(module, device):
    stream = module.Stream()
    event = module.Event()
    for value in range(5):
        with module.stream(stream):
            x = torch.full((50_000,), float(value), device=device)
            event.record(stream)
        event.wait(module.current_stream())
        assert (x + 1).mean().item() == value + 1
    event.synchronize()


def test_event_that_cannot_be_says_why(module, has_streams):
    with pytest.raises(NotImplementedError, match="because"):
        module.Event(interprocess=True)
    if not has_streams:
        with pytest.raises(RuntimeError, match="external"):
            module.Event(external=True)


def test_nothing_is_captured(module):
    assert module.is_current_stream_capturing() is False


def test_a_stream_of_another_library_is_adopted(module, device, has_streams):
    own = module.Stream()
    assert module.get_stream_from_external(own.native_handle) == own
    assert module.ExternalStream(0) == module.default_stream()
    adopted = module.ExternalStream(own.native_handle, device=device)
    assert isinstance(adopted, torch.Stream)
    with module.stream(adopted):
        x = torch.ones(4, device=device) + 1
    adopted.synchronize()
    assert x.tolist() == [2.0] * 4
    address = module.caching_allocator_alloc(10, stream=own.native_handle)
    assert address
    module.caching_allocator_delete(address)


def test_waits_of_the_host_are_told_or_refused(module, device, has_streams):
    assert module.get_sync_debug_mode() == 0
    stream, ones = module.Stream(), torch.ones(4, device=device)
    module.synchronize()
    try:
        module.set_sync_debug_mode("error")
        with module.stream(stream):
            x = ones.clone()
        with pytest.raises(RuntimeError, match="set_sync_debug_mode"):
            stream.synchronize()
        module.synchronize()
        module.set_sync_debug_mode(1)
        assert module.get_sync_debug_mode() == 1
        stream.synchronize()
        module.set_sync_debug_mode("error")
        stream.synchronize()  # no work, no wait
    finally:
        module.set_sync_debug_mode("default")
    assert x.sum() == 4
    with pytest.raises(RuntimeError, match="default, warn, error"):
        module.set_sync_debug_mode("loud")
