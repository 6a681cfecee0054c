"""What a device may be called is judged in one place, whoever gives the name."""

from __future__ import annotations

import re
from pathlib import Path

import odd_vendors
import pytest
import torch

from causeway import device_name

TEMPLATE = odd_vendors.INCLUDE.parent / "vendors/template/template.c"
# A name, and the reason.
REFUSED = {
    "h100": "no digits",
    "npu2": "no digits",
    "my chip": "lower-case letters and '_'",
    "Chip": "lower-case letters and '_'",
    "_chip": "a letter first",
    "vulkan": "device type of torch's own",
    "hpu": "device type of torch's own",
    "meta": "device type of torch's own",
    "cuda": "device type of torch's own",
    "nn": "torch.nn is there already",
    "utils": "torch.utils is there already",
    "tensor": "torch.tensor is there already",
    "is_tensor": "torch.is_tensor is there already",
    "empty": "torch.empty is there already",
    "onnx": "torch.onnx is there already",
    "half": "there already",
    "contiguous": "is_contiguous",
    "train": "Module.train of torch is there already",
    "lambda": "a word of Python",
    "comm": "CAUSEWAY_COMM_... are settings of Causeway",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_is_refused_with_the_reason_and_what_is_allowed(name: str) -> None:
    why = device_name.refusal(name)
    assert why is not None
    assert REFUSED[name] in why
    assert "lower-case letters and '_', a letter first" in why


@pytest.mark.parametrize("name", ["sim", "npu", "opencl", "nvidia", "my_chip", "template"])
def test_a_good_name_is_taken(name: str) -> None:
    assert device_name.refusal(name) is None


def test_the_device_types_are_those_of_torchs_parser() -> None:
    with pytest.raises(RuntimeError) as error:
        torch.device("nosuchdevice")
    listed = re.search(r"Expected one of (.*) device type", str(error.value))
    assert listed is not None
    known = set(listed[1].split(", "))
    assert known - set(device_name.DEVICE_TYPES) == {*device_name.FREE}
    page = (odd_vendors.INCLUDE.parent / "docs/packaging.md").read_text()
    words = re.search(r"<!-- types -->(.*?)<!-- end -->", page, re.DOTALL)
    assert words is not None
    assert re.findall(r"`(\w+)`", words[1]) == list(device_name.DEVICE_TYPES)


STILL_WELL = """
import sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
said = "\\n".join(str(w.message) for w in caught)
for word in sys.argv[1:]:
    assert word in said, said
assert torch.empty(3, device="meta").device.type == "meta"
assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).shape == (1, 2)
assert torch.empty(2).shape == (2,) and torch.utils.__name__ == "torch.utils"
"""
WITH_DEVICE = STILL_WELL + 'assert torch.ones(3, device="sim").tolist() == [1, 1, 1]\n'
WITHOUT = (
    STILL_WELL
    + """
try:
    torch.ones(3, device="privateuseone")
except RuntimeError as error:
    assert sys.argv[1] in str(error), error
else:
    raise AssertionError
"""
)


@pytest.mark.parametrize("name", ["npu2", "vulkan", "nn"])
def test_a_bad_setting_leaves_the_vendors_own_name(run, name: str) -> None:
    said = f"CAUSEWAY_DEVICE_NAME is '{name}': "
    run(WITH_DEVICE, args=(said, REFUSED[name]), CAUSEWAY_DEVICE_NAME=name)


@pytest.mark.parametrize("name", ["h100", "meta", "nn", "is_tensor"])
def test_a_table_with_a_bad_name_is_refused_before_anything_is_renamed(
    run, tmp_path: Path, name: str
) -> None:
    (tmp_path / "chip.c").write_text(
        TEMPLATE.read_text().replace('.name = "template"', f'.name = "{name}"')
    )
    library = odd_vendors.compile_c(tmp_path / "chip.c", tmp_path / f"libcw_{name}.so")
    run(WITHOUT, args=(f'its name is "{name}": ', REFUSED[name]), CAUSEWAY_VENDOR=str(library))


@pytest.mark.parametrize("file", ["empty.so", "meta.so", "nn.so", "libcw_mi300.so"])
def test_a_library_that_is_none_keeps_its_own_error(run, tmp_path: Path, file: str) -> None:
    (tmp_path / file).touch()
    run(WITHOUT, args=("file too short",), CAUSEWAY_VENDOR=str(tmp_path / file))


def test_a_description_of_a_library_that_is_not_there_keeps_its_error(run, tmp_path: Path) -> None:
    chip = tmp_path / "p4.json"
    chip.write_text('{"kind": "causeway-paper", "library": "/nonexistent.so"}')
    run(WITHOUT, args=("/nonexistent.so",), CAUSEWAY_VENDOR=str(chip))


@pytest.mark.parametrize("part", [0.2, 0.6, 0.99])
def test_a_library_that_was_cut_is_refused_and_no_bus_error(run, tmp_path: Path, part) -> None:
    whole = odd_vendors.compile_c(TEMPLATE, tmp_path / "whole.so").read_bytes()
    cut = tmp_path / "libcw_template.so"
    cut.write_bytes(whole[: int(len(whole) * part)])
    run(WITHOUT.replace("privateuseone", "template"), args=("a part of it is missing",),
        CAUSEWAY_VENDOR=str(cut))  # fmt: skip
