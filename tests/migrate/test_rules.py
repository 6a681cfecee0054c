"""Each rule by two tables: what it must leave, and what it must make of what.

A case is the lines after `import torch`; the helper variable is added to the expectation where it
is used. Every result is converted again, and must stay.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.migrate import engine
from causeway.migrate.module import HELPER
from causeway.migrate.python import convert_source
from causeway.migrate.rules import RULES
from causeway.migrate.settings import Settings

HELP = f"accelerator = {HELPER.format(torch='torch')}\n\n"
HEAD = "import torch\n\n"

NOOP: dict[str, list[str]] = {
    "CW162": [
        "y = torch.ops.aten.add.Tensor(x, x)\nz = torch.ops.torchvision.nms(a, b, 0.5)\n",
        "def f(torch):\n    return torch.ops.mine.scale(x)\n",
        "y = torch.ops.mine.scale(x)\n",  # reported
    ],
    "CW101": [
        'fish = "barracuda"\n',
        'path = "checkpoints/cuda/model_cuda.pt"\n',
        'flags = {"cuda": True}\nprint(flags["cuda"])\n',
        'print("cuda")\n',
        '"""About cuda, torch.cuda.is_available() and .cuda()."""\n# x.cuda()\n',
        'kernel = """__global__ void f() {} // torch.cuda.synchronize()"""\n',
        'parser.add_argument("--no-cuda", action="store_true", help="disable cuda")\n',
        'import xgboost\n\nm = xgboost.XGBClassifier(device="cuda")\n',
        'mode = "cuda"\n',
        "raw = b'cuda'\n",
        'open("cuda", "w").write("cuda:0")\n',
        'if hasattr(batch, "cuda"):\n    pass\n',
        'p.add_argument("--cuda", dest="cuda", action="store_true")\n',
    ],
    "CW102": [
        "cuda = True\nprint(args.cuda, self.cuda)\n",
        "class Batch:\n    def cuda(self):\n        return self\n\n\nBatch().cuda()\n",
        "class Batch:\n    def cuda(self):\n        return self\n\n\nb = Batch()\nb.cuda()\n",
        "class Batch:\n    def cuda(self):\n        return self\n\n\n"
        "def f(b: Batch):\n    return b.cuda()\n",
        "class Batch:\n    def cuda(self):\n        return self\n\n\n"
        "def f(batch):\n    return batch.cuda()\n",  # may be one: reported
        "import numba.cuda\n\nnumba.cuda.jit()\n",
        "x.cuda(*where)\n",
        "x.cuda(stream=3)\n",
    ],
    "CW102 scripted": [
        "@torch.jit.script\ndef f(x):\n    return x.cuda()\n",
        "def f(x):\n    return x.cuda()\n\n\ng = torch.jit.script(f)\n",
    ],
    "CW103": [
        "is_cuda = 1\nprint(is_cuda)\n",
        "class M:\n    def is_cuda(self):\n        return True\n\n    def f(self):\n"
        "        return self.is_cuda()\n",
        "def f(x):\n    if x.is_cuda:\n        return ops_cuda.forward(x)\n    return slow(x)\n",
        "from ext import focal_cuda\n\n\ndef f(x):\n    g = focal_cuda if x.is_cuda else focal\n"
        "    return g(x)\n",
        # the program's own
        "class Loader:\n    def __init__(self, on):\n        self.is_cuda = on\n\n"
        "    def __iter__(self):\n        return 1 if self.is_cuda else 2\n",
        "if args.is_cuda or cfg.is_cuda:\n    pass\n",
    ],
    "CW106": [
        "raw = torch.cuda.current_stream().cuda_stream\n",
        "raw = torch.cuda.Stream(device=0).cuda_stream\n",
    ],
    "CW105": [
        "def f(torch=None):\n    return torch.cuda.device_count()\n",
        "def f(torch: bool):\n    return torch.cuda.device_count()\n",
        "class torch:\n    pass\n\n\nn = torch.cuda.device_count()\n",
        "n = torch.cuda.device_count()  # causeway: keep\n",
        "# causeway: keep\nif True:\n    n = torch.cuda.device_count()\n",
        "if torch.version.cuda:\n    torch.cuda.synchronize()\n",
    ],
    "CW110": [
        "def f():\n    if not torch.cuda.is_available() or not flash:\n        return None\n"
        "    p = torch.cuda.get_device_properties(0)\n    return p.major == 8\n",
        "a = torch.cuda.get_device_capability() >= (7, 0)\n",
    ],
    "CW111": ['torch.cuda.nvtx.range_push("a")\ntorch.cuda.nvtx.range_pop()\n'],
    "CW112": ["g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    pass\n"],
    "CW113": ["torch.cuda.cudart().cudaProfilerStart()\n"],
    "CW114": [
        "ok = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8\n",
        "if torch.cuda.is_available():\n    torch.cuda.cudart()\n",
        "ok = torch.accelerator.is_available()\n",
        # a build, and what it built
        "if torch.cuda.is_available():\n    sources += ['src/crop_cuda.c']\n",
        "if torch.cuda.is_available():\n    defines += [('WITH_CUDA', None)]\n",
        "if torch.cuda.is_available():\n    from model.nms_gpu import nms_gpu\n",
    ],
    "CW119": ['x: "torch.cudax.Stream" = None\ns = "torch.cuda.Stream"\n'],
    "CW118": ["text = 'async=True'\nx = f(non_blocking=True)\n"],
    "CW115": [
        'if implementation == "cuda":\n    pass\n',
        'def f(x):\n    return x.device.type == "cuda" and impl == "cuda"\n',
    ],
    "CW117": ['has = hasattr(torch.cuda, "amp")\n', "f = getattr(torch.cuda, name)\n"],
    "CW121": ["from apex import amp\n\nmodel, optimizer = amp.initialize(model, optimizer)\n"],
    "CW122": ['p.add_argument("--no-cuda", action="store_true", help="no CUDA")\n'],
    "CW123": [
        "if torch.accelerator.is_available():\n    f()\nelif torch.xpu.is_available():\n    g()\n",
    ],
    "CW130": [
        "torch.backends.cudnn.benchmark = True\ntorch.backends.cuda.matmul.allow_tf32 = True\n",
        "print(torch.version.cuda)\n",
    ],
    "CW140": [
        'print("nccl")\n',
        'log = "nccl"\n',
        'os.environ["NCCL_DEBUG"] = "INFO"\n',
    ],
    "CW141": ["model = torch.nn.DataParallel(model, device_ids=[0, 1])\n"],
    "CW143": [
        'with patch("package.is_available", return_value=True):\n    f()\n',
        'with patch("torch.cuda.is_available", return_value=True):\n    f()\n',
        "monkeypatch.setattr(package, 'is_available', no)\n",
    ],
    "CW142": [
        'import os\n\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\n',
        'import os\n\nos.environ.update(CUDA_VISIBLE_DEVICES="0")\n',
    ],
    "CW152": ['s = torch.load("a.pt")\n', 's = torch.load("a.pt", map_location="cpu")\n'],
    "CW153": ["torch.set_default_tensor_type(torch.DoubleTensor)\n"],
    "CW160": ["from torch.utils.cpp_extension import load\n\nops = load('ops', ['ops.cu'])\n"],
    "CW161": ["import flash_attn\nimport triton\nfrom nvidia.dali import pipeline_def\n"],
}

