"""Files for NVIDIA's GPUs that are made without one: NVRTC compiles, the CPU gives the numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CW = ROOT / "src/causeway/lib/cw"

pytestmark = [pytest.mark.process, pytest.mark.once]

NET = """
import torch
from torch import nn

class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.linspace(0, 1, 8)
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(x + self.shift.to(x.device))

class Counting(nn.BatchNorm1d):
    def forward(self, x):
        self.num_batches_tracked.add_(1)
        return super().forward(x)

def make():
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 16), nn.GELU(), nn.Linear(16, 3)
    )
    return net, (torch.randn(2, 1, 8, 8),)

def on_the_device():
    net, (x,) = make()
    return net.to("nvidia"), (x,)

def unregistered():
    net = Shifted()
    net.shift = torch.linspace(0, 1, 8, device=torch.accelerator.current_accelerator())
    return net, (torch.randn(2, 8),)

def counts():
    return Counting(8), (torch.randn(2, 8),)
"""
EXPORT = """
import sys, torch, causeway
sys.path.insert(0, sys.argv[1])
import net
torch.manual_seed(0)
model, args = net.make()
model.eval()
causeway.export(model, args, sys.argv[2], binaries=True)
assert all(p.device.type == "cpu" for p in model.parameters())
torch.save((*args, model(*args).detach()), sys.argv[2] + ".pt")
"""
LOAD = """
import sys, json, causeway_run
from causeway_run import RunError
with causeway_run.load(sys.argv[1], vendor=sys.argv[2], trust_binaries=True) as model:
    print(model.binaries)
    try:
        model.session()
    except RunError as error:
        print(error)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def export(folder: Path, on_paper: dict[str, str], *args: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "causeway", "export", *args, "-o", str(folder / "net.cw")],
        env=os.environ | on_paper, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_file_has_the_cpus_numbers_and_binaries_for_the_architecture(
    run_python: Callable, on_paper: dict[str, str], folder: Path
) -> None:
    file = str(folder / "net.cw")
    run_python(EXPORT, args=(str(folder), file), **on_paper)
    said = subprocess.run([CW, "inspect", file], capture_output=True, text=True, check=True).stdout
    assert "bytes, for nvidia, sm_90\n" in said

    run_on_cpu = (
        "import sys, struct, torch; from causeway.ship import targets; from pathlib import Path\n"
        "*args, out = torch.load(sys.argv[1] + '.pt')\n"
        "ports = targets._ports(Path(sys.argv[1]).read_bytes())\n"
        "assert [p[3] for p in ports] == [t.numpy().tobytes() for t in (*args, out)]"
    )
    run_python(run_on_cpu, args=(file,), CAUSEWAY_VENDOR="sim")

    library = on_paper["CAUSEWAY_VENDOR"]
    for architecture, some in (("sm_90", True), ("sm_80", False)):
        paper = on_paper | {"CAUSEWAY_NVIDIA_PAPER": architecture}
        binaries, refused = run_python(LOAD, args=(file, library), **paper).stdout.splitlines()
        assert (int(binaries) > 0) == some
        assert f"{architecture} on paper runs no kernel" in refused


@pytest.mark.parametrize(
    ("function", "option", "words"),
    [
        ("on_the_device", "--binaries", "give the model and its arguments on the CPU"),
        ("unregistered", "--binaries", "no parameter and no buffer of it"),
        ("counts", "--binaries", "writes to its own buffers or parameters"),
        ("make", "--verify-steps", "it has no numbers of steps"),
    ],
)
def test_what_would_have_no_numbers_is_refused(
    on_paper: dict[str, str], folder: Path, function: str, option: str, words: str
) -> None:
    done = export(folder, on_paper, f"{folder}/net.py:{function}", option)
    assert done.returncode, done.stdout
    assert words in " ".join(done.stderr.split()), done.stderr
    assert not (folder / "net.cw").exists()


def test_one_file_is_for_a_chip_that_is_here_and_one_that_is_not(
    on_paper: dict[str, str], folder: Path
) -> None:
    nvidia = on_paper.pop("CAUSEWAY_VENDOR")
    del on_paper["CAUSEWAY_NVIDIA_PAPER"]
    targets = ("--target", "c", "--target", f"{nvidia}:sm_90")
    done = export(folder, on_paper, f"{folder}/net.py:make", *targets)
    assert done.returncode == 0, done.stderr
    said = subprocess.run(
        [CW, "verify", "--vendor", str(ROOT / "src/causeway/lib/libcw_sim.so"), "--allow-host-code",
         str(folder / "net.cw")], env=os.environ | {"CAUSEWAY_SIM_CODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize(
    ("target", "words"),
    [("c:sm_90", "sim has no device on paper"), ("any:sm_90", "an architecture is a vendor's")],
)
def test_a_vendor_without_a_device_on_paper_is_refused(
    folder: Path, target: str, words: str
) -> None:
    done = export(folder, {}, f"{folder}/net.py:make", "--target", target)
    assert done.returncode
    assert words in " ".join(done.stderr.split()), done.stderr
