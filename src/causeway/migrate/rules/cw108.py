"""CW108: random numbers."""

from __future__ import annotations

import ast
import re

from causeway.migrate import knowledge
from causeway.migrate.module import Module, Use, alone
from causeway.migrate.names import FUNCTIONS, ancestors, before, block, statement
from causeway.migrate.rule import Rule
from causeway.migrate.rules import table
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW108",
    name="random",
    title="Seeds and states of random numbers",
    why="torch.manual_seed seeds the CPU and every accelerator; torch.cuda's functions CUDA alone.",
    by_hand="`torch.manual_seed(seed)` once; states by torch.get_device_module().get_rng_state().",
    before="import torch\n\ntorch.manual_seed(1)\ntorch.cuda.manual_seed_all(1)\n",
    after="import torch\n\ntorch.manual_seed(1)\n",
)
_NAMING = {"torch.device", "torch.cuda.is_available", "torch.accelerator.is_available"}
# Who reads or sets the state of CUDA's generator keeps it apart from the CPU's.
_STATES = (
    "torch.cuda.get_rng_state", "torch.cuda.get_rng_state_all", "torch.cuda.set_rng_state",
    "torch.cuda.set_rng_state_all", "torch.cuda.default_generators",
)  # fmt: skip
_SEEDING = ("torch.manual_seed", "torch.random.manual_seed")
_SEEDS = {f"torch.cuda.{name}" for name in ("manual_seed", "manual_seed_all", "seed", "seed_all")}


def run(module: Module) -> None:
    for use in module.uses("torch.cuda"):
        api = knowledge.find(use.api)
        if api and api.rule == RULE.code and api.action == "special":
            if module.vendor:
                table.apply(module, RULE, use, api)
                continue
            if _seeded_beside(module, use):
                continue
            if _of_the_device_alone(module, use):
                name = use.api.rpartition(".")[2]
                new = table.of_module(module, use.node, name)
                edits = [module.replace(use.node, new), *table.if_there(module, use.call)]
                if module.change(RULE, use.call or use.node, edits,
                                 "the device's own generator, as before", api=use.api):  # fmt: skip
                    if use.call and len(edits) > 1:
                        module.guards.append((statement(use.call), edits[1]))
                    module.gone.add(id(module.root(use.node)))
                module.done.add(id(use.node))
                continue
            edits = module.rename(use, api.to)
            module.change(RULE, use.call or use.node, edits,
                          f"`{api.to}` seeds the CPU and every accelerator", tip=api.tip,
                          api=use.api)  # fmt: skip
            module.done.add(id(use.node))
    table.run(module, RULE)


def _of_the_device_alone(module: Module, use: Use) -> bool:
    """Whether the seed is for a device that is there, and the CPU gets another one or none:
    torch.manual_seed would change what the CPU draws.
    """
    call = use.call
    if call is None or len(call.args) != 1:
        return False
    if any(True for _ in module.uses(*_STATES)) or _of_one_device(module, call):
        return True
    if _in_forward(module, call) or _counts_on(module, call):
        return True
    wanted = module.text(call.args[0])
    if not module.available(call):
        return _cpu_has_another(module, call, wanted)
    return not isinstance(call.args[0], ast.Name | ast.Attribute | ast.Constant) or not any(
        module.resolve(c.func) in _SEEDING and module.text(c.args[0]) == wanted
        and not _in_other_branch(module, call, c)
        for c in module.names.all(ast.Call)
        if c.args
    )  # fmt: skip


def _in_other_branch(module: Module, call: ast.Call, other: ast.Call) -> bool:
    """Whether the CPU is only seeded where the device is not: `else: torch.manual_seed(seed)`."""
    return any(
        isinstance(up, ast.If)
        and child in up.body
        and any(module.within(other, part) for part in up.orelse)
        for child, up in ancestors(call)
    )


def _of_one_device(module: Module, call: ast.Call) -> bool:
    """Whether it is a seed for one of several devices: `with torch.cuda.device(i):`."""
    contexts = (
        item.context_expr
        for _, up in ancestors(call) if isinstance(up, ast.With)
        for item in up.items
    )  # fmt: skip
    return any(
        isinstance(made, ast.Call)
        and module.resolve(made.func) in ("torch.cuda.device", "torch.accelerator.device_index")
        for made in contexts
    )


def _in_forward(module: Module, call: ast.Call) -> bool:
    """Whether a layer seeds the device alone in each step, so that it draws the same again: the
    CPU's generator, which orders the data, goes on.
    """
    function = next((up for _, up in ancestors(call) if isinstance(up, FUNCTIONS)), None)
    if function is None or function.name != "forward":
        return False
    return not any(
        module.resolve(n.func) in _SEEDING
        for n in ast.walk(function) if isinstance(n, ast.Call)
    )  # fmt: skip


