"""CUDA's devices inside TorchScript, where no Python runs: the compiled graphs are changed.

A device is a typed constant there, so it is found by its type and not by how it is spelled. What
asks for CUDA (`x.is_cuda`, `x.device.type`) gets the program's view by operators of TorchScript.
Functions of torch's own keep the real device. Left out: `str(x.device)`, a device that a graph
returns, and a device's name that reaches a graph as a string at run time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from weakref import WeakKeyDictionary

import torch

from causeway.redirect.devices import Devices
from causeway.redirect.places import note

_SEEN = "causeway_view"  # an attribute of nodes that tell the real device's type, or are shown


def follow(devices: Devices, stack: ExitStack) -> None:
    """Change what is compiled, or loaded as TorchScript, from now on; `stack` ends it."""
    import torch.jit._recursive
    import torch.jit._serialization
    import torch.jit._state

    def wrap(owner: Any, name: str, unit: Any = lambda result: result) -> None:
        original = getattr(owner, name)

        def compiled(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            rewrite(unit(result), devices)
            return result

        setattr(owner, name, compiled)
        stack.callback(setattr, owner, name, original)

    # What was compiled is remembered, and must be forgotten at both ends.
    for owner, name, fresh in (
        (torch.jit._recursive, "concrete_type_store", torch.jit._recursive.ConcreteTypeStore()),
        (torch.jit._state, "_jit_caching_layer", WeakKeyDictionary()),
        (torch.jit._state, "_jit_function_overload_caching", WeakKeyDictionary()),
    ):
        stack.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, fresh)
    wrap(torch._C, "_jit_script_compile")
    wrap(torch.jit._recursive, "create_script_module_impl", lambda module: module._c)
    for name in ("import_ir_module", "import_ir_module_from_buffer"):
        wrap(torch._C, name)


def rewrite(unit: Any, devices: Devices) -> None:
    """Give the target's devices to a compiled function, or to all methods of a compiled module."""
    seen: set[str] = set()
    for graph in _graphs(unit, seen):
        _rewrite_graph(graph, devices)


def _graphs(unit: Any, seen: set[str]) -> Iterator[Any]:
    if hasattr(unit, "_method_names"):
        for name in unit._method_names():
            yield unit._get_method(name).graph
        for _, child in torch._C.ModuleDict(unit).items():
            yield from _graphs(child, seen)
    elif not unit.qualified_name.startswith("__torch__.torch."):
        yield unit.graph


def _rewrite_graph(graph: Any, devices: Devices) -> None:
    changed = False
    for node in graph.findAllNodes("prim::Constant", recurse=True):
        if str(node.output().type()) == "Device" and node.hasAttribute("value"):
            there = devices.find(node.s("value"))
            if there is not None:
                node.s_("value", str(there))
                changed = True
    for node in list(graph.findAllNodes("aten::cuda", recurse=True)):
        _replace(graph, node, _moved(graph, node, devices))
        changed = True
    for node in list(graph.findAllNodes("prim::is_cuda", recurse=True)):
        _replace(graph, node, _is_there(graph, node, devices))
        changed = True
    for node in list(graph.findAllNodes("prim::type", recurse=True)):
        changed |= _show_type(graph, node, devices)
    if changed:
        graph.lint()
        note("torch.jit.script")


def _constant(graph: Any, before: Any, value: Any) -> Any:
    with graph.insert_point_guard(before):
        return graph.insertConstant(value)


def _node(graph: Any, before: Any, kind: str, inputs: list[Any], result: Any) -> Any:
    made = graph.create(kind, inputs, 1)
    made.insertBefore(before)
    made.output().setType(result)
    return made


def _moved(graph: Any, node: Any, devices: Devices) -> Any:
    """`x.cuda()` as `x.to(device)`."""
    device = graph.create("prim::Constant", [], 1)
    device.insertBefore(node)
    device.s_("value", devices.to_target["cuda"])
    device.output().setType(torch._C.DeviceObjType.get())
    none, no = _constant(graph, node, None), _constant(graph, node, False)
    (x,) = node.inputs()
    return _node(graph, node, "aten::to", [x, device.output(), none, no, no], node.output().type())


def _is_there(graph: Any, node: Any, devices: Devices) -> Any:
    """`x.is_cuda` as `x.device.type == target`."""
    (x,) = node.inputs()
    device = _node(graph, node, "prim::device", [x], torch._C.DeviceObjType.get())
    kind = _node(graph, node, "prim::type", [device.output()], torch._C.StringType.get())
    kind.s_(_SEEN, "")
    target = _constant(graph, node, devices.target)
    return _node(graph, node, "aten::eq", [kind.output(), target], torch._C.BoolType.get())


def _show_type(graph: Any, node: Any, devices: Devices) -> bool:
    """`device.type` reads "cuda" for the target."""
    output = node.output()
    if node.hasAttribute(_SEEN) or not output.uses():
        return False
    node.s_(_SEEN, "")
    with graph.insert_point_guard(node):
        old, new = graph.insertConstant(devices.target), graph.insertConstant("cuda")
        most = graph.insertConstant(-1)
    shown = graph.create("aten::replace", [output, old, new, most], 1)
    shown.insertAfter(node)
    shown.output().setType(torch._C.StringType.get())
    output.replaceAllUsesAfterNodeWith(shown, shown.output())
    return True


def _replace(graph: Any, node: Any, new: Any) -> None:
    node.output().replaceAllUsesWith(new.output())
    node.destroy()