CHANGED: dict[str, list[tuple[str, str]]] = {
    "CW101": [
        ('x.to("cuda")\n', "x.to(accelerator)\n"),
        ("x.to('cuda:1', non_blocking=True)\n", "x.to(f'{accelerator.type}:1', non_blocking=True)\n"),  # noqa: E501
        ('d = torch.device("cuda")\n', "d = accelerator\n"),
        (
            'from dataclasses import dataclass, field\n\n\n@dataclass\nclass Args:\n'
            '    device: str = field(default="cuda", metadata={"help": "cuda"})\n',
            'from dataclasses import dataclass, field\n\n\n@dataclass\nclass Args:\n'
            '    device: str = field(default=accelerator.type, metadata={"help": "cuda"})\n',
        ),
        (
            'def main(device: str = Option("cuda"), mode: str = Option("cuda")): ...\n',
            'def main(device: str = Option(accelerator.type), mode: str = Option("cuda")): ...\n',
        ),
        ('d = torch.device(type="cuda", index=1)\n',
         "d = torch.device(type=accelerator.type, index=1)\n"),
        ("é = 'ü'; x.to('cuda')  # 漢字\n", "é = 'ü'; x.to(accelerator)  # 漢字\n"),
        ('d = torch.device("cuda", rank)\n', "d = torch.device(accelerator.type, rank)\n"),
        ('x.to(f"cuda:{rank}")\n', 'x.to(f"{accelerator.type}:{rank}")\n'),
        ('d = f"cuda"\nx.to(d)\n', "d = accelerator.type\nx.to(d)\n"),
        ("x.to('cuda:{:d}'.format(rank))\n", "x.to('{}:{:d}'.format(accelerator.type, rank))\n"),
        # the choices say what the default is
        ('p.add_argument("--gpu", default="cuda", choices=["cuda", "cpu"])\n',
         'p.add_argument("--gpu", default=accelerator.type, choices=[accelerator.type, "cpu"])\n'),
        ('device = "cuda:%d" % rank\n', 'device = f"{accelerator.type}:%d" % rank\n'),
        ('device = "cuda:" + str(rank)\n', 'device = f"{accelerator.type}:" + str(rank)\n'),
        ('device = "cuda:{}".format(i)\n', 'device = "{}:{}".format(accelerator.type, i)\n'),
        (
            'parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])\n',
            'parser.add_argument("--device", default=accelerator.type, '
            'choices=[accelerator.type, "cpu"])\n',
        ),
        ('c = {"device": "cuda", "cuda": 1}\n', 'c = {"device": accelerator.type, "cuda": 1}\n'),
        ('d = getattr(args, "device", "cuda")\n', 'd = getattr(args, "device", accelerator.type)\n'),  # noqa: E501
        (
            'def f(x, device="cuda"):\n    return x.to(device)\n',
            "def f(x, device=accelerator.type):\n    return x.to(device)\n",
        ),
        ('g = torch.Generator(device="cuda")\n', "g = torch.Generator(device=accelerator)\n"),
        (
            'd = DataLoader(s, pin_memory_device="cuda")\n',
            "d = DataLoader(s, pin_memory_device=accelerator.type)\n",
        ),
        ('w = "cuda" if flag else "cpu"\n', 'w = accelerator.type if flag else "cpu"\n'),
        ('w = "cuda"if flag else"cpu"\n', 'w = accelerator.type if flag else"cpu"\n'),
        (
            'torch.load(p, map_location={"cuda:0": "cuda:%d" % rank})\n',
            'torch.load(p, map_location={f"{accelerator.type}:0": f"{accelerator.type}:%d" '
         "% rank})\n",
        ),
        (
            "print(f\"on {'cuda' if flag else 'cpu'} {fish['cuda']}\")\n",
            "print(f\"on {accelerator.type if flag else 'cpu'} {fish['cuda']}\")\n",
        ),
    ],
    "CW102": [
        # a storage's .to() takes its device by the name alone
        ("f = lambda storage, loc: storage.cuda(0)\n",
         "f = lambda storage, loc: storage.to(device=torch.device(accelerator.type, 0))\n"),
        ("s = x.untyped_storage().cuda()\n",
         "s = x.untyped_storage().to(device=accelerator)\n"),
        (
            "torch.load(p, map_location=lambda s, l: s.cuda(torch.cuda.current_device()))\n",
            "torch.load(p, map_location=accelerator)\n",
        ),
        ("x = next(it).cuda()\n", "x = next(it).to(accelerator)\n"),
        ("x.cuda(non_blocking=True)\n", "x.to(accelerator, non_blocking=True)\n"),
        ("x.cuda(0, True)\n", "x.to(torch.device(accelerator.type, 0), non_blocking=True)\n"),
        ("x.cuda(next(it))\n", "x.to(torch.device(accelerator.type, next(it)))\n"),
        (
            "x.cuda(device=args.gpu)\n",
            "x.to(device=torch.device(accelerator.type, args.gpu))\n",
        ),
        ("x.cuda(device)\n", "x.to(device)\n"),
        ('x.cuda("cuda:1")\n', 'x.to(f"{accelerator.type}:1")\n'),
        ("x.cuda(None)\n", "x.to(accelerator)\n"),
        (
            "def f(x, device=None):\n    return x.cuda(device)\n",
            "def f(x, device=None):\n"
            "    return x.to(device if device is not None else accelerator)\n",
        ),
        ("y = (x\n     .cuda()  # move\n     .half())\n",
         "y = (x\n     .to(accelerator)  # move\n     .half())\n"),
        ("z = [t.cuda() for t in xs]\n", "z = [t.to(accelerator) for t in xs]\n"),
        (
            "torch.load(p, map_location=lambda storage, loc: storage.cuda(0))\n",
            "torch.load(p, map_location=torch.device(accelerator.type, 0 "
            "if torch.accelerator.is_available() else None))\n",
        ),
        (
            "class Net(torch.nn.Module):\n    def cuda(self, device=None):\n"
            "        return super().cuda()\n\n\nNet().cuda()\n",
            "class Net(torch.nn.Module):\n    def cuda(self, device=None):\n"
            "        return super().to(accelerator)\n\n\nNet().cuda()\n",
        ),
    ],
    "CW103": [
        ("assert x.is_cuda\n", 'assert x.device.type == accelerator.type != "cpu"\n'),
        ("if not x.is_cuda:\n    pass\n", 'if not x.device.type == accelerator.type != "cpu":\n'
         "    pass\n"),
        ("a = x.is_cuda == y.is_cuda\n",
         'a = (x.device.type == accelerator.type != "cpu") == (y.device.type == '
         'accelerator.type != "cpu")\n'),
        ("a = next(m.parameters()).is_cuda and b\n",
         'a = next(m.parameters()).device.type == accelerator.type != "cpu" and b\n'),
        ('print(f"{x.is_cuda}")\n', 'print(f"{(x.device.type == accelerator.type != \'cpu\')}")\n'),
        ('mps = "mps"\na = x.is_cuda\n',
         'mps = "mps"\na = x.device.type == accelerator.type != "cpu"\n'),
    ],
    "CW104": [
        ("x = torch.cuda.LongTensor([1])\n", "x = torch.LongTensor([1]).to(accelerator)\n"),
        ("T = torch.cuda.FloatTensor if cuda else torch.FloatTensor\n",
         'T = getattr(torch.get_device_module(), "FloatTensor", torch.FloatTensor) if cuda '
         "else torch.FloatTensor\n"),
        # unguarded it was there on the CPU too
        ("T = {0: torch.cuda.FloatTensor}\n",
         'T = {0: getattr(torch.get_device_module(), "FloatTensor", torch.FloatTensor)}\n'),
        ("x.type('torch.cuda.HalfTensor')\n", "x.to(accelerator, torch.float16)\n"),
        ("a = x.type() == 'torch.cuda.FloatTensor'\n",
         "a = x.type() == f'torch.{accelerator.type}.FloatTensor'\n"),
        ("def f(x: torch.cuda.FloatTensor): ...\n", "def f(x: torch.Tensor): ...\n"),
    ],
    "CW105": [
        ("torch.cuda.synchronize(device=0)\n",
         "if torch.accelerator.is_available():\n    torch.accelerator.synchronize(0)\n"),
        ("def f():\n\ttorch.cuda.synchronize()\n",
         "def f():\n\tif torch.accelerator.is_available():\n\t\ttorch.accelerator.synchronize()\n"),
        ("if gpu: torch.cuda.synchronize()\n", "if gpu: torch.accelerator.synchronize()\n"),
        ("cuda = torch.cuda\nn = cuda.device_count()\n",
         "cuda = torch.cuda\nn = torch.accelerator.device_count()\n"),
        ("sync = torch.cuda.synchronize\nsync()\n",
         "sync = torch.accelerator.synchronize\nsync()\n"),
        ("e = torch.cuda.OutOfMemoryError\n", "e = torch.OutOfMemoryError\n"),
        ('print(f"""a\n{torch.cuda.device_count()} seen""")\n',
         'print(f"""a\n{torch.accelerator.device_count()} seen""")\n'),
    ],
    "CW106": [
        ("e = torch.cuda.Event(True, False)\n",
         "e = torch.Event(enable_timing=True, blocking=False)\n"),
        ("s = torch.cuda.Stream(d, -1)\n", "s = torch.Stream(d, priority=-1)\n"),
        ("with torch.cuda.stream(s), open(p) as f:\n    pass\n",
         'with getattr(torch.get_device_module(), "stream", lambda _: '
         "torch.accelerator.device_index(None))(s), open(p) as f:\n"
         "    pass\n"),
        ("torch.cuda.current_stream().wait_stream(s)\n",
         "if torch.accelerator.is_available():\n"
         "    torch.accelerator.current_stream().wait_stream(s)\n"),
        ("def f(s: torch.cuda.Stream): ...\n", "def f(s: torch.Stream): ...\n"),
    ],
    "CW107": [
        ("with torch.cuda.device(x.device):\n    pass\n",
         "with torch.accelerator.device_index(x.device.index):\n    pass\n"),
        ("with torch.cuda.device(where):\n    pass\n",
         'with getattr(torch.get_device_module(), "device", lambda _: '
         "torch.accelerator.device_index(None))(where):\n"
         "    pass\n"),
        ("with torch.cuda.device(x.get_device()):\n    pass\n",
         "with torch.accelerator.device_index(x.get_device() "
         "if torch.accelerator.is_available() else None):\n    pass\n"),
    ],
    "CW108": [
        # another seed than the CPU's: what the CPU draws stays
        ("torch.manual_seed(r())\nif torch.cuda.is_available():\n    torch.cuda.manual_seed(r())\n",
         "torch.manual_seed(r())\nif torch.accelerator.is_available():\n"
         "    torch.get_device_module().manual_seed(r())\n"),
        ("torch.manual_seed(s)\nx = f()\nif torch.cuda.is_available():\n"
         "    torch.cuda.manual_seed_all(s)\n",
         "torch.manual_seed(s)\nx = f()\nif torch.accelerator.is_available():\n"
         "    torch.manual_seed(s)\n"),
        ("torch.cuda.manual_seed(1)\n", "torch.manual_seed(1)\n"),
        ("torch.manual_seed(s)\nx = torch.rand(1)\ntorch.cuda.manual_seed(s)\n",
         "torch.manual_seed(s)\nx = torch.rand(1)\ntorch.manual_seed(s)\n"),
        ("state = torch.cuda.get_rng_state()\n",
         'state = getattr(torch.get_device_module(), "get_rng_state", lambda *_: '
         "torch.get_rng_state())()\n"),
    ],
    "CW109": [
        ('use = "cpu"\nm = torch.cuda.memory_allocated() / 2\n',
         'use = "cpu"\nm = (torch.accelerator.memory_allocated() '
         "if torch.accelerator.is_available() else 0) / 2\n"),
        ("if gpu:\n    m = torch.cuda.memory_cached(0)\n",
         "if gpu:\n    m = torch.accelerator.memory_reserved(0)\n"),
        ("torch.cuda.memory.empty_cache()\n",
         "if torch.accelerator.is_available():\n    torch.accelerator.empty_cache()\n"),
        ("f, t = torch.cuda.mem_get_info()\n", "f, t = torch.accelerator.get_memory_info()\n"),
    ],
    "CW110": [
        ("p = torch.cuda.get_device_properties(0)\n",
         "p = torch.get_device_module().get_device_properties(0)\n"),
    ],
    "CW114": [
        ('d = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n',
         'd = torch.device(f"{torch.accelerator.current_accelerator().type}:0" '
         'if torch.accelerator.is_available() else "cpu")\n'),
        ("c = not args.no_cuda and torch.cuda.is_available()\n",
         "c = not args.no_cuda and torch.accelerator.is_available()\n"),
        ('b = "gloo" if not torch.cuda.is_available() else "cuda"\n', ""),
    ],
    "CW115": [
        ('a = "cuda" in device\n', 'a = "cpu" != accelerator.type in device\n'),
        ('if args.device != "cuda": pass\n',
         'if not args.device == accelerator.type != "cpu": pass\n'),
        ('a = str(x.device).startswith("cuda")\n',
         'a = accelerator.type != "cpu" and '
         "str(x.device).startswith(accelerator.type)\n"),
        ('if not device.startswith("cuda"): pass\n',
         'if not (accelerator.type != "cpu" and device.startswith(accelerator.type)): '
         "pass\n"),
        ('d = "mps"\na = device.type == "cuda"\n',
         'd = "mps"\na = device.type == accelerator.type != "cpu"\n'),
        ('d = "xpu"\na = device != "cuda" or b\n',
         'd = "xpu"\na = not device == accelerator.type != "cpu" or b\n'),
    ],
    "CW116": [
        ("from torch import cuda as c\n\nn = c.device_count()\n",
         "\nn = torch.accelerator.device_count()\n"),
        ("from torch.cuda import (\n    device_count,  # how many\n    Stream,\n)  # noqa\n\n"
         "device_count(), Stream()\n",
         "from torch.accelerator import device_count  # how many\n"
         "from torch import Stream  # noqa\n"
         "\n"
         "device_count(), Stream()\n"),
        ("from torch import cuda  # the GPU\n\nn = cuda.device_count()\n",
         "# the GPU\n\nn = torch.accelerator.device_count()\n"),
        ("from torch.cuda import device_count as n, current_device\n\nn(), current_device()\n",
         "from torch.accelerator import device_count as n, current_device_index as current_device\n"
         "\nn(), (current_device() if torch.accelerator.is_available() else 0)\n"),
        ("def f():\n    from torch.cuda import Stream, synchronize, get_rng_state\n"
         "    return Stream, synchronize, get_rng_state()\n",
         "def f():\n"
         "    from torch import Stream\n"
         "    from torch.accelerator import synchronize\n"
         "    return Stream, synchronize, getattr(torch.get_device_module(), "
         '"get_rng_state", lambda *_: torch.get_rng_state())()\n'),
    ],
    "CW120": [
        # called where nothing is seen of it
        ("def f(p):\n    return torch.cuda.amp.autocast if p else nullcontext\n",
         "def f(p):\n"
         "    return (lambda **options: torch.amp.autocast(accelerator.type, "
         '**{"enabled": accelerator.type != "cpu", **options})) if p else nullcontext\n'),
        ("c = partial(torch.cuda.amp.autocast, enabled=False)\n"
         "ok = isinstance(c, torch.cuda.amp.autocast)\n",
         "c = partial((lambda **options: torch.amp.autocast(accelerator.type, "
         '**{"enabled": accelerator.type != "cpu", **options})), enabled=False)\n'
         "ok = isinstance(c, torch.amp.autocast)\n"),
        ('d = "cpu"\nself.cast = torch.cuda.amp.autocast\n',
         'd = "cpu"\nself.cast = lambda **options: torch.amp.autocast(accelerator.type, '
         '**{"enabled": accelerator.type != "cpu", **options})\n'),
        ("if a:\n    cast = torch.cuda.amp.autocast\nelse:\n    cast = suppress\n",
         "if a:\n"
         "    cast = lambda **options: torch.amp.autocast(accelerator.type, "
         '**{"enabled": accelerator.type != "cpu", **options})\n'
         "else:\n"
         "    cast = suppress\n"),
        ("cast = torch.cuda.amp.autocast\nwith cast(): pass\n",
         "cast = torch.amp.autocast\n"
         'with cast(accelerator.type, enabled=accelerator.type != "cpu"): pass\n'),
        ("with torch.cuda.amp.autocast(True, torch.bfloat16):\n    pass\n",
         'with torch.amp.autocast(accelerator.type, enabled=accelerator.type != "cpu", '
         "dtype=torch.bfloat16):\n"
         "    pass\n"),
        ("from torch.cuda import amp\n\ns = amp.GradScaler(init_scale=2.0)\n",
         "from torch import amp\n"
         "\n"
         "HELPs = amp.GradScaler(accelerator.type, init_scale=2.0, "
         'enabled=accelerator.type != "cpu")\n'),
        ("s = torch.cuda.amp.GradScaler(**options)\n",
         's = torch.amp.GradScaler(accelerator.type, **{**options, "enabled": '
         'options.get("enabled", True) and accelerator.type != "cpu"})\n'),
        ("@torch.cuda.amp.autocast()\ndef f(): ...\n",
         '@torch.amp.autocast(accelerator.type, enabled=accelerator.type != "cpu")\n'
         "def f(): ...\n"),
        ("@torch.cuda.amp.custom_fwd\ndef f(): ...\n",
         "@torch.amp.custom_fwd(device_type=accelerator.type)\ndef f(): ...\n"),
        ("@torch.cuda.amp.custom_fwd(cast_inputs=torch.half)\ndef f(): ...\n",
         "@torch.amp.custom_fwd(device_type=accelerator.type, cast_inputs=torch.half)\n"
         "def f(): ...\n"),
        # off on the CPU before, so off on the CPU after
        ('d = "cpu"\nwith torch.cuda.amp.autocast(enabled=a or b):\n    pass\n',
         'd = "cpu"\nwith torch.amp.autocast(accelerator.type, '
         'enabled=(a or b) and accelerator.type != "cpu"):\n    pass\n'),
        ('d = "cpu"\nwith torch.autocast("cuda"):\n    pass\n',
         'd = "cpu"\nwith torch.autocast(accelerator.type, enabled=accelerator.type != "cpu"):\n'
         "    pass\n"),
    ],
    "CW119": [
        ('def f(s: "torch.cuda.Stream", e: List["torch.cuda.Event"]) -> "torch.cuda.HalfTensor":\n'
         "    pass\n",
         'def f(s: "torch.Stream", e: List["torch.Event"]) -> "torch.Tensor":\n    pass\n'),
        ('s: "é | torch.cuda.Stream | None" = None\n', 's: "é | torch.Stream | None" = None\n'),
    ],
    "CW118": [
        ("y = x.cuda(async=True)\nz.copy_(y, async = False)\ns = 'async=True'\n",
         "y = x.to(accelerator, non_blocking=True)\nz.copy_(y, non_blocking = False)\n"
         "s = 'async=True'\n"),
        ("y = x.cuda(0, async=a if b else c)\n",
         "y = x.to(torch.device(accelerator.type, 0), non_blocking=a if b else c)\n"),
    ],
    "CW121": [
        ("from apex.parallel import DistributedDataParallel as DDP\n\nm = DDP(m)\n",
         "from torch.nn.parallel import DistributedDataParallel as DDP\n\nm = DDP(m)\n"),
        ("import apex\n\no = apex.optimizers.FusedAdam(p, lr=1e-3)\n",
         "import apex\n\no = torch.optim.AdamW(p, lr=1e-3, weight_decay=0.0)\n"),
    ],
    "CW140": [
        ('torch.distributed.init_process_group("nccl", world_size=2)\n',
         "torch.distributed.init_process_group("
         "torch.distributed.get_default_backend_for_device(accelerator), world_size=2)\n"),
        ('torch.distributed.init_process_group("cpu:gloo,cuda:nccl")\n',
         'torch.distributed.init_process_group(f"cpu:gloo,{accelerator.type}:'
         '{torch.distributed.get_default_backend_for_device(accelerator)}")\n'),
        # only read, not started: it must not fail where a device has no collectives
        ('backend = "nccl" if torch.cuda.is_available() else "gloo"\n',
         "backend = torch.distributed.Backend.default_device_backend_map.get("
         'torch.accelerator.current_accelerator().type, "gloo") '
         'if torch.accelerator.is_available() else "gloo"\n'),
        ('p.add_argument("--dist-backend", default="nccl")\n',
         'p.add_argument("--dist-backend", default=torch.distributed.Backend.'
         'default_device_backend_map.get(accelerator.type, "gloo"))\n'),
        ('if args.dist_backend == "nccl": pass\n',
         "if args.dist_backend == "
         "torch.distributed.Backend.default_device_backend_map.get(accelerator.type) != "
         '"gloo": pass\n'),
    ],
    "CW153": [
        ("torch.set_default_tensor_type(torch.cuda.HalfTensor if c else torch.HalfTensor)\n",
         'torch.set_default_device(accelerator if c else "cpu"); '
         "torch.set_default_dtype(torch.float16)\n"),
    ],
}  # fmt: skip
CHANGED["CW114"].pop()


