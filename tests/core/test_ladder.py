"""Which rung serves a call, and that every rung gives what torch's CPU kernel gives."""

from __future__ import annotations

import inspect
import itertools
import warnings
from pathlib import Path

import pytest
import sweep
import torch
import torch.nn.functional as F
from elsewhere import on
from odd_vendors import HERE, compile_c

import causeway
from causeway import _C

ALL = {"ops": "all"}
ALL_DISCRETE = {"ops": "all", "memory_model": "discrete"}
NONE = {"ops": "none"}
STAGED = {"level": "0", "memory_model": "discrete"}
LATER = {"ops": "all", "memory_model": "discrete", "execution": "async"}


def served(call) -> dict[str, str]:
    """Operators that a call went through, with their rungs; what a test needs to make tensors with
    is no part of it.
    """
    with causeway.ledger() as ledger:
        call()
    return {row.operator.removeprefix("aten::"): row.rung for row in ledger.rows}


# --- native, derived, decomposed, host ----------------------------------------------------------


@on(ALL, ALL_DISCRETE)
def test_an_out_call_that_is_offered_is_native() -> None:
    x, y, out = torch.ones(3, 4, 4, device="sim").unbind()
    assert served(lambda: torch.add(x, y, out=out)) == {"add.out": "native"}
    assert served(lambda: torch.mm(x, y, out=out)) == {"mm.out": "native"}
    assert served(lambda: torch.exp(x.t(), out=out)) == {"exp.out": "native"}


@on(ALL, ALL_DISCRETE)
def test_functional_and_in_place_calls_are_derived_from_out() -> None:
    x, y = torch.rand(2, 4, 4, device="sim").unbind()
    assert served(lambda: x + y) == {"add.Tensor": "derived"}
    assert served(lambda: x.add_(y)) == {"add_.Tensor": "derived"}
    assert served(lambda: torch.mm(x, y)) == {"mm": "derived"}
    assert served(lambda: torch.exp_(x)) == {"exp_": "derived"}


@on(ALL, ALL_DISCRETE)
def test_inputs_are_made_contiguous_where_the_kernel_asks() -> None:
    x = torch.rand(4, 4, device="sim")
    assert served(lambda: F.layer_norm(x, (4,))) == {"native_layer_norm": "native"}
    assert served(lambda: F.layer_norm(x.t(), (4,)))["native_layer_norm"] == "derived"
    assert served(lambda: torch.exp(x.t(), out=torch.empty_like(x.t())))["exp.out"] == "native"


@on(ALL, ALL_DISCRETE)
def test_inputs_are_promoted_where_the_kernel_asks() -> None:
    x, whole = torch.rand(4, device="sim"), torch.arange(4, device="sim")
    same, mixed = torch.empty(2, 4, device="sim").unbind()
    assert served(lambda: torch.maximum(x, x, out=same))["maximum.out"] == "native"
    assert served(lambda: torch.maximum(x, whole, out=mixed))["maximum.out"] == "derived"
    torch.testing.assert_close(mixed.cpu(), torch.maximum(x.cpu(), whole.cpu()))


@on(ALL_DISCRETE, LATER)
def test_an_operator_that_the_chip_lacks_is_decomposed_into_those_it_has() -> None:
    x = torch.randn(8, 8, device="sim", requires_grad=True)
    assert served(lambda: F.hardswish(x))["hardswish"] == "decomposed"
    loss = F.hardswish(x).sum()
    assert served(loss.backward)["hardswish_backward"] == "decomposed"
    assert served(lambda: F.hardtanh(x))["hardtanh"] == "decomposed"


@on(ALL, ALL_DISCRETE, NONE, STAGED)
def test_what_nothing_else_serves_runs_on_the_host() -> None:
    x = torch.rand(4, 4, device="sim")
    assert served(lambda: x.cumsum(0))["cumsum"] == "host"
    assert set(served(lambda: torch.linalg.eigh(x)).values()) == {"host"}


@on(NONE, STAGED)
def test_a_chip_without_operators_serves_all_on_the_host() -> None:
    x = torch.rand(4, 4, device="sim")
    calls = served(lambda: torch.relu(x @ x + 1).sum())
    assert set(calls.values()) == {"host"}
    assert len(calls) == 4


@on(
    {"ops": "all", "fault": "op:aten::add.out:*=UNSUPPORTED,op:aten::sum.IntList_out:1=UNSUPPORTED"}
)
def test_a_kernel_that_declines_sends_the_call_one_rung_down() -> None:
    x = torch.arange(6.0, device="sim")
    for _ in range(2):
        assert served(lambda: x + x) == {"add.Tensor": "host"}
        assert served(lambda: x.add_(0)) == {"add_.Tensor": "host"}
    assert (x + x).tolist() == [0, 2, 4, 6, 8, 10]
    assert x.sum(0).item() == 15
    y = torch.arange(6.0, device="sim", requires_grad=True)
    ((y + y) * y).sum().backward()
    assert y.grad.tolist() == [0, 4, 8, 12, 16, 20]


