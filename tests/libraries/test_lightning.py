"""Lightning finds the device: Trainer and Fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import causeway

lightning = pytest.importorskip("lightning", reason="lightning is not installed")
pytestmark = pytest.mark.once


class Classifier(lightning.LightningModule):  # type: ignore[name-defined]
    """A small network, which keeps its losses."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4)
        )
        self.losses: list[float] = []
        self.places: set[torch.device] = set()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        inputs, classes = batch
        self.places |= {inputs.device, classes.device, self.device}
        loss = torch.nn.functional.cross_entropy(self.net(inputs), classes)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


@pytest.fixture
def fit(points, tmp_path: Path):
    """A function that trains for eight epochs; (module, trainer, ledger)."""

    def run(accelerator: Any, precision: str = "32-true", **options: Any):
        lightning.seed_everything(0)
        module = Classifier()
        module.net[2].p = options.pop("dropout", 0.0)
        checkpoint = options.pop("ckpt_path", None)
        trainer = lightning.Trainer(
            **{
                "accelerator": accelerator, "devices": 1, "precision": precision, "max_epochs": 8,
                "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
                "enable_model_summary": False, "default_root_dir": str(tmp_path), **options,
            }
        )  # fmt: skip
        batches = torch.utils.data.DataLoader(points, batch_size=16)
        with causeway.ledger() as ledger:
            trainer.fit(module, batches, batches, ckpt_path=checkpoint)
        return module, trainer, ledger

    return run


def matmuls(ledger: Any) -> set[str]:
    return {row.dtype for row in ledger.rows if row.operator in ("aten::mm", "aten::addmm")}


@pytest.mark.parametrize("accelerator", ["auto", "gpu", "name"])
def test_trainer_trains_on_the_device_with_the_losses_of_the_cpu(
    fit, device: torch.device, accelerator: str
) -> None:
    name = device.type if accelerator == "name" else accelerator
    there, trainer, ledger = fit(name)
    assert trainer.strategy.root_device == device
    assert there.places == {device}
    assert matmuls(ledger) == {"float32"}
    here, _, ledger = fit("cpu")
    assert ledger.total() == 0
    assert there.losses[-1] < 0.5 * there.losses[0]
    torch.testing.assert_close(there.losses, here.losses, rtol=1e-4, atol=1e-4)


def test_an_accelerator_may_be_given_as_an_object(fit, device) -> None:
    found = lightning.pytorch.accelerators.AcceleratorRegistry.get(device.type)
    _, trainer, ledger = fit(found, "bf16-mixed")
    assert trainer.strategy.root_device == device
    assert matmuls(ledger) == {"bfloat16"}


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("bf16-mixed", "bfloat16"), ("16-mixed", "float16"), ("bf16-true", "bfloat16")],
)
def test_precision_is_what_was_asked_for(fit, device, precision: str, dtype: str) -> None:
    module, trainer, ledger = fit("auto", precision)
    assert matmuls(ledger) == {dtype}
    kept = torch.bfloat16 if precision == "bf16-true" else torch.float32
    assert {p.dtype for p in module.parameters()} == {kept}
    assert (getattr(trainer.precision_plugin, "scaler", None) is not None) == (dtype == "float16")
    here, _, _ = fit("cpu", "32-true")
    torch.testing.assert_close(module.losses, here.losses, rtol=0.1, atol=0.05)
    assert module.losses[-1] < 0.5 * module.losses[0]


def test_a_run_goes_on_from_its_checkpoint(fit, tmp_path: Path, device) -> None:
    whole, trainer, _ = fit("auto", "16-mixed")
    half, trainer, _ = fit("auto", "16-mixed", max_epochs=4)
    path = tmp_path / "half.ckpt"
    trainer.save_checkpoint(path)
    rest, trainer, _ = fit("auto", "16-mixed", ckpt_path=path)
    assert rest.losses == whole.losses[len(half.losses) :]
    on_cpu = Classifier.load_from_checkpoint(path, map_location="cpu", weights_only=False)
    for name, value in half.state_dict().items():
        assert torch.equal(value.cpu(), on_cpu.state_dict()[name])


def test_the_sanity_check_leaves_the_random_state_of_the_device_alone(fit, device) -> None:
    """With dropout in validation too, training must not depend on whether it was checked."""

    def losses(checks: int) -> list[float]:
        module, _, _ = fit("auto", num_sanity_val_steps=checks, dropout=0.3, max_epochs=1)
        return module.losses

    assert losses(0) == losses(2)
    from lightning.fabric.utilities.seed import _collect_rng_states

    assert f"torch.{device.type}" in _collect_rng_states()


def test_devices_are_counted_and_checked(device) -> None:
    kind = type(lightning.pytorch.accelerators.AcceleratorRegistry.get(device.type))
    count = torch.accelerator.device_count()
    assert kind.parse_devices(-1) == kind.parse_devices("-1") == list(range(count))
    assert kind.parse_devices("0,1") == kind.parse_devices([0, 1]) == [0, 1]
    assert kind.parse_devices(0) is None
    for bad in (count + 1, [0, 0], [count], "7,9"):
        with pytest.raises(Exception, match="this machine has"):
            kind.parse_devices(bad)


def test_device_stats_are_those_of_the_device(device) -> None:
    kind = lightning.pytorch.accelerators.AcceleratorRegistry.get(device.type)
    held = torch.empty(1 << 20, device=device)
    assert kind.get_device_stats(device)["allocated_bytes.all.current"] >= held.nbytes


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_fabric_trains_on_the_device(perceptron, points, device, precision: str) -> None:
    fabric = lightning.Fabric(accelerator="auto", devices=1, precision=precision)
    fabric.launch()
    assert fabric.device == device
    plain = perceptron()
    model, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), lr=1e-2))
    batches = fabric.setup_dataloaders(torch.utils.data.DataLoader(points, batch_size=16))
    losses = []
    with causeway.ledger() as ledger:
        for _ in range(8):
            for inputs, classes in batches:
                assert inputs.device == device
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(inputs), classes)
                fabric.backward(loss)
                optimizer.step()
                losses.append(loss.item())
    dtype = {"32-true": "float32", "bf16-mixed": "bfloat16", "16-mixed": "float16"}[precision]
    assert matmuls(ledger) == {dtype}
    assert losses[-1] < 0.5 * losses[0]


def test_both_names_of_the_package_find_the_device(run_python) -> None:
    pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    program = """
import pytorch_lightning, lightning_fabric
trainer = pytorch_lightning.Trainer(accelerator="auto", devices=1, logger=False,
                                    precision="bf16-mixed")
print(trainer.strategy.root_device, trainer.precision_plugin.device)
print(lightning_fabric.Fabric(accelerator="auto", devices=1).device)
"""
    assert run_python(program).stdout == "sim:0 sim\nsim:0\n"
