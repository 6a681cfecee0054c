"""How each row of the table is replaced: a builder makes the new object from the original.

A replacement looks at one argument and calls the original. It keeps name, module, documentation and
signature, so that inspect and pickle find what they found before.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from causeway import _C
from causeway.redirect.places import count, inside, note
from causeway.redirect.readings import CUDA_VERSION
from causeway.untraced import untraced

if TYPE_CHECKING:
    from causeway.redirect.devices import Devices
    from causeway.redirect.targets import Target

Builder = Callable[[Any, "Target", "Devices"], Any]


def like(original: Any, new: Any) -> Any:
    """`new` with the name, module and documentation of `original`, which its signature is read
    from.
    """
    functools.wraps(original)(new)
    if isinstance(new, FunctionType):
        untraced(new)  # the compiler calls some itself
    name = getattr(original, "__name__", "")
    if getattr(sys.modules.get(new.__module__ or ""), name, None) is original:
        new.__qualname__ = name  # a builtin's is another's; pickle looks here
    return new


# --- one argument is a device -------------------------------------------------------------------


def argument(original: Any, target: Target, devices: Devices) -> Any:
    """The argument `target.argument` is rewritten where it is a device of CUDA's.

    For a function of C's by a callable of C's: it has no frame to which a warning or a traceback
    could point. One of Python's gets one of Python's, which the compiler can look into.
    """
    if inspect.isfunction(original):
        return plain(original, target, devices)
    position = -1 if target.position is None else target.position
    found = functools.partial(note, _public(target.name), 1)
    call = _C.Redirect(original, devices.to_target, devices.find, target.argument, found, position)
    return like(original, call)


def plain(original: Any, target: Target, devices: Devices) -> Any:
    """As `argument`, by a function of Python's."""
    find, api, name = devices.find, _public(target.name), target.argument
    position = sys.maxsize if target.position is None else target.position

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            device = find(args[position])
            if device is not None:
                note(api)
                args = (*args[:position], device, *args[position + 1 :])
        elif name in kwargs:
            device = find(kwargs[name])
            if device is not None:
                note(api)
                kwargs[name] = device
        return original(*args, **kwargs)

    return like(original, call)


def _public(name: str) -> str:
    """A constructor is known by its class."""
    return name.removesuffix(".__init__").removesuffix(".__new__")


def pin(original: Any, target: Target, devices: Devices) -> Any:
    """pin_memory(device=None) and is_pinned(device=None)."""
    if devices.target != "cpu":
        return argument(original, target, devices)
    pins = target.name.endswith("pin_memory")

    def call(self: torch.Tensor, device: Any = None) -> Any:
        return self if pins else True  # all memory is the host's

    return like(original, call)


def loader(original: Any, target: Target, devices: Devices) -> Any:
    """DataLoader(..., pin_memory_device="")."""
    rewritten = argument(original, target, devices)
    if devices.target != "cpu":
        return rewritten

    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        rewritten(self, *args, **kwargs)
        self.pin_memory = False

    return like(original, call)


def record_stream(original: Any, target: Target, devices: Devices) -> Any:
    """Tensor.record_stream(stream): on the CPU there is nothing to wait for."""

    def call(self: torch.Tensor, stream: Any) -> None:
        if devices.target != "cpu":
            original(self, stream)

    return like(original, call)


def scaler(original: Any, target: Target, devices: Devices) -> Any:
    """`__init__` of GradScaler: a device that is not given is CUDA's."""
    rewritten = argument(original, target, devices)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not args and "device" not in kwargs:
            kwargs["device"] = devices.target
        return rewritten(self, *args, **kwargs)

    return like(original, call)


