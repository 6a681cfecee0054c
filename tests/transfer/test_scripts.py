"""CUDA programs run untouched, with the numbers of the CPU."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import warm
from causeway import transfer

PROGRAMS = Path(__file__).parents[1] / "programs"  # those that tests/migrate converts, and more


def losses_of(text: str) -> list[float]:
    return [float(line.split()[1]) for line in text.splitlines() if line.startswith("loss ")]


def losses(script: str, target: str, capsys: pytest.CaptureFixture[str]) -> list[float]:
    capsys.readouterr()
    torch.set_default_device(None)
    # Where torch.testing was imported, flags of backends are frozen; a program may set them.
    thawed = getattr(torch.backends, "__allow_nonbracketed_mutation")
    with transfer.enable(target), thawed(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script])
        runpy.run_path(str(PROGRAMS / f"{script}.py"), run_name="__main__")
    return losses_of(capsys.readouterr().out)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "script",
    [
        "image", "text", "gan", "rl", "diffusion", "gpt", "mnist",  # which are converted too
        "checkpoint", "streams",
    ],
)  # fmt: skip
def test_a_program_gives_the_numbers_of_the_cpu(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = losses(script, "device", capsys)
    assert len(found) >= 3
    assert found == pytest.approx(losses(script, "cpu", capsys), rel=1e-4, abs=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_mixed_precision_gives_the_numbers_of_the_cpu_to_half_precision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = losses("amp", "device", capsys)
    assert found == pytest.approx(losses("amp", "cpu", capsys), rel=1e-3)


def test_programs_with_torchs_amp_and_with_apex_run_untouched(tmp_path: Path) -> None:
    script = str(PROGRAMS / "two_styles.py")
    found = {t: run("--target", t, script, cwd=tmp_path) for t in ("device", "cpu")}
    for done in found.values():
        assert done.returncode == 0, done.stderr
        assert "Selected optimization level O2" in done.stdout
    ours, cpus = (losses_of(done.stdout) for done in found.values())
    assert len(ours) == 9
    assert ours == pytest.approx(cpus, rel=5e-3)


@pytest.mark.slow
def test_ddp_of_two_processes_gives_the_numbers_of_the_cpu(tmp_path: Path) -> None:
    def both(target: str) -> list[float]:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = str(free.getsockname()[1])
        launcher = ("-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", port)
        done = run("--target", target, *launcher, str(PROGRAMS / "ddp.py"), cwd=tmp_path)
        # torch's own gloo thread may drop a tensor of Python's after the interpreter's end, and
        # the process aborts: with stock torch alone too, on a busy machine. All was done by then.
        aborts = target == "cpu" and "terminate called without an active exception" in done.stderr
        assert done.returncode == 0 or aborts, done.stderr
        assert "done" in done.stdout
        return losses_of(done.stdout)

    found = both("device")
    assert len(found) == 4
    assert found == pytest.approx(both("cpu"), rel=1e-5)


def run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
    command = ["-m", "causeway", "run", *arguments]
    return warm.run(command, cwd=cwd, env={**environment, **variables})


def test_run_is_python_from_the_arguments_to_the_exit_status(tmp_path: Path) -> None:
    program = tmp_path / "cuda_program.py"
    program.write_text(
        "import sys\n"
        "print(__name__, __file__, sys.argv, sys.path[0])\n"
        "import helper\n"
        "class Odd(Exception): pass\n"
        "if sys.argv[1:] == ['--help']: sys.exit(7)\n"
        "raise Odd('planted')\n"
    )
    (tmp_path / "helper.py").write_text("import torch\nassert torch.cuda.is_available()\n")
    done = run("-m", "cuda_program", "--help", cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    assert done.stdout.split("\n")[0] == (
        f"__main__ {program} {[str(program), '--help']} {tmp_path}"
    )
    ours = run(str(program), cwd=tmp_path)
    assert ours.returncode == 1
    assert "Odd: planted" in ours.stderr


def test_children_are_redirected_and_the_report_is_of_all_processes(tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(
        "import torch\n"
        "import torch.multiprocessing as mp\n"
        "def child(i):\n"
        "    assert torch.ones(2, device='cuda').is_cuda\n"
        "if __name__ == '__main__':\n"
        "    torch.cuda.is_available()\n"
        "    mp.spawn(child, nprocs=2)\n"
    )
    report = tmp_path / "report.json"
    done = run("--report", str(report), str(program), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    calls = {(p["api"], p["line"]): p["calls"] for p in found["places"]}
    assert calls["torch.ones", 4] == 2
    assert calls["torch.cuda.is_available", 6] == 1
    assert {p["file"] for p in found["places"]} == {str(program)}
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["parent.py", "report.json"]


def test_a_target_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run("--target", "npu", "x.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "npu" in done.stderr
    # Whether the chip is there is found out in the program, which goes no further than its import.
    (tmp_path / "x.py").write_text("print('before')\nimport torch\nprint('after')\n")
    done = run("x.py", cwd=tmp_path, CAUSEWAY_VENDOR="/nowhere/libcw_x.so")
    assert (done.returncode, done.stdout) == (2, "before\n")
    assert "causeway run: CUDA cannot be" in done.stderr
    done = run("x.py", cwd=tmp_path, CAUSEWAY_VENDOR="nowhere")
    assert (done.returncode, done.stdout) == (2, "before\n")
    assert "nowhere" in done.stderr
    assert "causeway doctor" in done.stderr
    done = run("--no-redirect", "x.py", cwd=tmp_path, CAUSEWAY_VENDOR="nowhere")
    assert (done.returncode, done.stdout) == (0, "before\nafter\n")


def test_cuda_visible_devices_is_read_at_the_first_use(tmp_path: Path) -> None:
    program = tmp_path / "visible.py"
    program.write_text(
        "import os, torch\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = '1,7,0'\n"
        "assert torch.cuda.device_count() == 1, torch.cuda.device_count()\n"
        "assert torch.cuda.is_available()\n"
    )
    environment = {**os.environ, "CAUSEWAY_TRANSFER": "device"}
    done = warm.run([program], env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("visible", "indices"),
    [("1", [1]), ("0,1", [0, 1]), ("", []), ("-1", []), ("1,7,0", [1]), (" 0 , 0", [0])],
)
def test_cuda_visible_devices_means_what_it_means_to_cuda(
    visible: str, indices: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from causeway.redirect import around

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert around.visible(2) == indices


def test_importing_the_switch_redirects_and_importing_causeway_does_not(tmp_path: Path) -> None:
    program = tmp_path / "plain.py"
    program.write_text(
        "import torch, causeway, sys\n"
        "from causeway import transfer\n"
        "assert not torch.cuda.is_available() and not transfer.enabled()\n"
        "import causeway.transfer\n"
        "assert torch.cuda.is_available() and transfer.enabled()\n"
        "assert causeway.transfer.report().places\n"
        "causeway.transfer.disable()\n"
        "assert not torch.cuda.is_available()\n"
    )
    done = warm.run([program])
    assert done.returncode == 0, done.stderr


def test_the_switch_has_a_name_that_says_what_it_does(tmp_path: Path) -> None:
    program = tmp_path / "plain.py"
    program.write_text(
        "import torch\n"
        "from causeway.transfer import transfer_to_device\n"
        "assert torch.cuda.is_available() and transfer_to_device.enabled()\n"
        "assert torch.ones(2).cuda().is_cuda\n"
        "transfer_to_device.disable()\n"
        "assert not torch.cuda.is_available()\n"
    )
    done = warm.run([program])
    assert done.returncode == 0, done.stderr
