"""Streams and events: torch.Stream and torch.Event with the device filled in.

Where the vendor offers no streams there is one stream a device, and an event is the host's clock
after a sync; all of this works there too.
"""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any, Self

import torch

from causeway import _C
from causeway.device.lazy import _lazy_init, device_name
from causeway.device.selection import Device, _get_device_index, device

_ONE_PROCESS = "the contract's events belong to one process"


class _EventType(type(torch.Event)):  # type: ignore[misc]
    def __call__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        *,
        device: Device = None,
    ) -> torch.Event:
        if interprocess:
            raise NotImplementedError(
                f"Event(interprocess=True) is not for this device, because {_ONE_PROCESS}"
            )
        _lazy_init()
        where = torch.device(device_name(), _get_device_index(device, optional=True))
        event = torch.Event(where, enable_timing=enable_timing, blocking=blocking)
        if external:
            event.record(default_stream(where))  # torch makes the event when it is first recorded
            _C.make_external(event.event_id)
        return event

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == device_name()


class Event(torch.Event, metaclass=_EventType):
    """A point in the work of a stream. `enable_timing` for elapsed_time, in milliseconds.

    In the capture of a graph an event is an edge between its streams. With `external` it is
    recorded by each replay, or waited for as it then is, so the program can ask for its time and
    wait for it.

    Makes a plain torch.Event, which is an instance of this class all the same: torch's
    Stream.record_event and Event.elapsed_time refuse objects of a subclass.
    """

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> Event:
        raise NotImplementedError(f"from_ipc_handle is not for this device, because {_ONE_PROCESS}")


class Stream(torch.Stream):
    """A queue of work on one device. Lower priorities run first; a value out of range becomes the
    nearest one.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Self:
        _lazy_init()
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        where = torch.device(device_name(), _get_device_index(device, optional=True))
        return super().__new__(cls, where, priority=priority)

    @property
    def native_handle(self) -> int:
        """The vendor's handle, an address; 0 for the default stream."""
        return _C.stream_native_handle(self)

    @property
    def priority(self) -> int:
        """The priority that the stream got: the nearest that the chip has. 0 for the default stream
        and for one that another library made.
        """
        return _C.stream_priority(self)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority of the current device's streams: (0, -1)."""
        _lazy_init()
        return _C.stream_priority_range(_get_device_index(None, optional=True))

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.native_handle)

    def __getattr__(self, name: str) -> Any:
        # torch.cuda.Stream has `cuda_stream`, torch_npu's `npu_stream`: the same habit, whatever
        # the name.
        if name == f"{device_name()}_stream":
            return self.native_handle
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch.Stream) and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device))

    def __repr__(self) -> str:
        return f"<torch.{device_name()}.Stream device={self.device} stream_id={self.stream_id:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, by the vendor's handle of it, an address.

    It stays that library's: it must live as long as anything here uses it. What is put on it
    elsewhere is not counted, so whatever needs it done asks the vendor each time.

    Raises:
        CausewayError: the vendor offers no streams.
    """

    def __new__(cls, stream_ptr: int, device: Device = None, **kwargs: Any) -> Self:
        _lazy_init()
        found = _C.adopt_stream(int(stream_ptr), _get_device_index(device, optional=True))
        return super().__new__(
            cls,
            stream_id=found.stream_id,
            device_index=found.device_index,
            device_type=found.device_type,
            **kwargs,
        )


def get_stream_from_external(data_ptr: int, device: Device = None) -> Stream:
    """Return the stream whose vendor's handle is `data_ptr`: see ExternalStream."""
    _lazy_init()
    return _wrap(_C.adopt_stream(int(data_ptr), _get_device_index(device, optional=True)))


def _wrap(stream: torch.Stream) -> Stream:
    return Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )


def current_stream(device: Device = None) -> Stream:
    """Return the stream that work of this thread on `device` goes to."""
    _lazy_init()
    return _wrap(torch.accelerator.current_stream(_get_device_index(device, optional=True)))


def default_stream(device: Device = None) -> Stream:
    """Return the stream that is current where no other was set."""
    _lazy_init()
    index = _get_device_index(device, optional=True)
    kind = current_stream(index).device_type
    return Stream(stream_id=0, device_index=index, device_type=kind)


def set_stream(stream: torch.Stream | None) -> None:
    """Make `stream`, and its device, this thread's current ones. Does nothing for None. `stream()`
    is the better way.
    """
    if stream is not None:
        torch.accelerator.set_stream(stream)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    set_stream(Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


class StreamContext:
    """Context manager that makes a stream, and its device, this thread's current ones; does nothing
    for None.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self.src_prev_stream: Stream | None = None
        self.dst_prev_stream: Stream | None = None

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self.src_prev_stream = current_stream()
        if self.src_prev_stream.device != self.stream.device:
            with device(self.stream.device):
                self.dst_prev_stream = current_stream()
        set_stream(self.stream)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.stream is None:
            return
        # Put back both: the stream of the device that we came to, and the device that we came from.
        set_stream(self.dst_prev_stream)
        set_stream(self.src_prev_stream)
        self.dst_prev_stream = None


_SYNC_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Say what happens where the host is to wait for a stream with work on it: 0 or "default"
    nothing, 1 or "warn" a warning, 2 or "error" a CausewayError, of which the stack shows the call.

    `torch.<name>.synchronize()` waits for the device and is always allowed.
    """
    if debug_mode in _SYNC_MODES:
        debug_mode = _SYNC_MODES.index(str(debug_mode))
    if debug_mode not in range(len(_SYNC_MODES)):
        raise RuntimeError(f"invalid value of debug_mode, expected one of {', '.join(_SYNC_MODES)}")
    _C.set_on_wait(int(debug_mode))


def get_sync_debug_mode() -> int:
    """Return what `set_sync_debug_mode` set, as a number."""
    return _C.on_wait()


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context manager that makes `stream` the current one."""
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """Return whether the current stream of the current device is being captured: graphs.py."""
    return _C.is_capturing(-1)
