"""All or nothing: a change that depends on a question which stays CUDA's is taken back.

The rules look at places; these look at what holds several. Run when all of the rules have run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from causeway.migrate.module import Module
from causeway.migrate.names import FUNCTIONS, after, all_arguments, ancestors

_COMPARES = ("CW103", "CW115")  # what compares with the device
_ALL = ("CW10", "CW11", "CW14", "CW15")  # less autocast, whose import may have moved
_NEAR = 2000  # bytes of a statement; a longer one is for more than the question
_SHORT = 3  # statements; of a longer branch most serves every device
_MOVES = ("CW101", "CW102", "CW104")  # what names or moves to the device
# Imports of torch.cuda's names: each place that uses one was written for where it comes from now.
_IMPORTS = "CW116"
# What takes other arguments where it comes from now: Event(True).
_BY_IMPORT = ("CW104", "CW106")


def run(module: Module) -> None:
    """Take back what would be half of a change."""
    if module.vendor or not any(d.kind == "changed" for d in module.drafts):
        return
    _by_default(module)
    _behind_names(module)
    _before_breaking(module)
    _beside_names(module)
    _beside_questions(module)
    _beside_breaking(module)
    _beside_untold(module)
    _behind_questions(module)
    _for_each(module)
    _for_nvidia(module)
    _defaults(module)
    _before_torch(module)


def _stays(module: Module, node: ast.expr) -> bool:
    """Whether nothing of an expression is changed, nor what the import of a name in it brings."""
    start, end = module.source.start(node), module.source.end(node)
    return not any(start <= e.start and e.end <= end for e in module.edits) and not any(
        d.kind == "changed" and not d.edits and start <= d.start and d.end <= end
        for d in module.drafts
    )


def _compared(module: Module) -> Iterator[ast.Compare]:
    """Comparisons with "cuda", `x == "cuda"`, that stay as they are."""
    for compare in module.names.all(ast.Compare):
        sides = (compare.left, *compare.comparators)
        named = any(getattr(side, "value", "") in ("cuda", "cuda:0") for side in sides)
        if named and len(compare.ops) == 1 and _stays(module, compare):
            yield compare


def _behind_names(module: Module) -> None:
    """`if d == "cuda": x = x.cuda()`: what is behind a comparison that stays is CUDA's."""
    for compare in _compared(module):
        up = compare.up  # type: ignore[attr-defined]
        if isinstance(compare.ops[0], ast.In) and isinstance(up, ast.IfExp) and up.test is compare:
            # "cuda" if "cuda" in backends else …: the word that was found
            low, high = module.source.start(up.body), module.source.end(up.body)
            _take(module, low, high, 'it is the word that was found, "cuda"', "CW101")
        if not isinstance(compare.ops[0], ast.Eq):
            continue
        for child, up in ancestors(compare):
            if isinstance(up, ast.If | ast.IfExp) and up.test is child:
                body = up.body if isinstance(up.body, list) else [up.body]
                low, high = module.source.start(body[0]), module.source.end(body[-1])
                _take(module, low, high, 'it is behind a comparison with "cuda" that stays', "CW1")
            if not isinstance(up, ast.BoolOp) or not isinstance(up.op, ast.And):
                break


def _before_breaking(module: Module) -> None:
    """`if d.type == "cuda": p = torch.cuda.get_device_properties(d)`: a comparison stays with a
    call that stays CUDA's, and is all that it decides on; or `if not x.is_cuda: return False`, and
    the call behind it.
    """
    for kind in (ast.If, ast.IfExp) if module.breaking else ():
        for choice in module.names.all(kind):
            body = choice.body if isinstance(choice.body, list) else [choice.body]  # type: ignore[attr-defined]
            if _leaves(choice):
                body = after(choice)  # type: ignore[arg-type]
            elif len(body) > _SHORT:
                continue
            if not any(module.within(n, part) for n in module.breaking for part in body):
                continue
            test = choice.test  # type: ignore[attr-defined]
            says = "it decides on a call that stays CUDA's"
            _take(module, module.source.start(test), module.source.end(test), says, *_COMPARES)


def _leaves(choice: ast.AST) -> bool:
    """Whether a function is left where a question is denied, alone or beside others."""
    if not isinstance(choice, ast.If) or choice.orelse:
        return False
    asked = choice.test.values if isinstance(choice.test, ast.BoolOp) else [choice.test]
    denied = any(
        (isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.Not))
        or (isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.NotEq))
        for n in asked
    )
    both = isinstance(choice.test, ast.BoolOp) and isinstance(choice.test.op, ast.And)
    return denied and not both and isinstance(choice.body[-1], ast.Return | ast.Raise)


def _beside_names(module: Module) -> None:
    """`d.startswith("cuda") and torch.cuda.is_available()`: what asks torch stays beside a name of
    CUDA's that does, for the two say one thing.
    """
    for named in (*_compared(module), *_prefixes(module)):
        joined = None
        for _, up in ancestors(named):
            if not isinstance(up, ast.BoolOp | ast.UnaryOp):
                break
            joined = up if isinstance(up, ast.BoolOp) else joined
        if joined is not None:
            low, high = module.source.start(joined), module.source.end(joined)
            _take(module, low, high, "a name of CUDA's beside it stays", *_COMPARES, "CW114")


