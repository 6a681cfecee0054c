"""CW106: streams and events."""

from __future__ import annotations

import ast

from causeway.migrate import knowledge
from causeway.migrate.module import Module, Use
from causeway.migrate.names import FUNCTIONS
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW106",
    name="streams",
    title="Streams and events",
    why="torch.Stream and torch.Event serve every accelerator; torch.cuda's serve CUDA alone.",
    by_hand="`torch.Stream(device)`, `torch.Event(enable_timing=True)`, and `with stream:`.",
    before="import torch\n\ns = torch.cuda.Stream()\ne = torch.cuda.Event(True)\n"
    "with torch.cuda.stream(s):\n    e.record()\n",
    after="import torch\n\ns = torch.Stream()\ne = torch.Event(enable_timing=True)\n"
    "with s:\n    e.record()\n",
)
_PARAMETERS = {
    "Event": ("enable_timing", "blocking", "interprocess"),
    "Stream": ("device", "priority"),
}


def run(module: Module) -> None:
    streams = _known_streams(module)
    addressed = _addressed(module)
    for use in module.uses("torch.cuda"):
        name = use.api.removeprefix("torch.cuda.")
        if _with_default(module, use):
            module.report(
                RULE, use.call or use.node, "manual", "a comparison with CUDA's default stream",
                tip="torch.accelerator has no default stream: compare with a stream that the "
                "program made, or leave it to CUDA.", api=use.api, breaking=True,
            )  # fmt: skip
            module.done.add(id(use.node))
        elif _address(use):
            module.done.add(id(use.node))  # reported below
        elif not module.vendor and (
            (name in ("Stream", *_CURRENT) and _handed_on(module, use))
            or (name in addressed and use.call is not None)
        ):
            module.report(
                RULE, use.call or use.node, "manual", "what takes it may want CUDA's own stream",
                tip="A torch.Stream has no address of CUDA's. Hand on torch's where the code knows "
                "it.", api=use.api, breaking=True,
            )  # fmt: skip
            module.done.add(id(use.node))
        elif name in ("Stream", "Event", "stream", "StreamContext"):
            if module.vendor:
                if isinstance(use.node, ast.Name) and table.assigned(module, use.node):
                    module.done.add(id(use.node))
                else:
                    table.vendor(module, RULE, use)
            elif name in _PARAMETERS:
                _make(module, use, name)
            else:
                _context(module, use, streams)
    table.run(module, RULE)
    for node in module.names.all(ast.Attribute):
        if node.attr in ("cuda_stream", "cuda_event") and isinstance(node.ctx, ast.Load):
            module.report(
                RULE, node, "manual", f"`.{node.attr}` is an address of CUDA's runtime",
                tip="Hand the torch.Stream itself to code that knows it; an extension for CUDA "
                "stays for CUDA.",
            )  # fmt: skip


def _addressed(module: Module) -> set[str]:
    """What makes streams or events whose address the module asks for somewhere: theirs are CUDA's
    own, which torch.Stream and torch.Event have none of.
    """
    asked = {
        node.attr for node in module.names.all(ast.Attribute)
        if node.attr in ("cuda_stream", "cuda_event") and isinstance(node.ctx, ast.Load)
        and not isinstance(node.value, ast.Call)
    }  # fmt: skip
    makers = {"Stream", *_CURRENT} if "cuda_stream" in asked else set()
    return makers | ({"Event"} if "cuda_event" in asked else set())


_CURRENT = ("current_stream", "default_stream")
# Methods of torch's streams, events and tensors that take a stream, and what only keeps one.
_TAKE = {"wait_stream", "record_stream", "record", "wait", "append", "add", "put", "put_nowait"}


def _handed_on(module: Module, use: Use) -> bool:
    """Whether a stream is an argument of a function that is not torch's, by itself or by a name:
    `group.broadcast(x, stream=torch.cuda.current_stream())`. That may want its address.
    """
    if use.call is None:
        return False
    up = use.call.up  # type: ignore[attr-defined]
    nodes: list[ast.expr] = [use.call]
    target = up.targets[0] if isinstance(up, ast.Assign) and up.value is use.call else None
    if isinstance(target, ast.Name):
        held = module.names.holder(target.id, target.scope)  # type: ignore[attr-defined]
        nodes += [
            n for n in module.names.all(ast.Name)
            if n.id == target.id and isinstance(n.ctx, ast.Load)
            and module.names.holder(n.id, n.scope) is held  # type: ignore[attr-defined]
        ]  # fmt: skip
    return any(_taken(module, node) for node in nodes)


