"""Random numbers, deterministic mode, and tensors that are copied when first written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from same import NAME
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

# --- random numbers ------------------------------------------------------------------------------

DRAWS: dict[str, Callable[[torch.device | str], torch.Tensor]] = {
    "rand": lambda d: torch.rand(4, 5, device=d),
    "randn": lambda d: torch.randn(4, 5, device=d),
    "randint": lambda d: torch.randint(0, 1000, (20,), device=d),
    "randperm": lambda d: torch.randperm(50, device=d),
    "rand_like": lambda d: torch.rand_like(torch.empty(9, device=d)),
    "randn_like": lambda d: torch.randn_like(torch.empty(9, device=d)),
    "randint_like": lambda d: torch.randint_like(torch.empty(9, device=d), 1000),
    "bernoulli": lambda d: torch.bernoulli(torch.full((64,), 0.5, device=d)),
    "bernoulli_": lambda d: torch.empty(64, device=d).bernoulli_(0.5),
    "normal": lambda d: torch.normal(torch.zeros(9, device=d), 1.0),
    "normal_": lambda d: torch.empty(9, device=d).normal_(2, 3),
    "uniform_": lambda d: torch.empty(9, device=d).uniform_(-1, 1),
    "exponential_": lambda d: torch.empty(9, device=d).exponential_(),
    "geometric_": lambda d: torch.empty(64, device=d).geometric_(0.3),
    "cauchy_": lambda d: torch.empty(9, device=d).cauchy_(),
    "log_normal_": lambda d: torch.empty(9, device=d).log_normal_(),
    "random_": lambda d: torch.empty(9, device=d).random_(1000),
    "poisson": lambda d: torch.poisson(torch.full((64,), 5.0, device=d)),
    "multinomial": lambda d: torch.multinomial(torch.ones(40, device=d), 20),
    "dropout": lambda d: F.dropout(torch.ones(64, device=d)),
    "alpha_dropout": lambda d: F.alpha_dropout(torch.ones(64, device=d), training=True),
    "feature_dropout": lambda d: F.dropout2d(torch.ones(2, 32, 1, 1, device=d)),
    "rrelu": lambda d: F.rrelu(-torch.ones(32, device=d), training=True),
    "gumbel_softmax": lambda d: F.gumbel_softmax(torch.zeros(9, device=d)),
    "fractional_max_pool": lambda d: F.fractional_max_pool2d(
        torch.arange(256.0, device=d).view(1, 1, 16, 16), 2, output_size=7
    ),
    "trunc_normal_": lambda d: torch.nn.init.trunc_normal_(torch.empty(9, device=d)),
    "orthogonal_": lambda d: torch.nn.init.orthogonal_(torch.empty(4, 4, device=d)),
    "distribution": lambda d: torch.distributions.Gamma(torch.ones(9, device=d), 1.0).sample(),
    "categorical": lambda d: torch.distributions.Categorical(torch.ones(50, device=d)).sample((9,)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_obeys_the_seed_and_leaves_the_host_alone(name: str) -> None:
    draw = DRAWS[name]
    torch.manual_seed(1)
    host = torch.get_rng_state()
    first = draw(NAME)
    assert torch.equal(torch.get_rng_state(), host), "drew from the host's generator"
    assert first.device.type == NAME
    second = draw(NAME)
    torch.manual_seed(1)
    torch.rand(100)  # the host's draws change nothing on the device
    assert torch.equal(draw(NAME).cpu(), first.cpu())
    assert not torch.equal(second.cpu(), first.cpu())


@pytest.mark.parametrize("name", DRAWS)
def test_a_saved_state_draws_again(name: str) -> None:
    draw, module = DRAWS[name], torch.get_device_module(NAME)
    draw(NAME)
    state = module.get_rng_state()
    first = draw(NAME)
    with torch.random.fork_rng(device_type=NAME):
        draw(NAME)
        draw(NAME)
    second = draw(NAME)
    module.set_rng_state(state)
    assert torch.equal(draw(NAME).cpu(), first.cpu())
    assert torch.equal(draw(NAME).cpu(), second.cpu())


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_dropout_under_checkpoint_drops_the_same(use_reentrant: bool) -> None:
    masks = []

    def block(x: torch.Tensor) -> torch.Tensor:
        dropped = F.dropout(x, 0.5)
        masks.append((dropped != 0).cpu())
        return dropped * 2  # the second pass may stop before it gets here

    x = torch.ones(256, device=NAME, requires_grad=True)
    checkpoint(block, x, use_reentrant=use_reentrant).sum().backward()
    assert all(torch.equal(x.grad.cpu() != 0, mask) for mask in masks)


def test_checkpoints_in_sequence_agree_with_none() -> None:
    net = torch.nn.Sequential(
        *(m for _ in range(4) for m in (torch.nn.Linear(8, 8), torch.nn.Dropout(0.3)))
    ).to(NAME)
    x = torch.randn(4, 8, device=NAME, requires_grad=True)
    torch.manual_seed(5)
    (expected,) = torch.autograd.grad(net(x).sum(), x)
    torch.manual_seed(5)
    (have,) = torch.autograd.grad(checkpoint_sequential(net, 2, x, use_reentrant=False).sum(), x)
    assert torch.equal(have.cpu(), expected.cpu())


def test_generators_of_the_device_are_accepted_and_others_refused() -> None:
    ours = torch.Generator(NAME).manual_seed(3)
    for call in (
        lambda g: torch.rand(4, device=NAME, generator=g),
        lambda g: torch.empty(4, device=NAME).normal_(generator=g),
        lambda g: torch.bernoulli(torch.full((4,), 0.5, device=NAME), generator=g),
        lambda g: torch.multinomial(torch.ones(9, device=NAME), 3, generator=g),
        lambda g: torch.randperm(9, device=NAME, generator=g),
    ):
        assert call(ours).device.type == NAME
        with pytest.raises(RuntimeError, match="generator"):
            call(torch.Generator())


# --- deterministic mode --------------------------------------------------------------------------


@pytest.fixture
def deterministic() -> Iterator[None]:
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = filled


DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_new_memory_is_filled_as_on_the_cpu(deterministic, dtype: torch.dtype) -> None:
    like = {place: torch.ones(3, 4, dtype=dtype, device=place) for place in ("cpu", NAME)}
    for make in (
        lambda d: torch.empty(5, 2, dtype=dtype, device=d),
        lambda d: torch.empty_strided((3, 2), (2, 1), dtype=dtype, device=d),
        lambda d: torch.empty_permuted((3, 2), (1, 0), dtype=dtype, device=d),
        lambda d: torch.empty_like(like[d]),
        lambda d: like[d].new_empty(4),
        lambda d: like[d].new_empty_strided((4, 2), (2, 1)),
        lambda d: torch.ones(2, dtype=dtype, device=d).resize_(9),
        lambda d: torch.Tensor.resize_as_(torch.ones(2, dtype=dtype, device=d), like[d]),
    ):
        want, have = make("cpu"), make(NAME).cpu()
        same = torch.equal(want, have) or (want.isnan() == have.isnan()).all()
        assert same, (want, have)


def test_new_memory_is_not_filled_when_told_so(deterministic) -> None:
    torch.utils.deterministic.fill_uninitialized_memory = False
    with torch.no_grad():
        x = torch.full((64,), 3.0, device=NAME)
        del x
    assert torch.empty(64, device=NAME).shape == (64,)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.zeros(5, device=d).index_add_(
            0, torch.tensor([0, 1, 0, 1], device=d), torch.arange(4.0, device=d)
        ),
        lambda d: torch.zeros(5, device=d).index_put_(
            (torch.tensor([0, 1, 0], device=d),), torch.arange(3.0, device=d), accumulate=True
        ),
        lambda d: torch.zeros(5, device=d).scatter_add_(
            0, torch.tensor([0, 1, 0], device=d), torch.arange(3.0, device=d)
        ),
        lambda d: torch.arange(6.0, device=d).cumsum(0),
        lambda d: F.interpolate(torch.arange(4.0, device=d).view(1, 1, 2, 2), scale_factor=2),
        lambda d: torch.bincount(torch.tensor([0, 1, 1], device=d), torch.ones(3, device=d)),
        lambda d: torch.arange(6.0, device=d).put_(
            torch.tensor([0, 0], device=d), torch.ones(2, device=d), accumulate=True
        ),
    ],
)
def test_what_cuda_refuses_for_being_unsteady_agrees_with_the_cpu(deterministic, call) -> None:
    assert torch.equal(call(NAME).cpu(), call("cpu"))


# --- copied when first written to ----------------------------------------------------------------


def is_shared(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch._C._data_address(a) == torch._C._data_address(b)


def test_a_lazy_clone_shares_until_it_is_written_to() -> None:
    x = torch.arange(6.0, device=NAME)
    y = torch._lazy_clone(x)
    assert is_shared(x, y)
    assert torch._C._is_cow_tensor(x)
    assert torch._C._is_cow_tensor(y)
    assert y.sum().item() == 15
    assert torch._C._is_cow_tensor(y), "reading made a copy"
    y.add_(1)
    assert not is_shared(x, y)
    assert not torch._C._is_cow_tensor(y)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    assert y.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.zero_(),
        lambda x: x[1:3].fill_(7),
        lambda x: x.copy_(torch.arange(6.0)),
        lambda x: torch.add(x, 1, out=x),
        lambda x: x.view(2, 3).t().mul_(2),
        lambda x: x.cumsum_(0),
        lambda x: x.index_fill_(0, torch.tensor([0], device=x.device), 4),
    ],
)
def test_any_write_leaves_the_other_alone(write) -> None:
    x, z = torch.arange(6.0, device=NAME), torch.arange(6.0)
    y = torch._lazy_clone(x)
    write(y), write(z)
    assert torch.equal(y.cpu(), z)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    w = torch._lazy_clone(y)
    before = y.cpu()
    write(y)
    assert torch.equal(w.cpu(), before)


def test_a_lazy_clone_has_its_gradient() -> None:
    x = torch.ones(3, device=NAME, requires_grad=True)
    torch._lazy_clone(x).mul(2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
