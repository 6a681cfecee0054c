"""torchmetrics computes on the device; it needs nothing, its states follow `.to()`."""

from __future__ import annotations

import pytest
import torch

import causeway

torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
pytestmark = pytest.mark.once

CLASSES = 5
METRICS = {
    "accuracy": lambda: torchmetrics.Accuracy("multiclass", num_classes=CLASSES),
    "top 2": lambda: torchmetrics.Accuracy("multiclass", num_classes=CLASSES, top_k=2),
    "f1": lambda: torchmetrics.F1Score("multiclass", num_classes=CLASSES, average="macro"),
    "auroc": lambda: torchmetrics.AUROC("multiclass", num_classes=CLASSES),
    "binned auroc": lambda: torchmetrics.AUROC("multiclass", num_classes=CLASSES, thresholds=20),
    "average precision": lambda: torchmetrics.AveragePrecision("multiclass", num_classes=CLASSES),
    "confusion": lambda: torchmetrics.ConfusionMatrix("multiclass", num_classes=CLASSES),
    "calibration": lambda: torchmetrics.CalibrationError("multiclass", num_classes=CLASSES),
    "kappa": lambda: torchmetrics.CohenKappa("multiclass", num_classes=CLASSES),
}
REGRESSION = {
    "mse": torchmetrics.MeanSquaredError,
    "mae": torchmetrics.MeanAbsoluteError,
    "r2": torchmetrics.R2Score,
    "pearson": torchmetrics.PearsonCorrCoef,
    "spearman": torchmetrics.SpearmanCorrCoef,
    "mean": torchmetrics.MeanMetric,
}


def values(metric, place: torch.device, batches) -> torch.Tensor:
    metric = metric.to(place)
    for batch in batches:
        metric.update(*(t.to(place) for t in batch))
    found = metric.compute()
    assert found.device == place
    return found.cpu()


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_of_classes_is_the_same_as_on_the_cpu(name: str, device) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(32, CLASSES), torch.randint(CLASSES, (32,))) for _ in range(3)]
    with causeway.ledger() as ledger:
        there = values(METRICS[name](), device, batches)
    assert ledger.total() > 0
    torch.testing.assert_close(there, values(METRICS[name](), torch.device("cpu"), batches))


@pytest.mark.parametrize("name", REGRESSION)
def test_a_metric_of_numbers_is_the_same_as_on_the_cpu(name: str, device) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(32), torch.randn(32)) for _ in range(3)]
    there = values(REGRESSION[name](), device, batches)
    here = values(REGRESSION[name](), torch.device("cpu"), batches)
    torch.testing.assert_close(there, here, rtol=1e-5, atol=1e-5)


def test_a_collection_is_saved_moved_and_reset(device) -> None:
    made = torchmetrics.MetricCollection({n: METRICS[n]() for n in ("accuracy", "f1")}).to(device)
    for metric in made.values(copy_state=False):
        metric.persistent(True)
    made.update(torch.randn(32, CLASSES, device=device), torch.randint(5, (32,), device=device))
    other = torchmetrics.MetricCollection({n: METRICS[n]() for n in ("accuracy", "f1")})
    for metric in other.values(copy_state=False):
        metric.persistent(True)
    other.load_state_dict({k: v.cpu() for k, v in made.state_dict().items()})
    found, expected = other.compute(), made.compute()
    for name, value in expected.items():
        assert torch.equal(found[name], value.cpu())
    made.reset()
    assert all(m.device == device for m in made.values())
