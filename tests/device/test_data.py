"""DataLoader: pinned memory and workers feed the device."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_pins_and_the_device_gets_all(device, workers):
    data = TensorDataset(torch.arange(64.0).reshape(32, 2), torch.arange(32))
    loader = DataLoader(
        data,
        batch_size=8,
        pin_memory=True,
        num_workers=workers,
        multiprocessing_context="spawn" if workers else None,
    )
    total = 0.0
    for x, y in loader:
        assert x.is_pinned()
        assert y.is_pinned()
        total += x.to(device, non_blocking=True).sum().item()
    assert total == sum(range(64))


def test_loader_with_a_generator_of_the_device_shuffles(device):
    generator = torch.Generator()
    loader = DataLoader(TensorDataset(torch.arange(8)), shuffle=True, generator=generator)
    assert sorted(int(x) for (x,) in loader) == list(range(8))


def test_collate_of_device_tensors(device):
    batch = next(iter(DataLoader([torch.ones(2, device=device)] * 4, batch_size=4)))
    assert batch.device == device
    assert batch.shape == (4, 2)
