"""CW161: packages that are for CUDA alone."""

from __future__ import annotations

import ast
import re

from causeway.migrate import knowledge
from causeway.migrate.module import Module
from causeway.migrate.rule import Rule

RULE = Rule(
    code="CW161",
    name="cuda-package",
    title="A package for CUDA alone",
    why="Its kernels are compiled for NVIDIA's chips.",
    by_hand="Take the alternative that the finding names, or import the package only where "
    "torch.version.cuda is set and keep a second version with torch's operators.",
    before="import flash_attn\n",
    after="import flash_attn\n",
)


def run(module: Module) -> None:
    if "nvidia-smi" in module.source.text:
        for constant in module.names.all(ast.Constant):
            _tool(module, constant)
    for node in module.imports():
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            head = name.partition(".")[0]
            package = knowledge.packages().get(head) if head not in module.own_packages else None
            if package and package.rule == RULE.code and id(node) not in module.done:
                _report(module, node, name, package)


_TOOL = re.compile(r"(?:\S*/)?nvidia-smi(?:\s|$)")


def _tool(module: Module, node: ast.Constant) -> None:
    """A string that starts NVIDIA's tool: an argument, a member of a list of words."""
    if not isinstance(node.value, str) or not _TOOL.match(node.value):
        return
    if isinstance(node.up, ast.Call | ast.List | ast.Tuple | ast.keyword | ast.Assign):  # type: ignore[attr-defined]
        module.report(
            RULE, node, "manual", "`nvidia-smi` knows NVIDIA's GPUs alone",
            tip="Ask torch.accelerator.device_count() and torch.accelerator.get_memory_info().",
            api="nvidia-smi", category="operator",
        )  # fmt: skip


def _report(
    module: Module,
    node: ast.Import | ast.ImportFrom,
    name: str,
    package: knowledge.Package,
) -> None:
    if package.only and not f"{name}.".startswith(f"{package.only}."):
        return
    if package.name == "cuda" and isinstance(node, ast.ImportFrom) and "torch" in name:
        return
    says = "is for CUDA alone" if package.kind == "unsupported" else "works elsewhere by settings"
    module.report(
        RULE, node, package.kind, f"`{name}` {says} (effort: {package.effort})",
        tip=f"Alternative: {package.alternative}.", api=name, category="operator",
    )  # fmt: skip
