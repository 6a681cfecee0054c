"""`import torch` finds the device, opens none, costs little and never fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from causeway import autoload
from causeway.errors import CausewayError

SHOW = "; print(torch.accelerator.current_accelerator(), causeway.__version__)"


@pytest.mark.parametrize(
    "imports",
    ["import torch; import causeway", "import causeway; import torch", "import causeway, torch"],
)
@pytest.mark.parametrize("autoload", [None, "0", "1"])
def test_any_order_of_imports_gives_the_device(run_python, imports: str, autoload) -> None:
    done = run_python(imports + SHOW, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload, new=True)
    assert done.stdout.startswith("sim ")
    assert done.stderr == ""


def test_import_torch_is_enough(run_python) -> None:
    done = run_python("import torch; print(torch.ones(2, device='sim') + 1)", new=True)
    assert "tensor([2., 2.], device='sim:0')" in done.stdout


def test_torch_can_be_told_to_leave_it_out(run_python) -> None:
    program = "import torch; print(hasattr(torch, 'sim'), torch.accelerator.is_available())"
    done = run_python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0", new=True)
    assert done.stdout == "False False\n"


def test_import_opens_no_device_and_loads_nothing_heavy(run_python) -> None:
    program = """
import sys, torch
from causeway import _C
assert not _C.is_initialized() and not torch.sim.is_initialized()
print([m for m in ("typer", "rich", "causeway.cli", "causeway.doctor") if m in sys.modules])
"""
    assert run_python(program, new=True).stdout == "[]\n"


def test_import_costs_at_most_a_tenth_of_torchs(run_python) -> None:
    program = """
import time
begin = time.perf_counter()
import torch
whole = time.perf_counter() - begin
from causeway.autoload import state
print(state.seconds / (whole - state.seconds))
"""
    assert min(float(run_python(program, new=True).stdout) for _ in range(3)) < 0.1


def test_the_device_can_have_another_name(run_python) -> None:
    program = "import torch; print(torch.ones(1, device='npu'), torch.npu.is_available())"
    done = run_python(program, CAUSEWAY_DEVICE_NAME="npu")
    assert done.stdout == "tensor([1.], device='npu:0') True\n"


@pytest.mark.parametrize("name", ["cuda", "nn", "My Chip"])
def test_a_name_that_torch_cannot_take_is_refused(run_python, name: str) -> None:
    done = run_python("import torch; print(torch.sim.is_available())", CAUSEWAY_DEVICE_NAME=name)
    assert done.stdout == "True\n"
    assert f"CAUSEWAY_DEVICE_NAME is {name!r}" in done.stderr


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CAUSEWAY_VENDOR": "/no/such.so"}, "'/no/such.so': there is no such file"),
        ({"CAUSEWAY_VENDOR": "simm"}, "did you mean 'sim'"),
        ({"CAUSEWAY_VENDOR": __file__ + "/x.so"}, "there is no such file"),
    ],
)
def test_a_missing_vendor_is_a_warning_and_no_device(run_python, variables, words) -> None:
    program = """
import torch
print(torch.sim.is_available(), torch.sim.device_count(), torch.accelerator.is_available())
print(torch.ones(2) + 1)
"""
    done = run_python(program, **variables)
    assert done.stdout == "False 0 False\ntensor([2., 2.])\n"
    assert words in done.stderr


def test_a_library_that_is_no_vendor_is_refused_with_the_reason(run_python, tmp_path) -> None:
    library = tmp_path / "libcw_text.so"
    library.write_text("no library")
    program = "import torch; print(torch.text.is_available())"
    done = run_python(program, CAUSEWAY_VENDOR=str(library))
    assert done.stdout == "False\n"
    assert "cannot open the vendor's library" in done.stderr


def test_a_core_that_cannot_be_imported_is_a_warning_and_no_device(run_python) -> None:
    program = """
