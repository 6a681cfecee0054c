"""accelerate finds the device: Accelerator, its precisions, its checkpoints, its memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import causeway

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
pytestmark = pytest.mark.once


def train(made: Any, perceptron: Callable[[], torch.nn.Module], points: Any) -> list[float]:
    """Ten epochs as accelerate's documentation writes them; the mean loss of each."""
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batches = torch.utils.data.DataLoader(points, batch_size=16)
    model, optimizer, batches = made.prepare(model, optimizer, batches)
    epochs = []
    for _ in range(10):
        total = 0.0
        for inputs, classes in batches:
            assert {inputs.device, classes.device} == {next(model.parameters()).device}
            with made.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(inputs), classes)
                made.backward(loss)
                made.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            total += made.gather(loss.detach()).mean().item()
        epochs.append(total / len(batches))
    return epochs


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_accelerator_trains_on_the_device_with_the_losses_of_the_cpu(
    perceptron, points, device: torch.device, precision: str
) -> None:
    made = accelerate.Accelerator(mixed_precision=precision)
    assert made.device.type == device.type
    with causeway.ledger() as ledger:
        there = train(made, perceptron, points)
    dtype = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}[precision]
    assert {r.dtype for r in ledger.rows if r.operator in ("aten::mm", "aten::addmm")} == {dtype}
    assert (made.scaler is not None) == (precision == "fp16")
    accelerate.state.AcceleratorState._reset_state(True)
    # accelerate has no float16 on the CPU; that of the device is compared with its float32.
    on_cpu = accelerate.Accelerator(
        cpu=True, mixed_precision="no" if precision == "fp16" else precision
    )
    assert on_cpu.device.type == "cpu"
    here = train(on_cpu, perceptron, points)
    assert there[-1] < 0.5 * there[0]
    tolerance = 1e-4 if precision != "fp16" else 2e-2
    torch.testing.assert_close(there, here, rtol=tolerance, atol=tolerance)


def test_an_overflow_skips_a_step_and_halves_the_scale(perceptron, device) -> None:
    made = accelerate.Accelerator(mixed_precision="fp16")
    model, optimizer = made.prepare(*(m := perceptron(), torch.optim.SGD(m.parameters(), lr=0.1)))
    before = [p.clone() for p in model.parameters()]
    scale = made.scaler.get_scale()
    made.backward(model(torch.ones(4, 8, device=device)).sum() * float("inf"))
    optimizer.step()
    assert optimizer.step_was_skipped
    assert made.scaler.get_scale() == scale / 2
    assert all(map(torch.equal, before, model.parameters()))


def test_a_checkpoint_has_the_state_of_the_device(perceptron, tmp_path: Path, device) -> None:
    made = accelerate.Accelerator(mixed_precision="fp16")
    model, optimizer = made.prepare(*(m := perceptron(), torch.optim.AdamW(m.parameters(), lr=0.1)))

    def step() -> None:
        made.backward(model(torch.rand(4, 8, device=device)).sum())
        optimizer.step()
        optimizer.zero_grad()

    step()
    made.save_state(str(tmp_path))
    step()
    after = [p.clone() for p in model.parameters()]
    random = torch.rand(3, device=device)
    made.load_state(str(tmp_path))
    step()  # the same batch again: the device's random state was kept too
    assert all(map(torch.equal, after, model.parameters()))
    assert torch.equal(random, torch.rand(3, device=device))
    names = torch.load(tmp_path / "random_states_0.pkl", weights_only=False)
    assert f"torch_{device.type}_manual_seed" in names


def test_what_was_saved_loads_on_the_cpu(perceptron, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    made = accelerate.Accelerator()
    model = made.prepare(perceptron())
    made.save_model(model, str(tmp_path))
    loaded = safetensors.load_file(tmp_path / "model.safetensors")
    assert {t.device.type for t in loaded.values()} == {"cpu"}
    for name, value in made.get_state_dict(model).items():
        assert torch.equal(loaded[name], value.cpu())


def test_the_memory_that_accelerate_sees_is_that_of_the_devices() -> None:
    memory = accelerate.utils.get_max_memory()
    for index in range(torch.accelerator.device_count()):
        assert memory[index] == torch.accelerator.get_memory_info(index)[0]


def test_a_batch_that_does_not_fit_is_made_smaller(device: torch.device) -> None:
    sizes = []

    @accelerate.utils.find_executable_batch_size(starting_batch_size=18)
    def run(batch_size: int) -> int:
        sizes.append(batch_size)
        if batch_size > 16:
            torch.empty(1 << 50, device=device)
        return batch_size

    assert run() == 16
    assert len(sizes) > 1


def test_set_seed_seeds_the_device(device: torch.device) -> None:
    found = []
    for _ in range(2):
        accelerate.utils.set_seed(3)
        found.append(torch.rand(4, device=device))
    assert torch.equal(*found)


def test_a_model_may_be_bigger_than_the_device(perceptron, device: torch.device) -> None:
    model, x = perceptron(), torch.randn(4, 8)
    expected = model(x)
    offloaded = accelerate.cpu_offload(model, execution_device=device)
    with causeway.ledger() as ledger:
        found = offloaded(x)
    assert ledger.total() > 0
    torch.testing.assert_close(found.cpu(), expected)


def test_the_library_is_told_nothing_false() -> None:
    """Its own questions are for Ascend's package, and somebody else may ask them."""
    assert not accelerate.utils.is_npu_available()
    assert not accelerate.utils.is_musa_available()


def test_its_own_tests_find_the_device(device: torch.device) -> None:
    testing = pytest.importorskip("accelerate.test_utils.testing")
    assert testing.torch_device == device.type
    processes = f"--num_processes={torch.get_device_module(device).device_count()}"
    assert processes in testing.DEFAULT_LAUNCH_COMMAND
    assert testing.device_count == torch.accelerator.device_count()
    assert testing.memory_allocated_func() == torch.accelerator.memory_allocated()


def test_its_report_on_the_machine_names_the_device(device: torch.device) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.accelerate_cli", "env"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"accelerator: {device.type.upper()}" in done.stdout
