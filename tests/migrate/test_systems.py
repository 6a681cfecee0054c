"""Code for torch_npu, torch_mlu, torch_dipu and MindTorch: what becomes of what, and that it runs.

tests/programs/systems has programs in the style of those packages' users. They are converted and
run on the simulated chip and on a torch that sees no device, and run as they are under
`causeway.compat`: the losses must be the CPU's each time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import warm
from causeway.cli import app
from causeway.compat import names, systems
from causeway.migrate import engine, journal, knowledge
from causeway.migrate.finding import FileInput, Finding, converter
from causeway.migrate.module import HELPER
from causeway.migrate.python import convert_source
from causeway.migrate.settings import Settings
from causeway.migrate.systems.rules import RULES

sys.path.insert(0, str(Path(__file__).parent))
import test_rules

HELP = f"accelerator = {HELPER.format(torch='torch')}\n\n"
NPU = "import torch\nimport torch_npu\n\n"
MLU = "import torch\nimport torch_mlu\n\n"
PROGRAMS = Path(__file__).parents[1] / "programs" / "systems"


def convert(text: str, **settings: object) -> str:
    after, _ = convert_source(text, Settings(**settings))  # type: ignore[arg-type]
    again, _ = convert_source(after, Settings(**settings))  # type: ignore[arg-type]
    assert again == after, "a second run changes nothing"
    return after


def found(text: str, code: str = "") -> list[Finding]:
    return [f for f in convert_source(text, Settings())[1] if f.rule.startswith(code or "CW1")]


CHANGED = [
    # each system's device, in all the ways to name it
    (NPU + "x = x.npu(non_blocking=True)\n", "x = x.to(accelerator, non_blocking=True)\n"),
    (NPU + "x = x.to('npu:1')\n", "x = x.to(f'{accelerator.type}:1')\n"),
    (MLU + 'x = x.to(f"mlu:{rank}")\n', 'x = x.to(f"{accelerator.type}:{rank}")\n'),
    (MLU + "y = x.is_mlu\n", 'y = x.device.type == accelerator.type != "cpu"\n'),
    ("import torch\nimport torch_dipu\n\nx = torch.ones(2, device='dipu')\n",
     "x = torch.ones(2, device=accelerator)\n"),
    # an import beside torch's, or with a comment
    ("import os, torch, torch_npu\n\nx = x.npu()\n",
     "import os, torch\n\nHELPx = x.to(accelerator)\n"),
    ("import torch\nimport torch_npu  # noqa: F401, brings the device\n\nx = x.npu()\n",
     "x = x.to(accelerator)\n"),
    # an import under another name
    ("import torch\nimport torch_npu.npu as n\nfrom torch_npu import npu\n\nx = n.device_count()\n"
     "y = npu.current_device()\n",
     "x = torch.accelerator.device_count()\ny = torch.accelerator.current_device_index() "
     "if torch.accelerator.is_available() else 0\n"),
    ("import torch\nfrom torch_npu.contrib import roll as r, NpuDropPath\n\ny = r(x, 1)\n",
     "from torch import roll as r\n\ny = r(x, 1)\n"),
    ("import torch\nimport torch_mlu.core.mlu_model as ct\n\nct.set_core_number(4)\n"
     "m = m.to(ct.mlu_device())\n", "m = m.to(accelerator)\n"),
    ("import torch_npu\n\ny = torch_npu.npu_silu(x)\n",
     "import torch\n\ny = torch.nn.functional.silu(x)\n"),
    # operators with arguments of their own, nested, and nothing left of a cast of the format
    (NPU + "y = torch_npu.npu_transpose(a + torch_npu.npu_format_cast(b, 29), (0, 2, 1))\n",
     "y = (a + b).permute((0, 2, 1)).contiguous()\n"),
    (NPU + "w = torch_npu.npu_format_cast(w, 29)\nf(w)\n", "f(w)\n"),
    (NPU + "w = torch_npu.npu_format_cast(v, torch_npu.Format.ND)\n", "w = v\n"),
    # an argument that only Ascend's profiler reads, with the names in it
    (NPU + "c = torch_npu.profiler._ExperimentalConfig(\n"
     "    profiler_level=torch_npu.profiler.ProfilerLevel.Level1, l2_cache=False)\n"
     "p = torch_npu.profiler.profile(experimental_config=c)\n",
     "c = None\np = torch.profiler.profile(experimental_config=c)\n"),
    # statements that only a package needs, and what is empty without them
    ("import torch\n\nif torch.__version__ > '1.8':\n    import torch_npu\n\nx.cuda()\n",
     "x.to(accelerator)\n"),
    ("import torch\n\ntry:\n    import torch_npu\nexcept ImportError:\n    pass\n\nx.npu()\n",
     "x.to(accelerator)\n"),
    ("import torch\n\ntry:\n    import torch_npu\n    ON = True\nexcept ImportError:\n"
     "    ON = False\n",
     "ON = torch.accelerator.is_available()\n"),
    (NPU + "def f():\n    # why\n    torch.npu.set_option({'a': 1})\n",
     "def f():\n    # why\n    pass\n"),
    (NPU + "torch.npu.set_device(0); torch.npu.set_compile_mode(jit_compile=False)\n",
     "if torch.accelerator.is_available():\n    torch.accelerator.set_device_index(0)\n"),
    # the module itself, and the question whether there is one
    (NPU + "f(torch.npu, getattr(torch, 'npu'))\n",
     "f(torch.get_device_module(), torch.get_device_module())\n"),
    (NPU + 'd = "npu" if hasattr(torch, "npu") and torch.npu.is_available() else "cpu"\n',
     "d = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() "
     'else "cpu"\n'),
    # one branch for several devices
    (NPU + "if x.device.type == 'cuda':\n    torch.cuda.synchronize()\n"
     "elif x.device.type == 'npu':\n    torch.npu.synchronize()\n",
     "if x.device.type == accelerator.type != 'cpu':\n    torch.accelerator.synchronize()\n"),
    (NPU + "d = 'npu' if torch.npu.is_available() else ('cuda' if torch.cuda.is_available() else "
     "'cpu')\n",
     "d = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "
     "'cpu'\n"),
    # collectives, the environment, the profiler
    ("import torch\nimport torch.distributed as dist\nimport torch_npu\n\n"
     "dist.init_process_group('cpu:gloo,npu:hccl')\n",
     "import torch.distributed as dist\n\nHELPdist.init_process_group(f'cpu:gloo,"
     "{accelerator.type}:{dist.get_default_backend_for_device(accelerator)}')\n"),
    ("import os\n\nos.environ['MLU_VISIBLE_DEVICES'] = '0'\n"
     "os.putenv('PYTORCH_NPU_ALLOC_CONF', a)\n",
     "import os\n\nos.environ['CAUSEWAY_VISIBLE_DEVICES'] = '0'\n"
     "os.putenv('PYTORCH_ALLOC_CONF', a)\n"),
    ("import torch\nfrom torch_npu.profiler import ProfilerActivity, profile\n\n"
     "p = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU])\n",
     "from torch.profiler import profile\n\n"
     "p = profile(activities=torch.profiler.supported_activities())\n"),
    # what converters from CUDA leave behind
    (NPU + "x = x.to(f'npu:{g(i)}' if isinstance(g(i), int) else g(i))\n", "x = x.to(g(i))\n"),
    ("import torch\nimport torch.distributed as dist\nimport torch_npu\n\n"
     "dist.init_process_group('cpu:gloo,npu:nccl')\n",
     "import torch.distributed as dist\n\nHELPdist.init_process_group(f'cpu:gloo,"
     "{accelerator.type}:{dist.get_default_backend_for_device(accelerator)}')\n"),
    (MLU + "torch.backends.cnnl.allow_tf32 = True\nwith torch.mlu.cnpx.range('a'):\n    f()\n",
     "with torch.profiler.record_function('a'):\n    f()\n"),
    # MindTorch
    ("import mindtorch.torch as torch\nimport mindtorch.torch.nn as nn\nimport mindspore as ms\n"
     "from mindtorch.torch.nn import Linear, Module\nfrom mindtorch.torchvision import transforms\n"
     "from mindtorch.tools import mstorch_enable\n\nms.set_context(mode=ms.PYNATIVE_MODE)\n"
     "ms.set_context(device_target='CPU')\ny = torch.cast_to_adapter_tensor(x)\n",
     "import torch\nimport torch.nn as nn\nfrom torch.nn import Linear, Module\n"
     "from torchvision import transforms\n\ntorch.set_default_device('cpu')\ny = x\n"),
    # MindTorch written out, and under a name of its own
    ("import mindtorch\n\nm = mindtorch.torch.nn.Linear(2, 3)\nx = mindtorch.torch.ones(4, 2)\n",
     "import torch\n\nm = torch.nn.Linear(2, 3)\nx = torch.ones(4, 2)\n"),
    ("import mindtorch.torch\nimport mindtorch.torch.nn\n\nm = mindtorch.torch.nn.Linear(2, 3)\n",
     "import torch\nimport torch.nn\n\nm = torch.nn.Linear(2, 3)\n"),
    ("import mindtorch as mt\n\ntorch = mt.torch\n\nnn = mt.torch.nn\nm = nn.Linear(2, 3)\n"
     "x = torch.ones(4, 2).cuda()\n",
     "import torch\n\nnn = torch.nn\nm = nn.Linear(2, 3)\nx = torch.ones(4, 2).to(accelerator)\n"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), CHANGED)
def test_names_of_other_systems_become_torchs(before: str, after: str) -> None:
    if not after.startswith("import torch\n") and "import os" not in before:
        after = "import torch\n" + ("" if after.startswith(("import", "from")) else "\n") + after
    if "HELP" in after:
        after = after.replace("HELP", HELP)
    elif "accelerator" in re.sub(r"torch\.accelerator|current_accelerator", "", after):
        after = after.replace("import torch\n\n", "import torch\n\n" + HELP, 1)
    assert convert(before) == after


NOOP = [
    "import torch\n\n\ndef norm(x, w):\n    import torch_npu\n\n    if x.is_npu:\n"
    "        return torch_npu.npu_deep_norm(x, x, w, w)[2]\n    return layer_norm(x, w)\n",
    "import torch\nimport torch_npu\n\n\ndef pack(q):\n    if q.device.type == 'npu':\n"
    "        return _pack_npu(q)\n    return q\n",
    '"""About npu, torch.npu and .npu()."""\n# x.npu()\nprint("npu")\n',
    'import torch\n\npath = "out/npu/model_npu.pt"\nflags = {"npu": True}\nx.npu\n',
    "import torch\n\nx = x.npu()  # causeway: keep\n",
    "import torch\n\nx = x.to('npu')  # causeway: keep\n",
    "def f(torch=None):\n    return torch.npu.device_count()\n",
    "import torch_npus\nimport my.torch_npu\n",
    "class Net:\n    def npu(self):\n        return self\n\n\nNet().npu()\n",
    'hccl = "about hccl"\n',
    # a part for each vendor
    NPU + "if kind == 'cuda':\n    f()\nelif kind == 'npu':\n    f()\n",
    NPU + "if on_npu:\n    x = x.to('npu')\nelse:\n    x = x.to('cuda')\n",
    "import torch\nimport torch_mlu\nimport torch_npu\n\nx = x.to('npu') if a else x.to('mlu')\n",
    "import torch\n\nif torch.npu.is_available():\n    d = 'npu'\nelif is_hpu():\n    d = 'hpu'\n",
]  # fmt: skip


@pytest.mark.parametrize("text", NOOP)
def test_what_is_not_the_device_is_left(text: str) -> None:
    assert convert(text) == text


def test_a_module_with_a_part_for_each_vendor_is_said() -> None:
    text = NPU + "if on_npu:\n    x = x.to('npu')\nelse:\n    x = x.to('cuda')\n"
    assert [(f.kind, f.line) for f in found(text, "CW174")] == [("portable", 2)]


@pytest.mark.parametrize("code", RULES)
def test_the_example_of_a_rule_is_true(code: str) -> None:
    rule = RULES[code]
    assert convert(rule.before) == rule.after
    assert code in {f.rule for f in found(rule.before)}


BY_HAND = [
    (NPU + "y = torch_npu.npu_fusion_attention(q, k, v, 4, 'BSH')\n",
     "scaled_dot_product_attention"),
    (NPU + "torch.npu.init_dump()\n", "CAUSEWAY_DUMP"),
    (NPU + "y = torch_npu.npu_transpose(x, perm=(1, 0))\n", "permute"),
    (NPU + "ok = torch.npu.set_option({})\n", "Leave it out"),
    (NPU + "torch.npu.set_option(read())\n", "Leave it out"),  # read() is called
    (NPU + "w = torch_npu.npu_format_cast(v, read())\n", "Write instead: x."),
    ("import torch_mlu.core.mlu_quantize as q\n\nn = q.quantize_dynamic_mlu(n)\n",
     "causeway.quant"),
    ("import torch_mlu.core.mlu_model as ct\n\nct.save_as_cambricon('a')\n", "causeway.export"),
    ("import mindspore as ms\n\nf = ms.ops.value_and_grad(n)\n", "backward"),
    ("import os\n\nos.environ['ACL_DUMP_DATA'] = '1'\n", "CAUSEWAY_DUMP"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), BY_HAND)
def test_what_has_no_counterpart_is_left_by_hand_with_what_to_write(text: str, says: str) -> None:
    assert convert(text) == text
    manual = [f for f in found(text) if f.kind == "manual" and f.rule != "CW170"]
    assert len(manual) == 1
    assert says in manual[0].tip


PIECES = [
    NPU + 'x = torch.ones(2, device="n" + "pu")\n',
    NPU + 'x = torch.ones(2, device="n" f"pu:{i}")\n',
    NPU + "x = torch.ones(2, device=f\"{'n'}pu\")\n",
    NPU + 'x = torch.ones(2, device="n%s:%d" % ("pu", i))\n',
    NPU + 'x = torch.ones(2, device="{}pu:{}".format("n", i))\n',
    NPU + 'x = torch.ones(2, device="".join(["n", "pu"]))\n',
    NPU + 'name = "n" + "p" + "u"\nx = torch.ones(2).to(name)\n',
    NPU + "x = torch.ones(2, device=f'npu{where}')\n",
    # CUDA's, where the import of the package sends it to the device
    "import torch\nfrom torch_npu.contrib import transfer_to_npu\n\n"
    'x = torch.ones(2, device="cu" + "da")\n',
    "import torch\nfrom torch_mlu.utils import gpu_migration\n\n"
    'x = torch.ones(2, device="cu" f"da:{i}")\n',
    'import torch\nimport torch_dipu\n\nx = torch.ones(2, device="cu" + "da")\n',
]


@pytest.mark.parametrize("text", PIECES)
def test_the_import_stays_with_a_device_whose_name_is_put_together(text: str) -> None:
    assert convert(text) == text
    assert [(f.kind, f.line) for f in found(text, "CW176")] == [("manual", text.count("\n"))] or (
        "name =" in text
    )
    assert [f.kind for f in found(text, "CW170")] == ["manual"]
    # what is found as a word is converted beside it, and runs beside what stays
    more = convert(text + "y = x.npu()\n") if "npu" in text and "transfer" not in text else ""
    assert not more or ("y = x.to(accelerator)\n" in more and "import torch_npu" in more)


WORDS = [
    NPU + "x = x.to('npu:' + str(i))\n",
    NPU + "x = x.to('npu:%d' % i)\n",
    NPU + "x = x.to('npu:{}'.format(i))\n",
    NPU + "print('n' + 'pus', f'{a}npu', 'npu_' + 'a', f'npu{a}.pt')\n",
    "import torch\nfrom torch_npu.contrib import transfer_to_npu\n\nx = x.to('cuda:' + str(i))\n",
]


@pytest.mark.parametrize("text", WORDS)
def test_a_word_that_is_whole_or_none_keeps_no_import(text: str) -> None:
    after = convert(text)
    assert "torch_npu" not in after
    assert "'npu:" not in after
    assert not found(text, "CW176")


def test_a_device_that_is_told_to_stay_keeps_its_import() -> None:
    for kept in ("x = x.to('npu')  # causeway: keep\n", "x = x.npu()  # causeway: keep\n"):
        assert convert(NPU + kept) == NPU + kept


def test_a_module_of_mindtorch_that_is_handed_on_is_said() -> None:
    text = "import mindtorch\n\nf(mindtorch)\n"
    assert convert(text) == text
    assert [f.kind for f in found(text, "CW170")] == ["manual"]
    # torch has a name where it is needed, beside what stays
    both = text + "x = mindtorch.torch.ones(2)\n"
    assert convert(both) == "import mindtorch\nimport torch\n\nf(mindtorch)\nx = torch.ones(2)\n"


def test_torch_is_imported_beside_a_package_that_stays() -> None:
    text = "import torch_npu\n\na = torch_npu.npu_silu(x)\nb = torch_npu.npu_swiglu(x)\n"
    assert convert(text) == (
        "import torch_npu\nimport torch\n\na = torch.nn.functional.silu(x)\n"
        "b = torch_npu.npu_swiglu(x)\n"
    )


def test_an_import_stays_while_something_of_it_does() -> None:
    text = NPU + "y = torch_npu.npu_swiglu(x.npu())\n"
    assert convert(text) == (
        "import torch\nimport torch_npu\n\n"
        + HELP
        + "y = torch_npu.npu_swiglu(x.to(accelerator))\n"
    )
    held = NPU + "f(torch.npu.of_no_release)\n"
    assert convert(held) == held


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("torch_npu.npu.amp.GradScaler(init_scale=64.0, dynamic=False)", "CW120"),
        ("torch_npu.profiler.tensorboard_trace_handler('d', analyse_flag=True)", "CW173"),
        ("torch_npu.profiler._ExperimentalConfig(aic_metrics=f())", "CW173"),
    ],
)
def test_arguments_that_torch_does_not_have_are_said(call: str, code: str) -> None:
    text = NPU + f"x = {call}\n"
    assert convert(text) == text
    assert (code, "manual") in {(f.rule, f.kind) for f in convert_source(text, Settings())[1]}
    other = "torch_npu.profiler.tensorboard_trace_handler('d')"
    assert "torch_npu" not in convert(NPU + f"x = {other}\n")


def test_switches_of_cnnl_as_a_context_are_said() -> None:
    text = MLU + "with torch.backends.cnnl.flags(allow_tf32=False):\n    f()\n"
    assert convert(text) == text
    assert {f.rule for f in found(text)} == {"CW170", "CW173"}


def test_a_question_for_the_package_is_said() -> None:
    text = 'import importlib.util\nHAS = importlib.util.find_spec("torch_npu") is not None\n'
    assert [f.kind for f in found(text, "CW170")] == ["manual"]


def test_a_streams_address_is_left_with_all_of_its_call() -> None:
    text = NPU + "st = torch.npu.current_stream().npu_stream\n"
    assert "st = torch.npu.current_stream().npu_stream\n" in convert(text)
    assert "CW106" in [f.rule for f in found(text)]


def test_an_import_that_is_tried_for_more_than_itself_stays() -> None:
    text = "import torch\n\ntry:\n    import torch_npu\nexcept ImportError:\n    print('no NPU')\n"
    assert convert(text) == text
    assert [(f.kind, f.line) for f in found(text, "CW170")] == [("manual", 4)]
    more = text.replace("torch_npu\n", "torch_npu\n    on = True\n") + "x = x.npu()\n"
    after = convert(more)
    assert "    import torch_npu\n    on = True\n" in after
    assert "x = x.to(accelerator)" in after


def test_findings_are_of_the_text_as_it_was() -> None:
    text = NPU + "torch.npu.set_compile_mode(jit_compile=False)\nx = torch.ones(2).npu()  # 2\n"
    (method,) = found(text, "CW102")
    assert (method.line, method.column, method.before) == (5, 5, "torch.ones(2).npu()")
    assert method.after == "torch.ones(2).to(accelerator)"
    assert "cuda" not in (method.message + method.tip + method.api).lower()


def test_a_target_writes_its_names_and_leaves_its_own_code() -> None:
    text = NPU + "x = x.npu()\ntorch.distributed.init_process_group('hccl')\n"
    assert convert(text, target="npu") == text
    assert convert(text, target="mlu") == (
        "import torch\nimport torch_mlu\n\nx = x.mlu()\n"
        "torch.distributed.init_process_group('cncl')\n"
    )


def transplanted(text: str, device: str, backend: str) -> str:
    """What a converter from CUDA makes of a program, word by word."""
    for old, new in (
        (r"from torch import cuda as", f"from torch import {device} as"),
        (r"\btorch\.cuda\b", f"torch.{device}"),
        (r"(?<=\.)cuda(?=\()|(?<=def )cuda(?=\()", device),
        (r"(?<=[\"'])cuda(?=[\"':])|(?<=,)cuda(?=:)", device),
        (r"\bis_cuda\b", f"is_{device}"),
        (r"\bnccl\b", backend),
    ):
        text = re.sub(old, new, text)
    return text


# They differ in more than words: a name that CUDA's build of torch has anyway, a line that is
# written anew as a whole.
_OTHERWISE = ("cuda = torch.cuda", "import cuda as", "import (\n    device_count", "import amp\n")


@pytest.mark.parametrize("system", ["npu", "mlu", "dipu"])
def test_what_was_converted_from_cuda_comes_back_as_cuda_would(system: str) -> None:
    words = systems()[system].device, systems()[system].backends[0]
    tried = 0
    for before, after in [case for cases in test_rules.CHANGED.values() for case in cases]:
        theirs = transplanted(test_rules.HEAD + before, *words)
        if words[0] not in theirs or any(other in before for other in _OTHERWISE):
            continue
        ours = convert_source(test_rules.HEAD + before, Settings())[0]
        assert convert_source(theirs, Settings())[0] == transplanted(ours, *words), before
        tried += after != before
    assert tried > 100


def test_what_the_table_says_is_in_torch() -> None:
    for module, table in names.modules().items():
        for name, entry in table.items():
            given = [entry.instead, entry.to, entry.form, entry.drop, entry.hand]
            assert sum(map(bool, given)) == 1, (module, name)
            if entry.to.startswith("torch.cuda."):
                assert knowledge.find(entry.to), entry.to
            elif entry.to:
                value: object = torch
                for part in entry.to.split(".")[1:]:
                    value = getattr(value, part)
                assert value is not None


# --- files that are not Python --------------------------------------------------------------------

FILES = [
    ("a.sh", "ASCEND_RT_VISIBLE_DEVICES=0 python a\n", "CAUSEWAY_VISIBLE_DEVICES=0 python a\n"),
    ("a.sh", "export DIPU_FORCE_FALLBACK_OPS_LIST=add.out\n", "export CAUSEWAY_FALLBACK=add.out\n"),
    ("a.sh", "torch_npu_run --nproc_per_node 2 a.py\n", "torchrun --nproc_per_node 2 a.py\n"),
    ("a.sh", "HCCL_EXEC_TIMEOUT=9 npu-smi info\nsource /usr/local/Ascend/set_env.sh\n", ""),
    ("a.yaml", "env:\n  MLU_VISIBLE_DEVICES: '0'\nbackend: cncl\n",
     "env:\n  CAUSEWAY_VISIBLE_DEVICES: '0'\nbackend: cncl\n"),
    ("a.yaml", "trainer:\n  accelerator: npu\n  max_epochs: 2\n",
     "trainer:\n  accelerator: auto\n  max_epochs: 2\n"),
    ("a.yaml", "run: |\n  export MLU_VISIBLE_DEVICES=1\n",
     "run: |\n  export CAUSEWAY_VISIBLE_DEVICES=1\n"),
    ("a.json", '{"distributed_type": "MULTI_NPU", "device": "npu:0"}\n', ""),
    ("requirements.txt", "torch_npu==2.1.0\ntorch-mlu\n", ""),
]  # fmt: skip


@pytest.mark.parametrize(("path", "before", "after"), FILES)
def test_scripts_and_configurations_lose_their_names(path: str, before: str, after: str) -> None:
    of_kind = converter(path)
    assert of_kind is not None
    result = of_kind(FileInput(path, before.encode()), Settings())
    assert result.after == (after or before)
    assert len(result.findings) > (0 if after else 1)
    again = of_kind(FileInput(path, result.after.encode()), Settings())
    assert again.after == result.after


def test_one_file_becomes_one_file(tmp_path: Path) -> None:
    source = tmp_path / "model_file.py"
    source.write_text(NPU + "x = x.npu()\n")
    goal = tmp_path / "model_file_out.py"
    arguments = ["migrate", "-i", str(source), "-o", str(goal)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert goal.read_text() == convert(NPU + "x = x.npu()\n")
    assert CliRunner().invoke(app, arguments).exit_code == 2, "it is there already"
    arguments = ["migrate", str(source), "-o", str(tmp_path / "d")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert (tmp_path / "d" / "model_file.py").read_text() == goal.read_text()


def test_a_conversion_is_taken_back(tmp_path: Path) -> None:
    shutil.copytree(PROGRAMS, tmp_path / "tree")
    before = {path.name: path.read_bytes() for path in (tmp_path / "tree").iterdir()}
    written = journal.write(engine.run([tmp_path / "tree"], Settings(jobs=1)))
    assert len(written) == len(before)
    assert journal.undo(tmp_path / "tree")
    assert {p.name: p.read_bytes() for p in (tmp_path / "tree").iterdir() if p.is_file()} == before


# --- programs that run ----------------------------------------------------------------------------

DRIVER = """
import contextlib, faulthandler, io, json, os, runpy, sys, traceback, warnings
import torch
faulthandler.dump_traceback_later(260)  # where it hangs
warnings.simplefilter("ignore")
outcomes = {}
for path in json.loads(sys.argv[1]):
    sys.argv, out = [path], io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(path, run_name="__main__")
        outcomes[os.path.basename(path)] = out.getvalue()
    except BaseException:
        outcomes[os.path.basename(path)] = traceback.format_exc()
