"""torchao's quantized models compute on the device with our kernels, and have the CPU's numbers.

It lies beside the environment (`make test-libraries`): peft and transformers look whether it is
there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[2] / "build" / "torchao"
pytestmark = [
    pytest.mark.once,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (PACKAGES / "torchao").exists(),
        reason="torchao is not there: `make test-libraries` gets it",
    ),
]

BEGIN = f"""
import copy, sys, warnings
warnings.simplefilter("ignore")
sys.path.append({str(PACKAGES)!r})
import torch
import causeway
from torch import nn
from torchao.quantization import (
    Float8WeightOnlyConfig, Int4WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup,
    quantize_,
)
from torchao.quantization.quant_primitives import MappingType

device = torch.device(torch.accelerator.current_accelerator().type, 0)
torch.set_grad_enabled(False)

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 96), nn.ReLU(), nn.Linear(96, 10)).eval()

def by_operator(model, *given):
    with causeway.ledger() as ledger:
        out = model(*given).cpu()
    assert not [r for r in ledger.rows if r.rung == "host"], ledger.rows
    return out, [r.operator for r in ledger.rows for _ in range(r.calls)]
"""

# Within rounding of sums in another order; of dynamic activations the same bits.
CONFIGURATIONS = (
    BEGIN
    + """
x = torch.randn(5, 128, generator=torch.Generator().manual_seed(1))
CASES = {
    "int8": Int8WeightOnlyConfig(),
    "int8 in groups": Int8WeightOnlyConfig(granularity=PerGroup(32)),
    "float8": Float8WeightOnlyConfig(),
    "int4 in bytes": IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
    "int4 with zero points": IntxWeightOnlyConfig(torch.int4, PerGroup(32), MappingType.ASYMMETRIC),
    "dynamic": Int8DynamicActivationInt8WeightConfig(),
}
for name, config in CASES.items():
    on_cpu = make()
    quantize_(on_cpu, config)
    expected = on_cpu(x)
    there = make().to(device)
    quantize_(there, config)
    wanted = "causeway::qlinear" if name == "dynamic" else "causeway::qlinear_weight"
    for model in (on_cpu.to(device), there):  # moved, and quantized on the device
        got, operators = by_operator(model, x.to(device))
        assert operators.count(wanted) == 2, (name, operators)
        assert not {"aten::mm", "aten::addmm"} & set(operators), (name, operators)
        torch.testing.assert_close(got, expected, rtol=2e-6, atol=0 if name == "dynamic" else 5e-7)
        if name == "dynamic":
            assert torch.equal(got, expected)
    bytes_ = sum(t.numel() * t.element_size() for t in on_cpu.state_dict().values())
    print(name, bytes_)
"""
)


def test_its_configurations_have_the_numbers_of_the_cpu(run_python) -> None:
    said = run_python(CONFIGURATIONS, timeout=280, CAUSEWAY_SIM_CODE="1").stdout.splitlines()
    assert len(said) == 6, said


# torchao packs 4 bits for CUDA and others alone: its unpacked form on the CPU is compared.
INT4 = (
    BEGIN
    + """
import causeway.integrations.torchao as ours

def unpacked(weight):
    # By its documentation: pairs of columns in a byte, w = q * scale + zero.
    if type(weight).__name__ == "Int4Tensor":
        q = weight.qdata.cpu().view(torch.uint8).int()
        q = torch.stack([q & 15, q >> 4], -1).flatten(1)
        q = torch.where(q > 7, q - 16, q).view(q.shape[0], -1, 32).float()
        scale, zero = (t.cpu().float().t().unsqueeze(-1) for t in (weight.scale, weight.zero_point))
        return (q * scale + zero).flatten(1)
    q = weight.qdata.cpu().int().view(weight.shape[0], -1, 16)
    q = torch.cat([q & 15, q >> 4], -1).float()
    scale, zero = (t.cpu().float().t().unsqueeze(-1) for t in (weight.scale, weight.zero_point))
    return ((q - zero) * scale).flatten(1)