def _cpu_has_another(module: Module, call: ast.Call, wanted: str) -> bool:
    """Whether a statement before it in the block gives the CPU another seed, which a second
    torch.manual_seed would replace.
    """
    stmt = alone(module, call)
    seeds = [
        s.value for s in before(stmt)
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and len(s.value.args) == 1
        and module.resolve(s.value.func) in _SEEDING
    ] if stmt is not None else []  # fmt: skip
    return bool(seeds) and module.text(seeds[-1].args[0]) != wanted and not any(
        module.text(s.args[0]) == wanted for s in seeds
    )  # fmt: skip


def _counts_on(module: Module, call: ast.Call) -> bool:
    """Whether the seed's name gets another value behind the CPU's seed: `seed += 1`."""
    stmt = alone(module, call)
    names = {n.id for n in ast.walk(call) if isinstance(n, ast.Name)}
    for other in reversed(before(stmt)) if stmt is not None else ():
        targets = (
            other.targets if isinstance(other, ast.Assign) else [getattr(other, "target", None)]
        )
        if any(getattr(target, "id", "") in names for target in targets):
            return any(
                module.resolve(n.func) in _SEEDING
                for s in before(other) for n in ast.walk(s) if isinstance(n, ast.Call)
            )  # fmt: skip
    return False


def _seeded_beside(module: Module, use: Use) -> bool:
    """Drop a seed for CUDA where torch.manual_seed gets the same among the statements around it,
    with nothing between them that could draw a number.
    """
    call = use.call
    stmt: ast.stmt | None = alone(module, call) if call else None
    if call is None or stmt is None or len(call.args) > 1 or call.keywords:
        return False
    if not all(_settled(arg) for arg in call.args):
        return False
    wanted = "".join(module.text(arg) for arg in call.args)  # "": a seed by chance
    whole = _only_seeds(module, stmt, wanted)
    stmt = whole or stmt
    source = module.source
    if wanted and (other := _other_branch(module, stmt, wanted)):
        if module.change(
            RULE, stmt, [Edit(*other, "")],
            "torch.manual_seed before it seeds every accelerator too", api=use.api,
        ):  # fmt: skip
            module.gone.add(id(module.root(use.node)))
        module.done.update(id(n) for s in block(stmt) for n in ast.walk(s))
        return True
    if not (_near(module, stmt, wanted) or _around(module, stmt, wanted)):
        return False
    if block(stmt) == [stmt] and not isinstance(stmt.up, ast.Module):  # type: ignore[attr-defined]
        return False  # nothing would be left of its branch
    start, end = source.line_start(source.start(stmt)), source.line_end(source.end(stmt))
    if whole is not None:
        module.done.update(map(id, ast.walk(whole)))
        module.gone.update(id(n) for n in ast.walk(whole) if isinstance(n, ast.Name))
    start = _with_comments(module, stmt, start, end)
    end += len(source.newline) if end < len(source.data) else 0
    if module.change(
        RULE, stmt, [Edit(start, end, "")],
        "torch.manual_seed beside it seeds every accelerator too", api=use.api,
    ):  # fmt: skip
        module.gone.add(id(module.root(use.node)))
    module.done.add(id(use.node))
    return True


def _near(module: Module, stmt: ast.stmt, wanted: str) -> bool:
    """Whether the same seed is given beside a statement, with settings alone between them."""
    around = block(stmt)
    at = around.index(stmt)
    for step in (-1, 1):
        i = at + step
        while 0 <= i < len(around) and _only_settings(module, around[i]):
            if _seeds(module, around[i], wanted):
                return True
            i += step
        up = stmt.up  # type: ignore[attr-defined]
        inside = isinstance(up, ast.Try) or (isinstance(up, ast.If) and _asks_alone(module, up))
        if i < 0 and inside and stmt in up.body:
            return _near(module, up, wanted)
    return False


def _asks_alone(module: Module, stmt: ast.If) -> bool:
    """Whether a condition calls nothing but what asks for CUDA, so that it draws no number."""
    calls = [n for n in ast.walk(stmt.test) if isinstance(n, ast.Call)]
    return all(module.resolve(c.func).startswith("torch.cuda.") for c in calls)


