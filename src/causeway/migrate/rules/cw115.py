"""CW115: comparisons with the device's name, `x.device.type == "cuda"`."""

from __future__ import annotations

import ast

from causeway.migrate.module import Module
from causeway.migrate.names import after, statement
from causeway.migrate.rule import Rule
from causeway.migrate.rules import elsewhere, labels
from causeway.migrate.rules.branches import (
    for_each_vendor,
    no_other,
    stated,
    stays_without_device,
)
from causeway.migrate.rules.kernels import chooses_kernel
from causeway.migrate.rules.roles import device_like, name_goes_elsewhere
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW115",
    name="device-comparison",
    title="A comparison with the device's name",
    why='`device.type == "cuda"` is False on every other accelerator, and its branch is not taken.',
    by_hand='`device.type == accelerator.type != "cpu"`, with the device that the module has.',
    before='import torch\n\n\ndef f(device):\n    return device.type == "cuda"\n',
    after="import torch\n\n"
    "accelerator = torch.accelerator.current_accelerator(check_available=True) or "
    'torch.device("cpu")\n\n\n'
    'def f(device):\n    return device.type == accelerator.type != "cpu"\n',
)


def run(module: Module) -> None:
    if module.other_framework:
        return
    for node in sorted(module.names.all(ast.Compare), key=module.source.start):
        _compare(module, node)
    for call in module.names.all(ast.Call):
        _startswith(module, call)


def _compare(module: Module, node: ast.Compare) -> None:
    if len(node.ops) != 1:
        return
    left, op, right = node.left, node.ops[0], node.comparators[0]
    if _cuda(left) and isinstance(op, ast.In | ast.NotIn):
        literal, other = left, right
    elif _cuda(right) and isinstance(op, ast.Eq | ast.NotEq):
        literal, other = right, left
    elif _cuda(left) and isinstance(op, ast.Eq | ast.NotEq):
        literal, other = left, right
    else:
        return
    module.done.add(id(literal))
    if stays_without_device(module, RULE, node):
        return
    if labels.says_nvidia(node) and not module.vendor:
        module.report(RULE, node, "portable", "the answer has a name that says NVIDIA",
                      tip="Leave it: it is about one vendor's device.")  # fmt: skip
        return
    kept = statement(node)
    answer = (
        kept.targets[0] if isinstance(kept, ast.Assign) and _is_answer(kept.value, node) else None
    )
    goes = name_goes_elsewhere(module, other) or (answer and name_goes_elsewhere(module, answer))
    if goes and not module.vendor:
        report = "what is compared goes to a library that serves CUDA alone"
        module.report(RULE, node, "portable", report,
                      tip="Leave it: other devices have no name there.")  # fmt: skip
        return
    if not device_like(module, other):
        # A back-end, an implementation, a mode: "cuda" may be its name.
        module.report(
            RULE, node, "manual", "a comparison with \"cuda\" of what may be no device",
            tip="If it is a device, compare its type with the accelerator's.", severity="info",
        )  # fmt: skip
        return
    if chooses_kernel(module, node):
        module.report(
            RULE, node, "manual", "it decides on a kernel that is for CUDA alone",
            tip="Leave it where another branch serves other devices; else write that branch with "
            "torch's operators.",
        )  # fmt: skip
        return
    if module.vendor:
        parts = module.source.string_parts(literal)
        if parts:
            module.use_target()
            at = module.source.start(literal) + len(parts[0]) + len(parts[1])
            module.change(RULE, node, [Edit(at, at + 4, module.vendor)], "the vendor's name")
        return
    if for_each_vendor(node):
        module.report(RULE, node, "portable", "the program has a branch for each vendor",
                      tip="Add one for the device, or an `else` that serves any.")  # fmt: skip
        return
    if _all_others_end(module, node, other):
        module.report(RULE, node, "portable", "what is for every other device follows",
                      tip="Leave it: they are told apart there.")  # fmt: skip
        return
    if elsewhere.locates_checkpoint(module, node):
        module.report(RULE, node, "portable", "a checkpoint goes back to CUDA's device",
                      tip="Leave it: other devices read it to the CPU first.")  # fmt: skip
        return
    if says := _of_cudas_index(module, node, other) or _of_forks(module, node):
        module.report(RULE, node, "portable", says,
                      tip="Leave it, or write both for any accelerator.")  # fmt: skip
        return
    if isinstance(node.ops[0], ast.In | ast.NotIn) and _container(module, other):
        edit = Edit(module.source.start(literal), module.source.end(literal),
                    module.device_type(node))  # fmt: skip
        module.change(RULE, node, [edit], "the accelerator's name among others")
        return
    edits = _exact(module, node, literal)
    module.change(RULE, node, edits, "the device is compared with the accelerator",
                  tip="True on the accelerator that is there, and never on the CPU.")  # fmt: skip


