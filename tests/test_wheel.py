"""The release wheel, in a new environment, gives the device and passes the tiny tests."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def run(*command: str | Path, **more: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CAUSEWAY_", "PYTHON"))}
    done = subprocess.run(
        command, cwd=ROOT, env=environment | more, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheels")
    run("make", "wheel", f"WHEELS={place}")
    (path,) = place.glob("causeway-*.whl")
    return path


def test_the_wheel_has_what_it_needs_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in (
        "causeway/__init__.py",
        "causeway/py.typed",
        "causeway/_C.pyi",
        f"causeway/_C{sysconfig.get_config_var('EXT_SUFFIX')}",
        "causeway/lib/libcw_sim.so",
        "causeway/lib/libcw_run.so",
        "causeway/lib/libcw_run.a",
        "causeway/lib/cw",
        "causeway/run.py",
        "causeway_run/__init__.py",
        "causeway_run/library.py",
        "causeway_run/py.typed",
        "causeway/include/causeway/abi.h",
        "causeway/include/causeway/dlpack.h",
        "causeway/include/causeway/op.hpp",
        "causeway/include/causeway/run.h",
        "causeway/include/causeway/run.hpp",
        "causeway/include/causeway/operators.hpp",
        "causeway/include/causeway/pattern.hpp",
        "causeway/include/causeway/dot.hpp",
        "causeway/include/causeway/program_cache.hpp",
        "causeway/vendor-template/template.c",
        "causeway/vendor-template/.github/workflows/test.yml",
    ):
        assert needed in names, sorted(names)
    roots = ("causeway/", "causeway_command/", "causeway_run/", "causeway-")
    strange = [n for n in names if not n.startswith(roots)]
    assert strange == []
    assert not [n for n in names if "__pycache__" in n or n.endswith((".cpp", ".o"))]


def test_the_wheel_knows_no_path_of_this_machine(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (core,) = (tmp_path / "causeway").glob("_C*.so")
    header = run("readelf", "-d", core)
    assert "$ORIGIN/../torch/lib" in header
    assert str(ROOT) not in header
    for binary in tmp_path.rglob("*.so"):
        assert str(ROOT).encode() not in binary.read_bytes(), binary


def test_a_python_without_torch_runs_a_model_file(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    (place,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel)
    for part in Path(sysconfig.get_path("purelib")).glob("numpy*"):
        (place / part.name).symlink_to(part)
    program = """
import importlib.util, sys, numpy, causeway.run
assert importlib.util.find_spec("torch") is None
model = causeway.run.load(sys.argv[1], "sim", allow_host_code=True)
print(model.session()(input=numpy.arange(3))["output"].shape, causeway.run.__file__)
"""
    said = run(python, "-c", program, ROOT / "tests/ship/version1.cw", CAUSEWAY_SIM_CODE="1")
    assert said == f"(3, 3) {place}/causeway/run.py\n"


@pytest.fixture
def environment(wheel: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A new Python with the wheel, and its site-packages."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    (place,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel)
    # torch and pytest from the development environment: to copy 700 MB would prove nothing. The
    # development tree itself is not found there: a .pth file is read in site-packages only.
    (place / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python, place


def test_the_tiny_tests_pass_in_a_new_environment(
    environment: tuple[Path, Path], tmp_path: Path
) -> None:
    python, place = environment
    program = "import causeway; print(causeway.__file__)"
    assert run(python, "-c", program).strip() == str(place / "causeway" / "__init__.py")
    run(
        python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "tests/test_tiny.py"
    )
    doctor = run(tmp_path / "venv" / "bin" / "causeway", "doctor", COLUMNS="500")
    assert str(place / "causeway" / "lib" / "libcw_sim.so") in doctor
    assert "good: 2 devices" in doctor


def test_a_new_vendors_package_is_built_from_the_wheel_alone(
    environment: tuple[Path, Path], tmp_path: Path
) -> None:
    python, place = environment
    folder = tmp_path / "mychip"
    run(tmp_path / "venv" / "bin" / "causeway", "new", "mychip", "--folder", folder)
    tools = f"{tmp_path / 'venv' / 'bin'}:{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", folder]
    run(*pip, PATH=tools)
    assert (place / "causeway_mychip" / "libcw_mychip.so").is_file()
    program = "import torch; print(torch.ones(3, device='mychip').tolist())"
    assert run(python, "-c", program).strip() == "[1.0, 1.0, 1.0]"
    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder, PATH=tools)
    assert "3 passed" in said