def convert(text: str, **settings: object) -> str:
    after, findings = convert_source(text, Settings(**settings))  # type: ignore[arg-type]
    assert all(f.tip and f.message for f in findings)
    again, _ = convert_source(after, Settings(**settings))  # type: ignore[arg-type]
    assert again == after, "a second run changes something"
    return after


def expected(body: str) -> str:
    if "accelerator." not in body.replace("torch.accelerator.", "") and not any(
        word in body for word in ("(accelerator", "=accelerator", " accelerator", ", accelerator")
    ):
        return HEAD + body
    if "HELP" in body:
        return "import torch\n" + body.replace("HELP", HELP)
    lines = body.split("\n")
    last = max((i for i, line in enumerate(lines) if line.startswith(("import ", "from "))),
               default=-1)  # fmt: skip
    if last < 0:
        return HEAD + HELP + body
    first, rest = "\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :])
    return HEAD + first + "\n\n" + HELP.strip("\n") + "\n" + rest


@pytest.mark.parametrize(
    ("code", "body"), [(code, body) for code, bodies in NOOP.items() for body in bodies]
)
def test_leaves_what_is_not_its_own(code: str, body: str) -> None:
    assert convert(HEAD + body) == HEAD + body


@pytest.mark.parametrize(
    ("code", "before", "after"),
    [(code, *case) for code, cases in CHANGED.items() for case in cases],
)
def test_converts(code: str, before: str, after: str) -> None:
    assert convert(HEAD + before) == (expected(after) if "HELP" not in after else (
        "import torch\n\nfrom torch import amp\n\n" + HELP + after.partition("HELP")[2]
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from apex import amp\n\nm, o = amp.initialize(m, o)\n",
         "from causeway.apex import amp\n\nm, o = amp.initialize(m, o)\n"),
        ("import apex\n\nm, o = apex.amp.initialize(m, o)\n",
         "from causeway import apex\n\nm, o = apex.amp.initialize(m, o)\n"),
        ("import apex.amp as a\n\na.initialize(m)\n",
         "import causeway.apex.amp as a\n\na.initialize(m)\n"),
        ("from apex.optimizers import FusedSGD, FusedLAMB\n\no = FusedSGD(p, lr=1), FusedLAMB(p)\n",
         "from causeway.apex.optimizers import FusedLAMB\n"
         "from torch.optim import SGD as FusedSGD\n\no = FusedSGD(p, lr=1), FusedLAMB(p)\n"),
        ("try:\n    from apex.fp16_utils import *\nexcept ImportError:\n    pass\n",
         "try:\n    from causeway.apex.fp16_utils import *\nexcept ImportError:\n    pass\n"),
        ("from apex.transformer import parallel_state\n",  # which it does not have
         "from apex.transformer import parallel_state\n"),
    ],
)  # fmt: skip
def test_what_torch_has_not_of_apex_is_causeways_where_that_is_asked_for(
    before: str, after: str
) -> None:
    assert convert(HEAD + before, unsafe=True) == HEAD + after
    assert "causeway" not in convert(HEAD + before)