def worst(dtype, packing):
    net = make().to(device, dtype)
    quantize_(net, Int4WeightOnlyConfig(32, int4_packing_format=packing))
    x = torch.randn(5, 128, generator=torch.Generator().manual_seed(1)).to(dtype)
    got, operators = by_operator(net, x.to(device))
    assert operators.count("causeway::qlinear_weight") == 2, operators
    assert net[0].weight.qdata.numel() == 96 * 64  # half a byte each
    layers = [(unpacked(net[i].weight), net[i].bias.cpu().float()) for i in (0, 2)]
    off = (layers[0][0] - make()[0].weight).abs().max() / net[0].weight.scale.float().max().cpu()
    assert off < (0.51 if dtype is torch.float32 else 0.6), off
    hidden = torch.relu((x.float() @ layers[0][0].t() + layers[0][1]).to(dtype).float())
    expected = hidden.to(dtype).float() @ layers[1][0].t() + layers[1][1]
    return float((got.float() - expected).abs().max())

for packing in ("plain", "plain_int32"):
    assert worst(torch.float32, packing) < 1e-5
    assert worst(torch.bfloat16, packing) < 1e-2

intx = make()
quantize_(intx, IntxWeightOnlyConfig(torch.int4, PerGroup(32), MappingType.ASYMMETRIC))
x = torch.randn(5, 128)
plain = make().to(device)
quantize_(plain, Int4WeightOnlyConfig(32, int4_packing_format="plain_int32"))
torch.testing.assert_close(plain(x.to(device)).cpu(), intx(x), rtol=1e-5, atol=1e-5)

# Planted: each must be seen by what was compared above.
weight = torch.ops.causeway.qlinear_weight
def planted(change):
    def linear(x, q, scale, zero, group, bits):
        return weight(*change(x, q, scale, zero), group, bits)
    class Operators:
        qlinear_weight = staticmethod(linear)
    class Torch:
        def __getattr__(self, name):
            return getattr(torch, name)
        class ops:
            causeway = Operators
    ours.torch = Torch()
    try:
        return worst(torch.float32, "plain")
    finally:
        ours.torch = torch

def turned(q):
    q = q.cpu().view(torch.uint8)
    return ((q << 4) | (q >> 4)).view(torch.int8).to(device)

faults = {
    "order of halves": lambda x, q, s, z: (x, turned(q), s, z),
    "group": lambda x, q, s, z: (x, q, s.roll(1, 1), z),
    "channel": lambda x, q, s, z: (x, q, s.roll(1, 0), z),
    "zero point": lambda x, q, s, z: (x, q, s, z + 1),
}
for name, change in faults.items():
    assert planted(change) > 1e-3, name
print("found", len(faults))
try:
    quantize_(make().to(device), Int4WeightOnlyConfig(16))
except ValueError as error:
    print(error)
"""
)


def test_its_int4_is_packed_and_read_packed(run_python) -> None:
    said = run_python(INT4, timeout=280, CAUSEWAY_SIM_CODE="1").stdout
    assert "found 4" in said
    assert "groups of a multiple of 32 columns" in said


# torchao's check asks for CUDA's or XPU's chips; its product on the CPU is torch's _scaled_mm.
FLOAT8 = (
    BEGIN
    + """
from torchao.quantization import Float8DynamicActivationFloat8WeightConfig as Config
from torchao.quantization import PerRow, PerTensor
import causeway.integrations.torchao as ours

x = torch.randn(2, 5, 128, generator=torch.Generator().manual_seed(1))
x[0, 0] *= 100  # rows of unlike size
# Else Inductor keeps in float32 a scale that is bfloat16 in eager mode.
torch._inductor.config.emulate_precision_casts = True
def layer(place, dtype, how):
    torch.manual_seed(0)
    net = nn.Linear(128, 96).to(place, dtype).eval()
    quantize_(net, Config(granularity=how))
    assert type(net.weight).__name__ == "Float8Tensor"
    return net

def off(got, expected):
    return float(((got - expected).float().norm(dim=-1) / expected.float().norm(dim=-1)).max())

kinds = ((torch.float32, PerTensor(), 1e-6), (torch.bfloat16, PerTensor(), 3e-3),
         (torch.bfloat16, PerRow(), 3e-3))