@on(ALL_DISCRETE)
def test_dropout_is_drawn_by_the_chip_where_only_the_host_has_it_as_one() -> None:
    x = torch.full((100, 100), 2.0, device="sim").t().requires_grad_()
    calls = served(lambda: torch.nn.functional.dropout(x, 0.25))
    assert "native_dropout" not in calls
    assert calls["bernoulli_.float"] == "derived"  # it wants contiguous memory
    assert "host" not in calls.values()
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        x.grad = None
        y = torch.nn.functional.dropout(x, 0.25)
        y.sum().backward()
        kept = y.detach().cpu() != 0
        assert 0.7 < kept.float().mean() < 0.8
        assert torch.equal(y.detach().cpu(), kept * (2 / 0.75))
        torch.testing.assert_close(x.grad.cpu(), kept / 0.75)
        assert y.stride() == x.stride()
        found.append(kept)
    assert torch.equal(*found)
    for p in (0.0, 1.0):
        assert torch.nn.functional.dropout(x, p).sum().item() == 20000 * (1 - p)
    assert torch.nn.functional.dropout(x, 0.5, training=False).data_ptr() == x.data_ptr()


@on(ALL)
def test_dropout_is_one_call_of_the_host_where_nothing_moves() -> None:
    x = torch.ones(3, device="sim")
    assert served(lambda: torch.nn.functional.dropout(x)) == {"native_dropout": "host"}


@on(ALL, ALL_DISCRETE)
def test_a_view_is_nobodys_business() -> None:
    x = torch.rand(4, 4, device="sim")
    assert "native" not in served(lambda: x.t().unsqueeze(0).expand(2, 4, 4)).values()
    view = x.t()[1:]
    view.fill_(7)
    assert x[:, 1:].eq(7).all().item()


# --- every rung gives what the CPU gives --------------------------------------------------------


@pytest.mark.parametrize(
    "family", ["pointwise", "binary", "reductions", "shaping", "products", "networks"]
)
@on(ALL, NONE, STAGED, LATER)
def test_results_are_the_cpus(family: str) -> None:
    count, found = sweep.differences(family)
    assert count > 50
    assert not found, f"{len(found)} of {count} cases differ:\n" + "\n".join(found[:20])


@on(ALL)
def test_an_output_made_by_torch_keeps_the_strides_of_the_input() -> None:
    x = torch.rand(4, 3, device="sim").t()
    assert torch.abs(x).stride() == torch.logical_not(x).stride() == (1, 3)


@on(ALL)
@pytest.mark.parametrize("last", ["input", "weight"])
def test_a_convolution_and_its_gradients_keep_channels_last(last: str) -> None:
    made = {"input": torch.rand(2, 3, 8, 8), "weight": torch.rand(4, 3, 3, 3)}
    made[last] = made[last].to(memory_format=torch.channels_last)
    found = []
    for device in ("cpu", "sim"):
        x, weight = (t.to(device).requires_grad_() for t in made.values())
        out = torch.nn.functional.conv2d(x, weight)
        grads = torch.autograd.grad(out, (x, weight), torch.ones_like(out).contiguous())
        found.append([t.stride() for t in (out, *grads)])
    assert found[0] == found[1]


A = torch.ops.aten
# What torch's meta kernels lay out otherwise than its CPU kernels: a gradient and an input.
ODD_LAYOUTS = {
    "elu": lambda g, x: A.elu_backward(g, 1, 1, 1, False, x),
    "softplus": lambda g, x: A.softplus_backward(g, x, 1, 20),
    "hardswish": A.hardswish_backward,
    "hardtanh": lambda g, x: A.hardtanh_backward(g, x, -1, 1),
    "hardsigmoid": A.hardsigmoid_backward,
    "logit": A.logit_backward,
    "mse_loss": lambda g, x: A.mse_loss_backward(g, x, x, 0),
    "mse_loss of all": lambda g, x: A.mse_loss_backward(g.sum(), g, x, 1),
    "smooth_l1_loss": lambda g, x: A.smooth_l1_loss_backward(g, x, x, 0, 1.0),
    "huber_loss": lambda g, x: A.huber_loss_backward(g, x, x, 0, 1.0),
    "log_sigmoid": lambda g, x: A.log_sigmoid_forward(x),
    "log_softmax": lambda g, x: A._log_softmax_backward_data(g, x, 1, x.dtype),
    "binary_cross_entropy": lambda g, x: A.binary_cross_entropy_backward(g, x, g, None, 0),
    "binary_cross_entropy forward": lambda g, x: A.binary_cross_entropy(g, x, None, 0),
    "native_dropout": lambda g, x: A.native_dropout_backward(g, x > 0.5, 2.0),
}
ODD_LAYOUTS_OF_IMAGES = {
    "batch_norm": lambda g, x: A.native_batch_norm_backward(
        g, x, *[x.new_ones(3)] * 5, True, 1e-5, [True] * 3
    ),
    "group_norm": lambda g, x: A.native_group_norm_backward(  # the CPU's wants both laid out alike
        torch.empty_like(x).copy_(g),
        x,
        *[x.new_ones(2, 3)] * 2,
        x.new_ones(3),
        2,
        3,
        36,
        3,
        [True] * 3,
    ),
    "reflection_pad2d": lambda g, x: A.reflection_pad2d(x, [1, 1, 1, 1]),
    "replication_pad2d": lambda g, x: A.replication_pad2d(x, [1, 1, 1, 1]),
}


