"""How libraries are shown the device: when, what is said, and how it is switched off."""

from __future__ import annotations

import importlib
import importlib.machinery
import inspect
import sys
import types
from typing import Any

import pytest

from causeway import config, integrations
from causeway.errors import ConfigError
from causeway.integrations import relabel

pytestmark = pytest.mark.once

# A library as they are: a question, and a branch for each vendor.
LIBRARY = '''
import functools
import torch

LOADED = []
{torch}

@functools.lru_cache
def is_npu_available():
    return False

def is_musa_available():
    return False

if is_npu_available():
    import torch_npu

@functools.lru_cache
def default():
    """The npu, or the CPU."""
    if is_npu_available():
        return "npu"
    return "cpu"

class Place:
    @property
    def device(self):
        def inner():
            return f"npu:{{1}}" if is_npu_available() else "cpu"
        return inner()

    @staticmethod
    def supported(name):
        return name in ("cuda", "npu")

    @classmethod
    def key(cls):
        return "torch_musa_manual_seed" if is_musa_available() else None

    @functools.cached_property
    def count(self):
        return torch.npu.device_count() if is_npu_available() else 0

def message():
    if is_npu_available():
        raise ValueError("no npu here")

def imports():
    import torch_npu
'''


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Put the library above, under the name of one that is known, on the path; give its name."""
    monkeypatch.setitem(integrations.LIBRARIES, "cw_library", "cw_library")
    known = integrations.Integration(
        ("1.0", "1.0"), "", lambda m: relabel.take_branches(m, {"is_npu_available": "npu",
                                                                "is_musa_available": "musa"})
    )  # fmt: skip
    real = integrations.integration
    monkeypatch.setattr(
        integrations, "integration", lambda name: known if name == "cw_library" else real(name)
    )
    (tmp_path / "cw_library.py").write_text(LIBRARY.format(torch=""))
    monkeypatch.syspath_prepend(str(tmp_path))
    finder: Any = next(f for f in sys.meta_path if type(f).__name__ == "_Finder")
    monkeypatch.setattr(finder, "roots", finder.roots | {"cw_library"})
    yield "cw_library"
    sys.modules.pop("cw_library", None)


@pytest.fixture
def loaded(library):
    return importlib.import_module(library)


def test_a_branch_for_another_device_is_taken_for_ours(loaded, device) -> None:
    name = device.type
    assert loaded.default() == name
    assert loaded.Place().device == f"{name}:1"
    assert loaded.Place.supported(name)
    assert loaded.Place.supported("npu")
    assert not loaded.Place.supported("mps")
    assert loaded.Place.key() == f"torch_{name}_manual_seed"
    assert loaded.Place().count > 0


def test_what_is_not_of_the_branch_stays(loaded) -> None:
    assert not loaded.is_npu_available()
    assert loaded.default.__wrapped__.__doc__ == "The npu, or the CPU."
    with pytest.raises(ValueError, match="no npu here"):
        loaded.message()
    with pytest.raises(ModuleNotFoundError, match="torch_npu"):
        loaded.imports()


def test_an_answer_from_before_is_forgotten(library) -> None:
    module = types.ModuleType("cw_library")
    exec(LIBRARY.format(torch=""), vars(module))
    assert module.default() == "cpu"
    relabel.take_branches(module, {"is_npu_available": "npu"})
    assert module.default() != "cpu"


def test_a_cell_or_a_local_of_that_name_is_left_alone(library, device) -> None:
    module = types.ModuleType("cw_library")
    source = """
def is_npu_available():
    return False

def local():
    from cw_library import is_npu_available
    return "npu" if is_npu_available() else "cpu"
"""
    exec(source, vars(module))
    assert relabel.take_branches(module, {"is_npu_available": "npu"}) == []


# Each takes most of a minute of imports.
FIRST = [
    "import transformers",
    *(pytest.param(f"import {name}", marks=pytest.mark.long) for name in ("torch", "accelerate")),
]


@pytest.mark.parametrize("first", FIRST)
def test_the_order_of_imports_does_not_matter(run_python, first: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    program = f"""
{first}
from transformers import TrainingArguments
from accelerate import Accelerator
import tempfile, torch
print(TrainingArguments(tempfile.mkdtemp(), fp16=True).device)
print(Accelerator(mixed_precision="fp16").scaler is not None)
"""
    done = run_python(program)
    assert done.stdout == "sim:0\nTrue\n"


def test_a_library_that_is_switched_off_is_left_alone(run_python) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    program = """
import sys, torch
import accelerate
print(accelerate.Accelerator().device)
print([m for m in sys.modules if m.startswith("causeway.integrations.acc")])
"""
    for value in ("none", "-accelerate", "peft"):
        assert run_python(program, CAUSEWAY_INTEGRATIONS=value).stdout == "cpu\n[]\n"


def test_importing_torch_loads_no_integration(run_python) -> None:
    program = """
import sys, torch
print(sorted(m for m in sys.modules if m.startswith("causeway.integrations.")))
"""
    assert run_python(program).stdout == "['causeway.integrations.hook']\n"


def test_doctor_says_which_libraries_see_the_device() -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from causeway import doctor

    found = {row["name"]: row for row in doctor.examine().libraries}
    assert "NPU" in found["accelerate"]["how"]
    with config.using(integrations="-accelerate"):
        found = {row["name"]: row for row in doctor.examine().libraries}
        assert found["accelerate"]["how"].startswith("off")


def test_an_unknown_library_is_refused() -> None:
    with (
        pytest.raises(ConfigError, match="did you mean 'accelerate'"),
        config.using(integrations="accelerat"),
    ):
        pass


def test_a_version_that_is_not_as_expected_warns_once_and_imports(library, monkeypatch) -> None:
    def loaded(module):
        raise LookupError("it has no branch for npu")

    known = integrations.Integration(("1.0", "2.0"), "", loaded)
    monkeypatch.setattr(integrations, "integration", lambda name: known)
    monkeypatch.setattr(integrations, "version", lambda name: "9.9")
    monkeypatch.setattr(integrations.state, "failed", {})
    with pytest.warns(UserWarning, match=r"will not use the device.*1.0 to 2.0.*9.9") as caught:
        assert importlib.import_module(library).default() == "cpu"
    assert len(caught) == 1
    assert "CAUSEWAY_INTEGRATIONS=-cw_library" in str(caught[0].message)


def test_a_module_that_fails_to_import_fails_as_without_us(library, tmp_path) -> None:
    (tmp_path / "cw_library.py").write_text("import torch\nraise ValueError('its own')\n")
    with pytest.raises(ValueError, match="its own"):
        __import__(library)
    assert library not in sys.modules


def test_source_and_loader_of_a_module_are_its_own(loaded) -> None:
    assert type(loaded.__loader__) is importlib.machinery.SourceFileLoader
    assert isinstance(loaded.__spec__, importlib.machinery.ModuleSpec)
    assert 'return "npu"' in inspect.getsource(inspect.unwrap(loaded.default))
