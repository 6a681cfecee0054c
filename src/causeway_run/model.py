"""Devices, models and sessions: the objects of run.h, with numpy arrays for memory.

Closing one closes what was made from it. What is not closed ends when nothing refers to it.
"""

from __future__ import annotations

import functools
import json
import math
import os
import threading
import weakref
from collections.abc import Mapping
from ctypes import byref, c_int32, c_uint8, c_void_p
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from causeway_run.library import (
    ALLOW_HOST_CODE,
    INPUT,
    PLACE,
    TRUST_BINARIES,
    InfoStruct,
    PortStruct,
    RunError,
    StepStruct,
    call,
    function,
)
from causeway_run.vendor import choose, refuse_if_torch_has_it

# By their bit numbers in cw_dtypes.
DTYPES = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
)
# What numpy lacks, as integers that hold the same bits.
BITS = {"bfloat16": "uint16", "complex32": "uint32"}


@functools.cache
def _plain(dtype: str) -> np.dtype[Any]:
    return np.dtype(BITS.get(dtype, dtype))


# An object with data_ptr() and nbytes, or an address and its bytes.
Memory = Any | tuple[int, int]


@dataclass(frozen=True)
class Port:
    """An input or an output.

    `dtype` is torch's name of its numbers, `numpy` the dtype of its arrays. They differ where numpy
    has no such numbers: bfloat16 is `ml_dtypes.bfloat16` where that package is installed, else the
    bits as uint16; complex32 is the bits of both halves as uint32. `bytes` is its size, the largest
    where a size may differ: such a dimension is -1 in `shape`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    # (base, slope, divisor) of a dimension that is (base + slope * size) // divisor
    sizes: Mapping[int, tuple[int, int, int]] = field(default_factory=dict, repr=False)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype of its arrays."""
        if self.dtype == "bfloat16":
            try:
                import ml_dtypes

                found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
                return found
            except ImportError:
                pass
        return _plain(self.dtype)

    def shape_at(self, size: int) -> tuple[int, ...]:
        """Its shape where the size that may differ is `size`."""
        shape = list(self.shape)
        for dim, (base, slope, divisor) in self.sizes.items():
            shape[dim] = (base + slope * size) // divisor
        if any(n < 0 for n in shape):
            raise RunError(f"{self.name!r} has no shape for a size of {size}")
        return tuple(shape)


@dataclass(frozen=True)
class Size:
    """A size that may differ from run to run, such as that of a batch, and its range."""

    name: str
    least: int
    most: int


@dataclass(frozen=True)
class Step:
    """A kernel, a copy or a fill: the operator's name, its line of the model's source as
    "file:line" or "", and the milliseconds that it took alone.
    """

    name: str
    line: str
    ms: float


class _Handle:
    """An object of the runtime. It ends when nothing holds it any more, so never during a run, and
    after all that were made from it.

    A reference to the maker is not enough for that order: Python finalizes the objects of a cycle,
    and of a module at exit, in any order. So the users are counted, without a lock, because a
    finalizer may run within anything.
    """

    def __init__(self, end: str, maker: _Handle | None = None) -> None:
        self.value = c_void_p()
        self._end, self._maker = function(end), maker
        self._others: list[None] = []  # one for each user besides this object
        self.memory: Any = None  # of the caller's own, which lasts as long
        if maker:
            maker._others.append(None)

    def __del__(self) -> None:
        if hasattr(self, "_others"):
            self._release()

    def _release(self) -> None:
        try:
            self._others.pop()
        except IndexError:
            if self.value:
                self._end(self.value)
            if self._maker:
                self._maker._release()


