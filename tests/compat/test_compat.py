"""Names of other systems: they compute what they say, or refuse, and come and go as asked."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from causeway import compat
from causeway.apex.optimizers import npu_own
from causeway.compat import missing, tables
from causeway.compat.torch_npu import npu_format
from causeway.compat.torch_npu import operators as npu
from causeway.compat.torch_npu.npu_format import Format
from causeway.compat.torch_npu.utils import storage
from causeway.errors import CausewayError


def test_the_page_is_what_the_tables_say():
    page = Path(__file__).parents[2] / "docs" / "compat.md"
    assert page.read_text(encoding="utf-8") == tables.markdown(), "run `make docs`"


@pytest.mark.parametrize("layout", ["BSH", "SBH", "BSND", "BNSD"])
def test_attention_is_torchs_in_each_layout(device, layout):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 6, 8) for _ in range(3))  # (batch, heads, sequence, width)
    places = {
        "BNSD": lambda t: t, "BSND": lambda t: t.transpose(1, 2),
        "BSH": lambda t: t.transpose(1, 2).flatten(2),
        "SBH": lambda t: t.permute(2, 0, 1, 3).flatten(2),
    }  # fmt: skip
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    want = places[layout](F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3))
    given = [places[layout](t).to(device) for t in (q, k, v)]
    got = npu.npu_fusion_attention(*given, 4, layout, atten_mask=mask.to(device), scale=0.3)[0]
    torch.testing.assert_close(got.cpu(), want)
    got = npu.npu_fusion_attention(*given, 4, layout, sparse_mode=2, scale=0.3)[0]
    torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("layout", ["BSH", "BNSD", "BSND"])
def test_attention_to_a_cache_leaves_out_what_is_behind_its_length(device, layout):
    torch.manual_seed(1)
    q, k, v = torch.randn(2, 4, 1, 8), torch.randn(2, 4, 6, 8), torch.randn(2, 4, 6, 8)
    places = {"BNSD": lambda t: t, "BSND": lambda t: t.transpose(1, 2),
              "BSH": lambda t: t.transpose(1, 2).flatten(2)}  # fmt: skip
    want = [
        F.scaled_dot_product_attention(q[i : i + 1], k[i : i + 1, :, :n], v[i : i + 1, :, :n])
        for i, n in enumerate((4, 6))
    ]
    given = [places[layout](t).to(device) for t in (q, k, v)]
    for lengths in ([4, 6], torch.tensor([4, 6])):
        got = npu.npu_incre_flash_attention(
            *given, num_heads=4, scale_value=8**-0.5, input_layout=layout,
            actual_seq_lengths=lengths,
        )  # fmt: skip
        torch.testing.assert_close(got.cpu(), places[layout](torch.cat(want)))
    with pytest.raises(CausewayError, match="block_table"):
        npu.npu_incre_flash_attention(*given, input_layout=layout, num_heads=4, block_table=q)
    with pytest.raises(CausewayError, match="query"):
        npu.npu_incre_flash_attention(given[1], *given[1:], input_layout=layout, num_heads=4)


def test_deep_norm_by_its_formula(device):
    x, gx, beta, gamma = torch.randn(3, 5), torch.randn(3, 5), torch.randn(5), torch.randn(5)
    mean, rstd, y = npu.npu_deep_norm(*(t.to(device) for t in (x, gx, beta, gamma)), alpha=0.7)
    total = 0.7 * x + gx
    deviation = total - total.mean(-1, keepdim=True)
    scale = (deviation.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    torch.testing.assert_close(mean.cpu(), total.mean(-1, keepdim=True))
    torch.testing.assert_close(rstd.cpu(), scale)
    torch.testing.assert_close(y.cpu(), deviation * scale * gamma + beta)


def test_operators_compute_their_formulas(device):
    x = torch.randn(3, 8)
    d = x.to(device)
    a, b = x.chunk(2, -1)
    rstd = (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
    cases = [
        (npu.npu_rms_norm(d, torch.full((8,), 2.0, device=device)), (x * rstd * 2, rstd)),
        (npu.npu_swiglu(d), a * a.sigmoid() * b),
        (npu.npu_geglu(d, approximate=0), (F.gelu(b) * a, F.gelu(b))),
        (npu.npu_fast_gelu(d), x * torch.sigmoid(1.702 * x)),
        (npu.npu_rotary_mul(d, d, d), x * x + x * torch.cat((-b, a), -1)),
        (npu.npu_one_hot(torch.tensor([2, 5], device=device), depth=3),
         torch.tensor([[0.0, 0, 1], [0, 0, 0]])),
        (npu.npu_slice(d, [1, 2], [2, -1]), x[1:, 2:]),
        (npu.npu_confusion_transpose(d, [1, 0], [2, 12], True), x.T.reshape(2, 12)),
        (npu.npu_softmax_cross_entropy_with_logits(d, d.softmax(-1)),
         -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)),
        (npu.npu_quantize(d, torch.full((8,), 0.1, device=device), None, torch.qint8),
         (x / 0.1).round().clamp(-128, 127).to(torch.int8)),
    ]  # fmt: skip
    for got, want in cases:
        pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
        for one, other in pairs:
            torch.testing.assert_close(one.cpu(), other)


def test_formats_are_what_was_asked_for_and_not_in_files(device, tmp_path):
    assert npu.get_npu_format(torch.ones(2)) == Format.ND == 2
    w = npu.npu_format_cast(torch.randn(4, 5, device=device), 29)
    assert npu.get_npu_format(w.detach().t()) is Format.FRACTAL_NZ
    with pytest.raises(ValueError, match="77"):
        npu.npu_format_cast(w, 77)
    torch.save(w, tmp_path / "w.pt")
    assert npu.get_npu_format(torch.load(tmp_path / "w.pt")) == 2


@pytest.mark.parametrize("info", [Format.FRACTAL_NZ, 29, True])
def test_checkpoints_of_torch_npu_before_2_1_load(device, tmp_path, monkeypatch, info):
    class Saved:  # as it pickled a tensor: its numbers on the CPU, and its format
        def __reduce__(self):
            given = want.storage(), 0, want.shape, want.stride(), True, OrderedDict(), info
            return storage._rebuild_npu_tensor, given

    for parent in ("torch_npu", "torch_npu.utils", "torch_npu.npu"):
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    monkeypatch.setitem(sys.modules, "torch_npu.utils.storage", storage)
    monkeypatch.setitem(sys.modules, "torch_npu.npu._format", npu_format)
    want = torch.randn(3, 4)
    torch.save({"w": Saved()}, tmp_path / "old.pt")
    assert b"torch_npu.utils.storage" in (tmp_path / "old.pt").read_bytes()
    for where in (None, device):
        got = torch.load(tmp_path / "old.pt", map_location=where)["w"]
        assert got.device.type == (where or torch.device("cpu")).type
        assert got.requires_grad
        assert torch.equal(got.cpu(), want)
        assert npu.get_npu_format(got) == (29 if where and info is not True else 2)


def test_boxes_by_hand():
    one, other = torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[0.0, 0, 10, 20]])
    assert npu.npu_iou(one, other).tolist() == [[0.5]]
    far = torch.tensor([[20.0, 0, 30, 10]])
    # Nothing is shared; the box around both is 30 wide, 20 of it are covered.
    torch.testing.assert_close(npu.npu_giou(one.T, far.T), torch.tensor([[-1 / 3]]))
    torch.testing.assert_close(npu.npu_diou(one.T, far.T), torch.tensor([[-400 / 1000]]))
    assert npu.npu_ciou(one.T, one.T).tolist() == [[1.0]]


def test_what_is_not_served_is_refused():
    q = torch.ones(1, 2, 4)
    with pytest.raises(CausewayError, match="sparse_mode is not served"):
        npu.npu_fusion_attention(q, q, q, 2, "BSH", sparse_mode=5)
    with pytest.raises(CausewayError, match="input_layout"):
        npu.npu_fusion_attention(q, q, q, 2, "TND")
    with pytest.raises(CausewayError, match="antiquant_scale1"):
        npu.npu_ffn(q, q, q, "gelu", antiquant_scale1=q)


@pytest.mark.parametrize("optimizer", ["NpuFusedAdamP", "NpuFusedBertAdam", "NpuFusedRMSpropTF"])
def test_optimizers_lower_a_loss(device, optimizer):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(
        device
    )
    x = torch.randn(32, 6, device=device)
    y = x.sum(-1, keepdim=True)
    stepper = getattr(npu_own, optimizer)(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss = F.mse_loss(model(x), y)
        stepper.zero_grad()
        loss.backward()
        stepper.step()
        losses.append(float(loss))
    assert losses[-1] < 0.6 * losses[0]


def test_one_step_by_hand():
    p, g = torch.tensor([1.0]), torch.tensor([0.5])
    p = torch.nn.Parameter(p)
    p.grad = g.clone()
    npu_own.NpuFusedBertAdam([p], lr=0.1, weight_decay=0.01, max_grad_norm=-1).step()
    step = 0.1 * 0.5 / ((0.001 * 0.25) ** 0.5 + 1e-6) + 0.01
    assert float(p) == pytest.approx(1 - 0.1 * step)
    p = torch.nn.Parameter(torch.tensor([1.0]))
    p.grad = g.clone()
    npu_own.NpuFusedRMSpropTF([p], lr=0.1).step()
    assert float(p) == pytest.approx(1 - 0.1 * 0.5 / (0.9 + 0.1 * 0.25 + 1e-10) ** 0.5)


def test_an_import_that_fails_says_what_to_do(run_python):
    done = run_python("import torch\nimport torch_mlu.core\n", status=1, new=True)
    assert "CAUSEWAY_COMPAT=mlu" in done.stderr
    done = run_python("import torch\nimport not_there\n", status=1, new=True)
    assert "causeway:" not in done.stderr


def test_names_that_are_not_served_say_what_to_write(run_python):
    program = """
