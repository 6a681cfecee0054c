"""DeepSpeed's accelerator for the device: every method that DeepSpeed asks for."""

from __future__ import annotations

import inspect
import os

import pytest
import torch

deepspeed = pytest.importorskip("deepspeed", reason="deepspeed is not installed")
from deepspeed.accelerator import get_accelerator  # noqa: E402

from causeway.errors import CausewayError  # noqa: E402

pytestmark = pytest.mark.once

# Those that need an argument, and what they give.
NEED = {
    "manual_seed", "manual_seed_all", "set_device", "set_rng_state", "stream", "lazy_call",
    "on_accelerator", "default_generator", "create_op_builder", "get_op_builder", "range_push",
    "set_visible_devices_envs", "set_compile_backend", "capture_to_graph", "replay_graph",
}  # fmt: skip


@pytest.fixture
def accelerator():
    return get_accelerator()


def test_deepspeed_finds_the_device(accelerator, device: torch.device) -> None:
    assert accelerator.device_name() == device.type
    assert accelerator.current_device_name() == str(device)
    assert deepspeed.accelerator.is_current_accelerator_supported()


def test_every_method_without_arguments_answers(accelerator) -> None:
    from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator

    abstract = DeepSpeedAccelerator.__abstractmethods__
    asked = sorted(abstract - NEED)
    assert len(asked) > 40
    for name in asked:
        value = getattr(accelerator, name)
        if not inspect.isclass(value) and callable(value):
            value()


def test_methods_with_arguments_do_what_they_say(accelerator, device) -> None:
    accelerator.manual_seed(1)
    first = torch.rand(3, device=device)
    accelerator.manual_seed_all(1)
    assert torch.equal(first, torch.rand(3, device=device))
    state = accelerator.get_rng_state()
    second = torch.rand(3, device=device)
    accelerator.set_rng_state(state)
    assert torch.equal(second, torch.rand(3, device=device))
    assert accelerator.default_generator(0).device == device
    accelerator.set_device(1)
    assert accelerator.current_device() == 1
    accelerator.set_device(0)
    with accelerator.device(1):
        assert accelerator.current_device() == 1
    stream = accelerator.Stream()
    with accelerator.stream(stream):
        assert accelerator.current_stream() == stream
    called = []
    accelerator.lazy_call(lambda: called.append(1))
    assert called == [1]
    assert accelerator.on_accelerator(first)
    assert not accelerator.on_accelerator(first.cpu())
    variables: dict[str, str] = {}
    accelerator.set_visible_devices_envs(variables, [1, 0])
    assert variables == {"CAUSEWAY_VISIBLE_DEVICES": "1,0"}
    accelerator.set_compile_backend("eager")
    assert accelerator.get_compile_backend() == "eager"
    with pytest.raises(ValueError, match="no backend"):
        accelerator.set_compile_backend("nonsense")
    accelerator.set_compile_backend("aot_eager")
    graph, x = accelerator.create_graph(), torch.ones(3, device=accelerator.device_name(0))
    with accelerator.capture_to_graph(graph):
        pass
    accelerator.replay_graph(graph)
    assert (x + 1).sum().item() == 6


def test_memory_and_tensors_are_those_of_the_device(accelerator, device) -> None:
    before = accelerator.memory_allocated()
    held = accelerator.FloatTensor([1.0] * 1024)
    assert held.device == device
    assert accelerator.memory_allocated() >= before + held.nbytes
    assert 0 < accelerator.available_memory() < accelerator.total_memory()
    assert accelerator.HalfTensor([1]).dtype == torch.float16
    assert accelerator.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]
    pinned = accelerator.pin_memory(torch.ones(4))
    assert accelerator.is_pinned(pinned)


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("corrected", [True, False])
def test_fused_adam_is_adam(perceptron, device, decoupled: bool, corrected: bool) -> None:
    from deepspeed.ops.adam import FusedAdam

    options = {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.8, 0.9)}
    model, other = perceptron().to(device), perceptron().to(device)
    fused = FusedAdam(
        model.parameters(), adam_w_mode=decoupled, bias_correction=corrected, **options
    )
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    plain = kind(other.parameters(), **options)
    for _ in range(3 if corrected else 1):
        for network, optimizer in ((model, fused), (other, plain)):
            optimizer.zero_grad()
            network(torch.ones(4, 8, device=device)).square().sum().backward()
            optimizer.step()
    if corrected:
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a, b)
        return
    # By hand, of the first step: m and v are not divided by 1 - beta.
    start = perceptron().to(device)
    start(torch.ones(4, 8, device=device)).square().sum().backward()
    for found, old in zip(model.parameters(), start.parameters(), strict=True):
        grad = old.grad if decoupled else old.grad + 0.1 * old
        kept = old * (1 - 1e-3) if decoupled else old
        step = 1e-2 * 0.2 * grad / ((0.1 * grad * grad).sqrt() + 1e-8)
        torch.testing.assert_close(found.detach(), (kept - step).detach())


def test_an_operator_of_deepspeeds_own_says_that_it_is_not_there(accelerator) -> None:
    builder = accelerator.create_op_builder("TransformerBuilder")
    assert not builder.is_compatible()
    with pytest.raises(CausewayError, match="torch_adam"):
        builder.load()


def test_the_operators_are_listed(device) -> None:
    from deepspeed.ops.op_builder.all_ops import ALL_OPS, accelerator_name

    assert accelerator_name == device.type
    assert ALL_OPS["fused_adam"].is_compatible()


def test_the_variable_of_deepspeed_decides(run_python) -> None:
    program = "from deepspeed.accelerator import get_accelerator as g; print(g().device_name())"
    for value, name in (("cpu", "cpu"), ("sim", "sim"), (None, "sim")):
        lines = run_python(program, DS_ACCELERATOR=value).stdout.splitlines()
        assert lines[-1] == name, os.linesep.join(lines)
