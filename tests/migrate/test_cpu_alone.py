"""A converted program runs where there is no accelerator, with torch alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import warm
from causeway.migrate.module import HELPER
from causeway.migrate.python import convert_source
from causeway.migrate.settings import Settings

HELP = f"accelerator = {HELPER.format(torch='torch')}\n"
IF = "if torch.accelerator.is_available():\n    "
ELSE = " if torch.accelerator.is_available() else "
# Each runs by itself behind its own setup; every name that the table guards is there.
RUNS = [
    "torch.cuda.set_device(rank)\n",
    "if os.environ:\n    torch.cuda.set_device(rank)\n",
    "i = torch.cuda.current_device()\nassert i == 0\n",
    "device = torch.cuda.current_device()\nassert x.to(device).device.type == 'cpu'\n",
    "y = x.to(torch.cuda.current_device(), non_blocking=True)\n",
    "y = torch.zeros(2, device=torch.cuda.current_device())\n",
    "d = torch.device('cuda', torch.cuda.current_device())\nassert str(d) == 'cpu'\n",
    "d = torch.device(torch.cuda.current_device())\n",
    "d = torch.device(f'cuda:{torch.cuda.current_device()}')\n",
    "y = x.cuda(torch.cuda.current_device())\n",
    "with torch.cuda.device(rank):\n    x.cuda(rank)\n",
    "with torch.cuda.device(1):\n    pass\n",
    "torch.cuda.current_stream().synchronize()\n",
    "s = torch.cuda.Stream()\ntorch.cuda.current_stream().wait_stream(s)\n",
    "x.record_stream(torch.cuda.current_stream())\n",
    "torch.cuda.synchronize(); torch.cuda.empty_cache()\n".replace("; ", "\n"),
    "torch.cuda.reset_peak_memory_stats()\n"
    "print(torch.cuda.memory_allocated() / 2**20, torch.cuda.max_memory_allocated())\n"
    "print(f'{torch.cuda.max_memory_reserved()}')\nassert not torch.cuda.memory_stats()\n",
    "y = torch.load(file, map_location='cuda:0')\n",
    "y = torch.load(file, 'cuda:0')\n",
    "y = torch.load(file, map_location=torch.device('cuda:0'))\n",
    "y = torch.load(file, map_location='cuda:1')\n",
    "y = torch.load(file, map_location=f'cuda:{rank}')\n",
    "y = torch.load(file, map_location='cuda:%d' % rank)\n",
    "y = torch.load(file, map_location='cuda:{}'.format(rank))\n",
    "y = torch.load(file, map_location=torch.device('cuda', rank))\n",
    "y = torch.load(file, map_location=torch.device(f'cuda:{rank}'))\n",
    "y = torch.load(file, map_location=lambda storage, _: storage.cuda(rank))\n",
    "where = 'cuda:{}'.format(rank)\ny = torch.load(file, map_location=where)\n",
    "device = torch.device('cuda', rank)\ny = torch.load(file, map_location=device)\n",
    "class A:\n    def __init__(self):\n        self.place = f'cuda:{rank}'\n"
    "        torch.load(file, map_location=self.place)\n\n\nA()\n",
    "import torch.distributed as dist\n"
    "dist.init_process_group('nccl', store=dist.HashStore(), rank=0, world_size=1)\n"
    "m = torch.nn.Linear(2, 2).cuda(rank)\n"
    "m = torch.nn.parallel.DistributedDataParallel(m, device_ids=[rank], output_device=rank)\n"
    "m(x)\ndist.destroy_process_group()\n",
    "def f(torch, x):\n    torch.cuda.set_device(0)\n    return x.cuda()\n\n\nf(torch, x)\n",
    "def f(x):\n    import torch as th\n    th.cuda.synchronize()\n    return x.cuda()\n\n\nf(x)\n",
]  # fmt: skip


def convert(text: str) -> str:
    after = convert_source(text, Settings())[0]
    assert convert_source(after, Settings())[0] == after, "a second run changes it"
    return after


def test_each_runs_on_the_cpu_alone(tmp_path: Path) -> None:
    head = "import os\n\nimport torch\n\nrank, x, file = 1, torch.ones(2), os.environ['CKPT']\n"
    pieces = []
    for i, text in enumerate(RUNS):
        after = convert_source(head + text, Settings())[0]
        assert after != head + text, text
        (tmp_path / f"p{i}.py").write_text(after, encoding="utf-8")
        pieces.append(f"p{i}.py")
    code = f"""