import torch, torch_npu
for name in ("torch_npu.npu_moe_init_routing", "torch.npu.init_dump", "torch_npu.contrib.BiLSTM",
             "torch_npu.utils.FlopsCounter"):
    owner, _, last = name.rpartition(".")
    try:
        getattr(eval(owner), last)
    except AttributeError as error:
        print(error)
try:
    torch.npu.set_option({"ACL_PRECISION_MOD": 1})
except Exception as error:
    print(error)
"""
    lines = run_python(program, new=True, CAUSEWAY_COMPAT="npu").stdout.splitlines()
    assert len(lines) == 5
    assert "torch.compile" in lines[0]
    assert "CAUSEWAY_DUMP" in lines[1]
    assert "torch.nn.LSTM" in lines[2]
    assert "FlopCounterMode" in lines[3]
    assert "ACL_PRECISION_MODE" in lines[4]


def test_the_real_package_is_not_shadowed(run_python, tmp_path):
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text("real = True\n")
    program = "import torch\nimport torch_npu\nprint(torch_npu.real)\n"
    done = run_python(program, new=True, CAUSEWAY_COMPAT="npu", PYTHONPATH=str(tmp_path))
    assert done.stdout.strip() == "True"
    assert "another torch_npu is installed" in done.stderr


def test_a_system_is_installed_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(compat, "marker", lambda: tmp_path / "causeway-compat.txt")
    assert compat.install("mindtorch") == [tmp_path / "mindtorch", tmp_path / "mindspore"]
    assert compat.installed() == "mindtorch"
    with pytest.raises(CausewayError, match="remove it first"):
        compat.install("npu")
    assert compat.remove() == "mindtorch"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "torch_npu").mkdir()  # somebody else's
    (tmp_path / "torch_npu" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CausewayError, match="not replaced"):
        compat.install("npu")


def test_programs_are_known_by_what_they_import():
    assert compat.named_in("import torch\n  import torch_npu.npu as n\n") == {"npu"}
    assert compat.named_in("from torch_mlu.core import x\nimport torch_dipu\n") == {"mlu", "dipu"}
    assert compat.named_in("# import torch_npu\nx = 'import torch_mlu'\n") == set()


def test_run_takes_a_program_for_another_system(run_python, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch_npu, torch\nprint(torch.ones(2).npu().device)\n")
    program = "import subprocess, sys\n"
    program += "subprocess.run([sys.executable, '-m', 'causeway', 'run', sys.argv[1]])"
    assert run_python(program, args=(str(script),), new=True).stdout.strip() == "npu:0"


def test_a_dumper_prints_and_compares_while_it_is_entered(run_python):
    program = """