class _Owner:
    """What a device, a model and a session share: a handle until it is closed, and a `with`."""

    def __init__(self, handle: _Handle) -> None:
        self._handle: _Handle | None = handle
        self._made: weakref.WeakSet[_Owner] = weakref.WeakSet()
        self._book = threading.Lock()  # of the two above

    @property
    def closed(self) -> bool:
        """Whether `close` was called here, or on what this was made from."""
        return self._handle is None

    def close(self) -> None:
        """Release it and what was made from it; memory that a run uses, when that run ends.

        Whatever is called on it later raises RunError, but for `close` itself.
        """
        with self._book:
            self._handle = None
            made = list(self._made)
        for owner in made:
            owner.close()

    def _open(self) -> _Handle:
        handle = self._handle
        if handle is None:
            raise RunError(f"the {type(self).__name__.lower()} is closed")
        return handle

    def _adopt(self, made: _Owner) -> None:
        with self._book:
            self._open()  # closed meanwhile by another thread
            self._made.add(made)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Device(_Owner):
    """A vendor's library and one of its devices; any number of threads may use it.

    `vendor` is the path of a library, or the name of an installed vendor; without it the
    environment's CAUSEWAY_VENDOR counts, else the vendor that is installed. `index` is the device's
    number. A process opens one vendor's library, once.
    Raises RunError where the library or the device is not there.
    """

    def __init__(self, vendor: str | os.PathLike[str] | None = None, index: int = 0) -> None:
        self.library = choose(vendor)
        self.index = index
        if index != c_int32(index).value:
            raise RunError(f"there is no device {index}")
        refuse_if_torch_has_it(self.library)
        handle = _Handle("cw_run_close")
        call("cw_run_open", _path(self.library), index, byref(handle.value))
        super().__init__(handle)

    def load(
        self,
        file: str | os.PathLike[str] | bytes,
        *,
        allow_host_code: bool = False,
        trust_binaries: bool = False,
    ) -> Model:
        """Check a file, build its kernels, and put its weights on the device.

        `file` is a path, or the file's bytes. `allow_host_code` lets kernels in C be built by this
        machine's compiler and run in this process, `trust_binaries` takes what a compiler made of
        kernels ahead of time, for this chip and driver: for files from where programs come from.
        Raises RunError where the file is damaged, or is for another kind of chip.
        """
        return Model(self, file, allow_host_code=allow_host_code, trust_binaries=trust_binaries)

    def __repr__(self) -> str:
        return f"Device({self.library!r}, {self.index})"


class Model(_Owner):
    """A file that was loaded, with its weights on the device; any number of threads may use it.

    `inputs` and `outputs` are Ports by name, in the file's order. `weight_bytes` are on the device
    once, `arena_bytes` for each session: nothing else is allocated there. `size` is what may differ
    from run to run, or None. `about` is the file's description of itself. `binaries` counts the
    sources whose kernels were taken as binaries.
    """

    def __init__(
        self,
        device: Device,
        file: str | os.PathLike[str] | bytes,
        *,
        allow_host_code: bool = False,
        trust_binaries: bool = False,
    ) -> None:
        opened = device._open()
        handle = _Handle("cw_run_unload", opened)
        flags = ALLOW_HOST_CODE * allow_host_code | TRUST_BINARIES * trust_binaries
        if isinstance(file, bytes):
            made = (file, len(file), flags, byref(handle.value))
            call("cw_run_load_memory", opened.value, *made)
        else:
            call("cw_run_load", opened.value, _path(file), flags, byref(handle.value))
        info = InfoStruct()
        call("cw_run_describe", handle.value, byref(info))
        self.device = device
        self.about = _about(info.about)
        self.weight_bytes: int = info.weights
        self.arena_bytes: int = info.arena
        self.binaries: int = info.binaries
        self.size = _size(self.about)
        self.inputs = _ports(handle, 0, info.inputs, self.about.get("inputs"))
        self.outputs = _ports(handle, 1, info.outputs, self.about.get("outputs"))
        self._steps: int = info.steps
        super().__init__(handle)
        device._adopt(self)

    def session(self, arena: Memory | None = None) -> Session:
        """A session. Raises RunError where the device has no room for it.

        `arena` is device memory of the caller's own, of at least `arena_bytes`: an object with
        `data_ptr()` and `nbytes`, as a tensor is, or its address and bytes. Sessions that never run
        at once may have the same. The session keeps an object, but what is behind an address must
        last as long as the session.
        """
        return Session(self, arena)

    def __repr__(self) -> str:
        return f"Model(inputs={list(self.inputs)}, outputs={list(self.outputs)})"


