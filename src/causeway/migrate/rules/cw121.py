"""CW121: apex."""

from __future__ import annotations

import ast
import re

from causeway.migrate.finding import Kind
from causeway.migrate.module import Module, Use
from causeway.migrate.names import FUNCTIONS, ancestors
from causeway.migrate.rule import Rule
from causeway.migrate.source import Edit

RULE = Rule(
    code="CW121",
    name="apex",
    title="NVIDIA's apex",
    why="apex is built for CUDA. torch has its norms, optimizers and parallel parts, for every "
    "device; causeway.apex has all of it, levels of apex.amp too.",
    by_hand="`from causeway import apex` in place of `import apex`, and `from causeway.apex import "
    "amp` for `from apex import amp`; or leave the file and set CAUSEWAY_APEX=1, by which `import "
    "apex` finds it. In stock torch level O1 is `with torch.amp.autocast(device_type):` around the "
    "forward pass and a torch.amp.GradScaler; O2 and O3 have no short form.",
    before="import torch\nfrom apex.normalization import FusedLayerNorm\n\n"
    "norm = FusedLayerNorm(8)\n",
    after="import torch\nfrom torch.nn import LayerNorm as FusedLayerNorm\n\n"
    "norm = FusedLayerNorm(8)\n",
)
# Same arguments, same meaning.
_SAME = {
    "apex.normalization.FusedLayerNorm": "torch.nn.LayerNorm",
    "apex.normalization.fused_layer_norm.FusedLayerNorm": "torch.nn.LayerNorm",
    "apex.normalization.MixedFusedLayerNorm": "torch.nn.LayerNorm",
    "apex.normalization.FusedRMSNorm": "torch.nn.RMSNorm",
    "apex.parallel.convert_syncbn_model": "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    "apex.parallel.SyncBatchNorm": "torch.nn.SyncBatchNorm",
    "apex.parallel.optimized_sync_batchnorm.SyncBatchNorm": "torch.nn.SyncBatchNorm",
    "apex.parallel.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "apex.optimizers.FusedAdam": "torch.optim.AdamW",
    "apex.optimizers.FusedSGD": "torch.optim.SGD",
    "apex.optimizers.FusedAdagrad": "torch.optim.Adagrad",
}
# What causeway.apex has.
_OURS = {
    "", "amp", "fp16_utils", "fused_dense", "mlp", "multi_tensor_apply", "normalization",
    "optimizers", "parallel",
}  # fmt: skip
_CONTRIB = {"clip_grad", "xentropy"}
_ARGUMENTS = {
    "apex.parallel.DistributedDataParallel": {"module"},
    "apex.optimizers.FusedAdam": {"params", "lr", "betas", "eps", "weight_decay", "amsgrad"},
    "apex.optimizers.FusedSGD": {
        "params", "lr", "momentum", "dampening", "weight_decay", "nesterov",
    },
    "apex.optimizers.FusedAdagrad": {"params", "lr", "eps", "weight_decay"},
    "apex.parallel.convert_syncbn_model": {"module", "process_group"},
}  # fmt: skip


def run(module: Module) -> None:
    if "apex" in module.own_packages:
        return  # its own tests and examples are about it
    for use in module.uses("apex"):
        new = _SAME.get(use.api)
        node = use.node
        if isinstance(node, ast.Name) and module.names.bindings(node)[0].kind != "import":
            module.done.add(id(node))
        elif reason := _stays(module, use):
            module.report(RULE, use.call or node, "portable", f"`{use.api}`: {reason}",
                          tip="Leave it.", category="operator", api=use.api)  # fmt: skip
            module.done.add(id(node))
        elif new is None or (use.call and not _plain(use)):
            if not (_ours(use.api) and _may_write(module)):
                kind: Kind = "manual" if _ours(use.api) else "unsupported"
                module.report(RULE, use.call or node, kind, f"`{use.api}` is for CUDA",
                              tip="causeway.apex has it: see the import." if _ours(use.api) else "",
                              category="precision" if ".amp." in use.api else "operator",
                              api=use.api, breaking=True)  # fmt: skip
            module.done.add(id(node))
            module.gone.discard(id(module.root(node)))
        else:
            _same(module, use, new)
    for statement in module.imports():
        _import(module, statement)


def _stays(module: Module, use: Use) -> str:
    """Why a name of apex is no matter of ours, or "": the program has something else where apex is
    not there, or a class of its own is built on apex's.
    """
    if module.settings.unsafe:
        return ""
    up = use.node.up  # type: ignore[union-attr]
    if isinstance(up, ast.ClassDef) and use.node in up.bases:
        return "a class of the program is built on it"
    asked = isinstance(up, ast.Call) and getattr(up.func, "id", "") == "isinstance"
    if asked or isinstance(up, ast.Tuple):
        return "it tells apex's layers from others"
    root = module.root(use.node)
    bindings = module.names.bindings(root) if root is not None else []
    if any(_may_fail(b.node) for b in bindings if b.kind == "import"):
        return "the program goes on where there is no apex"
    given = [k.value for k in use.call.keywords if k.arg == "process_group"] if use.call else []
    names = [value for value in given if isinstance(value, ast.Name)]
    made = [b.value for name in names for b in module.names.bindings(name)]
    if any(
        isinstance(group, ast.Call) and module.resolve(group.func).startswith("apex.")
        for group in (*given, *made)
    ):
        return "its group is made by apex"
    return ""


