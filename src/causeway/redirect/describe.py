"""The page docs/transfer.md, from the table of targets."""

# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Iterator

from causeway.redirect.targets import SECTIONS, STAND_INS, Target

_TEXT = """\
# Running CUDA programs untouched

[中文](zh/transfer.md)

Written by `python -m causeway.redirect --markdown` from `src/causeway/redirect/targets.py`.

```sh
causeway run train.py --lr 0.1            # python train.py --lr 0.1, with CUDA redirected
causeway run -m torch.distributed.run --nproc_per_node 2 train.py
causeway run --target cpu train.py        # the same program on the CPU, as a reference
causeway run --report calls.json train.py # and what was redirected, with places
```

`causeway run` becomes Python: arguments, `sys.path`, exceptions and exit status are its own. The
processes that the program starts (torchrun, spawn, DataLoader workers) redirect too, and their
calls are in the one report; `causeway migrate --calls calls.json` says what becomes of each.

It is off by default, and `import causeway` never turns it on. There are four ways:

| way | for |
| --- | --- |
| `causeway run` | a program that may not be edited |
| `CAUSEWAY_TRANSFER=device` | a launcher that you do not start yourself; `cpu` is the other value |
| `from causeway.transfer import transfer_to_device`, or the statement `import causeway.transfer` | one line at the top of a program |
| `from causeway import transfer` and `transfer.enable()` | a part of a program: `with transfer.enable():` ends it |

`from causeway import transfer` gives the functions and turns on nothing. The statement
`import causeway.transfer` is the switch, as importing torch_npu's `transfer_to_npu` is, and
`from causeway.transfer import transfer_to_device` is that switch by a name that says so.

```python
import torch
from causeway import transfer

with transfer.enable():
    x = torch.ones(2).cuda()
    assert x.is_cuda and x.device == torch.device("cuda:0") and torch.cuda.is_available()
print(transfer.report())  # a table; .to_json() for programs
```

## One view

A program, and every library in site-packages, sees CUDA: `x.is_cuda`, `x.device.type == "cuda"`,
`x.device == torch.device("cuda:0")`, `x.type()`, `torch.cuda.is_available()` and the marks in saved
files ("cuda:0") agree. `torch.device` is not replaced: a device of CUDA's is a plain value of
torch's own type, and becomes the real device where it enters torch.

torch's own Python code is shown the real device, so that it takes the paths of the real device. The
module of the calling code decides which one is shown. `print(x)` tells the truth too.

Only arguments that are devices are rewritten: "cuda", "cuda:N", or a `torch.device` of that type,
in the argument that the table names. Paths, dictionary keys, `init_method` and data are not looked
at.

With target `cpu` there is one memory: tensors of the host and of the device cannot be told apart,
and a program is shown "cuda:0" for all of them.

## NVIDIA's tools

A program that asks `nvidia-smi` or `pynvml` gets the device's numbers, in the forms that it reads.
`torch.cuda.utilization()`, `temperature()`, `power_draw()` and `clock_rate()` are the device's too.

| asked | given | where the device does not say |
| --- | --- | --- |
| `nvidia-smi`, `-L`, `-q`, `-q -x`, `--query-gpu=name,memory.used --format=csv,noheader,nounits`, `-i`, `-l` | a table, lines, XML, CSV | `N/A`, `[N/A]` |
| `pynvml`: `nvmlInit`, `nvmlDeviceGetMemoryInfo`, `nvmlDeviceGetUtilizationRates` and the like | as NVML gives them | `NVMLError_NotSupported` |
| `torch.cuda.temperature()` and its like | as `torch.cuda` gives them | `VendorError` |

- One that is installed stays: the command is last on `PATH`. `nvidia-ml-py` without NVIDIA's
  library can only fail, so Causeway's module answers in its place.
- Devices are counted as the machine has them, whatever `CUDA_VISIBLE_DEVICES` says. `pynvml` refuses
  a hidden one with `NVMLError_NoPermission`, since a process reads its own devices alone.
- Which processes use a device is not known: no rows, and `NVMLError_NotSupported`.
- `nvidia-smi` is a process, and takes as long as `import torch`. Where the vendor does not count
  memory, it says `[N/A]`, and `pynvml` has what this process uses.
- `dmon`, `topo` and what sets something end with status 2.

## What to know

- Enabling is all or nothing, and `disable()` restores every symbol. It holds for all threads.
- Names that a program took before (`from torch.cuda import is_available`) are found and replaced: in
  modules, default arguments, closures, partials, attributes of classes and objects, and in lists and
  dicts of modules. Those in tuples and sets are listed: `transfer.report().unfixed`.
- A function of torch's C++ stays one to Python: a warning or an exception in it is filed under the
  program's line, as module filters of `warnings` need it.
- `torch.version.cuda` is "12.6". `torch.cuda.get_device_capability()` gives the vendor's numbers.
- `CUDA_VISIBLE_DEVICES` is read when devices are first counted, with CUDA's meaning.
- `"nccl"` becomes the device's own backend of torch.distributed, `cwcl`, which serves the host's
  tensors too. `dist.get_backend()` says "nccl".
- `torch.compile` sees the same view, and does what it does [without the switch](compile.md): it
  fuses where the vendor offers a compiler. Where none does, a warning says so.
- `torch.jit.script` and `torch.jit.load` give graphs with the target's devices: constants, `.cuda()`,
  `.is_cuda` and `.device.type` there. What was compiled while it was on keeps them.
- A `CUDAGraph` is [the device's](graphs.md) where the vendor offers a compiler. Elsewhere it records
  operators and calls them again: the same results, no gain.
- A torch that is built with CUDA is refused: its calls go to CUDA.

Not redirected: `torch.ops` called with a device; `torch.device(0)`, which torch takes for the
accelerator; inside `torch.jit.script`, `str(x.device)` and devices that come as arguments or are
returned; CUDA sources, Triton and libraries of compiled CUDA code. Keys of a table of
`__torch_function__` that were taken from torch while it is on are not those that torch hands over.

`python benchmarks/transfer.py` measures the cost against the same program written for the device:
1.0 for an operator, since operators are not replaced, and 1.1 to 1.2 for a training step of a tiny
network. It is 1.7 for a factory with a device, 4 for a function of `torch.cuda`, 8 for reading `x.device`.
"""


def markdown() -> str:
    """The whole page."""
    return "\n".join([_TEXT, *_tables()]) + "\n"


def _tables() -> Iterator[str]:
    yield "## What is replaced"
    yield ""
    yield "`torch.cuda.*` is the device's module: [what works there](device.md) works here, in every"
    yield "module that holds it. Besides:"
    for title, rows in SECTIONS.items():
        yield from ("", f"### {title}", "", "| name | argument | |", "| --- | --- | --- |")
        yield from map(_row, rows)
    yield from (
        "",
        "### Stand-ins",
        "",
        "NVIDIA's own, so that programs which call them go on.",
        "",
    )
    yield from ("| `torch.cuda.` | |", "| --- | --- |")
    for name, says in STAND_INS.items():
        if not name.rsplit(".", 1)[-1].startswith("_get"):
            yield f"| `{name}` | {says} |"


def _row(target: Target) -> str:
    takes = ("argument", "class", "loader", "scaler", "pin", "plain")
    argument = f"`{target.argument}`" if target.how in takes else ""
    return f"| `{target.name.removesuffix('.__init__')}` | {argument} | {target.says} |"