@on(ALL, ALL_DISCRETE, NONE)
def test_results_have_the_strides_of_the_cpu_where_meta_kernels_have_others() -> None:
    wrong = []
    matrix = (torch.rand(3, 4), torch.rand(4, 3).t())
    image = (torch.rand(2, 3, 6, 6), torch.rand(2, 6, 6, 3).permute(0, 3, 1, 2))
    for calls, made in ((ODD_LAYOUTS, matrix), (ODD_LAYOUTS_OF_IMAGES, image)):
        for (name, call), g, x in itertools.product(calls.items(), made, made):
            want, have = (call(g.to(place), x.to(place)) for place in ("cpu", "sim"))
            if not isinstance(want, tuple):
                want, have = (want,), (have,)
            for w, h in zip(want, have, strict=True):
                if w is not None and w.stride() != h.stride():
                    wrong.append((name, g.stride(), x.stride(), h.stride(), w.stride()))
                if w is not None:
                    torch.testing.assert_close(h.cpu(), w)
    assert not wrong


@on(ALL, ALL_DISCRETE)
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_the_two_halves_of_a_norm_may_be_of_different_rungs(name: str) -> None:
    """Its statistics are float32 on the chip, and of the input's dtype on the CPU."""
    dtype = getattr(torch, name)
    x, weight = torch.randn(4, 6).to(dtype), torch.rand(6)
    halves = ("native_layer_norm", "native_layer_norm_backward")
    for affine, hosted in itertools.product((None, dtype, torch.float32), halves):
        grads = []
        for place in ("cpu", "sim"):
            leaf = x.to(place).requires_grad_()
            w = None if affine is None else weight.to(place, affine)
            with causeway.fallback(hosted):
                out = F.layer_norm(leaf, (6,), w, w)
                grads += torch.autograd.grad(
                    out, leaf, torch.linspace(0, 1, 6).to(out).expand(4, 6)
                )
        torch.testing.assert_close(grads[1].cpu(), grads[0], atol=3e-2, rtol=3e-2)


@on(ALL, ALL_DISCRETE, NONE, STAGED)
@pytest.mark.parametrize("name", ["float32", "float16"])
def test_a_batch_norm_updates_its_running_statistics(name: str) -> None:
    """torch's schema does not say that the operator writes them."""
    dtype = getattr(torch, name)
    x, found = torch.randn(5, 4, 3).to(dtype), []
    for place in ("cpu", "sim"):
        weight, bias, mean, var = torch.ones(4, 4, dtype=dtype, device=place).unbind()
        for _ in range(2):
            F.batch_norm(x.to(place), mean, var, weight, bias, True)
        outs = [torch.empty(0, dtype=dtype, device=place) for _ in range(3)]
        A.native_batch_norm.out(
            x.to(place), weight, bias, mean, var, True, 0.1, 1e-5,
            out=outs[0], save_mean=outs[1], save_invstd=outs[2],
        )  # fmt: skip
        found.append([t.cpu() for t in (mean, var)])
    assert not found[0][0].eq(1).any()
    # Three updates of a mean near nothing, each rounded to half precision.
    bounds = {"atol": 2e-3, "rtol": 2e-3} if name == "float16" else {}
    torch.testing.assert_close(found[1], found[0], **bounds)


@on(ALL_DISCRETE, STAGED)
def test_a_tensor_of_nothing_may_begin_anywhere() -> None:
    x, empty = torch.ones(1, 1, device="sim"), torch.empty(0, 2, device="sim").select(1, 1)
    assert empty.storage_offset() == 1
    assert x.masked_scatter(x < 0, empty).item() == 1


@on(ALL, ALL_DISCRETE, NONE, STAGED)
def test_an_output_that_is_also_an_input_is_not_resized() -> None:
    for place in ("cpu", "sim"):
        x, y = torch.ones(5, 1, device=place), torch.ones(5, device=place)
        for call in (lambda x=x, y=y: x.ldexp_(y), lambda x=x, y=y: torch.mul(x, y, out=x)):
            with pytest.raises(RuntimeError, match="shape"):
                call()