import torch, torch_mlu
from torch_mlu.core.dumptool import Dumper
x = torch.ones(2).to("mlu")
with Dumper(enable=True, use_cpu=True):
    y = x + x
print("after")
z = x * x
"""
    printed = run_python(program, new=True, CAUSEWAY_COMPAT="mlu").stdout
    inside, _, after = printed.partition("after")
    assert "aten::add.Tensor" in inside
    assert "self: float32[2]" in inside
    assert "aten::mul" not in after


def test_switches_of_torch_mlu_are_there_and_say_once_that_they_have_no_effect(run_python):
    program = """
import torch, torch_mlu, warnings
warnings.simplefilter("error")
torch.backends.mlu.matmul.allow_tf32 = False
torch.backends.cnnl.allow_tf32 = False
assert torch.backends.mlu.matmul.allow_tf32 is False
try:
    torch.backends.cnnl.allow_tf32 = True
except UserWarning as said:
    assert "has no effect" in str(said)
try:
    torch.backends.mlu.matmul.allow_tf33 = True
except AttributeError as said:
    print(said)
"""
    printed = run_python(program, new=True, CAUSEWAY_COMPAT="mlu").stdout
    assert "known are allow_tf32" in printed


def test_ranges_of_torch_mlu_are_those_of_torchs_profiler(run_python):
    program = """
