"""CW101: the device as a string, "cuda", "cuda:0", f"cuda:{rank}"."""

from __future__ import annotations

import ast
import re

from causeway.migrate.module import Fold, Module
from causeway.migrate.names import FUNCTIONS, ancestors, statement
from causeway.migrate.rule import Rule
from causeway.migrate.rules.branches import beside_vendor, negated, stays_without_device
from causeway.migrate.rules.kernels import chooses_kernel
from causeway.migrate.rules.roles import (
    Role,
    default_of,
    goes_elsewhere,
    role,
    surely_not_torch,
)
from causeway.migrate.source import Edit
from causeway.migrate.standing import choice

RULE = Rule(
    code="CW101",
    name="device-string",
    title="The device's name as a string",
    why='"cuda" names one vendor\'s device; the accelerator that torch sees has a name of its own.',
    by_hand="`torch.accelerator.current_accelerator()` is the device, its `.type` the name.",
    before='import torch\n\nx = torch.ones(2, device="cuda")\ny = x.to("cuda:0")\n',
    after="import torch\n\n"
    "accelerator = torch.accelerator.current_accelerator(check_available=True) or "
    'torch.device("cpu")\n\n'
    'x = torch.ones(2, device=accelerator)\ny = x.to(f"{accelerator.type}:0")\n',
)
# "cuda:0", and what is completed by % or .format or +.
_WITH_INDEX = re.compile(r"cuda: *(\d*|%[ds]|\{[^{}]*\})")  # old torch took the spaces


def run(module: Module) -> None:
    _asked_absent(module)
    if module.other_framework:
        return
    for stmt in module.assignments() if not module.vendor else ():
        _variable(module, stmt)
    for node in sorted(
        (n for n in module.names.all(ast.Constant) if _candidate(n)), key=module.source.start
    ):
        if id(node) not in module.done:
            _constant(module, node)
    for joined in module.names.all(ast.JoinedStr):
        _fstring(module, joined)


def _asked_absent(module: Module) -> None:
    """Leave a device that a test is given where there is CUDA and skips without: `gpu` of
    `if device == gpu and not torch.cuda.is_available(): skip()`. As the CPU's name it would make
    the CPU's tests skip too.
    """
    for compare in module.names.all(ast.Compare):
        sides = [s for s in (compare.left, *compare.comparators) if isinstance(s, ast.Name)]
        if module.vendor or not isinstance(compare.ops[0], ast.Eq) or not sides:
            continue
        asked = module.unavailable(compare)
        if asked is None:
            continue
        for side in sides:
            for binding in module.names.bindings(side):
                stmt = binding.node.up  # type: ignore[attr-defined]
                while not isinstance(stmt, ast.stmt):
                    stmt = stmt.up
                named = [
                    n for n in ast.walk(stmt) if isinstance(n, ast.Constant) and _candidate(n)
                ] if isinstance(stmt, ast.Assign) else []  # fmt: skip
                for constant in named:
                    if id(constant) not in module.done:
                        module.report(
                            RULE, constant, "portable", "it is asked for only where there is CUDA",
                            tip="A test that other devices skip.",
                        )  # fmt: skip
                if named:
                    module.kept_questions.add(id(asked))


def _variable(module: Module, stmt: ast.Assign | ast.AnnAssign) -> None:
    """A variable that holds the device from here on, or the CPU where there is none."""
    value = stmt.value
    meaning = module.variables.meaning(value)
    if value is None or meaning is None or meaning.test or meaning.kept:
        return
    if not module.uncommented(value) or goes_elsewhere(module, stmt):
        return
    names = (n for n in ast.walk(value) if isinstance(n, ast.Constant) and n.value == "cuda")
    named = next(names, None)
    if named is None:  # it is converted already
        return
    is_held = module.variables.set_by(stmt) is not None
    chosen = not isinstance(value, ast.Constant) and named.up is not value  # type: ignore[attr-defined]
    tests = [n for n in ast.walk(value) if isinstance(n, ast.expr) and module.asks(n)]
    if id(named) in module.done or not (is_held or (chosen and meaning.is_device)):
        return
    if tests and (not meaning.is_device or module.in_float64):
        return  # it says what is wanted as it is
    if not all(module.settings.wants(code) for code in ("CW101", "CW114")):
        return
    gone = [r for n in ast.walk(value) if isinstance(n, ast.Call) and (r := module.root(n.func))]
    if module.variables.at(value) is not None or module.available(value):  # it is there already
        text = module.device_object(value) if meaning.is_device else module.device_type(value)
    elif module.by_build and not tests:  # to ask here would start the driver too early
        built = module.question(module.torch(value)).replace('"', module.quote)
        text = built if meaning.is_device else f"{module.helper(value)}.type"
    else:
        text = module.later(value, is_device=meaning.is_device)
    edit = Edit(module.source.start(value), module.source.end(value), text)
    if module.change(RULE, value, [edit], "the accelerator, or the CPU where there is none"):
        module.gone.update(map(id, gone))
    module.done.update(id(n) for n in ast.walk(value))


