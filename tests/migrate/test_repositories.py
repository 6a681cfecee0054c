"""What maintainers of public repositories would have sent back: a case for each, before and after.

Every result is converted again, and must stay. `HELP` is the line that names the device.
"""

from __future__ import annotations

import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from causeway.migrate.engine import run
from causeway.migrate.module import BUILT, HELPER
from causeway.migrate.python import convert_source
from causeway.migrate.settings import Settings

HELP = f"accelerator = {HELPER.format(torch='torch')}\n"
BY_BUILD = f"accelerator = {BUILT.format(torch='torch')}\n"
OWN = "dist.Backend.default_device_backend_map"


def convert(text: str) -> str:
    after = convert_source(text, Settings())[0]
    assert convert_source(after, Settings())[0] == after, "a second run changes it"
    return after


# Lines behind `import torch`; the result has the helper where it names it.
CHANGED = {
    "an import in a part that is about CUDA, for what is not": (
        "from torch.cuda.amp import autocast\n"
        "print(torch.version.cuda, torch.backends.cudnn.version())\ndef f():\n"
        "    with autocast():\n        loss.backward()\n",
        "from torch.amp import autocast\n"
        "print(torch.version.cuda, torch.backends.cudnn.version())\ndef f():\n"
        '    with autocast(accelerator.type, enabled=accelerator.type != "cpu"):\n'
        "        loss.backward()\n",
    ),
    "one seed or the other": (
        "if torch.cuda.is_available():\n    torch.cuda.manual_seed(42)\nelse:\n"
        "    torch.manual_seed(42)\n",
        "if torch.accelerator.is_available():\n    torch.get_device_module().manual_seed(42)\n"
        "else:\n    torch.manual_seed(42)\n",
    ),
    "imports from torch.cuda behind a question that stays": (
        "if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8:\n"
        "    from torch.cuda import Event, synchronize\n    from torch.cuda.amp import autocast\n"
        "    e = Event(True)\n    synchronize()\ndef f():\n    with autocast():\n        pass\n",
        "    from torch import Event\n    from torch.accelerator import synchronize\n"
        "    from torch.amp import autocast\n    e = Event(enable_timing=True)\n    synchronize()\n"
        'def f():\n    with autocast(accelerator.type, enabled=accelerator.type != "cpu"):\n'
        "        pass\n",
    ),
    "types of CUDA's tensors among others": (
        "def f(p):\n    if p.type() in ['torch.cuda.HalfTensor', 'torch.cuda.BFloat16Tensor']:\n"
        "        return 1\n",
        "    if p.type() in [f'torch.{accelerator.type}.HalfTensor', "
        "f'torch.{accelerator.type}.BFloat16Tensor']:\n        return 1\n",
    ),
    "a switch of the program's own for Apple's device": (
        'if torch.cuda.is_available() and use_gpu:\n    device = "cuda"\n'
        "elif torch.backends.mps.is_available() and use_gpu and ALLOW_MPS:\n"
        '    device = "mps"\nelse:\n    device = "cpu"\n',
        "if torch.accelerator.is_available() and not torch.backends.mps.is_available() and use_gpu:"
        "\n    device = torch.accelerator.current_accelerator().type\n"
        "elif torch.backends.mps.is_available() and use_gpu and ALLOW_MPS:\n"
        '    device = "mps"\nelse:\n    device = "cpu"\n',
    ),
    "the branch of a torch of today": (
        'from functools import partial\nif torch.__version__.startswith("2"):\n'
        '    cast = partial(torch.autocast, "cuda")\n'
        "else:\n    cast = torch.cuda.amp.autocast\n",
        'if torch.__version__.startswith("2"):\n    cast = partial(torch.autocast, accelerator.type'
        ', enabled=accelerator.type != "cpu")\nelse:\n    cast = torch.cuda.amp.autocast\n',
    ),
    "whether the device was started, where there may be none": (
        "def f():\n    if torch.cuda.is_initialized():\n        fail()\n"
        "    return not torch.cuda.is_initialized()\n",
        "    if torch.accelerator.is_available() and getattr(torch.get_device_module(), "
        '"is_initialized", lambda: True)():\n        fail()\n'
        "    return not (torch.accelerator.is_available() and getattr(torch.get_device_module(), "
        '"is_initialized", lambda: True)())\n',
    ),
    "a device's name beside what is moved to it": (
        'measure(Net(3).cuda(), SIZES, "cuda", 5)\n',
        "measure(Net(3).to(accelerator), SIZES, accelerator.type, 5)\n",
    ),
    "where a test says that a tensor is": (
        "def test(f):\n    y = f(torch.ones(2, device='cuda'))\n    z = f(torch.ones(2).cuda())\n"
        "    assert y.device.type == 'cuda' and z.is_cuda\n"
        "def check(x):\n    assert x.is_cuda\n    return x.cuda()\n",
        "    assert y.device.type == accelerator.type and z.device.type == accelerator.type\n"
        "def check(x):\n    assert x.device.type == accelerator.type != 'cpu'\n"
        "    return x.to(accelerator)\n",
    ),
    "the number of the current device, to count with": (
        "def f(masks, n):\n    cur_device = torch.cuda.current_device()\n"
        "    return masks[cur_device * n : (cur_device + 1) * n]\n",
        "    cur_device = torch.accelerator.current_device_index() if "
        "torch.accelerator.is_available() else 0\n"
        "    return masks[cur_device * n : (cur_device + 1) * n]\n",
    ),
    "a layer that draws the same again": (
        "class Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        torch.cuda.manual_seed(seed)\n        return self.drop(x)\n",
        "        if torch.accelerator.is_available():\n"
        "            torch.get_device_module().manual_seed(seed)\n        return self.drop(x)\n",
    ),
    "autocast that the program has on the CPU too": (
        "def f(x):\n    with torch.autocast('cuda' if x.is_cuda else 'cpu'):\n        g(x)\n",
        "    with torch.autocast(accelerator.type if x.device.type == accelerator.type != 'cpu' "
        "else 'cpu'):\n        g(x)\n",
    ),
    "autocast that is given the device by its name": (
        "from torch.cuda.amp import autocast\n@autocast(enabled=False, device_type='cuda')\n"
        "def f(x):\n    g(x)\n",
        "@autocast(enabled=False, device_type=accelerator.type)\ndef f(x):\n    g(x)\n",
    ),
    "a device's number behind a space": (
        "d = torch.device('cuda: 0' if torch.cuda.is_available() else 'cpu')\n"
        "e = torch.device('cuda: {}'.format(n) if torch.cuda.is_available() else 'cpu')\n",
        "d = torch.device(f'{torch.accelerator.current_accelerator().type}:0' "
        "if torch.accelerator.is_available() else 'cpu')\n"
        "e = torch.device('{}:{}'.format(torch.accelerator.current_accelerator().type, n) "
        "if torch.accelerator.is_available() else 'cpu')\n",
    ),
    "a branch with settings of its own for Apple's device": (
        "if torch.cuda.is_available():\n    device = 'cuda'\n    half = True\n"
        "elif torch.backends.mps.is_available():\n    device = 'mps'\n    half = False\n"
        "else:\n    device = 'cpu'\n    half = False\n",
        "if torch.accelerator.is_available() and not torch.backends.mps.is_available():\n"
        "    device = torch.accelerator.current_accelerator().type\n    half = True\n"
        "elif torch.backends.mps.is_available():\n    device = 'mps'\n    half = False\n"
        "else:\n    device = 'cpu'\n    half = False\n",
    ),
    "a seed by torch.random": (
        "torch.random.manual_seed(s)\ntorch.cuda.manual_seed_all(s)\nrun()\n",
        "torch.random.manual_seed(s)\nrun()\n",
    ),
    "a function of the program's that gives the device": (
        "x = x.cuda(get_accelerator().get_current_device())\ny = y.cuda(x.get_device())\n",
        "x = x.to(get_accelerator().get_current_device())\n"
        "y = y.to(torch.device(accelerator.type, x.get_device()))\n",
    ),
    "a device's name in a text, before what Apple's device lacks": (
        "name = torch.cuda.get_device_properties(device).name if 'cuda' in str(device) else "
        "str(device)\n"
        "on = 'cuda' not in str(device)\n",
        "name = torch.get_device_module().get_device_properties(device).name if accelerator.type "
        "not in ('cpu', 'mps') and accelerator.type in str(device) else str(device)\n"
        "on = not 'cpu' != accelerator.type in str(device)\n",
    ),
    "whether NCCL is there": (
        "def rank():\n    if not torch.distributed.is_nccl_available():\n        return 0\n",
        '    if not (accelerator.type != "cpu" and torch.distributed.is_backend_available('
        'torch.distributed.Backend.default_device_backend_map.get(accelerator.type, "gloo"))):\n'
        "        return 0\n",
    ),
    "a context of the current device": (
        "with torch.cuda.device(torch.cuda.current_device()):\n    f()\n",
        "with torch.accelerator.device_index(torch.accelerator.current_device_index() if "
        "torch.accelerator.is_available() else None):\n    f()\n",
    ),
    "a backend in a variable": (
        "backend = torch.distributed.Backend.NCCL\nspawn(f, args=(2, backend))\n",
        "backend = torch.distributed.Backend.default_device_backend_map.get(accelerator.type, "
        '"gloo")\nspawn(f, args=(2, backend))\n',
    ),
    "a seed that is all of a branch": (
        "torch.manual_seed(s)\nif torch.cuda.is_available():\n"
        "    torch.cuda.manual_seed_all(s)\nelif is_xpu_available():\n"
        "    torch.xpu.manual_seed_all(s)\n",
        "if torch.accelerator.is_available():\n    torch.manual_seed(s)\n"
        "elif is_xpu_available():\n    torch.xpu.manual_seed_all(s)\n",
    ),
    "types that Apple's device lacks, one after another": (
        "def test(device):\n    for dtype in (torch.float, torch.double):\n"
        "        f(torch.ones(2, dtype=dtype, device=device))\n"
        "def test_there():\n    if torch.cuda.is_available():\n"
        "        test(torch.device('cuda'))\n",
        "    if torch.accelerator.is_available() and not torch.backends.mps.is_available():\n"
        "        test(torch.accelerator.current_accelerator())\n",
    ),
    "a device of an object that may be none": (
        "class A(Module):\n    def cuda(self, device=None):\n        self.device = device\n"
        "    def f(self, x):\n        return x.cuda(self.device)\n",
        "        return x.to(self.device if self.device is not None else accelerator)\n",
    ),
    "a checkpoint's place by the current device": (
        "torch.load(path, map_location=torch.device('cuda', torch.cuda.current_device()))\n",
        "torch.load(path, map_location=torch.device(accelerator.type, "
        "torch.accelerator.current_device_index() if torch.accelerator.is_available() else "
        "None))\n",
    ),
    "a tensor type in an attribute that two branches set": (
        "class A(Module):\n    def __init__(self, args):\n        if args.cuda:\n"
        "            self.FloatTensor = torch.cuda.FloatTensor\n        else:\n"
        "            self.FloatTensor = torch.FloatTensor\n"
        "    def f(self, x):\n        return self.FloatTensor(x.size()).normal_()\n",
        "            self.FloatTensor_device = accelerator\n        else:\n"
        '            self.FloatTensor_device = "cpu"\n    def f(self, x):\n        return '
        "torch.FloatTensor(x.size()).to(self.FloatTensor_device).normal_()\n",
    ),
    "streams that wait for each other": (
        "s = torch.cuda.current_stream()\nside.wait_stream(s)\nx.record_stream(s)\n",
        "s = torch.accelerator.current_stream()\nside.wait_stream(s)\nx.record_stream(s)\n",
    ),
    "numbers of 64 bits that only CUDA ever made": (
        "t = torch.tensor([1], dtype=torch.float64, device='cuda')\n"
        "on = torch.cuda.is_available()\n",
        "t = torch.tensor([1], dtype=torch.float64, device=accelerator)\n"
        "on = torch.accelerator.is_available()\n",
    ),
    "an attribute behind which a name is asked that some devices lack": (
        "class A:\n    def __init__(self, opt):\n"
        "        self.use_cuda = not opt.no_cuda and torch.cuda.is_available()\n"
        "    def used(self):\n        if not self.use_cuda:\n            return None\n"
        "        return torch.cuda.get_device_properties(0).total_memory\n",
        "        self.use_cuda = not opt.no_cuda and torch.accelerator.is_available() and "
        'hasattr(torch.get_device_module(), "get_device_properties")\n'
        "    def used(self):\n        if not self.use_cuda:\n            return None\n"
        "        return torch.get_device_module().get_device_properties(0).total_memory\n",
    ),
    "a default dtype that Apple's device lacks": (
        "torch.set_default_dtype(torch.float64)\ndevices = ['cpu']\n"
        "if torch.cuda.is_available():\n    devices.append('cuda')\n",
        "if torch.accelerator.is_available() and not torch.backends.mps.is_available():\n"
        "    devices.append(torch.accelerator.current_accelerator().type)\n",
    ),
    "a device beside a dtype that Apple's device lacks": (
        "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "options = {'dtype': torch.double, 'device': device}\n",
        "device = torch.device(torch.accelerator.current_accelerator().type if "
        "torch.accelerator.is_available() and not torch.backends.mps.is_available() else 'cpu')\n"
        "options = {'dtype': torch.double, 'device': device}\n",
    ),
    "numbers of 64 bits that are moved": (
        "x = torch.tensor(a).double().to(device)\non = torch.cuda.is_available()\n",
        "on = torch.accelerator.is_available() and not torch.backends.mps.is_available()\n",
    ),
    "numbers of 64 bits on the host": (
        "x = y.cpu().double()\nok = y.dtype == torch.float64\n"
        "z = torch.zeros(2, dtype=torch.float64)\non = torch.cuda.is_available()\n",
        "on = torch.accelerator.is_available()\n",
    ),
    "a checkpoint's place that is a default": (
        "def f(path, map_location=f'cuda:0'):\n"
        "    return torch.load(path, map_location=map_location)\n",
        "def f(path, map_location=f'{accelerator.type}:0' if torch.accelerator.is_available() "
        "else 'cpu'):\n    return torch.load(path, map_location=map_location)\n",
    ),
    "a checkpoint's place that is a choice": (
        "def f(path, x, i):\n    place: str = f'cuda:{i}' if x else 'cpu'\n"
        "    torch.load(path, map_location=place)\n"
        "    torch.load(path, 'cpu' if x else f'cuda:{i}')\n"
        "    return torch.load(path, **{'map_location': f'cuda:{i}'})\n",
        "    place: str = (f'{accelerator.type}:{i}' if torch.accelerator.is_available() "
        "else 'cpu') if x else 'cpu'\n    torch.load(path, map_location=place)\n"
        "    torch.load(path, 'cpu' if x else f'{accelerator.type}:{i}' if "
        "torch.accelerator.is_available() else 'cpu')\n"
        "    return torch.load(path, **{'map_location': f'{accelerator.type}:{i}' if "
        "torch.accelerator.is_available() else 'cpu'})\n",
    ),
    "a tensor type in an attribute": (
        "class A:\n    def __init__(self, opt):\n        self.gpu_ids = opt.gpu_ids\n"
        "        self.Tensor = torch.cuda.FloatTensor if self.gpu_ids else torch.Tensor\n"
        "    def f(self, n):\n        return self.Tensor(n, 3).zero_()\n",
        "        self.Tensor = torch.Tensor\n    def f(self, n):\n        return "
        'self.Tensor(n, 3).to(accelerator if self.gpu_ids else "cpu").zero_()\n',
    ),
    "a seed behind the name of a variable": (
        "def main(h):\n    torch.manual_seed(h.seed)\n    global device\n"
        "    if torch.cuda.is_available():\n        torch.cuda.manual_seed(h.seed)\n"
        "        device = torch.device('cuda')\n    else:\n        device = torch.device('cpu')\n",
        "    torch.manual_seed(h.seed)\n    global device\n"
        "    if torch.accelerator.is_available():\n"
        "        device = torch.accelerator.current_accelerator()\n"
        "    else:\n        device = torch.device('cpu')\n",
    ),
    "a seed for each device": (
        "def f(ids):\n    for i in ids:\n        with torch.cuda.device(i):\n"
        "            seed = draw()\n            torch.cuda.manual_seed(seed)\n",
        "    for i in ids:\n        with torch.accelerator.device_index(i if "
        "torch.accelerator.is_available() else None):\n            seed = draw()\n"
        "            if torch.accelerator.is_available():\n"
        "                torch.get_device_module().manual_seed(seed)\n",
    ),
    "a context around a variable that is named after CUDA": (
        "def f(i, torch_cuda_state):\n    with torch.cuda.device(i):\n"
        "        torch_cuda_state.append(i)\n",
        "    with torch.accelerator.device_index(i if torch.accelerator.is_available() "
        "else None):\n        torch_cuda_state.append(i)\n",
    ),
    "a seed in the other branch with more": (
        "torch.manual_seed(s)\nif torch.cuda.is_available():\n    if not args.cuda:\n"
        "        f()\n    else:\n        torch.set_default_dtype(d)\n"
        "        torch.cuda.manual_seed_all(s)\n",
        "torch.manual_seed(s)\nif torch.accelerator.is_available():\n    if not args.cuda:\n"
        "        f()\n    else:\n        torch.set_default_dtype(d)\n",
    ),
    "autocast for one of two devices stays off on the CPU": (
        'with torch.autocast(device_type="cuda" if not torch.backends.mps.is_available() else '
        '"mps", enabled=self.half):\n    pass\n',
        "with torch.autocast(device_type=accelerator.type if not torch.backends.mps.is_available() "
        'else "mps", enabled=self.half and accelerator.type != "cpu"):\n    pass\n',
    ),
    "a torch without torch.amp": (
        'f = (torch.amp.custom_fwd(device_type="cuda") if hasattr(torch, "amp") '
        "else torch.cuda.amp.custom_fwd(cast_inputs=torch.float32))\n",
        'f = (torch.amp.custom_fwd(device_type=accelerator.type) if hasattr(torch, "amp") '
        "else torch.cuda.amp.custom_fwd(cast_inputs=torch.float32))\n",
    ),
    "a number of devices, for each of which a name is asked that some lack": (
        "def memory(device):\n    return torch.cuda.get_device_properties(device).total_memory\n"
        "def most(limit):\n    for i in range(torch.cuda.device_count()):\n"
        "        print(memory(i))\n",
        "def memory(device):\n"
        "    return torch.get_device_module().get_device_properties(device).total_memory\n"
        "def most(limit):\n    for i in range(torch.accelerator.device_count() "
        'if hasattr(torch.get_device_module(), "get_device_properties") else 0):\n'
        "        print(memory(i))\n",
    ),
    "a seed in the other branch": (
        "torch.manual_seed(args.seed)\nif torch.cuda.is_available():\n    if not args.cuda:\n"
        '        print("run with --cuda")\n    else:\n        torch.cuda.manual_seed(args.seed)\n'
        "run()\n",
        "torch.manual_seed(args.seed)\nif torch.accelerator.is_available():\n"
        '    if not args.cuda:\n        print("run with --cuda")\nrun()\n',
    ),
    "an attribute that is true where nothing is said": (
        "class Timer:\n    def __init__(self, sync_cuda=True):\n"
        "        self.sync_cuda = sync_cuda\n    def start(self):\n        if self.sync_cuda:\n"
        "            torch.cuda.synchronize()\n",
        "        if self.sync_cuda:\n            if torch.accelerator.is_available():\n"
        "                torch.accelerator.synchronize()\n",
    ),
    "a number of devices, for each of which every device has an answer": (
        "def f(limit):\n    n = torch.cuda.device_count() if limit is None else limit\n"
        "    for i in range(n):\n        print(i, torch.cuda.memory_allocated(i))\n",
        "    n = torch.accelerator.device_count() if limit is None else limit\n"
        "    for i in range(n):\n        print(i, torch.accelerator.memory_allocated(i) "
        "if torch.accelerator.is_available() else 0)\n",
    ),
    "values that are called sizes, and sizes": (
        "def f(x, sizes):\n    a = torch.cuda.LongTensor(sizes)\n"
        "    return a, torch.cuda.FloatTensor(*sizes), torch.cuda.FloatTensor(x.size(0))\n",
        "def f(x, sizes):\n    a = torch.LongTensor(sizes).to(accelerator)\n"
        "    return a, torch.empty(*sizes, dtype=torch.float32, device=accelerator), "
        "torch.empty(x.size(0), dtype=torch.float32, device=accelerator)\n",
    ),
    "a generator of the device by itself": (
        "def add(self, seed):\n    state = torch.cuda.get_rng_state()\n"
        "    torch.cuda.manual_seed(seed)\n    return state\n",
        "def add(self, seed):\n    state = getattr(torch.get_device_module(), "
        '"get_rng_state", lambda *_: torch.get_rng_state())()\n'
        "    if torch.accelerator.is_available():\n"
        "        torch.get_device_module().manual_seed(seed)\n    return state\n",
    ),
    "a seed before a condition with more than the same": (
        "def f(seed):\n    torch.manual_seed(seed)\n    try:\n"
        "        if torch.cuda.is_available():\n            torch.cuda.manual_seed(seed)\n"
        "            torch.cuda.manual_seed_all(seed)\n            # no TF32\n"
        "            torch.backends.cuda.matmul.allow_tf32 = False\n            g()\n"
        "    except RuntimeError:\n        pass\n",
        "def f(seed):\n    torch.manual_seed(seed)\n    try:\n"
        "        if torch.accelerator.is_available():\n            # no TF32\n"
        "            torch.backends.cuda.matmul.allow_tf32 = False\n            g()\n"
        "    except RuntimeError:\n        pass\n",
    ),
    "a seed under a condition with a comment": (
        "def f(seed):\n    torch.manual_seed(seed)\n"
        "    if torch.cuda.is_available():  # just in case\n"
        "        torch.cuda.manual_seed_all(seed)\n    return seed\n",
        "def f(seed):\n    torch.manual_seed(seed)\n    return seed\n",
    ),
    "a parameter that is true where nothing is said": (
        "def timer(sync_gpu=True):\n    if sync_gpu:\n        torch.cuda.synchronize()\n",
        "def timer(sync_gpu=True):\n    if sync_gpu:\n"
        "        if torch.accelerator.is_available():\n"
        "            torch.accelerator.synchronize()\n",
    ),
    "a part of a device's name": (
        'def f(device):\n    device_type, index = device.split(":")\n'
        '    return device_type == "cuda"\n',
        'def f(device):\n    device_type, index = device.split(":")\n'
        '    return device_type == accelerator.type != "cpu"\n',
    ),
    "a seed behind another one, with the device's name between them": (
        "def f(seed, index):\n    torch.manual_seed(seed)\n"
        '    device = torch.device("cuda:" + str(index)) if torch.cuda.is_available() else '
        'torch.device("cpu")\n'
        "    if torch.cuda.is_available():\n        torch.cuda.manual_seed_all(seed)\n"
        "    return device\n",
        "    torch.manual_seed(seed)\n"
        '    device = torch.device(f"{torch.accelerator.current_accelerator().type}:" + str(index))'
        ' if torch.accelerator.is_available() else torch.device("cpu")\n    return device\n',
    ),
    "what a device must have behind a choice of the answer": (
        "def f(cpu):\n    cuda = False if cpu else torch.cuda.is_available()\n    if cuda:\n"
        "        print(torch.cuda.get_device_properties(0))\n",
        "    cuda = False if cpu else torch.accelerator.is_available() and "
        'hasattr(torch.get_device_module(), "get_device_properties")\n    if cuda:\n'
        "        print(torch.get_device_module().get_device_properties(0))\n",
    ),
    "an option that says what is to be set": (
        "def f(rank, set_device):\n    if set_device:\n        torch.cuda.set_device(rank)\n",
        "    if set_device:\n        if torch.accelerator.is_available():\n"
        "            torch.accelerator.set_device_index(rank)\n",
    ),
    "a storage by its class": (
        "s = torch.Storage(3).cuda()\n",
        "s = torch.Storage(3).to(device=accelerator)\n",
    ),
    "whether the device was started": (
        "def f():\n    return torch.cuda.is_available() and torch.cuda.is_initialized()\n",
        "def f():\n    return torch.accelerator.is_available() and "
        'getattr(torch.get_device_module(), "is_initialized", lambda: True)()\n',
    ),
    "a variable that is the device, where another device is known by name": (
        'device = "cuda" if torch.cuda.is_available() else "cpu"\n'
        'if device == "mps":\n    f()\nif device == "cuda":\n    g()\n',
        "device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available()"
        ' else "cpu"\nif device == "mps":\n    f()\n'
        'if device not in ("cpu", "mps"):\n    g()\n',
    ),
    "a device among other values": (
        'def f(p):\n    kind, device = torch.half, "cuda:" + str(p)\n    return kind, device\n',
        'def f(p):\n    kind, device = torch.half, f"{accelerator.type}:" + str(p)\n'
        "    return kind, device\n",
    ),
    "a device of a list": (
        'def f(self, i):\n    return "cuda" in self.device_list[i]\n',
        'def f(self, i):\n    return "cpu" != accelerator.type in self.device_list[i]\n',
    ),
    "another seed for the device than for the CPU": (
        "def seed(s):\n    torch.manual_seed(s + 1)\n    torch.cuda.manual_seed(s + 2)\n",
        "def seed(s):\n    torch.manual_seed(s + 1)\n    if torch.accelerator.is_available():\n"
        "        torch.get_device_module().manual_seed(s + 2)\n",
    ),
    "a seed that is read from a configuration": (
        'torch.manual_seed(c.get("seed", 1))\ntorch.cuda.manual_seed(c.get("seed", 1))\nrun()\n',
        'torch.manual_seed(c.get("seed", 1))\nrun()\n',
    ),
    "a device that is put together before it is compared": (
        'def f(k, device):\n    return "cuda:" + str(k) != device or f"cuda:{k}" == device\n',
        'def f(k, device):\n    return f"{accelerator.type}:" + str(k) != device or '
        'f"{accelerator.type}:{k}" == device\n',
    ),
    "a variable that is a tensor type, and what is made by it": (
        "cuda = True if torch.cuda.is_available() else False\n"
        "Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor\n"
        "z = Tensor(numpy.zeros(3))\nx = imgs.type(Tensor)\n",
        "cuda = True if torch.accelerator.is_available() else False\n"
        "Tensor = torch.FloatTensor\n"
        "z = Tensor(numpy.zeros(3)).to(accelerator)\nx = imgs.to(accelerator, torch.float32)\n",
    ),
    "a tensor type by an option": (
        "LongTensor = torch.cuda.LongTensor if opt.cuda else torch.LongTensor\n"
        "def f(n):\n    return LongTensor(n, 1).fill_(1)\n",
        "LongTensor = torch.LongTensor\n"
        'def f(n):\n    return LongTensor(n, 1).to(accelerator if opt.cuda else "cpu").fill_(1)\n',
    ),
    "a tensor type by another tensor": (
        "def f(x):\n    Tensor = torch.cuda.FloatTensor if x.is_cuda else torch.FloatTensor\n"
        "    return x + Tensor(numpy.zeros(3))\n",
        "def f(x):\n    Tensor = torch.FloatTensor\n"
        "    return x + Tensor(numpy.zeros(3)).to(x.device)\n",
    ),
    "a tensor type by two branches": (
        "def f(n, device):\n    if n and torch.cuda.is_available():\n"
        "        dtype = torch.cuda.FloatTensor\n    else:\n        dtype = torch.FloatTensor\n"
        "    return torch.rand(n).type(dtype), dtype(n)\n",
        "def f(n, device):\n    if n and torch.accelerator.is_available():\n"
        "        dtype_device = torch.accelerator.current_accelerator()\n"
        '    else:\n        dtype_device = "cpu"\n'
        "    return torch.rand(n).to(dtype_device, torch.float32), "
        "torch.FloatTensor(n).to(dtype_device)\n",
    ),
    "Lightning's word for the accelerator that is here": (
        "import pytorch_lightning as pl\n"
        't = pl.Trainer(accelerator="gpu" if torch.cuda.is_available() else "cpu")\n',
        't = pl.Trainer(accelerator="auto")\n',
    ),
    "a seed that is read from a dictionary": (
        'torch.manual_seed(p["seed"])\nif device.type == "cuda":\n'
        '    torch.cuda.manual_seed(p["seed"])\nrun()\n',
        'torch.manual_seed(p["seed"])\nrun()\n',
    ),
    "the other branch of the question": (
        "def f(rank):\n    if not torch.cuda.is_available():\n        fail()\n    else:\n"
        "        torch.cuda.set_device(rank)\n",
        "def f(rank):\n    if not torch.accelerator.is_available():\n        fail()\n    else:\n"
        "        torch.accelerator.set_device_index(rank)\n",
    ),
    "a checkpoint's place that is a sum": (
        'w = torch.load(p, map_location="cuda:" + str(rank))\n',
        'w = torch.load(p, map_location=f"{accelerator.type}:" + str(rank) '
        'if torch.accelerator.is_available() else "cpu")\n',
    ),
    "what an assertion has asked is not asked again": (
        "def setup(rank):\n"
        '    assert torch.cuda.is_available(), "needs CUDA"\n'
        "    torch.cuda.set_device(rank)\n"
        "    print(torch.cuda.max_memory_allocated())\n",
        "def setup(rank):\n"
        '    assert torch.accelerator.is_available(), "needs CUDA"\n'
        "    torch.accelerator.set_device_index(rank)\n"
        "    print(torch.accelerator.max_memory_allocated())\n",
    ),
    "a device is asked for behind the question whether there is one": (
        "if torch.cuda.is_available():\n    run()\n"
        'elif device == "cuda":\n    fail()\n'
        "if not torch.cuda.is_available() or fast:\n"
        '    print(device == "cuda")\n',
        "if torch.accelerator.is_available():\n    run()\n"
        'elif device == "cuda":\n    fail()\n'
        "if not torch.accelerator.is_available() or fast:\n"
        '    print(device == accelerator.type != "cpu")\n',
    ),
    "a device is compared with torch.device": (
        'if d == torch.device("cuda"):\n    pass\n',
        'if d == accelerator != torch.device("cpu"):\n    pass\n',
    ),
    "a device is not torch.device": (
        'assert x.device != torch.device("cuda")\n',
        'assert not x.device == accelerator != torch.device("cpu")\n',
    ),
    "its type is compared with that of torch.device": (
        'seed(cuda=d.type == torch.device("cuda").type)\n',
        'seed(cuda=d.type == accelerator.type != "cpu")\n',
    ),
    "NCCL as a member of Backend": (
        "import torch.distributed as dist\nif dist.get_backend() == dist.Backend.NCCL:\n    f()\n",
        f'if dist.get_backend() == {OWN}.get(accelerator.type) != "gloo":\n    f()\n',
    ),
    "a sum as a seed, and a seed by chance": (
        "def init(i):\n    torch.manual_seed(seed + i)\n    torch.cuda.manual_seed(seed + i)\n"
        "    torch.cuda.manual_seed_all(seed + i)\n"
        "def by_chance():\n    torch.seed()\n    torch.cuda.seed()\n",
        "def init(i):\n    torch.manual_seed(seed + i)\ndef by_chance():\n    torch.seed()\n",
    ),
    "a module that knows other devices by name": (
        'def f(device):\n    if device.type == "mps":\n        g()\n'
        'def h(device):\n    return device.type == "cuda"\n',
        'def f(device):\n    if device.type == "mps":\n        g()\n'
        'def h(device):\n    return device.type == accelerator.type not in ("cpu", "mps")\n',
    ),
    "autocast without a device is CUDA's": (
        "def cast(x):\n    if torch.is_autocast_enabled():\n"
        '        if x.device.type == "cuda":\n'
        "            return x.to(torch.get_autocast_gpu_dtype())\n"
        "        return x.to(torch.get_autocast_cpu_dtype())\n"
        "    torch.set_autocast_gpu_dtype(torch.half)\n"
        "    torch.set_autocast_enabled(flag)\n",
        "def cast(x):\n    if torch.is_autocast_enabled(accelerator.type):\n"
        '        if x.device.type == accelerator.type != "cpu":\n'
        "            return x.to(torch.get_autocast_dtype(accelerator.type))\n"
        "        return x.to(torch.get_autocast_cpu_dtype())\n"
        "    torch.set_autocast_dtype(accelerator.type, torch.half)\n"
        '    torch.set_autocast_enabled(accelerator.type, flag and accelerator.type != "cpu")\n',
    ),
    "a kernel for CUDA alone beside one for every device": (
        "ext = load_ext('_ext', ['f'])\n"
        "class Fused(torch.autograd.function.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return ext_module.f(x)\n"
        "class Own(torch.autograd.function.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n"
        "def fused(x):\n    if not x.is_cuda:\n        return plain(x)\n"
        "    return Fused.apply(x)\n"
        "def own(x):\n    if x.is_cuda:\n        return Own.apply(x)\n"
        "def both(x):\n    if torch.cuda.is_available() and x.is_cuda:\n"
        "        return Fused.apply(x)\n",
        "ext = load_ext('_ext', ['f'])\n"
        "class Fused(torch.autograd.function.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return ext_module.f(x)\n"
        "class Own(torch.autograd.function.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n"
        "def fused(x):\n    if not x.is_cuda:\n        return plain(x)\n"
        "    return Fused.apply(x)\n"
        "def own(x):\n    if x.device.type == accelerator.type != 'cpu':\n"
        "        return Own.apply(x)\n"
        "def both(x):\n    if torch.cuda.is_available() and x.is_cuda:\n"
        "        return Fused.apply(x)\n",
    ),
    "the device of a tensor, which may be the CPU's": (
        "with torch.cuda.device_of(x):\n    pass\n",
        "with torch.accelerator.device_index(x.device.index):\n    pass\n",
    ),
    "an attribute that is a device": (
        "def f(self, m):\n    return m.cuda(self.cuda_device), m.cuda(self.device_id)\n",
        "def f(self, m):\n    return m.to(self.cuda_device), "
        "m.to(torch.device(accelerator.type, self.device_id))\n",
    ),
    "a list of devices": (
        "if torch.cuda.is_available():\n"
        '    target_devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]\n',
        "if torch.accelerator.is_available():\n"
        '    target_devices = [f"{torch.accelerator.current_accelerator().type}:{i}" '
        "for i in range(torch.accelerator.device_count())]\n",
    ),
    "a device that is added to others": (
        'if torch.cuda.is_available():\n    available_devices.append("cuda")\n',
        "if torch.accelerator.is_available():\n"
        "    available_devices.append(torch.accelerator.current_accelerator().type)\n",
    ),
    "a scaler from one of two places": (
        "try:\n    from torch import GradScaler\nexcept ImportError:\n"
        "    from torch.cuda.amp import GradScaler\n"
        'def f(device):\n    return GradScaler("cuda") if device.type == "cuda" else None\n',
        "def f(device):\n    return GradScaler(accelerator.type) "
        'if device.type == accelerator.type != "cpu" else None\n',
    ),
    "autocast in a partial": (
        "import functools\nf = functools.partial(torch.cuda.amp.autocast, dtype=torch.bfloat16)\n",
        "f = functools.partial(torch.amp.autocast, accelerator.type, dtype=torch.bfloat16, "
        'enabled=accelerator.type != "cpu")\n',
    ),
    "seeds under a condition of their own": (
        "def seed(s):\n    torch.manual_seed(s)\n    if torch.cuda.is_available():\n"
        "        torch.cuda.manual_seed(s)\n        torch.cuda.manual_seed_all(s)\n",
        "def seed(s):\n    torch.manual_seed(s)\n",
    ),
    "a comment goes with its statement": (
        "torch.manual_seed(1)\n# safe without a GPU too\ntorch.cuda.manual_seed_all(1)\n\nx = 1\n",
        "torch.manual_seed(1)\n\nx = 1\n",
    ),
    "a comment of the next statement stays": (
        "torch.manual_seed(1)\n# all\ntorch.cuda.manual_seed_all(1)\nnumpy.random.seed(1)\n",
        "torch.manual_seed(1)\n# all\nnumpy.random.seed(1)\n",
    ),
    "nothing is asked twice": (
        "def f():\n    if not torch.cuda.is_available():\n        return {}\n"
        "    n = torch.cuda.max_memory_allocated()\n    torch.cuda.synchronize()\n",
        "def f():\n    if not torch.accelerator.is_available():\n        return {}\n"
        "    n = torch.accelerator.max_memory_allocated()\n    torch.accelerator.synchronize()\n",
    ),
    "no parentheses that say nothing": (
        'n = torch.cuda.max_memory_allocated()\nm = "cpu"\n',
        "n = torch.accelerator.max_memory_allocated() if torch.accelerator.is_available() else 0\n"
        'm = "cpu"\n',
    ),
    "autocast with options that may say anything": (
        'with torch.autocast("cuda", **engine.amp_kwargs):\n    pass\n',
        "with torch.autocast(accelerator.type, **{**engine.amp_kwargs, "
        '**({} if accelerator.type != "cpu" else {"enabled": False})}):\n    pass\n',
    ),
    "a condition in a row needs no parentheses": (
        "scaler = torch.cuda.amp.GradScaler(enabled=amp and ready)\n",
        "scaler = torch.amp.GradScaler(accelerator.type, "
        'enabled=amp and ready and accelerator.type != "cpu")\n',
    ),
    "a name of a device with an index": (
        'def f(device):\n    if device.startswith("cuda:"):\n        pass\n',
        'def f(device):\n    if accelerator.type != "cpu" and '
        'device.startswith(accelerator.type + ":"):\n        pass\n',
    ),
    "a variable in place of the same call again and again": (
        "if torch.cuda.is_available():\n    a.cuda()\n    b.cuda()\n    c.cuda()\n",
        "if torch.accelerator.is_available():\n"
        "    a.to(accelerator)\n    b.to(accelerator)\n    c.to(accelerator)\n",
    ),
    "an import that opens a function": (
        "def f():\n    from torch import cuda\n\n    return cuda.device_count()\n",
        "def f():\n    return torch.accelerator.device_count()\n",
    ),
    "sizes make an empty tensor where it is used, values one that is moved": (
        "a = torch.cuda.FloatTensor(b, n).zero_()\nc = torch.cuda.IntTensor(*x.size())\n"
        "d = torch.cuda.LongTensor(values)\n",
        "a = torch.empty(b, n, dtype=torch.float32, device=accelerator).zero_()\n"
        "c = torch.empty(*x.size(), dtype=torch.int32, device=accelerator)\n"
        "d = torch.LongTensor(values).to(accelerator)\n",
    ),
    "a name for the device where there surely is one": (
        "def f(x):\n    if torch.cuda.is_available():\n"
        '        device = "cuda"\n    else:\n        return\n    x.to(device)\n',
        "def f(x):\n    if torch.accelerator.is_available():\n"
        "        device = torch.accelerator.current_accelerator().type\n"
        "    else:\n        return\n    x.to(device)\n",
    ),
    "the module that a name is asked of": (
        'if hasattr(torch.cuda, "default_generators") and torch.cuda.default_generators:\n'
        "    f(torch.cuda.default_generators[0].seed())\n",
        'if hasattr(torch.get_device_module(), "default_generators") and '
        "torch.get_device_module().default_generators:\n"
        "    f(torch.get_device_module().default_generators[0].seed())\n",
    ),
    "whether a tensor is of a type of CUDA's": (
        "if isinstance(x.data, torch.cuda.FloatTensor):\n    y = y.cuda()\n",
        "if isinstance(x.data, torch.Tensor) and x.data.device.type == accelerator.type "
        '!= "cpu" and x.data.dtype == torch.float32:\n    y = y.to(accelerator)\n',
    ),
    "an object by the name of its module": (
        "import model\nmodel = model.Net()\nmodel = model.cuda()\nloss = loss.cuda()\n",
        "model = model.Net()\nmodel = model.to(accelerator)\nloss = loss.to(accelerator)\n",
    ),
    "questions that only sound like that for a device": (
        "def f():\n    if torch.distributed.is_available() and ready:\n"
        "        torch.cuda.synchronize()\n",
        "def f():\n    if torch.distributed.is_available() and ready:\n"
        "        if torch.accelerator.is_available():\n"
        "            torch.accelerator.synchronize()\n",
    ),
    "a loop over the devices needs no other question": (
        "for i in range(torch.cuda.device_count()):\n    torch.cuda.synchronize(i)\n"
        "used = [torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count())]\n",
        "for i in range(torch.accelerator.device_count()):\n    torch.accelerator.synchronize(i)\n"
        "used = [torch.accelerator.memory_allocated(i) "
        "for i in range(torch.accelerator.device_count())]\n",
    ),
    "the index of a tensor on the CPU is None already": (
        "with torch.cuda.device(x.device.index):\n    f(x)\n",
        "with torch.accelerator.device_index(x.device.index):\n    f(x)\n",
    ),
    "what some devices' modules lack, behind a name and behind a comparison": (
        "def f(cpu):\n    gpu = not cpu and torch.cuda.is_available()\n    if gpu:\n"
        "        print(torch.cuda.get_device_properties(0).name)\n"
        "def g(device):\n"
        '    return torch.cuda.get_device_properties(0) if device.type == "cuda" else 0\n',
        "def f(cpu):\n    gpu = not cpu and torch.accelerator.is_available() and "
        'hasattr(torch.get_device_module(), "get_device_properties")\n    if gpu:\n'
        "        print(torch.get_device_module().get_device_properties(0).name)\n"
        "def g(device):\n    return torch.get_device_module().get_device_properties(0) "
        'if device.type == accelerator.type not in ("cpu", "mps") else 0\n',
    ),
    "an answer that is shown, and chooses the device": (
        "use_cuda = torch.cuda.is_available()\n"
        'print(f"CUDA available: {use_cuda}")\n'
        "net = net.cuda() if use_cuda else net\n",
        "use_cuda = torch.accelerator.is_available()\n"
        'print(f"CUDA available: {use_cuda}")\n'
        "net = net.to(torch.accelerator.current_accelerator()) if use_cuda else net\n",
    ),
    "a context that is no context but an index": (
        "device = torch.cuda.device(i)\nprint(torch.cuda.mem_get_info(device))\n",
        "device = i\nprint(torch.accelerator.get_memory_info(device))\n",
    ),
    "the CPU is not among the accelerators": (
        "def f(device, x):\n    if device in ['gpu', 'cuda']:\n        x = x.cuda()\n"
        "    if x is None or device not in ('gpu', 'cuda'):\n        x = None\n"
        "    assert device in ['gpu', 'cuda']\n    if device in ['gpu', 'cuda', 'cpu']:\n"
        "        return x\n",
        "def f(device, x):\n    if 'cpu' != device in ['gpu', accelerator.type]:\n"
        "        x = x.to(accelerator)\n"
        "    if x is None or not 'cpu' != device in ('gpu', accelerator.type):\n        x = None\n"
        "    assert device in ['gpu', accelerator.type]\n"
        "    if device in ['gpu', accelerator.type, 'cpu']:\n"
        "        return x\n",
    ),
    "a seed of the device that counts on from the CPU's": (
        "def f(seed):\n    torch.manual_seed(seed)\n    seed += 1\n"
        "    torch.cuda.manual_seed(seed)\n",
        "def f(seed):\n    torch.manual_seed(seed)\n    seed += 1\n"
        "    if torch.accelerator.is_available():\n"
        "        torch.get_device_module().manual_seed(seed)\n",
    ),
    "a context with a name": (
        "there = torch.cuda.device(x.device.index)\nwith there:\n    f(x)\n",
        "there = torch.accelerator.device_index(x.device.index)\nwith there:\n    f(x)\n",
    ),
    "autocast of torch in a partial": (
        "from functools import partial\n"
        'cast = partial(torch.autocast, device_type="cuda", dtype=d)\n'
        'other = partial(torch.autocast, "cuda")\n',
        "cast = partial(torch.autocast, device_type=accelerator.type, dtype=d, "
        'enabled=accelerator.type != "cpu")\n'
        'other = partial(torch.autocast, accelerator.type, enabled=accelerator.type != "cpu")\n',
    ),
}

