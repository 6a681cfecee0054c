"""The part that rules share which only report: each says what backends.toml says."""

from __future__ import annotations

from causeway.migrate import knowledge
from causeway.migrate.module import Module
from causeway.migrate.rule import Rule

_ROOTS = (
    "torch.backends.cuda",
    "torch.backends.cudnn",
    "torch.version.cuda",
    "torch.autograd.profiler.emit_nvtx",
    "torch.profiler.ProfilerActivity.CUDA",
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.data_parallel",
    "torch.distributed.ProcessGroupNCCL",
    "torch.utils.cpp_extension",
)


def run(module: Module, rule: Rule) -> None:
    """Report uses of the names that backends.toml gives to `rule`."""
    for use in module.uses(*_ROOTS):
        name = use.api
        while name and name not in knowledge.notes():
            name = name.rpartition(".")[0]
        note = knowledge.notes().get(name)
        if note is None or note.rule != rule.code:
            continue
        says = {"portable": "does no harm on other devices", "manual": "needs a hand elsewhere"}
        module.report(
            rule, use.node, note.kind, f"`{use.api}` {says.get(note.kind, 'is for CUDA alone')}",
            tip=note.tip, api=use.api, category=note.category,
            breaking=name == "torch.backends.cuda.cufft_plan_cache",
        )  # fmt: skip