import torch, torch_mlu
with torch.profiler.profile() as p, torch.mlu.cnpx.range("outer"):
    torch.mlu.cnpx.range_push("inner")
    torch.ones(2, device="mlu") + 1
    torch.mlu.cnpx.range_pop()
print({e.name for e in p.events()} >= {"outer", "inner"})
"""
    assert run_python(program, new=True, CAUSEWAY_COMPAT="mlu").stdout.strip() == "True"


def test_names_of_a_wheel_are_counted_and_an_unknown_one_is_found(tmp_path):
    spec = importlib.util.spec_from_file_location(
        "wheel_names", Path(__file__).with_name("names.py")
    )
    counting = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(counting)
    wheel = tmp_path / "torch_npu-9.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, _ in counting.MODULES.values():
            archive.writestr(file, "from .a import b, _c\n__all__ = ['npu_x', '_y']\n")
        archive.writestr(counting.OPERATORS, "public_npu_functions = ['npu_one']\n")
    found = counting.public(wheel)
    assert found["torch_npu"] == ["npu_one", "npu_x"]
    assert found["torch_npu.utils"] == ["b", "npu_x"]
    served: Any = types.ModuleType("served")
    served.there = 1
    served.__getattr__ = missing.getter("torch_npu.utils")
    said = [counting._one(served, n) for n in ("there", "get_cann_version", "nobody_has_it")]
    assert said == ["works", "says what to write", "unknown"]


def test_no_name_of_the_wheel_is_without_an_answer():
    text = Path(tables.__file__).with_name("covered.json").read_text(encoding="utf-8")
    counts = json.loads(text)["modules"]
    assert sum(sum(of.values()) for of in counts.values()) > 300
    assert not any("unknown" in of for of in counts.values())


def test_a_variable_that_a_package_reads_has_an_effect(run_python):
    program = "from causeway import compat; print([s for s in compat.unheeded() if 'MOCK' in s])"
    given = {"DIPU_MOCK_CUDA": "0"}
    assert run_python(program, new=True, CAUSEWAY_COMPAT="dipu", **given).stdout == "[]\n"
    said = run_python(program, new=True, **given).stdout
    assert "with CAUSEWAY_COMPAT=dipu, by `torch_dipu`" in said


NPU_NAMES = """
import torch, torch_npu, warnings
import torch_npu.npu.amp, torch_npu.npu.memory
from torch_npu.npu.amp import GradScaler
from torch_npu import profiler as p

