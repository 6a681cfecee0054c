"""A dtype that the chip lacks is refused in every spelling, or narrowed where the user says so."""

from __future__ import annotations

import io

import pytest
import torch
from elsewhere import on

import causeway

NO_FP64 = {"personality": "no-fp64"}
NO_INT64 = {"personality": "no-int64"}
NO_BF16 = {"personality": "no-bf16"}
DISCRETE = {"personality": "no-fp64", "memory_model": "discrete", "ops": "all"}
NARROW = {"personality": "no-fp64,no-int64,no-bf16", "CAUSEWAY_DTYPES": "narrow"}
NARROW_DISCRETE = NARROW | {"memory_model": "discrete", "ops": "all"}


def refuses(call, dtype: str, *words: str) -> None:
    """The error says the dtype, the device and what to do, and is both a CausewayError and a
    TypeError.
    """
    with pytest.raises(causeway.UnsupportedDtypeError) as caught:
        call()
    assert isinstance(caught.value, causeway.CausewayError)
    assert isinstance(caught.value, TypeError)
    for word in (f"has no {dtype}", "sim:0", "CAUSEWAY_DTYPES=narrow", *words):
        assert word in str(caught.value), caught.value


def float64_spellings() -> dict:
    """Ways to ask for a float64 tensor on the device: title to a function of a float32 one."""

    def loaded(x):
        file = io.BytesIO()
        torch.save({"w": torch.arange(4, dtype=torch.float64)}, file)
        file.seek(0)
        return torch.load(file, map_location="sim")["w"]

    def by_default(x):
        torch.set_default_dtype(torch.float64)
        try:
            return torch.ones(4, device="sim")
        finally:
            torch.set_default_dtype(torch.float32)

    f64 = torch.float64
    wide = torch.arange(4, dtype=f64)
    return {
        "to dtype": lambda x: x.to(f64),
        "double": lambda x: x.double(),
        "type": lambda x: x.type(f64),
        "to device": lambda x: wide.to("sim"),
        "sim": lambda x: wide.sim(),
        "to both": lambda x: x.cpu().to("sim", f64),
        "tensor": lambda x: torch.tensor([0.0, 1, 2, 3], dtype=f64, device="sim"),
        "as_tensor": lambda x: torch.as_tensor(wide.numpy(), device="sim"),
        "zeros": lambda x: torch.zeros(4, dtype=f64, device="sim"),
        "empty": lambda x: torch.empty(4, dtype=f64, device="sim").fill_(1),
        "empty_strided": lambda x: torch.empty_strided((4,), (2,), dtype=f64, device="sim"),
        "full": lambda x: torch.full((4,), 1.5, dtype=f64, device="sim"),
        "arange": lambda x: torch.arange(4, dtype=f64, device="sim"),
        "linspace": lambda x: torch.linspace(0, 3, 4, dtype=f64, device="sim"),
        "rand": lambda x: torch.rand(4, dtype=f64, device="sim"),
        "eye": lambda x: torch.eye(4, dtype=f64, device="sim"),
        "ones_like": lambda x: torch.ones_like(x, dtype=f64),
        "new_zeros": lambda x: x.new_zeros(4, dtype=f64),
        "sum": lambda x: x.sum(dtype=f64),
        "cumsum": lambda x: x.cumsum(0, dtype=f64),
        "softmax": lambda x: x.softmax(0, dtype=f64),
        "default dtype": by_default,
        "load": loaded,
        "module": lambda x: torch.nn.Linear(4, 4).double().to("sim").weight,
        "module.double": lambda x: torch.nn.Linear(4, 4).to("sim").double().weight,
        "where": lambda x: torch.where(x > 1, x, wide.to("sim")),
        "linalg": lambda x: torch.linalg.vector_norm(x, dtype=f64),
        "result_type": lambda x: x * torch.zeros((), dtype=torch.complex128, device="sim"),
    }


@on(NO_FP64, DISCRETE, NO_FP64 | {"level": "0"})
def test_every_spelling_of_float64_is_refused() -> None:
    x = torch.arange(4.0, device="sim")
    refused_as = {"result_type": "ComplexDouble"}
    accepted = []
    for title, call in float64_spellings().items():
        try:
            refuses(lambda call=call: call(x), refused_as.get(title, "Double"))
        except BaseException as error:
            accepted.append(f"{title}: {type(error).__name__} {error}"[:300])
    assert not accepted, "\n".join(accepted)
    assert (x + 1).tolist() == [1, 2, 3, 4]


