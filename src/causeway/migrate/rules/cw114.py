"""CW114: the question whether there is a device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from causeway.migrate import flow, knowledge, vendors
from causeway.migrate.module import Module, Use, alone
from causeway.migrate.names import FUNCTIONS, after, ancestors, called, statement
from causeway.migrate.rule import Rule
from causeway.migrate.rules import beside, elsewhere, labels, other_devices, table
from causeway.migrate.rules.kernels import (
    asks_capability,
    builds_for_cuda,
    compiles_for_cuda,
    names_build,
    sets_switches,
)
from causeway.migrate.rules.roles import surely_not_torch
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW114",
    name="is-available",
    title="Whether there is a device",
    why="torch.cuda.is_available() is False on every other accelerator, and the program runs on "
    "the CPU.",
    by_hand="`torch.accelerator.is_available()`. Where it decides on code that is for CUDA alone, "
    "leave it.",
    before='import torch\n\ndevice = "cuda" if torch.cuda.is_available() else "cpu"\n',
    after="import torch\n\ndevice = torch.accelerator.current_accelerator().type if "
    'torch.accelerator.is_available() else "cpu"\n',
)


def run(module: Module) -> None:
    """Runs after the others: a question that decides on code which stays CUDA's stays too."""
    module.leave_arguments()
    module.leave_counts()
    for call in module.names.all(ast.Call):
        _has_name(module, call)
    for use in module.uses("torch.cuda.is_available"):
        api = knowledge.find(use.api)
        if api is None:
            continue
        if _decides_on_cuda(module, use):
            module.report(
                RULE, use.node, "portable", "it decides on code that is for CUDA alone",
                tip="It is False on other devices, so that code is left out there.", api=use.api,
            )  # fmt: skip
        elif id(use.call) in module.kept_questions:
            module.report(
                RULE, use.node, "portable", 'it answers who asks for "cuda"',
                tip="Other devices are not asked for by that name.", api=use.api,
            )  # fmt: skip
        elif not module.vendor and use.call and elsewhere.locates_checkpoint(module, use.call):
            module.report(
                RULE, use.node, "portable", "a checkpoint goes back to CUDA's device",
                tip="Leave it: other devices read it to the CPU first.", api=use.api,
            )  # fmt: skip
        elif not module.vendor and use.call and _several_copies(module, use.call):
            module.report(
                RULE, use.node, "portable", "Lightning trains by DDP here, on no device of Apple's",
                tip="Leave it, or choose accelerator and strategy by what Lightning has for the "
                "device.", api=use.api,
            )  # fmt: skip
        elif not module.vendor and use.call and (word := _of_lightning(use.call)):
            _lightning(module, use, word)
        elif not module.vendor and use.call and (
            _chooses_lightning(module, use.call)
            or labels.noted_cuda_alone(module, statement(use.call))
        ):  # fmt: skip
            module.report(
                RULE, use.node, "portable", "a comment or Lightning's word says that it is CUDA's",
                tip='Leave it, or ask for the device that is used. Lightning has "auto".',
                api=use.api,
            )  # fmt: skip
        elif not module.vendor and use.call and labels.says_nvidia(use.call):
            module.report(
                RULE, use.node, "portable", "the answer has a name that says NVIDIA",
                tip="Leave it: it is about one vendor's device.", api=use.api,
            )  # fmt: skip
        elif not module.vendor and use.call and other_devices.asks_another(module, use.call):
            module.report(
                RULE, use.node, "portable", "another vendor's device is asked for beside it",
                tip="Leave it, or ask for any other device in a branch of its own.", api=use.api,
            )  # fmt: skip
        elif (
            not module.vendor
            and use.call
            and (labels.is_label(module, use.call) or labels.named_label(module, use.call))
        ):
            module.report(
                RULE, use.node, "portable", "a text beside it says that it is about CUDA",
                tip="Leave it, or show torch.accelerator.current_accelerator() too.", api=use.api,
            )  # fmt: skip
        elif (
            surely_not_torch(module, use.node)
            or (use.call and elsewhere.is_switch_of_others(module, use.call))
            or (use.call and elsewhere.named_switch_of_others(module, use.call))
            or (use.call and elsewhere.feeds_faiss(module, use.call))
            or (use.call and (_counts_gpus(use.call) or _chooses_number(use.call)))
        ) and not module.vendor:
            module.report(
                RULE, use.node, "portable", "an argument of a library that serves CUDA alone",
                tip="Leave it, or give the library another device.", api=use.api,
            )  # fmt: skip
        elif (
            use.call and not module.vendor
            and ((names := _fragile(module, use)) or module.in_float64
                 or other_devices.other_settings(module, use.call))
        ):  # fmt: skip
            _widened(module, use, names)
        else:
            table.apply(module, RULE, use, api)


