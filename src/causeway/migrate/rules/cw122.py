"""CW122: options named after CUDA or another vendor's device."""

from __future__ import annotations

import ast
import re

from causeway.migrate import flags
from causeway.migrate.module import Module
from causeway.migrate.names import FUNCTIONS, all_arguments
from causeway.migrate.rule import Rule
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW122",
    name="vendor-flag",
    title="An option named after one vendor's device",
    why="After the conversion `--no-cuda` switches any accelerator off, and `--no-mps` may decide "
    "nothing: the name and the help text say less than the option does.",
    by_hand="`--rename-flags` writes `--no-accel` for `--no-cuda`, in the program, its help and "
    "the launch scripts of the tree. Keep the name where others type it.",
    before='parser.add_argument("--no-cuda", action="store_true", help="no CUDA")\n',
    after='parser.add_argument("--no-cuda", action="store_true", help="no CUDA")\n',
    severity="info",
)
_SPEAKS = re.compile(r"\bcuda\b", re.I)
_OWNER = re.compile(
    r"(?:.*\.)?_?(?:args?|opts?|options|cfg|config|conf|flags|hparams|params)", re.I
)
_TYPER = re.compile(r"(?:.*\.)?(?:command|callback)")
_PARAMETER = re.compile(r"(?:(?:no|use|disable|enable)_)?(?:cuda|mps|xpu)")


def run(module: Module) -> None:
    if module.vendor:
        return
    own = {
        name for call in module.names.all(ast.Call) for n in flags.of_call(call)
        for name in flags.parts(str(n.value)) if flags.CUDA.match(name)
    }  # fmt: skip
    for call in sorted(module.names.all(ast.Call), key=module.source.start):
        names = flags.of_call(call)
        if names:
            _option(module, call, names)
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
        *module.names.all(ast.FunctionDef), *module.names.all(ast.AsyncFunctionDef)
    ]  # fmt: skip
    for function in functions:
        _parameters(module, function)
    if module.settings.rename_flags:
        _attributes(module, own)


def _option(module: Module, call: ast.Call, names: list[ast.Constant]) -> None:
    spoken = next((k.value for k in call.keywords if k.arg == "help"), None)
    text = spoken.value if isinstance(spoken, ast.Constant) else ""
    speaks = isinstance(text, str) and bool(_SPEAKS.search(text))
    shown = ", ".join(str(n.value) for n in names)
    written = [part for n in names for part in flags.parts(str(n.value))]
    if any(flags.OTHERS.match(name) for name in written):
        module.report(RULE, call, "portable", f"{shown} may decide nothing any more",
                      tip="The accelerator's branch takes Apple's and Intel's devices too: leave "
                      "the option out, or let it choose the CPU.")  # fmt: skip
        return
    mine = [name for name in written if name in module.flags]
    if not mine:
        if speaks or any(flags.CUDA.match(name) for name in written):
            module.report(RULE, call, "portable", f"{shown} speaks of CUDA, and is for any device",
                          tip="Say accelerator in the name and the help text.")  # fmt: skip
        return
    blocked = "" if module.settings.rename_flags else "no"
    for keyword in call.keywords:
        if keyword.arg == "dest":
            blocked = "dest"
    taken = [n for n in names if set(flags.parts(str(n.value))) & set(mine)]
    if any(not set(flags.parts(str(n.value))) <= set(mine) for n in taken):
        blocked = "pair"
    names_of = {flags.variable(str(n.value)) for n in taken}
    strings = {n.value for n in module.names.all(ast.Constant) if isinstance(n.value, str)}
    handed = {k.arg for k in module.names.all(ast.keyword)}
    if names_of & strings or names_of & handed:
        blocked = "string"
    if blocked:
        says = "speaks of CUDA, and is for any device"
        tip = f"`--rename-flags` writes {flags.renamed(mine[0])}, in the tree's scripts too."
        if blocked == "string":
            tip = "It is named in another way too, as a string or a keyword: rename it by hand."
        if blocked == "pair":
            tip = "The other name of the pair is not CUDA's: rename it by hand."
        if blocked == "dest":
            tip = "It is stored under a name of its own: rename it by hand."
        module.report(RULE, call, "portable", f"{shown} {says}", tip=tip)
        return
    edits = [
        Edit(module.source.start(n), module.source.end(n), flags.renamed_in(module.text(n)))
        for n in taken
    ]  # fmt: skip
    if speaks and spoken is not None:
        new = flags.reworded(module.text(spoken))
        edits.append(Edit(module.source.start(spoken), module.source.end(spoken), new))
    edits += _clicked(module, call, names_of)
    if module.change(RULE, call, edits, "the option is named after any accelerator",
                     tip="The launch scripts of the tree change with it."):  # fmt: skip
        module.renamed |= names_of


def _clicked(module: Module, call: ast.Call, names: set[str]) -> list[Edit]:
    """The parameter of the function that click hands an option to, and its uses."""
    function = call.up  # type: ignore[attr-defined]
    if not (isinstance(function, FUNCTIONS) and call in function.decorator_list):
        return []
    edits = [
        Edit(module.source.start(a), module.source.start(a) + len(a.arg), flags.renamed(a.arg))
        for a in all_arguments(function.args) if a.arg in names
    ]  # fmt: skip
    for name in module.names.all(ast.Name):
        held = module.names.holder(name.id, name.scope) if name.id in names else None  # type: ignore[attr-defined]
        if held is not None and held.node is function:
            start, end = module.source.start(name), module.source.end(name)
            edits.append(Edit(start, end, flags.renamed(name.id)))
    return edits


def _attributes(module: Module, own: set[str]) -> None:
    """`args.no_cuda`, in every module of the tree."""
    wanted = {flags.variable(name) for name in module.flags - own} | module.renamed
    parsed = {
        target.id for node in module.names.all(ast.Assign) for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "attr", "") == "parse_args"
    }  # fmt: skip
    for node in sorted(module.names.all(ast.Attribute), key=module.source.start):
        if node.attr not in wanted:
            continue
        owner = module.text(node.value)
        if owner in parsed or _OWNER.fullmatch(owner):
            end = module.source.end(node)
            edit = Edit(end - len(node.attr), end, flags.renamed(node.attr))
            module.change(RULE, node, [edit], "the option is named after any accelerator")


def _parameters(module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Parameters that typer or fire make options of."""
    called = [
        module.text(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list
    ]
    typed = any(_TYPER.fullmatch(name) for name in called) and "typer" in module.source.text
    fired = any(
        module.resolve(call.func) in ("fire.Fire", "typer.run")
        and any(getattr(a, "id", "") == function.name for a in call.args)
        for call in module.names.all(ast.Call)
    )
    for arg in all_arguments(function.args) if typed or fired else ():
        if _PARAMETER.fullmatch(arg.arg):
            module.report(RULE, arg, "portable", f"the option {arg.arg} is named after one vendor",
                          tip="Name it after the accelerator; it is the users' word.")  # fmt: skip
