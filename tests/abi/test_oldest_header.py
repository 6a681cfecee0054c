"""Libraries built with the first abi.h there was load and work with all that came after."""

from __future__ import annotations

import ctypes as C
from pathlib import Path

import pytest
from odd_vendors import FIRST, HERE, INCLUDE, compile_c
from sim import Backend, DeviceTensor, Sim

END = Backend.close.offset  # where the first table ended


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory):
    """oldest(source) builds a library against tests/abi/first."""
    folder = tmp_path_factory.mktemp("oldest")

    def build(source: Path) -> Path:
        to = folder / f"libcw_{source.stem}.so"
        return compile_c(source, to, f"-I{HERE / 'vendors'}", include=FIRST)

    return build


def test_the_template_has_the_first_table_and_nothing_after_it(oldest) -> None:
    vendor = Sim(oldest(INCLUDE.parent / "vendors/template/template.c"))
    assert vendor.table.struct_size == END == 224
    later = [name for name, *_ in Backend._fields_ if getattr(Backend, name).offset >= END]
    assert "close" in later
    assert [entry for entry in later if vendor.offers(entry)] == []
    address = vendor.alloc(64)
    vendor.write(address, b"bytes")
    assert vendor.read(address, 5) == b"bytes"


def test_its_kernels_are_found_and_called(oldest) -> None:
    vendor = Sim(oldest(HERE.parent / "core/vendors/asks.c"))
    x = DeviceTensor(vendor.alloc(16), "float32", (4,), (1,))
    vendor.write(x.data, bytes((C.c_float * 4)(1, 2, 3, 4)))
    vendor.run("aten::neg.out", x, x)
    assert list((C.c_float * 4).from_buffer_copy(vendor.read(x.data, 16))) == [-1, -2, -3, -4]