@on(NO_FP64)
def test_the_error_names_the_operator_where_there_is_one() -> None:
    x = torch.arange(4.0, device="sim")
    refuses(lambda: x.cumsum(0, dtype=torch.float64), "Double", "cumsum")
    refuses(lambda: x.sum(dtype=torch.float64), "Double", "sum")
    refuses(lambda: torch.zeros(3, dtype=torch.float64, device="sim"), "Double", "Use Float")


@on(NO_FP64)
def test_the_module_knows_which_dtypes_there_are() -> None:
    dtypes = torch.sim.get_device_properties(0).dtypes
    assert torch.float32 in dtypes
    assert torch.float64 not in dtypes


@on(NO_FP64, DISCRETE)
def test_what_needs_no_float64_works_without_it() -> None:
    x = torch.arange(4.0, device="sim", requires_grad=True)
    y = (x * 1.5 + torch.tensor(2.0, dtype=torch.float64)).mean()
    y.backward()
    assert y.dtype == torch.float32
    assert y.item() == 4.25
    assert x.grad.tolist() == [0.375] * 4
    assert x.detach().cpu().double().dtype == torch.float64
    torch.nn.utils.clip_grad_norm_([x], 1.0)
    torch.optim.Adam([x]).step()


@on(NO_FP64, DISCRETE)
def test_a_tensor_is_printed_without_float64() -> None:
    x = torch.tensor([1.0, 2.5], device="sim")
    assert str(x) == "tensor([1.0000, 2.5000], device='sim:0')"


@on(NO_FP64, DISCRETE)
def test_a_trace_is_checked_without_float64() -> None:
    """The comparison alone is narrowed: what a program itself asks for is refused as ever."""
    net, x = torch.nn.Linear(3, 2).to("sim"), torch.ones(4, 3, device="sim")
    assert torch.equal(torch.jit.trace(net, x)(x), net(x))
    refuses(lambda: torch.jit.trace(lambda t: t.double(), x), "Double")
    calls = []

    def other_each_time(t: torch.Tensor) -> torch.Tensor:
        calls.append(t)
        return t + len(calls)

    with pytest.raises(torch.jit.TracingCheckError, match="differed across invocations"):
        torch.jit.trace(other_each_time, x)
    refuses(x.double, "Double")


@on(NO_INT64)
def test_every_spelling_of_int64_is_refused() -> None:
    x, whole = torch.arange(4.0, device="sim"), torch.arange(4)
    for call in (
        lambda: whole.to("sim"),
        x.long,
        lambda: torch.tensor([1, 2], device="sim"),
        lambda: torch.arange(4, device="sim"),
        lambda: torch.randint(0, 4, (3,), device="sim"),
        lambda: torch.zeros(3, dtype=torch.int64, device="sim"),
        x.argmax,
        lambda: x.to(torch.int32).sum(),
    ):
        refuses(call, "Long")
    assert x.int().sum(dtype=torch.int32).item() == 6


@on(NO_BF16)
def test_every_spelling_of_bfloat16_is_refused() -> None:
    x = torch.arange(4.0, device="sim")
    assert not torch.sim.is_bf16_supported()
    for call in (
        x.bfloat16,
        lambda: torch.zeros(3, dtype=torch.bfloat16, device="sim"),
        lambda: torch.ones(3, dtype=torch.bfloat16).to("sim"),
        lambda: torch.nn.Linear(2, 2).to("sim", torch.bfloat16),
    ):
        refuses(call, "BFloat16")
    assert x.half().dtype == torch.float16


# --- narrowed, because the user said so -----------------------------------------------------------


@on(NARROW, NARROW_DISCRETE)
def test_every_spelling_of_float64_is_narrowed() -> None:
    x = torch.arange(4.0, device="sim")
    wrong = []
    for title, call in float64_spellings().items():
        try:
            got = call(x)
            want = torch.complex64 if title == "result_type" else torch.float32
            if got.dtype != want or got.device.type != "sim":
                wrong.append(f"{title}: {got.dtype} on {got.device}")
            got.cpu()
        except Exception as error:
            wrong.append(f"{title}: {type(error).__name__} {error}"[:300])
    assert not wrong, "\n".join(wrong)


