"""apex.amp: loss scales, overflow, accumulation, combined gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from causeway.apex import amp

LEVELS = ["O0", "O1", "O2", "O3"]
SMALL = 1 / 64  # of every loss: float16 holds its gradient times the first scale


def setup(
    where: torch.device, level: str, optimizer: Any = None, **options: Any
) -> tuple[nn.Linear, Any]:
    torch.manual_seed(0)
    net = nn.Linear(4, 4).to(where)
    made = torch.optim.SGD(net.parameters(), lr=0.125) if optimizer is None else optimizer(net)
    options = {"loss_scale": "dynamic", "verbosity": 0} | options
    return amp.initialize(net, made, opt_level=level, **options)


def backward(net: nn.Module, optimizer: Any, factor: float = 1.0, **options: Any) -> None:
    weight = next(net.parameters())
    loss = net(torch.ones(2, 4, device=weight.device)).float().sum() * SMALL * factor
    with amp.scale_loss(loss, optimizer, **options) as scaled:
        scaled.backward()


def gradient(optimizer: Any) -> torch.Tensor:
    grad = next(iter(amp.master_params(optimizer))).grad
    assert grad is not None
    return grad.detach().float().cpu() / SMALL


def scale(index: int = 0) -> float:
    return amp._amp_state.loss_scalers[index].loss_scale()


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_an_overflow_skips_the_step_halves_the_scale_and_training_goes_on(where, level, combine):
    net, optimizer = setup(where, level, combine_grad=combine)
    before = [p.detach().clone() for p in net.parameters()]
    backward(net, optimizer, float("inf"))
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert scale() == 2.0**15
    optimizer.zero_grad()
    backward(net, optimizer)
    optimizer.step()
    assert scale() == 2.0**15
    assert not torch.equal(before[0], net.weight)
    assert torch.isfinite(net.weight).all()


def test_the_scale_grows_after_its_window_and_keeps_its_limits(where):
    net, optimizer = setup(where, "O2", min_loss_scale=2.0**15, max_loss_scale=2.0**17)
    scaler = amp._amp_state.loss_scalers[0]
    scaler._scale_window = 2
    found = []
    for factor in (1, 1, 1, 1, 1, float("nan"), float("nan"), float("nan")):
        optimizer.zero_grad()
        backward(net, optimizer, factor)
        optimizer.step()
        found.append(scale())
    assert [f / 2**16 for f in found] == [1, 2, 2, 2, 2, 1, 0.5, 0.5]


def test_a_static_scale_stays_and_its_step_is_made(where):
    net, optimizer = setup(where, "O2", loss_scale=128.0)
    backward(net, optimizer, float("inf"))
    optimizer.step()
    assert scale() == 128.0
    assert not torch.isfinite(net.weight).all()


def test_a_skipped_step_says_so(where, capsys):
    net, optimizer = setup(where, "O2", verbosity=1)
    backward(net, optimizer, float("inf"))
    optimizer.step()
    expected = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0"
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_gradients_accumulate_unscaled(where, level, combine):
    net, optimizer = setup(where, level, combine_grad=combine)
    backward(net, optimizer)
    once = gradient(optimizer)
    assert once.unique().tolist() == [2.0]
    backward(net, optimizer, 2.0)
    assert torch.equal(gradient(optimizer), 3 * once)


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_gradients_accumulate_scaled_where_unscaling_is_delayed(where, level, combine):
    net, optimizer = setup(where, level, loss_scale=64.0, combine_grad=combine)
    backward(net, optimizer, delay_unscale=True)
    assert net.weight.grad is not None
    assert net.weight.grad.unique().tolist() == [128.0 * SMALL]
    backward(net, optimizer, 2.0)
    assert gradient(optimizer).unique().tolist() == [6.0]


def test_several_losses_have_scalers_of_their_own(where):
    net, optimizer = setup(where, "O2", num_losses=3)
    backward(net, optimizer, float("inf"), loss_id=1)
    backward(net, optimizer, loss_id=2)
    optimizer.step()
    assert [scale(i) for i in range(3)] == [2.0**16, 2.0**15, 2.0**16]
    saved = amp.state_dict()
    assert list(saved) == ["loss_scaler0", "loss_scaler1", "loss_scaler2"]
    assert saved["loss_scaler2"] == {"loss_scale": 2.0**16, "unskipped": 1}
    amp._amp_state.loss_scalers[1].update_scale()
    amp.load_state_dict(saved)
    assert amp.state_dict() == saved
    with pytest.raises(RuntimeError, match="Unexpected"):
        amp.load_state_dict({"scaler": {}})


def test_one_loss_for_two_optimizers_skips_both(where):
    first, second = nn.Linear(4, 4).to(where), nn.Linear(4, 4).to(where)
    made = [torch.optim.SGD(n.parameters(), lr=0.1) for n in (first, second)]
    nets, optimizers = amp.initialize([first, second], made, opt_level="O2", verbosity=0)
    before = [n.weight.detach().clone() for n in nets]
    for factor, same in ((float("inf"), True), (1.0, False)):
        loss = nets[1](nets[0](torch.ones(2, 4, device=where))).sum() * SMALL * factor
        with amp.scale_loss(loss, optimizers) as scaled:
            scaled.backward()
        for optimizer in optimizers:
            optimizer.step()
        assert [torch.equal(a, n.weight) for a, n in zip(before, nets, strict=True)] == [same] * 2


def test_the_overflow_check_can_be_left_to_a_later_backward(where):
    net, optimizer = setup(where, "O2")
    backward(net, optimizer, float("inf"), delay_overflow_check=True)
    assert scale() == 2.0**16
    backward(net, optimizer)
    before = net.weight.detach().clone()
    optimizer.step()
    assert scale() == 2.0**15
    assert torch.equal(before, net.weight)


def test_model_zero_grad_leaves_nothing_of_the_step_before(where):
    net, optimizer = setup(where, "O2")
    for _ in range(2):
        net.zero_grad()
        backward(net, optimizer)
        assert gradient(optimizer).unique().tolist() == [2.0]
        optimizer.step()


@pytest.mark.parametrize("overflow", [False, True])
def test_a_closure_is_run_with_casts_and_an_overflow_in_it_skips(where, overflow):
    net, optimizer = setup(where, "O1")
    before = net.weight.detach().clone()
    dtypes = []

    def closure():
        optimizer.zero_grad()
        out = net(torch.ones(2, 4, device=where))
        dtypes.append((out.dtype, (net.weight @ net.weight).dtype))
        loss = out.float().sum() * (float("inf") if overflow else SMALL)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        return loss

    optimizer.step(closure)
    assert dtypes == [(torch.float16, torch.float16)]
    assert torch.equal(before, net.weight) == overflow


def test_a_sparse_gradient_is_unscaled(where):
    table = nn.Embedding(5, 3, sparse=True).to(where)
    optimizer: Any = torch.optim.SparseAdam(list(table.parameters()))
    table, optimizer = amp.initialize(table, optimizer, opt_level="O1", verbosity=0)
    for _ in range(2):
        with amp.scale_loss(table(torch.tensor([1, 1, 2], device=where)).sum(), optimizer) as loss:
            loss.backward()
    assert table.weight.grad.to_dense().sum(1).tolist() == [0, 12, 6, 0, 0]


# --- combined gradients --------------------------------------------------------------------------


class Two(nn.Module):
    """One layer that is used and one that is not, in several layouts."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Conv2d(4, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.unused = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.used(x)).square()


