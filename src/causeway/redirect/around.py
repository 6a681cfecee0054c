"""What must follow the replacements: torch's caches and tables that are keyed by functions, saved
files, CUDA_VISIBLE_DEVICES, the environment of child processes, NVIDIA's tools, and the compiler.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import torch

from causeway import _C
from causeway.redirect import scripted, tools
from causeway.redirect.devices import Devices
from causeway.redirect.patches import Patches
from causeway.redirect.places import note


def prepare() -> None:
    """Fill what torch fills at its first use from its own namespace: it must hold originals."""
    from torch.utils._device import _device_constructors

    forget()
    _device_constructors()
    torch.jit._builtins._get_builtin_table()  # type: ignore[no-untyped-call]


def follow(devices: Devices, patches: Patches, stack: ExitStack) -> None:
    """Adapt the rest of torch to the replacements; `stack` takes it back."""
    _script(patches, stack)
    _uninitialized(stack)
    scripted.follow(devices, stack)
    _files(devices, stack)
    _autocast(devices, stack)
    _environment(devices, stack)
    tools.follow(devices, stack)
    _device_names(devices, stack)
    _visible(devices, stack)
    _compiler(devices, patches, stack)


def _script(patches: Patches, stack: ExitStack) -> None:
    """torch.jit.script knows builtins by their id: let it know the replacements too."""
    table = torch.jit._builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    added = [
        (id(new), table[id(original)])
        for original, new in patches.pairs()
        if id(original) in table and id(new) not in table
    ]
    table.update(added)

    def remove() -> None:
        for key, _ in added:
            table.pop(key, None)

    stack.callback(remove)


def _uninitialized(stack: ExitStack) -> None:
    """Parameters of lazy modules know by a list which functions they may be given."""
    mixin: Any = torch.nn.parameter.UninitializedTensorMixin  # type: ignore[attr-defined]
    former = mixin._allowed_methods
    names = [known.__name__ for known in former]
    mixin._allowed_methods = former + [
        vars(torch.Tensor)[n] for n in names if n in vars(torch.Tensor)
    ]
    stack.callback(setattr, mixin, "_allowed_methods", former)


def _files(devices: Devices, stack: ExitStack) -> None:
    """Saved tensors are marked "cuda:0", and what is so marked is loaded to the target."""
    from torch import serialization

    target = devices.target

    def tag(storage: Any) -> str | None:
        device = storage.device
        if target == "cpu" or device.type != target:
            return None
        return f"cuda:{device.index or 0}"

    def load(storage: Any, location: str) -> Any:
        there = devices.find(location)
        if there is None:
            return None
        note("torch.load")
        if target == "cpu":
            return storage
        index = torch.device(there).index
        count = torch.cuda.device_count()
        if index is not None and index >= count:
            raise RuntimeError(
                f"Attempting to deserialize object on CUDA device {index} but "
                f"torch.cuda.device_count() is {count}. Please use torch.load with map_location "
                "to map your storages to an existing device."
            )
        return storage.to(device=torch.device(there))

    registry = serialization._package_registry
    former = list(registry)
    serialization.register_package(5, tag, load)
    stack.callback(lambda: registry.__setitem__(slice(None), former))


def _autocast(devices: Devices, stack: ExitStack) -> None:
    """CUDA's autocast uses float16 where no dtype is given; the CPU's would use bfloat16."""
    if devices.target == "cpu":
        former = torch.get_autocast_dtype("cpu")
        torch.set_autocast_dtype("cpu", torch.float16)
        stack.callback(torch.set_autocast_dtype, "cpu", former)


def _environment(devices: Devices, stack: ExitStack) -> None:
    """Processes that this one starts redirect too, at the end of their `import torch`."""
    names = ("CAUSEWAY_TRANSFER", "_CAUSEWAY_TRANSFER_ROOT")
    former = {name: os.environ.get(name) for name in names}
    os.environ["CAUSEWAY_TRANSFER"] = "cpu" if devices.target == "cpu" else "device"
    os.environ.setdefault("_CAUSEWAY_TRANSFER_ROOT", str(os.getpid()))

    def restore() -> None:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    stack.callback(restore)


def _device_names(devices: Devices, stack: ExitStack) -> None:
    """Functions of the device's module take CUDA's devices for the device's own."""
    if devices.target != "cpu":
        from causeway.device import selection

        selection.ALIASES.add("cuda")
        stack.callback(selection.ALIASES.discard, "cuda")


def _visible(devices: Devices, stack: ExitStack) -> None:
    """CUDA_VISIBLE_DEVICES is read when the devices are first counted, as CUDA does it."""
    if devices.target != "cpu":
        from causeway.device import lazy

        lazy.visible_from = visible
        stack.callback(setattr, lazy, "visible_from", None)


