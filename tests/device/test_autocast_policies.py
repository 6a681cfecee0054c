"""Autocast's policies that a vendor or a user sets in torch's place."""

from __future__ import annotations

import shutil

import pytest
import torch

from causeway import ConfigError, config
from causeway.autoload import state
from causeway.ops import autocast

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def _back_to_torchs():
    yield
    config.reset("autocast")


def dtype_of(name, function, *args):
    with torch.autocast(name, dtype=torch.bfloat16):
        return function(*args).dtype


def test_a_setting_changes_a_policy_and_torchs_comes_back(name, device):
    a = torch.randn(4, 4, device=device)
    low, b = torch.float16, torch.randn(4, 4, device=device, dtype=torch.float16)
    assert dtype_of(name, torch.softmax, a.bfloat16(), 1) == torch.float32
    config.set("autocast", "softmax=low, aten::mm=fp32, gelu=fp32, addcmul=none, sin=promote")
    assert dtype_of(name, torch.softmax, a, 1) == torch.bfloat16
    assert dtype_of(name, torch.mm, b, b) == torch.float32
    assert dtype_of(name, torch.nn.functional.gelu, b) == torch.float32
    assert dtype_of(name, torch.sin, b) == torch.promote_types(low, torch.bfloat16)
    assert torch.mm(b, b).dtype == low  # outside of a region nothing changes
    assert {(p.operator, p.policy) for p in autocast.policies()} >= {
        ("aten::softmax.int", "low"),
        ("aten::mm", "fp32"),
    }
    config.reset("autocast")
    assert autocast.policies() == []
    assert dtype_of(name, torch.softmax, a.bfloat16(), 1) == torch.float32
    assert dtype_of(name, torch.mm, a, a) == torch.bfloat16
    assert dtype_of(name, torch.nn.functional.gelu, b) == low


def test_tensors_in_lists_are_cast_and_other_devices_are_not(name, device):
    a = [torch.randn(2, device=device), torch.randn(2, device=device, dtype=torch.bfloat16)]
    with config.using(autocast={"cat": "low", "add.Tensor": "low"}):
        assert dtype_of(name, torch.cat, a) == torch.bfloat16
        assert dtype_of(name, torch.add, a[0], a[0]) == torch.bfloat16
        assert dtype_of(name, torch.add, torch.ones(2), torch.ones(2)) == torch.float32
        assert dtype_of(name, torch.add, a[0].double(), a[0]) == torch.float64
        index = torch.tensor([0], device=device)
        with torch.autocast(name, dtype=torch.bfloat16):
            assert a[0][index].dtype == torch.float32


def test_gradients_pass_a_policys_casts(name, device):
    a = torch.randn(4, device=device, requires_grad=True)
    with config.using(autocast="sin=low"), torch.autocast(name, dtype=torch.bfloat16):
        y = torch.sin(a)
    y.float().sum().backward()
    assert a.grad.dtype == torch.float32
    torch.testing.assert_close(a.grad, a.detach().cos(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("softmacks=low", "did you mean 'aten::softmax'"),
        ("softmax.no_such=low", "no such operator"),
        ("softmax=half", "policies: low, fp32, promote, none"),
        ("softmax", "operator=policy"),
        ("add_=low", "writes into its arguments"),
        ("add.out=fp32", "writes into its arguments"),
    ],
)
def test_a_wrong_policy_is_refused_and_changes_nothing(name, device, value, words):
    config.set("autocast", "sin=low")
    with pytest.raises(ConfigError, match=words):
        config.set("autocast", value)
    assert [p.operator for p in autocast.policies()] == ["aten::sin"]
    assert dtype_of(name, torch.sin, torch.ones(2, device=device)) == torch.bfloat16


SEE = """
import torch
from causeway.ops import autocast
with torch.autocast("{name}", dtype=torch.bfloat16):
    print(torch.ones(2, 2, device="{name}").softmax(1).dtype)
for p in autocast.policies():
    print(p.operator, p.policy)
"""


def test_a_vendors_file_beside_its_library_changes_policies(run_python, tmp_path, name):
    library = tmp_path / "libcw_sim.so"
    shutil.copy(state.library, library)
    beside = tmp_path / "libcw_sim.autocast.toml"
    beside.write_text('low = ["softmax"]\nfp32 = ["aten::bmm"]\n')
    done = run_python(SEE.format(name=name), CAUSEWAY_VENDOR=str(library))
    first, *rest = done.stdout.splitlines()
    assert first == "torch.bfloat16"
    assert {"aten::softmax.int low", "aten::bmm fp32"} <= {*rest}
    done = run_python(
        SEE.format(name=name), CAUSEWAY_VENDOR=str(library), CAUSEWAY_AUTOCAST="softmax=fp32"
    )
    assert done.stdout.splitlines()[:2] == ["torch.float32", "aten::softmax.int fp32"]

    for wrong, words in (
        ('half = ["softmax"]', "'half' is no policy"),
        ('low = ["softmacks"]', "did you mean"),
        ('low = ["mm"]\nfp32 = ["mm"]', "several policies"),
        ("low =", "cannot be read"),
    ):
        beside.write_text(wrong)
        done = run_python(SEE.format(name=name), CAUSEWAY_VENDOR=str(library))
        assert done.stdout == "torch.float32\n"
        assert words in done.stderr
        assert "causeway doctor" in done.stderr


def test_the_doctor_lists_policies():
    from causeway import doctor

    with config.using(autocast="sin=low"):
        found = doctor.examine().autocast
    assert found == [{"operator": "aten::sin", "policy": "low", "source": "setting autocast"}]