assert torch_npu.npu.amp is torch.npu.amp and torch_npu.npu.memory is torch.npu.memory
assert torch.distributed.is_hccl_available() and torch.distributed.is_backend_available("hccl")
w = torch.nn.Parameter(torch.ones(2).npu())
o = torch.optim.SGD([w], 0.1)
for dynamic, scales in ((True, [128.0, 64.0, 128.0]), (False, [64.0] * 3)):
    scaler = GradScaler(64.0, 2.0, 0.5, 1, dynamic)
    for factor, scale in zip((1.0, float("inf"), 1.0), scales):
        before = w.detach().clone()
        o.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(o)
        scaler.update()
        assert scaler.get_scale() == scale, (dynamic, factor)
        # an overflow is left out, unless the scale is static
        assert torch.equal(before, w) == (factor != 1 and dynamic), (dynamic, factor)
        with torch.no_grad():
            w.fill_(1.0)
    other = GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict() and other.state_dict()["dynamic"] is dynamic
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    torch.npu.set_option({"ALLOW_INTERNAL_FORMAT": "enable", "ALLOW_MATMUL_HF32": "enable"})
    config = p._ExperimentalConfig(
        export_type=p.ExportType.Text, profiler_level=p.ProfilerLevel.Level1,
        aic_metrics=p.AiCMetrics.PipeUtilization, host_sys=[p.HostSystem.OSRT],
    )
    p.profile(experimental_config=config)
    p.tensorboard_trace_handler("d", analyse_flag=False)
assert [w.category for w in said] == [UserWarning] * 3, [str(w.message) for w in said]
assert p.ProfilerLevel.Level1 in p.supported_profiler_level()
for wrong in ("p.ProfilerLevel.Level7", "torch.npu.get_soc_version()"):
    try:
        eval(wrong)
    except AttributeError:
        pass
    else:
        raise AssertionError(wrong)
"""
MLU_NAMES = """
import torch, torch_mlu, cnmix, warnings
import torch_mlu.core.mlu_model as ct
import torch_mlu.mlu.amp

assert torch_mlu.mlu.amp is torch.mlu.amp
assert torch.distributed.is_cncl_available() and torch.distributed.is_backend_available("cncl")
assert torch.backends.mlu.is_built() and torch.backends.mlu.math_sdp_enabled()
ct.set_device("mlu:0")
ct.set_device(torch.device("mlu", 0))
warnings.simplefilter("error")
with torch.backends.cnnl.flags(None, None, None, None, allow_tf32=False):
    assert torch.backends.cnnl.allow_tf32 is torch.backends.mlu.custom.allow_tf32 is False
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with torch.backends.cnnl.flags(allow_tf32=True):
        torch.backends.mlu.custom.allow_tf32 = True
    ct._jit_override_can_fuse_on_mlu(True)
    cnmix.core.cnmix_set_amp_quantify_params("all", {"batch_size": 16, "data_num": 16})
assert len(said) == 4, [str(w.message) for w in said]
torch.manual_seed(0)
warnings.simplefilter("ignore")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).mlu()
model, optimizer = cnmix.initialize(
    model, torch.optim.SGD(model.parameters(), 0.05), opt_level="O1", loss_scale=64.0, verbosity=0)
x = torch.randn(16, 4).mlu()
losses = []
for _ in range(6):
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    with cnmix.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses == sorted(losses, reverse=True) and losses[-1] < 0.8 * losses[0], losses
cnmix.load_state_dict(cnmix.state_dict())
assert cnmix.initialize(torch.nn.Linear(2, 2), None, opt_level="O0", verbosity=0)[1] is None
"""


# What the table says to be there is there, for a program that names it.
TABLE = """
import importlib, sys
import torch
from causeway.compat import names, systems

system = systems()[sys.argv[1]]
for package in system.packages:
    importlib.import_module(package)
lost = []
for module, table in names.modules().items():
    if module.partition(".")[0] not in system.packages and module != f"torch.{system.device}":
        continue
    found = torch.get_device_module() if module.startswith("torch.") else None
    found = found or importlib.import_module(module)
    for name, entry in table.items():
        at = found
        try:
            for part in name.split("."):
                at = getattr(at, part)
        except AttributeError as error:
            if not entry.instead or entry.instead not in str(error):
                lost.append((module, name))
print(lost)
"""


@pytest.mark.parametrize("system", ["npu", "mlu", "dipu", "mindtorch"])
def test_what_the_table_says_to_be_there_is(run_python, system):
    done = run_python(TABLE, new=True, args=(system,), CAUSEWAY_COMPAT=system)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("system", "program"), [("npu", NPU_NAMES), ("mlu", MLU_NAMES)])
def test_names_that_public_programs_use(run_python, system, program):
    assert run_python(program, new=True, CAUSEWAY_COMPAT=system).stderr == ""
