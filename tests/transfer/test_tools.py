"""NVIDIA's tools under the redirection: nvidia-smi and pynvml answer with the device's numbers."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import causeway
import warm
from causeway import transfer
from causeway.redirect import readings, smi, tools
from causeway.redirect.readings import Reading

Run = Callable[..., subprocess.CompletedProcess[str]]

LIBRARIES = Path(causeway.__file__).parent / "lib"

# What a monitor in a training script does, in the order of an import sorter.
MONITOR = """\
import subprocess
import pynvml
import torch

pynvml.nvmlInit()
x = torch.ones(1 << 20, device="cuda")
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
assert memory.used >= 4 << 20 and memory.total == torch.cuda.get_device_properties(0).total_memory
name = pynvml.nvmlDeviceGetName(handle)
name = name.decode("utf-8") if hasattr(name, "decode") else name
assert name == torch.cuda.get_device_name(0)
assert pynvml.nvmlDeviceGetUtilizationRates(handle).gpu == torch.cuda.utilization(0)
kind = pynvml.NVML_TEMPERATURE_GPU
assert pynvml.nvmlDeviceGetTemperature(handle, kind) == torch.cuda.temperature()
try:
    pynvml.nvmlDeviceGetFanSpeed(handle)
except pynvml.NVMLError as error:
    assert type(error) is pynvml.NVMLError_NotSupported and error.value == 3