KEPT = {
    "a scaler that is CUDA's in one place": (
        "from torch.cuda.amp import GradScaler\n\n\ndef f():\n    return GradScaler(2.0)\n\n\n"
        "def g():\n    if torch.version.cuda is not None:\n        return GradScaler(2.0)\n"
    ),
    "a name of torch.cuda.amp that is CUDA's in one place": (
        "from torch.cuda.amp import autocast\n\n\ndef f():\n    with autocast():\n        pass\n"
        "\n\ndef g():\n    if torch.version.cuda is not None:\n        with autocast():\n"
        "            pass\n"
    ),
    "the same of a name that is given": (
        "cast = torch.cuda.amp.autocast\n\n\ndef f():\n    with cast():\n        pass\n\n\n"
        "def g():\n    if torch.version.cuda is not None:\n        with cast():\n"
        "            pass\n"
    ),
    "the same of a name whose import a comment keeps": (
        "from torch.cuda.amp import autocast  # causeway: keep\n\n\ndef f():\n"
        "    with autocast():\n        pass\n"
    ),
    "what makes autocast behind a question that stays": (
        'if torch.cuda.is_available() and hasattr(torch.cuda.amp, "autocast") and '
        "torch.cuda.is_bf16_supported():\n"
        "    autocast = funcy.partial(torch.cuda.amp.autocast, dtype=torch.bfloat16)\n"
    ),
    "the branch of a torch before torch.accelerator": (
        'if not torch.__version__.startswith("2"):\n    pass\n'
        'if torch.__version__ >= "1.6":\n    pass\nelse:\n'
        "    autocast = torch.cuda.amp.autocast\n"
    ),
    "who hands a state to what starts CUDA": (
        "from torch.cuda import _lazy_call\n\n\ndef _set(state):\n    _lazy_call(state)\n\n\n"
        "class Tracker:\n    def add(self, name, seed):\n"
        "        before = torch.cuda.get_rng_state()\n        torch.cuda.manual_seed(seed)\n"
        "        _set(before)\n"
    ),
    "a device among what is told of a case, behind a question": (
        'CASES = [(Net, "cpu", 3)]\nif torch.cuda.is_available():\n'
        '    CASES.append((Net, "cuda", 3))\n'
    ),
    "what a torch without torch.amp gets": (
        "def f(device):\n    try:\n        return torch.amp.GradScaler(device=device)\n"
        "    except AttributeError:\n        return torch.cuda.amp.GradScaler()\n"
    ),
    "names of a test's cases": (
        "@pytest.mark.parametrize('is_cuda', [True, False], ids=['cuda', 'cpu'])\n"
        "def test(is_cuda):\n    pass\n"
    ),
    "an answer that a text shows as CUDA's": (
        "def f(self):\n    there = torch.cuda.is_available()\n"
        "    self.log.info(f'torch {torch.__version__} Cuda available:{there} {self.device}')\n"
        "    if there:\n        self.log.info(torch.cuda.get_device_name(0))\n"
    ),
    "a question beside a name of CUDA's": (
        "def f(args):\n    if args.kind.startswith('cuda') and torch.cuda.is_available():\n"
        "        torch.cuda.empty_cache()\n"
    ),
    "a tensor that is asked for before a call that is CUDA's": (
        "def f(x):\n    if x is None or not x.is_cuda:\n        return False\n"
        "    major, _ = torch.cuda.get_device_capability(x.device)\n    return major >= 12\n"
    ),
    "a number of devices beside a question that stays": (
        "import os\nif torch.cuda.is_available() and torch.cuda.device_count() > 0:\n"
        "    os.system('nvidia-smi -q -d Utilization > gpu')\n"
    ),
    "kernels that a module compiles as it runs": (
        "def load():\n    from torch.utils.cpp_extension import load_inline\n"
        "    return load_inline('k', cpp_sources=C, cuda_sources=K)\n"
        "def f(x):\n    if wanted(x) and x.is_cuda:\n        return load().f(x)\n"
        "    return torch.relu(x)\n"
        "def there():\n    return torch.cuda.is_available() and load() is not None\n"
    ),
    "a class that records CUDA graphs": (
        "class Runner:\n    def __init__(self, x):\n        if not torch.cuda.is_available():\n"
        "            raise RuntimeError('needs CUDA')\n        self.x = x\n"
        "    def capture(self):\n        self.graph = torch.cuda.CUDAGraph()\n"
    ),
    "a Trainer's arguments that go with its number of GPUs": (
        "options = {\n    'gpus': -1 if torch.cuda.is_available() else None,\n"
        "    'strategy': 'ddp' if torch.cuda.is_available() else None,\n}\n"
    ),
    "what is collected of CUDA by its name": (
        "info['CUDA Available'] = torch.cuda.is_available()\ninfo['MUSA Available'] = asked()\n"
    ),
    "a text in a log that says CUDA": (
        "def f():\n    there = torch.cuda.is_available()\n"
        "    log.info('cuda_available=%s, hip=%s', there, hip)\n"
    ),
    "a branch that shows that CUDA is there": (
        "if torch.cuda.is_available():\n"
        "    print(f'CUDA: available ({torch.cuda.device_count()} devices)')\n"
        "    for i in range(torch.cuda.device_count()):\n"
        "        print(torch.cuda.get_device_name(i))\nelse:\n    print('no')\n"
    ),
    "a kernel of mmcv's": (
        "try:\n    from mmcv.ops import sigmoid_focal_loss as loss_by_kernel\n"
        "except ImportError:\n    loss_by_kernel = None\n"
        "def f(x, y):\n"
        "    if torch.cuda.is_available() and x.is_cuda and loss_by_kernel is not None:\n"
        "        return loss_by_kernel(x, y)\n    return plain(x, y)\n"
    ),
    "a branch that cannot do without a package for CUDA": (
        "def f(self, m):\n    if self.fast and torch.cuda.is_available():\n        try:\n"
        "            import flash_attn\n        except ImportError:\n"
        "            raise ImportError('pip install flash-attn')\n        m = m.half().cuda()\n"
        "    return m\n"
    ),
    "whether kernels of CUDA's are used": (
        "class A:\n    def __init__(self, on):\n        if torch.cuda.is_available():\n"
        "            self.device = 'cuda:0'\n            self.use_cuda_kernel = on\n"
        "        elif torch.backends.mps.is_available():\n            self.device = 'mps'\n"
        "            self.use_cuda_kernel = False\n"
    ),
    "a name for each vendor": (
        "kind = 'npu' if device.type == 'npu' else 'cuda'\n"
        "other = 'cpu' if device.type == 'cpu' else ('npu' if device.type == 'npu' else 'cuda')\n"
    ),
    "a device that goes to kaldifeat by another package": (
        "from lhotse import KaldifeatFbank, KaldifeatFbankConfig\n"
        "device = torch.device('cpu')\nif torch.cuda.is_available():\n"
        "    device = torch.device('cuda', 0)\n"
        "extractor = KaldifeatFbank(KaldifeatFbankConfig(device=device))\n"
    ),
    "graphs of DGL's": (
        "import dgl\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "g = dgl.graph(edges).to(device)\n"
    ),
    "devices of a generator's fork": (
        "with torch.random.fork_rng(devices=['cuda:0']):\n    run()\n"
    ),
    "a device by an answer that goes to another library": (
        "from lib.model import Net\nuse_cuda = torch.cuda.is_available()\n"
        "device = torch.device('cuda:0' if use_cuda else 'cpu')\nnet = Net(use_cuda=use_cuda)\n"
    ),
    "what is shown of each of CUDA's devices": (
        "for k in range(torch.cuda.device_count()):\n"
        "    cap = torch.cuda.get_device_capability(k)\n"
        "    name = torch.cuda.get_device_name(k) + str(cap)\n"
    ),
    "an engine of TensorRT's, by polygraphy": (
        "from polygraphy.backend.trt import TrtRunner\n"
        "class Engine:\n    def __init__(self, engine, device='cuda'):\n"
        "        self.device, self.runner = device, TrtRunner(engine)\n"
        "    def __call__(self, x):\n"
        "        if self.device == 'cuda' and torch.cuda.is_available():\n"
        "            x = x.to('cuda')\n        return self.runner.infer(x)\n"
    ),
    "NCCL next to another vendor's backend": (
        "ok = torch.distributed.is_nccl_available() or torch.distributed.is_hccl_available()\n"
    ),
    "a function of the program's that is asked for CUDA's device": (
        "def f(x):\n    if torch.distributed.get_backend() == 'nccl':\n"
        "        x = x.to(get_device('cuda'))\n    return x\n"
    ),
    "tensors for k2, which serves CUDA and the CPU": (
        "import k2\ndevice = torch.device('cpu')\nif torch.cuda.is_available():\n"
        "    device = torch.device('cuda', 0)\ngraph = k2.trivial_graph(3, device=device)\n"
    ),
    "NCCL by the program's own name": (
        "NCCL = dist.Backend.NCCL\nGLOO = dist.Backend.GLOO\nbackends = tuple(\n"
        "    n for n in [NCCL, GLOO] if getattr(dist, f'is_{n}_available')()\n)\n"
    ),
    "an attribute that says whether NVIDIA's driver is asked": (
        "from gpustat.core import GPUStatCollection\nclass A:\n    def __init__(self):\n"
        "        self.cuda = torch.cuda.is_available()\n    def f(self):\n"
        "        if self.cuda:\n            return GPUStatCollection.new_query()\n"
    ),
    "a checkpoint that is read to the CPU elsewhere": (
        "def load(p):\n    if torch.cuda.is_available():\n        return torch.load(p)\n"
        "    return torch.load(p, map_location=lambda storage, loc: storage)\n"
        "def again(p, device):\n    if device == 'cuda':\n        w = torch.load(p)\n"
        "    else:\n        w = torch.load(p, map_location='cpu')\n    return w\n"
        "w = torch.hub.load_state_dict_from_url(\n"
        "    u, map_location=None if torch.cuda.is_available() else torch.device('cpu')\n)\n"
    ),
    "torch.cuda itself, against another device's module": (
        "def f(device):\n    is_cuda = device == 'cuda'\n"
        "    module = torch.cuda if is_cuda else torch.xpu\n    return module.Event()\n"
        "other = torch.cuda if torch.cuda.is_available() else torch.xpu\n"
    ),
    "a vendor's device among others, in a program for any": (
        "def f(self):\n    if self.torch_device in ['mlu']:\n        return 1e-3\n"
    ),
    "devices that leave Apple's out": (
        "def sam(device):\n    if device.type not in {'cpu', 'cuda', 'xpu'}:\n"
        "        device = None\n"
    ),
    "one device, and then all others but one": (
        "def fp8(device):\n    if device.type == 'cuda':\n        return True\n"
        "    if device.type != 'xpu':\n        return False\n    return probe(device)\n"
    ),
    "a test that replaces a name of CUDA's": (
        "def test_a():\n    with patch('app.devices.torch.cuda.is_available', return_value=True):\n"
        "        assert choose() == torch.device('cuda:1')\n"
    ),
    "an answer for faiss": (
        "import faiss\ndef f(device):\n    use_cuda = True if 'cuda' in str(device) else False\n"
        "    return faiss.Kmeans(3, 4, gpu=use_cuda)\n"
    ),
    "a stream that a library is given": (
        "side = torch.cuda.Stream(device=device)\nlibrary.tune(side, f)\n"
    ),
    "names of torch.cuda that get other functions": (
        "torch.cuda.device = torch.xpu.device\n"
        "torch.cuda.current_device = torch.xpu.current_device\n"
    ),
    "types of apex's that tell layers apart": (
        "import apex\nTYPES = (nn.BatchNorm2d,)\nTYPES += (apex.parallel.SyncBatchNorm,)\n"
        "ok = isinstance(x, apex.parallel.SyncBatchNorm)\n"
    ),
    "an index for another library": (
        "if device.type == 'cuda':\n    cuda_device = device.index\nelse:\n    cuda_device = -1\n"
    ),
    "a question before NVLink": (
        "if torch.cuda.is_available() and devices > 1:\n    check_nvlink_connectivity(fabric)\n"
    ),
    "streams whose address is asked for": (
        "class A:\n    def __init__(self):\n        self.side = torch.cuda.Stream()\n"
        "    def f(self, handle):\n        library.set(handle, self.side.cuda_stream)\n"
    ),
    "a number of devices before an extension": (
        "if torch.cuda.device_count() > 0:\n    from encoding import gpu\n"
    ),
    "a DataParallel of the program's own": (
        "from torch.nn.parallel.replicate import replicate\nclass _DataParallel(Module):\n"
        "    def __init__(self, module):\n        if not torch.cuda.is_available():\n"
        "            self.device_ids = []\n            return\n"
        "        self.device_ids = list(range(torch.cuda.device_count()))\n"
    ),
    "a stream for a function of another library": (
        "group.broadcast(x, src=0, stream=torch.cuda.current_stream())\n"
        "s = torch.cuda.current_stream()\nkernel(x, s)\n"
    ),
    "a question beside TensorRT": (
        "if torch.cuda.is_available() is False and (load_trt is True or fp16 is True):\n"
        "    load_trt, fp16 = False, False\n"
        "if args.tensorrt_model and args.device == 'cuda':\n    f()\n"
    ),
    "devices that are told apart": (
        "if device not in ['cuda', 'xpu']:\n    skip()\nok = device.type in ('cuda', 'mps')\n"
    ),
    "a comparison before what another library calls CUDA": (
        "if x.device.type == 'cuda':\n    op.option.CopyFrom(DeviceOption(caffe2_pb2.CUDA, 0))\n"
    ),
    "a question beside flex attention": (
        "use = HAS_FLEX_ATTENTION and torch.cuda.is_available()\n"
        "ok = HAS_FLEX_ATTENTION and x.device.type == 'cuda'\n"
    ),
    "an index that stands for a device": (
        "places = {'': device.index if device.type == 'cuda' else device.type}\n"
    ),
    "an argument of a call that stays": (
        "n = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count\n"
    ),
    "a question under a comment that says what needs CUDA": (
        "# Patches requiring CUDA\nif torch.cuda.is_available():\n    patch()\n"
    ),
    "a question before torch.cuda as a whole": (
        "if torch.cuda.is_available():\n    restore('CUDA', torch.cuda, state)\n"
    ),
    "an operator whose kernels have a name of several meanings": (
        "if amd:\n    import attention_amd as ops\nelse:\n    ops = torch.ops.attention\n\n\n"
        "@torch.library.custom_op('a::f', mutates_args=(), device_types='cuda')\n"
        "def f(x):\n    return ops.fwd(x)\n"
    ),
    "an answer in a text that says CUDA": (
        'print("Cuda available: {}".format(torch.cuda.is_available()))\n'
    ),
    "apex by its module, where the program goes on without": (
        "try:\n    import apex as amp\n    norm = amp.normalization.FusedLayerNorm\n"
        "except ImportError:\n    norm = None\n"
    ),
    "what is tried where a question that stays is true": (
        "import xformers\ndef use(on):\n    if on:\n        if not torch.cuda.is_available():\n"
        '            raise ValueError("xformers is for GPUs alone")\n        else:\n'
        "            xformers.ops.attention(torch.randn((1, 2), device='cuda'))\n"
    ),
    "where a checkpoint goes": (
        "def load(p):\n    map_location = None if torch.cuda.is_available() else 'cpu'\n"
        "    return torch.load(p, map_location=map_location)\n"
        "def other(p):\n    if not torch.cuda.is_available():\n        map_location = 'cpu'\n"
        "    else:\n        map_location = None\n    return torch.load(p, map_location)\n"
    ),
    "a tensor type's name by an answer": (
        "cuda = True and torch.cuda.is_available()\n"
        "kind = 'torch.cuda.FloatTensor' if cuda else 'torch.FloatTensor'\n"
        "torch.set_default_tensor_type(kind)\n"
    ),
    "an old Lightning's DDP": (
        "import pytorch_lightning as pl\n"
        "t = pl.Trainer(distributed_backend='ddp' if torch.cuda.is_available() else None)\n"
    ),
    "what is off for Apple's device, by a comment": (
        "half = False\nif torch.cuda.is_available():  # set False in CPU/MPS mode\n"
        "    half = True\n"
    ),
    "a question beside cuDNN's": (
        "def device(i):\n    return torch.device('cuda' + i if torch.cuda.is_available() and "
        "torch.backends.cudnn.is_available() else 'cpu')\n"
    ),
    "what can only be used with CUDA, by the message": (
        "def f(use_cuda):\n    assert torch.cuda.is_available(), 'It can only be ' + \\\n"
        "        'used with CUDA'\n    return tree()\n"
    ),
    "inputs of CUDA alone, by the message": (
        "def sum_along(weights):\n    if not weights.is_cuda:\n"
        '        raise NotImplementedError("Only support cuda inputs.")\n    return f(weights)\n'
    ),
    "answers that are shown beside what torch was built for": (
        "def facts():\n    return {\n"
        '        "torch_cuda": torch.version.cuda,\n'
        '        "available": bool(torch.cuda.is_available()),\n'
        '        "cuda_device_count": int(torch.cuda.device_count()),\n    }\n'
    ),
    "what is behind a switch with NVIDIA's name": (
        "def forward(self, x):\n    if self.use_nvidia:\n        assert x.is_cuda\n"
        "        return self.norm(x)\n"
    ),
    "CUDA where it is required": (
        "def check(require_cuda):\n    if require_cuda and not torch.cuda.is_available():\n"
        '        raise RuntimeError("CUDA is not available")\n'
    ),
    "a context that is no context but a device": (
        "place = torch.cuda.device(0)\nprint(place.idx)\n"
    ),
    "an answer that is shown as CUDA's": (
        "def info(env):\n    there = torch.cuda.is_available()\n"
        '    env["CUDA available"] = there\n    if there:\n        env["home"] = home()\n'
    ),
    "a device's context around a package for CUDA": (
        "import tinycudann as tcnn\ndef f(rank):\n    with torch.cuda.device(rank()):\n"
        "        return tcnn.Encoding(3)\n"
    ),
    "what is behind a comparison with an index that stays": (
        'if DEVICE == "cuda:0":\n    torch.cuda.synchronize()\n'
        'elif DEVICE == "xpu:0":\n    torch.xpu.synchronize()\n'
    ),
    "torch as an argument": (
        "def device_of(module):\n    t = torch if module is None else module\n"
        '    if hasattr(t, "cuda") and t.cuda.is_available():\n        return "cuda"\n'
        '    return "cpu"\n'
    ),
    "a function for each vendor": (
        "if torch.cuda.is_available():\n    log_cuda_info(torch)\n"
        "elif torch.xpu.is_available():\n    log_xpu_info(torch)\nelse:\n    f()\n"
    ),
    "a class that loads a kernel by its name": (
        "import importlib\nclass Adam(torch.optim.Optimizer):\n    def __init__(self):\n"
        '        global kernel\n        kernel = importlib.import_module("fused_adam_cuda")\n'
        "    def step(self, p):\n        with torch.cuda.device(p.device):\n"
        "            kernel.adam(p.cuda())\n"
    ),
    "a function of a kernel that is made before it is called": (
        "class Norm(torch.autograd.Function):\n    def forward(self, x):\n"
        "        return layer_norm_cuda.forward(x)\n"
        "def norm(x):\n    if not x.is_cuda:\n        return plain(x)\n"
        "    return Norm(3)(x)\n"
    ),
    "a class on apex's": (
        "try:\n    from apex.normalization import FusedLayerNorm as Fused\n"
        "except ImportError:\n    Fused = None\n"
        "class Norm(Fused):\n    def forward(self, x):\n        if not x.is_cuda:\n"
        "            return super().forward(x)\n        return x\n"
    ),
    "tests of cugraph's layers": (
        "from dgl.nn import CuGraphGATConv\ndef test_gat():\n"
        '    device = "cuda:0"\n    CuGraphGATConv(3).to(device)\n'
    ),
    "what follows a question that stays": (
        'def f(i):\n    if not torch.cuda.is_available():\n        return "cpu"\n'
        "    capability = torch.cuda.get_device_capability(i)\n"
        "    return torch.cuda.get_device_name(i), capability\n"
    ),
    "a condition with a call that stays": (
        "def f():\n    return torch.cuda.is_bf16_supported() and "
        "torch.cuda.get_device_properties(torch.cuda.current_device()).major >= 8\n"
    ),
    "a build with CUDA": (
        "if torch.cuda.is_available() and not built_with_cuda():\n"
        '    raise ImportError("this is the build for the CPU")\n'
    ),
    "whether an extension was built": (
        "def f():\n    if not EXTENSION_BUILT or not torch.cuda.is_available():\n"
        '        return False\n    return run(torch.ones(2, device="cuda"))\n'
    ),
    "CUDA graphs by an option": (
        "def f(request, device):\n"
        "    if request.use_cuda_graph and self.graph is None and torch.cuda.is_available():\n"
        '        capture()\n    return use_cuda_graph and device == "cuda"\n'
    ),
    "CUDA graphs by the text of a switch": (
        'Checkbox(label="CUDA Graph " + tr("on"), interactive=torch.cuda.is_available())\n'
    ),
    "a function that records a graph": (
        "def record(self, x):\n    s = torch.cuda.Stream()\n"
        "    s.wait_stream(torch.cuda.current_stream())\n    g = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(g):\n        self.y = self.h(x.cuda())\n"
        "    torch.cuda.synchronize()\n    return g\n"
    ),
    "a call that waits for CUDA's start": (
        "from torch.cuda import _lazy_call\ndef set_state(state, device):\n"
        '    device = torch.device("cuda", device)\n    def cb():\n'
        "        torch.cuda.default_generators[torch.cuda.current_device()].set_state(state)\n"
        "    _lazy_call(cb)\n"
    ),
    "CUDA's libraries, by the message": (
        "def load():\n    if not torch.cuda.is_available():\n"
        '        print("CUDA is not available, skipping cuDNN setup.")\n        return\n'
        "    load_libraries()\n"
    ),
    "an operator of the library's own": (
        "def nearest(x, y):\n    if x.is_cuda:\n"
        "        return torch.ops.torch_cluster.nearest(x, y)\n    return cluster(x, y)\n"
    ),
    "torch's fast attention, which the CPU and CUDA have": (
        "def forward(x, w):\n    if x.is_cuda:\n"
        "        return torch._native_multi_head_attention(x, w)\n    return slow(x, w)\n"
    ),
    "a loss of another library": (
        "from warprnnt_pytorch import RNNTLoss\nclass Loss(torch.nn.Module):\n"
        "    def __init__(self):\n        self.loss = RNNTLoss()\n"
        "        self.use_cuda = torch.cuda.is_available()\n"
        "    def forward(self, x):\n        if self.use_cuda:\n            x = x.cuda()\n"
        "        return self.loss(x)\n"
    ),
    "a device of another library, by a variable": (
        "from faster_whisper import WhisperModel\ndef load(path):\n"
        '    device = "cuda" if torch.cuda.is_available() else "cpu"\n'
        "    return WhisperModel(path, device=device)\n"
    ),
    "a piece of a mode": (
        'args.kept, args.feature_device = args.mode.split("-")\n'
        'if args.feature_device != "cuda":\n    f()\n'
    ),
    "arguments that are not seen here": (
        "def copy(x, ctx, **kwargs):\n"
        '    if ctx.device.type == "cuda":\n        return x.cuda(**kwargs)\n    return x\n'
    ),
    "an assertion about NCCL": (
        "import torch.distributed as dist\n"
        'assert dist.get_backend() == "nccl", "requires NCCL to send"\n'
    ),
    "Lightning's DDP, which Apple's device has not": (
        "from pytorch_lightning import Trainer\n"
        'trainer = Trainer(accelerator="gpu" if torch.cuda.is_available() else "cpu",\n'
        '    strategy="ddp" if torch.cuda.is_available() else "auto",\n'
        "    devices=-1 if torch.cuda.is_available() else 1)\n"
    ),
    "a question that guards what has no guard of its own, and what it guards": (
        "if torch.cuda.is_available():\n    device = torch.cuda.current_device()\n"
        "    found = torch.cuda.get_device_properties(device)\n"
        "    print(device, found.major)\n"
    ),
    "what a module of compiled kernels does when it is run": (
        "from mmcv.utils import ext_loader\next = ext_loader.load_ext('_ext', ['f'])\n"
        "class F(torch.autograd.Function):\n    pass\n"
        'if __name__ == "__main__":\n    x = torch.ones(2).cuda()\n    print(F.apply(x))\n'
    ),
    "a kernel, and the same by torch's operators": (
        "from there import Attention, attention_pytorch\n"
        "def f(value):\n    if torch.cuda.is_available() and value.is_cuda:\n"
        "        kernel = Attention\n        out = kernel.apply(value)\n"
        "    else:\n        out = attention_pytorch(value)\n    return out\n"
        "def g(value):\n    if torch.cuda.is_available():\n        kernel = Attention\n"
        "        out = kernel.apply(value)\n    else:\n        out = attention_pytorch(value)\n"
        "    return out\n"
    ),
    "a question that puts an index of faiss on GPUs": (
        "import faiss\ndef f(index, device=None):\n"
        "    if device is None and torch.cuda.is_available():\n        try:\n"
        "            index = faiss.index_cpu_to_all_gpus(index, faiss.GpuMultipleClonerOptions())\n"
        "        except AttributeError:\n            pass\n    return index\n"
    ),
    "flash attention, by the message": (
        "def f(flash):\n    if flash and not torch.cuda.is_available():\n"
        '        raise ValueError("Flash attention is only available for GPU.")\n'
    ),
    "what is asked with CUDA's version": (
        "def f(newer):\n"
        '    if torch.cuda.is_available() and newer(f"{torch.version.cuda}", "11.0"):\n'
        '        return torch.randn(4, dtype=torch.double, device="cuda")\n    return None\n'
    ),
    "an index of CUDA's device, asked beside its name": (
        "def f(device, options):\n"
        '    options["no_cuda"] = False if "cuda" in device else True\n'
        '    if "cuda:" in device:\n        options["gpu"] = int(device.split(":")[1])\n'
        '    elif "cuda" in device:\n        options["gpu"] = 0\n'
    ),
    "the devices of a fork of random numbers": (
        "def f(device):\n    devices = [device] if device.type == 'cuda' else []\n"
        "    with torch.random.fork_rng(devices=devices):\n        pass\n"
    ),
    "a comparison before a call that stays, and what is behind another one": (
        "def f(device):\n    if device.type == 'cuda':\n"
        "        p = torch.cuda.get_device_capability(device)\n        return f'sm_{p}'\n"
        "    return 'unknown'\n"
        "def g(name, gpu):\n    if name == 'cuda':\n        if not torch.cuda.is_available():\n"
        "            raise SystemExit('no cuda')\n        torch.cuda.set_device(gpu)\n"
    ),
    "a comparison beside a question that stays": (
        "def f(device):\n    return (\n        device.type == 'cuda'\n"
        "        and torch.cuda.is_available()\n"
        "        and torch.cuda.get_device_capability(device)[0] >= 10\n    )\n"
    ),
    "a member of the program's own for CUDA's device": (
        "def default():\n    device = Kind.CPU\n    if torch.cuda.is_available():\n"
        "        device = Kind.CUDA\n    elif torch.mps.is_available():\n"
        "        device = Kind.MPS\n    return device\n"
        "def f(device, x):\n    if device == Kind.CUDA and torch.cuda.device_count() > 1:\n"
        "        x = x.cuda()\n    return x\n"
    ),
    "an error that shows what it asked": (
        "def check(x):\n    if not x.is_cuda:\n"
        '        raise TypeError(f"Inputs must be cuda tensors ({x.is_cuda=}).")\n'
    ),
    "a library's question for CUDA beside the one for another vendor": (
        "from transformers.utils import is_torch_cuda_available, is_torch_npu_available\n"
        "def f():\n    if is_torch_cuda_available():\n        return torch.cuda.get_device_name()\n"
        "    if is_torch_npu_available():\n        return torch.npu.get_device_name()\n"
    ),
    "a Trainer's number of GPUs in a dictionary": (
        'params = {"gpus": 1 if torch.cuda.is_available() else 0, "num_nodes": 1}\n'
    ),
    "a test whose device stays": (
        "def test_device(self, x):\n    if torch.cuda.is_available():\n"
        '        self.assertEqual(x, "cuda:0")\n    else:\n        self.assertEqual(x, "cpu")\n'
    ),
    "a device of a framework that the function imports": (
        "def build(device):\n    import tvm\n\n"
        '    assert device in ["cpu", "cuda"]\n    return tvm.target.create(device)\n'
    ),
    "faiss on GPUs by a function of the module": (
        "import faiss\n\ndef search_gpu(x):\n    return faiss.index_cpu_to_all_gpus(x)\n\n"
        "def search(x, gpu):\n    return search_gpu(x) if gpu else faiss.IndexFlat(x)\n\n"
        "gpu = torch.cuda.is_available() and args.gpu\ny = search(x, gpu)\n"
    ),
    "a default type, where torch.Tensor follows it": (
        "if torch.cuda.is_available():\n    if args.cuda:\n"
        '        torch.set_default_tensor_type("torch.cuda.FloatTensor")\n    else:\n        f()\n'
        "x = torch.Tensor(3)\n"
    ),
    "a context of CUDA's as an argument of CUDA's": (
        "def f():\n    return torch.cuda.get_device_capability(torch.cuda.device(1))\n"
    ),
    "a choice by the address of CUDA's stream": (
        'def f(t):\n    if t.device.type == "cuda":\n'
        "        return torch._C._cuda_getCurrentRawStream(t.device.index)\n"
    ),
    "NVIDIA's driver behind a question": (
        "import pynvml\n\ndef f():\n    if torch.cuda.is_available():\n"
        "        pynvml.nvmlInit()\n        h = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
    ),
    "NVIDIA's tool by a function of the module": (
        "import subprocess\n\ndef usage():\n"
        '    return subprocess.check_output(["nvidia-smi", "-q"])\n\n'
        "def f(cfg):\n    if cfg.gpu and torch.cuda.is_available():\n        return usage()\n"
    ),
    "CUDA as the name of what was chosen": (
        'if torch.version.hip:\n    KIND = "ROCm"\nelif torch.cuda.is_available():\n'
        '    KIND = "CUDA"\n'
    ),
    "a comment that says what CUDA alone can": (
        "def f(x, r):\n    if x.is_cuda:\n        x = x.repeat(r)\n    else:\n"
        "        # complex numbers may not repeat on non-CUDA devices\n        x = x.expand(r)\n"
        "    return x\n"
    ),
    "faster_whisper's device": (
        'from faster_whisper import WhisperModel\n\nm = WhisperModel("medium", device="cuda")\n'
    ),
    "what tests require": (
        "def requires_cuda():\n    there = torch.cuda.is_available()\n    return there\n"
    ),
    "compute capabilities behind a question": (
        "def specs():\n    if not torch.cuda.is_available():\n        return None\n"
        "    return get_compute_capabilities()\n"
    ),
    "a file that was saved on CUDA, read to the CPU": (
        'w = torch.load(p, map_location={"cuda:0": "cpu"})\n'
    ),
    "faiss's own switch, by a name": (
        "import faiss\n\ndef f(n):\n    use_gpu = torch.cuda.device_count() > 0\n"
        "    return faiss.Kmeans(n, 4, gpu=use_gpu)\n"
    ),
    "DeepSpeed's accelerator, which has a class for each vendor": (
        "from deepspeed.accelerator import get_accelerator\n\n"
        'if get_accelerator().device_name() == "cuda":\n'
        "    from apex.optimizers import FusedAdam as Adam\nelse:\n"
        "    from torch.optim import Adam\n"
        "\ndef f():\n    device = get_accelerator().device_name()\n"
        '    return [torch.profiler.ProfilerActivity.CUDA] if device.startswith("cuda") else []\n'
    ),
    "flags of a build for CUDA": (
        "def load(flags, extra_cuda_cflags=None):\n    if torch.cuda.is_available():\n"
        '        extra_cuda_cflags = ["-O3"]\n        flags.append("-DCUDA_OP")\n'
    ),
    "kernels that are compiled from sources": (
        'spmm = load_extension("spmm", ["spmm.cpp", "spmm.cu"])\n\n\n'
        'def f(x):\n    if x.device.type == "cuda":\n        forward = spmm.add_cuda\n'
        "    else:\n        forward = spmm.add_cpu\n    return forward(x)\n"
    ),
    "a parameter that is compared with CUDA's name": (
        'def check(dtype, device="cuda"):\n'
        '    if not torch.cuda.is_available() and device == "cuda":\n        skip()\n'
        "    return torch.ones(3, device=device)\n"
    ),
    "what is behind a comparison that stays": (
        'def f(mode, x):\n    if mode == "cuda":\n        x = x.cuda()\n    return x\n'
    ),
    "an answer whose name says NVIDIA": (
        'IS_NVIDIA = platform_device == "cuda"\nHAS_NVIDIA = torch.cuda.is_available()\n'
    ),
    "a compute capability by the program's own function": (
        "def f(x):\n    return get_device_capability(x.device)[0] if x.is_cuda else 0\n"
        "def g():\n    if not torch.cuda.is_available():\n        return 0\n"
        "    return device_capability(0)\n"
    ),
    "constants of several vendors": (
        "def f(x):\n    if IS_CUDA_AVAILABLE:\n        return x.cuda()\n"
        "    elif IS_MUSA_AVAILABLE:\n        return x.musa()\n"
    ),
    "two arguments, one of them a device": (
        "from mine import ops\n\nbatch = ops.cuda(batch, device=device)\n"
    ),
    "functions of a package for CUDA alone": (
        "from flash_attn import flash_attn_func\nimport xformers.ops as xops\n"
        "def f(q, k, v, fast):\n    if q.is_cuda and fast:\n"
        "        return flash_attn_func(q, k, v)\n    return plain(q, k, v)\n"
        'def g(q, k, v):\n    if q.device.type != "cuda":\n        return plain(q, k, v)\n'
        "    return xops.memory_efficient_attention(q, k, v)\n"
        "def h(qkv):\n    assert qkv.is_cuda\n    return flash_attn_func(qkv)\n"
        "attend = flash_attn_func if torch.cuda.is_available() else plain\n"
    ),
    "a package for CUDA that may be missing, by the message": (
        "try:\n    import xformers\nexcept ImportError:\n    xformers = None\n"
        "def f(on):\n    if not torch.cuda.is_available():\n"
        '        raise ValueError("xformers is only available for GPU")\n'
        "def g(x):\n    return xformers.ops.f(x) if x.is_cuda else x\n"
    ),
    "a package for CUDA in the same condition": (
        "skip = not is_bitsandbytes_multi_backend() and not device.type == 'cuda'\n"
    ),
    "another vendor's device in the same condition": (
        "if not torch.cuda.is_available() and torch.backends.mps.is_available():\n    f()\n"
        "if torch.cuda.is_available() or (is_torch_xpu_available() and new):\n    f()\n"
    ),
    "a text that says what is shown": (
        'print(f"CUDA available: {torch.cuda.is_available()}")\n'
        'logger.info(_("CUDA: %s"), torch.cuda.is_available())\n'
        'found = {"cuda_available": torch.cuda.is_available()}\n'
    ),
    "an argument of a library that has another meaning of it": (
        "from merging import Options\no = Options(cuda=torch.cuda.is_available())\n"
    ),
    "whether CUDA graphs are to be used": (
        "def cuda_graph_enabled(device):\n"
        '    return device.type == "cuda" and torch.cuda.is_available()\n'
    ),
    "a build of an extension": (
        "from torch.utils.cpp_extension import CUDAExtension\n"
        "if not torch.cuda.is_available():\n    print(ARCHITECTURES)\n"
        'ext = CUDAExtension("fast", SOURCES)\n'
    ),
    # FORCE_CUDA builds on a machine without a GPU, where the accelerator would be the CPU.
    "the device that a setup builds for": (
        "from setuptools import setup\n"
        "from torch.utils.cpp_extension import CUDA_HOME, CppExtension, CUDAExtension\n"
        'device = "cuda" if torch.cuda.is_available() or FORCE_CUDA else "cpu"\n'
        'kind = CUDAExtension if device == "cuda" else CppExtension\n'
        'setup(ext_modules=[kind("fast", [f"fast_{device}.cpp"])])\n'
    ),
    "what reads CUDA's version": (
        "if torch.cuda.is_available():\n    version = torch.version.cuda\n    install(version)\n"
    ),
    "numbers of devices for calls that stay CUDA's": (
        "new = any(torch.cuda.get_device_properties(i).major > 7 "
        "for i in range(torch.cuda.device_count()))\n"
        "for i in range(torch.cuda.device_count()):\n"
        "    found = torch.cuda.get_device_capability(i)\n"
    ),
    "a module that launches kernels of cupy": (
        "import cupy\n@cupy.memoize(for_each_device=True)\ndef launch(name, text):\n"
        "    return cupy.RawKernel(text, name)\n"
        'def f(x):\n    assert x.is_cuda\n    y = torch.zeros(2, device="cuda")\n'
    ),
    "a module that compares with two vendors' devices": (
        "def f(device):\n    torch.cuda.empty_cache()\n"
        '    if device == "xpu":\n        torch.xpu.empty_cache()\n'
        '    if device == "npu":\n        torch.npu.empty_cache()\n'
    ),
    "a device that a test only pretends": (
        "def test_warns():\n    with pytest.warns(UserWarning):\n"
        '        model.device = torch.device("cuda")\n        model.check()\n'
    ),
    # With the CPU in its place, the CPU's tests would be skipped on a machine without a GPU.
    "a device for which a test is skipped": (
        'devices = [cpu, gpu] = [torch.device("cpu"), torch.device("cuda")]\n'
        "def test_f(device):\n    if device == gpu and not torch.cuda.is_available():\n"
        "        skip()\n"
    ),
    "what torch.profiler records": 'def f(activities=["cpu", "cuda"]):\n    pass\n',
    "autocast of a torch that asks no device": (
        "def f(d):\n    try:\n        return torch.is_autocast_enabled(d)\n"
        "    except TypeError:\n        return torch.is_autocast_enabled()\n"
    ),
    "a layer of apex beside torch's": (
        "from apex.normalization import FusedLayerNormAffineFunction as Fused\n"
        "def norm(x):\n    if not x.is_cuda:\n        return F.layer_norm(x)\n"
        "    return Fused.apply(x)\n"
    ),
    "a layer of apex that a class keeps": (
        "from apex.normalization import FusedRMSNormAffineFunction\n"
        "class Norm(torch.nn.Module):\n    def __init__(self):\n"
        "        self.function = FusedRMSNormAffineFunction\n"
        "    def forward(self, x):\n        if not x.is_cuda:\n            return F.rms_norm(x)\n"
        "        return self.function.apply(x)\n"
    ),
    "the backend of CUDA's device": (
        'assert get_distributed_backend("cuda") == "nccl"\nassert f("cpu") == "gloo"\n'
    ),
    "a test that replaces what CUDA answers": (
        '@patch("torch.cuda.is_available", return_value=True)\n'
        "def test_cuda(self, available):\n    assert support() == Support.CUDA\n"
        '    assert support().device.type == "cuda"\n'
    ),
    "a library for CUDA alone, by the message": (
        "def make(name):\n"
        '    assert torch.cuda.is_available(), "APEX needs CUDA"\n'
        "    if not torch.cuda.is_available():\n"
        '        raise RuntimeError("TensorRT needs CUDA")\n'
    ),
    "a workaround for one vendor's device, in a library for several": "from there import "
    "is_npu_available\n"
    "def f(x, device):\n"
    '    if device == "npu":\n'
    '        device = "npu:0"\n'
    "    return x.to(device) if is_npu_available() else x\n",
    "an extension that is built where there is CUDA": "from torch.utils import cpp_extension\n"
    "modules = []\n"
    "if torch.cuda.is_available() and cpp_extension.CUDA_HOME is not None:\n"
    '    modules.append(cpp_extension.CUDAExtension("fast", SOURCES))\n',
    "an operator that only has a kernel of CUDA's": "class Cauchy(torch.autograd.Function):\n"
    "    @staticmethod\n"
    "    def forward(ctx, v, z):\n"
    "        if not (v.is_cuda and z.is_cuda):\n"
    '            raise NotImplementedError("only CUDA tensors")\n'
    "        return cauchy_forward(v, z)\n",
    "Lightning's word, and what decides on it": 'WORDS = {"cpu", "gpu", "cuda", "mps", "auto"}\n'
    "if torch.cuda.is_available():\n"
    '    accelerator = "cuda"\n'
    "elif torch.backends.mps.is_available():\n"
    '    accelerator = "mps"\n'
    "else:\n"
    '    accelerator = "cpu"\n',
    # With the accelerator's name these would be false everywhere: where there is none, it is "cpu".
    "who asks for CUDA where there is none": "def f(device):\n"
    '    if device == "cuda" and not torch.cuda.is_available():\n'
    '        device = "cpu"\n'
    '    if not torch.cuda.is_available() and device.startswith("cuda:"):\n'
    '        raise ValueError("no CUDA")\n'
    '    assert torch.cuda.is_available() or "cuda" not in device\n'
    "    d = torch.device(device)\n"
    '    if d.type == torch.device("cuda").type and not torch.cuda.is_available():\n'
    '        return torch.device("cpu")\n'
    '    return "cpu" if d.type == "cuda" and not torch.cuda.is_available() else d\n',
    "a requirement on the build for CUDA": "def f():\n"
    "    cuda = torch.cuda.is_available()\n"
    '    check_requirements(("onnxruntime-gpu" if cuda else "onnxruntime", "onnx"))\n',
    "a requirement in pieces": "def f(mac):\n    check_requirements("
    "f\"tensorflow{'' if torch.cuda.is_available() else '-macos' if mac else '-cpu'}<=2.15\")\n",
    "what was set for an architecture of NVIDIA's": "class Attend:\n"
    "    def __init__(self):\n        self.cpu_config, self.cuda_config = 1, None\n"
    "        if not torch.cuda.is_available():\n            return\n"
    '        p = torch.cuda.get_device_properties(torch.device("cuda"))\n'
    "        self.cuda_config = 2 if p.major >= 8 else 3\n\n"
    "    def forward(self, q):\n        is_cuda, d = q.is_cuda, q.device\n"
    "        return self.cuda_config if is_cuda else self.cpu_config\n",
    "an argument of a call that stays CUDA's": (
        'def f(i):\n    return torch.cuda.get_device_properties("cuda:{}".format(i)).major\n'
    ),
    "a word of a library that chooses the device itself": (
        'from vllm.config import WeightTransferConfig\n\nc = WeightTransferConfig(backend="nccl")\n'
    ),
    "the cache of a function": (
        'if hasattr(torch.cuda.device_count, "cache_clear"):\n'
        "    torch.cuda.device_count.cache_clear()\n"
    ),
    "a comparison with the default stream": (
        "if torch.cuda.current_stream(d) != torch.cuda.default_stream(d):\n    pass\n"
    ),
    "a type of the CPU that is given a device": (
        "x = torch.cuda.LongTensor(n, device=device).fill_(1)\n"
    ),
    "apex where the program can do without": (
        "try:\n    from apex.normalization import FusedLayerNorm\nexcept ImportError:\n"
        "    from torch.nn import LayerNorm as FusedLayerNorm\nn = FusedLayerNorm(8)\n"
    ),
    "apex that a class is built on": (
        "from apex.optimizers import FusedAdam\n\n\nclass Own(FusedAdam):\n    pass\n"
    ),
    "a guard of an import of kernels": (
        "def f(p):\n    if p.is_cuda:\n"
        "        from align_cuda_binding import align_cuda as align\n"
        "    else:\n        from align_cpu_binding import align\n    return align(p)\n"
    ),
    "a guard of numba's kernels": (
        "from numba import cuda\n\n\ndef f(x):\n    if x.is_cuda:\n        return g(x)\n"
    ),
    "a test of a kernel that a mark of the program keeps on CUDA": (
        "import pytest\nfrom own.timing import align_cpu, align_cuda\n\n\n"
        "@pytest.mark.requires_cuda\ndef test_align(x):\n"
        "    assert align_cpu(x) == align_cuda(torch.ones(2).cuda())\n\n\n"
        "@pytest.mark.requires_cuda\ndef test_filter(x):\n"
        '    y = x.to("cuda")\n    torch.cuda.synchronize()\n    assert f(y).is_cuda\n'
    ),
    "a test of a kernel of Triton, by the function that launches it": (
        "import triton\n\nDEVICE = torch.device('cuda')\n\n\n"
        "@triton.jit\ndef add_kernel(x, n):\n    pass\n\n\n"
        "def add(x):\n    add_kernel[(1,)](x, 4)\n    return x\n\n\n"
        'def test_add():\n    x = torch.ones(4, device="cuda")\n    y = add(x.cuda())\n'
        "    torch.cuda.synchronize()\n    assert torch.ones(4, device=DEVICE) == y\n"
    ),
    "tensors for kernels of numba, and its own question": (
        "from numba import cuda\n\n\n@cuda.jit\ndef inc(a):\n    a[cuda.grid(1)] += 1\n\n\n"
        'device = "cuda" if cuda.is_available() else "cpu"\n\n\n'
        "def run(x):\n    inc[1, 4](x.cuda())\n    torch.cuda.synchronize()\n\n\n"
        'def test_run():\n    run(torch.zeros(4, device="cuda"))\n'
    ),
    "tensors for a script's kernels of numba": (
        'import numba.cuda\n\nx = torch.zeros(3, device="cuda")\nnumba.cuda.as_cuda_array(x)\n'
    ),
    "a test of faiss on GPUs": (
        "import faiss\n\n\ndef test_search():\n"
        "    index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, make())\n"
        '    x = torch.rand(9, 8, device="cuda")\n    index.add(x)\n    torch.cuda.synchronize()\n'
        "    assert index.search(torch.rand(9, 8).cuda(), 3)\n"
    ),
    "tensors that faiss is given": (
        "import faiss\nimport faiss.contrib.torch_utils\n\n\ndef find(x, y):\n"
        "    res = faiss.StandardGpuResources()\n"
        "    return faiss.knn_gpu(res, x.cuda(), y.cuda(), 3)\n"
    ),
    "a question of a library for CUDA": (
        "import faiss\n\n\ndef f(device):\n"
        '    use_cuda = "cuda" in str(device)\n    return faiss.Kmeans(3, 4, gpu=use_cuda)\n'
    ),
    "an argument of a simulator for CUDA": (
        "import isaacgymenvs\n\ne = isaacgymenvs.make(\n"
        '    sim_device="cuda:0" if torch.cuda.is_available() else "cpu",\n'
        "    headless=not torch.cuda.is_available(),\n)\n"
    ),
    "a branch of CUDA beside another vendor's": (
        'def f(kind):\n    if kind == "cuda":\n        return torch.cuda.is_available()\n'
        '    elif kind == "npu":\n        return torch.npu.is_available()\n'
    ),
    "switches of CUDA's libraries": (
        "if torch.cuda.is_available():\n    torch.backends.cuda.matmul.allow_tf32 = True\n"
        "    torch.backends.cudnn.benchmark = True\n"
    ),
    "what a report of a machine says": (
        'meta = {"cuda_device": "NVIDIA L4", "device": "cuda:0"}\n'
    ),
    "TensorRT by a helper that may not find it": (
        'torch_tensorrt, _ = optional_import("torch_tensorrt")\n'
        'd = torch_tensorrt.Device(device=f"cuda:{i}")\n'
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_place_that_went_wrong_is_converted_as_its_maintainer_would(case: str) -> None:
    before, after = CHANGED[case]
    result = convert("import torch\n" + before)
    lines = [x for x in result.replace(HELP, "").splitlines() if x]
    wanted = [x for x in after.splitlines() if x]
    assert lines[-len(wanted) :] == wanted, result
    named = re.search(r"(?<!torch\.)\baccelerator\b(?!=)", after)
    assert (HELP in result) == (named is not None), result


@pytest.mark.parametrize("case", KEPT)
def test_what_only_looked_like_a_device_stays(case: str) -> None:
    text = "import torch\n" + KEPT[case]
    assert convert(text) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('device="cu" "da"', "device=accelerator"),
        ('device=(\n    "cu"\n    "da"\n)', "device=(\n    accelerator\n)"),
        ('device="cuda" ":1"', 'device=f"{accelerator.type}:1"'),
        ('device="cuda:" + str(i)', 'device=f"{accelerator.type}:" + str(i)'),
        ('device="cuda:" f"{i}"', 'device=f"{accelerator.type}:" f"{i}"'),
    ],
)
def test_a_device_in_several_strings_is_one_device(before: str, after: str) -> None:
    text = "import torch\n{head}x = torch.ones(2, {device})\n"
    wanted = text.format(head=HELP, device=after)
    assert convert(text.format(head="", device=before)).replace("\n\n", "\n") == wanted
    npu = before.replace('"cu"', '"n"').replace('"da"', '"pu"').replace('"cuda', '"npu')
    # the import of torch_npu goes, so no name of its device may be left
    of_npu = convert(text.format(head="import torch_npu\n", device=npu))
    assert of_npu.replace("\n\n", "\n") == wanted
    for_npu = convert_source(text.format(head="", device=before), Settings(target="npu"))[0]
    device = eval("(" + for_npu.split("ones(2, device=")[1], {"i": 1})
    assert device in ("npu", "npu:1"), for_npu


