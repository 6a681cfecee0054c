"""DLPack both ways, and numpy."""

import numpy as np
import pytest
import torch
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack


def test_device_is_an_extension_device(device, other):
    assert torch.ones(2, device=device).__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    assert torch.ones(2, device=other).__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
    assert torch.ones(2).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.bool])
def test_round_trip_shares_memory(device, dtype):
    x = torch.arange(12, device=device).reshape(3, 4).to(dtype)[1:, ::2]
    for y in (torch.from_dlpack(x), from_dlpack(to_dlpack(x))):
        assert y.device == device
        assert y.dtype == dtype
        assert y.data_ptr() == x.data_ptr()
        assert y.stride() == x.stride()
    y.zero_()
    assert not x.any().item()


def test_round_trip_on_the_second_device(other):
    x = torch.ones(3, device=other)
    assert torch.from_dlpack(x).device == other


def test_consumer_that_knows_only_the_protocol(device):
    class Other:
        """As an array of another library stands before torch.from_dlpack."""

        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    x = torch.ones(3, device=device)
    y = torch.from_dlpack(Other(x))
    y += 1
    assert x.tolist() == [2.0] * 3


def test_memory_outlives_the_exporter(device):
    x = torch.full((1000,), 7.0, device=device)
    capsule = to_dlpack(x)
    del x
    torch.zeros(1000, device=device)
    assert from_dlpack(capsule).sum().item() == 7000


def test_numpy_takes_a_tensor_of_the_device(device):
    x = torch.arange(6.0, device=device)
    assert np.from_dlpack(x, device="cpu").tolist() == list(range(6))
    with pytest.raises(TypeError, match=r"can't convert .* to numpy"):
        x.numpy()
    assert x.cpu().numpy().tolist() == list(range(6))
    ones = np.ones(3, np.float32)
    assert torch.from_numpy(ones).to(device).sum().item() == 3
    assert torch.as_tensor(ones, device=device).device == device


def test_numpy_shares_memory_where_the_host_can_address_it(device, host_addressable):
    from causeway import _C

    x = torch.arange(6.0, device=device)
    if not host_addressable:
        with pytest.raises(RuntimeError, match="address"):
            _C.host_alias(x)
        return
    array = _C.host_alias(x).numpy()
    array[0] = 9
    assert x[0].item() == 9


def test_gradient_is_refused_as_torch_does(device):
    with pytest.raises(BufferError, match="gradient"):
        torch.from_dlpack(torch.ones(2, device=device, requires_grad=True))
