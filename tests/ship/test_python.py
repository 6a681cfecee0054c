"""causeway_run: model files from Python, in processes that have no torch."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIB = ROOT / "src/causeway/lib"
SIM = LIB / "libcw_sim.so"
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]

# Each model's arguments and what the compiled model makes of them, as raw bytes.
MODELS = """
import sys, torch
from torch import nn
import causeway

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.table = nn.Linear(6, 5), nn.Embedding(9, 5)
    def forward(self, rows, index, scale):
        sums = self.wide(rows) * scale
        return sums + self.table(index), sums.argmax(1), sums > 0

device = torch.accelerator.current_accelerator()
torch.manual_seed(0)
half = torch.randn(4, 6)
models = {
    "mlp": (nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 10)), [torch.randn(8, 20)]),
    "two": (Two(), [torch.randn(7, 6), torch.arange(7), torch.tensor(0.5)]),
    "half": (nn.Linear(6, 3).half(), [half.half()]),
    "bfloat16": (nn.Linear(6, 3).bfloat16(), [half.bfloat16()]),
    "model": (nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1)), [torch.randn(64, 8)]),
    "large": (nn.Linear(700, 800), [torch.randn(2, 700)]),  # weights of more than one piece
    "bytes": (lambda input: (input + 1, input > 100), [torch.arange(0, 250, 5, dtype=torch.uint8)]),
}
def raw(tensor):
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
for name, (model, args) in models.items():
    if isinstance(model, nn.Module):
        model = model.eval().to(device)
    args = [a.to(device) for a in args]
    causeway.export(model, args, f"{sys.argv[1]}/{name}.cw")
    with torch.no_grad():
        outputs = torch.compile(model, dynamic=False)(*args)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    for kind, tensors in (("in", args), ("out", outputs)):
        for i, tensor in enumerate(tensors):
            open(f"{sys.argv[1]}/{name}.{kind}{i}", "wb").write(raw(tensor))

class Sized(nn.Module):
    def forward(self, rows, scale):
        return torch.cat([rows * scale, rows], 0), rows @ rows.T
args = [torch.randn(4, 3, device=device), torch.rand(4, 1, device=device)]
causeway.export(Sized(), args, f"{sys.argv[1]}/sized.cw", compiled=False, dynamic="batch=1..9")
"""

# Ahead of each program: torch cannot be imported, and none of it may be in the process at its end.
WITHOUT_TORCH = """
import atexit, os, sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())

def without_torch():
    with open("/proc/self/maps") as maps:
        loaded = maps.read()
    if any(name in loaded for name in ("libtorch", "libc10", "causeway/_C")):
        print("torch is loaded", file=sys.stderr, flush=True)
        os._exit(99)

atexit.register(without_torch)
import numpy as np
import causeway.run as run

folder, sim = sys.argv[1:3]

def load(name, **more):
    return run.load(f"{folder}/{name}.cw", sim, allow_host_code=True, **more)

def given(name, model):
    return {
        p.name: np.fromfile(f"{folder}/{name}.in{i}", p.numpy).reshape(p.shape)
        for i, p in enumerate(model.inputs.values())
    }

def right(name, outputs):
    for i, array in enumerate(outputs.values()):
        with open(f"{folder}/{name}.out{i}", "rb") as file:
            if array.tobytes() != file.read():
                return False
    return i + 1 == {"two": 3, "bytes": 2}.get(name, 1)