for dtype, how, near in kinds:
    here, y = layer("cpu", dtype, how), x.to(dtype)
    expected = here(y)
    for net in (layer(device, dtype, how), here.to(device)):  # quantized on the device, and moved
        got, operators = by_operator(net, y.to(device))
        assert operators.count("causeway::qlinear_weight") == 1, operators
        assert got.dtype == dtype
        assert off(got, expected) < near, off(got, expected)
        compiled = torch.compile(net)(y.to(device)).cpu()
        assert off(compiled, expected) < near, off(compiled, expected)
        torch._dynamo.reset()
    for name, change in {  # planted
        "floor": lambda t: (t * 16).floor() / 16,
        "not rounded": lambda t: t,
    }.items():
        right, ours.round_to_e4m3 = ours.round_to_e4m3, change
        assert off(net(y.to(device)).cpu(), expected) > 2 * near, name
        ours.round_to_e4m3 = right
    print("float8", dtype)
"""
)


def test_float8_activations_have_the_numbers_of_the_cpu(run_python) -> None:
    said = run_python(FLOAT8, timeout=280, CAUSEWAY_SIM_CODE="1").stdout
    assert said.count("float8") == 3


SHIPPED = (
    BEGIN
    + """
import os
import numpy

x = torch.randn(3, 512)
folder = sys.argv[1]
numpy.save(f"{folder}/x.npy", x.numpy())
for name, config, most in (
    ("int4", Int4WeightOnlyConfig(64), 0.32),
    ("int8", Int8WeightOnlyConfig(), 0.45),
    ("float8", Float8WeightOnlyConfig(), 0.45),
):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).to(device)
    floats = sum(p.numel() * 4 for p in net.parameters())
    quantize_(net, config)
    eager = net(x.to(device)).cpu()
    compiled = torch.compile(net)(x.to(device)).cpu()
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-5)
    torch._dynamo.reset()
    path = f"{folder}/{name}.cw"
    causeway.export(net, (x.to(device),), path)
    assert os.path.getsize(path) < most * floats, (name, os.path.getsize(path), floats)
    numpy.save(f"{folder}/{name}.npy", eager.numpy())
    print(name)
"""
)

# Without torch.
RUN = """
import sys
import causeway_run, numpy

folder = sys.argv[1]
for name in ("int4", "int8", "float8"):
    with causeway_run.load(f"{folder}/{name}.cw", vendor="sim", allow_host_code=True) as model:
        (found,) = model.session().run({"input": numpy.load(f"{folder}/x.npy")}).values()
    numpy.testing.assert_allclose(found, numpy.load(f"{folder}/{name}.npy"), rtol=1e-5, atol=1e-5)
    print("ran", name)
"""


def test_its_models_are_compiled_and_exported(run_python, tmp_path: Path) -> None:
    given = {"args": (str(tmp_path),), "timeout": 280, "CAUSEWAY_SIM_CODE": "1"}
    assert run_python(SHIPPED, **given).stdout.split() == ["int4", "int8", "float8"]
    assert run_python(RUN, new=True, **given).stdout.count("ran") == 3


GRAPH = (
    BEGIN
    + """