def _counts_gpus(call: ast.Call) -> bool:
    """Whether a question chooses a Trainer's number of GPUs in a dictionary of its arguments, or
    what goes with that: `{"gpus": 1 if torch.cuda.is_available() else 0}`.
    """
    choice = call.up  # type: ignore[attr-defined]
    held = choice.up if isinstance(choice, ast.IfExp) and choice.test is call else None  # type: ignore[attr-defined]
    if not isinstance(held, ast.Dict) or choice not in held.values:
        return False
    return any(  # of itself, or of what is chosen with it: "strategy"
        getattr(key, "value", "") == "gpus" and (
            value is choice
            or (isinstance(value, ast.IfExp) and ast.dump(value.test) == ast.dump(call))
        )
        for key, value in zip(held.keys, held.values, strict=True)
    )  # fmt: skip


_NUMBER = re.compile(r"\d+(?:, *\d+)*")


def _chooses_number(call: ast.Call) -> bool:
    """Whether a question chooses a number of CUDA's device as a text, which torch does not take:
    `"0" if torch.cuda.is_available() else "cpu"`, as Ultralytics names it.
    """
    choice = call.up  # type: ignore[attr-defined]
    if not isinstance(choice, ast.IfExp) or choice.test is not call:
        return False
    number = getattr(choice.body, "value", None)
    return getattr(choice.orelse, "value", "") == "cpu" and (
        isinstance(number, str) and _NUMBER.fullmatch(number) is not None
    )


_COPIES = re.compile(r"ddp|fsdp|deepspeed", re.I)


def _several_copies(module: Module, call: ast.Call) -> bool:
    """Whether a question chooses arguments of Lightning's Trainer, which is given a strategy of
    several processes: it refuses that on Apple's device, where the answer is yes then.
    """
    for _, up in ancestors(call):
        if isinstance(up, ast.Call) and module.resolve(up.func).startswith(_LIGHTNING):
            names = ("strategy", "distributed_backend")
            given = [k.value for k in up.keywords if k.arg in names]
            return any(_COPIES.search(module.text(value)) is not None for value in given)
    return False


_LIGHTNING = ("lightning.", "pytorch_lightning.", "lightning_fabric.")


def _of_lightning(call: ast.Call) -> ast.keyword | None:
    """The argument of which a question chooses Lightning's word: `accelerator="gpu" if
    torch.cuda.is_available() else "cpu"`, where gpu means CUDA's device or Apple's.
    """
    choice = call.up  # type: ignore[attr-defined]
    if not isinstance(choice, ast.IfExp) or choice.test is not call:
        return None
    keyword = choice.up  # type: ignore[attr-defined]
    if not isinstance(keyword, ast.keyword) or keyword.arg not in ("accelerator", "gpus"):
        return None
    words = getattr(choice.body, "value", ""), getattr(choice.orelse, "value", "")
    return keyword if keyword.arg == "gpus" or words in _WORDS else None


def _chooses_lightning(module: Module, call: ast.Call) -> bool:
    """Whether a question, alone or beside others, chooses that word by a variable:
    `word = "gpu" if torch.cuda.is_available() and wanted else "cpu"`, `Trainer(accelerator=word)`.
    """
    choice = next((up for _, up in ancestors(call) if isinstance(up, ast.IfExp | ast.stmt)), None)
    if not isinstance(choice, ast.IfExp) or not module.within(call, choice.test):
        return False
    words = getattr(choice.body, "value", ""), getattr(choice.orelse, "value", "")
    return words == ("gpu", "cpu") and any(
        getattr(place.up, "arg", "") == "accelerator"  # type: ignore[attr-defined]
        for place in flow.arrivals(module.names, choice)
        if not module.within(place, choice)
    )


