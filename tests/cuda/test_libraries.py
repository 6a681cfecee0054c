"""cuBLAS and cuDNN as native kernels: what is asked of them, on paper, with stand-ins in their
place; the real ones' headers and symbols where `make nvidia` brought them. Nothing runs on a GPU.
"""

from __future__ import annotations

import ctypes as C
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import warm

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = ROOT / "vendors/cuda/src"
CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]


@pytest.fixture
def program(nvidia_library: Path, stand_ins: dict[str, str]) -> Run:
    """Runs a program of this folder on the device on paper, portable kernels off: they do nothing
    there, and the host rung computes what the libraries do not.
    """

    def run(name: str, *args: str, **given: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
        environment |= stand_ins | {
            "CAUSEWAY_VENDOR": str(nvidia_library),
            "CAUSEWAY_NVIDIA_PAPER": "sm_90",
            "CAUSEWAY_PORTABLE": "0",
        }
        command = [name if name == "-c" else HERE / name, *args]
        done = warm.run(command, env=environment | given)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def samples(program: Run, *names: str) -> None:
    *wrong, last = program("samples.py", *names).stdout.splitlines()
    assert wrong == []
    found = json.loads(last)
    assert found["what"] == []
    assert found["served"] >= found["cases"]


@pytest.mark.slow
def test_torchs_samples_of_products_equal_the_cpu_with_gradients(program: Run) -> None:
    samples(program, "mm", "addmm", "bmm", "baddbmm", "addmv", "nn.functional.linear")


@pytest.mark.slow
def test_torchs_samples_of_convolutions_equal_the_cpu_with_gradients(program: Run) -> None:
    conv = [f"nn.functional.conv{t}{d}d" for t in ("", "_transpose") for d in (1, 2, 3)]
    samples(program, *conv)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_native_kernels_conform_on_paper(program: Run, tmp_path: Path) -> None:
    """The suite's own cases: dtypes, layouts, streams, NaN, Inf, nothing, outputs given."""
    report = tmp_path / "report.json"
    ours = "^aten::(mm|addmm|bmm|baddbmm|addmv|_int_mm|convolution)"
    done = program("-c", CAUSEWAY, "conformance", "--op", ours, "--json", str(report))
    assert "conforms: 8 operators passed" in done.stdout
    states = {o["operator"]: o["state"] for o in json.loads(report.read_text())["operators"]}
    assert {n for n, state in states.items() if state == "passed"} == {
        "aten::mm.out", "aten::addmm.out", "aten::bmm.out", "aten::baddbmm.out",
        "aten::addmv.out", "aten::_int_mm.out", "aten::convolution_overrideable",
        "aten::convolution_backward",
    }  # fmt: skip


def test_what_the_libraries_take_goes_there_as_it_is(program: Run) -> None:
    done = program("native.py", "strides", "added", "channels_last", "streams")
    assert "Warning" not in done.stderr  # no call that cuDNN holds for a mistake


def test_no_library_is_given_an_address_that_its_kernels_cannot_read(program: Run) -> None:
    assert "no multiple of 16 bytes" not in program("native.py", "addresses").stderr


def test_torchs_settings_choose_precision_and_algorithms(program: Run) -> None:
    done = program("native.py", "deterministic", "tf32", STAND_IN_SAYS="1")
    said = re.findall(r"algorithm (\d) math (\d)", done.stderr)
    # 3: FMA alone; 0: TF32 is allowed. Algorithm 0 adds in any order.
    assert said == [("0", "3"), ("1", "3"), ("1", "0"), ("1", "3"), ("1", "3")]


def test_a_library_that_fails_is_said_once_and_other_kernels_serve(program: Run) -> None:
    words = program("native.py", "fails", STAND_IN_FAILS="1").stderr
    assert words.count("cuBLAS cannot be used (cublasCreate: status 1") == 1
    assert words.count("cuDNN cannot be used (cudnnCreate") == 1


NOTES = "from causeway import _C; print(_C.vendor_notes())"


def test_doctor_says_which_libraries_are_here(
    run_python: Run, nvidia_library: Path, stand_ins: dict[str, str]
) -> None:
    paper = {"CAUSEWAY_VENDOR": str(nvidia_library), "CAUSEWAY_NVIDIA_PAPER": "sm_90"}
    args = ("doctor", "--json")
    found = run_python(CAUSEWAY, status=None, args=args, **paper, **stand_ins).stdout
    assert "cuBLAS 12.0.0 multiplies matrices" in found
    assert "cuDNN 9.0.0 computes convolutions" in found
    off = {"CAUSEWAY_NVIDIA_CUBLAS": "0", "CAUSEWAY_NVIDIA_CUDNN": "/nowhere/libcudnn.so.9"}
    found = run_python(f"import torch; {NOTES}", **paper, **off).stdout
    assert "no cuBLAS, so portable kernels multiply matrices" in found
    assert "switched off by a setting" in found
    assert "/nowhere/libcudnn.so.9: cannot open shared object file" in found


# --- against the real ones ------------------------------------------------------------------------


# The folders of the wheels of CUDA 12, one each, and of CUDA 13, one for all; cuDNN's is the same.
TWELVE = ("cublas", "cuda_cccl", "cuda_nvcc", "cuda_nvrtc", "cuda_runtime", "cudnn")
THIRTEEN = ("cu13", "cudnn")


def compile_declarations(wheels: Path, sources: Path, folders: tuple[str, ...] = THIRTEEN) -> str:
    """What the compiler says of declarations.cpp; "" where all fit."""
    compiler = shutil.which("c++") or pytest.skip("there is no C++ compiler")
    headers = [f for folder in folders for f in ("-isystem", str(wheels / folder / "include"))]
    command = [
        compiler, "-std=c++17", "-fsyntax-only", "-Wno-deprecated-declarations", f"-I{sources}",
        f"-I{ROOT / 'include'}", *headers, str(HERE / "declarations.cpp"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("folders", [TWELVE, THIRTEEN], ids=["CUDA 12", "CUDA 13"])
def test_declarations_are_those_of_nvidias_headers(wheels: Path, folders: tuple[str, ...]) -> None:
    assert compile_declarations(wheels, SOURCES, folders) == ""


@pytest.mark.parametrize(
    ("file", "right", "wrong", "words"),
    [
        ("dnn.hpp", "TensorDescriptor, int, size_t*", "TensorDescriptor, int, int*", "Workspace"),
        ("blas_cuda.hpp", "kInTf32 = 77", "kInTf32 = 75", "CUBLAS_COMPUTE_32F_FAST_TF32"),
        ("dnn.hpp", "kTensorStrides = 903", "kTensorStrides = 904", "CUDNN_ATTR_TENSOR_STRIDES"),
        ("blas_cuda.hpp", "kLtBias = 8", "kLtBias = 10", "CUBLASLT_MATMUL_DESC_BIAS_POINTER"),
        ("kin_cuda.hpp", "cuMemFree_v2, (Address)", "cuMemFree_v2, (int)", "cuMemFree_v2"),
    ],
)
def test_a_wrong_declaration_is_caught(
    wheels: Path, tmp_path: Path, file: str, right: str, wrong: str, words: str
) -> None:
    for header in SOURCES.glob("*.hpp"):
        text = header.read_text()
        if header.name == file:
            assert right in re.sub(r"\s+", " ", text)
            text = re.sub(r"\s+".join(map(re.escape, right.split())), wrong, text, count=1)
        (tmp_path / header.name).write_text(text)
    assert words in compile_declarations(wheels, tmp_path)


@pytest.mark.parametrize(
    ("header", "library"),
    [
        ("blas_cuda.hpp", "cublas/lib/libcublas.so.12"),
        ("blas_cuda.hpp", "cu13/lib/libcublas.so.13"),
        ("dnn.hpp", "cudnn/lib/libcudnn.so.9"),
        ("kin_cuda.hpp", "cuda_nvrtc/lib/libnvrtc.so.12"),
        ("kin_cuda.hpp", "cu13/lib/libnvrtc.so.13"),
    ],
)
def test_the_real_libraries_have_every_function(wheels: Path, header: str, library: str) -> None:
    names = re.findall(r"F\(\s*\w+,\s*(c\w+|nvrtc\w+),", (SOURCES / header).read_text())
    names = [n for n in names if header != "kin_cuda.hpp" or n.startswith("nvrtc")]
    assert len(names) >= 8
    loaded = C.CDLL(str(wheels / library))
    assert [n for n in names if not hasattr(loaded, n)] == []


@pytest.mark.parametrize("library", ["cublas/lib/libcublas.so.12", "cu13/lib/libcublas.so.13"])
def test_the_real_libraries_without_a_driver_say_so_once(
    run_python: Run, wheels: Path, nvidia_library: Path, library: str
) -> None:
    if run_python("import ctypes; ctypes.CDLL('libcuda.so.1')", status=None).returncode == 0:
        pytest.skip("there is a driver")
    program = """
import torch
a = torch.ones(8, 8).to("nvidia")
for _ in range(3):
    assert torch.equal((a @ a).cpu(), torch.full((8, 8), 8.0))
"""
    words = run_python(
        program,
        CAUSEWAY_VENDOR=str(nvidia_library),
        CAUSEWAY_NVIDIA_PAPER="sm_90",
        CAUSEWAY_PORTABLE="0",
        CAUSEWAY_NVIDIA_CUBLAS=str(wheels / library),
    ).stderr
    assert words.count("cuBLAS cannot be used (cublasCreate: status") == 1