@pytest.mark.parametrize("rest", ['"cu" f"da:{i}"', '"cu"  # a\n    "da"'])
def test_a_device_in_pieces_that_cannot_be_read_is_told(rest: str) -> None:
    text = f"import torch\nx = torch.ones(2, device={rest})\n"
    after, found = convert_source(text, Settings())
    assert after == text
    if "#" in rest:
        assert [f.kind for f in found if f.rule == "CW101"] == ["manual"]


def test_a_call_of_a_system_that_stays_keeps_its_device() -> None:
    text = 'import mindtorch\n\nx = mindtorch.ones(2, device="cuda:" + str(i))\n'
    assert convert(text + 'y = mindtorch.ones(2, device="cuda")\n').startswith(text)


@pytest.mark.parametrize(
    "text",
    [
        # numba's and faiss's module has other code, too
        "from numba import cuda\n\n\ndef run(x, k):\n    k[1, 4](cuda.as_cuda_array(x))\n",
        "import faiss\n\n\ndef index(x):\n"
        "    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, x)\n",
        # Triton serves several devices
        "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n\n\ndef test_own(m):\n    f(m)\n",
        # a mark alone says nothing of kernels
        "import pytest\n\n\n@pytest.mark.cuda\ndef test_own(m):\n    f(m)\n",
    ],
)
def test_what_stands_beside_kernels_is_converted(text: str) -> None:
    text = f"import torch\n{text}\n\ndef test_model(m):\n    m.cuda()\n"
    assert "m.to(accelerator)" in convert(text)


