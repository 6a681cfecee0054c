"""Copies and sums over several devices of one process."""

import pytest
import torch


def test_broadcast_and_gather(module, device, other):
    x = torch.arange(6.0, device=device).reshape(2, 3)
    copies = module.comm.broadcast(x, [0, other])
    assert [c.device for c in copies] == [device, other]
    joined = module.comm.gather(copies, dim=1, destination=0)
    torch.testing.assert_close(joined.cpu(), torch.cat([x.cpu(), x.cpu()], 1))
    assert module.comm.gather(copies, destination="cpu").device.type == "cpu"
    out = [torch.empty(2, 3, device=other)]
    assert module.comm.broadcast(x, out=out)[0] is out[0]
    with pytest.raises(RuntimeError, match="Exactly one"):
        module.comm.broadcast(x)


def test_scatter_cuts(module, device, other):
    x = torch.arange(10.0)
    parts = module.comm.scatter(x, [0, other])
    assert [p.device for p in parts] == [device, other]
    assert torch.equal(torch.cat([p.cpu() for p in parts]), x)
    parts = module.comm.scatter(x, [0, other], chunk_sizes=[3, 7])
    assert [len(p) for p in parts] == [3, 7]


def test_reduce_add(module, device, other):
    parts = [torch.ones(3, device=device), torch.full((3,), 2.0, device=other)]
    total = module.comm.reduce_add(parts, other)
    assert total.device == other
    assert total.tolist() == [3.0] * 3
    assert parts[0].tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="shape"):
        module.comm.reduce_add([parts[0], torch.ones(4, device=other)])
    both = module.comm.reduce_add_coalesced([parts, parts], 0)
    assert [t.tolist() for t in both] == [[2.0] * 3, [4.0] * 3]
    lists = module.comm.broadcast_coalesced(parts[:1], [0, other])
    assert [t[0].device for t in lists] == [device, other]
