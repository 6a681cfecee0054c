"""Vendors that are installed as packages are: which one `import torch` takes, and what is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import odd_vendors
import pytest

TEMPLATE = odd_vendors.INCLUDE.parent / "vendors/template/template.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    text = TEMPLATE.read_text().replace('.name = "template"', ".name = NAME")
    (folder / "chip.c").write_text(text)
    for name in ("acme", "zeta"):
        flag = f'-DNAME="{name}"'
        odd_vendors.compile_c(folder / "chip.c", folder / f"libcw_{name}.so", flag)
    return folder


def install(name: str, library: Path, site: Path) -> None:
    """What pip leaves behind of a vendor's package."""
    package = site / f"{name}_torch"
    package.mkdir(parents=True)
    shutil.copy(library / f"libcw_{name}.so", package)
    (package / "__init__.py").write_text(
        "from pathlib import Path\n"
        f"def library(): return str(Path(__file__).parent / 'libcw_{name}.so')\n"
    )
    info = site / f"{name}_torch-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-torch\nVersion: 1.0\n")
    points = f"[causeway.vendors]\n{name} = {name}_torch:library\n"
    (info / "entry_points.txt").write_text(points)


ONE = """
import torch
assert torch.accelerator.current_accelerator() == torch.device("acme")
assert torch.ones(2, device="acme").tolist() == [1, 1]
assert not hasattr(torch, "sim")
"""


def test_one_real_vendor_wins_over_the_simulated_chip(run, library: Path, tmp_path: Path) -> None:
    install("acme", library, tmp_path)
    run(ONE, PYTHONPATH=str(tmp_path))


TWO = """
import contextlib, io, json, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
said = "\\n".join(str(w.message) for w in caught)
for word in ("2 vendors are installed, acme, zeta", "none is taken",
             "CAUSEWAY_VENDOR=acme or CAUSEWAY_VENDOR=zeta", "CAUSEWAY_VENDOR=sim"):
    assert word in said, said
assert torch.accelerator.current_accelerator(check_available=True) is None
assert torch.acme.is_available() is False and torch.zeta.device_count() == 0
assert not hasattr(torch, "sim")
from causeway.cli import app
def command(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            app(list(words))
        except SystemExit as end:
            return end.code, out.getvalue()
status, text = command("doctor", "--json")
assert status == 1 and "2 vendors are installed, acme, zeta" in json.loads(text)["verdict"], text
status, text = command("config")
assert "2 vendors are installed, acme, zeta" in text.replace("\\n", " "), text
"""


def test_of_two_real_vendors_none_is_taken_and_all_say_so(run, library, tmp_path: Path) -> None:
    for name in ("acme", "zeta"):
        install(name, library, tmp_path)
    run(TWO, PYTHONPATH=str(tmp_path))


CHOSEN = """
import sys, torch
name = sys.argv[1]
assert torch.accelerator.current_accelerator() == torch.device(name)
assert torch.ones(2, device=name).tolist() == [1, 1]
"""


@pytest.mark.parametrize("name", ["acme", "zeta", "sim"])
def test_of_several_vendors_one_is_chosen_by_name(run, library, tmp_path: Path, name: str) -> None:
    for each in ("acme", "zeta"):
        install(each, library, tmp_path)
    run(CHOSEN, args=(name,), PYTHONPATH=str(tmp_path), CAUSEWAY_VENDOR=name)
