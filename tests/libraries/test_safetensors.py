"""safetensors loads to the device and saves from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
pytestmark = pytest.mark.once

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@pytest.fixture
def file(tmp_path: Path, device: torch.device) -> Path:
    """A file of one tensor of each dtype, saved from the device."""
    path = tmp_path / "tensors.safetensors"
    tensors = {str(d): torch.arange(12, device=device).reshape(3, 4).to(d) for d in DTYPES}
    safetensors.save_file(tensors, path)
    return path


def same(found: dict[str, torch.Tensor], place: torch.device) -> None:
    for dtype in DTYPES:
        tensor = found[str(dtype)]
        assert tensor.device == place
        assert torch.equal(tensor.cpu(), torch.arange(12).reshape(3, 4).to(dtype))


@pytest.mark.parametrize("given", ["name", "index", "number"])
def test_a_file_loads_to_the_device(file: Path, device: torch.device, given: str) -> None:
    place = {"name": device.type, "index": str(device), "number": device.index}[given]
    same(safetensors.load_file(file, device=place), device)


def test_a_file_loads_to_another_device(file: Path, device: torch.device) -> None:
    if torch.accelerator.device_count() < 2:
        pytest.skip("needs two devices")
    same(safetensors.load_file(file, device=f"{device.type}:1"), torch.device(device.type, 1))


def test_a_file_that_was_saved_from_the_device_loads_on_the_cpu(file: Path) -> None:
    same(safetensors.load_file(file), torch.device("cpu"))


def test_a_part_of_a_tensor_is_read_to_the_device(file: Path, device: torch.device) -> None:
    from safetensors import safe_open

    with safe_open(file, framework="pt", device=str(device)) as opened:
        part = opened.get_slice(str(torch.float32))[1:, :2]
    assert part.device == device
    assert part.tolist() == [[4.0, 5.0], [8.0, 9.0]]


def test_a_model_is_saved_and_loaded_on_the_device(perceptron, tmp_path: Path, device) -> None:
    model, other = perceptron().to(device), perceptron().to(device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    safetensors.save_model(model, str(tmp_path / "model.safetensors"))
    safetensors.load_model(other, tmp_path / "model.safetensors", device=str(device))
    assert all(map(torch.equal, model.parameters(), other.parameters()))
