"""The decomposed rung: an operator that the vendor lacks, by those that it has, or not at all."""

import gc

import pytest
import torch

from causeway.ops import decompose

ALL = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.bool]
OFFERED = [
    "add.out",
    "amax.out",
    "clamp.out",
    "clamp_max.out",
    "clamp_min.out",
    "div.out",
    "exp.out",
    "fill_.Scalar",
    "log.out",
    "mean.out",
    "mul.out",
    "neg.out",
    "rsqrt.out",
    "sqrt.out",
    "sub.out",
    "sum.IntList_out",
    "abs.out",
    "where.self_out",
    "zero_",
    "copy_",
    *(
        f"{name}.{kind}_out"
        for name in ("lt", "gt", "le", "ge", "eq")
        for kind in ("Scalar", "Tensor")
    ),
]


@pytest.fixture
def offers(monkeypatch):
    """A vendor that offers OFFERED, less and more what the test says."""

    def offer(*, without=(), dtypes=ALL, also=()):
        names = [n for n in [*OFFERED, *also] if n not in without]
        table = {f"aten::{n}": {"needs": decompose._PROMOTION, "dtypes": dtypes} for n in names}
        monkeypatch.setattr(decompose, "_offered", lambda: table)
        for cached in (decompose._decomposed,):
            cached.cache_clear()

    offer()
    yield offer
    decompose._decomposed.cache_clear()


@pytest.fixture
def x(device):
    torch.manual_seed(0)
    return torch.randn(4, 8, device=device)


def compute(name, args, kwargs):
    """By the plan and on the CPU."""
    plan = decompose.decomposition(name, args, kwargs)
    assert plan is not None
    on_cpu = [decompose._to(v, "cpu") for v in args]
    cpu = decompose._overload(name)(*on_cpu, **kwargs)
    return plan(*args, **kwargs), cpu