class Run:
    """A run that was started; `result` waits for it."""

    def __init__(self, session: Session, handle: _Handle, size: int) -> None:
        self._session, self._handle, self._size = session, handle, size
        self._outputs: dict[str, NDArray[Any]] | None = None
        self._error: BaseException | None = None

    def result(self) -> dict[str, NDArray[Any]]:
        """The outputs by name, once the run is over. Raises RunError as `Session.run` does."""
        with self._session._running:
            if self._error is not None:
                raise self._error
            if self._outputs is None:
                self._session._refuse_other(self)
                self._session._started = None
                try:
                    self._outputs = self._session._outputs(self._handle, self._size)
                except BaseException as error:
                    self._error = error  # what is there may be another run's, later
                    raise
        return self._outputs


class Session(_Owner):
    """A model with memory of its own for a run. Threads that share one wait for each other; with a
    session each they run at once.
    """

    def __init__(self, model: Model, arena: Memory | None = None) -> None:
        opened = model._open()
        handle = _Handle("cw_run_end", opened)
        address = None if arena is None else _address(arena, model.arena_bytes)
        call("cw_run_begin", opened.value, address, byref(handle.value))
        self.model = model
        handle.memory = arena
        self._started: weakref.ref[Run] | None = None
        self._running = threading.Lock()  # one thread at a time, says run.h
        # By port and size, with the address: arrays over the session's memory are made once.
        self._views: dict[tuple[int, int], tuple[int, NDArray[Any]]] = {}
        super().__init__(handle)
        model._adopt(self)

    def place(self, name: str, size: int | None = None) -> NDArray[Any]:
        """The memory of an input, as an array: `run` with it copies nothing.

        Where a size may differ, its shape is that for `size`, or the largest. What is written to it
        stays from run to run, and it lasts as long as the array does. Write while no run of this
        session is under way. Raises RunError where the host cannot address the chip's memory, and
        for a size out of the file's range.
        """
        ports = self.model.inputs
        if name not in ports:
            raise RunError(_unknown(name, ports))
        known = self.model.size
        if size is not None and not (known and known.least <= size <= known.most):
            has = "none differs"
            if known:
                has = f"{known.name!r} is from {known.least} to {known.most}"
            raise RunError(f"there is no size of {size}: {has}")
        at = size if size is not None else known.most if known else 0
        with self._running:
            return self._view(self._open(), list(ports).index(name) | INPUT, ports[name], at)

    def close(self) -> None:
        """As for the others; arrays of `place` keep the memory until they are gone."""
        super().close()
        self._views.clear()

    def _view(self, handle: _Handle, number: int, port: Port, size: int) -> NDArray[Any]:
        address = c_void_p()
        call("cw_run_get", handle.value, number, byref(address), PLACE)
        at, made = self._views.get((number, size), (0, None))
        if made is not None and at == address.value:
            return made.view()
        shape = port.shape_at(size)
        if not address.value or 0 in shape:
            return np.empty(shape, port.numpy)
        bytes_ = (c_uint8 * (math.prod(shape) * port.numpy.itemsize)).from_address(address.value)
        bytes_.session = _Handle("cw_run_end", handle)  # type: ignore[attr-defined]  # keeps it
        made = np.frombuffer(memoryview(bytes_), port.numpy).reshape(shape)
        self._views[number, size] = address.value, made
        return made.view()

    def __call__(self, **inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """`run`, with the inputs by keyword: `session(image=x)["logits"]`."""
        return self.run(inputs)

    def run(
        self, inputs: Mapping[str, NDArray[Any]], *, copy: bool = True
    ) -> dict[str, NDArray[Any]]:
        """Run the model on arrays by the names of its inputs, and return its outputs by name.

        Each array has its Port's shape and dtype: nothing is cast or broadcast. One that is not
        contiguous is copied first; one of `place` is not copied at all. The outputs are new arrays,
        or with `copy=False` the session's own memory, which its next run changes: only where the
        host can address the chip's memory.
        Raises RunError before anything runs where an input is missing, unknown, or of another
        shape or dtype; and where a kernel found an error, such as an index out of range.
        """
        handle, arrays = self._open(), self._checked(inputs)
        with self._running:
            self._refuse_other()
            _set(handle, arrays)
            call("cw_run", handle.value)
            return self._outputs(handle, self._size_of(arrays), copy)

    def start(self, inputs: Mapping[str, NDArray[Any]]) -> Run:
        """Copy the inputs, start a run, and return it without a wait: `run.result()` gives what
        `run` gives.

        A session has one run at a time. Raises RunError where one is under way whose result nobody
        took, unless nothing refers to it any more.
        """
        handle, arrays = self._open(), self._checked(inputs)
        with self._running:
            self._refuse_other()
            _set(handle, arrays)
            call("cw_run_start", handle.value)
            started = Run(self, handle, self._size_of(arrays))
            self._started = weakref.ref(started)
        return started

    def _refuse_other(self, mine: Run | None = None) -> None:
        other = self._started() if self._started else None
        if other is not mine and other is not None:
            raise RunError(
                "a run is under way in this session: take its result() first, or begin a session "
                "for each run"
            )

    def _outputs(self, handle: _Handle, size: int, copy: bool = True) -> dict[str, NDArray[Any]]:
        outputs = {}
        for index, port in enumerate(self.model.outputs.values()):
            if not copy:
                outputs[port.name] = self._view(handle, index, port, size)
                continue
            made = np.empty(port.shape_at(size), port.numpy)
            call("cw_run_get", handle.value, index, made.ctypes.data, made.nbytes)
            outputs[port.name] = made
        return outputs

    def _size_of(self, arrays: list[NDArray[Any]]) -> int:
        """The size that may differ, as the inputs have it; the runtime has seen that they agree."""
        for port, array in zip(self.model.inputs.values(), arrays, strict=True):
            for dim, (base, slope, _) in port.sizes.items():
                return int(array.shape[dim] - base) // slope
        return 0

    def profile(self, inputs: Mapping[str, NDArray[Any]]) -> list[Step]:
        """Run the steps one by one, each with a wait, and return them with their times.

        The sum is more than a run takes, which waits once. Raises RunError as `run` does.
        """
        handle, arrays = self._open(), self._checked(inputs)
        steps = []
        with self._running:
            self._refuse_other()
            _set(handle, arrays)
            for index in range(self.model._steps):
                s = StepStruct()
                call("cw_run_step_of", handle.value, index, int(index == 0), byref(s))
                steps.append(Step(_text(s.name), _text(s.line), s.ms))
        return steps[_steps_of(self.model.about, self._size_of(arrays))]

    def _checked(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The arrays in the file's order, dense. Raises RunError with the first that is wrong."""
        ports = self.model.inputs
        for name in inputs:
            if name not in ports:
                raise RunError(_unknown(name, ports))
        for name in ports:
            if name not in inputs:
                raise RunError(f"input {name!r} is missing: the model's inputs are {_named(ports)}")
        return [_dense(port, inputs[name]) for name, port in ports.items()]

    def __repr__(self) -> str:
        return f"Session({self.model!r})"


def load(
    file: str | os.PathLike[str] | bytes,
    vendor: str | os.PathLike[str] | None = None,
    device: int = 0,
    *,
    allow_host_code: bool = False,
    trust_binaries: bool = False,
) -> Model:
    """`Device(vendor, device).load(file, …)`: a model file on a vendor's device.

    Raises RunError as these two do.
    """
    opened = Device(vendor, device)
    return opened.load(file, allow_host_code=allow_host_code, trust_binaries=trust_binaries)


def _path(given: str | os.PathLike[str]) -> bytes:
    path = os.fsencode(given)
    if b"\0" in path:  # C would read the path up to it
        raise RunError(f"{os.fspath(given)!r} is no path: it has a NUL in it")
    return path


def _text(given: bytes) -> str:
    return given.decode(errors="replace")


def _about(given: bytes) -> dict[str, Any]:
    """The file's description of itself: a file that another program wrote may say anything."""
    try:
        about = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise RunError(f"the file's description is no JSON: {error}") from error
    return about if isinstance(about, dict) else {}


def _size(about: dict[str, Any]) -> Size | None:
    given = about.get("size")
    if given is None:
        return None
    try:
        return Size(str(given["name"]), int(given["least"]), int(given["most"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError(f"the file's description has no such size: {given!r}") from error


def _sizes(about: Any, index: int, shape: list[int]) -> dict[int, tuple[int, int, int]]:
    """How the dimensions that may differ depend on the size: another program may say anything."""
    dims = [dim for dim, size in enumerate(shape) if size < 0]
    try:
        given = {dim: tuple(map(int, about[index]["sizes"][str(dim)])) for dim in dims}
        found = {dim: (base, slope, divisor) for dim, (base, slope, divisor) in given.items()}
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise RunError("the file's description does not say which sizes may differ") from error
    if any(slope == 0 or divisor < 1 for _, slope, divisor in found.values()):
        raise RunError("the file's description says sizes that cannot be")
    return found


def _steps_of(about: dict[str, Any], size: int) -> slice:
    """Which of the file's steps a run of some size has."""
    try:
        for p in about.get("profiles", ()):
            if p["from"] <= size <= p["to"]:
                return slice(int(p["step"]), int(p["step"]) + int(p["steps"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError("the file's description does not say which steps a size has") from error
    return slice(None)


def _address(memory: Memory, bytes_: int) -> int:
    """Where memory of the caller's own is. Raises RunError where there is too little."""
    if isinstance(memory, tuple):
        address, have = memory
    elif hasattr(memory, "data_ptr") and hasattr(memory, "nbytes"):
        address, have = memory.data_ptr(), memory.nbytes
    else:
        raise RunError(
            f"arena is {type(memory).__name__}: device memory is an object with data_ptr() and "
            "nbytes, or a tuple of its address and its bytes"
        )
    if have < bytes_ or not address:
        raise RunError(f"arena has {have} bytes at {address:#x}, and a session needs {bytes_}")
    return int(address)


def _ports(model: _Handle, output: int, count: int, about: Any) -> dict[str, Port]:
    ports = {}
    for index in range(count):
        p = PortStruct()
        call("cw_run_port_of", model.value, output, index, byref(p))
        if not 0 <= p.dtype < len(DTYPES):
            raise RunError(f"{_text(p.name)!r} has numbers of a dtype that numpy does not have")
        shape = list(p.shape[: p.ndim])
        sizes = _sizes(about, index, shape)
        port = Port(_text(p.name), DTYPES[p.dtype], tuple(shape), p.bytes, sizes)
        if port.name in ports:
            raise RunError(f"the file has two {'outputs' if output else 'inputs'} {port.name!r}")
        ports[port.name] = port
    return ports


def _named(ports: Mapping[str, Port]) -> str:
    return ", ".join(map(repr, ports)) or "none"


def _unknown(name: str, ports: Mapping[str, Port]) -> str:
    return f"there is no input {name!r}: the model's inputs are {_named(ports)}"


def _set(session: _Handle, arrays: list[NDArray[Any]]) -> None:
    for index, array in enumerate(arrays):
        address = array.__array_interface__["data"][0]  # half the time of array.ctypes.data
        call("cw_run_set", session.value, index, address, array.nbytes)


def _dense(port: Port, given: NDArray[Any]) -> NDArray[Any]:
    if (
        type(given) is np.ndarray
        and given.shape == port.shape
        and given.dtype == port.numpy
        and given.flags.c_contiguous
    ):
        return given  # the usual one
    if not isinstance(given, np.ndarray | np.generic):
        raise RunError(
            f"input {port.name!r} is {type(given).__name__}, and a numpy array of {port.dtype} is "
            "needed"
        )
    array = np.asarray(given, order="C")
    if array.dtype not in (port.numpy, np.dtype(BITS.get(port.dtype, port.numpy))):
        bits = f", as {port.numpy}" if str(port.numpy) != port.dtype else ""
        raise RunError(
            f"input {port.name!r} has dtype {array.dtype}, and the model takes {port.dtype}{bits}: "
            "nothing is cast"
        )
    fixed = tuple(-1 if i in port.sizes else n for i, n in enumerate(array.shape))
    if fixed != port.shape:
        more = ", where -1 may differ" if port.sizes else ""
        raise RunError(
            f"input {port.name!r} has shape {list(array.shape)}, and the model takes "
            f"{list(port.shape)}, with which it was exported{more}"
        )
    return array
