"""Hints on precision (CW70x) and speed (CW75x) that hold on any accelerator, as data.

A hint looks for calls, by the qualified name or by the name of a method, or for a dotted name that
is used. `inside` asks for a loop around it, `without` for keywords that are not given, `needs` for
a text that the module has, `unless` for one that it has not, `once` for the first of a module. What
cannot be said so has a function in `looks.py` by the hint's code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from causeway.migrate.finding import Category
from causeway.migrate.rule import Rule

_FACTORIES = (
    "torch.zeros", "torch.ones", "torch.empty", "torch.full", "torch.rand", "torch.randn",
    "torch.randint", "torch.arange", "torch.linspace", "torch.eye", "torch.randperm",
)  # fmt: skip
_LOOP = "import torch\n\nfor x in loader:\n    loss = model(x)\n    loss.backward()\n"


@dataclass(frozen=True)
class Hint:
    """What to look for; `rule` says what to know."""

    rule: Rule
    category: Category
    message: str
    calls: tuple[str, ...] = ()  # qualified names
    methods: tuple[str, ...] = ()  # attributes of what has no qualified name
    names: tuple[str, ...] = ()  # qualified names, called or not
    inside: Literal["", "loop", "training"] = ""  # training: a loop that calls backward()
    without: tuple[str, ...] = ()
    needs: str = ""
    unless: str = ""
    once: bool = False

    def looked_for(self) -> list[str]:
        """The last parts of all names, for a search in the text."""
        return [n.rpartition(".")[2] for n in (*self.calls, *self.methods, *self.names)]


def _hint(
    code: str, name: str, title: str, why: str, tip: str, example: str, message: str, **look: object
) -> Hint:
    category: Category = "precision" if code < "CW750" else "performance"
    rule = Rule(
        code=code, name=name, title=title, why=why, by_hand=tip, before=example, after=example,
        severity="info",
    )  # fmt: skip
    return Hint(rule, category, message, **look)  # type: ignore[arg-type]


HINTS: tuple[Hint, ...] = (
    _hint(
        "CW701",
        "float64",
        "Numbers of 64 bits",
        "Most accelerators compute float64 slowly or not at all; the host does.",
        "float32 is enough for most of training. Keep float64 for what needs it (long sums, "
        "solvers), and on the host: `x.cpu().double()`.",
        "import torch\n\nx = torch.zeros(3, dtype=torch.float64)\n",
        "float64 is slow or missing on most accelerators",
        names=("torch.float64", "torch.double", "torch.complex128", "torch.cdouble"),
        methods=("double",),
        calls=("torch.DoubleTensor",),
    ),
    _hint(
        "CW702",
        "matmul-precision",
        "float32 products with less than 32 bits",
        "high and medium allow shorter formats inside of products of matrices; each device has "
        "its own, and some have none.",
        "Compare with `highest` once on the new device before results are trusted.",
        'import torch\n\ntorch.set_float32_matmul_precision("high")\n',
        "products of float32 may be computed with fewer bits, differently on each device",
        calls=("torch.set_float32_matmul_precision",),
    ),
    _hint(
        "CW703",
        "half-without-scaler",
        "float16 without a scaler",
        "Gradients below 6e-8 become 0 in float16. CUDA's do too; devices differ in whether they "
        "keep subnormal numbers at all, so what trained there may not train here.",
        "torch.amp.GradScaler around the step, or torch.bfloat16, which has float32's range.",
        "import torch\n\nmodel = torch.nn.Linear(2, 2).half()\nmodel(x).backward()\n",
        "gradients in float16 with nothing that scales them",
        methods=("half",),
        names=("torch.float16", "torch.half"),
        needs=r"\.backward\(",
        unless=r"GradScaler|loss_scale|scale_loss|apex|deepspeed|no_grad|inference_mode",
        once=True,
    ),
    _hint(
        "CW704",
        "tight-tolerance",
        "A comparison that allows next to no difference",
        "Sums are taken in another order on each device: float32 differs by about 1e-6 of the "
        "size of its terms, more for long sums.",
        "torch.testing.assert_close with its own tolerances for the dtype; rtol=1e-5 at least for "
        "float32, 1e-3 for float16, 1.6e-2 for bfloat16.",
        "import torch\n\ntorch.allclose(a, b, atol=1e-9)\n",
        "two devices do not agree this closely",
        calls=("torch.allclose", "torch.isclose", "torch.testing.assert_close"),
    ),
    _hint(
        "CW705",
        "seed",
        "Random numbers from a seed",
        "The same seed gives other numbers on another device: each has a generator of its own.",
        "To compare two devices draw on the host and move: "
        "`torch.randn(n, generator=g).to(device)` with g of the CPU. Weights "
        "are drawn where the module is built.",
        "import torch\n\ntorch.manual_seed(0)\n",
        "a seed gives other numbers on each device",
        calls=(
            "torch.manual_seed",
            "torch.cuda.manual_seed",
            "torch.cuda.manual_seed_all",
            "torch.random.manual_seed",
        ),
        once=True,
    ),
    _hint(
        "CW706",
        "unordered-sum",
        "Sums in no certain order",
        "scatter_add, index_add and their like add with atomic operations on most accelerators: "
        "the last bits differ from run to run.",
        "torch.use_deterministic_algorithms(True) asks for an order where the device has one, and "
        "raises where not.",
        "import torch\n\nx.index_add_(0, index, y)\n",
        "adds in no certain order on most accelerators",
        methods=("scatter_add_", "scatter_add", "index_add_", "index_add", "index_put_", "put_"),
        calls=("torch.bincount", "torch.histc", "torch.scatter_add", "torch.index_add"),
    ),
    _hint(
        "CW707",
        "tiny-epsilon",
        "An epsilon that float16 does not have",
        "The smallest number of float16 is 6e-8 (6e-5 where a device drops subnormal ones): a "
        "smaller epsilon is 0, and a division by it gives inf.",
        "1e-4 for float16, or compute the place in float32.",
        "import torch\n\nx = x.half()\ny = torch.nn.functional.normalize(x, eps=1e-12)\n",
        "this epsilon is 0 in float16",
    ),
    _hint(
        "CW751",
        "item-in-loop",
        "A value is read in each step",
        "item(), tolist() and numpy() wait for all work that is queued; the device then waits for "
        "the host to queue more.",
        "Add up on the device (`total += loss.detach()`), and read it every so many steps.",
        _LOOP + "    total += loss.item()\n",
        "waits for the device in each step",
        methods=("item", "tolist", "numpy"),
        inside="training",
    ),
    _hint(
        "CW752",
        "empty-cache-in-loop",
        "The cache is emptied in a loop",
        "empty_cache() waits for the device and gives memory back that the next step asks for "
        "again; it does not make more of it.",
        "Take it out of the loop; for fragmentation set PYTORCH_ALLOC_CONF.",
        "import torch\n\nfor x in y:\n    torch.accelerator.empty_cache()\n",
        "waits for the device and throws memory away that is needed again",
        calls=("torch.cuda.empty_cache", "torch.accelerator.empty_cache"),
        inside="loop",
    ),
    _hint(
        "CW753",
        "synchronize-in-loop",
        "A wait for the device in a loop",
        "Work is queued ahead of the device; a synchronize() in each step lets it run dry.",
        "Measure over many steps, with events: torch.Event(enable_timing=True).",
        "import torch\n\nfor x in y:\n    torch.accelerator.synchronize()\n",
        "waits for the device in each step",
        calls=("torch.cuda.synchronize", "torch.accelerator.synchronize"),
        inside="loop",
    ),
    _hint(
        "CW754",
        "loader-workers",
        "A DataLoader without workers",
        "The main process reads and prepares each batch while the device waits.",
        "num_workers=4 or so, with persistent_workers=True.",
        "import torch\n\nloader = torch.utils.data.DataLoader(data, 32, pin_memory=True)\n",
        "batches are made in the main process",
        calls=("torch.utils.data.DataLoader",),
        without=("num_workers",),
    ),
    _hint(
        "CW755",
        "loader-pin-memory",
        "A DataLoader without pinned memory",
        "Copies from ordinary memory cannot overlap with the device's work.",
        "pin_memory=True, and `.to(device, non_blocking=True)` for the batch. Without an "
        "accelerator it only warns.",
        "import torch\n\nloader = torch.utils.data.DataLoader(data, 32, num_workers=4)\n",
        "copies of its batches hold up the host",
        calls=("torch.utils.data.DataLoader",),
        without=("pin_memory",),
    ),
    _hint(
        "CW756",
        "loader-last-batch",
        "A last batch of another size",
        "A smaller last batch is another shape: compilers compile again for it, and kernels are "
        "chosen again.",
        "drop_last=True for training.",
        "import torch\n\nloader = torch.utils.data.DataLoader(d, 32, shuffle=True, num_workers=4, "
        "pin_memory=True)\n",
        "its last batch has another shape",
        calls=("torch.utils.data.DataLoader",),
        without=("drop_last",),
    ),
    _hint(
        "CW757",
        "optimizer-fused",
        "An optimizer with a kernel for each parameter",
        "fused=True updates all parameters in a few kernels; it is not the default on most "
        "accelerators.",
        "fused=True; torch raises where the device does not have it.",
        "import torch\n\noptimizer = torch.optim.AdamW(model.parameters())\n",
        "updates parameters one list after the other",
        calls=(
            "torch.optim.Adam",
            "torch.optim.AdamW",
            "torch.optim.SGD",
            "torch.optim.Adagrad",
        ),
        without=("fused", "foreach"),
        unless=r"zero_stage|deepspeed",
    ),
    _hint(
        "CW758",
        "data-dependent-shape",
        "A shape that depends on values",
        "The size of nonzero(), unique(), masked_select() and x[mask] is only known when they are "
        "done: the host waits, and a compiler breaks its graph or compiles again.",
        "torch.where(mask, x, 0) keeps the shape; topk() with a fixed number; "
        "nonzero_static(size=).",
        "import torch\n\nindex = torch.nonzero(x)\n",
        "the host waits to learn its size",
        calls=("torch.nonzero", "torch.unique", "torch.masked_select", "torch.argwhere"),
        methods=("nonzero", "masked_select", "unique"),
    ),
    _hint(
        "CW759",
        "channels-last",
        "Convolutions in the layout of channels first",
        "The convolutions of most accelerators work on channels last, and copy what comes "
        "otherwise.",
        "`model.to(memory_format=torch.channels_last)` and the same for the batch; measure, it "
        "pays with float16 and bfloat16 most.",
        "import torch\n\nlayer = torch.nn.Conv2d(3, 8, 3)\n",
        "convolutions may be copied to another layout and back",
        calls=("torch.nn.Conv2d", "torch.nn.Conv3d"),
        unless=r"channels_last",
        once=True,
    ),
    _hint(
        "CW760",
        "made-on-the-host",
        "A tensor that is made on the host and moved",
        "It is filled by the host and copied; the device fills it faster.",
        "Give the device to the function: torch.zeros(n, device=device). Random numbers become "
        "other ones by that.",
        "import torch\n\nx = torch.zeros(3).to(device)\n",
        "filled on the host and copied",
        calls=_FACTORIES,
    ),
    _hint(
        "CW761",
        "debugging-left-on",
        "Checks for debugging are on",
        "Anomaly detection keeps a traceback for each operator and waits for the device.",
        "Switch it on where something is searched for only.",
        "import torch\n\ntorch.autograd.set_detect_anomaly(True)\n",
        "makes every operator slower",
        calls=("torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly"),
    ),
    _hint(
        "CW762",
        "eval-with-gradients",
        "Evaluation that keeps what gradients need",
        "eval() changes dropout and norms only: activations are still kept for a backward().",
        "with torch.inference_mode(): around what is evaluated.",
        "import torch\n\nmodel.eval()\ny = model(x)\n",
        "activations are kept for gradients",
        methods=("eval",),
        unless=r"no_grad|inference_mode|set_grad_enabled",
        once=True,
    ),
    _hint(
        "CW763",
        "gradients-kept",
        "Gradients are set to zero",
        "set_to_none=False writes zeros and adds to them, where None costs nothing.",
        "zero_grad() with its default.",
        "import torch\n\noptimizer.zero_grad(set_to_none=False)\n",
        "writes all gradients once more in each step",
    ),
    _hint(
        "CW764",
        "blocking-copy",
        "A copy that waits, in a loop",
        "The host waits for the copy, also out of pinned memory.",
        "`.to(device, non_blocking=True)`, with pin_memory=True in the DataLoader.",
        "import torch\n\nfor x in loader:\n    model(x.to(device)).backward()\n",
        "the host waits for the copy in each step",
    ),
    _hint(
        "CW765",
        "compiled-by-inductor",
        "torch.compile with its default backend",
        "Inductor generates code for devices that have a code generator, and fails with a KeyError "
        "of the device's name where one has none.",
        'backend="aot_eager" compiles for every device, without fusing; or leave it out there.',
        "import torch\n\nmodel = torch.compile(model)\n",
        "Inductor needs a code generator for the device",
        calls=("torch.compile",),
        without=("backend",),
    ),
)

RULES: dict[str, Rule] = {hint.rule.code: hint.rule for hint in HINTS}
# item() and its like are looked for in loops of training only, which call backward().
_WORDS = {word for hint in HINTS for word in hint.looked_for()} - {"item", "tolist", "numpy"}
_WORDS |= {"backward", "zero_grad"}
_CONCERNS = re.compile(rb"\b(?:%s)\b" % b"|".join(word.encode() for word in sorted(_WORDS)))


def concerns(data: bytes) -> bool:
    """Whether a module may have something to hint at; quick, and true a little too often."""
    return b"torch" in data and _CONCERNS.search(data) is not None