CASES = {
    "aten::hardswish": lambda x: ((x,), {}),
    "aten::leaky_relu": lambda x: ((x, 0.1), {}),
    "aten::addr": lambda x: ((x, x[:, 0], x[0]), {"beta": 2}),
    "aten::lerp.Scalar": lambda x: ((x, x + 1, 0.25), {}),
    "aten::huber_loss": lambda x: ((x, x * 2, 1, 0.5), {}),
    "aten::smooth_l1_loss": lambda x: ((x, x * 2), {}),
    "aten::native_group_norm": lambda x: ((x.view(1, 8, 4), None, None, 1, 8, 4, 2, 1e-5), {}),
    "aten::var.correction": lambda x: ((x, [1]), {"correction": 0, "keepdim": True}),
    "aten::std.correction": lambda x: ((x,), {}),
    "aten::var_mean.correction": lambda x: ((x, [-1]), {}),
    "aten::rsub.Scalar": lambda x: ((x, 2, 1), {}),
    "aten::_log_softmax": lambda x: ((x, 1, False), {}),
    "aten::threshold": lambda x: ((x, 0.5, 7.0), {}),
    "aten::_weight_norm_interface": lambda x: ((x, x[:, :1] + 2, 0), {}),
    "aten::_weight_norm_interface_backward": lambda x: (
        (x, x + 1, x[:1] + 2, (x + 1).norm(dim=0, keepdim=True), 1), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_the_cpus(offers, x, name):
    ours, theirs = compute(name, *CASES[name](x))
    ours, theirs = ([t] if isinstance(t, torch.Tensor) else list(t) for t in (ours, theirs))
    for a, b in zip(ours, theirs, strict=True):
        assert a.device == x.device
        assert a.dtype == b.dtype
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", [None, "positions", "padded", "both", "added"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoders_layer_is_the_cpus(mask, norm_first):
    torch.manual_seed(0)
    kind = {None: None, "positions": 0, "padded": 1, "both": 2, "added": 0}[mask]
    shape = [(5, 5), (2, 5), (2, 4, 5, 5)][kind or 0]
    given = None if mask is None else torch.rand(shape) < 0.3
    if mask == "added":  # as modules make of a mask
        given = torch.zeros(shape).masked_fill(given, -torch.inf)
    r = torch.randn
    args = (r(2, 5, 16), 16, 4, r(48, 16), r(48), r(16, 16), r(16), not norm_first, norm_first)
    args += (1e-5, r(16), r(16), r(16), r(16), r(32, 16), r(32), r(16, 32), r(16), given, kind)
    expected = torch._transformer_encoder_layer_fwd(*args)
    found = decompose.encoder_layer(*args)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_in_place_and_out_forms(offers, x):
    expected = torch.nn.functional.hardswish(x.cpu())
    out = torch.empty_like(x)
    plan = decompose.decomposition("aten::hardswish.out", (x,), {"out": out})
    assert plan(x, out=out) is out
    torch.testing.assert_close(out.cpu(), expected)
    small = torch.empty(0, device=x.device)
    plan(x, out=small)
    torch.testing.assert_close(small.cpu(), expected)
    y = x.clone()
    plan = decompose.decomposition("aten::hardswish_", (y,), {})
    assert plan(y) is y
    torch.testing.assert_close(y.cpu(), expected)


def test_equal_reads_one_bool(offers, x):
    offers(also=("all.all_out",))
    nan = torch.full_like(x, float("nan"))
    for a, b, same in (
        (x, x.clone(), True), (x.t(), x.t().contiguous(), True), (x, -x, False), (nan, nan, False),
        (x, x[:2], False), (x[:0], x[:0], True), (x > 0, x > 0, True), (x > 0, x < 0, False),
        (x, x.half().float(), False), (x.half(), x.half().float(), True),
    ):  # fmt: skip
        assert torch.equal(a.cpu(), b.cpu()) is same
        plan = decompose.decomposition("aten::equal", (a, b), {})
        assert plan is not None
        assert plan(a, b) is same
        assert torch.equal(a, b) is same


def test_none_where_an_operator_is_missing(offers, x):
    offers(without=("clamp_min.out", "clamp.out", "clamp_max.out"))
    assert decompose.decomposition("aten::hardswish", (x,), {}) is None
    offers(without=OFFERED)
    assert decompose.decomposition("aten::hardswish", (x,), {}) is None


def test_none_where_a_dtype_is_missing(offers, x):
    offers(dtypes=[torch.float16])
    assert decompose.decomposition("aten::leaky_relu", (x,), {}) is None


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten::bernoulli", lambda x: (x.sigmoid(),)),  # other numbers than the generator's
        ("aten::nonzero", lambda x: (x,)),  # a shape that depends on data
        ("aten::cumsum", lambda x: (x, 0)),  # memory of the square
        ("aten::_local_scalar_dense", lambda x: (x[0, 0],)),
        ("aten::view", lambda x: (x, [32])),
        ("aten::eye", lambda x: (3,)),
        ("aten::no_such_operator", lambda x: (x,)),
        ("nowhere::add", lambda x: (x,)),
    ],
)
def test_none_where_there_is_no_honest_decomposition(offers, x, name, args):
    assert decompose.decomposition(name, args(x), {}) is None


@pytest.mark.parametrize("name", ["upsample_nearest2d", "_upsample_nearest_exact2d"])
def test_nearest_neighbours_stay_in_the_input(offers, x, name):
    offers(also=["index.Tensor_out", "arange.start_out"])
    image = x[None, None]
    nearest = decompose.decomposition(f"aten::{name}", (image, [8, 16], 2.0, 2.0), {})
    # A scale that is not of these sizes; the CPU stops at the end of the input.
    odd = (image, [8, 16], 0.25, 2.0)
    assert decompose.decomposition(f"aten::{name}", odd, {}) is None
    for args in ((image, [8, 16], 2.0, 2.0), odd):
        on_cpu = (args[0].cpu(), *args[1:])
        expected = getattr(torch.ops.aten, name)(*on_cpu)
        assert torch.equal(nearest(*args).cpu(), expected)