def _may_fail(statement: ast.AST) -> bool:
    """Whether an import is in a `try:` that goes on without it."""
    for child, up in ancestors(statement):
        if isinstance(up, ast.Try) and child in up.body:
            return any(not any(isinstance(s, ast.Raise) for s in h.body) for h in up.handlers)
        if isinstance(up, FUNCTIONS):
            return False
    return False


def _plain(use: Use) -> bool:
    allowed = _ARGUMENTS.get(use.api)
    assert use.call
    if allowed is None:
        return True
    if any(isinstance(a, ast.Starred) for a in use.call.args) or len(use.call.args) > 1:
        return False
    return all(k.arg in allowed for k in use.call.keywords)


def _same(module: Module, use: Use, new: str) -> None:
    edits: list[Edit] = []
    if isinstance(use.node, ast.Name):
        edits += module.rename(use, new)
        if new.endswith("convert_sync_batchnorm"):  # a method: no import brings it
            edits = [module.replace(use.node, module.spelled(use.node, new))]
    else:
        edits.append(module.replace(use.node, module.spelled(use.node, new)))
    call = use.call
    # AdamW decays by 0.01 where nothing is said; FusedAdam does not.
    silent = call and not any(k.arg == "weight_decay" for k in call.keywords)
    if call and silent and use.api.endswith("FusedAdam"):
        edits.append(module.insert_last(call, "weight_decay=0.0"))
    module.change(RULE, call or use.node, edits, f"`{new}` does the same", api=use.api,
                  category="operator")  # fmt: skip
    module.done.add(id(use.node))


def _import(module: Module, node: ast.ImportFrom | ast.Import) -> None:
    """Names that have a new home are imported from there; those without uses go."""
    if isinstance(node, ast.Import):
        if any(a.name.partition(".")[0] == "apex" for a in node.names):
            _package(module, node)
        return
    if (node.module or "").partition(".")[0] != "apex" or node.level:
        return
    stay: list[str] = []
    lines: dict[str, list[str]] = {}
    changed = False
    for alias in node.names:
        name = alias.asname or alias.name
        home = module.homes.get((id(node), name))
        uses = [
            n for n in module.names.all(ast.Name)
            if n.id == name and any(b.node is node for b in module.names.bindings(n))
            and isinstance(n.ctx, ast.Load)
        ]  # fmt: skip
        if home and home.count(".") <= 3 and not home.endswith("convert_sync_batchnorm"):
            where, _, new = home.rpartition(".")
            lines.setdefault(where, []).append(new if new == name else f"{new} as {name}")
            changed = True
        elif uses and all(id(u) in module.gone for u in uses):
            changed = True
        else:
            stay.append(alias.name + (f" as {alias.asname}" if alias.asname else ""))
    if stay and not (changed and _rename(module, node)):
        _package(module, node)
        module.done.discard(id(node))
    if changed:
        source = module.source
        start, end = source.start(node), source.end(node)
        parts = [f"from {where} import {', '.join(names)}" for where, names in lines.items()]
        if stay:
            where = f"causeway.{node.module}" if _rename(module, node) else node.module or ""
            parts.insert(0, f"from {where} import {', '.join(stay)}")
        indent = source.slice(source.line_start(start), start)
        separator = f"{source.newline}{indent}" if not indent.strip() else "; "
        module.change(RULE, node, [Edit(start, end, separator.join(parts) or "pass")],
                      "the same names from torch", api=node.module or "",
                      category="operator")  # fmt: skip


def _ours(api: str) -> bool:
    """Whether causeway.apex has a name of apex's."""
    parts = [*api.split("."), "", ""]
    return parts[1] in _OURS or (parts[1] == "contrib" and parts[2] in _CONTRIB)


def _may_write(module: Module) -> bool:
    return module.settings.unsafe and not module.vendor and module.settings.wants(RULE.code)


def _rename(module: Module, node: ast.ImportFrom) -> bool:
    names = [f"{node.module}.{alias.name}" for alias in node.names]
    return _may_write(module) and all(_ours(name) for name in names)


def _package(module: Module, node: ast.ImportFrom | ast.Import) -> None:
    """The import of what stays apex's: by causeway.apex, which makes the program need Causeway."""
    if isinstance(node, ast.Import):
        names = [a.name for a in node.names if a.name.partition(".")[0] == "apex"]
    else:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    if module.vendor or not all(_ours(name) for name in names):
        module.report(RULE, node, "unsupported", "apex is built for CUDA (effort: hours)",
                      api="apex", category="operator")  # fmt: skip
        return
    start = module.source.start(node)
    text = module.text(node)
    if isinstance(node, ast.ImportFrom):
        at = start + len(re.match(r"from\s+", text)[0])  # type: ignore[index]
        edits = [Edit(at, at, "causeway.")]
    elif len(node.names) > 1:
        module.report(RULE, node, "manual", "apex is built for CUDA (effort: minutes)",
                      api="apex", category="operator")  # fmt: skip
        return
    elif node.names[0].asname and "." in node.names[0].name:
        at = start + len(re.match(r"import\s+", text)[0])  # type: ignore[index]
        edits = [Edit(at, at, "causeway.")]
    else:  # its packages are found when they are asked for
        name = f" as {node.names[0].asname}" if node.names[0].asname else ""
        edits = [Edit(start, module.source.end(node), f"from causeway import apex{name}")]
    module.change(RULE, node, edits, "causeway.apex serves every device", api="apex",
                  tip="It makes the program need Causeway. Or leave the import and set "
                  "CAUSEWAY_APEX=1, by which it finds causeway.apex.",
                  category="operator", safe=False)  # fmt: skip
