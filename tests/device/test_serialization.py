"""Checkpoints, pickle, deepcopy: from the device to anywhere, and back."""

import copy
import io
import pickle

import pytest
import torch


def saved(value, **options) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


@pytest.fixture
def x(device):
    return torch.arange(12.0, device=device).reshape(3, 4)


LOCATIONS = {
    "none": lambda name: None,
    "cpu": lambda name: "cpu",
    "name": lambda name: name,
    "index": lambda name: f"{name}:0",
    "device": lambda name: torch.device(name, 0),
    "cpu device": lambda name: torch.device("cpu"),
    "dict": lambda name: {f"{name}:0": "cpu"},
    "dict to other": lambda name: {f"{name}:0": f"{name}:1"},
    "function": lambda name: lambda storage, location: storage,
    "function to name": lambda name: lambda storage, _: storage.to(device=torch.device(name, 0)),
    "meta": lambda name: "meta",
}


@pytest.mark.parametrize("kind", LOCATIONS)
@pytest.mark.parametrize("legacy", [False, True])
def test_load_with_every_map_location(name, x, kind, legacy):
    if kind == "dict to other" and torch.accelerator.device_count() < 2:
        pytest.skip("needs two devices")
    expected = {
        "cpu": "cpu",
        "cpu device": "cpu",
        "dict": "cpu",
        "function": "cpu",
        "dict to other": f"{name}:1",
        "meta": "meta",
    }.get(kind, f"{name}:0")
    file = saved({"x": x, "view": x[1:, 2:]}, _use_new_zipfile_serialization=not legacy)
    loaded = torch.load(file, map_location=LOCATIONS[kind](name), weights_only=True)
    assert loaded["x"].device == torch.device(expected)
    if kind != "meta":
        torch.testing.assert_close(loaded["x"].cpu(), x.cpu())
        loaded["x"][2, 3] = -1
        assert loaded["view"][1, 1].item() == -1, "views share their storage after loading"


def test_cpu_checkpoint_loads_onto_the_device(name, other):
    for place in (name, f"{name}:1"):
        loaded = torch.load(saved(torch.ones(3)), map_location=place, weights_only=True)
        assert loaded.device.type == name
        assert loaded.sum().item() == 3
    assert loaded.device == other


def test_mmap_load(name, x, tmp_path):
    torch.save(x, tmp_path / "x.pt")
    for place in ("cpu", name):
        loaded = torch.load(tmp_path / "x.pt", map_location=place, mmap=True, weights_only=True)
        torch.testing.assert_close(loaded.cpu(), x.cpu())


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.int8,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
    ],
)
def test_every_dtype_comes_back(device, module, dtype):
    if dtype not in module.get_device_properties().dtypes:
        pytest.skip("the chip lacks it")
    x = torch.tensor([0, 1, 1, 0], device=device).to(dtype)
    loaded = torch.load(saved(x), weights_only=True)
    assert loaded.dtype == dtype
    assert loaded.device == device
    assert torch.equal(loaded.cpu(), x.cpu())


def test_state_dicts_of_model_and_optimizer(name, device):
    net = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(3, 4, device=device)).sum().backward()
    optimizer.step()
    file = saved({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
    state = torch.load(file, map_location="cpu", weights_only=True)
    copied = torch.nn.Linear(4, 2)
    copied.load_state_dict(state["net"])
    torch.testing.assert_close(copied.weight, net.weight.cpu())
    onto = torch.optim.Adam(torch.nn.Linear(4, 2).to(device).parameters())
    onto.load_state_dict(state["optimizer"])
    assert all(s["exp_avg"].device == device for s in onto.state.values())


def test_checkpoint_loads_where_causeway_is_not(name, x, device, run, tmp_path):
    net = torch.nn.Linear(2, 2).to(device)
    torch.save({"x": x, "net": net.state_dict(), "p": net.weight}, tmp_path / "x.pt")
    run(
        f"""
        import torch, sys
        assert not hasattr(torch, "DEVICE") and "causeway" not in sys.modules
        for kind in ("cpu", torch.device("cpu"), {{"{name}:0": "cpu"}}):
            state = torch.load({str(tmp_path / "x.pt")!r}, map_location=kind, weights_only=True)
            assert state["x"].sum().item() == 66 and state["x"].device.type == "cpu"
        torch.nn.Linear(2, 2).load_state_dict(state["net"])
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_pickle_and_deepcopy(x, device):
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x), x.clone()):
        assert again.device == device
        torch.testing.assert_close(again.cpu(), x.cpu())
    copied = copy.deepcopy(x)
    copied += 1
    assert x.sum().item() == 66
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).to(device)
    for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert all(
            p.device == device and isinstance(p, torch.nn.Parameter) for p in again.parameters()
        )


def test_deepcopy_keeps_sharing(x):
    a, b = copy.deepcopy([x, x[0]])
    a[0, 0] = 99
    assert b[0].item() == 99


def test_parameter_survives(device):
    p = torch.nn.Parameter(torch.ones(2, device=device))
    copied = copy.deepcopy(p)
    assert isinstance(copied, torch.nn.Parameter)
    assert copied.requires_grad
    loaded = torch.load(saved(p), weights_only=True)
    assert isinstance(loaded, torch.nn.Parameter)
    assert loaded.requires_grad