def refused(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except run.RunError as error:
        print(f"{error.status}: {error}")
    else:
        print("nothing was refused")
"""


@pytest.fixture(scope="session")
def files(run_python: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python")
    run_python(
        MODELS, args=(str(folder),), timeout=300, CAUSEWAY_SIM_CODE="1", CAUSEWAY_VENDOR="sim"
    )
    return folder


@pytest.fixture
def python(files: Path) -> Callable[..., str]:
    """Run a program after WITHOUT_TORCH, and give what it printed."""

    def start(program: str, **environment: str) -> str:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TORCH + textwrap.dedent(program), files, SIM],
            env=kept | {"CAUSEWAY_SIM_CODE": "1"} | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        return done.stdout

    return start


def _bound(folder: Path) -> Path:
    """The vendor of bound.c."""
    vendor = folder / "libcw_bound.so"
    subprocess.run(
        [
            *("cc", "-std=gnu11", "-shared", "-fPIC", "-Wall", "-I", ROOT / "include"),
            *(Path(__file__).with_name("bound.c"), "-ldl", "-o", vendor),
        ],
        check=True,
    )
    return vendor


# --- what it gives --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environment",
    [{}, {"CAUSEWAY_SIM_EXECUTION": "async", "CAUSEWAY_SIM_MEMORY_MODEL": "discrete"}],
    ids=["unified", "discrete"],
)
def test_outputs_are_the_compiled_models_bits(python, environment: dict[str, str]) -> None:
    program = """
    for name in ("mlp", "two", "half", "bfloat16", "large", "bytes"):
        model = load(name)
        print(name, right(name, model.session().run(given(name, model))))
    """
    said = python(program, **environment)
    names = ("mlp", "two", "half", "bfloat16", "large", "bytes")
    assert said == "".join(f"{name} True\n" for name in names)


def test_outputs_are_those_of_the_command_cw(python, files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    subprocess.run(
        [
            *(LIB / "cw", "run", "--vendor", SIM, "--allow-host-code", files / "mlp.cw"),
            *("--input", f"input={files}/mlp.in0", "--output", f"output={out}"),
        ],
        env=os.environ | {"CAUSEWAY_SIM_CODE": "1"},
        check=True,
    )
    program = f"""
    model = load("mlp")
    output = model.session()(**given("mlp", model))["output"]
    print(output.tobytes() == open({str(out)!r}, "rb").read(), output.dtype, output.shape)
    """
    assert python(program) == "True float32 (8, 10)\n"


def test_a_model_says_its_inputs_outputs_and_memory(python, files: Path) -> None:
    program = """
    import json
    model = load("two")
    ports = [[(p.name, p.dtype, p.shape, p.bytes) for p in side.values()]
             for side in (model.inputs, model.outputs)]
    print(json.dumps([*ports, model.weight_bytes, model.arena_bytes, model.about["inputs"]]))
    """
    inputs, outputs, weights, arena, about = json.loads(python(program))
    assert inputs == [
        ["rows", "float32", [7, 6], 168],
        ["index", "int64", [7], 56],
        ["scale", "float32", [], 4],
    ]
    assert [port[1:3] for port in outputs] == [
        ["float32", [7, 5]],
        ["int64", [7]],
        ["bool", [7, 5]],
    ]
    assert about[0] == {"name": "rows", "dtype": "float32", "shape": [7, 6]}
    inspected = subprocess.run(
        [LIB / "cw", "inspect", files / "two.cw"], capture_output=True, text=True, check=True
    ).stdout
    assert f"weights  {weights} bytes" in inspected
    assert f"arena    {arena} bytes" in inspected


def test_arrays_that_are_not_contiguous_are_copied(python) -> None:
    program = """
    model = load("mlp")
    session, (x,) = model.session(), given("mlp", model).values()
    wide = np.zeros((8, 40), np.float32)
    wide[:, ::2] = x
    x.flags.writeable = False
    for array in (wide[:, ::2], np.asfortranarray(x), x[::-1][::-1], x):
        print(array.flags.c_contiguous, right("mlp", session(input=array)))
    """
    assert python(program) == "False True\nFalse True\nTrue True\nTrue True\n"


def test_outputs_are_new_arrays(python) -> None:
    program = """
    model = load("mlp")
    session, (x,) = model.session(), given("mlp", model).values()
    first = session(input=x)["output"]
    kept = first.copy()
    session(input=-x)
    print(np.array_equal(first, kept))
    """
    assert python(program) == "True\n"


def test_inputs_and_outputs_are_used_in_place(python) -> None:
    program = """
    import gc
    model = load("mlp")
    session, other, (x,) = model.session(), model.session(), given("mlp", model).values()
    place = session.place("input")
    place[...] = -x
    session.run({"input": place}, copy=False)
    place[...] = x
    first = session.run({"input": place}, copy=False)
    print(right("mlp", first), place.shape, first["output"].flags.owndata)
    kept = first["output"].copy()
    place *= 2
    second = session.run({"input": place}, copy=False)["output"]
    doubled = other(input=2 * x)["output"]
    print(np.shares_memory(first["output"], second), np.array_equal(second, doubled))
    print(np.array_equal(session.run({"input": x}, copy=False)["output"], kept))
    session.close()
    del session, other, model
    gc.collect()
    place[...] = 0  # memory lasts as long as its arrays
    print(np.array_equal(second, kept))
    """
    assert python(program) == "True (8, 20) False\nTrue True\nTrue\nTrue\n"


def test_a_size_that_differs_is_that_of_the_place(python) -> None:
    program = """
    model = load("sized")
    session, other = model.session(), model.session()
    for size in (9, 2, 5):
        rows = np.random.default_rng(size).normal(size=(size, 3)).astype(np.float32)
        scale = np.full((size, 1), 2, np.float32)
        there = {"rows": session.place("rows", size), "scale": session.place("scale", size)}
        there["rows"][...], there["scale"][...] = rows, scale
        found = session.run(there, copy=False)
        wanted = other(rows=rows, scale=scale)
        print([(a.shape, np.array_equal(a, b)) for a, b in zip(found.values(), wanted.values())])
    print(session.place("rows").shape)
    refused(session.place, "rows", 10)
    refused(load("mlp").session().place, "input", 8)
    refused(session.place, "row")
    """
    lines = python(program).splitlines()
    assert [line.count("True") for line in lines[:3]] == [2, 2, 2]
    assert lines[3] == "(9, 3)"
    assert "there is no size of 10: 'batch' is from 1 to 9" in lines[4]
    assert "there is no size of 8: none differs" in lines[5]
    assert "there is no input 'row': the model's inputs are 'rows', 'scale'" in lines[6]


def test_memory_that_the_host_cannot_address_is_copied(python) -> None:
    program = """
    model = load("mlp")
    session, (x,) = model.session(), given("mlp", model).values()
    refused(session.place, "input")
    refused(session.run, {"input": x}, copy=False)
    print(right("mlp", session(input=x)))
    """
    *both, last = python(program, CAUSEWAY_SIM_MEMORY_MODEL="discrete").splitlines()
    assert all("the host cannot address the memory of" in line for line in both)
    assert last == "True"


def test_an_error_of_a_kernel_is_told_with_an_output_in_place(python) -> None:
    program = """
    model = load("two")
    session, arrays = model.session(), given("two", model)
    refused(session.run, arrays | {"index": np.full(7, 9)}, copy=False)
    print(right("two", session.run(arrays, copy=False)))
    """
    first, second = python(program).splitlines()
    assert "index 9 is out of range for a dimension of size 9" in first
    assert second == "True"


def test_bfloat16_is_its_bits_or_ml_dtypes(python) -> None:
    program = """
    model = load("bfloat16")
    session, (bits,) = model.session(), given("bfloat16", model).values()
    port = model.inputs["input"]
    print(port.dtype, port.numpy, bits.dtype, right("bfloat16", session(input=bits)))
    refused(session, input=bits.astype(np.float32))
    try:
        import ml_dtypes
    except ImportError:  # another dtype of two bytes stands for it
        import types
        ml_dtypes = types.ModuleType("ml_dtypes")
        ml_dtypes.bfloat16 = np.dtype("V2")
        sys.modules["ml_dtypes"] = ml_dtypes
    made = session(input=bits.view(ml_dtypes.bfloat16))
    print(made["output"].dtype == ml_dtypes.bfloat16, right("bfloat16", made))
    print(right("bfloat16", session(input=bits)))
    """
    first, refused, *rest = python(program).splitlines()
    assert first in ("bfloat16 uint16 uint16 True", "bfloat16 bfloat16 bfloat16 True")
    assert "has dtype float32, and the model takes bfloat16" in refused
    assert rest == ["True True", "True"]


def test_a_profile_has_the_steps_of_the_file(python) -> None:
    program = """
    model = load("mlp")
    session = model.session()
    steps = session.profile(given("mlp", model))
    said = [(s["name"], s["line"]) for s in model.about["steps"]]
    print([(s.name, s.line) for s in steps] == said, len(steps) > 1)
    print(all(s.ms > 0 for s in steps))
    print(right("mlp", session.run(given("mlp", model))))
    """
    assert python(program) == "True True\nTrue\nTrue\n"


def test_a_size_is_that_of_the_arrays(python) -> None:
    program = """
    model = load("sized")
    print(model.size, model.inputs["rows"].shape, model.outputs["output1"].shape)
    session = model.session()
    for batch in (9, 1, 4):
        rows = np.arange(batch * 3, dtype=np.float32).reshape(batch, 3)
        scale = np.full((batch, 1), 2, np.float32)
        both, square = session(rows=rows, scale=scale).values()
        joined = np.concatenate([rows * 2, rows])
        print(np.array_equal(both, joined), np.array_equal(square, rows @ rows.T))
    print(len(session.profile({"rows": rows, "scale": scale})) > 0)
    refused(session, rows=np.zeros((10, 3), np.float32), scale=np.zeros((10, 1), np.float32))
    refused(session, rows=np.zeros((3, 3), np.float32), scale=np.zeros((2, 1), np.float32))
    refused(session, rows=np.zeros((3, 4), np.float32), scale=np.zeros((3, 1), np.float32))
    """
    first, *right, profiled, large, differ, shape = python(program).splitlines()
    assert first == "Size(name='batch', least=1, most=9) (-1, 3) (-1, -1)"
    assert right == ["True True"] * 3
    assert profiled == "True"
    assert '"batch" is from 1 to 9' in large
    assert '"batch" is 3 in input "rows" and 2 in input "scale"' in differ
    assert "has shape [3, 4], and the model takes [-1, 3]" in shape


def test_a_run_is_started_without_a_wait(python) -> None:
    program = """
    model = load("mlp")
    session, (x,) = model.session(), given("mlp", model).values()
    started = session.start({"input": x})
    x[:] = 0  # the inputs were copied
    refused(session.start, {"input": x})
    refused(session, input=x)
    refused(session.profile, {"input": x})
    print(right("mlp", started.result()), right("mlp", started.result()))
    again = session.start({"input": x})
    print(right("mlp", again.result()), right("mlp", started.result()))
    del again
    session.start({"input": x})  # nobody takes its result
    print(right("mlp", session(**given("mlp", model))))
    runs = [model.session().start(given("mlp", model)) for _ in range(3)]
    print([right("mlp", r.result()) for r in reversed(runs)])
    """
    said = python(program, CAUSEWAY_SIM_EXECUTION="async").splitlines()
    assert all("a run is under way in this session" in line for line in said[:3])
    assert said[3:] == ["True True", "False True", "True", "[True, True, True]"]


def test_a_session_runs_in_memory_of_the_callers_own(python, tmp_path: Path) -> None:
    program = f"""
    import ctypes
    device = run.Device({str(_bound(tmp_path))!r})
    model = device.load(f"{{folder}}/mlp.cw", allow_host_code=True)
    own_memory = ctypes.CDLL({str(tmp_path / "libcw_bound.so")!r}).own_memory
    own_memory.restype, own_memory.argtypes = ctypes.c_void_p, [ctypes.c_uint64]
    class Memory:
        def __init__(self, bytes):
            self.nbytes, self.address = bytes, own_memory(bytes)
        def data_ptr(self):
            return self.address
    memory = Memory(model.arena_bytes)
    session, other = model.session(arena=memory), model.session((memory.address, memory.nbytes))
    print(right("mlp", session(**given("mlp", model))))
    print(any(ctypes.string_at(memory.address, memory.nbytes)))
    print(right("mlp", other(**given("mlp", model))))
    session.close()
    print(right("mlp", other(**given("mlp", model))))
    refused(model.session, Memory(model.arena_bytes - 1))
    refused(model.session, (memory.address + 4, memory.nbytes))
    refused(model.session, np.zeros(8))
    """
    environment = {"BOUND_SIM": str(SIM), "CAUSEWAY_BOUND_CODE": "1"}
    *right, small, place, kind = python(program, **environment).splitlines()
    assert right == ["True"] * 4
    assert "and a session needs" in small
    assert "is at no multiple of 64" in place
    assert "arena is ndarray: device memory is an object with data_ptr()" in kind


def test_the_program_of_the_docs_runs(python) -> None:
    blocks = re.findall(
        r"^```py\n(.*?)^```", (ROOT / "docs/ship.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (program,) = (b for b in blocks if "causeway_run.load" in b)
    said = python(f"os.chdir(folder)\n{program}\nprint(result.shape)").splitlines()
    assert said[0] == "Port(name='input', dtype='float32', shape=(64, 8), bytes=2048)"
    assert said[-1] == "(64, 1)"
    assert len(said) > 3


def test_a_file_is_given_by_its_bytes_too(python) -> None:
    program = """
    with run.Device(sim) as device:
        with open(f"{folder}/mlp.cw", "rb") as file, device.load(
            file.read(), allow_host_code=True
        ) as model, model.session() as session:
            print(right("mlp", session.run(given("mlp", model))))
    """
    assert python(program) == "True\n"


# --- who runs it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["argument", "variable", "default"])
def test_the_vendor_is_named_by_argument_variable_or_installation(python, how: str) -> None:
    vendor = repr("sim") if how == "argument" else None
    program = f"""
    device = run.Device({vendor})
    print(device.library == os.path.realpath(sim), device.index)
    """
    environment = {"CAUSEWAY_VENDOR": "sim"} if how == "variable" else {}
    assert python(program, **environment) == "True 0\n"


def test_a_vendor_that_is_not_there_is_an_error(python, files: Path, tmp_path: Path) -> None:
    (tmp_path / "libcw_text.so").write_text("no library")
    program = f"""
    refused(run.load, folder + "/mlp.cw", "/no/such/libcw_x.so")
    refused(run.load, folder + "/mlp.cw", "libcw_nowhere.so")
    refused(run.load, folder + "/mlp.cw", "nochip")
    refused(run.load, folder + "/mlp.cw", {str(tmp_path / "libcw_text.so")!r})
    refused(run.load, folder + "/mlp.cw", {str(LIB / "libcw_run.so")!r})
    refused(run.Device, sim, 9)
    refused(run.Device, sim, -1)
    refused(run.Device, sim, 1 << 32)
    refused(run.load, folder + "/mlp.cw\\0.txt", sim)
    refused(run.Device, {str(LIB / "libcw_run.so")!r})
    print(right("mlp", (model := load("mlp")).session().run(given("mlp", model))))
    """
    said = python(program).splitlines()
    for line, part in zip(
        said,
        [
            "does not open: /no/such/libcw_x.so",
            "does not open: libcw_nowhere.so",
            "no vendor 'nochip': installed are sim",
            "libcw_text.so: ",
            "does not export cw_open_v1",
            "there is no device 9: sim has 2",
            "there is no device -1",
            "there is no device 4294967296",
            "has a NUL in it",
            "one process has one vendor",
            "True",
        ],
        strict=True,
    ):
        assert part in line
    assert [line[:3] for line in said[:-1]] == ["3: "] * 10


def test_an_installed_vendor_is_found(python, tmp_path: Path) -> None:
    (tmp_path / "chips.py").write_text(f"def library():\n    return {str(SIM)!r}\n")
    environment = {"PYTHONPATH": str(tmp_path)}
    program = """
    print(run.Device().library == os.path.realpath(sim))
    """

    def install(name: str, function: str) -> None:
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(f"[causeway.vendors]\n{name} = chips:{function}\n")

    install("onechip", "library")
    assert python(program, **environment) == "True\n"
    install("twochip", "nothing")
    program = """
    refused(run.Device)
    refused(run.Device, "twochip")
    refused(run.Device, "three")
    print(run.Device("onechip").library == os.path.realpath(sim))
    """
    both, broken, unknown, good = python(program, **environment).splitlines()
    assert "several vendors are installed, onechip, twochip: " in both
    assert "'twochip' (chips:nothing) does not say where its library is: AttributeError" in broken
    assert "installed are sim, onechip, twochip" in unknown
    assert good == "True"


def test_c_kernels_need_consent(python) -> None:
    program = """
    refused(run.load, folder + "/mlp.cw", sim)
    """
    assert "its kernels are C" in python(program)


def test_nothing_of_torch_is_imported_where_it_is_installed(files: Path) -> None:
    program = (
        "import sys, causeway_run; "
        "m = causeway_run.load(sys.argv[1], sys.argv[2], allow_host_code=True); "
        "print([n for n in sys.modules if n.partition('.')[0] in ('torch', 'causeway')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, files / "mlp.cw", SIM],
        env=os.environ | {"CAUSEWAY_SIM_CODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_copy_of_the_folder_with_the_runtime_is_enough(files: Path, tmp_path: Path) -> None:
    copy = tmp_path / "causeway_run"
    shutil.copytree(ROOT / "src/causeway_run", copy)
    program = (
        "import sys; sys.path[:0] = sys.argv[3:]; import causeway_run; "
        "m = causeway_run.load(sys.argv[1], sys.argv[2], allow_host_code=True); "
        "print(causeway_run.__file__, *m.inputs)"
    )

    def start() -> subprocess.CompletedProcess[str]:
        places = (tmp_path, sysconfig.get_path("purelib"))  # -S: without the development tree
        return subprocess.run(
            [sys.executable, "-S", "-c", program, files / "mlp.cw", SIM, *places],
            env=os.environ | {"CAUSEWAY_SIM_CODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    without = start()
    assert without.returncode == 1
    assert f"the runtime libcw_run.so is not in {copy} or " in without.stderr
    (copy / "libcw_run.so").write_text("no library")
    assert f"the runtime {copy}/libcw_run.so does not load: " in start().stderr
    shutil.copy(LIB / "libcw_run.so", copy)
    assert start().stdout == f"{copy}/__init__.py input\n"


def test_torch_in_the_process_would_be_found(files: Path) -> None:
    program = WITHOUT_TORCH + "sys.meta_path.pop(0)\nimport torch\n"
    done = subprocess.run([sys.executable, "-c", program, files, SIM], check=False)
    assert done.returncode == 99


def test_the_rest_of_causeway_says_that_torch_is_missing(python) -> None:
    program = """
    import causeway
    print(causeway.__version__ != "", causeway.run.load is run.load)
    try:
        causeway.ledger
    except ModuleNotFoundError as error:
        print(error)
    """
    assert python(program) == "True True\nNo module named 'torch'\n"


def test_a_library_that_torchs_device_uses_is_refused(run_python: Run, files: Path) -> None:
    program = f"""
import torch, causeway.run
ones = torch.ones(3, device="sim")
try:
    causeway.run.load({str(files / "mlp.cw")!r}, "sim", allow_host_code=True)
except causeway.run.RunError as error:
    print(error)
print((ones + 1).tolist())
"""
    refused, added = run_python(program, CAUSEWAY_SIM_CODE="1").stdout.splitlines()
    assert "torch's device uses" in refused
    assert added == "[2.0, 2.0, 2.0]"


# --- what is refused ------------------------------------------------------------------------------


def test_wrong_arguments_are_errors_before_anything_runs(python) -> None:
    program = """
    model = load("two")
    session, good = model.session(), given("two", model)
    rows = good["rows"]
    refused(session.run, {k: v for k, v in good.items() if k != "index"})
    refused(session.run, good | {"extra": rows})
    refused(session, **good | {"rows": rows[:3]})
    refused(session, **good | {"rows": rows.reshape(-1)})
    refused(session, **good | {"scale": np.ones(1, np.float32)})
    refused(session, **good | {"rows": rows.astype(np.float64)})
    refused(session, **good | {"rows": rows.astype(">f4")})
    refused(session, **good | {"index": good["index"].astype(np.int32)})
    refused(session, **good | {"rows": rows.tolist()})
    refused(session, **good | {"scale": 0.5})
    refused(session.profile, {})
    print(right("two", session(**good | {"scale": np.float32(0.5)})))
    """
    said = python(program).splitlines()
    for line, part in zip(
        said,
        [
            "input 'index' is missing: the model's inputs are 'rows', 'index', 'scale'",
            "there is no input 'extra': the model's inputs are",
            "input 'rows' has shape [3, 6], and the model takes [7, 6]",
            "input 'rows' has shape [42]",
            "input 'scale' has shape [1], and the model takes []",
            "input 'rows' has dtype float64, and the model takes float32",
            "input 'rows' has dtype >f4",
            "input 'index' has dtype int32, and the model takes int64",
            "input 'rows' is list, and a numpy array of float32 is needed",
            "input 'scale' is float",
            "input 'rows' is missing",
            "True",
        ],
        strict=True,
    ):
        assert part in line


def test_a_damaged_file_is_an_error(python, files: Path, tmp_path: Path) -> None:
    whole = (files / "mlp.cw").read_bytes()
    (tmp_path / "empty.cw").write_bytes(b"")
    (tmp_path / "text.cw").write_bytes(b"no model at all" * 50)
    for size in (1, 63, 64, 500, len(whole) // 2, len(whole) - 1):
        (tmp_path / f"cut{size}.cw").write_bytes(whole[:size])
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    (tmp_path / "changed.cw").write_bytes(changed)
    program = f"""
    from pathlib import Path
    for file in sorted(Path({str(tmp_path)!r}).glob("*.cw")):
        refused(run.load, file, sim, allow_host_code=True)
        refused(run.load, file.read_bytes(), sim, allow_host_code=True)
    refused(run.load, {str(tmp_path)!r} + "/missing.cw", sim, allow_host_code=True)
    refused(run.load, {str(tmp_path)!r}, sim, allow_host_code=True)
    """
    *said, missing, folder = python(program).splitlines()
    assert len(said) == 18
    assert [line for line in said if " is refused: " not in line] == []
    assert "missing.cw cannot be opened" in missing
    assert "is refused" in folder


@pytest.mark.parametrize("memory", ["unified", "discrete"])
def test_a_damaged_weight_is_found_wherever_it_lies(
    python, files: Path, tmp_path: Path, memory: str
) -> None:
    """Weights are summed on their way to the device, and the file's other parts before that."""
    whole = (files / "large.cw").read_bytes()
    entry = whole[64 + 11 * 32 :]  # of the table of sections
    at, size = (int.from_bytes(entry[i : i + 8], "little") for i in (8, 16))
    assert size > 2 << 20
    for i, place in enumerate((at, at + (1 << 20), at + size - 1)):
        changed = bytearray(whole)
        changed[place] ^= 1
        (tmp_path / f"{i}.cw").write_bytes(changed)
    program = f"""
    from pathlib import Path
    for file in sorted(Path({str(tmp_path)!r}).glob("*.cw")):
        refused(run.load, file, sim, allow_host_code=True)
        refused(run.load, file.read_bytes(), sim, allow_host_code=True)
    """
    said = python(program, CAUSEWAY_SIM_MEMORY_MODEL=memory).splitlines()
    assert len(said) == 6
    assert all(f"is refused: byte {at}: section constants is damaged" in line for line in said)


def test_an_error_stays_with_the_run_that_had_it(python) -> None:
    program = """
    model = load("two")
    session, good = model.session(), given("two", model)
    bad = good | {"index": good["index"] + 5}
    run_ = session.start(bad)
    refused(run_.result)
    refused(run_.result)
    print(right("two", session.run(good)))
    refused(run_.result)
    session.start(bad)
    print(right("two", session.run(good)))
    """
    lines = python(program).splitlines()
    assert [line == "True" for line in lines] == [False, False, True, False, True]
    assert all("is out of range for a dimension of size 9" in lines[i] for i in (0, 1, 3))


def test_an_error_of_a_kernel_is_that_runs_alone(python) -> None:
    program = """
    model = load("two")
    session, good = model.session(), given("two", model)
    bad = good | {"index": good["index"] + 5}
    refused(session.run, bad)
    print(right("two", session.run(good)))
    refused(session.profile, bad)
    print(right("two", session.run(good)))
    """
    first, after_run, second, after_profile = python(program).splitlines()
    assert "is out of range for a dimension of size 9" in first
    assert "is out of range for a dimension of size 9" in second
    assert (after_run, after_profile) == ("True", "True")


# --- how long it lives ----------------------------------------------------------------------------


def test_use_after_close_is_an_error(python) -> None:
    program = """
    model = load("mlp")
    inputs = given("mlp", model)
    first, second = model.session(), model.session()
    first.close()
    first.close()
    refused(first.run, inputs)
    refused(first.profile, inputs)
    print(right("mlp", second.run(inputs)), first.closed, second.closed)
    model.close()
    refused(second.run, inputs)
    refused(model.session)
    print(second.closed, list(model.inputs))
    device = model.device
    with device, device.load(f"{folder}/mlp.cw", allow_host_code=True) as other:
        third = other.session()
    refused(third.run, inputs)
    refused(device.load, f"{folder}/mlp.cw")
    """
    assert python(program).splitlines() == [
        "3: the session is closed",
        "3: the session is closed",
        "True True False",
        "3: the session is closed",
        "3: the model is closed",
        "True ['input']",
        "3: the session is closed",
        "3: the device is closed",
    ]


@pytest.mark.parametrize("ends", ["model.close()", "del model, session"])
def test_memory_is_released(python, ends: str) -> None:
    program = f"""
    model = load("mlp")
    device, room = model.device, 1 << 20
    for _ in range(2 * room // (model.weight_bytes + model.arena_bytes)):
        model = device.load(f"{{folder}}/mlp.cw", allow_host_code=True)
        session = model.session()
        good = right("mlp", session.run(given("mlp", model)))
        assert good
        {ends}
    model, kept = load("mlp"), []
    def fill():
        while len(kept) < room:
            kept.append(model.session())
    refused(fill)
    print(len(kept) > 10, right("mlp", kept[0].run(given("mlp", model))))
    kept.clear()
    print(right("mlp", model.session().run(given("mlp", model))))
    """
    full, kept, after = python(program, CAUSEWAY_SIM_MEMORY=str(1 << 20)).splitlines()
    assert full.startswith("2: ")
    assert "1048576 bytes free, and " in full
    assert (kept, after) == ("True True", "True")


@pytest.mark.parametrize("shared", [True, False], ids=["one-session", "a-session-each"])
def test_threads_get_their_own_numbers(python, shared: bool) -> None:
    program = f"""
    import threading
    model = load("mlp")
    (x,), common, wrong = given("mlp", model).values(), model.session(), []
    def work(number):
        session = common if {shared} else model.session()
        mine = x * np.float32(number)
        for _ in range(50):
            if session(input=mine)["output"].tobytes() != wanted[number]:
                wrong.append(number)
    wanted = [common(input=x * np.float32(n))["output"].tobytes() for n in range(6)]
    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads: t.start()
    for t in threads: t.join()
    print(len(set(wanted)), wrong)
    """
    assert python(program, CAUSEWAY_SIM_EXECUTION="async") == "6 []\n"


def test_each_thread_binds_the_device_before_it_calls(python, tmp_path: Path) -> None:
    """The vendor of bound.c ends the process where a thread has not."""
    program = f"""
    import threading
    device, said = run.Device({str(_bound(tmp_path))!r}), []
    def in_thread(work):
        thread = threading.Thread(target=lambda: said.append(work()))
        thread.start()
        thread.join()
        return said[-1]
    model = in_thread(lambda: device.load(f"{{folder}}/mlp.cw", allow_host_code=True))
    session = in_thread(model.session)
    print(in_thread(lambda: right("mlp", session.run(given("mlp", model)))))
    said.clear()
    in_thread(session.close)
    in_thread(model.close)
    print(session.closed, model.closed)
    """
    environment = {"BOUND_SIM": str(SIM), "CAUSEWAY_BOUND_CODE": "1"}
    assert python(program, **environment) == "True\nTrue True\n"


def test_closing_during_runs_ends_them_with_an_error_or_right(python) -> None:
    program = """
    import threading
    for _ in range(20):
        model = load("mlp")
        inputs, ended = given("mlp", model), []
        def work():
            session = model.session()
            started.wait()
            try:
                while right("mlp", session.run(inputs)):
                    pass
                ended.append("wrong numbers")
            except run.RunError as error:
                ended.append(str(error))
        started = threading.Barrier(4)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads: t.start()
        started.wait()
        model.close()
        for t in threads: t.join()
        assert ended == ["the session is closed"] * 3, ended
    print("done")
    """
    assert python(program) == "done\n"
