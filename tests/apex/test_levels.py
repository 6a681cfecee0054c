"""apex.amp: what each level makes of models and optimizers, and that it trains the same."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from causeway.apex import amp

LOW = {"O2": torch.float16, "O3": torch.float16, "O5": torch.bfloat16}


def network(where: torch.device) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 10),
    ).to(where)  # fmt: skip


def data(where: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 1, 8, 8, generator=generator)
    return x.to(where), torch.randint(10, (32,), generator=generator).to(where)


def losses(net: nn.Module, optimizer: Any, where: torch.device, steps: int = 12) -> list[float]:
    x, y = data(where)
    found = []
    for _ in range(steps):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def train(
    where: torch.device, level: str, **options: Any
) -> tuple[nn.Sequential, Any, list[float]]:
    net = network(where)
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    net, optimizer = amp.initialize(net, optimizer, opt_level=level, verbosity=0, **options)
    return net, optimizer, losses(net, optimizer, where)


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("level", list(amp.opt_levels))
def test_every_level_trains_as_float32_does(where, level, combine):
    net = network(where)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    x, y = data(where)
    plain = []
    for _ in range(12):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plain.append(loss.item())
    _, _, found = train(where, level, combine_grad=combine)
    assert plain[-1] < 0.05 * plain[0]
    rounding = {"O0": 1e-5, "O1": 5e-3, "O2": 5e-3, "O3": 2e-2, "O4": 4e-2, "O5": 4e-2}[level]
    assert found == pytest.approx(plain, rel=rounding, abs=rounding / 10)


@pytest.mark.parametrize("level", list(amp.opt_levels))
def test_a_level_has_its_dtypes(where, level):
    net, optimizer, _ = train(where, level)
    x, _ = data(where)
    low = LOW.get(level, torch.float32)
    assert net[0].weight.dtype == low
    assert net[1].weight.dtype == net[1].running_mean.dtype == (
        torch.float32 if level != "O3" else low
    )  # fmt: skip
    masters = {p.dtype for p in amp.master_params(optimizer)}
    assert masters == ({torch.float16} if level == "O3" else {torch.float32})
    out = {"O1": torch.float16, "O4": torch.bfloat16}.get(level, torch.float32)
    assert net(x).dtype == out


def test_an_option_wins_over_the_level(where):
    net, optimizer, _ = train(
        where, "O2", keep_batchnorm_fp32=False, master_weights=False, loss_scale=128.0,
        cast_model_type=torch.bfloat16, cast_model_outputs=torch.bfloat16,
    )  # fmt: skip
    assert net[1].weight.dtype == torch.bfloat16
    assert net(data(where)[0]).dtype == torch.bfloat16
    assert optimizer.param_groups[0]["params"][0] is net[0].weight
    assert amp.state_dict()["loss_scaler0"]["loss_scale"] == 128.0


def test_bfloat16_in_level_o1(where):
    net, _, _ = train(where, "O1", patch_torch_functions_type=torch.bfloat16)
    assert net(data(where)[0]).dtype == torch.bfloat16


def test_models_and_optimizers_keep_their_identity_and_their_form(where):
    nets = [network(where), network(where)]
    first = torch.optim.SGD(nets[0].parameters(), lr=0.1)
    weights = [net[0].weight for net in nets]
    out, one = amp.initialize(nets, first, opt_level="O2", verbosity=0)
    assert isinstance(out, list)
    assert all(a is b for a, b in zip(out, nets, strict=True))
    assert all(net[0].weight is w for net, w in zip(nets, weights, strict=True))
    assert one is first
    assert isinstance(amp.initialize(network(where), opt_level="O1", verbosity=0), nn.Module)


def test_level_o1_casts_outside_of_models_too_but_not_in_a_backward_pass_or_a_step(where):
    dtypes = []

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            dtypes.append((a @ a).dtype)
            return super().step(closure)

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

        @staticmethod
        def backward(ctx, grad):
            dtypes.append((a @ a).dtype)
            return grad

    a = torch.randn(4, 4, device=where)
    net = network(where)
    optimizer = Optimizer(net.parameters(), lr=0.1)
    net, optimizer = amp.initialize(net, optimizer, opt_level="O1", verbosity=0)
    assert (a @ a).dtype == torch.float16
    with amp.disable_casts():
        assert (a @ a).dtype == torch.float32
        assert net(data(where)[0]).dtype == torch.float32
    loss = Square.apply(net(data(where)[0]).float()).mean()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert dtypes == [torch.float32, torch.float32]
    assert (a @ a).dtype == torch.float16
    amp.deactivate()
    assert (a @ a).dtype == torch.float32


def test_level_o1_sees_changed_weights_in_the_next_forward(where):
    net = network(where)
    amp.initialize(net, opt_level="O1", verbosity=0)
    x, _ = data(where)
    before = net(x)
    with torch.no_grad():
        net(x)  # a cast without gradient must not be kept either
        net[4].weight.mul_(2)
    after = net(x)
    assert after.requires_grad
    assert not torch.equal(before, after)
    after.float().sum().backward()
    assert net[4].weight.grad is not None


def test_copies_and_pickles_of_a_model_have_a_forward_of_their_own(where):
    net, _, _ = train(where, "O2")
    x, _ = data(where)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        with torch.no_grad():
            other[4].weight.zero_()
            other[4].bias.zero_()
        assert not other(x).any()
        assert net(x).any()


def test_a_checkpoint_is_float32_and_a_run_goes_on_bit_for_bit(where):
    net, optimizer, _ = train(where, "O2")
    kept = io.BytesIO()
    saved = {
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "amp": amp.state_dict(),
    }
    torch.save(saved, kept)
    assert all(v.dtype != torch.float16 for v in saved["model"].values())
    master = next(iter(amp.master_params(optimizer)))
    assert torch.equal(saved["model"]["0.weight"], master)
    expected = losses(net, optimizer, where, 4)
    amp.deactivate()

    again = network(where)
    other = torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    again, other = amp.initialize(again, other, opt_level="O2", verbosity=0)
    kept.seek(0)
    loaded = torch.load(kept, weights_only=True)
    again.load_state_dict(loaded["model"])
    other.load_state_dict(loaded["optimizer"])
    amp.load_state_dict(loaded["amp"])
    assert losses(again, other, where, 4) == expected


def test_state_of_an_optimizer_that_has_stepped_goes_to_the_masters(where):
    net = network(where)
    optimizer = torch.optim.Adam(net.parameters())
    F.cross_entropy(net(data(where)[0]), data(where)[1]).backward()
    optimizer.step()
    average = optimizer.state[net[0].weight]["exp_avg"].clone()
    net, optimizer = amp.initialize(net, optimizer, opt_level="O2", verbosity=0)
    master = next(iter(amp.master_params(optimizer)))
    assert torch.equal(optimizer.state[master]["exp_avg"], average)
    losses(net, optimizer, where, 2)


def test_a_scheduler_made_before_or_after_drives_the_optimizer(where, recwarn):
    for early in (True, False):
        net = network(where)
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) if early else None
        net, optimizer = amp.initialize(net, optimizer, opt_level="O2", verbosity=0)
        schedule = schedule or torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        losses(net, optimizer, where, 1)
        schedule.step()
        assert optimizer.param_groups[0]["lr"] == 0.05
        amp.deactivate()
    assert not [w for w in recwarn if "lr_scheduler" in str(w.message)]


def test_a_new_parameter_group_gets_masters(where):
    net, optimizer, _ = train(where, "O2", loss_scale=8.0)
    late = nn.Linear(10, 10).to(where).half()
    optimizer.add_param_group({"params": list(late.parameters()), "lr": 0.5})
    assert all(p.dtype == torch.float32 for p in amp.master_params(optimizer))
    x, y = data(where)
    before = late.weight.detach().clone()
    with amp.scale_loss(F.cross_entropy(late(net(x).half()).float(), y), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert not torch.equal(late.weight, before)


def test_user_functions_are_cast_in_level_o1(where):
    class Library:
        @staticmethod
        def product(a, b):
            return a @ b

    seen = []

    def note(*tensors):
        seen.append({t.dtype for t in tensors})
        return tensors[0] @ tensors[0]

    half, full = amp.half_function(note), amp.float_function(note)
    promote = amp.promote_function(note)
    amp.register_float_function(Library, "product")
    a, b = torch.randn(3, 3, device=where), torch.randn(3, 3, device=where).half()
    assert half(a).dtype == torch.float32  # without amp nothing is cast
    seen.clear()
    amp.initialize(network(where), opt_level="O1", verbosity=0)
    assert half(a).dtype == torch.float16
    assert full(b).dtype == torch.float32
    promote(a, b)
    assert seen == [{torch.float16}, {torch.float32}, {torch.float32}]
    assert Library.product(b, b).dtype == torch.float32
    amp.deactivate()
    assert Library.product(b, b).dtype == torch.float16
    with pytest.raises(ValueError, match="no_such"):
        amp.register_half_function(Library, "no_such")


def test_nothing_is_changed_where_amp_is_not_enabled(where):
    net, optimizer = network(where), None
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    out, same = amp.initialize(net, optimizer, enabled=False, opt_level="O2")
    assert out is net
    assert same is optimizer
    assert net[0].weight.dtype == torch.float32
    loss = net(data(where)[0]).sum()
    with amp.scale_loss(loss, optimizer) as scaled:
        assert scaled is loss


def test_the_options_are_printed(where, capsys):
    amp.initialize(network(where), opt_level="O2")
    said = capsys.readouterr().out
    assert "Selected optimization level O2" in said
    assert "master_weights             : True" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"opt_level": "01"}, "letter O"),
        ({"opt_level": "O1", "cast_model_type": torch.float16}, "patch_torch_functions_type"),
        ({"opt_level": "O1", "master_weights": True}, "O2"),
        ({"opt_level": "O2", "cast_model_type": torch.int32}, "cast_model_type"),
        ({"opt_level": "O2", "keep_batchnorm_fp32": "maybe"}, "keep_batchnorm_fp32"),
        ({"opt_level": "O2", "loss_scale": -1}, "loss_scale"),
        ({"opt_level": "O2", "num_losses": 0}, "num_losses"),
        ({"opt_level": "O2", "min_loss_scale": 2.0**30}, "above max_loss_scale"),
        ({"opt_level": "O2", "combine_ddp": True}, "init_process_group"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_changes(device, options, words):
    net = network(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises((RuntimeError, ValueError), match=words):
        amp.initialize(net, optimizer, verbosity=0, **options)
    assert net[0].weight.dtype == torch.float32
    assert not hasattr(optimizer, "_amp_stash")


def test_wrong_uses_are_refused(device):
    net = network(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss = net(data(device)[0]).sum()
    with (
        pytest.raises(RuntimeError, match=r"before amp\.initialize"),
        amp.scale_loss(loss, optimizer),
    ):
        pass
    with pytest.raises(RuntimeError, match="no parameter of the models"):
        amp.initialize(network(device), optimizer, verbosity=0)
    with pytest.raises(RuntimeError, match="wants them in float32"):
        amp.initialize(network(device).half(), verbosity=0)
    with pytest.raises(TypeError, match="Module"):
        amp.initialize([1], verbosity=0)
    amp.initialize(net, optimizer, opt_level="O2", verbosity=0)
    with pytest.raises(RuntimeError, match="loss_id"), amp.scale_loss(loss, optimizer, loss_id=1):
        pass
    other = torch.optim.SGD(network(device).parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="did not see"), amp.scale_loss(loss, other):
        pass
    with pytest.raises(RuntimeError, match="given before"):
        amp.initialize(net, verbosity=0)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_model_can_be_compiled_and_its_signature_read(device, level):
    net = network(device)
    amp.initialize(net, opt_level=level, verbosity=0)
    net.eval()
    x, _ = data(device)
    compiled = torch.compile(net, backend="aot_eager")
    assert torch.equal(compiled(x), net(x))
    assert list(inspect.signature(net.forward).parameters) == ["input"]


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_parameter_that_is_frozen_at_first_joins_later(where, level, combine):
    net = network(where)
    net[4].requires_grad_(False)
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = amp.initialize(
        net, optimizer, opt_level=level, loss_scale=64.0, combine_grad=combine, verbosity=0
    )
    plain = network(where)
    plain[4].requires_grad_(False)
    theirs = torch.optim.SGD(plain.parameters(), lr=0.1)
    before = net[4].weight.detach().clone()
    for step in range(2):
        losses(net, optimizer, where, 1)
        theirs.zero_grad()
        F.cross_entropy(plain(data(where)[0]), data(where)[1]).backward()
        theirs.step()
        assert torch.equal(before, net[4].weight) == (step == 0)
        net[4].requires_grad_(True)
        plain[4].requires_grad_(True)
    torch.testing.assert_close(net[4].weight.float(), plain[4].weight, rtol=1e-2, atol=1e-3)
