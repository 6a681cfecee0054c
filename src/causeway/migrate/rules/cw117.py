"""CW117: what is left of torch.cuda when all other rules have run."""

from __future__ import annotations

import ast

from causeway.migrate.module import Module
from causeway.migrate.rule import Rule

RULE = Rule(
    code="CW117",
    name="unknown",
    title="A name of torch.cuda that is not known, or the module itself",
    why="torch.cuda as an object, or a name that no supported torch has: what it is used for "
    "cannot be seen.",
    by_hand="Write the name that is wanted in full, or ask torch.get_device_module().",
    before='import torch\n\nf = getattr(torch.cuda, "synchronize")\n',
    after='import torch\n\nf = getattr(torch.cuda, "synchronize")\n',
)


def run(module: Module) -> None:
    for use in module.uses("torch.cuda"):
        node = use.node
        up = node.up  # type: ignore[union-attr]
        if id(module.root(node)) in module.gone:
            continue
        if use.api == "torch.cuda":
            if isinstance(up, ast.Call) and getattr(up.func, "id", "") == "hasattr":
                module.report(RULE, node, "portable", "it asks torch.cuda for a name",
                              tip="torch.cuda is there on every build.", api=use.api)  # fmt: skip
                continue
            if isinstance(up, ast.Assign) and up.value is node:
                module.report(RULE, node, "portable", "another name of torch.cuda",
                              tip="What is used of it is written with torch.accelerator.",
                              api=use.api)  # fmt: skip
                continue
            if isinstance(node, ast.Name) and not module.settings.wants("CW1"):
                continue
            module.report(RULE, node, "manual", "torch.cuda as an object", api=use.api)
        else:
            module.report(RULE, node, "manual", f"`{use.api}` is no public name of torch.cuda",
                          api=use.api, breaking=True)  # fmt: skip
