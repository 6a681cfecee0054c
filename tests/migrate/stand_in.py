"""CUDA that is not there: what a program asks of it is written down, and done on the CPU.

`python stand_in.py PROGRAM [ARGUMENT…]` runs a program as on a machine with one GPU and prints what
it called, in order, as JSON. A call has one name in both spellings: `x.cuda()` and `x.to(device)`
are "to the device", `torch.cuda.synchronize()` and `torch.accelerator.synchronize()` are
"synchronize". Only what the program itself calls counts. There is one memory, and the program sees
all tensors on "cuda:0", in both spellings alike. Questions (is there a device, which) are no calls.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import runpy
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_TORCH = os.path.dirname(torch.__file__)
_HERE = __file__
_GPU = torch.device("cuda", 0)
calls: list[str] = []


def _of_program(frame: Any) -> bool:
    name = frame.f_code.co_filename
    return not name.startswith((_TORCH, _HERE, "<frozen", "<string>"))


def _on_gpu(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.partition(":")[0] == "cuda"


def _on_cpu(value: Any) -> Any:
    return torch.device("cpu") if _on_gpu(value) else value


class Recorder(TorchFunctionMode):
    """Write down each of torch's functions that the program calls, and do it on the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name, mine = getattr(func, "__name__", ""), _of_program(sys._getframe(1))
        if name == "__get__":
            owner = getattr(getattr(func, "__self__", None), "__name__", "")
            if mine and owner == "device":
                return _GPU
            return True if mine and owner == "is_cuda" else func(*args, **kwargs)
        if name == "device":
            return func(*args, **kwargs)
        kind = getattr(args[1], "kind", None) if name == "type" and len(args) > 1 else None
        if name in ("cuda", "pin_memory") or kind is not None:
            if mine and name != "pin_memory":
                calls.append("to the device")
            return args[0] if kind is None else args[0].type(kind)
        moved = any(_on_gpu(a) for a in (*args, *kwargs.values()))
        if mine:
            to = name == "to" and moved
            calls.append("to the device" if to else f"{name} on the device" if moved else name)
        return func(*map(_on_cpu, args), **{k: _on_cpu(v) for k, v in kwargs.items()})


def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in place of a function, for the program; torch keeps its own."""
    original = getattr(owner, name, None)
    new = make(original)

    def function(*args: Any, **kwargs: Any) -> Any:
        if not _of_program(sys._getframe(1)) and original is not None:
            return original(*args, **kwargs)
        return new(*args, **kwargs)

    setattr(owner, name, function)


def _said(what: str, value: Any = None) -> Callable[[Any], Any]:
    def make(_: Any) -> Any:
        def function(*_: Any, **__: Any) -> Any:
            calls.append(what)
            return value

        return function

    return make


def _answered(value: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *args, **kwargs: value


class _Stream:
    """A stream or an event: it says what is done with it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        timed = args[0] if args else kwargs.get("enable_timing", False)
        calls.append(f"{type(self).__name__} {timed}")

    def __getattr__(self, name: str) -> Any:
        return lambda *args: calls.append(f"stream {name}") or 1.0

    def __enter__(self) -> None:
        calls.append("stream enter")

    def __exit__(self, *_: object) -> None:
        calls.append("stream exit")


class _Event(_Stream):
    pass


# Under each of the two names.
_CALLS = {
    "synchronize": "synchronize", "empty_cache": "empty_cache",
    "reset_peak_memory_stats": "reset peak", "reset_max_memory_allocated": "reset peak",
}  # fmt: skip
_NUMBERS = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


def only(name: str, names: list[str]) -> None:
    """Make an accelerator for programs whose module has these names and no others."""
    module = types.SimpleNamespace(**{n: lambda *_, **__: None for n in names})
    _replaced(torch, "get_device_module", _answered(module))
    _replaced(torch.accelerator, "is_available", _answered(True))
    device = torch.device(name) if name == "mps" else types.SimpleNamespace(type=name)
    _replaced(torch.accelerator, "current_accelerator", _answered(device))


def imported(names: list[str]) -> dict[str, str]:
    """Import modules; of those that fail for a name that the device's module, torch.accelerator or
    torch lacks, why. What else they lack (other packages) is no matter of the conversion.
    """
    failed: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(name)
        except AttributeError as error:
            if "SimpleNamespace" in str(error) or "'torch" in str(error):
                failed[name] = str(error)
        except BaseException as error:
            others.append(f"{name}: {type(error).__name__}")
    return failed


others: list[str] = []