_WORDS = (("gpu", "cpu"), ("cuda", "cpu"), ("gpu", None), ("gpu", "auto"))


def _lightning(module: Module, use: Use, keyword: ast.keyword) -> None:
    """Lightning's own word for the accelerator that is there, or the question as it was."""
    api = module.resolve(keyword.up.func)  # type: ignore[attr-defined]
    known = api.startswith(_LIGHTNING)
    if keyword.arg != "accelerator" or not known:
        module.report(
            RULE, use.node, "portable", "it chooses Lightning's word for CUDA's device",
            tip='Lightning has `accelerator="auto"` for the device that is there.', api=use.api,
        )  # fmt: skip
        return
    choice, quote = keyword.value, module.quote_for(keyword)
    edit = Edit(module.source.start(choice), module.source.end(choice), f"{quote}auto{quote}")
    if module.change(RULE, choice, [edit], "Lightning's word for the accelerator that is here",
                     api=use.api):  # fmt: skip
        module.gone.add(id(module.root(use.node)))
    module.done.update(id(n) for n in ast.walk(choice))


def _has_name(module: Module, call: ast.Call) -> None:
    """`hasattr(torch.cuda, "x")` before `torch.get_device_module().x`: the same module is asked."""
    if getattr(call.func, "id", "") != "hasattr" or len(call.args) != 2 or module.vendor:
        return
    owner, name = call.args
    if module.resolve(owner) != "torch.cuda" or not isinstance(name, ast.Constant):
        return
    around = next((up for _, up in ancestors(call) if isinstance(up, ast.stmt)), call)
    if any(n == name.value and module.within(node, around) for node, n in module.fragile):
        new = f"{module.torch(call)}.get_device_module()"
        module.change(RULE, call, [module.replace(owner, new)], "the module of the device in use",
                      tip="The name behind it is asked of that module.")  # fmt: skip


def _widened(module: Module, use: Use, names: list[str]) -> None:
    """Ask also whether the device has what the code behind the question needs, which was CUDA's."""
    call, quote, torch = use.call, module.quote_for(use.node), module.torch(use.node)
    assert call is not None
    wanted = f" and hasattr({torch}.get_device_module(), {quote}"
    asks = "".join(f"{wanted}{name}{quote})" for name in names)
    tip = f"torch.{knowledge.lacking(names[0])[0]} has no `{names[0]}`." if names else ""
    if module.in_float64:
        asks += f" and not {torch}.backends.mps.is_available()"
        tip = "Apple's device has no float64; take the question away where float32 will do."
    elif others := other_devices.other_settings(module, call):
        asks += "".join(f" and not {torch}.{name}.is_available()" for name in others)
        tip = tip or "The branch behind it has settings of its own for that device."
    edits = [*module.rename(use, "torch.accelerator.is_available")]
    start, end = module.source.start(call), module.source.end(call)
    inside = isinstance(call.up, ast.If | ast.IfExp | ast.Assign | ast.Return | ast.keyword) or (  # type: ignore[attr-defined]
        isinstance(call.up, ast.BoolOp) and isinstance(call.up.op, ast.And)  # type: ignore[attr-defined]
    )
    edits += [Edit(end, end, asks if inside else asks + ")")]
    edits += [] if inside else [Edit(start, start, "(")]
    module.change(
        RULE, call, edits,
        "whether there is a device, and whether its module has the name" if names
        else "whether there is a device, which has float64" if module.in_float64
        else "whether there is a device that has no branch of its own",
        tip=tip, api=use.api,
    )  # fmt: skip
    module.done.add(id(use.node))


def _after(node: ast.If) -> list[ast.AST]:
    """What runs only where `if not available: return` did not return: the statements behind it."""
    found: list[ast.AST] = [*node.orelse]
    if not isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue):
        return found
    return [*found, *after(node)]