@pytest.mark.parametrize(
    "text", ["x.cuda(async=True)\nprint 1\n", "asynk = 1\nx.cuda(async=True)\n", "f(async=True)\n"]
)
def test_a_module_of_python_2_is_left(text: str) -> None:
    with pytest.raises(SyntaxError):
        convert_source(HEAD + text, Settings())


@pytest.mark.parametrize("code", RULES)
def test_does_what_its_page_shows(code: str) -> None:
    rule = RULES[code]
    assert convert(rule.before) == rule.after
    if rule.before == rule.after:
        _, findings = convert_source(rule.before, Settings())
        assert code in {f.rule for f in findings}, "a rule that only reports must report"


def test_every_rule_has_a_case() -> None:
    assert set(RULES) <= set(NOOP) | set(CHANGED), set(RULES) - set(NOOP) - set(CHANGED)


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_line_ends_stay(end: str) -> None:
    before = end.join(
        ["import torch", "", "x = torch.zeros(1).cuda()", "torch.cuda.empty_cache()", ""]
    )
    after = convert(before)
    assert after.replace("\r\n", "\n").count("\n") == after.count(end)


def test_expressions_are_evaluated_once_and_in_order() -> None:
    before = (
        "import torch\n\ncalls = []\n\n\ndef note(v):\n    calls.append(v)\n    return v\n\n\n"
        "torch.zeros(note(1)).cuda(note(0), note(True))\n"
        "torch.zeros(note(2)).to('cuda:%d' % note(0), non_blocking=note(False))\n"
        "torch.cuda.FloatTensor(note(3))\nif torch.zeros(note(4)).is_cuda and note(5): pass\n"
        "with torch.cuda.amp.autocast(enabled=note(False), dtype=note(torch.bfloat16)): pass\n"
    )
    space: dict[str, object] = {}
    exec(compile(convert(before), "converted", "exec"), space)
    device = torch_device()
    wanted = [1, 0, True, 2, 0, False, 3, 4, *([5] if device else []), False]
    assert [c for c in space["calls"] if not hasattr(c, "itemsize")] == wanted  # type: ignore[attr-defined]