def is_view(optimizer: Any, params: Any) -> bool:
    """Whether each gradient that there is lies in one of the flat buffers."""
    flats = [f.untyped_storage().data_ptr() for f in amp.combined_gradients(optimizer)]
    grads = [p.grad for p in params if p.grad is not None]
    return bool(grads) and all(g.untyped_storage().data_ptr() in flats for g in grads)


@pytest.mark.parametrize("clear", ["none", "zero", "by hand", "model"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_combined_gradients_are_views_whatever_clears_them(where, level, clear):
    torch.manual_seed(0)
    net: Any = Two().to(where).to(memory_format=torch.channels_last)
    plain: Any = Two().to(where)
    plain.load_state_dict(net.state_dict())
    pairs = []
    for model, combine in ((net, True), (plain, False)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        pairs.append(
            amp.initialize(model, optimizer, opt_level=level, combine_grad=combine, verbosity=0)
        )
    for _ in range(3):
        for model, optimizer in pairs:
            if clear == "by hand":
                for p in model.parameters():
                    p.grad = None
            elif clear == "model":
                model.zero_grad()
            else:
                optimizer.zero_grad(set_to_none=clear == "none")
            loss = model(torch.ones(2, 4, 5, 5, device=where) * 1.5).float().mean()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            masters = list(amp.master_params(optimizer))
            if optimizer is pairs[0][1]:
                assert is_view(optimizer, masters)
                sum_of_views = sum(p.grad.sum().item() for p in masters if p.grad is not None)
                flat = sum(f.sum().item() for f in amp.combined_gradients(optimizer))
                assert flat == pytest.approx(sum_of_views, abs=1e-4)
            optimizer.step()
    assert net.unused.weight.grad is None or clear == "zero"
    for a, b in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_combined_gradients_take_new_groups_in(where, level):
    net, optimizer = setup(where, level, combine_grad=True)
    backward(net, optimizer)
    former = gradient(optimizer)
    late = nn.Linear(4, 4).to(where)
    if level == "O2":
        late.half()
    optimizer.add_param_group({"params": list(late.parameters())})
    assert torch.equal(gradient(optimizer), former)
    assert is_view(optimizer, amp.master_params(optimizer))
    loss = late(net(torch.ones(2, 4, device=where)).to(late.weight.dtype)).float().mean()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    params = list(amp.master_params(optimizer))
    assert all(p.grad is not None for p in params)
    assert is_view(optimizer, params)
    optimizer.step()


def test_clearing_the_flat_buffer_clears_every_gradient(where):
    net, optimizer = setup(where, "O2", combine_grad=True)
    backward(net, optimizer)
    (flat,) = amp.combined_gradients(optimizer)
    assert flat.numel() == 20
    flat.mul_(3)
    assert gradient(optimizer).unique().tolist() == [6.0]
    with pytest.raises(RuntimeError, match="combine_grad"):
        amp.combined_gradients(torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0))
