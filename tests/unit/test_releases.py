"""The runs on other releases of torch: what is installed for them, what their table says."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import releases


def test_of_what_torch_asks_for_only_what_it_links_to_is_installed() -> None:
    asked = [
        "filelock",
        'cuda-toolkit[cublas,cusolver,cudart,nvtx]==13.2.2; platform_system == "Linux"',
        'cuda-bindings<14,>=13.0.3; platform_system == "Linux"',
        'nvidia-cudnn-cu13==9.26.0.51; platform_system == "Linux"',
        'triton~=3.9.0; platform_system == "Linux"',
        'optree>=0.13.0; extra == "optree"',
    ]
    libraries = ["cuda-toolkit[cublas,cudart]==13.2.2", "nvidia-cudnn-cu13==9.26.0.51"]
    assert releases.cuda_libraries(asked) == libraries
    assert releases.cuda_libraries(["filelock", "sympy>=1.13.3"]) == []


def test_the_table_names_what_failed_and_what_was_not_run() -> None:
    part = {"passed": 3, "failed": 1, "skipped": 2, "failures": ["tests.test_a.test_b"]}
    run = {"torch": "2.15.0+cu132", "python": "3.11.7", "parts": {"tiny": part}}
    table = releases.markdown({"2.15.0": run})
    assert "| 2.15.0+cu132 | 3.11.7 | 3 passed, 1 failed, 2 left out | not run |" in table
    assert table.endswith("- torch 2.15.0: `tests.test_a.test_b`")
    assert releases.markdown({}).endswith("Nothing was run yet.")
