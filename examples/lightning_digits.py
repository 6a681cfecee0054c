"""Train on handwritten digits with Lightning, on whatever accelerator this torch has.

There is nothing of a device in it: accelerator="auto" finds it and "bf16-mixed" mixes there. The
accuracy is torchmetrics'. Not `lightning.py`, which Python would take for the library. Exits with 1
where it did not run on the accelerator, or the accuracy is missed.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import lightning
import torch
import torch.nn.functional as F
import torchmetrics
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import causeway

warnings.filterwarnings("ignore", ".*(num_workers|LeafSpec).*")


class Digits(lightning.LightningModule):
    """Two convolutions and two linear layers on images of 8x8."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(32 * 16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10),
        )  # fmt: skip
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=10)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """The loss of a batch."""
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Count what is right."""
        images, labels = batch
        self.accuracy(self.net(images), labels)
        self.log("accuracy", self.accuracy, on_epoch=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> int:
    """Train and test; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--accelerator", default="auto")
    asked = parser.parse_args()
    lightning.seed_everything(0)
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    train, test = random_split(TensorDataset(images, torch.tensor(labels)), [0.8, 0.2])

    module = Digits()
    trainer = lightning.Trainer(
        accelerator=asked.accelerator, devices=1, precision="bf16-mixed", max_epochs=asked.epochs,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    with causeway.ledger() as ledger:
        trainer.fit(module, DataLoader(train, batch_size=64, shuffle=True))
        accuracy = trainer.validate(module, DataLoader(test, batch_size=256), verbose=False)
    place = trainer.strategy.root_device
    print(f"trained on {place}, {ledger.total()} operators there")
    print(f"accuracy {accuracy[0]['accuracy']:.3f}")

    wanted = torch.accelerator.current_accelerator().type
    there = asked.accelerator == "cpu" or place.type == wanted
    return 0 if there and accuracy[0]["accuracy"] > 0.93 else 1


if __name__ == "__main__":
    sys.exit(main())