def move(original: Any, target: Target, devices: Devices) -> Any:
    """Tensor.cuda(device=None, non_blocking=False, memory_format=preserve)."""
    to, api = torch._C.TensorBase.to, target.name

    def call(
        self: torch.Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        note(api)
        if device is None:
            there = devices.target
        elif isinstance(device, int):
            there = devices.rewrite(f"cuda:{device}")
        else:
            there = devices.rewrite(device)
            if torch.device(there).type != devices.target:
                raise RuntimeError(f"Invalid device, must be cuda device, but got {device}")
        return to(self, there, non_blocking=non_blocking, memory_format=memory_format)

    return like(original, call)


def tensor_type(original: Any, target: Target, devices: Devices) -> Any:
    """Tensor.type(dtype=None, non_blocking=False)."""
    api = target.name
    if devices.target == "cpu":

        def there(text: str) -> str:
            return text.replace("torch.cuda.", "torch.")
    else:

        def there(text: str) -> str:
            return text.replace("torch.cuda.", f"torch.{devices.target}.")

    def call(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None:
            return devices.show_name(original(self, *args, **kwargs))
        if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
            note(api)
            dtype = there(dtype)
        return original(self, dtype, *args, **kwargs)

    return like(original, call)


def default_type(original: Any, target: Target, devices: Devices) -> Any:
    """torch.set_default_tensor_type: a type of CUDA's sets the default dtype and device."""

    def call(t: Any, /) -> None:
        kind = t if isinstance(t, str) else getattr(t, "__name__", "")
        if devices.target == "cpu":
            t = t.replace("torch.cuda.", "torch.") if isinstance(t, str) else t
        elif isinstance(t, str) or type(t).__name__ == "TensorType":
            short = str(kind).rsplit(".", 1)[-1]
            if str(kind).startswith(("torch.cuda.", f"torch.{devices.target}.")):
                note(target.name)
                original(f"torch.{short}")
                torch.set_default_device(devices.target)
                return
        elif torch.get_default_device().type != "cpu":
            torch.set_default_device("cpu")  # as a default type of the CPU's undoes CUDA's
        original(t)

    return like(original, call)


# --- what a program reads -----------------------------------------------------------------------


def device_property(original: Any, target: Target, devices: Devices) -> Any:
    """A property `device` that shows CUDA's device to all but torch's own code."""
    read, shown, api = original.__get__, devices.to_cuda.get, target.name

    def device(self: Any) -> torch.device:
        real: torch.device = read(self)
        there = shown(real)
        if there is None:
            return real
        frame = sys._getframe(1)
        if inside(frame):
            return real
        count(api, frame)
        return there

    return property(device, doc=original.__doc__)


def is_cuda_property(original: Any, target: Target, devices: Devices) -> Any:
    """A property `is_cuda`, true for the target to all but torch's own code."""
    read, shown, api = original.__get__, devices.to_cuda, target.name

    real_device = torch._C.TensorBase.device.__get__

    def is_cuda(self: Any) -> bool:
        frame = sys._getframe(1)
        if inside(frame):
            return bool(read(self))
        count(api, frame)
        return real_device(self) in shown

    def storage_is_cuda(self: Any) -> bool:
        if inside(sys._getframe(1)):
            return bool(read(self))
        note(api)
        return torch.device(self.device) in shown

    return property(is_cuda if ".Tensor." in target.name else storage_is_cuda, doc=original.__doc__)


def returns(original: Any, target: Target, devices: Devices) -> Any:
    """A function that returns a device."""

    def call(*args: Any, **kwargs: Any) -> Any:
        device = original(*args, **kwargs)
        if device is None or inside(sys._getframe(1)):
            return device
        if devices.target == "cpu" and device.type != "cpu":
            device = torch.device("cpu")  # an accelerator of this machine is not used
        there = devices.to_cuda.get(device)
        if there is None:
            return device
        note(target.name)
        return there

    return like(original, call)


def version(original: Any, target: Target, devices: Devices) -> Any:
    """torch.version.cuda."""
    return CUDA_VERSION


def nccl_version(original: Any, target: Target, devices: Devices) -> Any:
    """torch.cuda.nccl.version: without NCCL torch has nothing to ask."""

    def call() -> tuple[int, int, int]:
        if inside(sys._getframe(1)):
            return original()  # type: ignore[no-any-return]
        note(target.name)
        return (2, 27, 7)

    return like(original, call)


def true(original: Any, target: Target, devices: Devices) -> Any:
    """A question that is answered with yes, but not to torch: it would look for NVIDIA's parts."""

    def call(*args: Any, **kwargs: Any) -> bool:
        if inside(sys._getframe(1)):
            return bool(original(*args, **kwargs))
        note(target.name)
        return True

    return like(original, call)


def name(original: Any, target: Target, devices: Devices) -> Any:
    """A function that gives the name of the device's type."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return None if devices.target == "cpu" else devices.target

    return like(original, call)


# --- autocast's state, whose oldest form means CUDA ---------------------------------------------


def autocast_state(original: Any, target: Target, devices: Devices) -> Any:
    """is_autocast_enabled() and get_autocast_gpu_dtype(): without an argument CUDA is meant."""
    if target.name.endswith("gpu_dtype"):
        read = torch.get_autocast_dtype

        def call(*args: Any) -> Any:
            note(target.name)
            return read(devices.target)

        return like(original, call)
    rewritten = argument(original, target, devices)

    def ask(*args: Any, **kwargs: Any) -> Any:
        return rewritten(*args, **kwargs) if args or kwargs else original(devices.target)

    return like(original, ask)


def autocast_switch(original: Any, target: Target, devices: Devices) -> Any:
    """set_autocast_enabled([device_type,] enabled) and set_autocast_gpu_dtype(dtype)."""
    if target.name.endswith("gpu_dtype"):
        write = torch.set_autocast_dtype

        def call(dtype: torch.dtype) -> None:
            note(target.name)
            write(devices.target, dtype)

        return like(original, call)
    rewritten = argument(original, target, devices)

    def switch(*args: Any, **kwargs: Any) -> Any:
        if len(args) + len(kwargs) == 1:
            args, kwargs = (devices.target, *args, *kwargs.values()), {}
        return rewritten(*args, **kwargs)

    return like(original, switch)


# --- classes written in C -----------------------------------------------------------------------


class Class:
    """A class that cannot be changed, with one argument of its constructor rewritten.

    Makes objects of the original, and is the original for isinstance, issubclass, subclassing,
    unions and attributes.
    """

    def __init__(self, original: Any, make: Callable[..., Any]) -> None:
        self._original = original
        self._make = make
        self.__doc__ = original.__doc__
        self.__name__ = original.__name__
        self.__qualname__ = original.__qualname__
        self.__module__ = "torch"
        self.__wrapped__ = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._make(*args, **kwargs)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._original)

    def __subclasscheck__(self, kind: type) -> bool:
        return issubclass(kind, self._original)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._original,)

    def __or__(self, other: Any) -> Any:
        return self._original | other

    def __ror__(self, other: Any) -> Any:
        return other | self._original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original

    def __hash__(self) -> int:
        return hash(self._original)

    def __reduce__(self) -> str:
        return str(self.__name__)

    def __repr__(self) -> str:
        return repr(self._original)


def class_(original: Any, target: Target, devices: Devices) -> Any:
    """A class of torch's C++ core."""
    return Class(original, argument(original, target, devices))


# --- the profiler -------------------------------------------------------------------------------


def activities(original: Any, target: Target, devices: Devices) -> Any:
    """torch.profiler.profile(activities=...): CUDA's activity is the target's; the CPU has none."""
    cuda, device = torch.profiler.ProfilerActivity.CUDA, _activity(devices)

    def rewritten(asked: Any) -> list[Any]:
        there: list[Any] = []
        for item in asked:
            if isinstance(item, dict):
                kinds = {device if k is cuda else k: v for k, v in item.items()}
                kinds.pop(None, None)
                new: Any = kinds or None
            else:
                new = device if item is cuda else item
            if new is not item and cuda in (item if isinstance(item, dict) else (item,)):
                note("torch.profiler.profile")
            if new is not None and new not in there:  # some name CUDA's and the device's
                there.append(new)
        return there or [torch.profiler.ProfilerActivity.CPU]

    def call(self: Any, *args: Any, activities: Any = None, **kwargs: Any) -> None:
        if activities is not None:
            activities = rewritten(activities)
        original(self, *args, activities=activities, **kwargs)

    return like(original, call)


def _activity(devices: Devices) -> Any:
    """What the profiler calls the target's work; None for the CPU, whose work is the host's."""
    return None if devices.target == "cpu" else torch.profiler.ProfilerActivity.PrivateUse1


def supported(original: Any, target: Target, devices: Devices) -> Any:
    """supported_activities(): the device's is CUDA's to a program."""

    def call() -> Any:
        found = original()
        if inside(sys._getframe(1)):
            return found
        note(target.name)
        cuda = torch.profiler.ProfilerActivity.CUDA
        return (found - {_activity(devices)}) | {cuda}

    return like(original, call)


def events(original: Any, target: Target, devices: Devices) -> Any:
    """torch.autograd.profiler.profile(enabled=True, *, use_cuda=False, use_device=None, ...)."""

    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.pop("use_cuda", False) or kwargs.get("use_device") == "cuda":
            note("torch.autograd.profiler.profile")
            kwargs["use_device"] = None if devices.target == "cpu" else devices.target
        original(self, *args, **kwargs)

    return like(original, call)


def emit_nvtx(original: Any, target: Target, devices: Devices) -> Any:
    """emit_nvtx(enabled=True, record_shapes=False): NVIDIA's tools, which read it, see no device
    here.
    """

    def call(self: Any, enabled: bool = True, record_shapes: bool = False) -> None:
        note("torch.autograd.profiler.emit_nvtx")
        if enabled:
            warnings.warn(
                "torch.autograd.profiler.emit_nvtx: no ranges are sent, since NVIDIA's tools do "
                f"not see {devices.target}; use torch.profiler.profile or `causeway profile`",
                stacklevel=2,
            )
        original(self, False, record_shapes)

    return like(original, call)


# --- torch.distributed --------------------------------------------------------------------------


def backend_for(devices: Devices, backend: str) -> str:
    """`backend` with NCCL replaced by what serves the target's tensors."""
    if "nccl" not in backend.lower() and "cuda" not in backend.lower():
        return backend
    if devices.target == "cpu":
        ours = "gloo"
    else:
        ours = torch.distributed.get_default_backend_for_device(devices.target)
    if ":" not in backend:
        return ours
    pairs = dict(pair.split(":", 1) for pair in backend.lower().split(","))
    pairs = {("cuda" if k == "gpu" else k): (ours if v == "nccl" else v) for k, v in pairs.items()}
    there = pairs.pop("cuda", None)
    if devices.target == "cpu":
        return pairs.get("cpu", "gloo")
    # A group of ours serves the host's tensors too.
    return ours if there == ours else ",".join(f"{k}:{v}" for k, v in pairs.items())


def init_group(original: Any, target: Target, devices: Devices) -> Any:
    """init_process_group(backend=None, ..., device_id=None)."""

    def call(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(backend, str) and ("nccl" in backend.lower() or "cuda" in backend.lower()):
            note(target.name)
            backend = backend_for(devices, backend)
        elif backend is None and devices.target != "cpu":
            backend = backend_for(devices, "nccl")
        if kwargs.get("device_id") is not None:
            # Binding a group to its device starts NCCL early; there is nothing to start here.
            note(target.name)
            kwargs.pop("device_id")
        return original(backend, *args, **kwargs)

    return like(original, call)


def parallel(original: Any, target: Target, devices: Devices) -> Any:
    """DistributedDataParallel(module, device_ids=None, output_device=None, ...)."""

    def call(
        self: Any,
        module: Any,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if devices.target == "cpu":
            device_ids = output_device = None  # they are of GPUs
        elif device_ids is not None:
            device_ids = [devices.rewrite(device) for device in device_ids]
        output_device = devices.rewrite(output_device)
        original(self, module, device_ids, output_device, *args, **kwargs)

    return like(original, call)


def group(original: Any, target: Target, devices: Devices) -> Any:
    """new_group(ranks=None, timeout=None, backend=None, ...)."""

    def call(ranks: Any = None, timeout: Any = None, backend: Any = None, **kwargs: Any) -> Any:
        if isinstance(backend, str) and "nccl" in backend.lower():
            note(target.name)
            backend = backend_for(devices, backend)
        kwargs.pop("device_id", None)
        return original(ranks, timeout, backend, **kwargs)

    return like(original, call)


def backend_name(original: Any, target: Target, devices: Devices) -> Any:
    """get_backend: a program that asked for NCCL is told NCCL."""

    def call(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        if devices.target == "cpu" or inside(sys._getframe(1)):
            return found
        return "nccl" if found == backend_for(devices, "nccl") else found

    return like(original, call)


def backend_available(original: Any, target: Target, devices: Devices) -> Any:
    """is_backend_available: NCCL's collectives are there, by the device's own backend."""

    def call(backend: str) -> bool:
        if inside(sys._getframe(1)) or "nccl" not in str(backend).lower():
            return bool(original(backend))
        note(target.name)
        parts = (p.partition(":")[2] or p for p in str(backend).lower().split(","))
        return all(part == "nccl" or original(part) for part in parts)

    return like(original, call)


HOW: dict[str, Builder] = {
    "activities": activities,
    "argument": argument,
    "autocast state": autocast_state,
    "autocast switch": autocast_switch,
    "backend available": backend_available,
    "backend name": backend_name,
    "class": class_,
    "default type": default_type,
    "device": device_property,
    "emit nvtx": emit_nvtx,
    "events": events,
    "group": group,
    "init group": init_group,
    "is_cuda": is_cuda_property,
    "loader": loader,
    "move": move,
    "name": name,
    "nccl version": nccl_version,
    "parallel": parallel,
    "pin": pin,
    "plain": plain,
    "record stream": record_stream,
    "returns": returns,
    "scaler": scaler,
    "supported": supported,
    "true": true,
    "type": tensor_type,
    "version": version,
}
