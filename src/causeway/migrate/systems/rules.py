"""The rules on code for another system's package: what each is about, and what to do by hand."""

from __future__ import annotations

from causeway.migrate.rule import Rule

_HELPER = (
    "accelerator = torch.accelerator.current_accelerator(check_available=True) or "
    'torch.device("cpu")\n\n'
)
_TABLE = (
    Rule(
        code="CW170",
        name="system-import",
        title="The import of another system's package",
        why="`import torch_npu`, `import torch_mlu` and their like bring one vendor's device; "
        "torch finds a device's package by itself. `transfer_to_npu` and its like redirect CUDA's "
        "calls, which are converted here.",
        by_hand="Leave the import out, once nothing of the package is used.",
        before="import torch\nimport torch_npu\nfrom torch_npu.contrib import transfer_to_npu\n\n"
        "x = torch.ones(2).cuda()\n",
        after=f"import torch\n\n{_HELPER}x = torch.ones(2).to(accelerator)\n",
    ),
    Rule(
        code="CW171",
        name="system-name",
        title="A name of another system's package that torch has",
        why="The package gives a name of its own to what torch has for every device.",
        by_hand="Write torch's name: docs/compat.md has the tables.",
        before="import torch\nimport torch_npu\n\n"
        "y = torch_npu.npu_silu(torch_npu.npu_format_cast(x, 29))\n",
        after="import torch\n\ny = torch.nn.functional.silu(x)\n",
    ),
    Rule(
        code="CW172",
        name="system-switch",
        title="A switch of another system's compiler or formats",
        why="It chooses how that system's compiler works, and other devices have none of it.",
        by_hand="Leave it out.",
        before="import torch\nimport torch_npu\n\ntorch.npu.set_compile_mode(jit_compile=False)\n"
        "torch.npu.config.allow_internal_format = False\ntorch.npu.synchronize()\n",
        after="import torch\n\nif torch.accelerator.is_available():\n"
        "    torch.accelerator.synchronize()\n",
    ),
    Rule(
        code="CW173",
        name="system-operator",
        title="A name of another system's package without a counterpart",
        why="It is that system's own: an operator that it fuses, a tool, a format of memory.",
        by_hand="Write it with torch's operators. Until then `causeway run` runs the program as it "
        "is, as far as docs/compat.md has the name.",
        before="import torch\nimport torch_npu\n\ny = torch_npu.npu_swiglu(x)\n",
        after="import torch\nimport torch_npu\n\ny = torch_npu.npu_swiglu(x)\n",
    ),
    Rule(
        code="CW174",
        name="system-branch",
        title="A branch for each vendor's device",
        why="The program asks for one vendor's device after another, where torch.accelerator is "
        "whichever is there.",
        by_hand="Write one branch that asks torch.accelerator, where the others do the same.",
        before='import torch\n\nif torch.npu.is_available():\n    device = "npu"\n'
        'elif torch.cuda.is_available():\n    device = "cuda"\nelse:\n    device = "cpu"\n',
        after='import torch\n\nif torch.accelerator.is_available():\n'
        "    device = torch.accelerator.current_accelerator().type\nelse:\n"
        '    device = "cpu"\n',
    ),
    Rule(
        code="CW175",
        name="system-variable",
        title="A variable of another system's runtime",
        why="Only that system reads it. Where Causeway has a setting for the same, it is that.",
        by_hand="Set what the table of docs/compat.md says, or leave it out.",
        before='import os\n\nos.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0"\n',
        after='import os\n\nos.environ["CAUSEWAY_VISIBLE_DEVICES"] = "0"\n',
    ),
    Rule(
        code="CW176",
        name="system-name-in-pieces",
        title="A device's name of another system, put together from pieces",
        why="The text is another system's device, or CUDA's where that system's package redirects "
        "CUDA. It is not found as a word, so it stays, and the import that makes such a device "
        "stays with it.",
        by_hand="Write the name whole, and convert again; or write "
        'f"{torch.accelerator.current_accelerator().type}:{i}".',
        before='import torch\nimport torch_npu\n\nx = torch.ones(2, device="n" + "pu")\n',
        after='import torch\nimport torch_npu\n\nx = torch.ones(2, device="n" + "pu")\n',
    ),
)  # fmt: skip

RULES: dict[str, Rule] = {rule.code: rule for rule in _TABLE}
