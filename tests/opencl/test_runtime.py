"""The OpenCL vendor keeps the contract on a real runtime, in each of its memory models."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
MODELS = ("fine", "coarse", "buffer")

TRAIN = """
import os, torch, causeway
fine = os.environ["CAUSEWAY_OPENCL_MEMORY_MODEL"] == "fine"  # the host rung computes where it is
assert torch.get_device_module("opencl").get_device_properties(0).host_addressable == fine
torch.manual_seed(0)
x, y = torch.randn(64, 20), torch.randint(0, 4, (64,))
found = []
for place in ("cpu", "opencl"):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    net.to(place)
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(5):
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x.to(place)), y.to(place))
        loss.backward()
        opt.step()
    found.append(loss.item())
assert abs(found[0] - found[1]) < 1e-4, found
a = torch.arange(24.0, device="opencl").reshape(2, 3, 4)
assert torch.equal(a.transpose(0, 2)[1:].cpu(), a.cpu().transpose(0, 2)[1:])
side = torch.Stream("opencl")
start, end = (torch.Event("opencl", enable_timing=True) for _ in range(2))
with side:
    start.record()
    b = torch.ones(1 << 20, device="opencl") * 3
    end.record()
torch.accelerator.current_stream().wait_event(end)
assert (b + a.sum()).sum().item() == (3 + 276) * (1 << 20)
end.synchronize()
assert start.elapsed_time(end) >= 0
print("good")
"""


@pytest.mark.once
@pytest.mark.parametrize("model", MODELS)
def test_the_contract_is_kept(on_opencl, model: str) -> None:
    done = on_opencl(
        CAUSEWAY, args=("conformance", "--level", "2"), CAUSEWAY_OPENCL_MEMORY_MODEL=model
    )
    assert done.stdout.startswith("conforms: ")


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=pytest.mark.long if m == "buffer" else ()) for m in MODELS]
)
def test_a_network_trains_to_the_numbers_of_the_cpu(on_opencl, model: str) -> None:
    assert on_opencl(TRAIN, CAUSEWAY_OPENCL_MEMORY_MODEL=model).stdout == "good\n"


@pytest.mark.parametrize("model", ["fine", "buffer"])
def test_several_devices_copy_from_each_other(on_opencl, model: str) -> None:
    program = (
        "import torch\n"
        "assert torch.accelerator.device_count() == 2\n"
        "a = torch.arange(1000.0, device='opencl:0')\n"
        "b = a.to('opencl:1')\n"
        "assert b.device.index == 1\n"
        "b += 1\n"
        "a.copy_(b, non_blocking=True)\n"
        "assert torch.equal(a.cpu(), torch.arange(1000.0) + 1)\n"
    )
    on_opencl(program, POCL_DEVICES="pthread pthread", CAUSEWAY_OPENCL_MEMORY_MODEL=model)


def test_running_out_of_memory_is_torchs_error_and_passes(on_opencl) -> None:
    program = (
        "import torch\n"
        "try:\n"
        "    torch.empty(1 << 30, device='opencl')\n"
        "except torch.OutOfMemoryError as error:\n"
        "    print(error)\n"
        "print(torch.ones(2, device='opencl').sum().item())\n"
    )
    done = on_opencl(program, CAUSEWAY_OPENCL_MEMORY="64M")
    assert "64.00 MiB" in done.stdout
    assert done.stdout.endswith("2.0\n")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CAUSEWAY_OPENCL_PLATFORM": "nothing"}, "CAUSEWAY_OPENCL_PLATFORM is 'nothing'"),
        ({"CAUSEWAY_OPENCL_PLATFORM": "99"}, "there is no such platform; there are: 0 "),
        ({"CAUSEWAY_OPENCL_MEMORY_MODEL": "best"}, "CAUSEWAY_OPENCL_MEMORY_MODEL is 'best'"),
        ({"CAUSEWAY_OPENCL_MEMORY": "much"}, "CAUSEWAY_OPENCL_MEMORY is 'much'"),
        ({"CAUSEWAY_OPENCL_HOLD_LAUNCHES": "no"}, "CAUSEWAY_OPENCL_HOLD_LAUNCHES is 'no'"),
        ({"CAUSEWAY_OPENCL_PIN_THREADS": "2"}, "CAUSEWAY_OPENCL_PIN_THREADS is '2'"),
        ({"OCL_ICD_VENDORS": "EMPTY"}, "finds no driver"),
    ],
)
def test_what_is_wrong_is_said_when_a_device_is_asked_for(
    on_opencl, tmp_path: Path, variables: dict[str, str], words: str
) -> None:
    given = {key: value.replace("EMPTY", str(tmp_path)) for key, value in variables.items()}
    program = "import torch; print('imported'); torch.ones(2, device='opencl')"
    done = on_opencl(program, status=1, **given)
    assert done.stdout == "imported\n"  # which opened no driver
    assert words in done.stderr


def test_a_platform_is_chosen_by_number_and_by_a_part_of_its_name(on_opencl) -> None:
    program = "import torch; print(torch.get_device_module('opencl').get_device_properties(0).name)"
    first = on_opencl(program, CAUSEWAY_OPENCL_PLATFORM="0").stdout
    assert first.strip()
    if first.startswith("pthread"):
        assert on_opencl(program, CAUSEWAY_OPENCL_PLATFORM="portable").stdout == first


CORES = """
import os, torch
cores = os.sched_getaffinity(0)
before = set(os.listdir("/proc/self/task"))
x = torch.ones(2, device="opencl")
new = [os.sched_getaffinity(int(t)) for t in set(os.listdir("/proc/self/task")) - before]
alone = [s for s in new if len(s) == 1]
print(len(cores) > 1, len(alone) == len(cores) and set.union(*alone) == cores, len(alone))
assert os.sched_getaffinity(0) == cores  # the program's own thread goes where it likes
"""


def test_each_of_the_runtimes_threads_has_a_core(on_opencl) -> None:
    many, pinned, _ = on_opencl(CORES).stdout.split()
    if many != "True":
        pytest.skip("one core")
    assert pinned == "True"
    assert on_opencl(CORES, CAUSEWAY_OPENCL_PIN_THREADS="0").stdout.split()[2] == "0"
    # Fewer threads than cores: the system shares them out.
    assert on_opencl(CORES, POCL_MAX_PTHREAD_COUNT="1").stdout.split()[2] == "0"


BUILDS = """
import torch
x = torch.arange(1.0, 100.0, device="opencl")
assert torch.equal(x.neg().cpu(), -x.cpu())
assert torch.allclose(x.log().cpu(), x.cpu().log())
"""


def test_a_kernel_is_built_once_and_an_earlier_processs_is_found(on_opencl, tmp_path: Path) -> None:
    ours, pocls = tmp_path / "ours", tmp_path / "pocls"
    env = {"CAUSEWAY_OPENCL_CACHE": str(ours), "POCL_CACHE_DIR": str(pocls), "POCL_DEBUG": "llvm"}
    files, links = [], []
    pocls.mkdir()
    for _ in range(2):
        done = on_opencl(BUILDS, **env)
        links.append("as the built-in lib" in done.stderr)
        files.append([sorted(pocls.rglob(name)) for name in ("program.bc", "*.so")])
    (programs, kernels), later = files
    assert len(programs) >= 2
    # Asked for a linked program's binary, PoCL would build each kernel once more.
    assert len(kernels) == len(programs)
    assert later == [programs, kernels]
    # To link a program, PoCL reads all its functions, which takes longer than all the rest.
    assert links == [True, False]
    assert not ours.exists()  # PoCL keeps its own


UNDEFINED = """
import ctypes, os, sys
from causeway.conformance.table import STATUS, Library
library = Library(os.environ["CAUSEWAY_VENDOR"], {"cache": sys.argv[1]}.get)
for value in (b"nowhere(x[0])", b"nothing"):  # found when linked, when compiled
    source = b"float nowhere(float);kernel void f(global float* x) { x[0] = " + value + b"; }"
    program = ctypes.c_void_p()
    status = STATUS[library.code().build(0, source, None, ctypes.byref(program))]
    print(status, value.decode()[:7] in library.words())