def _prefixes(module: Module) -> Iterator[ast.Call]:
    """Calls of `x.startswith("cuda")` that stay as they are."""
    for call in module.names.all(ast.Call):
        first = getattr(call.args[0], "value", "") if len(call.args) == 1 else ""
        named = getattr(call.func, "attr", "") == "startswith" and first in ("cuda", "cuda:")
        if named and _stays(module, call):
            yield call


def _beside_questions(module: Module) -> None:
    """`d.type == "cuda" and torch.cuda.is_available()`: a comparison stays beside a question that
    does, and so does a number of devices.
    """
    for call in module.names.all(ast.Call):
        asked = module.resolve(call.func) or module.text(call.func)  # a function may be given torch
        if asked != "torch.cuda.is_available":
            continue
        joined = call.up  # type: ignore[attr-defined]
        if isinstance(joined, ast.UnaryOp):  # no device is there that was asked for
            joined = joined.up  # type: ignore[attr-defined]
        if not _stays(module, call):
            continue
        if isinstance(joined, ast.BoolOp) and isinstance(joined.op, ast.And):
            low, high = module.source.start(joined), module.source.end(joined)
            says = "the question beside it stays CUDA's"
            _take(module, low, high, says, *_COMPARES, "CW105")


def _beside_breaking(module: Module) -> None:
    """`is_bf16_supported() and get_device_properties(0).major >= 8`: nothing of a condition with a
    call that stays CUDA's is changed.
    """
    for node in module.breaking:
        joined = None
        for _, up in ancestors(node):
            if isinstance(up, ast.stmt):
                break
            joined = up if isinstance(up, ast.BoolOp) else joined
        if joined is not None:
            low, high = module.source.start(joined), module.source.end(joined)
            _take(module, low, high, "a call beside it stays CUDA's", *_ALL)


def _beside_untold(module: Module) -> None:
    """Where torch may be missing, a function that names the device without it asks for CUDA's: its
    questions, `if not torch.cuda.is_available(): return "cpu"`, and its numbers stay with that.
    """
    for node in module.untold:
        child, function = next(
            ((c, up) for c, up in ancestors(node) if isinstance(up, FUNCTIONS)), (node, None)
        )
        if function is not None and child in function.body:
            low, high = module.source.start(function), module.source.end(function)
            says = "a name of CUDA's device beside it stays"
            _take(module, low, high, says, "CW105", "CW114")


def _behind_questions(module: Module) -> None:
    """`if not torch.cuda.is_available(): return`, where that stays, and `if x.is_cuda:`: a few
    statements behind it stay too.
    """
    asked: list[ast.expr] = [
        call for call in module.names.all(ast.Call)
        if module.resolve(call.func) == "torch.cuda.is_available"
    ]  # fmt: skip
    asked += [n for n in module.names_left if isinstance(n, ast.Attribute) and n.attr == "is_cuda"]
    for question in asked:
        start, end = module.source.start(question), module.source.end(question)
        touched = any(e.start <= end and start <= e.end for e in module.edits)
        if touched or not _stays(module, question) or module.kept(question):
            continue
        for part in (*_only_there(question), *_by_name(question, module)):
            low, high = module.source.start(part), module.source.end(part)
            if high - low < _NEAR:
                says = "it is behind a question that stays CUDA's"
                _take(module, low, high, says, *_ALL)
                _take(module, low, high, says, "CW120", wholly=True)


def _for_each(module: Module) -> None:
    """`for i in range(torch.cuda.device_count())`, where that stays: so does what is done for each
    device.
    """
    for loop in module.names.all(ast.For):
        counts = [
            n for n in ast.walk(loop.iter)
            if isinstance(n, ast.Call) and module.resolve(n.func) == "torch.cuda.device_count"
        ]  # fmt: skip
        low, high = module.source.start(loop.body[0]), module.source.end(loop.body[-1])
        left = any(_stays(module, count) and not module.kept(count) for count in counts)
        if left and high - low < _NEAR:
            _take(module, low, high, "it is for each device of CUDA's, which stay", *_ALL)


def _for_nvidia(module: Module) -> None:
    """`if self.use_nvidia:`, what is behind a switch with NVIDIA's name."""
    for branch in module.names.all(ast.If):
        name = getattr(branch.test, "attr", getattr(branch.test, "id", ""))
        low, high = module.source.start(branch.body[0]), module.source.end(branch.body[-1])
        if "nvidia" in name.lower() and high - low < _NEAR:
            _take(module, low, high, "it is behind a switch with NVIDIA's name", *_ALL)