def _fold(module: Module, node: ast.Constant) -> None:
    """Note a choice whose question may turn out to be answered by the variable itself."""
    up = node.up  # type: ignore[attr-defined]
    sides = None if module.in_float64 else choice(module.asks, up)
    if sides is None or sides[0] is not node or not isinstance(sides[1], ast.Constant):
        return
    if sides[1].value != "cpu" or not module.uncommented(up):
        return
    test = up.test.operand if isinstance(up.test, ast.UnaryOp) else up.test
    call = up.up
    wrapped = (
        isinstance(call, ast.Call)
        and call.args == [up]
        and not call.keywords
        and module.resolve(call.func) == "torch.device"
        and module.uncommented(call)
    )
    module.folds.append(Fold(node, test, up, call if wrapped else up))


def _candidate(node: ast.Constant) -> bool:
    if not isinstance(node.value, str) or isinstance(node.up, ast.JoinedStr):  # type: ignore[attr-defined]
        return False
    return node.value == "cuda" or bool(_WITH_INDEX.fullmatch(node.value))


def _pretended(node: ast.Constant) -> bool:
    """Whether a test gives an object another device than it has, `model.device = "cuda"`: it says
    what the program then does, and no tensor is there.
    """
    stmt = statement(node)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    if not (isinstance(target, ast.Attribute) and target.attr == "device"):
        return False
    owner = getattr(target.value, "id", "self")
    return owner not in ("self", "cls") and any(
        isinstance(up, FUNCTIONS) and up.name.startswith("test") for _, up in ancestors(node)
    )


def _constant(module: Module, node: ast.Constant) -> None:
    if _pretended(node) and not module.vendor:
        module.report(RULE, node, "portable", "a test gives an object this device",
                      tip="Leave it where no tensor is made there.")  # fmt: skip
        return
    if not module.vendor and _of_fork(module, node):
        says = "torch.random.fork_rng takes CUDA's devices here"
        tip = "Give it `device_type` too, where the device's module has a generator."
        module.report(RULE, node, "manual", says, tip=tip)
        return
    if not module.vendor and beside_vendor(node):
        tip = "Add the device's, or read the type of the device that is used."
        module.report(RULE, node, "portable", "the program has a name for each vendor", tip=tip)
        return
    if not module.vendor and _of_literal(module, node):
        module.report(
            RULE, node, "manual", "its annotation takes the words of a Literal alone",
            tip="Write `str` in the annotation, and the accelerator's name as the default.",
        )  # fmt: skip
        return
    found = role(module, node, "device")
    if found is None and not module.vendor and _beside_moved(node):
        found = Role.TYPE
    parts = module.source.string_parts(node)
    if found is not None and module.backend_left and not module.vendor:
        module.report(RULE, node, "manual", "the module asks for NCCL and does not import torch",
                      tip="Import torch, and convert it again.")  # fmt: skip
        return
    if found is None:
        if _is_name(module, node):
            return
        if not isinstance(node.up, ast.Expr | ast.Dict | ast.Subscript):  # type: ignore[attr-defined]
            module.report(
                RULE, node, "manual", f"{module.text(node)} stays: it may be no device",
                tip="If it is, write torch.accelerator.current_accelerator().type.",
                severity="info",
            )  # fmt: skip
        up: ast.AST = node.up  # type: ignore[attr-defined]
        listed = isinstance(up, ast.List | ast.Tuple | ast.Set)
        if isinstance(up, ast.Assign | ast.AnnAssign | ast.Return) or (
            goes_elsewhere(module, statement(node))
            # One of several devices, or of what belongs to one: cases.append((Net, "cuda")).
            or (listed and isinstance(up.up, ast.IfExp | ast.Call))  # type: ignore[attr-defined]
        ):
            module.names_left.append(node)
        elif isinstance(node.up, ast.Call | ast.keyword):  # type: ignore[attr-defined]
            module.said_in_tests.append(node)
        return
    joined = None if parts or _filled(module, node) else module.joined_parts(node)
    parts = parts or joined
    if parts is None or "b" in parts[0].lower() or "\\" in parts[2]:
        module.report(RULE, node, "manual", "a device string in several pieces")
        return
    if module.vendor:
        module.use_target()
        at = module.source.start(node) + len(parts[0]) + len(parts[1])
        whole = f"{parts[1]}{module.vendor}{parts[2][4:]}{parts[1]}"
        edits = [module.replace(node, whole) if joined else Edit(at, at + 4, module.vendor)]
    elif _whole_device(module, node):
        _device_call(module, node)
        return
    elif _filled(module, node):
        call = node.up.up  # type: ignore[attr-defined]
        at = module.source.start(node) + len(parts[0]) + len(parts[1])
        gap = len(parts[2]) - len(_packed(parts[2]))
        edits = [Edit(at, at + 5 + gap, "{}:"), module.insert_first(call, module.device_type(node))]
    elif node.value == "cuda":
        text = module.device(node) if found is Role.DEVICE else module.device_type(node)
        edits = [module.replace(node, _apart(module, node, text)), *_not_cpu(module, node)]
        _fold(module, node)
    else:
        edits = [module.replace(node, _apart(module, node, _indexed(module, node, parts)))]
    if not module.vendor and (node.value != "cuda" or _has_index(node)):
        if node.value == "cuda:0" and module.variables.one_device and _located_here(module, node):
            _device_itself(module, node)
            return
        edits += _without_index(module, node)
    module.change(RULE, node, edits, f"the accelerator in place of {module.text(node)}")