import sys
sys.modules["causeway._C"] = None  # as where it was built for another torch
import torch
print(torch.sim.is_available(), torch.sim.device_count())
from causeway import doctor
print(doctor.examine().verdict)
"""
    done = run_python(program)
    assert done.stdout.startswith("False 0\nbroken: there is no device: causeway._C cannot be")
    assert "build it anew for this torch" in done.stderr


def test_another_torch_than_it_was_built_for_is_named_with_what_to_do(monkeypatch) -> None:
    built = ".".join(torch.__version__.split(".")[:2])
    monkeypatch.setattr(torch, "__version__", "2.99.0+cpu")
    words = rf"built for torch {re.escape(built)}, and torch 2\.99\.0\+cpu is installed.*make build"
    with pytest.raises(CausewayError, match=words):
        autoload._import_core()


def test_mistakes_in_the_environment_warn_and_count_as_not_there(run_python) -> None:
    program = "import torch; print(torch.ones(1, device='sim').item())"
    done = run_python(
        program, CAUSEWAY_POLCY="warn", CAUSEWAY_POLICY="alow", CAUSEWAY_FALLBACK="ad.out"
    )
    assert done.stdout == "1.0\n"
    for words in (
        "CAUSEWAY_POLCY is no setting of Causeway; did you mean CAUSEWAY_POLICY?",
        "CAUSEWAY_POLICY is 'alow'",
        "'ad.out' matches no operator; did you mean 'add.out'?",
    ):
        assert words in done.stderr


def test_warnings_as_errors_do_not_break_import_torch(run_python) -> None:
    program = "import warnings; warnings.simplefilter('error'); import torch; print(torch.sim)"
    assert "torch.sim" in run_python(program, CAUSEWAY_POLCY="1", CAUSEWAY_VENDOR="no").stdout


def test_devices_are_reordered_and_hidden(run_python) -> None:
    program = """
import torch
print([torch.sim.get_device_name(i) for i in range(torch.sim.device_count())])
"""
    names = {
        None: "['Sim 0', 'Sim 1']",
        "1,0": "['Sim 1', 'Sim 0']",
        "1": "['Sim 1']",
        "": "[]",
    }
    for visible, expected in names.items():
        done = run_python(program, CAUSEWAY_VISIBLE_DEVICES=visible)
        assert done.stdout.strip() == expected, visible
    counted = run_python(
        "import torch; print(torch.accelerator.device_count())", CAUSEWAY_VISIBLE_DEVICES="1"
    )
    assert counted.stdout == "1\n"


@pytest.mark.parametrize("visible", ["1,x", "7", "-1", "0,0"])
def test_a_bad_device_index_is_named_at_the_first_use(run_python, visible: str) -> None:
    program = "import torch; print('imported'); torch.ones(1, device='sim')"
    done = run_python(program, CAUSEWAY_VISIBLE_DEVICES=visible, status=1)
    assert done.stdout == "imported\n"
    last = done.stderr.strip().splitlines()[-1]
    assert "ConfigError" in last
    assert visible.split(",")[-1] in last


def test_the_memory_fraction_limits_each_device(run_python) -> None:
    program = """
import torch
torch.ones(1, device="sim:1")
print(torch.sim.get_per_process_memory_fraction(1))
try:
    torch.empty(9 << 30, dtype=torch.uint8, device="sim:1")
except torch.OutOfMemoryError as error:
    print("refused")
"""
    done = run_python(program, CAUSEWAY_MEMORY_FRACTION="0.5")
    assert done.stdout == "0.5\nrefused\n"


def test_without_the_memory_cache_a_tensor_is_an_allocation_of_its_size(run_python) -> None:
    program = """
import torch
x = torch.ones(100, device="sim")
print(torch.sim.memory_reserved())
y = x[3:] + 1
print(torch.sim.memory_reserved(), y.sum().item())
del x
print(torch.sim.memory_reserved())
del y
print(torch.sim.memory_reserved(), torch.sim.memory_allocated())
"""
    done = run_python(program, CAUSEWAY_MEMORY_CACHE="0")
    assert done.stdout == "400\n788 194.0\n388\n0 0\n"


def test_exit_after_a_backward_is_clean(run_python) -> None:
    program = """
import torch
x = torch.ones(4, device="sim", requires_grad=True)
(x * x).sum().backward()
"""
    for _ in range(5):
        assert run_python(program).stderr == ""


@pytest.mark.parametrize("start", [[str(Path(sys.executable).with_name("causeway"))],
                                   [sys.executable, "-m", "causeway"]])  # fmt: skip
def test_the_command_line_imports_torch_only_for_what_needs_it(
    tmp_path: Path, start: list[str]
) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    (tmp_path / "train.py").write_text("print('no torch here')")

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [*start, *arguments], env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    assert "conformance" in command("--help")
    assert "no torch here" in command("run", "train.py")
    assert "Usage: causeway migrate" in command("migrate", "--help")
    assert command("migrate", "train.py") != "torch was imported\n"
    assert command("version") == "torch was imported\n"