def test_a_function_that_chooses_keeps_no_test_on_cuda() -> None:
    text = (
        "import torch\nimport triton\n\n\n@triton.jit\ndef k(x):\n    pass\n\n\n"
        "def f(x):\n    if x.is_cuda:\n        k[(1,)](x)\n    return x + 1\n\n\n"
        "def test_f():\n    f(torch.ones(2).cuda())\n"
    )
    assert "torch.ones(2).to(accelerator)" in convert(text)


def test_a_module_that_never_imports_torch_gets_no_import_for_one_string() -> None:
    text = "p = ArgumentParser()\np.add_argument('--device', default='cuda')\n"
    after, found = convert_source(text, Settings())
    assert after == text
    assert [f.kind for f in found if f.rule == "CW101"] == ["manual"]
    assert "accelerator.type" in convert(
        text + "p.add_argument('--other-device', default='cuda')\n"
    )


def test_a_new_import_stands_behind_the_standard_librarys() -> None:
    text = "import os\nimport sys\n\nimport numpy\n\nm = load().cuda()\nn = load().cuda()\n"
    assert convert(text).startswith("import os\nimport sys\n\nimport torch\nimport numpy\n")


def test_a_module_that_asks_for_nccl_without_torch_is_left_whole() -> None:
    text = 'run(device="cuda:0" if args.backend == "nccl" else "cpu", backend="nccl")\n'
    assert convert(text) == text


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('subprocess.check_output(["nvidia-smi", "-L"])\n', ["manual"]),
        ('os.system("nvidia-smi --query-gpu=name")\n', ["manual"]),
        ('"""nvidia-smi shows the rest."""\n', []),
    ],
)
def test_nvidias_tool_is_reported_where_a_program_starts_it(text: str, kinds: list[str]) -> None:
    after, found = convert_source(text, Settings())
    assert after == text
    assert [f.kind for f in found if f.rule == "CW161"] == kinds