"""


def test_what_does_not_build_or_link_is_said_and_not_kept(on_opencl, tmp_path: Path) -> None:
    done = on_opencl(UNDEFINED, args=(str(tmp_path),))
    assert done.stdout == "INVALID True\n" * 2
    assert list(tmp_path.iterdir()) == []


SMALL = """
import ctypes, os
from causeway.conformance.table import Library
library = Library(os.environ["CAUSEWAY_VENDOR"])
place, late = library.alloc(64), 0
for i in range(200):
    data = bytes([i]) * 64
    there = ctypes.create_string_buffer(data, 64)
    library.call("mem_copy", place, 0, ctypes.addressof(there), -1, 64, None)
    late += ctypes.string_at(place, 64) != data
    library.sync()
print(late)
"""


def test_a_small_copy_on_an_idle_stream_is_made_at_once(on_opencl) -> None:
    # A runtime's thread takes longer to wake than the copy takes.
    assert on_opencl(SMALL, CAUSEWAY_OPENCL_MEMORY_MODEL="fine").stdout == "0\n"


PROFILE = """
import torch, causeway
from torch.profiler import ProfilerActivity, profile
a, b = (torch.rand(64, 64, device="opencl") for _ in range(2))
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as p:
    torch.mm(a, b).relu().sum().item()