pynvml.nvmlShutdown()
fields = "--query-gpu=index,name,memory.total,fan.speed"
command = ["nvidia-smi", fields, "--format=csv,noheader,nounits"]
rows = subprocess.check_output(command, text=True).splitlines()
assert len(rows) == torch.cuda.device_count(), rows
assert rows[0] == f"0, {name}, {memory.total // 2**20}, [N/A]", rows
print("monitored")
"""


def causeway_run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
    command = ["-m", "causeway", "run", *arguments]
    return warm.run(command, cwd=cwd, env={**environment, **variables})


def test_a_program_that_asks_nvidias_tools_runs_untouched(tmp_path: Path) -> None:
    (tmp_path / "monitor.py").write_text(MONITOR)
    done = causeway_run("--report", "calls.json", "monitor.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "monitored\n"
    places = json.loads((tmp_path / "calls.json").read_text())["places"]
    served = {p["api"]: p["to"] for p in places}
    assert served["nvidia-smi"] == served["pynvml"] == "sim"
    assert [p["calls"] for p in places if p["api"] == "nvidia-smi"] == [1]


def test_devices_are_the_machines_and_hidden_ones_are_refused(run_python: Run) -> None:
    done = run_python(
        "import torch, pynvml\n"
        "pynvml.nvmlInit()\n"
        "assert torch.cuda.device_count() == 1 and pynvml.nvmlDeviceGetCount() == 2\n"
        "own = pynvml.nvmlDeviceGetHandleByIndex(1)\n"
        "assert pynvml.nvmlDeviceGetIndex(own) == 1\n"
        "uuid = pynvml.nvmlDeviceGetUUID(own)\n"
        "assert uuid == f'GPU-{torch.cuda.get_device_properties(0).uuid}'\n"
        "assert pynvml.nvmlDeviceGetHandleByUUID(uuid) == own\n"
        "try: pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))\n"
        "except pynvml.NVMLError_NoPermission as error: print(error)\n",
        CAUSEWAY_TRANSFER="device", CUDA_VISIBLE_DEVICES="1", CAUSEWAY_SIM_DEVICES="2",
    )  # fmt: skip
    assert "device 0 of this machine is hidden" in done.stdout


def test_what_is_installed_stays(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "pynvml.py").write_text("own = True\n")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIAs\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "a.py").write_text(
        "import pynvml, os\n"
        "assert pynvml.own\n"
        "import torch\n"
        "assert torch.cuda.is_available() and pynvml is __import__('pynvml')\n"
        "print(os.popen('nvidia-smi').read())\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    # Behind what `causeway run` adds to the path, as the packages of an environment are.
    done = causeway_run("a.py", cwd=tmp_path, PATH=path, PYTHONPATH=str(tmp_path / "site"))
    assert (done.returncode, done.stdout.strip()) == (0, "NVIDIAs"), done.stderr


def test_nvidias_module_without_its_library_is_answered_for(tmp_path: Path) -> None:
    """As pip lays it out. With a library of that name it stays."""
    site = tmp_path / "site"
    record = site / "nvidia_ml_py-13.0.dist-info"
    record.mkdir(parents=True)
    (site / "pynvml.py").write_text("def nvmlInit(): raise OSError('no libnvidia-ml.so.1')\n")
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-ml-py\nVersion: 13.0\n")
    (record / "RECORD").write_text("pynvml.py,,\n")
    for first in ("torch, pynvml", "pynvml, torch"):
        (tmp_path / "a.py").write_text(
            f"import {first}\npynvml.nvmlInit()\nprint(pynvml.nvmlDeviceGetCount())\n"
        )
        done = causeway_run("a.py", cwd=tmp_path, PYTHONPATH=str(site))
        assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr
    driver = tmp_path / "driver"
    driver.mkdir()
    (driver / "libnvidia-ml.so.1").symlink_to(next(LIBRARIES.glob("libcw_sim.so")))
    done = causeway_run("a.py", cwd=tmp_path, PYTHONPATH=str(site), LD_LIBRARY_PATH=str(driver))
    assert "OSError: no libnvidia-ml.so.1" in done.stderr


def test_without_the_redirection_there_is_no_pynvml(run_python: Run) -> None:
    folder = tools._FOLDERS["PYTHONPATH"]
    for first in ("pynvml", "torch, pynvml"):
        done = run_python(f"import {first}", status=1, PYTHONPATH=folder, new=True)
        assert "ModuleNotFoundError: No module named 'pynvml'" in done.stderr


def test_a_package_for_cuda_that_is_missing_has_a_way_out(run_python: Run, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text("import triton.language as tl\n")
    for program, said in (
        ("import torch, kernels", "causeway: triton is for CUDA. In its place: "),
        ("import torch, spconv.pytorch", "causeway: spconv is for CUDA. In its place: "),
    ):
        done = run_python(program, status=1, PYTHONPATH=str(tmp_path), new=True)
        assert said in done.stderr.splitlines()[-1]
    for program in ("import torch, deepspeed", "import torch, numba", "import torch, no_such"):
        done = run_python(program, status=1, new=True)
        assert "is for CUDA" not in done.stderr


def test_disable_takes_the_tools_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("_CAUSEWAY_PYTHON", raising=False)
    before = dict(os.environ)
    with transfer.enable():
        assert tools._FOLDERS["PATH"] in os.environ["PATH"]
        assert importlib.import_module("pynvml").nvmlDeviceGetCount
    assert dict(os.environ) == before
    assert "pynvml" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pynvml")


@pytest.fixture
def nvml() -> Any:
    with transfer.enable():
        module = importlib.import_module("pynvml")
        module.nvmlInit()
        yield module
        module.nvmlShutdown()


def test_nvml_refuses_as_nvml_does(nvml: Any) -> None:
    assert nvml.nvmlErrorString(3) == "Not Supported"
    assert isinstance(nvml.NVMLError(nvml.NVML_ERROR_NOT_FOUND), nvml.NVMLError_NotFound)
    with pytest.raises(nvml.NVMLError_InvalidArgument, match="there is no device 99"):
        nvml.nvmlDeviceGetHandleByIndex(99)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID("GPU-nowhere")
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceSetPowerManagementLimit"):
        with pytest.raises(nvml.NVMLError_NotSupported, match=name):
            getattr(nvml, name)(handle)
    with pytest.raises(AttributeError, match="has no attribute 'nvmlfoo'"):
        nvml.nvmlfoo  # noqa: B018
    nvml.nvmlShutdown()
    with pytest.raises(nvml.NVMLError_Uninitialized, match="nvmlInit"):
        nvml.nvmlDeviceGetCount()
    nvml.nvmlInit()


def test_nvml_says_what_the_chip_does_not_tell(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "read", lambda index, target: BARE)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for name in ("UUID", "UtilizationRates", "Temperature", "PowerUsage", "PciInfo"):
        with pytest.raises(nvml.NVMLError_NotSupported, match="Chip does not tell"):
            getattr(nvml, f"nvmlDeviceGet{name}")(handle)
    monkeypatch.setattr(readings, "read", lambda index, target: replace(BARE, utilization=5))
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    assert rates.gpu == 5
    with pytest.raises(nvml.NVMLError_NotSupported, match="how busy its memory is"):
        rates.memory  # noqa: B018
    with pytest.raises(nvml.NVMLError_NotSupported, match="driver"):
        nvml.nvmlSystemGetDriverVersion()


def test_torch_cuda_answers_for_sensors_and_processes() -> None:
    with transfer.enable() as on:
        assert torch.cuda.temperature() == getattr(torch, on.target).temperature()
        assert "does not tell which processes" in torch.cuda.list_gpu_processes()
    with transfer.enable("cpu"), pytest.raises(RuntimeError, match="redirected to the CPU"):
        torch.cuda.utilization()


# --- what nvidia-smi prints -----------------------------------------------------------------------

BARE = Reading(0, "Chip", 8 << 30, 6 << 30, (1, 0))
FULL = Reading(
    1, "Chip 2", 8 << 30, 6 << 30, (1, 0), "GPU-11", "00000000:3B:00.0", "1.5", 40, 30, 51, 61500,
    1410000, 1500000, 2000000,
)  # fmt: skip


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setattr(readings, "count", lambda target: 2)
    monkeypatch.setattr(readings, "read", lambda index, target: (BARE, FULL)[index])

    def run(*arguments: str) -> tuple[int, str]:
        return smi.main(list(arguments), "device"), capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (
            ("--query-gpu=index,gpu_name,memory.used", "--format=csv"),
            "index, name, memory.used [MiB]\n0, Chip, 2048 MiB\n1, Chip 2, 2048 MiB\n",
        ),
        (
            ("--query-gpu=memory.used, temperature.gpu,power.draw", "--format=csv,nounits"),
            "memory.used [MiB], temperature.gpu, power.draw [W]\n2048, [N/A], [N/A]\n"
            "2048, 51, 61.50\n",
        ),
        (
            ("--query-gpu=utilization.gpu,clocks.sm,uuid,count", "--format=csv,noheader", "-i1"),
            "40 %, 1410 MHz, GPU-11, 2\n",
        ),
        (
            ("--query-gpu=power.limit,pstate,driver_version", "--format=csv,noheader", "--id=1"),
            "[N/A], [N/A], 1.5\n",
        ),
        (("-L",), "GPU 0: Chip (UUID: N/A)\nGPU 1: Chip 2 (UUID: GPU-11)\n"),
        (("--query-compute-apps=pid,used_memory", "--format=csv,noheader"), ""),
    ],
)  # fmt: skip
def test_a_query_has_nvidias_form(printed: Any, asked: tuple[str, ...], given: str) -> None:
    assert printed(*asked) == (0, given)


def test_the_table_has_a_row_for_each_device(printed: Any) -> None:
    status, text = printed()
    lines = text.splitlines()[1:]
    assert status == 0
    assert {len(line) for line in lines} == {91}
    assert "Driver Version: N/A" in text
    assert "CUDA Version: 12.6" in text
    assert "2048MiB /   8192MiB" in text
    assert [line.split()[-2:] for line in lines if "51C" in line] == [["N/A", "|"]]
    assert (
        printed("-q", "-d", "MEMORY")[1].count("Free                              : 6144 MiB") == 2
    )


def test_xml_has_what_the_log_has(printed: Any) -> None:
    status, text = printed("-q", "-x")
    root = ElementTree.fromstring(text)
    assert (status, root.tag, root.findtext("attached_gpus")) == (0, "nvidia_smi_log", "2")
    first, second = root.findall("gpu")
    assert (first.get("id"), first.findtext("product_name")) == ("0", "Chip")
    assert (first.findtext("uuid"), second.findtext("uuid")) == ("N/A", "GPU-11")
    assert first.findtext("fb_memory_usage/total") == "8192 MiB"
    assert {g.findtext("temperature/gpu_temp") for g in (first, second)} == {"N/A", "51 C"}
    memory = ElementTree.fromstring(printed("-q", "-x", "-d", "MEMORY")[1])
    assert [part.tag for part in memory.findall("gpu")[0]] == ["fb_memory_usage"]


def test_memory_that_only_a_program_itself_can_count_is_not_made_up(
    printed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Reading(0, "Chip", 8 << 30, 8 << 30, (1, 0), of_all=False)
    monkeypatch.setattr(readings, "read", lambda index, target: alone)
    query = ("--query-gpu=memory.total,memory.used", "--format=csv,noheader", "-i", "0")
    assert printed(*query) == (0, "8192 MiB, [N/A]\n" * 2)
    assert "N/A /   8192MiB" in printed()[1]


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        (("--query-gpu=foo", "--format=csv"), 2, 'Field "foo" is not a valid field to query.'),
        (("--query-gpu=name",), 2, "--format=csv"),
        (("-i", "7"), 6, "No devices were found"),
        (("-x",), 2, "nvidia-smi -q -x"),
        (("topo", "-m"), 2, "it has no topo -m"),
    ],
)
def test_what_is_not_offered_is_refused(
    printed: Any, asked: tuple[str, ...], status: int, says: str
) -> None:
    found, text = printed(*asked)
    assert found == status
    assert says in text


def test_a_mistake_of_the_command_line_is_a_line_of_text(
    printed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "missing/log.txt")
    status, text = printed("-L", "-f", target)
    assert (status, text) == (2, f"{target} cannot be written: No such file or directory\n")
    with pytest.raises(SystemExit):
        printed("-L", "-l", "-1")
    assert "-1 is no time to wait for" in capsys.readouterr().err