def test_tests_of_an_extension_that_the_tree_builds_for_cuda_stay(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        'setup(ext_modules=[CUDAExtension(name="fast_windows", sources=["fast.cpp"])])\n'
    )
    (tmp_path / "backend.py").write_text(
        "from torch.utils.cpp_extension import load\n_backend = load(name='_fast', "
        "sources=['fast.cu'])\n"
    )
    model = "import torch\nimport {}\n\ndef {}():\n    x = torch.ones(2).cuda()\n"
    for name, brings, function in (
        ("test_windows", "fast_windows", "test_it"),
        ("test_fast", "_fast", "test_it"),
        ("test_others", "slow_windows", "test_it"),
        ("model", "fast_windows", "forward"),
    ):
        (tmp_path / f"{name}.py").write_text(model.format(brings, function))
    changed = {f.path for f in run([tmp_path], Settings()).files if f.status == "converted"}
    assert changed == {"test_others.py", "model.py"}


def test_an_accelerator_of_another_library_is_no_question() -> None:
    text = "import torch\n\n\ndef f(accelerator):\n    if accelerator.is_main_process:\n"
    after = convert(text + "        torch.cuda.synchronize()\n")
    guarded = "        if torch.accelerator.is_available():\n"
    assert after == text + guarded + "            torch.accelerator.synchronize()\n"