import os, runpy, torch, traceback
os.environ["CKPT"] = {str(tmp_path / "x.pt")!r}
torch.save(torch.ones(2), os.environ["CKPT"])
assert torch.accelerator.current_accelerator() is None
for name in {pieces!r}:
    try:
        runpy.run_path(os.path.join({str(tmp_path)!r}, name))
    except BaseException:
        print("FAILED", name, traceback.format_exc())
"""
    off = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": ""}
    done = warm.run(["-c", code], env=off, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "FAILED" not in done.stdout, done.stdout[-4000:]


CHANGED = {
    "a number of a device chosen by an argument": (
        "if args.gpu is not None:\n    torch.cuda.set_device(args.gpu)\n",
        "if args.gpu is not None:\n    torch.accelerator.set_device_index(args.gpu)\n",
    ),
    "statements in a row have one condition": (
        "torch.cuda.set_device(i)\ntorch.cuda.empty_cache()\n",
        IF + "torch.accelerator.set_device_index(i)\n    torch.accelerator.empty_cache()\n",
    ),
    "a checkpoint where several devices are used": (
        'torch.cuda.set_device(i)\ny = torch.load(p, map_location="cuda:0")\n',
        f"{IF}torch.accelerator.set_device_index(i)\n"
        f'y = torch.load(p, map_location=f"{{accelerator.type}}:0"{ELSE}"cpu")\n',
    ),
    "a name of a place that torch.load is not given": (
        'where = f"cuda:{i}"\ny = x.to(where)\n',
        'where = f"{accelerator.type}:{i}"\ny = x.to(where)\n',
    ),
    "a comment goes with the seed that it is about": (
        "torch.manual_seed(s)\ntorch.cuda.manual_seed_all(s)  # all GPUs\nnp.random.seed(s)\n",
        "torch.manual_seed(s)\nnp.random.seed(s)\n",
    ),
    "a model under a question already": (
        "if torch.cuda.is_available():\n"
        "    m = torch.nn.parallel.DistributedDataParallel(m, device_ids=[i])\n",
        f"{IF}m = torch.nn.parallel.DistributedDataParallel(m, device_ids=[i])\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGED)
def test_what_is_written(what: str) -> None:
    before, after = ("import torch\n\n" + text for text in CHANGED[what])
    if "accelerator.type" in after:
        after = after.replace("import torch\n\n", f"import torch\n\n{HELP}\n")
    assert convert(before) == after


def test_torch_that_is_brought_late_stays_late() -> None:
    skipped = 'import pytest\n\ntorch = pytest.importorskip("torch")\nx = torch.ones(2).cuda()\n'
    assert convert(skipped) == (
        'import pytest\n\ntorch = pytest.importorskip("torch")\n\n'
        f"{HELP}x = torch.ones(2).to(accelerator)\n"
    )
    own = "def f(x):\n    import torch as th\n\n    th.cuda.set_device(0)\n    return x.cuda()\n"
    assert convert(own) == (
        "def f(x):\n    import torch as th\n"
        f"    {HELP.replace('torch.', 'th.')}\n"
        "    if th.accelerator.is_available():\n        th.accelerator.set_device_index(0)\n"
        "    return x.to(accelerator)\n"
    )
    another = own + "\n\ndef g(x):\n    return x.cuda()\n"  # which has no torch of its own
    assert convert(another).startswith("import torch\n")


def test_two_names_of_torch_are_asked_each_for_itself() -> None:
    before = (
        "import torch\n\ntorch.cuda.set_device(0)\nimport torch as th\n\nth.cuda.synchronize()\n"
    )
    after = convert(before)
    assert (
        after.index("if torch.acc") < after.index("import torch as th") < after.index("if th.acc")
    )