def visible(there: int) -> list[int] | None:
    """The devices that CUDA_VISIBLE_DEVICES leaves of `there`; None where it is not set.

    As CUDA does: the first token that is no index of a device hides the rest.
    """
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    found: list[int] = []
    for token in map(str.strip, text.split(",")):
        if token.upper().startswith(("GPU-", "MIG-")):
            warnings.warn(
                f"CUDA_VISIBLE_DEVICES names {token}, a device by its UUID: it is passed over, "
                "and all devices are visible",
                stacklevel=2,
            )
            return None
        if not token.isdecimal() or int(token) >= there or int(token) in found:
            break
        found.append(int(token))
    return found


# --- the compiler -------------------------------------------------------------------------------


def _compiler(devices: Devices, patches: Patches, stack: ExitStack) -> None:
    """torch.compile traces `x.device` and `x.is_cuda` by itself: give it the program's view."""
    undo: list[Callable[[], None]] = []

    def view(module: ModuleType) -> None:
        undo.append(_trace_view(module, devices))

    def tables(module: ModuleType) -> None:
        undo.append(_trace_tables(module, patches))

    def calls(module: ModuleType) -> None:
        undo.append(_trace_calls(module, patches))

    for name, apply in (
        ("torch._dynamo.trace_rules", calls),
        ("torch._dynamo.variables.tensor", view),
        ("torch._dynamo.variables.torch", tables),
    ):
        if name in sys.modules:
            apply(sys.modules[name])
        else:
            finder = _Later(name, apply)
            sys.meta_path.insert(0, finder)
            undo.append(functools.partial(_leave, finder))

    def revert() -> None:
        for function in undo:
            function()

    stack.callback(revert)


def forget() -> None:
    """Drop what the compiler remembers of torch's namespace, and what it has compiled."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None:
        return
    for name in ("get_torch_obj_rule_map", "get_tensor_method"):
        clear = getattr(getattr(rules, name, None), "cache_clear", None)
        if clear is not None:
            clear()
    torch._dynamo.reset()


def _trace_view(module: ModuleType, devices: Devices) -> Callable[[], None]:
    variable = module.TensorVariable
    read_device, read_is_cuda = variable.method_attr_device, variable.method_attr_is_cuda

    def program(tx: Any) -> bool:
        name = str(tx.f_globals.get("__name__", ""))
        return not name.startswith(("torch.", "causeway.")) and name != "torch"

    def method_attr_device(self: Any, tx: Any) -> Any:
        if self.device is None or not program(tx):
            return read_device(self, tx)
        return module.VariableTracker.build(tx, devices.shown(self.device))

    def method_attr_is_cuda(self: Any, tx: Any) -> Any:
        if self.device is None or not program(tx):
            return read_is_cuda(self, tx)
        return module.VariableTracker.build(tx, self.device in devices.to_cuda)

    variable.method_attr_device = method_attr_device
    variable.method_attr_is_cuda = method_attr_is_cuda

    def undo() -> None:
        variable.method_attr_device = read_device
        variable.method_attr_is_cuda = read_is_cuda

    return undo


def _trace_tables(module: ModuleType, patches: Patches) -> Callable[[], None]:
    """The compiler knows by tables which functions it may call while it traces: they hold both."""
    added: list[tuple[Any, Any]] = []
    for table in [t for t in vars(module).values() if isinstance(t, dict | set)]:
        if table is vars(module):
            continue
        for original, new in patches.pairs():
            try:
                if original in table or new in table:
                    added += [(table, o) for o in (original, new) if o not in table]
            except TypeError:  # not hashable
                continue
    for table, item in added:
        if isinstance(table, dict):
            table[item] = None
        else:
            table.add(item)

    def undo() -> None:
        new = {id(pair[1]) for pair in patches.pairs()}
        for table in {id(t): t for t, _ in added}.values():
            for item in [i for i in table if id(i) in new]:
                table.pop(item) if isinstance(table, dict) else table.remove(item)

    return undo


def _trace_calls(module: ModuleType, patches: Patches) -> Callable[[], None]:
    """A callable of ours is no function to the compiler, unless it is told that it may call it."""
    ids = [id(new) for _, new in patches.pairs() if isinstance(new, _C.Redirect)]
    for key in ids:
        module._allowed_callable_ids.add(key)

    def undo() -> None:
        for key in ids:
            module._allowed_callable_ids.remove(key)

    return undo


def _leave(finder: _Later) -> None:
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)


class _Later(importlib.abc.MetaPathFinder):
    """Calls `apply` with the module `name` as soon as somebody has imported it."""

    def __init__(self, name: str, apply: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.apply = apply

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute, apply = spec.loader.exec_module, self.apply

        def exec_module(module: ModuleType) -> None:
            execute(module)
            apply(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
