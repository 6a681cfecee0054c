"""Autocast on the device against CUDA's: torch's own lists of operators, and the rules around it.

The lists (torch.testing._internal.autocast_test_lists) are those of torch's tests of CUDA. Each
entry runs in float16 and bfloat16: dtype of every output, the same bits as casting by hand, values
near the CPU's in that dtype.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest
import torch
from same import NAME
from torch import nn
from torch.testing._internal.autocast_test_lists import AutocastTestLists
from torch.utils.checkpoint import checkpoint

HALVES = [torch.float16, torch.bfloat16]
# What each list's operators run in; None: autocast's own dtype.
RUN_AS: dict[str, torch.dtype | None] = {
    "torch_fp16": None, "nn_fp16": None, "linalg_fp16": None, "methods_fp16": None,
    "torch_fp32": torch.float32, "nn_fp32": torch.float32, "methods_fp32": torch.float32,
    "torch_need_autocast_promote": torch.float32, "torch_expect_builtin_promote": torch.float32,
    "methods_expect_builtin_promote": torch.float32,
}  # fmt: skip
CUDAS_ALONE = {"aten::cudnn_convolution", "aten::cudnn_convolution_transpose"}


@functools.cache
def lists() -> Any:
    torch.manual_seed(0)
    return AutocastTestLists("cpu")


def entries() -> list[Any]:
    found = []
    for name in RUN_AS:
        for i, entry in enumerate(getattr(lists(), name)):
            if entry[0].startswith("cudnn_") or entry[0] == "__div__":
                continue  # CUDA's own; Python 2's
            found.append(pytest.param(name, i, id=f"{name}-{i}-{entry[0]}"))
    return found


def cast(value: Any, dtype: torch.dtype | None = None, place: Any = None, only: Any = None) -> Any:
    """Every tensor of floating point in `dtype`, where it is of one of `only`, at `place`."""
    if isinstance(value, torch.Tensor):
        floats = value.is_floating_point() and (only is None or value.dtype == only)
        return value.to(place or value.device, dtype if floats and dtype else value.dtype)
    if isinstance(value, list | tuple):
        return type(value)(cast(v, dtype, place, only) for v in value)
    return value


def flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [x for v in value for x in flat(v)]
    return [value]


def functions(op: str, args: Any, kwargs: Any) -> list[Any]:
    """The ways to call `op`: of torch, of torch._C._nn, a method."""
    homes = [h for h in (torch, torch._C._nn) if hasattr(h, op) and not op.startswith("__")][:1]
    found = [lambda *a, home=home: getattr(home, op)(*a, **kwargs) for home in homes]
    if hasattr(torch.Tensor, op) and isinstance(args[0], torch.Tensor):
        found.append(lambda *a: getattr(a[0], op)(*a[1:], **kwargs))
    return found


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("name", "index"), entries())
def test_an_operator_of_cudas_lists(name, index, dtype):
    op, args, *rest = getattr(lists(), name)[index]
    kwargs = rest[0] if rest and isinstance(rest[0], dict) else {}
    if op == "einsum":  # the list has it in a form that torch's tests leave out
        args = ("bkhd,bqhd->bqkh", *torch.randn(2, 2, 3, 2, 4))
    run_as = RUN_AS[name] or dtype
    out = rest[0] if rest and isinstance(rest[0], torch.dtype) else run_as
    # What the lists have in float16 is what other operators of the region gave: in its dtype.
    args = cast(args, dtype, only=torch.float16)
    there = cast(args, place=NAME)
    for function in functions(op, args, kwargs):
        with torch.autocast(NAME, dtype=dtype):
            found = flat(function(*there))
        if "builtin_promote" not in name:
            by_hand = flat(function(*cast(there, run_as)))
            on_cpu = flat(function(*cast(args, run_as)))
        else:
            by_hand, on_cpu = flat(function(*there)), flat(function(*args))
        for ours, hand, cpu in zip(found, by_hand, on_cpu, strict=True):
            if not isinstance(ours, torch.Tensor):
                assert ours == hand == cpu
                continue
            assert ours.dtype == out
            assert ours.device.type == NAME
            assert torch.equal(ours, hand) or torch.equal(ours.isnan(), hand.isnan())
            # Cells of recurrent networks are fused on a device, and not on the CPU.
            near = {"rtol": 0.05, "atol": 0.02} if "cell" in op else {}
            torch.testing.assert_close(ours.cpu(), cpu, equal_nan=True, **near)


@pytest.mark.parametrize("dtype", HALVES)
def test_what_cuda_forbids_is_forbidden_in_its_words(dtype):
    for op, args, module in lists().banned:
        there = cast(args, place=NAME)
        with torch.autocast(NAME, dtype=dtype), pytest.raises(RuntimeError, match="unsafe to auto"):
            getattr(module, op)(*there)
        getattr(module, op)(*there)


def test_operators_are_registered_that_are_for_cuda_and_no_others():
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    cuda = set(registered("AutocastCUDA"))
    assert len(cuda) > 100
    assert set(registered("AutocastPrivateUse1")) == cuda - CUDAS_ALONE


# --- what autocast leaves alone -------------------------------------------------------------------


def test_other_dtypes_tensors_of_other_devices_and_out_arguments_are_left_alone(device):
    a = torch.randn(4, 4, device=device)
    with torch.autocast(NAME, dtype=torch.bfloat16):
        assert (a.double() @ a.double()).dtype == torch.float64
        assert torch.randn(2, 2).matmul(torch.randn(2, 2)).dtype == torch.float32
        out = torch.empty(4, 4, device=device)
        assert torch.mm(a, a, out=out).dtype == torch.float32
        assert a.clone().addmm_(a, a).dtype == torch.float32
        assert torch.softmax(a.bfloat16(), 0, dtype=torch.float64).dtype == torch.float64
        assert a.sum(dtype=torch.bfloat16).dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.float32


# --- regions -----------------------------------------------------------------------------------


def test_regions_nest_and_give_back_what_was_before(device):
    a = torch.randn(4, 4, device=device)
    assert not torch.is_autocast_enabled(NAME)
    with torch.autocast(NAME, dtype=torch.bfloat16):
        with torch.autocast(NAME, enabled=False):
            assert not torch.is_autocast_enabled(NAME)
            assert (a @ a).dtype == torch.float32
            with torch.autocast(NAME, dtype=torch.float16):
                assert torch.get_autocast_dtype(NAME) == torch.float16
                assert (a @ a).dtype == torch.float16
        assert torch.get_autocast_dtype(NAME) == torch.bfloat16
        assert (a @ a).dtype == torch.bfloat16
    with pytest.raises(ZeroDivisionError), torch.autocast(NAME, dtype=torch.bfloat16):
        raise ZeroDivisionError
    assert (a @ a).dtype == torch.float32
    assert torch.get_autocast_dtype(NAME) == torch.float16  # as CUDA's


def test_the_default_dtype_can_be_set(device):
    a = torch.randn(4, 4, device=device)
    torch.set_autocast_dtype(NAME, torch.bfloat16)
    try:
        with torch.autocast(NAME):
            assert (a @ a).dtype == torch.bfloat16
    finally:
        torch.set_autocast_dtype(NAME, torch.float16)
    torch.set_autocast_enabled(NAME, True)
    try:
        assert (a @ a).dtype == torch.float16
    finally:
        torch.set_autocast_enabled(NAME, False)


def test_a_function_can_be_decorated(device):
    @torch.autocast(NAME, dtype=torch.bfloat16)
    def product(a):
        return a @ a

    a = torch.randn(4, 4, device=device)
    assert product(a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32


def test_a_dtype_that_is_no_half_turns_autocast_off_with_a_warning(device):
    a = torch.randn(4, 4, device=device)
    with pytest.warns(UserWarning, match="not supported"):
        region = torch.autocast(NAME, dtype=torch.float32)
    with region:
        assert (a @ a).dtype == torch.float32


def test_a_region_is_its_threads_own(device):
    a = torch.randn(4, 4, device=device)
    found = []

    def product() -> None:
        found.append((a @ a).dtype)
        with torch.autocast(NAME, dtype=torch.bfloat16):
            found.append((a @ a).dtype)

    with torch.autocast(NAME, dtype=torch.float16):
        thread = threading.Thread(target=product)
        thread.start()
        thread.join()
        assert (a @ a).dtype == torch.float16
    assert found == [torch.float32, torch.bfloat16]


# --- the cache of weights -------------------------------------------------------------------------


def casts(net: nn.Module, x: torch.Tensor, times: int, **options: Any) -> int:
    """How many copies of a weight `times` calls in one region make."""
    import causeway

    with causeway.ledger() as ledger, torch.autocast(NAME, dtype=torch.bfloat16, **options):
        for _ in range(times):
            net(x)
    return sum(row.calls for row in ledger.rows if "copy" in row.operator)


def test_a_weight_is_cast_once_in_a_region_and_at_every_use_without_the_cache(device):
    net = nn.Linear(8, 8, bias=False).to(device)
    x = torch.randn(2, 8, device=device, dtype=torch.bfloat16)
    assert casts(net, x, 3) == 1
    assert casts(net, x, 3, cache_enabled=False) == 3
    with torch.autocast(NAME, dtype=torch.bfloat16):
        first = net(x)
    with torch.no_grad():
        net.weight.zero_()
    with torch.autocast(NAME, dtype=torch.bfloat16):
        assert first.any()
        assert not net(x).any()  # another region casts anew


def test_the_cache_is_of_weights_alone_and_gradients_reach_them(device):
    net = nn.Linear(8, 8, bias=False).to(device)
    x = torch.randn(2, 8, device=device)
    frozen = nn.Linear(8, 8, bias=False).to(device).requires_grad_(False)
    assert casts(frozen, x.bfloat16(), 3) == 3
    with torch.autocast(NAME, dtype=torch.bfloat16):
        with torch.no_grad():
            net(x)
        torch.clear_autocast_cache()
        y = net(x) + net(x)
    y.sum().backward()
    assert net.weight.grad is not None
    assert net.weight.grad.dtype == torch.float32


# --- autograd -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALVES)
def test_custom_functions_cast_as_they_say(device, dtype):
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=NAME)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a.mm(b)

        @staticmethod
        @torch.amp.custom_bwd(device_type=NAME)
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            seen.append((torch.is_autocast_enabled(NAME), torch.get_autocast_dtype(NAME)))
            return grad.mm(b.t()), a.t().mm(grad)

    class Full(Product):
        @staticmethod
        @torch.amp.custom_fwd(device_type=NAME, cast_inputs=torch.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            assert a.dtype == b.dtype == torch.float32
            seen.append(torch.is_autocast_enabled(NAME))
            return a.mm(b)

    a = torch.randn(3, 3, device=device, requires_grad=True)
    b = torch.randn(3, 3, device=device, dtype=dtype, requires_grad=True)
    with torch.autocast(NAME, dtype=dtype):
        first, second = Product.apply(a, a), Full.apply(a, b)
    assert first.dtype == dtype
    assert second.dtype == torch.float32
    (first.sum() + second.sum()).backward()
    assert seen[0] is False
    assert (True, dtype) in seen
    assert (a.grad.dtype, b.grad.dtype) == (torch.float32, dtype)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_computes_again_under_the_same_autocast(device, reentrant):
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
    x = torch.randn(4, 8, device=device, requires_grad=True)
    grads, seen = [], []
    net[0].register_forward_hook(lambda m, i, o: seen.append(o.dtype))
    for again in (False, True):
        net.zero_grad()
        with torch.autocast(NAME, dtype=torch.bfloat16):
            y = checkpoint(net, x, use_reentrant=reentrant) if again else net(x)
        assert y.dtype == torch.bfloat16
        y.sum().backward()
        grads.append([p.grad.clone() for p in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    assert seen == [torch.bfloat16] * 3  # the third is the checkpoint's second time


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_networks_run_in_low_precision_as_on_cuda(device, kind, dtype):
    torch.manual_seed(0)
    net = getattr(nn, kind)(4, 8, num_layers=2, bidirectional=True)
    there = getattr(nn, kind)(4, 8, num_layers=2, bidirectional=True)
    there.load_state_dict(net.state_dict())
    there.to(device)
    x = torch.randn(5, 3, 4)
    with torch.autocast(NAME, dtype=dtype):
        found, last = there(x.to(device))
        found.float().sum().backward()
    assert {t.dtype for t in flat([found, last])} == {dtype}
    torch.testing.assert_close(found.cpu().float(), net(x)[0], rtol=0.02, atol=0.05)
    assert {p.grad.dtype for p in there.parameters()} == {torch.float32}
    cell = getattr(nn, f"{kind}Cell")(4, 8).to(device)
    with torch.autocast(NAME, dtype=dtype):
        assert flat(cell(x[0].to(device)))[0].dtype == dtype


@pytest.mark.parametrize("dtype", HALVES)
def test_attention_and_a_transformer_layer_run_in_low_precision(device, dtype):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).to(device)
    x = torch.randn(2, 5, 16, device=device)
    q = torch.randn(2, 2, 5, 8, device=device)
    with torch.autocast(NAME, dtype=dtype):
        attended = nn.functional.scaled_dot_product_attention(q, q, q)
        out = layer(x)
        out.sum().backward()
    assert attended.dtype == dtype
    assert out.dtype == torch.float32  # layer norm's
    torch.testing.assert_close(out, layer(x), rtol=0.05, atol=0.05)


def test_compiled_code_casts_as_eager_code_does(device):
    net = nn.Linear(4, 4).to(device)

    def f(x):
        with torch.autocast(NAME, dtype=torch.bfloat16):
            return torch.softmax(net(x), 1), net(x)

    x = torch.randn(2, 4, device=device)
    found = torch.compile(f, backend="aot_eager")(x)
    assert [t.dtype for t in found] == [torch.float32, torch.bfloat16]
    assert all(torch.equal(a, b) for a, b in zip(found, f(x), strict=True))