@on(ALL_DISCRETE)
def test_an_operator_whose_decomposition_gives_up_runs_on_the_host() -> None:
    x = torch.rand(1, 4, 5, 5)
    for size in ((2, 3), (5, 5), (2, None)):
        want, where = F.adaptive_max_pool2d(x, size, return_indices=True)
        have, there = F.adaptive_max_pool2d(x.to("sim"), size, return_indices=True)
        assert torch.equal(have.cpu(), want)
        assert torch.equal(there.cpu(), where)


@on(ALL)
def test_positions_that_are_not_zero_come_column_major() -> None:
    for x in (torch.eye(3), torch.tensor(5.0), torch.zeros(2, 3), torch.ones(4)):
        want, have = torch.nonzero(x), torch.nonzero(x.to("sim"))
        assert torch.equal(have.cpu(), want)
        assert have.stride() == want.stride()


@on(ALL, NONE, STAGED)
def test_a_window_that_torch_has_a_kernel_for_by_device_is_made() -> None:
    for arguments in ((7,), (7, False), (7, True, 10.0)):
        want = torch.kaiser_window(*arguments)
        assert torch.equal(torch.kaiser_window(*arguments, device="sim").cpu(), want)


@on(ALL)
def test_a_result_is_not_put_into_a_dtype_that_the_cpu_refuses() -> None:
    x = torch.rand(4, device="sim")
    for call, dtype in ((torch.amax, torch.float64), (torch.softmax, torch.float64)):
        with pytest.raises(RuntimeError, match="dtype"):
            call(x, 0, out=torch.empty(0, dtype=dtype, device="sim"))


@on(ALL, ALL_DISCRETE)
def test_an_integer_in_place_refuses_a_result_that_is_none() -> None:
    whole = torch.arange(1, 5, device="sim")
    for call in (lambda: (whole > 2).mul_(2), whole.exp_, lambda: whole.div_(whole)):
        with pytest.raises(RuntimeError, match="can't be cast"):
            call()
    assert whole.tolist() == [1, 2, 3, 4]


@on(ALL_DISCRETE)
def test_a_decomposed_operator_refuses_what_the_cpu_refuses() -> None:
    whole, mask = torch.arange(1, 5, device="sim"), torch.ones(3, dtype=torch.bool, device="sim")
    for call in (whole.exp_, lambda: mask - 2, mask.relu, lambda: mask.add_(2)):
        with pytest.raises(RuntimeError):
            call()
    assert whole.tolist() == [1, 2, 3, 4]


@on(ALL)
def test_the_largest_of_nothing_is_refused() -> None:
    for call in (torch.max, torch.min, lambda x: torch.min(x, 0)):
        with pytest.raises((RuntimeError, IndexError)):
            call(torch.empty(0, 4, device="sim", dtype=torch.int64))


# --- what a kernel asked for, it gets -----------------------------------------------------------

ASKS = """
import torch, causeway
exec({served!r})
x = torch.arange(12.0).view(3, 4)
d = x.to("test")
out = torch.empty(3, 4, device="test")
assert served(lambda: torch.add(d, d, out=out)) == {{"add.out": "native"}}
assert torch.equal(out.cpu(), x + x)
cases = [
    ("add of contiguous", lambda x: x + x, "derived"),
    ("add of transposed", lambda x: x.t() + x.t(), "derived"),
    ("add of transposed and dense", lambda x: x.t() + x.reshape(4, 3), "derived"),
    ("add of a row", lambda x: x + x[0], "derived"),
    ("add of a column", lambda x: x[:, :1] + x, "derived"),
    ("add of whole numbers", lambda x: x + x.to(torch.int32), "derived"),
    ("add of a number", lambda x: x + 2, "derived"),
    ("add with alpha", lambda x: torch.add(x, x, alpha=-1.5), "derived"),
    ("add of a CPU scalar", lambda x: x + torch.tensor(3), "derived"),
    ("add of an expanded tensor", lambda x: x[:1].expand(5, 4) + x[0], "derived"),
    ("add of nothing", lambda x: x[:0] + x[:0], "derived"),
    ("add of zero-dim", lambda x: x[0, 0] + x[1, 1], "derived"),
    ("add into a slice", lambda x: x.clone()[:, 1].add_(x[:, 2]), "derived"),
    ("add to itself", lambda x: x.clone().add_(x), "derived"),
    ("add of float64", lambda x: x.double() + x, "host"),
    ("add of int64", lambda x: x.long() + x.long(), "host"),
    ("neg of few", lambda x: -x[:2], "derived"),
    ("neg of transposed", lambda x: -x[:, :2].t(), "derived"),
    ("neg of many", lambda x: -x, "host"),
    ("neg of few again", lambda x: -x[:2], "derived"),
]
for title, f, rung in cases:
    if ("transposed" in title) != {transposed}:
        continue
    want = f(x)
    with causeway.ledger() as ledger:
        have = f(d)
    rungs = {{r.rung for r in ledger.rows if r.operator.split("::")[1].startswith(title[:3])}}
    assert rungs == {{rung}}, (title, rungs, rung)
    assert have.dtype == want.dtype and have.stride() == want.stride(), title
    assert torch.equal(have.cpu(), want), (title, have, want)
y = d.clone().requires_grad_()
(y + y[0] + 1).sum().backward()
assert y.grad.tolist() == [[4.0] * 4, [1.0] * 4, [1.0] * 4], y.grad
"""


