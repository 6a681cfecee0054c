"""Each Python block of the documents that Causeway grew from runs as it is written.

Data and pretrained weights are replaced (stand_ins/), names that a document leaves open are given,
and where a document shows pieces, they are put together. The documents are no part of this
repository: without them these tests are skipped.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from causeway import compat

HERE = Path(__file__).parent
FOLDER = next(
    (p / "shared" / "seeds" for p in HERE.parents if (p / "shared" / "seeds").is_dir()), None
)
pytestmark = pytest.mark.skipif(FOLDER is None, reason="the documents are not here")


def document(number: int) -> str:
    assert FOLDER is not None
    return next(FOLDER.glob(f"{number:03}_*.txt")).read_text(encoding="utf-8")


def blocks(number: int) -> list[str]:
    found = re.findall(r"^ *```[^\n]*\n(.*?)^ *``` *$", document(number), re.S | re.M)
    return [textwrap.dedent(block) for block in found]


def block(number: int, part: str) -> str:
    """The one block of a document that has `part`, or the first."""
    return next(b for b in blocks(number) if part in b)


@pytest.fixture
def run(run_python, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def go(program: str, system: str, **variables: str) -> str:
        done = run_python(
            program, new=True, timeout=300, CAUSEWAY_COMPAT=system,
            PYTHONPATH=f"{HERE / 'stand_ins'}:{compat.first(system)}", **variables,
        )  # fmt: skip
        return str(done.stdout + done.stderr)

    return go


# --- Ascend ---------------------------------------------------------------------------------------


def test_ascend_the_package_is_imported(run):
    program = "import torch\n" + block(0, "import torch_npu")
    run(program + "print(torch_npu.npu.device_count())\n", "npu")


def test_ascend_what_is_written_in_place_of_cuda_runs(run):
    pairs = re.findall(r"^ *(\S.*?) *=> *(.*)$", document(0), re.M)
    assert len(pairs) >= 6
    lines = [new for _, new in pairs if "xxx" not in new]
    program = "import torch, torch_npu\ntensor = torch.ones(2)\n" + "\n".join(lines)
    run(program + "\nassert tensor.to('npu:0').device.type == 'npu'\n", "npu")
    # And what was written before, by the switch.
    lines = [old for old, _ in pairs if "xxx" not in old]
    switch = block(0, "transfer_to_npu")
    program = f"import torch\n{switch}\ntensor = torch.ones(2)\n" + "\n".join(lines)
    run(program + "\nassert torch.ones(1).cuda().is_npu\n", "npu")


def test_ascend_processes_are_joined_by_hccl(run):
    line = block(0, "backend='hccl'").strip().splitlines()[-1]
    assert "world_size=8" in line
    program = (
        "import torch, torch_npu\nimport torch.distributed as dist\nrank = 0\n"
        + line.replace("world_size=8", "world_size=1").replace("29688", "0")
    )
    run(program + "\nassert dist.get_backend() == 'hccl', dist.get_backend()\n", "npu")


def test_ascend_mixed_precision_in_both_ways(run):
    text = block(0, "torch.cuda.amp.GradScaler")
    first, second = text.split("# 方式二")
    program = f"""
import torch
{block(0, "transfer_to_npu")}
def make_model(a, b, n):
    inner = [torch.nn.Linear(a, a) for _ in range(n)]
    return torch.nn.Sequential(*inner, torch.nn.Linear(a, b)).cuda()