def _regions(use: Use) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """What is only evaluated where the answer is yes, from the inside out, with what holds it."""
    negated = False
    for child, up in ancestors(use.node):
        region: list[ast.AST] = []
        if isinstance(up, ast.UnaryOp) and isinstance(up.op, ast.Not):
            negated = not negated
        elif negated and isinstance(up, ast.BoolOp) and isinstance(up.op, ast.Or):
            region = [v for v in up.values if v is not child]
        elif negated and isinstance(up, ast.If) and up.test is child:
            region = _after(up)
        elif negated:
            return
        elif isinstance(up, ast.BoolOp) and isinstance(up.op, ast.And):
            region = [v for v in up.values if v is not child]
        elif isinstance(up, ast.IfExp) and up.test is child:
            region = [up.body]
        elif isinstance(up, ast.If) and up.test is child:
            region = list(up.body)
        elif isinstance(up, ast.FunctionDef):
            return
        yield up, region
        if isinstance(up, ast.stmt):
            return


def _by_name(module: Module, use: Use) -> Iterator[ast.AST]:
    """What is only evaluated where the answer is yes, of an answer that has a name in its function:
    `cuda = torch.cuda.is_available()`. Nothing where the name is read for anything else.
    """
    stmt = statement(use.node)
    if not isinstance(stmt, ast.Assign) or stmt.value is not use.call or len(stmt.targets) != 1:
        return
    target = stmt.targets[0]
    function = next((up for _, up in ancestors(stmt) if isinstance(up, FUNCTIONS)), None)
    if function is None or not isinstance(target, ast.Name):
        return
    regions: list[ast.AST] = []
    for name in ast.walk(function):
        if isinstance(name, ast.Name) and name.id == target.id and isinstance(name.ctx, ast.Load):
            up = name.up  # type: ignore[attr-defined]
            if not isinstance(up, ast.If | ast.IfExp) or up.test is not name:
                return
            regions += up.body if isinstance(up.body, list) else [up.body]
    yield from regions


def _by_attribute(use: Use) -> Iterator[ast.AST]:
    """What its class only does where the answer is yes, that an attribute keeps:
    `self.cuda = torch.cuda.is_available()`, `if self.cuda:`.
    """
    stmt = statement(use.node)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is use.call else None
    home = next((up for _, up in ancestors(stmt) if isinstance(up, ast.ClassDef)), None)
    if home is None or not isinstance(target, ast.Attribute):
        return
    for node in ast.walk(home):
        if isinstance(node, ast.If) and getattr(node.test, "attr", "") == target.attr:
            yield from node.body


# Libraries for CUDA alone, as messages name them.
_LIBRARY = re.compile(rf"\b(?:{vendors.words('kernels', 'named', 'bindings')})\b", re.I)


def _for_library(module: Module, use: Use) -> bool:
    """Whether the answer no ends with a message that names a library for CUDA alone:
    `assert torch.cuda.is_available(), "apex needs CUDA"`, `print("no cuDNN"); return`.
    """
    stmt = statement(use.node)
    if isinstance(stmt, ast.Assert) and stmt.msg is not None:
        says = bool(_LIBRARY.search(module.text(stmt.msg)))
        return says or labels.says_only_cuda(module, stmt.msg)
    if isinstance(stmt, ast.If) and beside.guards_package(module, stmt):
        return True
    if isinstance(stmt, ast.If) and isinstance(stmt.body[-1], ast.Raise | ast.Return):
        asked = any(node is use.node for node in ast.walk(stmt.test))
        said = [
            n.value for part in stmt.body for n in ast.walk(part) if isinstance(n, ast.Constant)
        ]  # fmt: skip
        return asked and any(_LIBRARY.search(text) for text in said if isinstance(text, str))
    return False