def _by_name(question: ast.expr, module: Module) -> Iterator[ast.AST]:
    """What is only evaluated where an answer is yes that has a name of its own, which is set once:
    `cuda = torch.cuda.is_available()`, `device = "cuda" if cuda else "cpu"`, `if cuda:`.
    """
    stmt = question.up  # type: ignore[attr-defined]
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return
    held = module.names.holder(target.id, target.scope)  # type: ignore[attr-defined]
    if held is None or len(held.bindings[target.id]) != 1:
        return
    for name in module.names.all(ast.Name):
        up = name.up  # type: ignore[attr-defined]
        if not (name.id == target.id and isinstance(up, ast.If | ast.IfExp) and up.test is name):
            continue
        if module.names.holder(name.id, name.scope) is held:  # type: ignore[attr-defined]
            yield from up.body if isinstance(up.body, list) else [up.body]


def _only_there(question: ast.expr) -> Iterator[ast.AST]:
    """What is only evaluated where the answer is yes, and asks nothing itself."""
    denied = False
    for child, up in ancestors(question):
        if isinstance(up, ast.UnaryOp) and isinstance(up.op, ast.Not):
            denied = not denied
        elif isinstance(up, ast.BoolOp):
            if isinstance(up.op, ast.And) is denied:
                return
        elif isinstance(up, ast.IfExp) and up.test is child:
            yield up.orelse if denied else up.body
            return
        elif isinstance(up, ast.If) and up.test is child:
            function = any(isinstance(n, FUNCTIONS) for _, n in ancestors(up))
            yield from up.orelse if denied else up.body
            if denied and function and isinstance(up.body[-1], ast.Return | ast.Continue):
                yield from after(up)
            return
        else:
            return


def _defaults(module: Module) -> None:
    """`def f(device="cuda")` where the function asks `device == "cuda"`, and that stays."""
    for compare in _compared(module):
        names = {s.id for s in (compare.left, *compare.comparators) if isinstance(s, ast.Name)}
        function = next((up for _, up in ancestors(compare) if isinstance(up, FUNCTIONS)), None)
        if function is None or not names & {a.arg for a in all_arguments(function.args)}:
            continue
        for arg, default in _given(function.args):
            if arg.arg in names:
                low, high = module.source.start(default), module.source.end(default)
                _take(module, low, high, 'the function compares it with "cuda", which stays')


def _by_default(module: Module) -> None:
    """The same the other way round: a question stays where the default that it is for does."""
    for kind in FUNCTIONS:
        for function in module.names.all(kind):
            assert isinstance(function, FUNCTIONS)
            stay = {
                arg.arg for arg, default in _given(function.args)
                if getattr(default, "value", "") == "cuda" and _stays(module, default)
            }  # fmt: skip
            for compare in ast.walk(function) if stay else ():
                if isinstance(compare, ast.Compare) and getattr(compare.left, "id", "") in stay:
                    low, high = module.source.start(compare), module.source.end(compare)
                    _take(module, low, high, 'its default is "cuda", which stays', *_COMPARES)


def _given(args: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr]]:
    """The parameters that have a default, and that."""
    positional = [*args.posonlyargs, *args.args]
    yield from zip(reversed(positional), reversed(args.defaults), strict=False)
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if default is not None:
            yield arg, default


def _before_torch(module: Module) -> None:
    """What a module evaluates before it imports torch cannot ask torch for the device."""
    name = "torch"
    if module.torch_wanted or module.names.stars or name not in module.names.module.bindings:
        return
    bound = [
        module.source.start(b.node) for b in module.names.module.bindings[name]
        if b.kind == "import"
    ]  # fmt: skip
    if not bound:
        return
    first = min(bound)
    for i, draft in enumerate(module.drafts):
        imports = draft.rule.code == _IMPORTS  # which brings what it names itself
        if draft.kind == "changed" and draft.start < first and draft.edits and not imports:
            node = _node_at(module, draft.start, first)
            if node is not None and any(_needs_torch(e.text, name) for e in draft.edits):
                module.take_back(i, "torch is imported below, so it cannot be asked here")


def _node_at(module: Module, start: int, end: int) -> ast.stmt | None:
    """The simple statement of the module, or of a branch of it, that begins before `start`."""
    for stmt in module.tree.body:
        low, high = module.source.start(stmt), module.source.end(stmt)
        if low <= start < high <= end:
            inside = (*FUNCTIONS, ast.ClassDef)
            return None if isinstance(stmt, inside) else stmt
    return None


def _needs_torch(text: str, name: str) -> bool:
    marks = ("\0", "\1", "\2", "accelerator")
    return f"{name}." in text or any(mark in text for mark in marks)


def _take(
    module: Module, low: int, high: int, says: str, *codes: str, wholly: bool = False
) -> None:
    """Take back what rules with one of these codes changed between two offsets; `wholly`: where it
    names torch.cuda itself, so that no import changed for it.
    """
    for i, draft in enumerate(module.drafts):
        wanted = draft.rule.code.startswith(codes or _MOVES) and draft.rule.code != _IMPORTS
        text = module.source.slice(draft.start, draft.end)
        if wholly and "torch.cuda." not in text:
            continue
        if draft.rule.code in _BY_IMPORT and "cuda" not in text:
            continue
        if draft.kind == "changed" and wanted and low <= draft.start < high:
            module.take_back(i, says)
