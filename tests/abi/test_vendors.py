"""The template builds and loads as it is; the odd vendors for the loader's tests build at all."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from pathlib import Path

import pytest
from odd_vendors import INCLUDE, NAMES, compile_c
from sim import Sim, i32

TEMPLATE = INCLUDE.parent / "vendors/template/template.c"


@pytest.mark.parametrize("name", NAMES)
def test_odd_vendor_builds(vendor_library: Callable[[str], Path], name: str) -> None:
    assert hasattr(C.CDLL(str(vendor_library(name))), "cw_open_v1") == (name != "no_symbol")


def test_the_template_is_a_level_0_vendor(tmp_path: Path) -> None:
    library = compile_c(TEMPLATE, tmp_path / "libcw_template.so", "-pedantic")
    vendor = Sim(library)  # the wrapper is of the contract, not of the chip
    assert (vendor.table.name, vendor.get("device_count", i32)) == (b"template", 1)
    assert (vendor.info().name, vendor.info().flags) == (b"Template 0", 1)
    address = vendor.alloc(64)
    vendor.write(address, b"bytes")
    assert vendor.read(address, 5) == b"bytes"
    vendor.free(address)
    assert not vendor.table.op_find
    assert not vendor.table.stream_create
