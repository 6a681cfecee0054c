"""A library of DIOPI's functions that knows nothing of Causeway is a device of torch: opened as it
is, its functions compute, and a mistake in one is found.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = str(Path(__file__).parent / "programs.py")
CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]


def test_the_digits_are_learned_as_on_the_cpu_by_the_librarys_functions_alone(
    on_diopi: Run,
) -> None:
    said = json.loads(on_diopi(PROGRAMS, "digits").stdout.splitlines()[-1])
    assert said["ours"] == pytest.approx(said["cpu"], abs=0.01)
    assert said["ours"] > 0.85
    assert said["native"] + said["derived"] > 500
    assert said["host"] == said["decomposed"] == 0


def test_numbers_strides_and_draws_are_right_and_what_fails_has_the_librarys_words(
    on_diopi: Run,
) -> None:
    said = on_diopi(PROGRAMS, "few").stdout.splitlines()
    assert said[:2] == ["equal", "drawn"]
    # What no function takes, and what the library declines, is the host's.
    assert said[2] == "['aten::add.Tensor', 'aten::index.Tensor']"
    words = "\n".join(said[3:])
    assert "diopiNLLLossV2 gave diopiErrorOccurred (1): a target is no class" in words


def test_a_gpt_with_adamw_trains_in_a_memory_of_its_own(on_diopi: Run, plain: Path) -> None:
    """That of DIOPI's own tests, device_malloc and its like, which refuse a pointer of the wrong
    side; tensors come dense.
    """
    given = {
        "CAUSEWAY_DIOPI_DEVICE": str(plain / "libdevice.so"),
        "CAUSEWAY_DIOPI_MEMORY": "1000000000",
        "CAUSEWAY_DIOPI_CONTIGUOUS": "1",
        "PLAIN_DEVICE_SAYS": "1",
    }
    lines = on_diopi(PROGRAMS, "gpt", **given).stdout.splitlines()
    assert lines[-1] == "finalizeLibrary"
    said = json.loads(lines[-2])
    assert said["ours"] == pytest.approx(said["cpu"], rel=1e-4)
    assert said["adamw"] == ["native"]  # diopiFusedAdamW
    assert said["host"] == 0


def test_the_table_conforms(on_diopi: Run) -> None:
    assert "\nconforms: " in on_diopi("-c", CAUSEWAY, "conformance", "--table").stdout


@pytest.mark.long
def test_operators_conform(on_diopi: Run) -> None:
    """Some of them; `make test-diopi` asks all."""
    some = r"aten::(tanh|add|mm|_softmax|nonzero|masked_fill_)\b"
    words = ["conformance", "--level", "0", "--op", some, "--dtype", "float32|bool|int64"]
    assert "\nconforms: " in on_diopi("-c", CAUSEWAY, *words).stdout


def test_cases_by_hand_conform_but_for_a_planted_mistake(on_diopi: Run, plain: Path) -> None:
    words = ["-c", CAUSEWAY, "conformance", "--cases", str(Path(__file__).parent / "cases.toml")]
    wrong = {"CAUSEWAY_DIOPI_LIBRARY": str(plain / "libwrong.so")}
    said = on_diopi(*words, status=1, **wrong).stdout
    assert "aten::tanh.out\n" in said
    assert "does not conform: 1 operators failed; 9 operators passed" in said


NOTES = "import torch; from causeway import _C; print(_C.vendor_notes())"


def test_doctor_says_which_library_and_how_many_operators(on_diopi: Run, plain: Path) -> None:
    said = on_diopi("-c", NOTES).stdout
    assert f"{plain}/libdiopi_impl.so, Plain C++, 1.0\n" in said
    assert "memory, copies and streams: the memory of the host" in said
    found = re.search(r"(\d+) of (\d+) operators of the table are in the library", said)
    assert found is not None
    assert int(found[1]) >= 150
    assert "missing, among others: diopi" in said