from causeway.quant import lower, lowered
from torchao.quantization.pt2e import move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer, get_default_x86_inductor_quantization_config as default,
)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2)
        self.pool, self.third, self.head = nn.MaxPool2d(2), nn.Linear(72, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = torch.relu(self.second(self.pool(torch.relu(self.first(x)))))
        return self.head(torch.relu(self.third(x.flatten(1))))
"""
)

PT2E = (
    GRAPH
    + """
torch.manual_seed(0)
net, x = Net().eval(), torch.randn(4, 3, 16, 16) + 0.5
graph = prepare_pt2e(
    torch.export.export(net, (x,)).module(), X86InductorQuantizer().set_global(default())
)
graph(x)
graph = convert_pt2e(graph)
expected = graph(x)
steps = [n.args[1] for n in graph.graph.nodes if "quantize_per_tensor" in str(n.target)]
near = 2e-6

# As it stands, in floating point between its integers.
there, operators = by_operator(copy.deepcopy(graph).to(device), x.to(device))
torch.testing.assert_close(there, expected, rtol=1e-5, atol=near)

low = lower(copy.deepcopy(graph))
assert (lowered(low).products, lowered(low).left) == (4, ())
on_cpu = low(x)
torch.testing.assert_close(on_cpu, expected, rtol=1e-5, atol=near)
low = low.to(device)
got, operators = by_operator(low, x.to(device))
assert torch.equal(got, on_cpu)  # integers: bit for bit
# One node each, relu and what quantizes for the next one within: only the input is quantized alone.
mine = sorted(o for o in operators if o.startswith("causeway::"))
assert mine == ["causeway::qconv"] * 2 + ["causeway::qlinear"] * 2 + ["causeway::quantize"], mine
assert "aten::relu" not in operators
assert torch.equal(torch.compile(low)(x.to(device)).cpu(), on_cpu)
causeway.export(low, (x.to(device),), sys.argv[1] + "/net.cw")

# Planted.
def off(change):
    wrong = lower(copy.deepcopy(graph))
    change(dict(wrong.named_buffers()))
    return float((wrong(x) - expected).abs().max())

assert off(lambda b: None) < near
faults = {
    "zero point": lambda b: b["_conv2d_taps"].add_(b["_conv2d_taps"] // 10 + 50),
    "channel": lambda b: b["_conv2d_1_scale"].copy_(b["_conv2d_1_scale"].roll(1)),
    "scale": lambda b: b["_quantize_per_tensor_default_2_inverse"].mul_(1.02),
}
for name, change in faults.items():
    assert off(change) > 10 * near, (name, off(change))

# Ties go to even, as torchao has them, and not up.
ties = (torch.arange(-40, 40) + 0.5) * 0.25
theirs = torch.ops.quantized_decomposed.quantize_per_tensor(ties, 0.25, 100, 0, 255, torch.uint8)
given = (torch.tensor([4.0]), torch.tensor([100], dtype=torch.int32), 0, 0, 255, torch.uint8)
assert torch.equal(torch.ops.causeway.quantize(ties, *given), theirs)
moved = [g.to(device) if isinstance(g, torch.Tensor) else g for g in given]
assert torch.equal(torch.ops.causeway.quantize(ties.to(device), *moved).cpu(), theirs)
half_up = ((ties * 4 + 0.5).floor() + 100).to(torch.uint8)
assert int((half_up != theirs).sum()) == 40
print("found", len(faults))

from causeway.errors import CausewayError
for wrong, said in ((net, "convert_pt2e"), (torch.fx.symbolic_trace(nn.ReLU()), "nothing that")):
    try:
        lower(wrong)
    except CausewayError as error:
        assert said in str(error)
        print("refused")
"""
)


def test_its_graphs_run_in_integers(run_python, tmp_path: Path) -> None:
    said = run_python(PT2E, args=(str(tmp_path),), timeout=280, CAUSEWAY_SIM_CODE="1").stdout
    assert "found 3" in said
    assert said.count("refused") == 2
    assert (tmp_path / "net.cw").stat().st_size > 0


MEASURED = (
    GRAPH
    + """
torch.manual_seed(0)
net, x = Net().eval(), torch.randn(4, 3, 16, 16) + 0.5
graph = prepare_pt2e(
    torch.export.export(net, (x,)).module(),
    X86InductorQuantizer().set_global(default(is_dynamic=True)),
)
graph(x)
graph = convert_pt2e(graph)
low = lower(copy.deepcopy(graph))
assert (lowered(low).products, lowered(low).left) == (4, ())
there = copy.deepcopy(low).to(device)
for y in (x, 3 * torch.randn(4, 3, 16, 16), torch.rand(4, 3, 16, 16) - 5, torch.zeros_like(x)):
    torch.testing.assert_close(low(y), graph(y), rtol=1e-5, atol=2e-6)
    got, operators = by_operator(there, y.to(device))
    assert torch.equal(got.cpu(), low(y))
mine = sorted(o.removeprefix("causeway::") for o in operators if o.startswith("causeway::"))
assert mine == ["qconv"] * 2 + ["qlinear"] * 2 + ["quantize"] * 4, mine
assert "aten::_local_scalar_dense" not in operators  # nobody waits for a range
got = torch.compile(there)(x.to(device)).cpu()
torch.testing.assert_close(got, low(x), rtol=1e-5, atol=2e-6)

# Planted: the zero point of another input, the scale of another channel.
for name, change in {
    "taps": lambda b: b["_conv2d_taps"].add_(20),
    "scale": lambda b: b["_conv2d_1_scale"].copy_(b["_conv2d_1_scale"].roll(1)),
}.items():
    wrong = lower(copy.deepcopy(graph))
    change(dict(wrong.named_buffers()))
    assert float((wrong(x) - graph(x)).abs().max()) > 1e-4, name
print("measured")
"""
)


def test_ranges_that_are_measured_as_inputs_come(run_python) -> None:
    env = {"CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_POLICY": "error"}  # the host computes nothing
    assert "measured" in run_python(MEASURED, timeout=280, **env).stdout


DYNAMIC = (
    GRAPH
    + """
torch.manual_seed(0)
net, x = Net().eval(), torch.randn(4, 3, 16, 16) + 0.5
shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
graph = prepare_pt2e(
    torch.export.export(net, (x,), dynamic_shapes=shapes).module(),
    X86InductorQuantizer().set_global(default()),
)
graph(x)
graph = convert_pt2e(graph)
low = lower(copy.deepcopy(graph))
assert (lowered(low).products, lowered(low).left) == (4, ())
there = copy.deepcopy(low).to(device)
compiled = torch.compile(there, dynamic=True)
for rows in (4, 7, 1, 64):
    y = torch.randn(rows, 3, 16, 16) + 0.5
    torch.testing.assert_close(low(y), graph(y), rtol=1e-5, atol=2e-6)
    for model in (there, compiled):
        assert torch.equal(model(y.to(device)).cpu(), low(y)), rows
import numpy
numpy.savez(sys.argv[1] + "/numbers.npz", x=x[:3].numpy(), y=low(x[:3]).numpy())
causeway.export(there, (x.to(device),), sys.argv[1] + "/net.cw", dynamic_shapes=shapes)
print("lowered")
"""
)

RUN_DYNAMIC = """
import sys
import causeway_run, numpy

numbers = numpy.load(sys.argv[1] + "/numbers.npz")
with causeway_run.load(sys.argv[1] + "/net.cw", vendor="sim", allow_host_code=True) as model:
    session = model.session()
    (name,) = model.inputs
    (found,) = session.run({name: numbers["x"]}).values()
assert (found == numbers["y"]).all()
print("ran")
"""


def test_its_graphs_take_any_number_of_rows(run_python, tmp_path: Path) -> None:
    given = {"args": (str(tmp_path),), "timeout": 280, "CAUSEWAY_SIM_CODE": "1"}
    assert "lowered" in run_python(DYNAMIC, **given).stdout
    assert "ran" in run_python(RUN_DYNAMIC, new=True, **given).stdout


TRAINED = (
    GRAPH
    + """
from torchao.quantization.qat import QATConfig
torch.set_grad_enabled(True)

def steps(net, x, y):
    optimizer, losses = torch.optim.SGD(net.parameters(), 0.05), []
    for _ in range(6):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

def graph(place):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
    ).to(place)
    x, y = torch.randn(16, 1, 8, 8).to(place), (torch.arange(16) % 10).to(place)
    net = torch.export.export(net, (x,)).module()
    net = prepare_qat_pt2e(net, X86InductorQuantizer().set_global(default(is_qat=True)))
    losses = steps(net, x, y)
    move_exported_model_to_eval(net)
    net = convert_pt2e(net)
    with torch.no_grad():
        floats = net(x).cpu()
        low = lower(net)
        assert (lowered(low).products, lowered(low).left) == (2, ())
        torch.testing.assert_close(low(x).cpu(), floats, rtol=1e-5, atol=1e-5)
    return losses

def module(place, base):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(place)
    x, y = torch.randn(16, 64).to(place), (torch.arange(16) % 10).to(place)
    quantize_(net, QATConfig(base, step="prepare"))
    losses = steps(net, x, y)
    quantize_(net, QATConfig(base, step="convert"))
    assert type(net[0].weight).__name__ == "IntxUnpackedToInt8Tensor"
    with torch.no_grad():
        assert torch.isfinite(net(x).cpu()).all()
    return losses

bases = (
    Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32)),
    IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
)
for train in (graph, *(lambda place, b=b: module(place, b) for b in bases)):
    here = train("cpu")
    with causeway.ledger() as ledger:
        there = train(device)
    assert ledger.total() > 0
    # A weight at the border between two integers may go to the other one.
    torch.testing.assert_close(there, here, rtol=4e-3, atol=4e-3)
    assert there[-1] < 0.95 * there[0], there
    print("trained")
"""
)


def test_it_trains_for_integers_on_the_device(run_python) -> None:
    assert run_python(TRAINED, timeout=280, CAUSEWAY_SIM_CODE="1").stdout.count("trained") == 3