def torch_device() -> bool:
    import torch

    return torch.accelerator.is_available() and False  # zeros() above are on the CPU


def help_at(indent: str) -> str:
    return f"{indent}{HELP.strip()}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if __name__ == '__main__':\n    import os\n    import torch\n\n    x = f().cuda()\n",
         "if __name__ == '__main__':\n    import os\n    import torch\nHELP\n"
         "    x = f().to(accelerator)\n"),
        ("try:\n    import torch\n    import torchvision\nexcept ImportError:\n"
         "    torch = None\n\n\ndef f(x):\n    return x.cuda()\n",
         "try:\n    import torch\n    import torchvision\nHELPexcept ImportError:\n"
         "    torch = None\n\n\ndef f(x):\n    return x.to(accelerator)\n"),
        ("from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import torch\n\n\n"
         "def f(x):\n    return x.cuda()\n",
         "from typing import TYPE_CHECKING\nimport torch\n\nif TYPE_CHECKING:\n    import torch\n\n"
         + HELP.strip() + "\n\n\ndef f(x):\n    return x.to(accelerator)\n"),
    ],
)  # fmt: skip
def test_the_device_is_asked_where_torch_is_imported(before: str, after: str) -> None:
    assert convert(before) == after.replace("HELP", help_at("    "))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # What stays CUDA's is asked for on its own; what is around it serves every device.
        ("if torch.cuda.is_available():\n    torch.cuda.nvtx.range_push('a')\n    x = x.cuda()\n",
         "if torch.accelerator.is_available():\n    if torch.cuda.is_available():\n"
         "        torch.cuda.nvtx.range_push('a')\n"
         "    x = x.to(torch.accelerator.current_accelerator())\n"),
        # A call that stays keeps its arguments, and its guard.
        ("def f(i):\n    if not torch.cuda.is_available() or i:\n        return 0\n"
         "    p = torch.cuda.get_device_properties(torch.device('cuda'))\n    return p.major\n",
         None),
        # A guard asks for what torch.mps lacks and nothing can stand in for.
        ("def f():\n    if not torch.cuda.is_available():\n        return 0\n"
         "    return torch.cuda.get_device_properties(0).total_memory\n",
         "def f():\n    if not (torch.accelerator.is_available() and "
         'hasattr(torch.get_device_module(), "get_device_properties")):\n        return 0\n'
         "    return torch.get_device_module().get_device_properties(0).total_memory\n"),
    ],
)  # fmt: skip
def test_a_guard_and_what_it_guards_are_converted_together(before: str, after: str | None) -> None:
    assert convert(HEAD + before) == HEAD + (before if after is None else after)


