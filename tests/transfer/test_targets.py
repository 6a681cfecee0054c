"""Every row of the table of targets: it is replaced, it does what it says, and it is complete."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed

from causeway import transfer
from causeway.device.names import WORKS
from causeway.redirect.describe import markdown
from causeway.redirect.switch import find
from causeway.redirect.targets import ALL, FACTORIES, METHODS, STAND_INS

# Those of a module that nothing has imported yet have no owner.
PRESENT = [t for t in ALL if find(t.name)[0] is not None and hasattr(*find(t.name))]


@pytest.fixture
def on() -> Iterator[None]:
    with transfer.enable():
        yield


def test_every_target_is_replaced_and_restored() -> None:
    places = [find(t.name) for t in PRESENT]
    before = [inspect.getattr_static(*place) for place in places]
    with transfer.enable():
        for (owner, name), original in zip(places, before, strict=True):
            new = inspect.getattr_static(owner, name)
            assert new is not original, name
            if callable(original) and not isinstance(original, type):
                assert new.__name__ == original.__name__
                assert new.__doc__ == original.__doc__
    assert [inspect.getattr_static(*place) for place in places] == before


def test_the_examples_of_all_targets_are_true(on: None) -> None:
    names = {"torch": torch, "d": transfer.enabled()}
    wrong = [t.name for t in PRESENT if t.example and eval(t.example, names) is not True]
    assert wrong == []


def test_every_function_of_torch_that_takes_a_device_is_a_target() -> None:
    rows = {t.name for t in (*FACTORIES, *METHODS)}
    # Not for programs, or without a device to choose: torch fills these in by itself.
    inner = {"_assert_tensor_metadata", "_cudnn_init_dropout_state", "_make_dep_token"}
    inner |= {"_nested_tensor_from_tensor_list", "_pin_memory", "_resize_output_", "eq", "ne"}
    inner |= {"Generator"}  # a class, in another group
    missing = set()
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        name = schema.name.removeprefix("aten::")
        if name in inner or not any("Device" in str(a.type) for a in schema.arguments):
            continue
        for owner in ("torch", "torch.Tensor"):
            if hasattr(*find(f"{owner}.{name}")) and f"{owner}.{name}" not in rows:
                missing.add(f"{owner}.{name}")
    assert missing == set()


def test_every_name_of_torch_cuda_that_works_is_the_devices(on: None) -> None:
    torch_own = {"amp", "comm", "graphs", "memory", "random", "streams", *STAND_INS}
    torch_own |= {"AcceleratorError", "OutOfMemoryError"}
    module = getattr(torch, transfer.enabled())
    for name in sorted(WORKS.keys() - torch_own):
        if not hasattr(torch.cuda, name):
            continue
        here, there = getattr(torch.cuda, name), getattr(module, name)
        if name == "default_generators":
            here = tuple(here)
        assert here is there or here == there or inspect.isfunction(here), name


def test_stand_ins_are_there_only_while_it_is_on() -> None:
    places = [find(f"torch.cuda.{name}") for name in STAND_INS]
    before = [getattr(*place) for place in places]
    with transfer.enable():
        for place, original in zip(places, before, strict=True):
            assert getattr(*place) is not original, place
    assert [getattr(*place) for place in places] == before


def test_the_page_is_written_from_the_table() -> None:
    page = Path(__file__).parents[2] / "docs/transfer.md"
    assert page.read_text() == markdown(), "run `make docs`"


def test_signatures_are_those_of_before() -> None:
    functions = [torch.random.fork_rng, torch.autocast.__init__, torch.cuda.synchronize]
    before = [inspect.signature(f) for f in functions]
    with transfer.enable():
        again = [torch.random.fork_rng, torch.autocast.__init__, torch.cuda.synchronize]
        assert [inspect.signature(f) for f in again] == before


def test_a_function_is_pickled_by_its_name(on: None) -> None:
    for function in (torch.zeros, torch.cuda.is_available, torch.load, torch.Generator):
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize(
    "value", ["cuda.pt", "cuda_model", "barracuda", "cudax:0", "file://cuda:0"]
)
def test_only_devices_are_rewritten(value: str, on: None) -> None:
    devices = transfer.enable().devices
    assert devices.rewrite(value) is value
    with pytest.raises(RuntimeError):
        torch.zeros(1, device=value)


def test_data_with_cuda_in_it_is_left_alone(on: None, tmp_path: Any) -> None:
    path = tmp_path / "cuda:0"
    torch.save({"cuda": torch.ones(2), "device": "cuda:0"}, path)
    loaded = torch.load(path)
    assert loaded["device"] == "cuda:0"
    assert set(loaded) == {"cuda", "device"}
