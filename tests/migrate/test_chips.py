"""Programs in the style of what users of torch_npu, torch_mlu, torch_dipu and MindTorch publish.

tests/programs/chips has 24, most on real data: sklearn's digits and diabetes, chapters of Python's
own documentation. Each runs untouched under `causeway.compat`, and converted on the simulated chip;
the numbers must be those of the converted program on a torch that sees no device.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from causeway.compat import systems
from causeway.migrate import engine, journal
from causeway.migrate.settings import Settings

sys.path.insert(0, str(Path(__file__).parent))
from test_systems import losses, run_all, same

pytestmark = pytest.mark.timeout(900)  # the first test of `make test-long` waits for all programs

PROGRAMS = Path(__file__).parents[1] / "programs" / "chips"
NAMES = sorted(path.name for path in PROGRAMS.glob("*.py"))
SYSTEMS = ("npu", "mlu", "dipu", "mindtorch")
# Those of each day; the others are for `make test-long`.
DAILY = {
    "npu_char_gpt.py", "npu_profiled_config.py", "mlu_ddp_digits.py", "dipu_policy.py",
    "mindtorch_text_written_out.py",
}  # fmt: skip
# Mixed precision is in bfloat16 on the CPU, and in float16 where the program names no dtype.
HALF = {
    "npu_digits_cnn_amp.py": 6e-2, "mlu_digits_amp.py": 6e-2, "mlu_amp_flags.py": 6e-2,
    "npu_zoo_classifier.py": 6e-2,
}  # fmt: skip
# What redirects CUDA's calls shows CUDA's device to an untouched program.
REDIRECTED = {
    "npu_transfer_resnet.py", "mlu_migrated_gan.py", "dipu_digits.py", "dipu_gru_text.py",
    "dipu_policy.py", "mindtorch_digits.py",
}  # fmt: skip
# What stays by hand, with the import that it needs. Converted it asks whether the package is there,
# and computes on the CPU where it is not.
BY_HAND = {"npu_char_gpt.py": {"CW170", "CW173"}}

PICKED = [name if name in DAILY else pytest.param(name, marks=pytest.mark.long) for name in NAMES]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All the programs, converted as a tree."""
    target = tmp_path_factory.mktemp("chips") / "converted"
    result = engine.run([PROGRAMS], Settings(jobs=1))
    journal.copy(result, [PROGRAMS], target)
    left: dict[str, set[str]] = {}
    for f in result.findings():
        if f.kind in ("manual", "unsupported") and not f.is_advice:
            left.setdefault(Path(f.file).name, set()).add(f.rule)
    assert left == BY_HAND
    return target


def _wanted(request: pytest.FixtureRequest) -> list[str]:
    """The programs that the tests of this run ask for."""
    items = [item for item in request.session.items if item.path == request.path]
    given = [getattr(item, "callspec", None) for item in items]
    asked = {spec.params["name"] for spec in given if spec is not None}
    return [name for name in NAMES if name in asked]


def _said(paths: list[Path], *, device: bool = True, compat: str = "") -> dict[str, str]:
    """What programs print, a few to a process."""
    said: dict[str, str] = {}
    for first in range(0, len(paths), 4):
        said |= run_all(paths[first : first + 4], device=device, compat=compat)
    return said


@pytest.fixture(scope="module")
def on_cpu(tree: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    return _said([tree / name for name in _wanted(request)], device=False)


@pytest.fixture(scope="module")
def on_device(tree: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    return _said([tree / name for name in _wanted(request)])


@pytest.fixture(scope="module")
def untouched(request: pytest.FixtureRequest) -> dict[str, str]:
    said: dict[str, str] = {}
    for system in SYSTEMS:
        names = [name for name in _wanted(request) if name.startswith(f"{system}_")]
        for redirects in (False, True):  # what redirects stays on in its process
            paths = [PROGRAMS / name for name in names if (name in REDIRECTED) == redirects]
            said |= _said(paths, compat=system)
    return said


def test_there_are_programs_for_each_system_and_each_names_its_package() -> None:
    for system in SYSTEMS:
        named = [PROGRAMS / name for name in NAMES if name.startswith(f"{system}_")]
        assert len(named) >= 3
        package = next(iter(systems()[system].packages))
        assert all(package in path.read_text() for path in named)
    assert len(NAMES) >= 20
    assert set(NAMES) >= DAILY | set(HALF) | REDIRECTED | set(BY_HAND)


@pytest.mark.parametrize("name", PICKED)
def test_a_converted_program_gives_the_cpus_numbers(
    name: str, on_cpu: dict[str, str], on_device: dict[str, str]
) -> None:
    where = "cpu" if name in BY_HAND else "sim"
    same(losses(on_device[name], where), losses(on_cpu[name], "cpu"), HALF.get(name, 1e-3))


@pytest.mark.parametrize("name", PICKED)
def test_an_untouched_program_gives_the_cpus_numbers(
    name: str, on_cpu: dict[str, str], untouched: dict[str, str]
) -> None:
    system = systems()[name.partition("_")[0]]
    shown = "cuda" if name in REDIRECTED else system.device or "sim"
    same(losses(untouched[name], shown), losses(on_cpu[name], "cpu"), HALF.get(name, 1e-3))