def _decides_on_cuda(module: Module, use: Use) -> bool:
    if _for_library(module, use):
        return True
    if beside.beside_narrow(use.node) or elsewhere.copies_among_devices(module, use.node):
        return True
    if use.call and beside.chooses_module(module, use.call):
        return True
    if any(labels.asks_nvidia(module, part) for part in _by_attribute(use)):
        return True
    if names_build(use.node) or any(builds_for_cuda(node) for node in _by_name(module, use)):
        return True
    if _builds_extension(module) or _of_compiled(module, use) or _of_graphs_class(module, use):
        return True
    if beside.of_graphs(use.node) or labels.in_requirement(use.node):
        return True
    if beside.beside_build(module, use.node):
        return True
    if any(module.within(n, test) for test in _tests(use.node) for n in module.said_in_tests):
        return True
    if any(_answered_by(module, use, n) for n in module.types_left):
        return True
    asserted = statement(use.node)
    if isinstance(asserted, ast.Assert) and any(
        module.within(b, node) for b in module.breaking for node in after(asserted)
    ):
        return True
    for up, region in _regions(use):
        if any(builds_for_cuda(node) or beside.sets_kernels(node) for node in region):
            return True
        if any(elsewhere.hands_cudas_module(module, part) for part in region):
            return True
        funcs = (n.func for part in region for n in ast.walk(part) if isinstance(n, ast.Call))
        if any(asks_capability(module, func) for func in funcs):
            return True
        if any(labels.asks_nvidia(module, part) for part in region):
            return True
        if any(elsewhere.puts_faiss_on_gpus(module, part) for part in region):
            return True
        if isinstance(up, ast.If) and up.body and labels.says_cuda_alone(module, up):
            return True
        if isinstance(up, ast.If) and beside.has_torchs_code(up):
            return True
        if isinstance(up, ast.If) and region == up.body and labels.shows_cuda(module, up.body):
            return True
        if isinstance(up, ast.If) and other_devices.is_for_each(module, up):
            return True
        if any(beside.cannot_do_without(module, node) for node in region):
            return True
        needed = beside.beside_package(module, use.node, region) or _reads_version(module, region)
        if needed and not _converted(module, region):
            return True
        if isinstance(up, ast.If) and region and all(sets_switches(module, n) for n in region):
            return True
        stays = [b for b in module.breaking if any(module.within(b, node) for node in region)]
        named = any(module.within(n, node) for n in module.names_left for node in region)
        if stays or named:
            if not isinstance(up, ast.If) or not _converted(module, region):
                return True
            if not all(_guard(module, node, up) for node in stays):
                return True
    return False


def _of_compiled(module: Module, use: Use) -> bool:
    """Whether a question is about the kernels that its module compiles for CUDA, and chooses no
    device.
    """
    up = use.call.up if use.call else None  # type: ignore[attr-defined]
    return not isinstance(up, ast.IfExp) and compiles_for_cuda(module)


_GRAPHS = ("torch.cuda.CUDAGraph", "torch.cuda.graph")


def _of_graphs_class(module: Module, use: Use) -> bool:
    """Whether the answer no ends the making of an object of a class that records CUDA graphs."""
    stmt = statement(use.node)
    home = next((up for _, up in ancestors(stmt) if isinstance(up, ast.ClassDef)), None)
    raises = isinstance(stmt, ast.If) and isinstance(stmt.body[-1], ast.Raise)
    return raises and home is not None and any(
        isinstance(n, ast.Attribute | ast.Name) and module.resolve(n) in _GRAPHS
        for n in ast.walk(home)
    )  # fmt: skip


def _answered_by(module: Module, use: Use, node: ast.AST) -> bool:
    """Whether a question, or a name for its answer, chooses a value: `cuda = …is_available()`,
    `kind = "torch.cuda.FloatTensor" if cuda else "torch.FloatTensor"`.
    """
    choice = node.up  # type: ignore[attr-defined]
    if not isinstance(choice, ast.IfExp) or choice.body is not node:
        return False
    if choice.test is use.call:
        return True
    bound = module.names.bindings(choice.test) if isinstance(choice.test, ast.Name) else []
    return len(bound) == 1 and bound[0].value is not None and any(
        n is use.call for n in ast.walk(bound[0].value)
    )  # fmt: skip


def _tests(node: ast.AST) -> list[ast.AST]:
    """The function of a test that a node is in."""
    homes = [up for _, up in ancestors(node) if isinstance(up, FUNCTIONS)]
    return [home for home in homes if home.name.startswith("test")]


def _reads_version(module: Module, region: list[ast.AST]) -> bool:
    """Whether what a question decides on reads the version of CUDA."""
    return any(
        isinstance(n, ast.Attribute) and module.resolve(n) == "torch.version.cuda"
        for part in region for n in ast.walk(part)
    )  # fmt: skip


