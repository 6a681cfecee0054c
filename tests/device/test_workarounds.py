"""Each workaround is still needed, and in force; one that torch needs no more must go."""

import pytest
import torch

from causeway import workarounds


@pytest.mark.parametrize("entry", workarounds.ALL, ids=lambda entry: entry.name)
def test_torch_still_has_the_bug(entry):
    version = tuple(map(int, torch.__version__.split(".")[:2]))
    affected = version >= entry.since and (entry.until is None or version < entry.until)
    assert entry.needed() == affected, (
        f"set `until`: {entry.upstream} is fixed in {torch.__version__}"
    )
    assert (entry in workarounds.in_force()) == affected


def test_each_names_its_upstream_issue():
    for entry in workarounds.ALL:
        assert entry.upstream.startswith("https://github.com/pytorch/pytorch/")
        assert entry.what


def test_apply_twice_changes_nothing():
    before = torch.Tensor.__dlpack_device__, workarounds.in_force()
    workarounds.apply()
    assert before == (torch.Tensor.__dlpack_device__, workarounds.in_force())


def test_data_parallel_leaves_tensors_of_others_to_torch(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    call = workarounds._here(lambda *_: "ours", lambda *_: "torch's")
    assert call([torch.ones(1)], [0, 1]) == "torch's"
    assert call([torch.ones(1), torch.ones(1, device=device)], [0, 1]) == "ours"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # as in a CUDA build, no GPU
    assert call(torch.ones(1), [0]) == "ours"


@pytest.mark.parametrize("devices", [None, [0], [0, 1], [1, 0]])
def test_data_parallel_trains_as_one_model(device, devices):
    def net():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))

    if devices and len(devices) > torch.accelerator.device_count():
        pytest.skip("one device")
    first = torch.device(device.type, devices[0] if devices else 0)
    ours, plain = net().to(first), net()
    parallel = torch.nn.DataParallel(ours, device_ids=devices)
    for where in ("cpu", first):  # the program may leave its batch on the CPU
        x = torch.randn(7, 6)  # which does not divide
        got, want = parallel(x.to(where)), plain(x)
        assert got.device == first
        torch.testing.assert_close(got.cpu(), want)
        got.square().sum().backward()
        want.square().sum().backward()
    for mine, its in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), its.grad)


def test_copies_among_devices_of_one_process(device):
    from torch.nn.parallel import comm

    x = torch.arange(12.0, device=device).view(6, 2)
    pieces = comm.scatter(x, [0, 0], chunk_sizes=[4, 2])
    assert [len(p) for p in pieces] == [4, 2]
    assert torch.equal(comm.gather(pieces, destination="cpu"), x.cpu())
    out = torch.empty(6, 2, device=device)
    assert torch.equal(comm.gather(pieces, out=out).cpu(), x.cpu())
    outs = [torch.empty(1, 2, device=device), torch.empty(5, 2, device=device)]
    assert torch.equal(torch.cat(comm.scatter(x, out=outs)).cpu(), x.cpu())
    assert comm.broadcast(x, [0])[0] is x
    assert torch.equal(comm.broadcast(x, out=[torch.zeros_like(x)])[0].cpu(), x.cpu())
    with pytest.raises(RuntimeError, match="sizes of chunks"):
        comm.scatter(x, [0], chunk_sizes=[4, 2])


@pytest.mark.parametrize("kind", ["plain", "transposed", "volume", "weight alone", "double"])
def test_fake_convolutions_have_the_strides_of_eager_mode(device, kind, needs):
    from torch._subclasses import FakeTensorMode

    dims = 3 if kind == "volume" else 2
    last = torch.channels_last_3d if dims == 3 else torch.channels_last
    convolve = torch.nn.functional.conv3d if dims == 3 else torch.nn.functional.conv2d
    if kind == "transposed":
        convolve = torch.nn.functional.conv_transpose2d
    dtype = torch.float64 if kind == "double" else torch.float32
    needs(dtype)

    def strides():
        shape = (2, 4, *[6] * dims)
        x = torch.ones(shape, device=device, dtype=dtype)
        w = torch.ones(4, 4, *[3] * dims, device=device, dtype=dtype)
        w = w.to(memory_format=last).requires_grad_()
        x = (x if kind == "weight alone" else x.to(memory_format=last)).requires_grad_()
        out = convolve(x, w)
        grads = torch.autograd.grad(out, (x, w), torch.ones_like(out))
        return [t.stride() for t in (out, *grads)]

    eager = strides()
    with FakeTensorMode():
        assert strides() == eager