def _modules() -> None:
    """Record modules that are moved by the program, which are not torch's functions."""
    to = torch.nn.Module.to

    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _of_program(sys._getframe(1)):
            calls.append("module to the device")
        return self

    def sent(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(_on_gpu(a) for a in (*args, *kwargs.values())):
            if _of_program(sys._getframe(1)):
                calls.append("module to the device")
            args = tuple(map(_on_cpu, args))
            kwargs = {k: _on_cpu(v) for k, v in kwargs.items()}
        return to(self, *args, **kwargs)

    torch.nn.Module.cuda = moved  # type: ignore[assignment, misc]
    torch.nn.Module.to = sent  # type: ignore[assignment, misc]


def install() -> None:
    """Make one GPU for programs, under the names of torch.cuda and of torch.accelerator."""
    _modules()
    cuda, other = torch.cuda, torch.accelerator
    for owner in (cuda, other):
        for name, what in _CALLS.items():
            if hasattr(owner, name):
                _replaced(owner, name, _said(what))
        for name in _NUMBERS:
            _replaced(owner, name, _said(name, 1 << 20))
        _replaced(owner, "is_available", _answered(True))
        _replaced(owner, "device_count", _answered(1))
        _replaced(owner, "current_stream", _said("current_stream", _Stream()))
    _replaced(cuda, "current_device", _said("current_device", 0))
    _replaced(other, "current_device_index", _said("current_device", 0))
    _replaced(cuda, "set_device", _said("set_device"))
    _replaced(other, "set_device_index", _said("set_device"))
    _replaced(other, "current_accelerator", _answered(torch.device("cuda")))
    _replaced(torch, "get_device_module", _answered(cuda))
    for name in ("manual_seed", "manual_seed_all"):  # torch.manual_seed seeds all devices
        _replaced(cuda, name, _answered(None))
    for name in ("get_device_name", "get_device_capability"):
        _replaced(cuda, name, _said(name, "GPU"))
    cuda.Stream = torch.Stream = _Stream  # type: ignore[misc]
    cuda.Event = torch.Event = _Event  # type: ignore[misc]
    _replaced(cuda, "stream", lambda _: lambda stream: stream)
    for kind in ("FloatTensor", "LongTensor", "ByteTensor"):
        setattr(cuda, kind, _typed(getattr(torch, kind)))
    _replaced(torch, "load", _load)
    for name in ("range_push", "range_pop"):
        _replaced(cuda.nvtx, name, _answered(None))
    cuda.nvtx.range = lambda *_: contextlib.nullcontext()
    _mixed_precision()


class _Storage:
    """What a function of map_location is asked with: it notes whether it goes to the device."""

    moved = False

    def cuda(self, *_: object, **__: object) -> _Storage:
        self.moved = True
        return self


def _load(original: Any) -> Any:
    def load(file: Any, map_location: Any = None, **options: Any) -> Any:
        storage = _Storage()
        if callable(map_location):
            map_location(storage, "cuda:0")
        calls.append(f"load {'on the device' if storage.moved or _on_gpu(map_location) else ''}")
        return original(file, map_location="cpu", **options)

    return load


def _typed(kind: Any) -> Any:
    def make(*args: Any) -> Any:
        tensor = kind(*args)
        # Of sizes it is an empty tensor, of values one that is made and moved.
        sizes = bool(args) and all(isinstance(arg, int) for arg in args)
        calls.append("empty on the device" if sizes else "to the device")
        return tensor

    make.kind = kind  # type: ignore[attr-defined]
    return make


def _mixed_precision() -> None:
    autocast, scaler = torch.amp.autocast, torch.amp.GradScaler

    def cast(kind: str, enabled: bool = True, dtype: Any = torch.float16, **_: Any) -> Any:
        calls.append(f"autocast {kind} {bool(enabled)} {dtype}")
        return autocast("cpu", dtype=torch.bfloat16, enabled=bool(enabled))

    def scale(kind: str, enabled: bool = True, **options: Any) -> Any:
        calls.append(f"GradScaler {kind} {bool(enabled)} {sorted(options.items())}")
        return scaler("cpu", enabled=bool(enabled), **options)

    torch.amp.autocast = torch.autocast = cast  # type: ignore[assignment, misc]
    torch.amp.GradScaler = scale  # type: ignore[assignment, misc]
    torch.cuda.amp.autocast = lambda enabled=True, **o: cast("cuda", enabled, **o)  # type: ignore[assignment, misc]
    torch.cuda.amp.GradScaler = lambda **o: scale("cuda", **o)  # type: ignore[assignment, misc]


def run(argv: list[str]) -> dict[str, object]:
    """Run a program; what it called and what it printed."""
    calls.clear()
    sys.argv, said = argv, io.StringIO()
    with Recorder(), contextlib.redirect_stdout(said):
        runpy.run_path(argv[0], run_name="__main__")
    return {"calls": list(calls), "said": said.getvalue()}


def main(work: list[list[str]]) -> Iterator[dict[str, object]]:
    install()
    for argv in work:
        try:
            yield run(argv)
        except BaseException as error:
            yield {"error": "".join(traceback.format_exception(error)), "calls": list(calls)}


if __name__ == "__main__":
    print(json.dumps(list(main(json.loads(sys.argv[1])))))