def _cuda(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cuda"


def _of_cudas_index(module: Module, node: ast.Compare, other: ast.expr) -> str:
    """What is said where `"cuda:" in x` is asked too, which stays: both choose an index of CUDA."""
    name = _last_name(other)
    beside = isinstance(node.ops[0], ast.In | ast.NotIn) and any(
        isinstance(asked.ops[0], ast.In)
        and getattr(asked.left, "value", "") == "cuda:"
        and _last_name(asked.comparators[0]) == name
        for asked in module.names.all(ast.Compare)
    )
    return 'it stands beside `"cuda:" in …`, which stays' if beside else ""


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _of_forks(module: Module, node: ast.Compare) -> str:
    """What is said where it chooses the devices of torch.random.fork_rng, which are CUDA's as long
    as its `device_type` is not given.
    """
    stmt = statement(node)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    for call in module.names.all(ast.Call):
        if module.resolve(call.func) != "torch.random.fork_rng":
            continue
        given = [*call.args, *(k.value for k in call.keywords)]
        if any(k.arg == "device_type" for k in call.keywords):
            continue
        if module.within(node, call) or any(
            isinstance(value, ast.Name) and value.id == getattr(target, "id", "") for value in given
        ):
            return "torch.random.fork_rng takes CUDA's devices here"
    return ""


def _is_answer(value: ast.expr, node: ast.expr) -> bool:
    """Whether a value is what a comparison says, also `True if x == "cuda" else False`."""
    return value is node or (isinstance(value, ast.IfExp) and value.test is node)


def _all_others_end(module: Module, node: ast.Compare, other: ast.expr) -> bool:
    """Whether the statement behind the branch ends for all devices but one more: `if d.type ==
    "cuda": return True`, `if d.type != "xpu": return False`.
    """
    up = node.up  # type: ignore[attr-defined]
    if not (isinstance(up, ast.If) and up.test is node and isinstance(up.body[-1], ast.Return)):
        return False
    behind = next(iter(after(up)), None)
    test = behind.test if isinstance(behind, ast.If) else None
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.NotEq)
        and getattr(test.comparators[0], "value", "") in ("mps", "xpu")
        and module.text(test.left) == module.text(other)
    )


def _container(module: Module, node: ast.expr) -> bool:
    """Whether a name holds several devices, and no name of one."""
    if isinstance(node, ast.Name):
        for binding in module.names.bindings(node):
            if isinstance(binding.value, ast.List | ast.Tuple | ast.Set | ast.Dict | ast.ListComp):
                return True
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name.lower().endswith(("s", "map", "dict", "list", "set"))


def _operator(module: Module, node: ast.Compare) -> tuple[int, int]:
    """The range of the operator, with the spaces and parentheses around it left out."""
    start = module.source.skip(module.source.end(node.left), also=b")")
    length = {ast.Eq: 2, ast.NotEq: 2, ast.In: 2}.get(type(node.ops[0]))
    if length is None:  # not in
        inner = module.source.skip(start + 3)
        return start, inner + 2
    return start, start + length


