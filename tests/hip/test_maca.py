"""The vendor of MetaX's GPUs, as far as it can be looked at without any header of MACA's: that it
builds and keeps the contract on paper.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once, pytest.mark.long]


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