def _other_branch(module: Module, stmt: ast.stmt, wanted: str) -> tuple[int, int] | None:
    """Where an `else:` that has nothing but such seeds begins and ends."""
    up = stmt.up  # type: ignore[attr-defined]
    if not isinstance(up, ast.If) or stmt not in up.orelse or not _asks_alone(module, up):
        return None
    source = module.source
    low, high = source.line_end(source.end(up.body[-1])), source.line_end(source.end(up.orelse[-1]))
    head = source.slice(low, source.start(up.orelse[0]))
    if not re.fullmatch(r"\s*else:\s*", head) or not _near(module, up, wanted):
        return None
    return (low, high) if all(_seeds_cuda(module, s, wanted) for s in up.orelse) else None


def _around(module: Module, stmt: ast.stmt, wanted: str) -> bool:
    """Whether it is given before the condition that a statement shares with others:
    `if torch.cuda.is_available(): torch.cuda.manual_seed(seed); cudnn.deterministic = True`.
    """
    up = stmt.up  # type: ignore[attr-defined]
    if not isinstance(up, ast.If) or not wanted:
        return False
    branch = up.body if stmt in up.body else up.orelse
    rest = [other for other in branch if not _seeds_cuda(module, other, wanted)]
    ahead = branch[: branch.index(stmt)]
    if not rest or not all(_only_settings(module, other) for other in ahead):
        return False
    source = module.source
    if source.slice(source.start(up), source.start(up) + 4) == "elif":
        return False
    return _near(module, up, wanted)


def _settled(node: ast.expr) -> bool:
    """Whether an expression is the same twice: `seed + rank`, `params["seed"]`; of calls only
    `config.get("seed", 1)` and `int(seed)`.
    """
    if isinstance(node, ast.Call):
        if getattr(node.func, "id", "") == "int" and len(node.args) == 1:
            return _settled(node.args[0])
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        constant = all(isinstance(a, ast.Constant) for a in node.args) and not node.keywords
        return method == "get" and constant and _settled(node.func.value)  # type: ignore[attr-defined]
    if isinstance(node, ast.Subscript):
        return _settled(node.value) and isinstance(node.slice, ast.Constant)
    if isinstance(node, ast.BinOp):
        return _settled(node.left) and _settled(node.right)
    return isinstance(node, ast.Name | ast.Attribute | ast.Constant)


def _only_seeds(module: Module, stmt: ast.stmt, wanted: str) -> ast.If | None:
    """The condition that holds nothing but seeds for CUDA, all the same, and asks no more than
    whether there is a device.
    """
    up = stmt.up  # type: ignore[attr-defined]
    if not isinstance(up, ast.If) or up.orelse or stmt not in up.body:
        return None
    source = module.source
    text = source.slice(source.start(up), source.line_end(source.end(up)))
    if re.search(r"^[ \t]*#", text, re.M):  # of the condition or a seed itself it goes with that
        return None
    if text.startswith("elif"):
        return None
    if not all(_seeds_cuda(module, other, wanted) for other in up.body):
        return None
    asked = [n for n in ast.walk(up.test) if isinstance(n, ast.Call)]
    if any(not module.resolve(c.func).startswith("torch.cuda.") for c in asked):
        return None
    return up


def _seeds_cuda(module: Module, stmt: ast.stmt, wanted: str) -> bool:
    """Whether a statement gives CUDA this seed."""
    seed = stmt.value if isinstance(stmt, ast.Expr) else None
    return (
        isinstance(seed, ast.Call)
        and module.resolve(seed.func) in _SEEDS
        and "".join(module.text(a) for a in seed.args) == wanted
    )


def _with_comments(module: Module, stmt: ast.stmt, start: int, end: int) -> int:
    """Where the comments above a statement start; its own start where another follows it."""
    source = module.source
    after = end + (len(source.newline) if end < len(source.data) else 0)
    if block(stmt)[-1] is not stmt and source.slice(after, source.line_end(after)).strip():
        return start
    indent = source.slice(start, source.start(stmt))
    while start > 0:
        above = source.line_start(start - 1)
        if not source.slice(above, start).startswith(indent + "#"):
            break
        start = above
    return start


def _seeds(module: Module, stmt: ast.stmt, wanted: str) -> bool:
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and module.resolve(call.func) in (_SEEDING if wanted else ("torch.seed",))
        and "".join(module.text(arg) for arg in call.args) == wanted
    )


def _only_settings(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement seeds something, sets a switch or names a device or a variable."""
    if isinstance(stmt, ast.Global | ast.Nonlocal):
        return True
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        called = module.text(stmt.value.func)
        return any(word in called for word in ("seed", "determin", "set_default"))
    if not isinstance(stmt, ast.Assign):
        return False
    calls = [n for n in ast.walk(stmt.value) if isinstance(n, ast.Call)]
    named = bool(calls) and all(
        module.resolve(c.func) in _NAMING or getattr(c.func, "id", "") == "str" for c in calls
    )
    return named or "backends" in module.text(stmt.targets[0])