def _not_cpu(module: Module, node: ast.Constant) -> list[Edit]:
    """Edits for `"cpu" != x in ("gpu", accelerator.type)`: where there is no accelerator, the CPU
    is none of them. An assertion may find it there, as what it asks about is the CPU then.
    """
    among = node.up  # type: ignore[attr-defined]
    if not isinstance(among, ast.List | ast.Tuple | ast.Set):
        return []
    asked = among.up  # type: ignore[union-attr]
    if not isinstance(asked, ast.Compare) or asked.comparators != [among] or module.available(node):
        return []
    if any(getattr(n, "value", "") == "cpu" for n in among.elts):
        return []
    stmt, negative = statement(asked), isinstance(asked.ops[0], ast.NotIn)
    refuses = isinstance(stmt, ast.If) and any(isinstance(s, ast.Raise) for s in stmt.body)
    if refuses or isinstance(stmt, ast.Assert) or not isinstance(asked.left, _NAMED):
        return []
    source, quote = module.source, module.quote_for(node)
    start, end = source.start(asked), source.end(asked)
    prefix, edits = f"{quote}cpu{quote} != ", []
    if negative:
        at = source.skip(source.end(asked.left), also=b")")
        edits.append(Edit(at, source.skip(at + 3) + 2, "in"))
        prefix = "not " + prefix
    if module.parenthesised(asked, "x") != "x" or (
        negative and isinstance(asked.up, ast.UnaryOp)  # type: ignore[attr-defined]
    ):
        return [Edit(start, start, f"({prefix}"), *edits, Edit(end, end, ")")]
    return [Edit(start, start, prefix), *edits]


_NAMED = ast.Name | ast.Attribute | ast.Subscript


def _beside_moved(node: ast.Constant) -> bool:
    """Whether it is an argument of a call that gets something moved to the device too, which goes
    with it: `measure(Net().cuda(), sizes, "cuda")`.
    """
    call = node.up  # type: ignore[attr-defined]
    return node.value == "cuda" and isinstance(call, ast.Call) and node in call.args and any(
        isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "cuda" and not n.args
        for arg in call.args if arg is not node for n in ast.walk(arg)
    )  # fmt: skip