def test_the_device_is_named_behind_the_imports_that_stand_with_torchs() -> None:
    text = "import sys\n\nf(sys.argv)\nimport torch\nimport json\n{}\n\ndef g(x):\n    {}\n"
    after = convert(text.format("", "return x.cuda()"))
    assert after == text.format("\n" + HELP, "return x.to(accelerator)")


def test_a_test_without_torch_gets_no_import_of_it(tmp_path: Path) -> None:
    text = 'run(device="cuda:1")\nmade.assert_called_with(device="cuda:1")\n'
    (tmp_path / "test_server.py").write_text(text)
    assert not run([tmp_path], Settings()).totals()["files_converted"]
    assert "import torch" in convert(text)


def test_the_device_is_asked_for_once_the_devices_are_chosen() -> None:
    text = 'import os\nimport torch\n\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\n'
    use = "\n\ndef f(x):\n    return x.{}\n"
    after = convert(text + use.format("cuda()"))
    assert after == text + "\n" + HELP + use.format("to(accelerator)")


def test_a_module_of_another_framework_is_not_asked_for_its_device() -> None:
    text = "import tensorflow as tf\n\n\ndef f(x):\n    return x.cuda() if x.is_cuda else x\n"
    assert convert(text) == text


def test_choices_alone_bring_no_import_of_torch() -> None:
    text = 'p.add_argument("--device", default="cuda", choices=["cpu", "cuda"])\n'
    assert convert(text) == text
    text += 'p.add_argument("--other", choices=["cpu", "cuda"])\n'
    assert convert(text) == text


def test_a_removed_seed_leaves_no_finding_of_its_condition() -> None:
    text = (
        "import torch\n\ntorch.manual_seed(1)\n"
        'if device.type == "cuda":\n    torch.cuda.manual_seed_all(1)\n'
    )
    after, found = convert_source(text, Settings())
    assert after == "import torch\n\ntorch.manual_seed(1)\n"
    assert {f.kind for f in found if f.rule == "CW115"} == set()


def test_scripts_of_a_vendor_beside_scripts_for_cuda_stay(tmp_path: Path) -> None:
    npu = "export ASCEND_RT_VISIBLE_DEVICES=0,1\npython train.py --device npu\n"
    (tmp_path / "run_npu.sh").write_text(npu)
    (tmp_path / "train.py").write_text(
        "import torch\nimport argparse\np = argparse.ArgumentParser()\n"
        'p.add_argument("--device", default="cuda")\n'
    )
    alone = {f.path: f.after for f in run([tmp_path], Settings()).files}
    assert alone["run_npu.sh"] == "export CAUSEWAY_VISIBLE_DEVICES=0,1\npython train.py\n"
    (tmp_path / "run.sh").write_text("CUDA_VISIBLE_DEVICES=0 python train.py\n")
    assert "run_npu.sh" not in {
        f.path for f in run([tmp_path], Settings()).files if f.status == "converted"
    }


def test_a_variable_whose_new_name_stands_beside_it_stays(tmp_path: Path) -> None:
    text = "env:\n  PYTORCH_CUDA_ALLOC_CONF: a\n  PYTORCH_ALLOC_CONF: a\n"
    (tmp_path / "tests.yml").write_text(text)
    assert not run([tmp_path], Settings()).totals()["files_converted"]


def test_a_package_of_the_tree_without_an_init_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "awq").mkdir()
    (tmp_path / "awq" / "entry.py").write_text("import torch\nfrom awq.quantize import q\n")
    found = run([tmp_path], Settings()).findings()
    assert not [f for f in found if f.rule == "CW161"]


def test_a_question_before_an_extension_that_the_tree_builds_stays(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        'setup(ext_modules=[CUDAExtension("fast.backend", ["a.cu"])])\n'
    )
    (tmp_path / "query.py").write_text(
        "import torch\nimport fast.backend\n\n\ndef query(x):\n"
        '    if x.device.type == "cuda":\n        return fast.backend.Table(x)\n    return f(x)\n'
    )
    assert not run([tmp_path], Settings()).totals()["files_converted"]


def test_a_device_with_an_index_is_no_type() -> None:
    text = (
        'import torch\ndevice = "cuda:0"\ny = torch.zeros(2, device="cuda:1")\n'
        "s = torch.cuda.amp.GradScaler()\n"
        'if y.device.type == "cuda":\n    g = torch.device("cuda", 1)\n'
    )
    after = convert(text)
    assert 'y = torch.zeros(2, device=f"{accelerator.type}:1")' in after
    assert 'torch.amp.GradScaler(accelerator.type, enabled=accelerator.type != "cpu")' in after
    assert 'y.device.type == accelerator.type != "cpu"' in after
    assert "torch.device(accelerator.type, 1)" in after


@pytest.mark.parametrize("text", ['f"cuda:{i}"', '"cuda:" + str(i)', '"cuda:{}".format(i)'])
def test_a_device_that_is_put_together_is_no_index(text: str) -> None:
    after = convert(f"import torch\ny = x.cuda({text})\n")
    assert "y = x.to(" in after
    assert "torch.device(" not in after.split("y = x.to(")[1]


def test_the_device_is_named_after_torch_also_on_one_line() -> None:
    after = convert("import torch; x = torch.ones(2).cuda()\n")
    assert after.startswith("import torch; accelerator = ")
    assert after.endswith("; x = torch.ones(2).to(accelerator)\n")