in_size, out_size, num_layers, epochs, anabled_use_amp = 8, 4, 2, 2, 65536.0
data = torch.randn(3, 16, in_size).cuda()
targets = torch.randn(3, 16, out_size).cuda()
loss_fn = torch.nn.MSELoss()
{first}
assert output.dtype == torch.float16 and output.device.type == "cuda"
from apex import amp
D_in, D_out = 8, 4
"""
    second = "# " + second.replace("optimzier =", "optimizer =")  # as the next lines call it
    second = second.replace("...\n", "loss = model(data[0]).float().square().mean()\n", 1)
    run(program + textwrap.dedent(second) + "\noptimizer.step()\n", "npu")


def test_ascend_a_device_is_chosen(run):
    line = block(0, "ASCEND_RT_VISIBLE_DEVICES")
    name, value = re.search(r"export (\w+)=(\S+)", line).groups()
    program = "import torch, torch_npu\nprint(torch.npu.device_count())\n"
    assert run(program, "npu", CAUSEWAY_SIM_DEVICES="4", **{name: value}).strip() == "4"
    assert run(program, "npu", CAUSEWAY_SIM_DEVICES="4", **{name: "2,0"}).strip() == "2"


# --- Cambricon ------------------------------------------------------------------------------------


def test_cambricon_the_whole_inference_program(run):
    assert "tensor([[" in run(block(2, 'ct.set_core_version("MLU270")'), "mlu")


def test_cambricon_inference_in_pieces(run):
    settings = "from types import SimpleNamespace\nargs = SimpleNamespace(core_number=1, mcore='MLU270', input_format=0)\n"  # noqa: E501
    program = [
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F",
        block(2, "import torchvision.models as models"),
        settings + block(2, "args.core_number"),
        "torch.set_grad_enabled(False)",
        block(2, "class Net(nn.Module)"),
        "net = Net().eval()\ninput_data = torch.rand(1, 1, 28, 28)",
        block(2, "output=net(input_data)"),
        block(2, "gen_quant=True"),
        block(2, "# step 1"),
        "assert output.device.type == 'mlu'",
    ]
    assert "tensor([[" in run("\n".join(program), "mlu")


def test_cambricon_training(run):
    net = next(b for b in blocks(2) if b.startswith("class Net") and "def forward" not in b)
    forward = next(b for b in blocks(2) if b.startswith("def forward"))
    lines = "\n".join(line.replace("  ", "    ", 1) for line in forward.splitlines())
    program = [
        "import torch\ntorch.manual_seed(0)  # the page's program sets none",
        block(2, "ct.set_cnml_enabled(False)"),
        net + textwrap.indent(lines, "    "),
        block(2, "data_tf = transforms.Compose"),
        block(2, "adaptive_quantize"),
        block(2, "nums_epoch = 10").replace("nums_epoch = 10", "nums_epoch = 2"),
        "for epoch in range(nums_epoch):\n    train(net, train_data, optimizer, epoch)\n"
        "    validate(test_data, net)\n" + textwrap.indent(block(2, "checkpoint = {"), "    "),
        "assert set(torch.load('model.pth')) == {'state_dict', 'optimizer', 'epoch'}",
    ]
    printed = run("\n".join(program), "mlu")
    losses = [float(x) for x in re.findall(r"Loss: ([0-9.]+)", printed)]
    assert len(losses) == 2, printed
    assert losses[1] < losses[0]
    assert "Accuracy" in printed


# --- DIPU -----------------------------------------------------------------------------------------


def test_dipu_operators_are_sent_to_the_cpu(run):
    lists = re.findall(r"DIPU_FORCE_FALLBACK_OPS_LIST=(\S+)", document(3))
    assert len(lists) == 3
    program = """
import torch, torch_dipu, causeway
with causeway.ledger() as seen:
    x = torch.ones(1, 1, 4, 4).cuda()
    y = x + x
    z = (x + 1).fill_(2)
    w = torch.nn.functional.conv2d(x, x)
print("host:", sorted({r.operator for r in seen.rows if r.rung == "host"}))
"""
    for text in lists:
        printed = run(
            program, "dipu", DIPU_FORCE_FALLBACK_OPS_LIST=text.strip("'"), CAUSEWAY_SIM_OPS="all"
        )
        host = printed.rpartition("host:")[2]
        if text.startswith("add.out"):
            assert "aten::add.Tensor" in host, printed
            assert "aten::convolution" in host, printed
            assert "aten::fill_" not in host, printed
        elif "Scalar" in text:
            assert "aten::fill_.Scalar" in host, printed
            assert "aten::convolution" not in host, printed
        else:
            assert "aten::convolution" in host, printed
            assert "aten::add.Tensor" in host, printed


def statements(part: str) -> str:
    """The `>>>` lines of a block."""
    return "\n".join(re.findall(r"^>>> ?(.*)$", block(3, part), re.M))


def test_dipu_operators_are_compared_with_the_cpu(run):
    printed = run(statements("autocompare:    add.out out"), "dipu", DIPU_AUTOCOMPARE_OPS_LIST=".*")
    assert printed.count("add.Tensor") == 2, printed
    assert "0 wrong" in printed, printed


def test_dipu_arguments_of_operators_are_printed(run):
    printed = run(statements("DIPU_DUMP_OP_ARGS"), "dipu")
    first, _, second = printed.partition("other: 3")
    assert first.count("aten::add.Tensor") == 2, printed
    assert "self: float32[3, 4]" in first, printed
    assert second, printed


# --- MindTorch ------------------------------------------------------------------------------------


def between(start: str, end: str) -> str:
    text = document(4)
    found = text[text.index(start) :]
    return textwrap.dedent(found[: found.index(end)])


def test_mindtorch_data(run):
    program = between("from mindtorch.tools import mstorch_enable", "TorchVision接口支持:")
    program = program.replace(
        "from torchvision import datasets", "from torchvision.transforms import InterpolationMode\nfrom torchvision import datasets", 1  # noqa: E501
    )  # fmt: skip
    run(f"{program}\nif __name__ == '__main__':\n    image, label = next(iter(train_data))\n"
        "    assert image.shape == (128, 3, 224, 224)\n", "mindtorch")  # fmt: skip


def test_mindtorch_a_module(run):
    program = between("from mindtorch.torch.nn import Module", "自定义Module写法")
    run(f"{program}\nimport torch\nassert MLP()(torch.ones(2, 32, 32)).shape == (2, 10)\n"
        "import mindtorch.torch.utils.data, mindtorch.torch as other\nassert other is torch\n",
        "mindtorch")  # fmt: skip


def test_mindtorch_a_backward_of_its_own(run):
    torchs = between("from torch.cuda.amp import custom_fwd", "MindTorch写法:")
    minds = between("import mindtorch.torch as torch", "上述两种写法")
    program = f"""