def _of_fork(module: Module, node: ast.Constant) -> bool:
    """Whether it is among the devices of torch.random.fork_rng, which are CUDA's as long as its
    `device_type` is not given.
    """
    return any(
        isinstance(up, ast.Call)
        and module.resolve(up.func) == "torch.random.fork_rng"
        and not any(k.arg == "device_type" for k in up.keywords)
        for _, up in ancestors(node)
    )


def _of_literal(module: Module, node: ast.Constant) -> bool:
    """Whether a default's annotation is a Literal, which no other name may stand for:
    `device: Literal["cuda", "cpu"] = "cuda"`. A question that chooses the default stays too.
    """
    child: ast.AST = node
    for child, up in ancestors(node):  # noqa: B007
        if not isinstance(up, ast.IfExp | ast.BoolOp):
            break
    annotation: ast.expr | None = None
    if isinstance(up, ast.AnnAssign) and up.value is child:
        annotation = up.annotation
    elif isinstance(up, FUNCTIONS):
        given = default_of(up.args, child)
        annotation = given.annotation if given is not None else None
    if annotation is None or not _says_literal(module, annotation):
        return False
    module.kept_questions.update(id(n) for n in ast.walk(child))
    return True


def _says_literal(module: Module, annotation: ast.expr) -> bool:
    """Whether an annotation has a Literal with "cuda", by a name of the module's too."""
    for part in ast.walk(annotation):
        if isinstance(part, ast.Subscript) and module.text(part.value).endswith("Literal"):
            return any(getattr(n, "value", "") == "cuda" for n in ast.walk(part.slice))
        if isinstance(part, ast.Name):
            values = [b.value for b in module.names.bindings(part)]
            if any(v is not None and not isinstance(v, ast.Name) and _says_literal(module, v)
                   for v in values):  # fmt: skip
                return True
    return False


def _is_name(module: Module, node: ast.Constant) -> bool:
    """Whether it names an attribute, or a variable of a command line: hasattr(x, "cuda"),
    add_argument("--cuda", dest="cuda").
    """
    up = node.up  # type: ignore[attr-defined]
    if isinstance(up, ast.keyword):
        return up.arg in ("dest", "metavar")
    if not isinstance(up, ast.Call):
        return False
    return module.text(up.func) == "hasattr" and up.args[1:] == [node]


def _whole_device(module: Module, node: ast.Constant) -> bool:
    """Whether it is all of `torch.device("cuda")`."""
    up = node.up  # type: ignore[attr-defined]
    return (
        node.value == "cuda"
        and isinstance(up, ast.Call)
        and up.args == [node]
        and not up.keywords
        and module.resolve(up.func) == "torch.device"
    )


def _device_call(module: Module, node: ast.Constant) -> None:
    call = node.up  # type: ignore[attr-defined]
    asked = call.up.up if _is_type(call.up) else call.up
    if (
        isinstance(asked, ast.Compare)
        and len(asked.ops) == 1
        and isinstance(asked.ops[-1], ast.Eq | ast.NotEq)
    ):
        _device_compared(module, asked, call)
        return
    edit = Edit(module.source.start(call), module.source.end(call), module.device_object(node))
    if module.change(RULE, call, [edit], f"the accelerator in place of {module.text(node)}"):
        root = module.root(call.func)
        module.gone.add(id(root))


