"""The programs of examples/zoo learn what they are to learn, on the device."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import warm

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.once, pytest.mark.long]

# What the last line must say: a number, and the least or the most that it may be.
ZOO = {
    "resnet": (r"([\d.]+)% of", 95, 100),
    "bert": (r"([\d.]+)% of", 80, 100),
    "detector": (r"([\d.]+)% of", 75, 100),
    "lstm": (r"([\d.]+) bits", 0, 3.8),
    "gpt": (r"([\d.]+) bits", 0, 3.5),
    "gan": (r"([\d.]+) of noise", 0, 0.65),
    "diffusion": (r"([\d.]+) of noise", 0, 0.75),
    "ppo": (r"stands ([\d.]+) times", 3, 1000),
}
NEEDS = {"bert": "transformers"}


def test_each_program_is_here_and_on_its_page() -> None:
    programs = {p.stem for p in (ROOT / "examples/zoo").glob("*.py")}
    assert programs == ZOO.keys()
    page = (ROOT / "docs/zoo.md").read_text()
    assert all(f"(../examples/zoo/{name}.py)" in page for name in programs)


@pytest.mark.parametrize("name", ZOO)
def test_it_learns(name: str, device) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
    environment |= {"OMP_NUM_THREADS": "1"}
    if name == "detector":
        beside = ROOT / "build" / "timm"
        if not (beside / "torchvision").exists():
            pytest.skip("torchvision is not there: `make test-libraries` gets it")
        environment["PYTHONPATH"] = str(beside)
    program = ROOT / "examples/zoo" / f"{name}.py"
    done = warm.run([program], env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    pattern, least, most = ZOO[name]
    found = re.search(pattern, last)
    assert found, last
    assert least <= float(found[1]) <= most, last
    assert last.endswith(f"on {device}")