@pytest.fixture(scope="module")
def asking_vendor(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = Path(__file__).parent / "vendors/asks.c"
    library = tmp_path_factory.mktemp("vendor") / "libcw_asks.so"
    return str(compile_c(source, library, f"-I{HERE / 'vendors'}", "-DASKS_STORAGE"))


def test_a_kernel_gets_what_it_asked_for(run, asking_vendor: str) -> None:
    program = ASKS.format(served=inspect.getsource(served), transposed=False)
    run(program, CAUSEWAY_VENDOR=asking_vendor)


def test_a_kernel_that_asked_for_contiguous_tensors_gets_contiguous_outputs(
    run, asking_vendor: str
) -> None:
    program = ASKS.format(served=inspect.getsource(served), transposed=True)
    run(program, CAUSEWAY_VENDOR=asking_vendor)


def test_what_a_kernel_writes_beside_its_outputs_is_kept(run, asking_vendor: str) -> None:
    program = """
        import torch
        x, weight = torch.rand(3, 4, device="test"), torch.ones(4, device="test")
        running = torch.zeros(4, 2, device="test")
        torch.native_batch_norm(x, weight, weight, running[:, 0], running[:, 1], True, 0.1, 1e-5)
        assert running.cpu().tolist() == [[7.0, 0.0]] * 4, running
    """
    run(program, CAUSEWAY_VENDOR=asking_vendor)


def test_a_kernel_can_ask_what_memory_a_tensor_is_a_part_of(run, asking_vendor: str) -> None:
    program = """
        import torch
        x = torch.zeros(8, 4, device="test")
        def found(t): return torch.cos(t).flatten()[:2].tolist()
        assert found(x) == [0, 128], found(x)
        assert found(x[3:5]) == [48, 128]
        assert found(x.view(-1)[:2]) == [0, 128]
        foreign = torch.from_dlpack(x.__dlpack__())  # somebody else may know what lies behind it
        assert found(foreign[1]) == [-1, -1], found(foreign[1])
    """
    run(program, CAUSEWAY_VENDOR=asking_vendor)


LISTS = """
import torch, causeway
from torch import _foreach_mul, _foreach_mul_, _foreach_neg, _foreach_neg_

def run(call, *lists):
    here = [[t.clone() for t in ts] for ts in lists]
    there = [[t.to("test") for t in ts] for ts in lists]
    want = call(*here) or here[0]
    with causeway.ledger() as ledger:
        have = call(*there) or there[0]
    for w, h in zip(want, have, strict=True):
        assert w.dtype == h.dtype and torch.equal(w, h.cpu()), (w, h)
    return {r.rung for r in ledger.rows if "_foreach" in r.operator}

some = [torch.arange(6.0).view(2, 3), torch.ones(()), torch.ones(0)]
assert run(lambda x: _foreach_mul(x, 3), some) == {"derived"}
assert run(lambda x: _foreach_mul_(x, 0.5), some) == {"derived"}
assert run(_foreach_neg_, some) == {"native"}
# Tensor by tensor: no kernel, a kernel that declines, and lists that none takes.
assert run(_foreach_neg, some) == set()
assert run(lambda x: _foreach_mul_(x, 0.0), some) == set()
assert run(lambda x: _foreach_mul(x, 3), [some[0], some[0].long()]) == set()
assert run(lambda x: _foreach_mul(x, 1.5), [some[0].long()]) == set()
turned = [t.t() for t in some[:2]]
d = [t.to("test").t() for t in some[:2]]
assert [t.tolist() for t in _foreach_mul(d, 3)] == [t.tolist() for t in _foreach_mul(turned, 3)]
# What is written twice, or read elsewhere, is written in torch's order.
base = torch.arange(8.0)
for pick in (lambda x: [x[:3], x[2:5]], lambda x: [x, x]):
    here, there = base.clone(), base.to("test")
    _foreach_mul_(pick(here), 3.0)
    with causeway.ledger() as ledger:
        _foreach_mul_(pick(there), 3.0)
    assert torch.equal(here, there.cpu())
    assert not any("_foreach" in r.operator for r in ledger.rows)
# torch's own words.
for call in (lambda x: _foreach_mul_(x, 1.5), lambda x: _foreach_mul(x, [1.0, 2.0, 3.0])):
    said = set()
    for device in ("cpu", "test"):
        try:
            call([torch.ones(2, dtype=torch.int64, device=device)])
        except RuntimeError as error:
            said.add(str(error))
    assert len(said) == 1, said
# A gradient passes through.
x = torch.ones(3, device="test", requires_grad=True)
_foreach_mul([x], 4.0)[0].sum().backward()
assert x.grad.tolist() == [4.0] * 3
"""


def test_lists_of_tensors_reach_a_kernel_whole(run, asking_vendor: str) -> None:
    run(LISTS, CAUSEWAY_VENDOR=asking_vendor)


# This vendor cannot be asked beforehand whether its kernel takes a call (check.v1).
CAPTURED = """
import torch
x = [torch.ones(3, device="test"), torch.ones(2, device="test")]
torch._foreach_mul_(x, 2.0)
graph = torch.test.CUDAGraph()
with torch.test.graph(graph):
    torch._foreach_mul_(x, 2.0)
graph.replay()
assert [t.tolist() for t in x] == [[4.0] * 3, [4.0] * 2], x
# One that declined such a call is not asked again: tensor by tensor, as before the capture.
x = [torch.ones(2, device="test") for _ in range(4)]
torch._foreach_neg_(x)
with torch.test.graph(graph := torch.test.CUDAGraph()):
    torch._foreach_neg_(x)
graph.replay()
assert [t.tolist() for t in x] == [[1.0, 1.0]] * 4, x
"""


def test_a_capture_knows_which_lists_a_kernel_took_before(run, asking_vendor: str) -> None:
    run(CAPTURED, CAUSEWAY_VENDOR=asking_vendor)


# --- the host rung, with copies and without -----------------------------------------------------

HOST = (NONE, STAGED, {"ops": "none", "memory_model": "discrete", "execution": "async"})


def agree(f, *shape: int) -> None:
    """`f`, given a tensor, makes and changes tensors; both sides must end with the same ones."""
    x = torch.arange(float(torch.Size(shape).numel())).view(shape) / 4 + 1
    want, have = f(x.clone()), f(x.to("sim"))
    for w, h in zip(want, have, strict=True):
        assert h.device.type == "sim"
        assert (w.shape, w.stride(), w.storage_offset()) == (
            h.shape,
            h.stride(),
            h.storage_offset(),
        )
        torch.testing.assert_close(h.cpu(), w)


@on(*HOST)
def test_arguments_that_are_one_tensor_stay_one() -> None:
    agree(lambda x: [x, x.add_(x)], 3, 4)
    agree(lambda x: [x, torch.mul(x, x, out=x)], 3, 4)
    agree(lambda x: [x, x.addcmul_(x, x)], 3, 4)
    agree(lambda x: [x, x[0].add_(x[1]), x[1].mul_(x[0])], 3, 4)
    agree(lambda x: [x, x.t().add_(x.clone())], 4, 4)


@on(*HOST)
def test_out_may_be_a_view_beside_its_inputs() -> None:
    agree(lambda x: [x, torch.add(x[:2], x[1:3], out=x[3:])], 5, 4)
    agree(lambda x: [x, torch.exp(x[:, 0], out=x[:, 3])], 4, 5)
    agree(lambda x: [x, torch.mm(x[:2, :2], x[:2, 2:4], out=x[2:4, 1:3])], 4, 5)
    agree(lambda x: list(torch.max(x[0], 0, out=(x[1, 0], torch.empty_like(x[0, 0]).long()))), 2, 3)


@on(*HOST)
def test_out_that_overlaps_itself_is_refused() -> None:
    x = torch.rand(8, device="sim")
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.exp(x[:-1], out=x[1:])
    with pytest.raises(RuntimeError, match="unsupported operation"):
        x[:1].expand(4).add_(1)


@on(*HOST)
def test_out_is_resized_as_torch_does() -> None:
    agree(lambda x: [torch.exp(x, out=x.new_empty(0))], 3, 4)
    agree(lambda x: [torch.cumsum(x, 0, out=x.new_empty(0)), x], 3, 4)
    agree(lambda x: [torch.mm(x, x.t(), out=x.new_empty(0)), x], 3, 4)
    agree(lambda x: list(torch.sort(x, out=(x.new_empty(0), x.new_empty(0).long()))), 3, 4)
    agree(lambda x: [torch.cat([x, x], out=x.new_empty(0))], 3, 4)
    agree(lambda x: [torch.nonzero(x > 2, out=x.new_empty(0).long())], 3, 4)


@on(*HOST)
def test_a_returned_view_shares_memory_with_its_base() -> None:
    def views(x):
        pieces = [x.t(), x[1:], x.view(-1)[::3], x.diagonal(), x.unfold(1, 2, 1), *x.split(1, 1)]
        pieces += [x.squeeze(), x.unsqueeze(1), x.expand(2, 3, 4), x.permute(1, 0), x.detach()]
        for i, piece in enumerate(pieces):
            if 0 not in piece.stride():
                piece[..., 0] += i
        return [x, *pieces]

    agree(views, 3, 4)
    x = torch.zeros(3, 2, dtype=torch.complex64, device="sim")
    torch.view_as_real(x).fill_(1)
    x.imag.add_(1)
    assert x.cpu().eq(1 + 2j).all()


@on(*HOST)
def test_a_slice_is_changed_in_place_and_nothing_beside_it() -> None:
    def changes(x):
        x[1::2, ::3].mul_(10)
        x.t()[2].fill_(-1)
        x[:, 1:3].cumsum_(0)
        x[x > 20] = 0
        x[0].clamp_(max=2)
        x.view(-1)[5:9].exp_()
        x.diagonal().zero_()
        x[:, 0].copy_(x[:, 4])
        x.select(0, 2).index_fill_(0, torch.tensor([1, 3], device=x.device), 5)
        x[3:].scatter_add_(1, torch.zeros(1, 2, dtype=torch.long, device=x.device), x[:1])
        x.transpose(0, 1)[4:].normal_(0, 0)
        return [x]

    agree(changes, 4, 6)


@on(*HOST, ALL)
def test_lists_of_tensors_are_served() -> None:
    def lists(x):
        a, b = [x.clone(), x[0].clone(), x.new_empty(0)], [x + 1, x[1], x.new_empty(0)]
        made = torch._foreach_add(a, b, alpha=2)
        torch._foreach_mul_(a, 3)
        torch._foreach_addcdiv_(a, b, b, value=0.5)
        torch._foreach_lerp_(a, b, 0.25)
        torch._foreach_copy_(b[:2], a[:2])
        norms = torch._foreach_norm(a[:2])
        shared = [x[0], x[1]]
        torch._foreach_add_(shared, [x[1], x[2]])
        return [*made, *a, *b, *norms, *shared, x]

    agree(lists, 3, 4)


@on(*HOST)
def test_complex_and_conjugated_tensors_are_served() -> None:
    z = torch.arange(6).view(2, 3) * (1 + 2j)
    d = z.to("sim")
    for f in (lambda t: t.conj() * t, lambda t: t.conj().mT @ t, lambda t: t.imag.neg() + t.real):
        torch.testing.assert_close(f(d).cpu(), f(z))
    d.conj().mul_(2j)
    torch.testing.assert_close(d.cpu(), (z.conj() * 2j).conj().resolve_conj())


@on(ALL, ALL_DISCRETE)
def test_a_chain_of_views_becomes_one_copy() -> None:
    cube, half = torch.rand(2, 8, 9, device="sim"), torch.rand(4, 4, device="sim").half()
    with causeway.ledger() as ledger:
        F.layer_norm(cube.permute(1, 2, 0)[:, ::2].transpose(0, 2)[..., 1:5], (4,))
    assert ledger.total(operator="copy_") == 1, ledger.rows
    with causeway.ledger() as ledger:  # converted, expanded and made dense
        torch.where(torch.ones(3, 4, 4, dtype=torch.bool, device="sim"), half.t(), 1.0)
    assert ledger.total(operator="copy_") <= 2, ledger.rows


# --- the ledger counts each call once -----------------------------------------------------------


@on(ALL, ALL_DISCRETE, NONE, STAGED)
def test_calls_over_all_rungs_add_up() -> None:
    x = torch.rand(4, 4, device="sim")
    before = sum(row[3] for row in _C.ledger_read())
    with causeway.ledger() as ledger:
        for _ in range(5):
            (x @ x).add_(1).cumsum(0)
    rungs = ("native", "derived", "decomposed", "portable", "host")
    assert sum(ledger.total(rung=rung) for rung in rungs) == ledger.total() == 15
    assert sum(row[3] for row in _C.ledger_read()) - before == 15
    assert {ledger.total(operator=name) for name in ("mm", "add_.Tensor", "cumsum")} == {5}


@on(STAGED, {"ops": "none", "memory_model": "discrete", "execution": "async"})
def test_bytes_that_the_host_rung_copies_are_counted() -> None:
    x, y = torch.rand(2, 256, device="sim").unbind()
    for call, bytes in (
        (x.sin, 2 * 1024),
        (lambda: x + y, 3 * 1024),
        (lambda: x + x, 2 * 1024),
        (x.sin_, 2 * 1024),
        (x[:64].sin, 2 * 256),
        (lambda: x[64:128].mul_(2), 2 * 256),
        (x.sum, 1024 + 4),
        (lambda: x.view(16, 16), 0),
    ):
        with causeway.ledger() as ledger:
            call()
        assert ledger.total("bytes") == bytes, (ledger.rows, bytes)


@on(NONE)
def test_the_host_rung_copies_nothing_in_unified_memory() -> None:
    x = torch.rand(256, device="sim")
    with causeway.ledger() as ledger:
        x.sin_().add(x).cumsum(0).sum()
    assert ledger.total(rung="host") == 4
    assert ledger.total("bytes") == 0


@on(ALL_DISCRETE, LATER)
def test_native_calls_copy_nothing() -> None:
    x = torch.rand(16, 16, device="sim")
    with causeway.ledger() as ledger:
        ((x @ x).t() + 1).sum()
    assert ledger.total("bytes") == 0
    assert ledger.total(rung="host") == 0


@on(ALL)
def test_an_inner_ledger_sees_its_part_only() -> None:
    x = torch.rand(4, device="sim")
    with causeway.ledger() as outer:
        x.add(1)
        with causeway.ledger() as inner:
            x.cumsum(0)
        x.add(1)
    assert [(r.operator, r.rung) for r in inner.rows] == [("aten::cumsum", "host")]
    assert outer.total(rung="derived") == 2
    assert outer.total() == 3


# --- forcing, and the policy --------------------------------------------------------------------


@on(ALL, ALL_DISCRETE)
def test_an_operator_is_forced_to_the_host_at_run_time_and_comes_back() -> None:
    x = torch.arange(4.0, device="sim")
    assert served(lambda: x + x) == {"add.Tensor": "derived"}
    for names in (" add.* , mm", "aten::add.Tensor", ["add"], "add[.].*"):
        with causeway.fallback(names):
            assert served(lambda: x + x) == {"add.Tensor": "host"}
            assert (x + x).tolist() == [0, 2, 4, 6]
    assert served(lambda: x + x) == {"add.Tensor": "derived"}


@on(ALL | {"CAUSEWAY_FALLBACK": "mm , exp.*"})
def test_the_environment_forces_too_and_run_time_takes_over() -> None:
    x = torch.rand(4, 4, device="sim")
    assert served(lambda: x @ x) == {"mm": "host"}
    assert served(x.exp_) == {"exp_": "host"}
    with causeway.fallback(""):
        assert served(lambda: x @ x) == {"mm": "derived"}
    assert served(lambda: x @ x) == {"mm": "host"}


@on(ALL)
def test_an_unknown_operator_raises_with_the_nearest_and_changes_nothing() -> None:
    x = torch.rand(4, 4, device="sim")
    for wrong, near in (("ad.out", "add.out"), ("bnm", "bmm"), ("softmaxx", "softmax")):
        with pytest.raises(causeway.ConfigError, match=f"did you mean '_?{near}"):
            causeway.fallback(wrong)
    assert served(lambda: x @ x) == {"mm": "derived"}


@on(ALL, ALL_DISCRETE)
def test_the_policy_refuses_the_host_rung_and_no_other() -> None:
    x = torch.rand(4, 4, device="sim")
    with causeway.policy("error"):
        x @ x + 1
        with pytest.raises(causeway.FallbackError, match=r"aten::cumsum would run on the host"):
            x.cumsum(0)
        with causeway.policy("allow"):
            x.cumsum(0)
        with pytest.raises(causeway.FallbackError):
            x.cumsum(0)
    x.cumsum(0)


@on(ALL)
def test_a_view_is_no_fallback_to_the_policy() -> None:
    x = torch.rand(4, 4, device="sim")
    with causeway.policy("error"):
        for view in (x.t(), x[1:], x.view(-1), x.unsqueeze(0), x.expand(2, 4, 4), x.detach()):
            assert view.data_ptr()
        torch.empty(3, device="sim")


@on(ALL_DISCRETE, STAGED)
def test_a_copy_across_is_no_fallback_to_the_policy() -> None:
    copy_both_ways_where_no_fallback_is_allowed()


@on(ALL, NONE)
def test_a_copy_across_in_unified_memory_is_no_fallback_to_the_policy() -> None:
    copy_both_ways_where_no_fallback_is_allowed()


def copy_both_ways_where_no_fallback_is_allowed() -> None:
    with causeway.policy("error"):
        x = torch.rand(4, 4).to("sim")
        assert x.to("cpu").sum() > 0
        x.copy_(torch.ones(4, 4))
        assert x[0, 0].item() == 1


@on(ALL)
def test_the_policy_warns_once_for_each_operator() -> None:
    x = torch.rand(4, 4, device="sim")
    with causeway.policy("warn"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            x.cumsum(0)
            x.cumprod(0)
            x @ x
    words = sorted(str(w.message).split(" ")[0] for w in said)
    assert words == ["aten::cumprod", "aten::cumsum"], words


@on(ALL)
def test_the_policy_holds_for_the_operators_named_and_after_its_budget() -> None:
    x = torch.rand(4, 4, device="sim")
    with causeway.policy("error", only=["cumsum.*"], budget=3):
        for _ in range(3):
            x.cumsum(0)
            x.cumprod(0)
        with pytest.raises(causeway.FallbackError):
            x.cumsum(0)
        x.cumprod(0)


@on(ALL)
def test_a_refused_call_leaves_its_arguments_alone() -> None:
    x = torch.ones(4, device="sim")
    with causeway.policy("error"), pytest.raises(causeway.FallbackError):
        x.cumsum_(0)
    assert x.tolist() == [1, 1, 1, 1]