names = {e.name for e in p.events() if str(e.device_type) != "DeviceType.CPU"}
assert {"aten::mm.out", "aten::relu.out"} <= names and "kernel_main" not in names, names
print("good")
"""


def test_a_trace_names_portable_kernels_by_their_operators(on_opencl) -> None:
    assert on_opencl(PROFILE).stdout == "good\n"


# A library that looks, after all that runs at exit, at memory that the last command writes.
LOOKS = """
#include <stdio.h>
static const volatile float* at;
void watch(const float* p) { at = p; }
__attribute__((destructor)) static void look(void) { if (at) printf("%g\\n", *at), fflush(stdout); }
"""

WORKS = """
import ctypes, sys, torch
x = torch.full((1000, 1000), 1e-3, device="opencl")
y = torch.zeros(1, device="opencl")
(x @ x)[0, 0].item()
y += 7
y.zero_()
y.item()  # all is built, which would wait for what runs
ctypes.CDLL(sys.argv[1]).watch(ctypes.c_void_p(y.data_ptr()))
with torch.Stream("opencl") as stream:
    for _ in range(200):
        x = x @ x
    y += 7
assert not stream.query()
"""


def test_work_in_flight_has_ended_when_the_process_does(on_opencl, tmp_path: Path) -> None:
    source, library = tmp_path / "looks.c", tmp_path / "looks.so"
    source.write_text(LOOKS)
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    assert on_opencl(WORKS, args=(str(library),)).stdout == "7\n"


ENDS_WHILE_IT_BUILDS = """
import ctypes, torch
with torch.Stream("opencl"):
    x = torch.randn(500, 500, device="opencl")
    for _ in range(5):
        x = x @ x
ctypes.CDLL(None).exit(0)
"""


def test_a_process_may_end_while_its_runtime_still_compiles(on_opencl, tmp_path: Path) -> None:
    # PoCL compiles for a size of groups on its own thread, as a kernel is first run.
    env = {"CAUSEWAY_OPENCL_CACHE": str(tmp_path / "ours"), "POCL_CACHE_DIR": str(tmp_path / "its")}
    (tmp_path / "its").mkdir()
    on_opencl(ENDS_WHILE_IT_BUILDS, **env)


RUSTICL = """
import causeway, torch
x = torch.ones(2_621_568)  # by few items: more turns than the driver makes
assert torch.equal((x.to("opencl") * 2).cpu(), x * 2)
a = torch.ones(4, 400_000)
assert torch.equal((a.to("opencl") @ a.t().to("opencl")).cpu(), a @ a.t())
row = torch.randn(4, 64)  # a structure that ends with 4 bytes
torch.testing.assert_close(
    torch.nn.functional.layer_norm(row.to("opencl"), (64,)).cpu(),
    torch.nn.functional.layer_norm(row, (64,)),
)
many = torch.arange(300_000.0).view(2, -1)
assert many.to("opencl").argmax(1).tolist() == [149_999, 149_999]
start, end = (torch.Event("opencl", enable_timing=True) for _ in range(2))
start.record()
_ = many.to("opencl") + 1
end.record()
end.synchronize()
assert start.elapsed_time(end) > 0
"""


@pytest.fixture(scope="module")
def rusticl() -> dict[str, object]:
    """The environment of a program that runs on Mesa's driver for CPUs."""
    libraries = sorted(Path("/usr/lib").glob("*/libRusticlOpenCL.so.1"))
    if not libraries:
        pytest.skip("Mesa's rusticl is not installed: apt-get install mesa-opencl-icd")
    return {"OCL_ICD_VENDORS": str(libraries[0]), "RUSTICL_ENABLE": "swrast", "new": True}


