"""hiprtc compiles the CUDA rendering for AMD's GPUs, for waves of 64 and of 32, and the vendor says
what is missing. Nothing here runs on a GPU.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paper_cases import refused

sys.path.insert(0, str(Path(__file__).parent))
import code_object
import warps

CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
WAVES = {"gfx90a": 64, "gfx1030": 32}
GROUP, SHARED = 1024, 64 << 10  # what the vendor tells of a device: items of a group, and its bytes
Run = Callable[..., subprocess.CompletedProcess[str]]
Paper = Callable[[str], dict[str, str]]

pytestmark = [pytest.mark.process, pytest.mark.once, pytest.mark.long]


def programs(on_paper: dict[str, str]) -> list[tuple[str, bytes]]:
    """What was compiled: the key that a program is kept by, its source in it, and its binary."""
    kept = [path.read_bytes() for path in sorted(Path(on_paper["CAUSEWAY_AMD_CACHE"]).iterdir())]
    starts = [program.index(b"\x7fELF") for program in kept]
    return [(p[:at].decode(errors="replace"), p[at:]) for p, at in zip(kept, starts, strict=True)]


def wrong(compiled: list[tuple[str, bytes]], architecture: str) -> list[str]:
    """Kernels that are for waves of another width than the chip has, that a group of their items
    (or, where they do not say, as large as the vendor allows) cannot run, or with words of a warp.
    """
    found = []
    for source, binary in compiled:
        kernels = code_object.kernels(binary)
        if not kernels:
            found.append("a program without kernels")
        for k in kernels:
            items = re.search(r"#define ITEMS (\d+)", source)
            group = int(items[1]) if items else GROUP
            if k.wave != WAVES[architecture] or k.shared > SHARED or k.most_items != group:
                found.append(str(k))
        found += [f"{match[0]} in a program" for match in warps.WORDS.finditer(source)]
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("architecture", WAVES)
@pytest.mark.parametrize("of", ["cases", "foreach"])
def test_every_case_compiles(on_paper: Paper, architecture: str, of: str) -> None:
    settings = on_paper(architecture)
    assert refused("all", settings, of=of) == []
    compiled = programs(settings)
    assert len(compiled) >= 300
    assert wrong(compiled, architecture) == []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("architecture", WAVES)
def test_every_team_form_compiles_and_keeps_arrays_in_registers(
    on_paper: Paper, architecture: str
) -> None:
    """Rows by teams of items, as the vendor's group and memory choose them."""
    settings = on_paper(architecture)
    assert refused("rows-all", settings) == []
    compiled = programs(settings)
    assert wrong(compiled, architecture) == []
    teams = [p for p in compiled if re.search(r"#define ITEMS \d+", p[0])]
    assert len(teams) >= 12
    frames = [k.frame for _, binary in teams for k in code_object.kernels(binary) if k.frame]
    assert len(frames) <= 1  # a kernel of attention, on gfx90a
    assert max(frames, default=0) <= 128


TABLE = """
import ctypes as C, sys
from causeway.conformance.table import STATUS, CodeInfo, Library
given = {"paper": sys.argv[2], "cache": sys.argv[3]}
library = Library(sys.argv[1], given.get)
code = library.code()
def build(source):
    program = C.c_void_p()
    status = STATUS[code.build(0, source, None, C.byref(program))]
    print(status, "" if status == "OK" else library.words())
    return program
"""


@pytest.fixture
def table(run_python: Run, amd_library: Path, debian: Path, tmp_path: Path) -> Run:
    """Runs a program with the vendor's table of functions, on paper."""

    def run(program: str, architecture: str = "gfx90a") -> subprocess.CompletedProcess[str]:
        args = (str(amd_library), architecture, str(tmp_path))
        return run_python(TABLE + program, args=args, LD_LIBRARY_PATH=str(debian))

    return run


def test_a_source_that_does_not_compile_has_the_compilers_words(table: Run) -> None:
    said = table(
        """build(b'extern "C" __global__ void good(float* p) { p[0] = 1; }')
build(b'extern "C" __global__ void bad(float* p) { p[0] = no_such_name; }')"""
    ).stdout
    assert said.startswith("OK")
    assert "INVALID the source does not build" in said
    assert "use of undeclared identifier 'no_such_name'" in said


def test_warp_functions_of_cuda_are_no_names_of_hips(table: Run) -> None:
    """A kernel with CUDA's own does not even compile: masks have 32 bits there and 64 here."""
    said = table(
        """build(b'extern "C" __global__ void f(int* p) '
      b'{ p[0] = __shfl_xor_sync(0xffffffffu, p[0], 16); }')"""
    ).stdout
    assert "undeclared identifier '__shfl_xor_sync'" in said


