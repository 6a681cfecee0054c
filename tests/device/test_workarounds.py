"""Each workaround is still needed, and in force; one that torch needs no more must go."""

import pytest
import torch

from causeway import workarounds
from causeway.errors import CausewayError


@pytest.mark.parametrize("entry", workarounds.ALL, ids=lambda entry: entry.name)
def test_torch_still_has_the_bug(entry):
    version = tuple(map(int, torch.__version__.split(".")[:2]))
    affected = version >= entry.since and (entry.until is None or version < entry.until)
    assert entry.needed() == affected, (
        f"set `until`: {entry.upstream} is fixed in {torch.__version__}"
    )
    assert (entry in workarounds.in_force()) == affected


def test_each_names_its_upstream_issue():
    for entry in workarounds.ALL:
        assert entry.upstream.startswith("https://github.com/pytorch/pytorch/")
        assert entry.what


def test_apply_twice_changes_nothing():
    before = torch.Tensor.__dlpack_device__, workarounds.in_force()
    workarounds.apply()
    assert before == (torch.Tensor.__dlpack_device__, workarounds.in_force())


def test_data_parallel_leaves_tensors_of_others_to_torch(device):
    call = workarounds._refusing(lambda tensors, devices: (len(tensors), devices))  # as with CUDA
    assert call([torch.ones(1)], [0, 1]) == (1, [0, 1])
    with pytest.raises(CausewayError, match="DistributedDataParallel"):
        call([torch.ones(1), torch.ones(1, device=device)], [0, 1])