def test_none_for_cpu_tensors_and_while_planning(offers, x):
    assert decompose.decomposition("aten::leaky_relu", (x.cpu(),), {}) is None
    with decompose._planning():
        assert decompose.decomposition("aten::leaky_relu", (x,), {}) is None


def test_other_shapes_and_numbers_are_new_programs(offers, x):
    plan = decompose.decomposition("aten::leaky_relu", (x, 0.1), {})
    for value in (x[1:], x.t(), x[:0], x.half()):
        for slope in (0.1, 0.5, 2):
            expected = torch.nn.functional.leaky_relu(value.cpu(), slope)
            ours = plan(value, slope)
            assert ours.dtype == expected.dtype
            torch.testing.assert_close(ours.cpu(), expected, rtol=1e-3, atol=1e-3)
    assert len(plan.programs) >= 12
    for step in range(200):
        plan(x, 0.01 * step)
    assert len(plan.programs) <= decompose.MAX_PROGRAMS


def test_numbers_that_stand_for_dtypes(offers, x):
    offers(also=("pow.Tensor_Scalar_out",))
    number = 7  # c10::ScalarType::Double, as the core hands it on
    plan = decompose.decomposition("aten::_softmax", (x, 1, False), {})
    assert plan is not None
    plan = decompose._decomposed("aten::sum.dim_IntList")
    if plan is not None:
        _, kwargs = plan._with_enums((x, [0], False), (("dtype", number),))
        assert kwargs["dtype"] is torch.float64


def test_replay_calls_operators_and_nothing_else(offers, x):
    plan = decompose.decomposition("aten::hardswish", (x,), {})
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Seen():
        plan(x)
    assert seen
    assert not [name for name in seen if name.startswith(("prims", "aten.hardswish"))]


def test_an_operator_never_asks_for_itself(offers, x):
    plan = decompose.decomposition("aten::leaky_relu", (x, 0.1), {})
    running = decompose._thread.__dict__.setdefault("running", [])
    running.append(plan.op)
    try:
        assert decompose.decomposition("aten::leaky_relu", (x, 0.1), {}) is None
        expected = torch.nn.functional.leaky_relu(x.cpu(), 0.1)
        torch.testing.assert_close(plan(x, 0.1).cpu(), expected)
    finally:
        running.pop()


def test_no_memory_is_kept(offers, x, module):
    plan = decompose.decomposition("aten::huber_loss", (x, x, 1, 1.0), {})
    plan(x, x, 1, 1.0)
    gc.collect()
    before = module.memory_allocated()
    for _ in range(50):
        plan(x, x, 1, 1.0)
    assert module.memory_allocated() == before


def test_core_takes_the_rung_where_the_host_would_copy(run):
    run(
        """
        import torch, causeway
        from causeway import _C
        from causeway.ops import decompose
        _C.set_decomposer(decompose.plan)
        host = torch.DEVICE.get_device_properties(0).host_addressable
        host = host or not _C.vendor_state()["entries"]["op_find"]  # nothing to decompose into
        x = torch.randn(16, 16, device="DEVICE", requires_grad=True)
        y = torch.nn.functional.hardswish(x)
        y.sum().backward()
        want = x.detach().cpu().requires_grad_()
        torch.nn.functional.hardswish(want).sum().backward()
        torch.testing.assert_close(x.grad.cpu(), want.grad)
        ledger = [row for row in _C.ledger_read() if "hardswish" in row[0] and row[3]]
        rungs = {rung for _, rung, *_ in ledger}
        compiled = _C.code_units(0) > 0  # a kernel for all of it comes before its parts
        expected = {"portable"} if compiled else {"host"} if host else {"decomposed"}
        if "aten::hardswish.out" in _C.offered():  # the chip has it
            expected = {"derived"}
        assert rungs == expected, rungs
        """,
        CAUSEWAY_SIM_OPS="all",
        CAUSEWAY_SIM_LEVEL=None,
    )