def _converted(module: Module, region: list[ast.AST]) -> bool:
    """Whether something of what a question decides on was converted."""
    body = [(module.source.start(n), module.source.end(n)) for n in region]
    return any(a <= e.start < b for e in module.edits for a, b in body)


def _builds_extension(module: Module) -> bool:
    """Whether a module builds an extension for CUDA: all its questions are about that."""
    return "CUDAExtension" in module.source.text and any(
        called(n) == "CUDAExtension" for n in module.names.all(ast.Call)
    )


def _guard(module: Module, node: ast.AST, around: ast.If) -> bool:
    """Ask for CUDA before a statement that stays CUDA's, among others that serve every device.
    Whether that is asked there now: it cannot be asked before `properties = …`.
    """
    written = statement(node)
    if _asked_inside(module, written, around):
        return True
    stmt = alone(module, written.value) if isinstance(written, ast.Expr) else None
    if stmt is None:
        return False
    if id(stmt) in module.done:
        return True
    source, start = module.source, module.source.start(stmt)
    if source.place(start)[0] != source.place(source.end(stmt))[0]:
        return False  # a string over several lines must not be indented
    indent = source.slice(source.line_start(start), start)
    asks = f"if {module.torch(stmt)}.cuda.is_available():{source.newline}{indent}{module.indent}"
    edit = Edit(start, start, asks)
    if module.change(
        RULE, stmt, [edit], "this alone stays CUDA's", tip="What is around it serves every device.",
    ):  # fmt: skip
        module.guards.append((stmt, edit))
    return True


def _asked_inside(module: Module, stmt: ast.stmt, around: ast.If) -> bool:
    """Whether another question is between a statement and the one around it."""
    for child, up in ancestors(stmt):
        if up is around:
            return False
        if isinstance(up, ast.If) and child in up.body and module.asks(up.test):
            return True
    return False


def _fragile(module: Module, use: Use) -> list[str]:
    """Names behind the question that some devices' modules lack, with nothing to stand in."""
    regions = [*(region for _, region in _regions(use)), list(_where_true(module, use))]
    return sorted({
        name for region in regions for node, name in module.fragile
        if any(module.within(node, around) for around in region)
    })  # fmt: skip


def _where_attribute(module: Module, name: str) -> Iterator[ast.AST]:
    """What runs only where an attribute is true: `if self.use_cuda:`, and what is behind
    `if not self.use_cuda: return`.
    """
    choices: list[ast.If | ast.IfExp] = [*module.names.all(ast.If), *module.names.all(ast.IfExp)]
    for choice in choices:
        test = choice.test
        if getattr(test, "attr", "") == name:
            yield from choice.body if isinstance(choice.body, list) else [choice.body]
        elif isinstance(test, ast.UnaryOp) and getattr(test.operand, "attr", "") == name and (
            isinstance(test.op, ast.Not) and isinstance(choice, ast.If)
        ):  # fmt: skip
            yield from _after(choice)


def _where_true(module: Module, use: Use) -> Iterator[ast.AST]:
    """The branches for which a name must be true that can only be where the answer is yes:
    `cuda = not cpu and torch.cuda.is_available()`, and `if cuda:` in the same function; the same of
    `False if cpu else torch.cuda.is_available()`, and of an attribute in the whole module.
    """
    stmt = statement(use.node)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return
    value, target = stmt.value, stmt.targets[0]
    needed = value.values if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And) else [
        value,
    ]  # fmt: skip
    if isinstance(value, ast.IfExp):  # False if cpu else torch.cuda.is_available()
        sides = [value.body, value.orelse]
        needed = sides if any(getattr(side, "value", "") is False for side in sides) else []
    function = next((up for _, up in ancestors(stmt) if isinstance(up, FUNCTIONS)), None)
    if use.call not in needed:
        return
    if isinstance(target, ast.Attribute):
        yield from _where_attribute(module, target.attr)
    if function is None or not isinstance(target, ast.Name):
        return
    for choice in ast.walk(function):
        if isinstance(choice, ast.If | ast.IfExp) and getattr(choice.test, "id", "") == target.id:
            yield from choice.body if isinstance(choice.body, list) else [choice.body]
