"""Model files: written here, run by the C runtime in a process without Python and without torch."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from causeway.ship.file import VERSION

ROOT = Path(__file__).parents[2]
LIB = ROOT / "src/causeway/lib"
CW = LIB / "cw"
SIM = LIB / "libcw_sim.so"
SECTIONS = 22  # of a file of this version
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]

MODELS = """
import sys, torch
from torch import nn
from torch.nn import functional as F
import causeway
from causeway.ship.export import export

class Block(nn.Module):
    def __init__(self, d=32, heads=4):
        super().__init__()
        self.one, self.two, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.wide = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.one(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, d))
        return x + self.wide(self.two(x))

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(8, 16, 2, batch_first=True), nn.Linear(16, 3)
    def forward(self, sequence, scale):
        seen, (hidden, cell) = self.cells(sequence)
        return {"logits": self.head(seen[:, -1]) * scale, "hidden": hidden}

class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.mid = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.norm, self.up = nn.GroupNorm(2, 8), nn.ConvTranspose2d(8, 3, 4, 2, 1)
    def forward(self, image):
        return self.up(F.silu(self.norm(self.mid(self.down(image))))) + image

device = torch.accelerator.current_accelerator()
torch.manual_seed(0)
models = {
    "mlp": (nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)), [torch.randn(32, 20)]),
    "cnn": (
        nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Dropout(), nn.Linear(392, 10),
        ),
        [torch.randn(4, 1, 16, 16)],
    ),
    "gpt": (
        nn.Sequential(nn.Embedding(50, 32), Block(), Block(), nn.LayerNorm(32), nn.Linear(32, 50)),
        [torch.randint(0, 50, (4, 16))],
    ),
    "two": (Two(), [torch.randn(6, 5, 8), torch.tensor(2.0)]),
    "unet": (Unet(), [torch.randn(2, 3, 16, 16)]),
    # torch has one operator for such a layer in inference, which runs on the host.
    "encoder": (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), [torch.randn(2, 7, 32)]),
}
from causeway.quant import convert, quantize_dynamic
pixels = torch.randint(0, 17, (8, 1, 8, 8)).to(torch.uint8)
digits = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(288, 10)).eval()
images = quantize_dynamic(
    digits, {"mean": [0.1], "std": [0.3], "firstconv": True, "per_channel": True}, gen_quant=True)
images(pixels)
models["int8"] = (convert(images), [pixels])
wanted = sys.argv[2:] or list(models)
for name in wanted:
    model, args = models[name]
    export(model.eval().to(device), [a.to(device) for a in args], f"{sys.argv[1]}/{name}.cw")
assert torch.backends.mha.get_fastpath_enabled()  # as it was
print("written")
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="session")
def files(folder: Path) -> Path:
    """A folder with the files of all models, for the simulated chip."""
    _write(folder, {"CAUSEWAY_SIM_CODE": "1"})
    return folder


