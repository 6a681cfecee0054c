"""Train the MNIST network on real handwritten digits, on whatever accelerator this torch has.

There is nothing of Causeway in the training itself: `import torch` is enough, and the same file
runs on CUDA or on the CPU (`--device cpu`). Only the last lines ask Causeway for its ledger, to
show which rung of the ladder served each operator. `--report FILE` writes accuracy, seconds and
ledger as JSON; ladder.py reads it.

The digits are scikit-learn's 1,797 scans of 8x8 pixels, resized to the 28x28 of MNIST, so nothing
is downloaded. Exits with 1 when the accuracy is missed or when the checkpoint, loaded on the CPU,
predicts anything else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

Split = tuple[torch.Tensor, torch.Tensor]


class Net(nn.Module):
    """Two convolutions, max-pool, two dropouts, two linear layers: the network of torch's MNIST
    example.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        x = self.fc2(self.dropout2(x))
        return F.log_softmax(x, dim=1)


def digits(seed: int) -> tuple[Split, Split]:
    """The digits as 28x28 images, mean 0 and deviation 1: 1,437 to train with, 360 to test with."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8)
    images = F.interpolate(images, size=(28, 28), mode="bilinear", align_corners=False)
    images = (images - images.mean()) / images.std()
    targets = torch.tensor(labels)
    train, test = train_test_split(
        torch.arange(len(targets)).numpy(), test_size=0.2, random_state=seed, stratify=labels
    )
    return (images[train], targets[train]), (images[test], targets[test])


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Split, epoch: int, console: Console
) -> None:
    images, targets = data
    order = torch.randperm(len(targets), device=targets.device)
    model.train()
    bar = Progress(
        TextColumn("Train Epoch: {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("[{task.completed}/{task.total}]  Loss: {task.fields[loss]:.6f}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=len(targets), epoch=epoch, loss=float("nan"))
        for batch in order.split(64):
            optimizer.zero_grad()
            loss = F.nll_loss(model(images[batch]), targets[batch])
            loss.backward()
            optimizer.step()
            bar.update(task, advance=len(batch), loss=loss.item())
    console.print(
        f"Train Epoch: {epoch} [{len(targets)}/{len(targets)} (100%)]\tLoss: {loss.item():.6f}",
        highlight=False,
    )


@torch.no_grad()
def test(model: nn.Module, data: Split) -> tuple[float, torch.Tensor]:
    """Average loss and the predicted digits."""
    images, targets = data
    model.eval()
    output = torch.cat([model(batch) for batch in images.split(256)])
    return F.nll_loss(output, targets).item(), output.argmax(dim=1)


def run(args: argparse.Namespace, console: Console) -> dict[str, object]:
    """Train, test, and test the checkpoint on the CPU; `good` says whether all is as it should."""
    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    train_data, test_data = digits(args.seed)
    on_cpu = test_data
    train_data = (train_data[0].to(device), train_data[1].to(device))
    test_data = (test_data[0].to(device), test_data[1].to(device))
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.85)
    console.print(f"Training on {device}", highlight=False)

    start = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        train_epoch(model, optimizer, train_data, epoch, console)
        schedule.step()
        loss, predicted = test(model, test_data)
        right, total = int((predicted == test_data[1]).sum()), len(predicted)
        console.print(
            f"Test set: Average loss: {loss:.4f}, "
            f"Accuracy: {right}/{total} ({100 * right / total:.1f}%)",
            highlight=False,
        )
    seconds = time.perf_counter() - start
    console.print(f"{args.epochs} epochs in {seconds:.1f} s", highlight=False)

    path = Path(args.save or Path(tempfile.mkdtemp()) / "digits.pt")
    torch.save(model.state_dict(), path)
    copy = Net()
    copy.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    _, again = test(copy, on_cpu)
    same = bool(torch.equal(again, predicted.cpu()))
    console.print(
        f"Checkpoint {path}, loaded on the CPU: {'the same' if same else 'OTHER'} predictions",
        highlight=False,
    )

    reached = right / total >= args.accuracy
    if not reached:
        console.print(f"Missed {100 * args.accuracy:.0f} % accuracy", style="red")
    return {"good": same and reached, "accuracy": right / total, "seconds": seconds}


def main() -> int:
    accelerator = torch.accelerator.current_accelerator()
    parser = argparse.ArgumentParser(
        description="Train the MNIST network on scikit-learn's digits."
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default=accelerator.type if accelerator else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--accuracy", type=float, default=0.97, help="test accuracy to reach")
    parser.add_argument("--save", help="where to put the checkpoint (default: a temporary folder)")
    parser.add_argument("--report", type=Path, help="accuracy, seconds and ledger, as JSON")
    args = parser.parse_args()

    console = Console()
    if torch.device(args.device).type == "cpu":
        found = run(args, console)
    else:
        import causeway

        with causeway.ledger() as ledger:
            found = run(args, console)
        console.print(ledger.table())
        found |= json.loads(ledger.to_json())
    if args.report:
        args.report.write_text(json.dumps(found))
    return 0 if found["good"] else 1


if __name__ == "__main__":
    sys.exit(main())
