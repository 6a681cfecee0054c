"""The vendor of MetaX's GPUs, as far as it can be looked at without any header of MACA's: that it
builds, keeps the contract on paper, and that docs/hip.md says where each name is taken from.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "vendors/cuda/src"
CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]


def test_each_name_has_a_source_in_the_docs() -> None:
    text = "".join((SOURCES / f"{n}_maca.hpp").read_text() for n in ("kin", "blas"))
    named = set(re.findall(r"\b(mc(?:rtc|blas)?[A-Z]\w+)\b", text))
    named = {name for name in named if not name.endswith("_t")} - {"mcBLAS"}
    documented = set(re.findall(r"`(mc\w+)`", (ROOT / "docs/hip.md").read_text()))
    assert len(named) > 50
    assert named - documented == set()
    assert documented - named == set()


def test_memory_streams_and_events_keep_the_contract_on_paper(
    run_python: Run, metax_library: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    args = ("conformance", "--level", "0", "--json", str(report))
    given = {"CAUSEWAY_VENDOR": str(metax_library), "CAUSEWAY_METAX_PAPER": "xcore1000x2"}
    run_python(CAUSEWAY, status=None, args=args, **given)
    failed = {c["name"] for c in json.loads(report.read_text())["checks"] if c["state"] == "failed"}
    assert failed == set()


def test_without_maca_use_says_what_to_install(run_python: Run, metax_library: Path) -> None:
    given = {"CAUSEWAY_VENDOR": str(metax_library), "CAUSEWAY_METAX_MACA": "/nowhere/x.so"}
    words = run_python("import torch; torch.ones(3, device='metax')", status=1, **given).stderr
    assert "MACA's runtime libmcruntime.so cannot be opened (/nowhere/x.so" in words
    assert "install MetaX's MACA" in words