def _write(folder: Path, environment: dict[str, str]) -> None:
    import sys

    done = subprocess.run(
        [sys.executable, "-c", MODELS, str(folder)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stdout.endswith("written\n"), done.stdout + done.stderr


def cw(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `cw`, with nothing of Python's in its environment."""
    return subprocess.run(
        [CW, *arguments],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def on_sim(
    command: str, file: Path, *more: str | Path, **env: str
) -> subprocess.CompletedProcess[str]:
    arguments = ("--vendor", SIM, "--allow-host-code", *more, file)
    return cw(command, *arguments, CAUSEWAY_SIM_CODE="1", **env)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", ["mlp", "cnn", "gpt", "two", "unet", "encoder", "int8"])
@pytest.mark.parametrize(
    "env", [{}, {"CAUSEWAY_SIM_EXECUTION": "async", "CAUSEWAY_SIM_MEMORY_MODEL": "discrete"}]
)
def test_a_file_gives_the_compiled_models_bits(
    model: str, env: dict[str, str], files: Path
) -> None:
    done = on_sim("verify", files / f"{model}.cw", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == (2 if model == "two" else 1)
    assert [line for line in lines if not line.endswith(": equal bit for bit")] == []


@pytest.mark.timeout(900)
def test_files_run_on_opencl(opencl_library: Path, tmp_path: Path) -> None:
    _write(tmp_path, {"CAUSEWAY_VENDOR": str(opencl_library)})
    for file in sorted(tmp_path.glob("*.cw")):
        done = cw("verify", "--vendor", opencl_library, file)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WRONG" not in done.stdout
        assert " in 1 sources\n" in cw("inspect", file).stdout  # PoCL builds each anew
    refused = cw("verify", "--vendor", SIM, "--allow-host-code", file, CAUSEWAY_SIM_CODE="1")
    assert "its kernels are in OpenCL C, and sim builds C" in refused.stderr


def test_the_process_has_neither_python_nor_torch(files: Path, tmp_path: Path) -> None:
    needed = subprocess.run(["ldd", CW], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0].split(".so")[0] for line in needed.splitlines()}
    assert names <= {"linux-vdso", "libc", "libm", "libdl", "libpthread", "/lib64/ld-linux-x86-64"}
    for library in (LIB / "libcw_run.so", LIB / "libcw_run.a"):
        assert library.stat().st_size < 150_000


def test_a_file_in_integers_holds_them(files: Path) -> None:
    done = cw("inspect", files / "int8.cw")
    assert "uint8 [8, 1, 8, 8]" in done.stdout
    assert "causeway::qconv" in done.stdout
    assert "conv_" not in done.stdout.replace("qconv", "")
    weights = next(line for line in done.stdout.splitlines() if line.startswith("weights"))
    integers = 16 * 9 + 32 * 16 * 9 + 288 * 10
    assert integers < int(weights.split()[1]) < 2 * integers


def test_inspect_needs_no_chip(files: Path) -> None:
    done = cw("inspect", files / "two.cw")
    assert done.returncode == 0
    assert "kernels in C" in done.stdout
    assert "  sequence  float32 [6, 5, 8]\n  scale  float32 []" in done.stdout
    assert "the peak" in done.stdout


def test_run_reads_and_writes_tensors(files: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(struct.pack("<640f", *[0.25] * 640))
    given = ("--input", f"input={tmp_path}/in", "--output", f"output={tmp_path}/out")
    done = on_sim("run", files / "mlp.cw", *given)
    assert done.returncode == 0, done.stderr
    rows = struct.unpack("<320f", (tmp_path / "out").read_bytes())
    assert rows[:10] == rows[310:]
    assert len(set(rows[:10])) == 10
    (tmp_path / "in").write_bytes(b"1234")
    short = on_sim("run", files / "mlp.cw", *given)
    assert 'input "input" has 2560 bytes, and 4 were given' in short.stderr
    assert "--input input=PATH: it is not given" in on_sim("run", files / "mlp.cw").stderr


def test_an_index_out_of_range_is_an_error(files: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(struct.pack("<64q", *[7] * 63, 1000))
    given = ("--input", f"input={tmp_path}/in", "--output", f"output={tmp_path}/out")
    done = on_sim("run", files / "gpt.cw", *given)
    assert done.returncode == 1
    assert "index 1000 is out of range for a dimension of size 50" in done.stderr
    assert not (tmp_path / "out").exists()


def test_bench_says_how_fast(files: Path) -> None:
    done = on_sim("bench", files / "mlp.cw", "--rounds", "20", "--steps")
    assert done.returncode == 0, done.stderr
    assert "runs 20 after" in done.stdout
    assert "throughput" in done.stdout
    assert "aten::" in done.stdout


def test_c_kernels_need_consent(files: Path) -> None:
    done = cw("verify", "--vendor", SIM, files / "mlp.cw", CAUSEWAY_SIM_CODE="1")
    assert done.returncode == 1
    assert "CW_RUN_ALLOW_HOST_CODE" in done.stderr


# --- what is refused ----------------------------------------------------------------------------


def test_a_file_that_is_cut_anywhere_is_refused(files: Path, tmp_path: Path) -> None:
    whole = (files / "mlp.cw").read_bytes()
    cut = tmp_path / "cut.cw"
    for size in [*range(0, 600, 7), *range(600, len(whole), 997), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        done = cw("inspect", cut)
        assert done.returncode == 1, size
        assert "is refused: " in done.stderr or "cannot be read" in done.stderr, size


def test_planted_damage_is_found(files: Path, tmp_path: Path) -> None:
    whole = bytearray((files / "mlp.cw").read_bytes())
    chance, broken = random.Random(5), tmp_path / "broken.cw"
    for _ in range(300):
        at, bit = chance.randrange(len(whole)), 1 << chance.randrange(8)
        whole[at] ^= bit
        broken.write_bytes(whole)
        done = cw("inspect", broken)
        whole[at] ^= bit
        padding = done.returncode == 0
        assert padding == _is_padding(whole, at), at
        assert done.returncode in (0, 1)


def _is_padding(whole: bytes, at: int) -> bool:
    """Whether a byte lies between sections, where nothing is."""
    if at < 64 + 32 * SECTIONS:
        return False
    for i in range(SECTIONS):
        _, _, offset, size, _ = struct.unpack_from("<IIQQQ", whole, 64 + 32 * i)
        if offset <= at < offset + size:
            return False
    return True


def test_wrong_numbers_in_a_file_with_right_sums_are_refused(files: Path, tmp_path: Path) -> None:
    """What an attacker would write: sums are right, and sizes, indices and places are not."""
    whole = (files / "mlp.cw").read_bytes()
    chance, made = random.Random(7), tmp_path / "made.cw"
    refused = 0
    for _ in range(300):
        changed = bytearray(whole)
        section = chance.choice([2, 3, 4, 5, 6, 8, 9, 10])
        entry = 64 + 32 * (section - 1)
        _, _, offset, size, _ = struct.unpack_from("<IIQQQ", changed, entry)
        at = offset + chance.randrange(size // 4) * 4
        value = chance.choice([0, 1, 255, 65535, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
        struct.pack_into("<I", changed, at, value)
        struct.pack_into("<I", changed, entry + 4, zlib.crc32(changed[offset : offset + size]))
        table = zlib.crc32(changed[64 : 64 + 32 * SECTIONS])
        struct.pack_into("<II", changed, 24, table, 0)
        struct.pack_into("<I", changed, 28, zlib.crc32(changed[:64]))
        made.write_bytes(changed)
        done = cw("inspect", made)
        assert done.returncode in (0, 1), (section, at, value, done)  # never a signal
        refused += done.returncode
    assert refused > 150


def test_a_plan_that_overlaps_is_refused(files: Path, tmp_path: Path) -> None:
    changed = bytearray((files / "mlp.cw").read_bytes())
    entry = 64 + 32 * 5
    _, _, offset, size, _ = struct.unpack_from("<IIQQQ", changed, entry)
    for at in range(offset, offset + size, 24):
        if struct.unpack_from("<I", changed, at)[0] == 0:
            struct.pack_into("<Q", changed, at + 16, 0)  # all buffers of the arena in one place
    struct.pack_into("<I", changed, entry + 4, zlib.crc32(changed[offset : offset + size]))
    struct.pack_into("<II", changed, 24, zlib.crc32(changed[64 : 64 + 32 * SECTIONS]), 0)
    struct.pack_into("<I", changed, 28, zlib.crc32(changed[:64]))
    (tmp_path / "plan.cw").write_bytes(changed)
    assert "in use at once" in cw("inspect", tmp_path / "plan.cw").stderr


REFUSED = """
import torch, pytest
from torch import nn
from causeway.errors import CausewayError
from causeway.ship.export import export

class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3, device="sim"))
    def forward(self, t):
        self.count.add_(1)
        return t.sum(1) + self.count

x = torch.randn(3, 4, device="sim")
for module, args, said in [
    (nn.Dropout(), (x,), "draws random numbers"),
    (lambda t: t[t > 0], (x,), "depends on data"),
    (lambda t: t * t.sum().item(), (x,), "the host reads"),
    (lambda t: torch.linalg.eigvalsh(t @ t.T), (x,), "runs on the host"),
    (lambda t, n: t * n, (x, 3), "inputs are tensors"),
    (lambda t: t, (torch.ones(3),), "on 'sim'"),
    (Counts(), (x,), "writes to its own buffers"),
    (nn.BatchNorm1d(4).to("sim"), (x,), "writes to its own buffers"),
    (lambda t: t.add_(1), (x,), "writes to its input 't'"),
]:
    with pytest.raises(CausewayError, match=said):
        export(module, args, "never.cw", compiled=False)
import os
assert not [f for f in os.listdir(".") if "never" in f]
"""


def test_what_a_file_cannot_hold_is_refused(run_python: Run, tmp_path: Path) -> None:
    program = f"import os; os.chdir({str(tmp_path)!r})\n" + REFUSED
    run_python(program, CAUSEWAY_SIM_CODE="1")


def test_the_command_exports_a_function(run_python: Run, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(4, 2), torch.ones(3, 4)\n"
    )
    program = (
        "import sys; from causeway.cli import app; "
        f"sys.argv[1:] = ['export', '{tmp_path}/net.py:make', '-o', '{tmp_path}/net.cw']; app()"
    )
    said = run_python(program, CAUSEWAY_SIM_CODE="1", new=True).stdout
    assert "net.cw: " in said
    assert "equal bit for bit" in on_sim("verify", tmp_path / "net.cw").stdout


# --- what lasts -----------------------------------------------------------------------------------


def test_a_file_of_each_version_runs() -> None:
    """version<n>.cw was written when its format was new, and is never written again."""
    kept = sorted(Path(__file__).parent.glob("version*.cw"))
    assert kept
    for file in kept:
        done = on_sim("verify", file)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_newer_format_is_refused(files: Path, tmp_path: Path) -> None:
    changed = bytearray((files / "mlp.cw").read_bytes())
    struct.pack_into("<I", changed, 8, VERSION + 1)
    (tmp_path / "new.cw").write_bytes(changed)
    assert (
        f"is version {VERSION + 1}, and this runtime reads versions 1 to {VERSION}"
        in cw("inspect", tmp_path / "new.cw").stderr
    )


@pytest.mark.timeout(600)
def test_ten_thousand_damaged_files_are_refused_or_right(files: Path, tmp_path: Path) -> None:
    damage = tmp_path / "damage"
    flags = ["-std=gnu11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    sources = [Path(__file__).parent / "damage.c", ROOT / "run/check.c"]
    built = subprocess.run(
        ["cc", *flags, "-I", ROOT / "run", "-I", ROOT / "include", *sources, "-o", damage],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in built.stderr and "san" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        [damage, files / "mlp.cw", "10000"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    refused, read = (int(part.split()[0]) for part in done.stdout.split(", "))
    assert refused > 5000
    assert read > 500