def _exact(module: Module, node: ast.Compare, literal: ast.expr) -> list[Edit]:
    """`x == "cuda"` to `x == accelerator.type != "cpu"`: never true where there is but a CPU."""
    kind, quote = module.device_type(node), module.quote_for(node)
    cpu = f"{quote}cpu{quote}"
    there = module.available(node)  # then it is not the CPU
    negative = isinstance(node.ops[0], ast.NotEq | ast.NotIn)
    edits = []
    start, end = module.source.start(node), module.source.end(node)
    if module.text(_other(node, literal)) == kind:  # it is compared with itself
        if there:
            kind = f"{module.known_device(node)}.type"
        elif isinstance(node.ops[0], ast.Eq | ast.NotEq):
            a, b = _operator(module, node)
            place = module.source.start(literal), module.source.end(literal)
            others = no_other(module, node).removeprefix(" not in ")
            if not others.startswith("("):
                return [Edit(a, b, "==" if negative else "!="), Edit(*place, cpu)]
            if literal is not node.left:  # `device not in ("cpu", "mps")`
                return [Edit(a, b, "in" if negative else "not in"), Edit(*place, others)]
    if there or (isinstance(node.ops[0], ast.Eq) and stated(module, node)):
        return [Edit(module.source.start(literal), module.source.end(literal), kind)]
    prefix, suffix = ("not ", "") if negative else ("", "")
    up = node.up  # type: ignore[attr-defined]
    if module.parenthesised(node, "x") != "x" or (negative and isinstance(up, ast.UnaryOp)):
        prefix, suffix = "(" + prefix, ")"
    others = no_other(module, node).removeprefix(" not in ")
    if isinstance(node.ops[0], ast.In | ast.NotIn) and others.startswith("("):
        text = f"{kind} not in {others} and {kind}"
        whole = isinstance(
            up, ast.If | ast.IfExp | ast.While | ast.Assert | ast.Assign | ast.Return
        )
        if negative:
            prefix, suffix = prefix + "(", ")" + suffix
        elif not whole:
            prefix, suffix = "(", ")"
    elif isinstance(node.ops[0], ast.In | ast.NotIn) or literal is node.left:
        text = f"{cpu} != {kind}"
    else:
        text = f"{kind}{no_other(module, node)}"
    if prefix:
        edits.append(Edit(start, start, prefix))
    edits.append(Edit(module.source.start(literal), module.source.end(literal), text))
    if negative:
        a, b = _operator(module, node)
        edits.append(Edit(a, b, "==" if isinstance(node.ops[0], ast.NotEq) else "in"))
    if suffix:
        edits.append(Edit(end, end, suffix))
    return edits


def _other(node: ast.Compare, literal: ast.expr) -> ast.expr:
    """What a literal is compared with."""
    return node.comparators[0] if literal is node.left else node.left


def _startswith(module: Module, call: ast.Call) -> None:
    func = call.func
    if not (
        isinstance(func, ast.Attribute)
        and func.attr == "startswith"
        and len(call.args) == 1
        and isinstance(call.args[0], ast.Constant)
        and call.args[0].value in ("cuda", "cuda:")
    ):
        return
    literal = call.args[0]
    module.done.add(id(literal))
    if stays_without_device(module, RULE, call) or not device_like(module, func.value):
        return
    parts = module.source.string_parts(literal)
    if parts is None or chooses_kernel(module, call):
        module.report(RULE, call, "manual", "it asks for CUDA's name")
        return
    at = module.source.start(literal) + len(parts[0]) + len(parts[1])
    start, end = module.source.start(call), module.source.end(call)
    if module.vendor:
        module.use_target()
        edits = [Edit(at, at + 4, module.vendor)]
    else:
        kind, quote = module.device_type(call), module.quote_for(call)
        if module.text(func.value) == kind and not module.available(call):
            same = Edit(start, end, f"{kind} != {quote}cpu{quote}")
            module.change(RULE, call, [same], "the device is compared with the CPU",
                          tip="True for every accelerator.")  # fmt: skip
            return
        tail = "" if literal.value == "cuda" else f" + {quote}:{quote}"
        edits = [Edit(module.source.start(literal), module.source.end(literal), kind + tail)]
        if not module.available(call):
            up = call.up  # type: ignore[attr-defined]
            whole = isinstance(up, ast.If | ast.While | ast.Assert | ast.Assign | ast.Return)
            both = isinstance(up, ast.BoolOp) and isinstance(up.op, ast.And)
            a, b = ("", "") if whole or both else ("(", ")")
            edits += [Edit(start, start, f"{a}{kind} != {quote}cpu{quote} and ")]
            edits += [Edit(end, end, b)] if b else []
    module.change(RULE, call, edits, "the device is compared with the CPU",
                  tip="True for every accelerator.")  # fmt: skip