print(json.dumps(outcomes))
"""
SYSTEMS = {"npu": "npu_*.py", "mlu": "mlu_*.py", "dipu": "dipu_*.py", "mindtorch": "mindtorch_*.py"}
ALL = sorted(path.name for pattern in SYSTEMS.values() for path in PROGRAMS.glob(pattern))
ALL.append("notebook.py")  # the cells of the converted notebook


def run_all(paths: list[Path], *, device: bool = True, compat: str = "") -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PORT": str(port)}
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1" if device else "0"
    if compat:
        environment["CAUSEWAY_COMPAT"] = compat
    arguments = ["-c", DRIVER, json.dumps([str(path) for path in paths])]
    try:
        done = warm.run(arguments, env=environment, timeout=280, new=bool(compat))
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"they did not end: {str(late.stderr)[-3000:]}")
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return outcomes


def losses(said: str, device: str) -> list[float]:
    assert f"device {device}\n" in said, said
    return [float(number) for number in re.findall(r"^loss (\S+)$", said, re.M)]


def same(one: list[float], other: list[float], tolerance: float = 1e-4) -> None:
    assert len(one) == len(other) > 3
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
    assert len({round(x, 5) for x in one}) > 2, "losses that do not move prove nothing"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All the programs, converted as a tree."""
    target = tmp_path_factory.mktemp("systems") / "converted"
    result = engine.run([PROGRAMS], Settings(jobs=1))
    journal.copy(result, [PROGRAMS], target)
    left = [f for f in result.findings() if f.kind in ("manual", "unsupported") and not f.is_advice]
    assert {Path(f.file).suffix for f in left} <= {".sh", ".yaml", ".ipynb"}, left
    cells = json.loads((target / "notebook.ipynb").read_text())["cells"]
    source = "\n".join("".join(cell["source"]) for cell in cells)
    assert "%env CAUSEWAY_VISIBLE_DEVICES=0" in source
    (target / "notebook.py").write_text(re.sub(r"^[%!].*$", "", source, flags=re.M))
    return target


