"""Choosing a device, and what a device is."""

import pytest
import torch


def test_is_available_with_a_device(module):
    assert module.is_available()
    assert module.device_count() == torch.accelerator.device_count() >= 1


def test_import_opens_no_device(run):
    run(
        """
        import torch
        from causeway import _C
        assert torch.DEVICE.is_available() and torch.DEVICE.device_count() >= 1
        torch.manual_seed(0)
        torch.DEVICE.manual_seed_all(1)
        assert torch.DEVICE.memory_allocated() == 0
        assert not torch.DEVICE.is_initialized() and not _C.is_initialized()
        torch.DEVICE.init()
        assert torch.DEVICE.is_initialized() and _C.is_initialized()
        """
    )


def test_first_tensor_initializes(run):
    run(
        """
        import torch
        torch.empty(1, device="DEVICE")
        assert torch.DEVICE.is_initialized()
        """
    )


def test_set_device_changes_where_tensors_go(module, name, other):
    module.set_device(other)
    assert module.current_device() == 1
    assert torch.empty(1, device=name).device == other
    module.set_device(-1)
    assert module.current_device() == 1


def test_device_context_restores(module, other):
    with module.device(other):
        assert module.current_device() == 1
        with module.device(None), module.device(-1):
            assert module.current_device() == 1
    assert module.current_device() == 0


def test_device_of_follows_a_tensor(module, other):
    with module.device_of(torch.empty(1, device=other)):
        assert module.current_device() == 1
    with module.device_of(torch.empty(1)):
        assert module.current_device() == 0
    with torch.device(other):
        assert torch.empty(1).device == other


@pytest.mark.parametrize("bad", ["cpu", torch.device("cpu"), 1.5, object()])
def test_device_of_another_kind_is_refused(module, bad):
    with pytest.raises(ValueError, match="Expected a"):
        module.set_device(bad)


def test_index_out_of_range_is_refused_with_the_number_of_devices(module, name):
    count = module.device_count()
    with pytest.raises(RuntimeError, match=str(count)):
        module.set_device(count)
    with pytest.raises(RuntimeError, match=str(count)):
        torch.empty(1, device=f"{name}:{count}")
    with pytest.raises(AssertionError):
        module.get_device_properties(count)


def test_get_device_index_as_torch_cudas(module, name):
    assert module._get_device_index(3) == 3
    assert module._get_device_index(f"{name}:1") == 1
    assert module._get_device_index(name, optional=True) == 0
    assert module._get_device_index(None, optional=True) == 0
    assert module._get_device_index("cpu", allow_cpu=True) == -1
    with pytest.raises(ValueError, match="with a specified index"):
        module._get_device_index(name)


def test_properties_print_and_agree(module):
    properties = module.get_device_properties(0)
    assert properties.name == module.get_device_name(0)
    assert (properties.major, properties.minor) == module.get_device_capability()
    assert properties.total_memory == module.mem_get_info()[1] > 0
    assert len(str(properties.uuid)) == 36
    for part in (properties.name, "total_memory=", "multi_processor_count="):
        assert part in repr(properties)


def test_dtypes_of_the_device(module):
    dtypes = module.get_device_properties().dtypes
    assert torch.float32 in dtypes
    assert module.is_bf16_supported() == (torch.bfloat16 in dtypes)
    assert set(module.get_amp_supported_dtype()) == {torch.float16, torch.bfloat16} & dtypes
    assert module.is_tf32_supported() is False


def test_peers(module, other):
    assert module.can_device_access_peer(0, other)
    assert not module.can_device_access_peer(0, 0)
    with pytest.raises(AssertionError):
        module.can_device_access_peer(0, 77)


def test_synchronize_takes_every_spelling(module, name, device):
    """That it waits: test_accelerator.py."""
    for spelling in (None, 0, name, f"{name}:0", device):
        module.synchronize(spelling)


def test_typed_names_of_old_code(module, name, device):
    x = module.FloatTensor(2, 3)
    assert x.shape == (2, 3)
    assert x.device.type == name
    assert isinstance(x, module.FloatTensor)
    assert not isinstance(x, module.HalfTensor)
    assert not isinstance(x.cpu(), module.FloatTensor)
    assert module.LongTensor([1, 2]).tolist() == [1, 2]
    assert torch.ones(2).type(module.IntTensor).dtype == torch.int32
    assert torch.ones(2).type(module.IntTensor).device.type == name
    assert x.type() == f"torch.{name}.FloatTensor"
    assert x.type(x.type()).type() == x.type()


def test_typed_storages_of_old_code(module, name, device):
    storage = module.FloatStorage(4)
    assert (storage.device.type, storage.dtype, len(storage)) == (name, torch.float32, 4)
    assert isinstance(storage, module.FloatStorage)
    assert not isinstance(storage, torch.FloatStorage)
    assert torch.ones(2, device=device).storage_type() is module.FloatStorage
    assert module.LongStorage([1, 2]).tolist() == [1, 2]
    assert isinstance(torch.ones(2).storage(), torch.FloatStorage)
    with pytest.raises(RuntimeError, match="memory of the host"):
        module.HalfStorage.from_buffer(b"1234")