@pytest.mark.parametrize(("architecture", "wave"), WAVES.items())
def test_the_wave_is_the_chips(table: Run, architecture: str, wave: int) -> None:
    """What the vendor tells of the device is what the compiler compiles for."""
    said = table(
        """info = CodeInfo(struct_size=C.sizeof(CodeInfo))
code.info(0, C.byref(info))
source = "extern \\"C\\" __global__ void f(int* p) { static_assert(warpSize == %d, \\"\\"); }"
build((source % info.simd_width).encode())
build((source % (96 - info.simd_width)).encode())
print(info.simd_width, info.local_memory, info.group_limit, info.grid_limits[0])""",
        architecture,
    ).stdout.splitlines()
    assert said[0].startswith("OK"), said
    assert said[1].startswith("INVALID"), said
    # HIP counts the items of a launch in 32 bits.
    assert said[-1] == f"{wave} {SHARED} {GROUP} {(2**32 - 1) // GROUP}"


def test_memory_streams_and_events_keep_the_contract_on_paper(
    run_python: Run, on_paper: Paper, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    args = ("conformance", "--level", "0", "--json", str(report))
    run_python(CAUSEWAY, status=None, args=args, **on_paper("gfx90ax2"))
    failed = {c["name"] for c in json.loads(report.read_text())["checks"] if c["state"] == "failed"}
    assert failed == set()


ONES = "import torch; torch.ones(3, device='amd')"
AVAILABLE = "import torch; print(torch.accelerator.is_available())"


def test_without_hip_importing_works_and_use_says_what_to_install(
    run_python: Run, amd_library: Path
) -> None:
    vendor = {"CAUSEWAY_VENDOR": str(amd_library), "CAUSEWAY_AMD_HIP": "/nowhere/libamdhip64.so"}
    assert run_python(AVAILABLE, **vendor).stdout.strip() == "False"
    words = run_python(ONES, status=1, **vendor).stderr
    assert "HIP's runtime libamdhip64.so cannot be opened" in words
    assert "install ROCm, or Hygon's DTK" in words


def test_without_a_gpu_the_runtime_opens_and_has_no_device(
    run_python: Run, amd_library: Path, debian: Path
) -> None:
    """Debian's real library, on a machine without the kernel's driver."""
    if Path("/dev/kfd").exists():
        pytest.skip("there may be a GPU")
    given = {
        "CAUSEWAY_VENDOR": str(amd_library),
        "CAUSEWAY_AMD_HIP": str(debian / "libamdhip64.so.5"),
        "LD_LIBRARY_PATH": str(debian),
    }
    assert run_python(AVAILABLE, **given).stdout.strip() == "False"
    found = run_python(CAUSEWAY, status=None, args=("doctor", "--json"), **given).stdout
    assert "the driver is for HIP 5.2" in found
    assert "there is no /dev/kfd" in found
    assert "hiprtc" in found


def test_a_library_that_is_no_hip_is_named_with_what_it_lacks(
    run_python: Run, amd_library: Path, debian: Path
) -> None:
    other = str(debian / "libnuma.so.1")
    given = {"CAUSEWAY_VENDOR": str(amd_library), "CAUSEWAY_AMD_HIP": other}
    words = run_python(ONES, status=1, **given).stderr
    assert f"HIP's runtime {other} cannot be used: it has no hipInit" in words


def test_without_the_compiler_a_kernel_says_what_to_install(
    run_python: Run, amd_library: Path
) -> None:
    env = {"CAUSEWAY_VENDOR": str(amd_library), "CAUSEWAY_AMD_PAPER": "gfx90a"}
    words = run_python(ONES, **env, CAUSEWAY_AMD_HIPRTC="/nowhere/libhiprtc.so").stderr
    assert "HIP's run-time compiler cannot be opened" in words
    assert "/nowhere/libhiprtc.so" in words


@pytest.mark.parametrize("asked", ["sm_90", "gfx", "gfx9", "gfx90z", "gfx90ax0", "mi250"])
def test_an_architecture_that_is_none_has_words(
    run_python: Run, amd_library: Path, asked: str
) -> None:
    env = {"CAUSEWAY_VENDOR": str(amd_library), "CAUSEWAY_AMD_PAPER": asked}
    assert "expected an architecture, as gfx90a" in run_python(ONES, status=1, **env).stderr


BYTES = """
import torch, causeway.quant
one, weight = torch.ones(1, device="amd"), torch.ones(8, 32, dtype=torch.int8, device="amd")
rest = (None, None, 0, False, None, None, 0, 0, torch.float32)
for dtype in (torch.int8, torch.uint8):
    torch.ops.causeway.qlinear(torch.ones(4, 32, dtype=dtype, device="amd"), weight, one, *rest)
"""
# The opcode of v_dot4c_i32_i8, the upper seven bits of its word. gfx900 has no such instruction.
DOT_FOUR = {"gfx90a": 0x39, "gfx900": None}


@pytest.mark.parametrize("architecture", DOT_FOUR)
def test_products_of_bytes_are_the_chips_own_instruction_where_it_has_one(
    run_python: Run, on_paper: Paper, architecture: str
) -> None:
    env, opcode = on_paper(architecture), DOT_FOUR[architecture]
    run_python(BYTES, new=True, **env)
    found = {}
    for source, binary in programs(env):
        if "DOT_FOUR" in source:
            words = code_object.code(binary)
            found["#define SIGNED 1" in source] = any(word >> 25 == opcode for word in words)
    assert found == {True: opcode is not None, False: False}