@pytest.fixture(scope="module")
def on_cpu(tree: Path) -> dict[str, str]:
    return run_all([tree / name for name in ALL], device=False)


@pytest.fixture(scope="module")
def on_device(tree: Path) -> dict[str, str]:
    (tree / "fault.py").write_text(  # the planted fault: a program that loses its device
        (tree / "npu_checkpoint.py").read_text().replace("model.to(device)", "model.to('meta')")
    )
    return run_all([tree / name for name in (*ALL, "fault.py")])


@pytest.mark.parametrize("name", ALL)
def test_a_converted_program_gives_the_cpus_losses(
    name: str, on_cpu: dict[str, str], on_device: dict[str, str]
) -> None:
    same(
        losses(on_device[name], "sim"), losses(on_cpu[name], "cpu"),
        3e-2 if name == "npu_amp.py" else 1e-4,
    )  # fmt: skip


def test_a_program_that_loses_its_device_is_found(on_device: dict[str, str]) -> None:
    with pytest.raises(AssertionError):
        losses(on_device["fault.py"], "sim")


@pytest.mark.parametrize(
    "system", ["npu", *(pytest.param(s, marks=pytest.mark.long) for s in list(SYSTEMS)[1:])]
)
def test_the_same_programs_run_as_they_are_under_compat(
    system: str, on_cpu: dict[str, str]
) -> None:
    paths = sorted(PROGRAMS.glob(SYSTEMS[system]))
    assert paths
    said = run_all(paths, compat=system)
    for path in paths:
        # Where CUDA's calls are redirected, the device says so.
        redirected = path.name in ("npu_transferred.py", "dipu_train.py")
        name = "cuda" if redirected else systems()[system].device or "sim"
        tolerance = 3e-2 if path.name == "npu_amp.py" else 1e-4
        same(losses(said[path.name], name), losses(on_cpu[path.name], "cpu"), tolerance)


@pytest.mark.long
def test_a_launch_script_starts_the_converted_program_on_the_device_it_names(tree: Path) -> None:
    script = (tree / "launch.sh").read_text()
    assert "python launched.py --config launched.yaml" in script, "the default is the device's own"
    script = re.sub(r"^source .*$", "", script, flags=re.M)  # there is no toolkit here
    script = script.replace(" python ", f" {sys.executable} ")
    (tree / "there.sh").write_text(script)
    shell = shutil.which("bash")
    assert shell is not None
    done = subprocess.run(
        [shell, "there.sh"], cwd=tree, capture_output=True, text=True, timeout=240, check=True
    )
    assert "devices 1\n" in done.stdout, "CAUSEWAY_VISIBLE_DEVICES=0"
    assert len(losses(done.stdout, "sim")) == 5


def test_a_function_that_imports_torch_and_a_system_needs_no_second_import() -> None:
    text = (
        "def f(x):\n    import torch\n    import torch_npu  # noqa\n\n"
        "    return torch.npu.device_count()\n"
    )
    assert convert(text) == (
        "def f(x):\n    import torch\n\n    return torch.accelerator.device_count()\n"
    )
