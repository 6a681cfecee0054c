"""Sparse, nested and quantized tensors, 4 bits, SyncBatchNorm's operators: each against the CPU."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

warnings.filterwarnings("ignore", "Sparse (CSR|invariant|BSR|CSC|BSC)")
warnings.filterwarnings("ignore", "torch.quantize_per")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse", "ignore:torch.quantize_per")

LAYOUTS = {
    "coo": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
}


def matrix() -> torch.Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).relu()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_tensor_is_made_moved_and_made_dense(layout: str, name: str) -> None:
    there, here = LAYOUTS[layout](matrix().to(name)), LAYOUTS[layout](matrix())
    assert there.layout == here.layout
    assert there.device.type == there.values().device.type == name if layout != "coo" else True
    for moved in (there.cpu(), here.to(name).cpu(), there.clone().to("cpu")):
        torch.testing.assert_close(moved, here, rtol=0, atol=0)
    torch.testing.assert_close(there.to_dense().cpu(), matrix(), rtol=0, atol=0)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_products_with_a_sparse_matrix_and_their_gradients(layout: str, name: str) -> None:
    found = []
    for place in ("cpu", name):
        s = LAYOUTS[layout](matrix()).to(place).requires_grad_()
        d = torch.arange(18.0).view(6, 3).to(place).requires_grad_()
        y = torch.sparse.mm(s, d)
        y.square().sum().backward()
        found.append([y.detach().cpu(), d.grad.cpu(), s.grad.cpu().to_dense()])
    torch.testing.assert_close(found[1], found[0])


def test_what_a_kernel_notes_for_the_backward_is_noted(name: str) -> None:
    found = []
    for place in ("cpu", name):
        s = matrix().to_sparse_csr().to(place).requires_grad_()
        d = torch.arange(18.0).view(6, 3).to(place).requires_grad_()
        torch.sparse.mm(s, d, "amax").sum().backward()
        found.append([s.grad.to_dense().cpu(), d.grad.cpu()])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_a_sparse_tensor_changes_in_place(name: str) -> None:
    s = matrix().to(name).to_sparse()
    s.add_(s.clone().mul_(2)).coalesce()
    torch.testing.assert_close(s.to_dense().cpu(), matrix() * 3)
    out = torch.zeros(4, 6, device=name).to_sparse()
    torch.abs(-matrix().to(name).to_sparse(), out=out)
    torch.testing.assert_close(out.to_dense().cpu(), matrix())
    same = s._values()
    same.zero_()
    assert s.to_dense().count_nonzero() == 0


def test_a_sparse_tensor_goes_from_one_device_to_another(device, other) -> None:
    for layout in ("coo", "csr"):
        there = LAYOUTS[layout]((matrix().to(other) + 1).relu())
        moved = there.to(device)
        assert moved.device.index == moved.values().device.index == 0 if layout == "csr" else True
        torch.testing.assert_close(moved.to_dense().cpu(), matrix() + 1, rtol=0, atol=0)


def test_what_no_kernel_can_serve_is_said(name: str) -> None:
    with pytest.raises(NotImplementedError, match=r"aten::empty_strided.*'SparseCPU' backend"):
        torch.empty_strided((2, 3), (3, 1), layout=torch.sparse_coo, device=name)


def test_sparse_gradients_of_an_embedding(name: str) -> None:
    torch.manual_seed(0)
    stock = nn.Embedding(5, 3, sparse=True)
    models = [stock, copy.deepcopy(stock).to(name)]
    for model in models:
        where = model.weight.device
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.tensor([1, 2, 1], device=where)).square().sum().backward()
        assert model.weight.grad.layout == torch.sparse_coo
        optimizer.step()
    torch.testing.assert_close(models[1].weight.cpu(), models[0].weight)


def test_nested_tensors(name: str) -> None:
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    here = torch.nested.nested_tensor(parts)
    there = torch.nested.nested_tensor(parts, device=name)
    for f in (lambda n: n + n, torch.relu, lambda n: n.transpose(1, 2), lambda n: n.softmax(-1)):
        got, want = f(there), f(here)
        for a, b in zip(got.unbind(), want.unbind(), strict=True):
            assert a.device.type == name
            assert a.stride() == b.stride()
            torch.testing.assert_close(a.cpu(), b)
    padded = torch.nested.to_padded_tensor(there, 0.0)
    torch.testing.assert_close(padded.cpu(), torch.nested.to_padded_tensor(here, 0.0))
    moved = there.cpu()
    assert moved.device.type == "cpu"
    assert moved._nested_tensor_size().device.type == "cpu"
    assert there._nested_tensor_size().device.type == "cpu"
    with torch.inference_mode():
        frozen = torch.nested.nested_tensor(parts, device=name)
        viewed = there.transpose(1, 2)
    assert frozen.transpose(1, 2).is_inference()
    assert not viewed.is_inference()


def test_quantized_tensors(name: str) -> None:
    x = torch.randn(3, 4)
    here = torch.quantize_per_tensor(x, 0.1, 2, torch.qint8)
    there = torch.quantize_per_tensor(x.to(name), 0.1, 2, torch.qint8)
    for q in (there, here.to(name), there.clone(), there.flip(0).flip(0)):
        assert q.device.type == name
        assert q.qscheme() == here.qscheme()
        assert torch.equal(q.cpu().int_repr(), here.int_repr())
    made = torch._empty_affine_quantized(
        [2], scale=1.0, zero_point=0, dtype=torch.quint8, device=name
    )
    assert made.q_scale() == 1.0
    views = (there.t(), there.view(-1), there[0], there.unsqueeze(0), there.as_strided((2,), (4,)))
    for view in views:
        assert view.qscheme() == here.qscheme()
        assert view.q_scale() == 0.1
        assert view.untyped_storage().data_ptr() == there.untyped_storage().data_ptr()
    assert torch.equal(there.t().cpu().int_repr(), here.t().int_repr())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_batch_norm_over_two_processes_is_batch_norm_over_both_batches(
    dtype: torch.dtype, name: str, needs
) -> None:
    needs(dtype)
    torch.manual_seed(0)
    x, g = torch.randn(2, 6, 3, 4, 5).to(dtype).unbind()
    weight, bias = torch.randn(2, 3).to(torch.promote_types(dtype, torch.float32)).unbind()
    mean, var = torch.zeros_like(weight), torch.ones_like(weight)
    want = [t.double().requires_grad_() for t in (x, weight, bias)]
    want_running = mean.double().clone(), var.double().clone()
    y = nn.functional.batch_norm(want[0], *want_running, *want[1:], training=True)
    y.backward(g.double())

    parts, gs, w, b = x.to(name).split(4), g.to(name).split(4), weight.to(name), bias.to(name)
    running = mean.to(name), var.to(name)
    local = [torch.batch_norm_stats(part, 1e-5) for part in parts]
    counts = torch.tensor([4 * 20.0, 2 * 20.0], dtype=w.dtype, device=name)
    stacked = [torch.stack(s) for s in zip(*local, strict=True)]
    joint = torch.batch_norm_gather_stats_with_counts(
        parts[0], *stacked, *running, 0.1, 1e-5, counts
    )
    out = torch.cat([torch.batch_norm_elemt(part, w, b, *joint, 1e-5) for part in parts])
    sums = [
        torch.batch_norm_backward_reduce(a, part, *joint, w, True, True, True)
        for a, part in zip(gs, parts, strict=True)
    ]
    total = [sum(s) for s in zip(*sums, strict=True)]
    grad = torch.cat(
        [
            torch.batch_norm_backward_elemt(a, part, *joint, w, *total[:2], counts.int())
            for a, part in zip(gs, parts, strict=True)
        ]
    )
    close = {torch.float64: 1e-6, torch.float32: 1e-5, torch.bfloat16: 3e-2}[dtype]
    have = [out, grad, total[2], total[3], *running]
    expected = [y.detach(), want[0].grad, want[1].grad, want[2].grad, *want_running]
    assert out.dtype == grad.dtype == dtype
    for h, e in zip(have, expected, strict=True):
        torch.testing.assert_close(h.cpu().double(), e, rtol=close, atol=close)


def test_storages_of_no_bytes_belong_to_their_device(name: str) -> None:
    empty = torch.empty(0, 5, device=name)
    assert empty.untyped_storage().clone().device.type == name
    assert copy.deepcopy(empty).device.type == name


def test_memory_that_is_copied_when_written_outlives_its_first_owner(name: str) -> None:
    first = torch.ones(3, device=name)
    second = torch._lazy_clone(first)
    del first
    assert second.add_(1).tolist() == [2.0, 2.0, 2.0]


def test_an_output_that_is_also_an_input_keeps_its_shape(name: str) -> None:
    with pytest.raises(RuntimeError, match="broadcast shape"):
        torch.zeros(5, 1, device=name).logical_and_(torch.ones(5, 5, device=name))
    with pytest.raises(RuntimeError, match="more than one element"):
        torch.zeros(1, device=name).expand(3).copy_(torch.ones(3, device=name))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("group", "tiles"), [(32, 2), (64, 8)])
def test_weights_of_4_bits(name: str, dtype: torch.dtype, group: int, tiles: int) -> None:
    """torch has these for CUDA; the CPU's have other names, and another packing."""
    n, k = 48, 128
    made = torch.Generator().manual_seed(0)
    q = torch.randint(0, 16, (n, k), dtype=torch.int32, generator=made)
    scales = torch.rand(k // group, n, 2, generator=made).to(dtype)
    x = torch.randn(5, k, generator=made).to(dtype)
    pairs = (q[:, ::2] << 4 | q[:, 1::2]).to(torch.uint8)
    packed = torch._convert_weight_to_int4pack(pairs.to(name), tiles)
    meta = torch._convert_weight_to_int4pack(pairs.to("meta"), tiles)
    assert (packed.shape, packed.dtype) == (meta.shape, meta.dtype)
    out = torch._weight_int4pack_mm(x.to(name), packed, group, scales.to(name))
    there = torch._convert_weight_to_int4pack_for_cpu(q, 1)
    want = torch._weight_int4pack_mm_for_cpu(x, there, group, scales)
    near = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    torch.testing.assert_close(out.cpu(), want, rtol=near, atol=near * 10)
    with pytest.raises(RuntimeError, match="groups of 48 do not divide"):
        torch._weight_int4pack_mm(x.to(name), packed, 48, scales.to(name))
    with pytest.raises(RuntimeError, match="expected rows by 8"):
        torch._convert_weight_to_int4pack(pairs[:7].to(name), tiles)