@pytest.mark.parametrize(
    "text",
    [
        # a branch for each vendor
        "if device.type == 'cuda':\n    a()\nelif d.type == 'npu':\n    b()\n",
        "def f(x):\n    return 1 if x.is_cuda else 2 if x.device.type == 'mlu' else 3\n",
        # other libraries' providers, Triton's kernels, architectures, Lightning's accelerators
        "if device == 'cuda':\n    p = ['CUDAExecutionProvider']\nelse:\n    p = []\n"
        "\n\ndef f(device):\n    return ['CUDAExecutionProvider'] if device == 'cuda' else []\n",
        "p = ['CUDAExecutionProvider'] if torch.cuda.is_available() else []\n",
        "def f(x):\n    if HAS_TRITON and x.is_cuda:\n        return fast(x)\n    return slow(x)\n",
        "def f(x):\n    if x.is_cuda:\n        return triton_softmax(x)\n    return slow(x)\n",
        "p.add_argument('--device', choices=['cuda', 'rocm'], default='cuda')\n",
        "import pytorch_lightning as pl\n\nt = pl.Trainer(accelerator='cuda')\n",
        # what runs a model in place of torch
        "class Engine:\n    def load(self):\n        import tensorrt as trt\n\n"
        "        self.device = torch.device('cuda:0')\n\n    def run(self):\n"
        "        torch.cuda.synchronize()\n",
        "def f(x):\n    import paddle\n\n    return torch.cuda.is_available()\n",
        # what is known of each vendor's device
        "def f(device):\n    a = device.type == 'cuda'\n    return a, device.type == 'npu'\n",
        "FUSED = ['cuda', 'xpu', 'hpu']\n",
        "def f():\n    if is_npu_available():\n        return 'npu'\n    if is_mlu_available():\n"
        "        return 'mlu'\n    return torch.device('cuda')\n",
        # an operator whose kernel is CUDA's
        "@torch.library.custom_op('a::b', mutates_args=(), device_types='cuda')\n"
        "def op(x: torch.Tensor) -> torch.Tensor:\n    kernel[(1,)](x)\n    return x\n",
    ],
)
def test_what_is_not_the_device_is_left(text: str) -> None:
    assert convert(HEAD + text) == HEAD + text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if device.type == 'cuda':\n    a()\nelif d.type == 'mps':\n    b()\n",
         "if device.type == accelerator.type not in ('cpu', 'mps'):\n    a()\n"
         "elif d.type == 'mps':\n    b()\n"),
        ("y = 1 if x.is_cuda else 2 if x.is_mps else 3\n",
         'y = 1 if x.device.type == accelerator.type not in ("cpu", "mps") else '
         "2 if x.is_mps else 3\n"),
        ("@torch.library.custom_op('a::c', mutates_args=(), device_types='cuda')\n"
         "def op(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\n",
         "@torch.library.custom_op('a::c', mutates_args=(), device_types=accelerator.type)\n"
         "def op(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\n"),
    ],
)  # fmt: skip
def test_a_device_with_a_branch_of_its_own_keeps_it(before: str, after: str) -> None:
    assert convert(HEAD + before) == expected(after)