import torch
from mindtorch.tools import mstorch_enable
a = torch.randn(3, 4, device="cuda", requires_grad=True)
b = torch.randn(4, 5, device="cuda", requires_grad=True)
{torchs.replace("CustomNet.apply(input)", "CustomNet.apply(a, b)")}
output.sum().backward()
wanted = output.detach().cpu(), a.grad.cpu(), b.grad.cpu()
a.grad = b.grad = None
{minds.replace("custom_net(input)", "custom_net(a, b)")}
output.float().sum().backward()
for one, other in zip(wanted, (output.detach().cpu(), a.grad.cpu(), b.grad.cpu())):
    torch.testing.assert_close(other.float(), one, rtol=2e-2, atol=2e-2)
"""
    run(program, "mindtorch")


def test_mindtorch_a_custom_function_in_both_forms(run):
    text = document(4)
    torchs = text[text.index("class GdnFunction(Function)") : text.index("# MindTorch 写法")]
    minds = text[text.index("class GdnFunction(nn.Module)") : text.index("2.2 inplace")]
    # What the document leaves out: y = x * gamma + beta.
    fill = {"y": "x * gamma + beta", "grad": "(grad_output * gamma, grad_output * x, grad_output)"}
    program = "import torch\nfrom torch import nn\nfrom torch.autograd import Function\n"
    for name, code in (("old", torchs), ("new", minds)):
        code = code.replace("...\n        return y", f"return {fill['y']}")
        code = code.replace(
            "...\n        return grad_input, grad_gamma, grad_beta", f"return {fill['grad']}"
        )
        program += (
            f"{code.replace('ctx.saved_variables', 'ctx.saved_tensors')}\n{name} = GdnFunction\n"
        )
    program += """
def grads(f):
    x, gamma, beta = (torch.arange(3.0).add(i).requires_grad_() for i in range(3))
    f(x, gamma, beta).square().sum().backward()
    return x.grad, gamma.grad, beta.grad
for a, b in zip(grads(old.apply), grads(new())):
    assert torch.equal(a, b), (a, b)
"""
    run(program, "mindtorch")


def test_mindtorch_the_hardware_is_chosen(run):
    lines = re.findall(r"^(?:import mindspore as ms|ms\.set_context\(.*?\))", document(4), re.M)
    assert len(lines) == 3
    program = "import torch\nfrom mindtorch.tools import mstorch_enable\n" + "\n".join(lines)
    run(
        program + "\nassert torch.ones(1).device.index == 1\n",
        "mindtorch",
        CAUSEWAY_SIM_DEVICES="2",
    )


def test_mindtorch_gradients_by_functions(run):
    assert "ms.ops.value_and_grad" in document(4)
    assert "ms.ops.clip_by_global_norm" in document(4)
    run("""
import torch
import mindspore as ms
w = torch.ones(3, requires_grad=True)
both = ms.ops.value_and_grad(lambda x: ((w * x).sum(), x), None, [w], has_aux=True)
value, grad = both(torch.arange(3.0))
assert float(value[0]) == 3 and torch.equal(grad[0], torch.arange(3.0)), (value, grad)
(clipped,) = ms.ops.clip_by_global_norm(grad, 1.0)
assert abs(float(clipped.norm()) - 1) < 1e-6
""", "mindtorch")  # fmt: skip