def _is_type(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "type"


def _device_compared(module: Module, node: ast.Compare, call: ast.Call) -> None:
    """`x == torch.device("cuda")` to `x == accelerator != torch.device("cpu")`, which is true on no
    CPU, as before; `.type` of both alike.
    """
    if chooses_kernel(module, node):
        module.report(RULE, node, "manual", "it decides on a kernel that is for CUDA alone")
        return
    if stays_without_device(module, RULE, node):
        module.done.update(map(id, (call, call.args[0])))
        return
    source, quote = module.source, module.quote_for(node)
    of_type = _is_type(call.up)  # type: ignore[attr-defined]
    side: ast.expr = call.up if of_type else call  # type: ignore[attr-defined]
    if of_type:
        new, cpu = module.device_type(node), f"{quote}cpu{quote}"
    else:
        new = module.device_object(node)
        cpu = f"{module.torch(node)}.device({quote}cpu{quote})"
    left = side is node.left
    other = node.comparators[0] if left else node.left
    if module.text(other) == new:  # of the variable that is the accelerator itself
        edits = [Edit(source.start(side), source.end(side), cpu)]
        at = source.skip(source.end(node.left), also=b")")
        flipped = "!=" if isinstance(node.ops[0], ast.Eq) else "=="
        edits.append(Edit(at, at + 2, flipped))
    else:
        there = module.available(node)
        text = new if there else (f"{cpu} != {new}" if left else f"{new} != {cpu}")
        edits = [Edit(source.start(side), source.end(side), text)]
        if isinstance(node.ops[0], ast.NotEq) and not there:
            edits += negated(module, node)
    if module.change(RULE, node, edits, "never true on the CPU, as before"):
        module.gone.add(id(module.root(call.func)))
    module.done.update(map(id, (call, call.args[0])))


def _filled(module: Module, node: ast.Constant) -> bool:
    """Whether it is completed by `.format(…)` with places that have no names or numbers."""
    up = node.up  # type: ignore[attr-defined]
    if not (isinstance(up, ast.Attribute) and isinstance(up.up, ast.Call) and up.up.func is up):  # type: ignore[attr-defined]
        return False
    call = up.up  # type: ignore[attr-defined]
    filled = _packed(str(node.value)) in ("cuda:{}", "cuda:{:d}")
    return filled and bool(call.args) and not call.keywords


def _indexed(module: Module, node: ast.Constant, parts: tuple[str, str, str]) -> str:
    rest = _packed(parts[2])[4:]
    if "{" in rest:  # "cuda:{}".format(i)
        rest = rest.replace("{", "{{").replace("}", "}}")
    quote = module.quote_for(node) if module.in_fstring(node) else parts[1]
    return f"f{quote}{{{module.device_type(node)}}}{rest}{quote}"


def _packed(text: str) -> str:
    """A device's name without spaces before its index, which torch refuses: "cuda: 0"."""
    return re.sub(r"^cuda: +", "cuda:", text)


def _apart(module: Module, node: ast.expr, text: str) -> str:
    """`text` with spaces where it would touch a keyword: `else"cuda"`."""
    data, start, end = module.source.data, module.source.start(node), module.source.end(node)
    if data[start - 1 : start].isalnum():
        text = " " + text
    return text + " " if data[end : end + 1].isalpha() else text


def _fstring(module: Module, node: ast.JoinedStr) -> None:
    """f"cuda:{rank}": the name at the start is replaced, the rest stays."""
    first = node.values[0] if node.values else None
    if not isinstance(first, ast.Constant):
        return
    if len(node.values) == 1 and first.value == "cuda":
        found = role(module, node, "device")
        if found is not None and not module.vendor:
            new_text = module.device(node) if found is Role.DEVICE else module.device_type(node)
            module.change(RULE, node, [module.replace(node, _apart(module, node, new_text))],
                          f"the accelerator in place of {module.text(node)}")  # fmt: skip
            return
    if not re.match(r"cuda(:\d*)?$", str(first.value)):
        return
    if id(node) in module.done or surely_not_torch(module, node):
        return
    if module.backend_left and not module.vendor:
        return
    text = module.text(node)
    opening = re.match(r"""([fFrR]*)('{3}|"{3}|'|")cuda""", text)
    if role(module, node, "device", certain=True) is None:
        return
    plain = opening is not None and "f" not in opening.group(1).lower()  # "cuda:" f"{i}"
    rest = text[opening.end() :] if opening else ""
    if opening is None or (plain and not re.match(rf":?\d*{opening.group(2)}", rest)):
        module.report(RULE, node, "manual", "a device string in several pieces")
        return
    at = module.source.start(node) + opening.end() - len("cuda")
    new = module.vendor or f"{{{module.device_type(node)}}}"
    if module.vendor:
        module.use_target()
    edits = [Edit(at, at + 4, new)]
    if plain and not module.vendor:
        edits.append(Edit(module.source.start(node), module.source.start(node), "f"))
    if not module.vendor:
        edits += _without_index(module, node)
    module.change(RULE, node, edits, "the accelerator's name before the index")


def _without_index(module: Module, node: ast.expr) -> list[Edit]:
    """What a place where checkpoints are loaded to needs beside an index: no file names "cpu:0", so
    torch.load would not know where to put it.
    """
    value = _located(module, node)
    if value is None or module.guarded(node):
        return []
    quote = module.quote_for(node.up)  # type: ignore[attr-defined]
    asks = module.there(node)
    other = f"{quote}cpu{quote}"
    if isinstance(value, ast.Call) and module.resolve(value.func) == "torch.device":
        index = value.args[1:] or [k.value for k in value.keywords if k.arg == "index"]
        asked = index[0].func if index and isinstance(index[0], ast.Call) else None
        if asked is not None and module.resolve(asked) == "torch.cuda.current_device":
            return []  # which says None itself
        value, other = (index[0], "None") if index else (value.args[0], other)
    at = module.source.end(value)
    up = value.up  # type: ignore[attr-defined]
    if isinstance(up, ast.IfExp) and up.body is value:  # the other choice is not this one's
        start = module.source.start(value)
        return [Edit(start, start, "("), Edit(at, at, f" if {asks} else {other})")]
    return [Edit(at, at, f" if {asks} else {other}")]


def _located(module: Module, node: ast.expr) -> ast.expr | None:
    """The value that a string is in, where torch.load gets that as its map_location."""
    value = node
    while True:
        up = value.up  # type: ignore[attr-defined]
        completed = (
            isinstance(up, ast.BinOp) and isinstance(up.op, ast.Mod | ast.Add) and up.left is value
        )
        formatted = isinstance(up, ast.Attribute) and up.attr == "format"
        called = isinstance(up, ast.Call) and up.func is value
        made = isinstance(up, ast.Call) and up.args[:1] == [value]
        if not (
            completed
            or formatted
            or (called and isinstance(value, ast.Attribute))
            or (made and module.resolve(up.func) == "torch.device")
        ):
            break
        value = up
    choice: ast.expr = value  # the question is added to what it is a part of
    while isinstance(up, ast.IfExp) and choice is not up.test:
        choice, up = up, up.up  # type: ignore[attr-defined]
    if isinstance(up, ast.keyword):
        return value if up.arg == "map_location" else None
    if isinstance(up, ast.Call):
        there = module.resolve(up.func) == "torch.load" and up.args[1:2] == [choice]
        return value if there else None
    if isinstance(up, FUNCTIONS):
        arg = default_of(up.args, choice)
        return value if arg is not None and arg.arg in _locations(module) else None
    if isinstance(up, ast.Dict) and choice in up.values:
        key = up.keys[up.values.index(choice)]
        return value if getattr(key, "value", "") == "map_location" else None
    if isinstance(up, ast.AnnAssign) or (isinstance(up, ast.Assign) and len(up.targets) == 1):
        target = up.target if isinstance(up, ast.AnnAssign) else up.targets[0]
        if isinstance(target, ast.Name | ast.Attribute):
            return value if module.text(target) in _locations(module) else None
    return None


def _located_here(module: Module, node: ast.expr) -> bool:
    """Whether the string, or a torch.device of it, is an argument of torch.load itself."""
    top = _located(module, node)
    if top is None:
        return False
    while isinstance(top.up, ast.IfExp):  # type: ignore[attr-defined]
        top = top.up  # type: ignore[attr-defined]
    return not isinstance(top.up, ast.Assign | ast.AnnAssign)  # type: ignore[attr-defined]


def _device_itself(module: Module, node: ast.expr) -> None:
    """`map_location="cuda:0"` where there is one device: the device, or the CPU."""
    value = _located(module, node)
    assert value is not None
    edit = Edit(module.source.start(value), module.source.end(value), module.device(node))
    if module.change(RULE, value, [edit], f"the accelerator in place of {module.text(node)}"):
        module.gone.update(id(n) for n in ast.walk(value) if isinstance(n, ast.Name))
    module.done.add(id(node))


def _locations(module: Module) -> set[str]:
    """The variables that torch.load gets as its map_location."""
    found = set()
    for call in module.names.all(ast.Call):
        places = [k.value for k in call.keywords if k.arg == "map_location"]
        if module.resolve(call.func) == "torch.load":
            places += call.args[1:2]
        found |= {module.text(p) for p in places if isinstance(p, ast.Name | ast.Attribute)}
    return found


def _has_index(node: ast.Constant) -> bool:
    """Whether it is the first of `torch.device("cuda", i)`."""
    up = node.up  # type: ignore[attr-defined]
    return isinstance(up, ast.Call) and up.args[:1] == [node] and len(up.args + up.keywords) == 2