def test_the_trees_own_package_is_no_package_for_cuda(tmp_path: Path) -> None:
    for name, text in {
        "python/vllm/__init__.py": "",
        "python/vllm/a.py": "import vllm.b\nimport flash_attn\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    result = engine.run([tmp_path], Settings(jobs=1))
    assert [f.api for file in result.files for f in file.findings] == ["flash_attn"]


def test_nccl_or_gloo_is_the_backend_of_the_device_or_gloo() -> None:
    before = 'b = "nccl" if torch.distributed.is_nccl_available() else "gloo"\n'
    own = "torch.distributed.Backend.default_device_backend_map"
    own += '.get(accelerator.type, "gloo")'
    after = f'b = {own} if torch.distributed.is_backend_available({own}) else "gloo"\n'
    assert convert(HEAD + before) == HEAD + HELP + after


def test_a_comparison_with_nccl_stays_where_torch_is_not_imported() -> None:
    text = 'def f(backend):\n    return backend == "nccl"\n'
    assert convert(text) == text
    assert [f.rule for f in convert_source(text, Settings())[1]] == ["CW140"]


def test_a_branch_for_a_torch_without_accelerators_stays() -> None:
    text = (
        "import torch\n\n"
        'if hasattr(torch, "accelerator"):\n    d = torch.accelerator.current_accelerator()\n'
        'else:\n    d = torch.device("cuda")\n    torch.cuda.synchronize()\n'
        'kind = d.type if hasattr(torch, "accelerator") and d else "cuda"\n'
    )
    assert convert(text) == text


VENDOR = [
    ("x.cuda(0, non_blocking=True)\n", "x.npu(0, non_blocking=True)\n"),
    ('x.to("cuda:0")\n', 'x.to("npu:0")\n'),
    ('x.to(f"cuda:{i}")\n', 'x.to(f"npu:{i}")\n'),
    ("torch.cuda.synchronize()\n", "torch.npu.synchronize()\n"),
    ("a = x.is_cuda\n", "a = x.is_npu\n"),
    ("T = torch.cuda.FloatTensor\n", "T = torch.npu.FloatTensor\n"),
    ('torch.distributed.init_process_group("nccl")\n',
     'torch.distributed.init_process_group("hccl")\n'),
    ('torch.distributed.init_process_group("cpu:gloo,cuda:nccl")\n',
     'torch.distributed.init_process_group("cpu:gloo,npu:hccl")\n'),
    ('import os\n\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\nx.cuda()\n',
     'import os\n\nos.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0"\nx.npu()\n'),
    ('import os\n\nos.environ.update(CUDA_VISIBLE_DEVICES="0")\nx.cuda()\n',
     'import os\n\nos.environ.update(ASCEND_RT_VISIBLE_DEVICES="0")\nx.npu()\n'),
    ("with torch.cuda.amp.autocast():\n    pass\n", 'with torch.amp.autocast("npu"):\n    pass\n'),
    ('if device.type == "cuda": pass\n', 'if device.type == "npu": pass\n'),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), VENDOR)
def test_a_target_writes_the_vendors_names(before: str, after: str) -> None:
    assert convert(HEAD + before, target="npu") == "import torch\nimport torch_npu\n\n" + after


def test_names_that_serve_all_devices_are_no_vendors() -> None:
    text = "import torch\n\ne = torch.cuda.OutOfMemoryError\n"
    assert convert(text, target="npu") == "import torch\n\ne = torch.OutOfMemoryError\n"


def test_other_targets_have_their_own_names() -> None:
    text = 'import torch\n\nx.cuda()\ntorch.distributed.init_process_group("nccl")\n'
    assert "import torch_mlu" in convert(text, target="mlu")
    assert '"cncl"' in convert(text, target="mlu")
    named = convert(text, target="sim")
    assert "x.sim()" in named
    assert 'init_process_group("cwcl")' in named  # the backend of all devices that Causeway brings
    assert "import torch_sim" not in named