@on(NARROW, NARROW_DISCRETE)
def test_narrowed_values_are_right() -> None:
    wide = torch.tensor([0.1, -2.5, 1e30, float("inf"), float("nan")], dtype=torch.float64)
    torch.testing.assert_close(wide.to("sim").cpu(), wide.float(), equal_nan=True, rtol=0, atol=0)
    assert wide.t().expand(2, 5).to("sim").cpu()[1, 1] == -2.5
    assert torch.arange(5, device="sim").dtype == torch.int32
    assert torch.arange(5, device="sim").tolist() == [0, 1, 2, 3, 4]
    assert torch.tensor([7, -3], device="sim").tolist() == [7, -3]
    x = torch.tensor([3.0, 9.0, 5.0], device="sim")
    assert x.argmax().item() == 1
    assert x.sort().indices.tolist() == [0, 2, 1]
    assert (x > 4).sum().item() == 2
    assert x[torch.tensor([2, 0], device="sim")].tolist() == [5, 3]
    assert torch.arange(3.0).bfloat16().to("sim").dtype == torch.float16
    assert x.sum(dtype=torch.float64).item() == 17
    assert x.cumsum(0, dtype=torch.float64).tolist() == [3, 12, 17]
    assert torch.full((2,), 2.5, dtype=torch.float64, device="sim").tolist() == [2.5, 2.5]
    assert torch.linspace(0, 1, 5, dtype=torch.float64, device="sim").tolist()[1] == 0.25


@on(NARROW, NARROW_DISCRETE)
def test_what_was_narrowed_is_in_the_ledger() -> None:
    with causeway.ledger() as ledger:
        torch.zeros(3, dtype=torch.float64).to("sim")
    with causeway.ledger() as none:
        torch.zeros(3, dtype=torch.float32).to("sim")

    def narrowed(ledger):
        return sum(row.calls for row in ledger.rows if "narrow" in row.operator + row.dtype)

    assert narrowed(ledger) >= 1, ledger.rows
    assert narrowed(none) == 0, none.rows
    assert "narrow" in str(ledger.table())


@on(NARROW)
def test_a_network_in_float64_trains_narrowed() -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2).double().to("sim")
    x, target = torch.randn(8, 3, dtype=torch.float64).to("sim"), torch.randn(8, 2).to("sim")
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert {p.dtype for p in net.parameters()} == {torch.float32}


@on(NARROW)
def test_classes_and_indices_may_be_narrowed() -> None:
    """Many CPU kernels take int64 only: on the host rung the narrowed ones become that again."""
    found = []
    for place in ("cpu", "sim"):
        logits, classes = torch.eye(3, device=place).requires_grad_(), torch.tensor([0, 2, 1])
        where = classes.to(place)
        loss = torch.nn.functional.cross_entropy(logits, where)
        picked = logits.gather(1, where[:, None]) + logits.index_select(0, where)
        spread = torch.zeros(3, 3, device=place).scatter(1, where[:, None], 2.0)
        grad = torch.autograd.grad((loss * picked * spread).sum(), logits)[0]
        found.append([t.detach().cpu() for t in (loss, picked, spread, grad)])
    torch.testing.assert_close(found[1], found[0])
    with pytest.raises(RuntimeError):
        torch.zeros(3, device="sim").gather(0, torch.zeros(3, device="sim"))


@on(NO_FP64)
def test_a_policy_narrows_for_its_time_only() -> None:
    with causeway.policy(dtypes="narrow"):
        x = torch.arange(4, dtype=torch.float64).to("sim")
        assert x.dtype == torch.float32
        assert x.double().dtype == torch.float32
    refuses(x.double, "Double")
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("lost", ["no-fp64,no-fp16", "no-int64,no-int32"])
def test_a_chip_with_few_dtypes_imports_and_counts(run, lost: str) -> None:
    program = """
        import torch
        assert torch.sim.device_count() == 2
        x = torch.ones(3, device="sim")
        assert (x + x).cpu().tolist() == [2, 2, 2] and x.sum().item() == 3
    """
    run(program, personality=lost)


@on(NO_FP64)
def test_gradients_are_unscaled_where_there_is_no_float64() -> None:
    """torch asks for the scale's reciprocal in float64."""

    def train(name: str) -> tuple[torch.Tensor, float]:
        weight = torch.nn.Parameter(torch.arange(1.0, 4.0, device=name))
        optimizer = torch.optim.SGD([weight], 0.5)
        scaler = torch.amp.GradScaler("sim", init_scale=8.0, growth_interval=2)
        if name == "cpu":  # the same by hand
            for _ in range(3):
                (weight * weight).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            return weight.detach(), 16.0
        for _ in range(3):
            scaler.scale((weight * weight).sum()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert type(scaler._scale) is torch.Tensor
        return weight.detach().cpu(), scaler.get_scale()

    ours, scale = train("sim")
    theirs, grown = train("cpu")
    assert torch.equal(ours, theirs)
    assert scale == grown
    refuses(lambda: torch.ones(2, device="sim").double(), "Double")
