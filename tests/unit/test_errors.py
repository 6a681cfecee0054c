"""One family of errors, the same in Python and from C++."""

from __future__ import annotations

import pytest
import torch

import causeway


def test_every_error_is_of_one_family() -> None:
    names = [name for name in causeway.__all__ if name.endswith("Error")]
    assert len(names) == 10
    for name in names:
        assert issubclass(getattr(causeway, name), causeway.CausewayError)
        assert issubclass(getattr(causeway, name), RuntimeError)


def test_errors_are_also_what_python_would_raise() -> None:
    assert issubclass(causeway.ConfigError, ValueError)
    assert issubclass(causeway.UnsupportedDtypeError, TypeError)
    assert issubclass(causeway.DeviceIndexError, IndexError)
    assert issubclass(causeway.DeviceLostError, causeway.VendorError)


def test_the_core_raises_these_classes(device: torch.device) -> None:
    with pytest.raises(causeway.CausewayError, match="there is no device"):
        torch.ones(1, device=torch.device(device.type, 63))


def test_the_core_knows_a_lost_device(run_python) -> None:
    program = """
import torch, causeway
a = torch.ones(2, device="sim")
for _ in range(2):
    try:
        torch.sim.synchronize()
    except causeway.DeviceLostError as error:
        print("lost")
"""
    done = run_python(program, CAUSEWAY_SIM_FAULT="sync:1=DEVICE_LOST")
    assert done.stdout == "lost\nlost\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ledgers'"):
        _ = causeway.ledgers
    assert set(causeway.__all__) <= set(dir(causeway))
