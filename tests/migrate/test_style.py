"""Converted code that a maintainer would merge: it uses what the file has, and says nothing twice.

Every result is converted again, and must stay.
"""

from __future__ import annotations

import pytest

from causeway.migrate.module import HELPER
from causeway.migrate.python import convert_source
from causeway.migrate.settings import Settings

HELP = f"accelerator = {HELPER.format(torch='torch')}\n"
VALUE = HELPER.format(torch="torch").replace('"', "'")
TYPE = "torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else 'cpu'"
CHOSEN = "torch.device('cuda' if torch.cuda.is_available() else 'cpu')"


def convert(text: str) -> str:
    after, findings = convert_source(text, Settings())
    assert all(f.before != f.after for f in findings if f.kind == "changed")
    assert convert_source(after, Settings())[0] == after
    return after


USED = {
    "of the module": (
        f"device = {CHOSEN}\n\n\ndef f(x):\n    return x.cuda(), x.is_cuda\n",
        f"device = {VALUE}\n\n\ndef f(x):\n"
        "    return x.to(device), x.device.type == device.type != 'cpu'\n",
    ),
    "a name, not a device": (
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\ny = x.cuda()\n"
        "with torch.cuda.amp.autocast():\n    d = torch.device('cuda')\n",
        f"device = {TYPE}\ny = x.to(device)\n"
        "with torch.amp.autocast(device, enabled=device != 'cpu'):\n    d = torch.device(device)\n",
    ),
    "the name of CUDA alone": (
        "device = 'cuda'\ny = x.cuda()\n",
        f"device = {TYPE}\ny = x.to(device)\n",
    ),
    "CUDA alone": (
        "DEVICE = torch.device('cuda')\ny = x.cuda()\n",
        f"DEVICE = {VALUE}\ny = x.to(DEVICE)\n",
    ),
    "asked the other way round": (
        "dev = torch.device('cpu' if not torch.cuda.is_available() else 'cuda')\ny = x.cuda()\n",
        f"dev = {VALUE}\ny = x.to(dev)\n",
    ),
    "with the index of the first": (
        "device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\ny = x.cuda()\n",
        "device = torch.device(f'{torch.accelerator.current_accelerator().type}:0' "
        "if torch.accelerator.is_available() else 'cpu')\ny = x.to(device)\n",
    ),
    "of three branches": (
        "if torch.cuda.is_available():\n    device = torch.device('cuda')\n"
        "elif torch.backends.mps.is_available():\n    device = torch.device('mps')\n"
        "else:\n    device = torch.device('cpu')\ny = x.cuda()\n",
        "if torch.accelerator.is_available():\n"
        "    device = torch.accelerator.current_accelerator()\n"
        "elif torch.backends.mps.is_available():\n    device = torch.device('mps')\n"
        "else:\n    device = torch.device('cpu')\ny = x.to(device)\n",
    ),
    "of three branches in one line": (
        "device = ('cuda' if torch.cuda.is_available() else "
        "'mps' if torch.backends.mps.is_available() else 'cpu')\ny = x.cuda()\n",
        "device = (torch.accelerator.current_accelerator().type if "
        "torch.accelerator.is_available() else 'mps' if torch.backends.mps.is_available() else "
        "'cpu')\ny = x.to(device)\n",
    ),
    "of a function": (
        f"def f(x):\n    device = {CHOSEN}\n    for y in x:\n        y.cuda()\n",
        f"def f(x):\n    device = {VALUE}\n    for y in x:\n        y.to(device)\n",
    ),
    "of an object": (
        f"class A:\n    def __init__(self, m):\n        self.device = {CHOSEN}\n"
        "        self.m = m.cuda()\n\n    def f(self, x):\n        return x.cuda()\n",
        f"class A:\n    def __init__(self, m):\n        self.device = {VALUE}\n"
        "        self.m = m.to(self.device)\n\n"
        "    def f(self, x):\n        return x.to(self.device)\n",
    ),
    "of each object": (
        f"class A:\n    def __init__(self):\n        self.device = {CHOSEN}\n\n"
        "    def f(self, x):\n        return x.cuda()\n\n\n"
        f"class B:\n    def __init__(self):\n        self.device = {CHOSEN}\n"
        "        self.x = x.cuda()\n",
        f"class A:\n    def __init__(self):\n        self.device = {VALUE}\n\n"
        "    def f(self, x):\n        return x.to(self.device)\n\n\n"
        f"class B:\n    def __init__(self):\n        self.device = {VALUE}\n"
        "        self.x = x.to(self.device)\n",
    ),
    "not compared with itself": (
        f"device = {CHOSEN}\na = device.type == 'cuda'\nb = device.type != 'cuda'\n",
        f"device = {VALUE}\na = device.type != 'cpu'\nb = device.type == 'cpu'\n",
    ),
    "nor a name": (
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        "a = device.startswith('cuda')\nif 'cuda' == device:\n    pass\n",
        f"device = {TYPE}\na = device != 'cpu'\nif 'cpu' != device:\n    pass\n",
    ),
    "by two branches": (
        "if torch.cuda.is_available():\n    device = torch.device('cuda')\n"
        "else:\n    device = torch.device('cpu')\ny = x.cuda()\n",
        "if torch.accelerator.is_available():\n"
        "    device = torch.accelerator.current_accelerator()\n"
        "else:\n    device = torch.device('cpu')\ny = x.to(device)\n",
    ),
    "under the condition that chose it": (
        "on = not args.off and torch.cuda.is_available()\n"
        "device = torch.device('cuda' if on else 'cpu')\nif on:\n    m.cuda()\n",
        "on = not args.off and torch.accelerator.is_available()\n"
        "device = torch.device(torch.accelerator.current_accelerator().type if on else 'cpu')\n"
        "if on:\n    m.to(device)\n",
    ),
    "under the option that chose it": (
        "args = p()\ndevice = torch.device('cuda' if args.cuda else 'cpu')\n"
        "if args.cuda:\n    m.cuda()\n",
        f"{HELP}\nargs = p()\ndevice = torch.device(accelerator.type if args.cuda else 'cpu')\n"
        "if args.cuda:\n    m.to(device)\n",
    ),
    "what a conversion left": (
        f"device = {VALUE}\ny = x.cuda()\n",
        f"device = {VALUE}\ny = x.to(device)\n",
    ),
}  # fmt: skip
NOT_USED = {
    "set before it is used": f"y = x.cuda()\ndevice = {CHOSEN}\n",
    "called before it is set": f"def f(x):\n    return x.cuda()\n\n\ny = f(1)\ndevice = {CHOSEN}\n",
    "a parameter": f"device = {CHOSEN}\n\n\ndef f(x, device=None):\n    return x.cuda()\n",
    "bound twice": f"device = {CHOSEN}\ndevice = other\ny = x.cuda()\n",
    "made global": f"device = {CHOSEN}\n\n\ndef f(x):\n    global device\n    device = x\n\n\n"
    "y = x.cuda()\n",
    "with an index": "device = torch.device('cuda:1' if torch.cuda.is_available() else 'cpu')\n"
    "y = x.cuda()\n",
    "by another condition": "device = torch.device('cuda' if on else 'cpu')\ny = x.cuda()\n",
    "by an option that is set": "args.on = g()\n"
    "device = torch.device('cuda' if args.on else 'cpu')\nif args.on:\n    y = x.cuda()\n",
    "kept": f"device = {CHOSEN}  # causeway: keep\ny = x.cuda()\n",
    "in one branch": f"if a:\n    device = {CHOSEN}\ny = x.cuda()\n",
    "set by others too": f"class A:\n    def __init__(self):\n        self.device = {CHOSEN}\n\n"
    "    def cpu(self):\n        self.device = 'cpu'\n\n"
    "    def f(self, x):\n        return x.cuda()\n",
    "set from outside": f"class A:\n    def __init__(self):\n        self.device = {CHOSEN}\n\n"
    "    def f(self, x):\n        return x.cuda()\n\n\na.device = 'cpu'\n",
    "called in __init__ before": "class A:\n    def __init__(self):\n        self.f(1)\n"
    f"        self.device = {CHOSEN}\n\n    def f(self, x):\n        return x.cuda()\n",
    "called by the class above": "class A(Trainer):\n    def __init__(self):\n"
    f"        super().__init__()\n        self.device = {CHOSEN}\n\n"
    "    def f(self, x):\n        return x.cuda()\n",
    "of another object": f"class A:\n    def __init__(self):\n        self.device = {CHOSEN}\n\n\n"
    "def f(self, x):\n    return x.cuda()\n",
}  # fmt: skip
FOLDED = {
    "a name": ("d = 'cuda' if torch.cuda.is_available() else 'cpu'\n", "d = accelerator.type\n"),
    "asked the other way round": (
        "d = 'cpu' if not torch.cuda.is_available() else 'cuda'\n", "d = accelerator.type\n",
    ),
    "in parentheses": (
        "d = (\n    'cuda'\n    if torch.cuda.is_available()\n    else 'cpu'\n)  # d\n",
        "d = accelerator.type  # d\n",
    ),
    "a device": (f"f({CHOSEN})\n", "f(accelerator)\n"),
    "an argument": (
        "f('cuda' if torch.cuda.is_available() else 'cpu', 1)\n", "f(accelerator.type, 1)\n",
    ),
    "a comment stays": (
        "d = ('cuda'  # the GPU\n     if torch.cuda.is_available() else 'cpu')\n",
        "d = (accelerator.type  # the GPU\n     if torch.accelerator.is_available() else 'cpu')\n",
    ),
    "another default": (
        "d = 'cuda' if torch.cuda.is_available() else 'mps'\n",
        "d = accelerator.type if torch.accelerator.is_available() else 'mps'\n",
    ),
}  # fmt: skip
ASKED = "if torch.accelerator.is_available():\n"
GUARDED = {
    "in a row": (
        "torch.cuda.synchronize()\ntorch.cuda.empty_cache()\n",
        f"{ASKED}    torch.accelerator.synchronize()\n    torch.accelerator.empty_cache()\n",
    ),
    "three, with comments": (
        "# one\ntorch.cuda.synchronize()  # wait\n# two\n\n# too\ntorch.cuda.empty_cache()\n"
        "torch.cuda.reset_peak_memory_stats()\n# end\nf()\n",
        f"# one\n{ASKED}    torch.accelerator.synchronize()  # wait\n    # two\n\n    # too\n"
        "    torch.accelerator.empty_cache()\n    torch.accelerator.reset_peak_memory_stats()\n"
        "# end\nf()\n",
    ),
    "in a function": (
        "def f():\n\ttorch.cuda.synchronize()\n\ttorch.cuda.empty_cache()\n",
        f"def f():\n\t{ASKED}\t\ttorch.accelerator.synchronize()\n"
        "\t\ttorch.accelerator.empty_cache()\n",
    ),
    "with something between": (
        "torch.cuda.synchronize()\nf()\ntorch.cuda.empty_cache()\n",
        f"{ASKED}    torch.accelerator.synchronize()\nf()\n"
        f"{ASKED}    torch.accelerator.empty_cache()\n",
    ),
}


@pytest.mark.parametrize("case", USED)
def test_a_variable_that_holds_the_accelerator_is_used(case: str) -> None:
    before, after = USED[case]
    assert convert("import torch\n\n" + before) == "import torch\n\n" + after


@pytest.mark.parametrize("case", NOT_USED)
def test_a_variable_that_may_hold_something_else_is_not(case: str) -> None:
    assert "x.to(accelerator)" in convert("import torch\n\n" + NOT_USED[case])


@pytest.mark.parametrize("case", FOLDED)
def test_no_question_is_asked_whose_answer_the_variable_has(case: str) -> None:
    before, after = FOLDED[case]
    use, used = "y = x.cuda()\n", "y = x.to(accelerator)\n"
    assert convert(f"import torch\n\n{use}{before}") == f"import torch\n\n{HELP}\n{used}{after}"


@pytest.mark.parametrize("case", GUARDED)
def test_statements_in_a_row_get_one_condition(case: str) -> None:
    before, after = GUARDED[case]
    assert convert("import torch\n\n" + before) == "import torch\n\n" + after