def test_mesas_driver_for_cpus_is_right(on_opencl, rusticl) -> None:
    on_opencl(RUSTICL, **rusticl)


# What the driver itself makes of numbers, and what the kernels make of it.
NUMBERS = """
import causeway, math, numpy, torch
from torch.nn.functional import softshrink
nan, inf = math.nan, math.inf

def both(run, *tensors):
    return run(*tensors), run(*(t.to("opencl") for t in tensors)).cpu()

def same(run, *tensors):
    torch.testing.assert_close(*reversed(both(run, *tensors)), rtol=1e-6, atol=0, equal_nan=True)

# x * 0 and 0 / x are 0 to its compiler, whatever x is.
x = torch.tensor([nan, inf, -inf, -3.0, 0.0, 2.0])
same(lambda x: softshrink(x, 0.5), x)
same(lambda x: x * 0, x)
same(torch.compile(lambda x: x * 0.0 + 1), x)
same(torch.compile(lambda x: (x + 1) * -0.0), x)
same(torch.compile(lambda x: 0.0 / (x * 2)), x)
# The float of a short integer, between which and a constant it chooses in 16 bits.
def chosen(x):
    return torch.cat([torch.clamp(x.float(), -3.0, 89.0), torch.where(x > 64, 64.0, x.float()) + 1])
for dtype in (torch.uint8, torch.int8, torch.int16):
    x = torch.arange(-128, 256).to(dtype)
    for run in (torch.exp, chosen, torch.compile(torch.exp), torch.compile(chosen)):
        same(run, x)
# Its fmod divides by 0 where the divisor is subnormal.
part = torch.rand(2, 1000, generator=torch.Generator().manual_seed(0)) - 0.5
tiny = part * 2.3e-38
for a, b in ((tiny[0], tiny[1]), (part[0], tiny[1]), (part[0] * 1e30, tiny[1]), (tiny[0], part[1])):
    exact = torch.from_numpy(numpy.fmod(a.numpy(), b.numpy()))  # torch's is NaN if a / b is large
    assert torch.equal(torch.fmod(a.to("opencl"), b.to("opencl")).cpu(), exact)
same(torch.remainder, tiny[0], tiny[1])
same(torch.floor_divide, tiny[0], tiny[1])
assert torch.fmod(torch.tensor([5.0, nan, 1.0, inf, 3.0], device="opencl"),
    torch.tensor([inf, 1.0, 0.0, 2.0, nan], device="opencl")).isnan().tolist() == [0, 1, 1, 1, 1]
# Its lgamma: infinite just below 0, and off by hundreds of ulp near its zeros.
x = torch.tensor([-1e-30, -1e-21, 0.0, -0.0, inf, -inf, nan])
x = torch.cat([torch.linspace(-11, 3, 20_001), x])
for run in (torch.lgamma, torch.compile(torch.lgamma)):
    torch.testing.assert_close(run(x.to("opencl")).cpu().double(), torch.lgamma(x.double()),
                               rtol=1e-6, atol=0, equal_nan=True)
same(lambda x: torch.mvlgamma(x, 1), torch.tensor([inf, 2.5]))
# What it says of subnormal numbers, and what is allowed for it: no more.
assert causeway.code.limits().flushes
with causeway.compare() as found:
    torch.tanh(tiny[0].to("opencl"))
assert found.failures == [], found.failures
"""


@pytest.mark.timeout(600)
def test_mesas_compiler_and_functions_make_no_wrong_numbers(on_opencl, rusticl) -> None:
    on_opencl(NUMBERS, timeout=550, **rusticl)


def test_pocl_takes_no_subnormal_numbers_for_0(on_opencl) -> None:
    on_opencl("import causeway; assert not causeway.code.limits().flushes")


IN_TURN = """
import causeway, torch
x = torch.ones(2_621_568)
assert torch.equal((x.to("opencl") * 2).cpu(), x * 2)
assert not causeway._C.compiler_info(0)["in_turn"]
"""


def test_kernels_with_long_loops_are_refused_where_a_driver_leaves_them(on_opencl, rusticl) -> None:
    said = on_opencl(IN_TURN, CAUSEWAY_OPENCL_IN_TURN="1", **rusticl).stderr
    assert said.count("CAUSEWAY_OPENCL_IN_TURN=1 is not followed") == 1