def tree(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """Write a tree, convert it where it lies, twice, and give what it is then."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for file in run([folder], Settings()).files:
        if file.status == "converted":
            (folder / file.path).write_text(file.after)
    assert not run([folder], Settings()).totals()["files_converted"], "a second run changes it"
    return {name: (folder / name).read_text() for name in files}


MODEL = "import torch\n\n\ndef make(x):\n    return x.cuda()\n"
CHOOSES = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"'
LATE = {
    "in a function": f"import os\nfrom model import make\n\ndef main():\n    {CHOOSES}\n",
    "in a method": f"import os\n\nclass A:\n    def f(self):\n        {CHOOSES}\n",
    "as a program": f'import os\nimport model\n\nif __name__ == "__main__":\n    {CHOOSES}\n',
    "behind own imports": f"import os\nfrom model import make\n\n{CHOOSES}\n",
    "behind relative imports": f"import os\nfrom . import other\n\n{CHOOSES}\n",
    "behind functions": f"import os\nimport torch\n\ndef f(): pass\n\n{CHOOSES}\n",
    "by setdefault": "def f():\n    os.environ.setdefault('CUDA_VISIBLE_DEVICES', '1')\n",
    "by update": "def f():\n    os.environ.update(CUDA_VISIBLE_DEVICES='1')\n",
    "by update of a dict": "def f():\n    environ.update({'CUDA_VISIBLE_DEVICES': '1'})\n",
    "by |=": "def f():\n    os.environ |= {'CUDA_VISIBLE_DEVICES': '1'}\n",
    "by putenv": "def f():\n    os.putenv('CUDA_VISIBLE_DEVICES', '1')\n",
    "by taking it away": "def f():\n    del os.environ['CUDA_VISIBLE_DEVICES']\n",
    "of another system": "def f():\n    os.environ['ASCEND_RT_VISIBLE_DEVICES'] = '1'\n",
}
EARLY = {
    "at the top": f"import os\n\n{CHOOSES}\n\nimport torch\nfrom model import make\n",
    "under a condition": f"import os, sys\n\nif sys.argv:\n    {CHOOSES}\n\nimport model\n",
    "it is read": "import os\n\ndef f():\n    return os.environ['CUDA_VISIBLE_DEVICES']\n",
    "of a child": "def f(env):\n    env['CUDA_VISIBLE_DEVICES'] = '1'\n    call(env)\n",
    "a text": "def f():\n    os.environ['HELP'] = 'set CUDA_VISIBLE_DEVICES'\n",
}


@pytest.mark.parametrize("case", LATE)
def test_devices_chosen_late_are_not_asked_for_at_an_import(tmp_path: Path, case: str) -> None:
    after = tree(tmp_path, {"model.py": MODEL, "train.py": LATE[case]})
    head = f"import torch\n\n{BY_BUILD}\n\n"
    assert after["model.py"] == head + "def make(x):\n    return x.to(accelerator)\n"


@pytest.mark.parametrize("case", EARLY)
def test_devices_chosen_before_the_imports_are_asked_for(tmp_path: Path, case: str) -> None:
    after = tree(tmp_path, {"model.py": MODEL, "train.py": EARLY[case]})
    assert after["model.py"].startswith(f"import torch\n\n{HELP}")


def test_a_file_alone_that_chooses_late_asks_for_nothing_and_keeps_its_questions() -> None:
    text = (
        "import os\nimport torch\n{}\ndef main(gpu, x):\n"
        '    os.environ["CUDA_VISIBLE_DEVICES"] = gpu\n    x = x.{}\n'
        "    kind = {} if torch.{}.is_available() else "
        '"cpu"\n    return x.to(kind)\n'
    )
    after = convert(text.format("", "cuda()", '"cuda"', "cuda"))
    wanted = text.format(f"\n{BY_BUILD}", "to(accelerator)", "accelerator.type", "accelerator")
    assert after == wanted
    # Converted alone it stays so, and its questions are not folded into the variable then.
    kept = wanted.replace('    os.environ["CUDA_VISIBLE_DEVICES"] = gpu\n', "")
    more = '    y = "cuda" if torch.cuda.is_available() else "cpu"\n    return y, x.cuda()\n'
    after = convert(kept.replace("    return x.to(kind)\n", more))
    assert '    y = accelerator.type if torch.accelerator.is_available() else "cpu"\n' in after


def test_a_line_of_before_that_asks_too_early_is_reported(tmp_path: Path) -> None:
    model = convert(MODEL)
    after = tree(tmp_path, {"model.py": model, "train.py": LATE["in a function"]})
    assert after["model.py"] == model
    found = [f for f in run([tmp_path], Settings()).findings() if f.rule == "CW142"]
    assert [(f.file, f.line, f.severity) for f in found] == [
        ("model.py", 3, "warning"), ("train.py", 5, "info"),
    ]  # fmt: skip
    assert "check_available=True" in found[0].tip


def test_a_converted_tree_starts_no_driver_at_its_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("is_available", "device_count", "init", "_lazy_init", "current_device"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, n=name: bool(asked.append(n)))
    monkeypatch.setattr(torch._C, "_accelerator_getAccelerator", lambda: torch.device("cuda"))
    train = (
        "import os\nimport torch\nfrom model import make\n\n\n"
        "def main(gpu):\n    {}\n    return torch.cuda.is_available(), make\n"
    )
    choice = 'os.environ["CUDA_VISIBLE_DEVICES"] = gpu'
    for late, wanted in ((choice, []), ("pass", ["is_available"])):
        folder = tmp_path / str(len(wanted))
        folder.mkdir()
        after = tree(folder, {"model.py": MODEL, "train.py": train.format(late)})
        asked.clear()
        exec(after["model.py"], loaded := {"__name__": "model"})
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "model", types.SimpleNamespace(**loaded))
            exec(after["train.py"], program := {"__name__": "train"})
        assert asked == wanted
        main: Any = program["main"]
        with monkeypatch.context() as patch:
            patch.setenv("CUDA_VISIBLE_DEVICES", "0")
            main("1")
            assert os.environ["CUDA_VISIBLE_DEVICES"] == ("0" if wanted else "1")
        assert asked == [*wanted, "is_available"]


def test_what_a_module_asks_before_it_imports_torch_stays() -> None:
    head = 'import os\n\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\nRUN = "cuda"\n\nimport torch\n'
    after = convert(head + "w = torch.load(p, map_location=RUN)\nx = w.cuda()\n")
    assert after.startswith(f"{head}\n{HELP}"), after
    assert after.endswith("map_location=RUN)\nx = w.to(accelerator)\n")


def test_functions_and_classes_of_the_tree_that_are_called_cuda_stay(tmp_path: Path) -> None:
    (tmp_path / "utils").mkdir()
    files = {
        "utils/__init__.py": "from .tensors import cuda, cpu\n",
        "utils/tensors.py": "import torch\n\n\ndef cuda(x, *args):\n    return x.cuda(*args)\n",
        "embed.py": "class SentenceEmbedder(object):\n    def cuda(self):\n        pass\n",
        "reader.py": "from embed import SentenceEmbedder\n\n"
        "model, start = SentenceEmbedder.load(1)\nmodel.cuda()\n",
        "main.py": "import torch\nfrom utils import utils\n\n\n"
        "def f(self, batch):\n    self.embedder.cuda()\n    return utils.cuda(batch)\n",
    }
    after = tree(tmp_path, files)
    assert (after["main.py"], after["reader.py"]) == (files["main.py"], files["reader.py"])


def test_a_tensor_type_that_other_modules_import_stays_a_type(tmp_path: Path) -> None:
    files = {
        "kinds.py": "import torch\n\ncuda = torch.cuda.is_available()\n"
        "FloatTensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor\n"
        "one = FloatTensor([1.0])\n",
        "main.py": "from kinds import FloatTensor\n\nx = FloatTensor([1.0])\n",
    }
    after = tree(tmp_path, files)["kinds.py"]
    assert "one = FloatTensor([1.0])\n" in after
    assert "FloatTensor = torch.FloatTensor\n" not in after


def test_tests_of_a_package_that_loads_compiled_kernels_stay(tmp_path: Path) -> None:
    (tmp_path / "vision" / "ops").mkdir(parents=True)
    test = (
        "import torch\nfrom vision.{} import pool\n\n\ndef test_pool():\n"
        "    if not torch.cuda.is_available():\n        return\n    pool(torch.ones(3).cuda())\n"
    )
    files = {
        "vision/__init__.py": "",
        "vision/ops/__init__.py": "",
        "vision/ops/pool.py": "ext_module = ext_loader.load_ext('_ext', ['pool'])\n",
        "vision/layers.py": "import torch._C as _C\n",
        "test_pool.py": test.format("ops.pool"),
        "test_layers.py": test.format("layers"),
    }
    after = tree(tmp_path, files)
    assert after["test_pool.py"] == files["test_pool.py"]
    assert "if not torch.accelerator.is_available():" in after["test_layers.py"]


def test_tests_of_a_compiled_module_beside_its_wrapper_stay(tmp_path: Path) -> None:
    test = (
        "import torch\nfrom vision.ops.nms.wrapper import nms\n\n\n"
        "def test_nms():\n    assert nms(torch.zeros(2, 5).cuda()).shape == (2,)\n"
    )
    files = {
        "vision/__init__.py": "", "vision/ops/__init__.py": "", "vision/ops/nms/__init__.py": "",
        "vision/ops/nms/wrapper.py": "from . import nms_cpu, nms_cuda\n",
        "test_nms.py": test,
    }  # fmt: skip
    assert tree(tmp_path / "compiled", files)["test_nms.py"] == test
    files["vision/ops/nms/nms_cuda.py"] = "def nms(dets):\n    return dets\n"
    assert tree(tmp_path / "python", files)["test_nms.py"] != test


def test_a_tree_that_tells_vendors_apart_keeps_the_code_of_each(tmp_path: Path) -> None:
    files = {
        "platforms.py": "IS_NPU = kind == 'npu'\nIS_AMD = kind == 'hip'\n",
        "npu.py": "import torch\n\nd = torch.npu.current_device()\n",
        "conftest.py": 'import os\n\nos.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0"\n',
        "run.sh": "ASCEND_RT_VISIBLE_DEVICES=0 python -m pytest\n",
    }
    assert tree(tmp_path, files) == files
    files.pop("platforms.py")
    (tmp_path / "platforms.py").unlink()
    assert "CAUSEWAY_VISIBLE_DEVICES=0" in tree(tmp_path, files)["run.sh"]


def test_code_for_a_vendor_stays_in_a_tree_that_asks_for_each(tmp_path: Path) -> None:
    files = {
        "devices.py": "def is_torch_npu_available():\n    return kind == 'npu'\n\n\n"
        "def is_torch_cuda_available():\n    return kind == 'cuda'\n",
        "test_fast.py": 'import pytest\nimport torch\n\n\n@pytest.mark.runs_on(["npu"])\n'
        'def test_fast():\n    assert fast() is hasattr(torch, "npu")\n',
        "patch.py": 'import torch\n\nnew = "910" in torch.npu.get_device_name(0)\n',
    }
    assert tree(tmp_path, files) == files
    model = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"  # that of any device
    assert tree(tmp_path, {**files, "model.py": model})["model.py"] != model


def test_a_script_that_checks_gradients_of_an_extension_stays(tmp_path: Path) -> None:
    files = {
        "setup.py": "from torch.utils.cpp_extension import CppExtension, CUDAExtension\n"
        'extension = CUDAExtension\nmodules = [extension("DeformableAttention", SOURCES)]\n',
        "functions/__init__.py": "",
        "functions/attention.py": "try:\n    import DeformableAttention as DA\n"
        "except ModuleNotFoundError:\n    raise\n\n\ndef attend(x):\n    return DA.attend(x)\n",
        "check.py": "import torch\nfrom torch.autograd import gradcheck\n"
        "from functions.attention import attend\n\n"
        "print(gradcheck(attend, torch.rand(2).cuda()))\n",
    }
    assert tree(tmp_path, files)["check.py"] == files["check.py"]
    without = {**files, "functions/attention.py": "def attend(x):\n    return x\n"}
    assert tree(tmp_path, without)["check.py"] != files["check.py"]


def test_a_module_that_needs_an_extension_named_after_cuda_stays(tmp_path: Path) -> None:
    files = {
        "setup.py": "from torch.utils.cpp_extension import CUDAExtension\n"
        'modules = [CUDAExtension("flow_cuda", SOURCES)]\n',
        "flow.py": "import torch\nimport flow_cuda as lib\n\n\ndef f(x):\n    if x.is_cuda:\n"
        "        out = torch.cuda.FloatTensor().resize_(x.size())\n        lib.f(x, out)\n\n\n"
        "def g(x):\n    return x.cuda()\n",
    }
    assert tree(tmp_path, files)["flow.py"] == files["flow.py"]
    tried = files["flow.py"].replace(
        "import flow_cuda as lib\n",
        "try:\n    import flow_cuda as lib\nexcept ImportError:\n    lib = None\n",
    )
    assert tree(tmp_path, {**files, "flow.py": tried})["flow.py"] != tried


def test_a_device_is_not_asked_for_before_the_devices_are_chosen() -> None:
    text = (
        'import os\nimport torch\n\ndevice = "cuda"\n'
        'os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu\nx = torch.ones(2).to(device)\n'
    )
    after = convert(text)
    assert "_available" not in after
    assert "device = accelerator.type\n" in after
    after = convert(text.replace('"cuda"', 'torch.device("cuda")'))
    assert 'device = torch.accelerator.current_accelerator() or torch.device("cpu")\n' in after


def test_a_condition_is_indented_as_the_modules_blocks_are() -> None:
    text = (
        '"""A benchmark:\n\n  python bench.py\n"""\nimport torch\n\n\ndef f():\n'
        "    torch.cuda.synchronize()\n"
    )
    assert "    if torch.accelerator.is_available():\n        torch." in convert(text)


def test_a_condition_that_is_added_at_an_import_starts_no_driver(tmp_path: Path) -> None:
    text = "import torch\n\ntorch.cuda.empty_cache()\nn = torch.cuda.max_memory_allocated()\n"
    after = tree(tmp_path, {"model.py": text, "train.py": LATE["in a function"]})["model.py"]
    assert after.endswith(
        'if accelerator.type != "cpu":\n    torch.accelerator.empty_cache()\n'
        'n = torch.accelerator.max_memory_allocated() if accelerator.type != "cpu" else 0\n'
    )


def test_an_assertion_stays_before_what_is_for_cuda_alone() -> None:
    text = "import torch\n\nassert torch.cuda.is_available()\nx = {}\nn = torch.cuda.{}\n"
    alone = text.format("torch.cuda.get_device_capability(0)", "device_count()")
    assert "assert torch.cuda.is_available()" in convert(alone)
    assert "assert torch.accelerator.is_available()" in convert(text.format(1, "device_count()"))


def test_a_number_of_a_device_that_c_takes_stays_a_number() -> None:
    text = "import torch\n\ns = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())\n"
    assert "RawStream(torch.accelerator.current_device_index() if" in convert(text)


def test_a_trainer_of_the_programs_own_keeps_its_word(tmp_path: Path) -> None:
    text = "trainer:\n  _target_: {}.trainer.Trainer\n  accelerator: cuda\n  max_epochs: 3\n"
    files = {"own.yaml": text.format("training"), "theirs.yaml": text.format("lightning.pytorch")}
    after = tree(tmp_path, files)
    assert after["own.yaml"] == files["own.yaml"]
    assert after["theirs.yaml"] == files["theirs.yaml"].replace("cuda", "auto")


def test_the_folder_of_cudas_code_beside_other_vendors_stays(tmp_path: Path) -> None:
    text = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
    files = {f"backends/{kind}/ops.py": text for kind in ("cuda", "xpu", "hpu")}
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True)
    files["main.py"] = text
    after = tree(tmp_path, files)
    assert after["backends/cuda/ops.py"] == text
    assert after["main.py"] != text


def test_the_module_of_cudas_device_beside_that_of_torchs_others_stays(tmp_path: Path) -> None:
    text = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
    after = tree(tmp_path, {"cuda_memory.py": text, "xpu_memory.py": text, "main.py": text})
    assert after["cuda_memory.py"] == text
    assert after["main.py"] != text


@pytest.mark.parametrize("name", ["bnb_linear", "flash_attention", "transformer_engine", "apex"])
def test_tests_of_a_package_for_cuda_stay_by_their_name(tmp_path: Path, name: str) -> None:
    text = "import torch\n\n\ndef test_it():\n    run(torch.ones(3).cuda())\n"
    files = {f"test/test_{name}.py": text, "test/test_engines.py": text}
    after = tree(tmp_path, files)
    assert after[f"test/test_{name}.py"] == text
    assert after["test/test_engines.py"] != text


def test_tests_of_a_function_of_an_extension_stay(tmp_path: Path) -> None:
    files = {
        "setup.py": "from torch.utils.cpp_extension import CUDAExtension\n"
        'e = CUDAExtension("fast.sum_cuda", ["sum.cu"])\n',
        "test_sum.py": "import torch\nfrom fast.sum_cuda import total\n\n\ndef test_total():\n"
        "    if not torch.cuda.is_available():\n        return\n    total(torch.ones(3).cuda())\n",
    }
    assert tree(tmp_path, files)["test_sum.py"] == files["test_sum.py"]


def test_a_default_type_stays_where_the_tree_makes_tensors_by_it(tmp_path: Path) -> None:
    text = "import torch\n\ntorch.set_default_tensor_type(torch.cuda.FloatTensor)\n"
    other = "import torch\n\nx = torch.{}(3)\n"
    after = tree(tmp_path, {"main.py": text, "model.py": other.format("Tensor")})
    assert after["main.py"] == text
    after = tree(tmp_path, {"main.py": text, "model.py": other.format("zeros")})
    assert "torch.set_default_device(accelerator)" in after["main.py"]


def test_a_program_of_mindspores_own_stays() -> None:
    text = "from mindspore.communication import get_group_size, create_group\n\nget_group_size()\n"
    assert convert(text) == text


def test_what_is_around_kernels_that_are_compiled_beside_them_stays(tmp_path: Path) -> None:
    files = {
        "freq/__init__.py": "from .freq import Freq\n",
        "freq/backend.py": "from torch.utils.cpp_extension import load\n\n"
        '_backend = load(name="_freq", sources=["freq.cu"])\n',
        "freq/freq.py": "import torch\nfrom torch.autograd import Function\n\n"
        "try:\n    import _freq as _backend\nexcept ImportError:\n"
        "    from .backend import _backend\n\n\nclass Freq(Function):\n    @staticmethod\n"
        "    def forward(ctx, x):\n        return _backend.freq(x.cuda())\n",
        "test/test_freq.py": "import torch\nfrom freq import Freq\n\n"
        "y = Freq.apply(torch.ones(2).cuda())\n",
        "model.py": "import torch\nfrom freq import Freq\n\n\ndef f(x):\n    return x.cuda()\n",
    }
    after = tree(tmp_path, files)
    assert [name for name in files if after[name] != files[name]] == ["model.py"]
    (tmp_path / "freq/backend.py").write_text("_backend = None\n")
    assert tree(tmp_path, {"freq/freq.py": files["freq/freq.py"]}) != files["freq/freq.py"]


@pytest.mark.parametrize("loads", ["ops.load_library(where)", "classes.load_library(where)"])
def test_tests_of_a_library_that_torch_loads_stay(tmp_path: Path, loads: str) -> None:
    files = {
        "cluster/__init__.py": f"import torch\n\ntorch.{loads}\n",
        "cluster/testing.py": "import torch\n\ndevices = [torch.device('cuda:0')]\n",
        "test/test_near.py": "import torch\nfrom cluster import near\n\n\n"
        "def test_near():\n    near(torch.ones(2).cuda())\n",
    }
    assert tree(tmp_path, files) == files


def test_a_test_that_imports_what_is_named_after_cuda_stays() -> None:
    text = (
        "import torch\n\n\ndef test_softmax():\n    import masked_softmax_cuda\n\n"
        "    masked_softmax_cuda.forward(torch.ones(2).cuda())\n"
    )
    assert convert(text) == text
    assert convert(text.replace("_cuda", "_fast")) != text


def test_names_of_apex_stay_in_apexs_own_tree(tmp_path: Path) -> None:
    files = {
        "apex/__init__.py": "",
        "test/test_norm.py": "import apex\n\nnorm = apex.normalization.FusedLayerNorm(8)\n",
    }
    assert tree(tmp_path / "own", files) == files
    assert (
        tree(tmp_path / "other", {"a.py": files["test/test_norm.py"]})["a.py"]
        != files["test/test_norm.py"]
    )


def test_a_module_without_torch_gets_no_import_for_one_comparison() -> None:
    text = 'def f(g):\n    if g.device.type != "cuda":\n        raise ValueError\n'
    assert convert(text) == text


@pytest.mark.parametrize(
    "sets", ["exec(open('options.py').read())", "globals().update(read())", "globals()[key] = 1"]
)
def test_a_device_that_an_option_may_set_unseen_is_not_used_for_others(sets: str) -> None:
    text = (
        f"import torch\n\ndevice = 'cuda'  # or 'cuda:1'\n{sets}\n"
        "kind = 'cuda' if 'cuda' in device else 'cpu'\nx = torch.ones(2).cuda()\n"
    )
    after = convert(text)
    assert "kind = accelerator.type if 'cpu' != accelerator.type in device else 'cpu'" in after
    assert "x = torch.ones(2).to(accelerator)" in after


def test_a_test_that_needs_numba_stays() -> None:
    text = (
        "import pytest\nimport torch\n\n\ndef test_loss():\n    pytest.importorskip('numba')\n"
        "    if torch.cuda.device_count() == 0:\n        pytest.skip('no GPU')\n"
        "    device = torch.device('cuda')\n    loss(torch.ones(2).to(device))\n"
    )
    assert convert(text) == text
    assert convert(text.replace("numba", "numpy")) != text


def test_an_attribute_that_goes_to_another_library_stays() -> None:
    text = (
        "import torch\n\n\nclass Engine:\n    def __init__(self, gpu):\n"
        "        import ctranslate2\n\n        if gpu:\n            self.device = 'cuda'\n"
        "        else:\n            self.device = 'cpu'\n"
        "        self.translator = ctranslate2.Translator('a', device=self.device)\n"
    )
    assert convert(text) == text
    assert convert(text.replace("ctranslate2", "translate")) != text


def test_an_option_of_a_package_on_top_of_faster_whisper_stays(tmp_path: Path) -> None:
    option = (
        "import argparse\nimport torch\n\np = argparse.ArgumentParser()\n"
        'p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")\n'
    )
    own = (
        "import faster_whisper\nimport torch\n\n\nclass Model(faster_whisper.WhisperModel):\n"
        '    pass\n\n\ndef load(device):\n    kind = "float16" if device == "cuda" else "int8"\n'
        "    return Model(device, compute_type=kind)\n"
    )
    (tmp_path / "asr").mkdir()
    (tmp_path / "asr/__init__.py").touch()
    (tmp_path / "asr/model.py").write_text(own)
    (tmp_path / "asr/main.py").write_text(option)
    assert not [f for f in run([tmp_path], Settings()).files if f.changed]
    (tmp_path / "asr/model.py").write_text(own.replace("faster_whisper", "slow_whisper"))
    assert len([f for f in run([tmp_path], Settings()).files if f.changed]) == 2


@pytest.mark.parametrize(
    "text",
    [
        'd = {"device": "cuda" if gpu else "cpu", "device_index": 0}\n',
        'm = load(path, device="cuda", compute_type="float16")\n',
        'def f(device):\n    t = "float16" if device == "cuda" else "float32"\n'
        "    return ctranslate2.Translator(path, device=device, compute_type=t)\n",
    ],
)
def test_what_goes_to_ctranslate2_stays(text: str) -> None:
    text = f"import torch\nimport ctranslate2\n\n{text}"
    assert convert(text) == text
    assert convert(text.replace("ctranslate2", "translate2")) != text


@pytest.mark.parametrize(
    "text",
    [
        'def f(device: Literal["cuda", "cpu"] = "cuda"):\n'
        "    return torch.ones(2, device=device)\n",
        'def f(device: Literal["cuda", "cpu"] | None = "cuda" if torch.cuda.is_available() '
        'else "cpu"):\n    return torch.ones(2, device=device)\n',
        'class A:\n    device: Literal["cuda", "cpu"] = "cuda"\n',
        'Device = Literal["cuda", "cpu"]\n\n\nclass A:\n    device: Device = "cuda"\n',
    ],
)
def test_a_default_among_the_words_of_a_literal_stays(text: str) -> None:
    text = f"import torch\nfrom typing import Literal\n\n\n{text}"
    assert convert(text) == text
    assert convert(text.replace("Literal[", "Annotated[")) != text


def test_a_tensor_type_in_an_attribute_that_other_modules_use_stays_a_type(tmp_path: Path) -> None:
    base = (
        "import torch\n\n\nclass A:\n    def __init__(self, opt):\n"
        "        self.gpu_ids = opt.gpu_ids\n"
        "        self.Tensor = torch.cuda.FloatTensor if self.gpu_ids else torch.Tensor\n\n"
        "    def f(self, n):\n        return self.Tensor(n, 3)\n"
    )
    (tmp_path / "base.py").write_text(base)
    (tmp_path / "net.py").write_text("import base\n\n\ndef f(a):\n    return a.Tensor(2)\n")
    after = run([tmp_path], Settings()).files[0].after
    assert "return self.Tensor(n, 3)\n" in after


def test_tests_of_kernels_of_tritons_stay(tmp_path: Path) -> None:
    kernel = "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n"
    test = (
        "import torch\nfrom net.{} import f\n\n\ndef test_f():\n"
        "    f(torch.ones(2, device='cuda'))\n"
    )
    for path, text in {
        "net/__init__.py": "", "net/ops/__init__.py": "", "net/ops/swiglu.py": kernel,
        "net/ops/lora.py": "from .swiglu import f\n", "net/a.py": "", "net/b.py": kernel,
        "net/c.py": "", "net/d.py": "", "checks/test_a.py": test.format("ops.lora"),
        "checks/test_b.py": test.format("b"), "checks/test_c.py": test.format("a"),
    }.items():  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert [f.path for f in run([tmp_path], Settings()).files if f.changed] == ["checks/test_c.py"]


def test_a_tree_that_gives_the_device_of_several_vendors_keeps_the_code_of_each(
    tmp_path: Path,
) -> None:
    infer = (
        "import torch\n\n\ndef infer_device():\n    if torch.cuda.is_available():\n"
        '        return "cuda"\n    if is_npu_available():\n        return "npu"\n'
        '    return "cpu"\n'
    )
    other = (
        "import torch\n\nfrom infer import infer_device\n\ndevice = infer_device()\n"
        'if device == "npu":\n    loss = OtherLoss()\nelse:\n    loss = torch.nn.MSELoss()\n'
    )
    (tmp_path / "other.py").write_text(other)
    assert [f.path for f in run([tmp_path], Settings()).files if f.changed] == ["other.py"]
    (tmp_path / "infer.py").write_text(infer)
    assert "other.py" not in [f.path for f in run([tmp_path], Settings()).files if f.changed]


def test_a_question_beside_amds_version_stays() -> None:
    text = "import torch\n\nif torch.cuda.is_available() and torch.version.hip:\n    f()\n"
    assert convert(text) == text


def test_batch_norms_whose_group_apex_makes_stay() -> None:
    text = (
        "import torch\n\n\ndef build(model, named):\n    if named:\n        import apex\n\n"
        "        group = apex.parallel.create_syncbn_process_group(group_size=2)\n"
        "        model = apex.parallel.convert_syncbn_model(model, process_group=group)\n"
        "    return model\n"
    )
    assert "model = apex.parallel.convert_syncbn_model(model, process_group=group)" in convert(text)


def test_modules_beside_one_that_imports_k2_stay(tmp_path: Path) -> None:
    text = "import torch\nx = torch.zeros(3).cuda()\n"
    after = tree(tmp_path, {"a/model.py": "import k2\n", "a/train.py": text, "b/train.py": text})
    assert after["a/train.py"] == text
    assert after["b/train.py"] != text


def test_functions_of_a_module_that_is_named_after_torchscript_stay(tmp_path: Path) -> None:
    text = (
        "import torch\n\n\ndef f(n: int):\n    return torch.zeros(n, device=torch.device('cuda'))\n"
    )
    after = tree(tmp_path, {"model_jit.py": text, "model.py": text})
    assert after["model_jit.py"] == text
    assert after["model.py"] != text


def test_modules_that_each_are_for_one_vendor_stay(tmp_path: Path) -> None:
    text = "import torch\n\n\ndef here():\n    return torch.cuda.current_device()\n"
    of_npu = text.replace("cuda", "npu")
    after = tree(
        tmp_path,
        {
            "a/cuda_accelerator.py": text,
            "a/npu_accelerator.py": of_npu,
            "b/cuda_accelerator.py": text,
        },
    )
    assert after["a/cuda_accelerator.py"] == text
    assert after["a/npu_accelerator.py"] == of_npu
    assert after["b/cuda_accelerator.py"] != text


def test_assertions_of_a_module_that_needs_a_compiled_extension_stay(tmp_path: Path) -> None:
    setup = (
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        'setup(ext_modules=[CUDAExtension(name="fast_windows", sources=["fast.cu"])])\n'
    )
    text = (
        "import torch\nimport {} as ext\n\n\ndef f(x):\n    assert x.is_cuda\n    return ext.f(x)\n"
    )
    files = {"setup.py": setup, "a.py": text.format("fast_windows"), "b.py": text.format("others")}
    after = tree(tmp_path, files)
    assert after["a.py"] == files["a.py"]
    assert after["b.py"] != files["b.py"]


def test_tests_that_are_named_after_a_package_for_cuda_stay(tmp_path: Path) -> None:
    text = (
        "import torch\nfrom net.layers import Layer\n\n\ndef test_layer():\n"
        "    if not torch.cuda.is_available():\n        return\n"
        "    Layer()(torch.ones(2).cuda())\n"
    )
    of_tcnn, of_all = (f"tests/{name}.py" for name in ("tests_tcnn_layer", "test_layer"))
    after = tree(tmp_path, {of_tcnn: text, of_all: text})
    assert after[of_tcnn] == text
    assert after[of_all] != text


def test_a_branch_that_is_still_taken_is_not_called_dead() -> None:
    text = (
        "import torch\nif torch.cuda.is_available():\n    d, half = 'cuda', True\n"
        "elif torch.backends.mps.is_available():\n    d, half = 'mps', False\n"
        "if torch.cuda.is_available():\n    half = True\n"
        "elif torch.backends.mps.is_available():\n    half = False\n"
    )
    found = convert_source(text, Settings())[1]
    assert [f.line for f in found if f.rule == "CW123"] == [4]
    folded = convert_source(text, Settings(fold_branches=True))[0]
    assert folded.count("mps.is_available()") == 2


def test_a_comparison_stays_beside_a_question_of_torch_that_a_function_is_given() -> None:
    text = (
        "def sync(torch: Any, device):\n    if device == 'mps':\n        torch.mps.synchronize()\n"
        "    elif device == 'cuda' and torch.cuda.is_available():\n"
        "        torch.cuda.synchronize()\n\n\ndef main():\n    import torch\n\n"
        "    sync(torch, 'cpu')\n"
    )
    assert convert(text) == text


def test_a_function_that_may_find_no_torch_is_left_whole() -> None:
    text = (
        "import importlib\n\n\ndef pick(index, backend):\n    if backend == 'torch':\n"
        "        try:\n            torch = importlib.import_module('torch')\n"
        "        except ImportError:\n            return 'cpu'\n"
        "        if not torch.cuda.is_available():\n            return 'cpu'\n"
        "        number = torch.cuda.device_count()\n    else:\n        number = 0\n"
        "    return f'cuda:{index}' if index < number else 'cpu'\n"
    )
    assert convert(text) == text


def test_the_device_is_named_behind_what_brings_torch_in_a_test() -> None:
    text = (
        "import pytest\n\n\ndef test_it():\n    torch = pytest.importorskip('torch')\n"
        "    assert net(torch.ones(3).cuda())\n"
    )
    line = "    torch = pytest.importorskip('torch')\n"
    assert convert(text) == text.replace(line, f"{line}    {HELP}").replace(
        ".cuda()", ".to(accelerator)"
    )


def test_a_new_import_stands_behind_the_standard_librarys_also_before_a_statement() -> None:
    text = (
        "# Copyright\nimport argparse\nimport sys\nsys.path.insert(1, '..')\n\n"
        "from torch.cuda.amp import autocast\n\n\ndef f():\n    with autocast():\n        pass\n"
    )
    assert "import sys\nimport torch\nsys.path.insert" in convert(text)


def test_what_is_around_kernels_without_which_it_is_not_imported_stays(tmp_path: Path) -> None:
    text = (
        "import torch\n{}from . import group_cuda{}\n\n\nclass Group(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n"
        "        return group_cuda.forward(x, torch.cuda.FloatTensor(3))\n"
    )
    needs = text.format("", "")
    may = text.format("try:\n    ", "\nexcept ImportError:\n    group_cuda = None")
    files = {"ops/__init__.py": "", "ops/group.py": needs, "ops/may.py": may}
    after = tree(tmp_path, files)
    assert after["ops/group.py"] == needs
    assert after["ops/may.py"] != may


def test_a_copy_of_what_is_moved_is_moved_too(tmp_path: Path) -> None:
    agent = "class Agent:\n    def cuda(self):\n        self.net.cuda()\n"
    text = (
        "import copy\nimport torch\nfrom agent import Agent\n\n\nclass Learner:\n"
        "    def __init__(self, mac, args):\n        self.mac = mac\n"
        "        self.mixer = torch.nn.Linear(2, 2)\n"
        "        self.old_mixer = copy.deepcopy(self.mixer)\n"
        "        self.old_mac = copy.deepcopy(mac)\n\n    def move(self):\n"
        "        self.mac.cuda()\n        self.mixer.cuda()\n        self.old_mixer.cuda()\n"
        "        self.old_mac.cuda()\n"
    )
    after = tree(tmp_path, {"agent.py": agent, "learner.py": text})["learner.py"]
    assert "self.old_mixer.to(accelerator)" in after
    assert "self.mac.cuda()" in after
    assert "self.old_mac.cuda()" in after


def test_tests_of_a_tree_that_is_a_package_for_cuda_stay(tmp_path: Path) -> None:
    text = "import torch\nimport apex\n\nx = apex.scale(torch.ones(3).cuda())\n"
    files = {"apex/__init__.py": "", "test/race.py": text, "demo/train.py": text}
    after = tree(tmp_path, files)
    assert after["test/race.py"] == text
    assert after["demo/train.py"] != text


def test_a_script_that_checks_gradients_beside_compiled_kernels_stays(tmp_path: Path) -> None:
    text = (
        "import torch\nfrom torch.autograd import gradcheck\nfrom func import Pool\n\n"
        "gradcheck(Pool(), torch.ones(3).cuda())\n"
    )
    files = {"net/dcn/__init__.py": "", "net/dcn/func.py": "from ._ext import pool\n"}
    files |= {"net/dcn/test.py": text, "net/check.py": text}
    after = tree(tmp_path, files)
    assert after["net/dcn/test.py"] == text
    assert after["net/check.py"] != text


def test_what_wraps_a_model_of_ctranslate2_stays_with_it(tmp_path: Path) -> None:
    text = (
        "import faster_whisper\nimport torch\n\n\nclass Pipeline:\n"
        "    def __init__(self, device):\n"
        '        self.device = torch.device(f"cuda:{device}")\n'
        "        self.model = faster_whisper.WhisperModel('base')\n"
    )
    assert tree(tmp_path, {"asr.py": text})["asr.py"] == text


def test_an_import_from_torchs_amp_may_stand_before_torchs_own() -> None:
    text = (
        "from torch.cuda.amp import autocast\nimport torch\n\n\ndef f():\n"
        "    with autocast(False):\n        return torch.cuda.current_device()\n"
    )
    after = convert(text)
    assert after.startswith("from torch.amp import autocast\nimport torch\n")
    assert "autocast(accelerator.type, enabled=False)" in after