def _taken(module: Module, node: ast.expr) -> bool:
    up = node.up  # type: ignore[attr-defined]
    call = up.up if isinstance(up, ast.keyword) else up  # type: ignore[attr-defined]
    if not isinstance(call, ast.Call) or call.func is node:
        return False
    if module.resolve(call.func).startswith("torch."):
        return False
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method and getattr(call.func.value, "id", "") in ("self", "cls"):  # type: ignore[attr-defined]
        return False
    name = getattr(call.func, "id", "")
    own = any(isinstance(b.node, FUNCTIONS) for b in module.names.bindings(call.func)) if (
        isinstance(call.func, ast.Name)
    ) else False  # fmt: skip
    return method not in _TAKE and name not in ("isinstance", "print", "str", "id") and not own


def _address(use: Use) -> bool:
    """Whether only the address of a stream is asked for, which torch.Stream does not have:
    `torch.cuda.current_stream().cuda_stream`.
    """
    up = getattr(use.call or use.node, "up", None)
    return isinstance(up, ast.Attribute) and up.attr in ("cuda_stream", "cuda_event")


def _with_default(module: Module, use: Use) -> bool:
    """Whether it is a side of a comparison with the default stream, which is torch.cuda's own type
    of stream, and never equal to a torch.Stream.
    """
    up = getattr(use.call, "up", None)
    if not isinstance(up, ast.Compare) or module.vendor:
        return False
    sides = [side.func for side in (up.left, *up.comparators) if isinstance(side, ast.Call)]
    return any(module.resolve(func) == "torch.cuda.default_stream" for func in sides)


def _make(module: Module, use: Use, name: str) -> None:
    edits = module.rename(use, f"torch.{name}")
    call = use.call
    if call:
        known = {"device", "priority", "enable_timing", "blocking", "interprocess"}
        if any(k.arg not in known for k in call.keywords) or any(
            isinstance(a, ast.Starred) for a in call.args
        ):
            module.report(RULE, call, "manual", f"arguments that torch.{name} does not take",
                          api=use.api)  # fmt: skip
            module.done.add(id(use.node))
            return
        for i, (arg, parameter) in enumerate(zip(call.args, _PARAMETERS[name], strict=False)):
            if name == "Event" or i > 0:
                at = module.argument_start(call, arg)
                edits.append(Edit(at, at, f"{parameter}="))
    module.change(RULE, call or use.node, edits, f"torch.{name} serves every accelerator",
                  tip=f"It has the methods of torch.cuda.{name}.", api=use.api)  # fmt: skip
    module.done.add(id(use.node))


def _context(module: Module, use: Use, streams: set[str]) -> None:
    call = use.call
    if isinstance(use.node, ast.Name) and table.assigned(module, use.node):
        module.done.add(id(use.node))
    elif (
        call
        and len(call.args) == 1
        and not call.keywords
        and isinstance(call.up, ast.withitem)  # type: ignore[attr-defined]
        and _is_stream(module, call.args[0], streams)
    ):
        source, arg = module.source, call.args[0]
        root = module.root(use.node)
        edits = [
            Edit(source.start(call), source.start(arg), ""),
            Edit(source.end(arg), source.end(call), ""),
        ]
        if module.change(RULE, call, edits, "a stream is a context manager itself", api=use.api):
            module.gone.add(id(root))
        module.done.add(id(use.node))
    else:
        name = use.api.removeprefix("torch.cuda.")
        new = table.of_module(module, use.node, name)
        module.change(RULE, use.node, [module.replace(use.node, new)],
                      "the context of the device in use, which takes None too", api=use.api,
                      tip="Where the stream is never None, `with stream:` is enough.")  # fmt: skip


def _known_streams(module: Module) -> set[str]:
    """Names and attributes that are assigned streams and nothing else."""
    good: set[str] = set()
    bad: set[str] = set()
    for node in module.assignments():
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name | ast.Attribute):
                is_stream = node.value is not None and _is_stream(module, node.value, set())
                (good if is_stream else bad).add(module.text(target))
    for arg in module.names.module.bindings:
        if any(isinstance(b.node, ast.arg) for b in module.names.module.bindings[arg]):
            bad.add(arg)
    return good - bad


def _is_stream(module: Module, node: ast.expr, streams: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return (
            module.resolve(node.func)
            in {
                "torch.cuda.Stream",
                "torch.cuda.current_stream",
                "torch.cuda.default_stream",
                "torch.Stream",
            }
            or knowledge.canonical(module.resolve(node.func)) == "torch.accelerator.current_stream"
        )
    return isinstance(node, ast.Name | ast.Attribute) and module.text(node) in streams
