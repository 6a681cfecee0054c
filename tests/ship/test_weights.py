"""Weights by their SHA-256, in files that several models share."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from causeway.errors import CausewayError
from causeway.ship import weights

ROOT = Path(__file__).parents[2]
LIB = ROOT / "src/causeway/lib"
SIM = LIB / "libcw_sim.so"

pytestmark = [pytest.mark.process, pytest.mark.once]

# Two heads on one trunk: the trunk's weights are the same in both, and large.
MODELS = """
import sys, torch
from torch import nn
import causeway
from causeway.errors import CausewayError

device = torch.accelerator.current_accelerator()
torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(400, 400), nn.ReLU())
folder, x = sys.argv[1], torch.randn(4, 400)
for name, head in ("one", nn.Linear(400, 10)), ("two", nn.Linear(400, 3)):
    model = nn.Sequential(trunk, head).eval().to(device)
    shared = f"{folder}/shared.weights"
    causeway.export(model, (x.to(device),), f"{folder}/{name}.cw", weights=shared)
    print(name, open(shared, "rb").seek(0, 2))
again = causeway.export(model, (x.to(device),), f"{folder}/again.cw", weights=shared)
print("again", open(shared, "rb").seek(0, 2))
causeway.export(model, (x.to(device),), f"{folder}/inside.cw")
try:
    causeway.export(model, (x.to(device),), f"{folder}/no.cw", weights=f"{folder}/../out.weights")
except CausewayError as error:
    print(error)
try:
    causeway.export(model, (x.to(device),), f"{folder}/no.cw", weights=f"{folder}/one.cw")
except CausewayError as error:
    print(error)
twins = nn.Sequential(*(nn.Linear(40, 40) for _ in range(3)), nn.Linear(40, 40, bias=False))
for twin in twins[1:3]:
    twin.load_state_dict(twins[0].state_dict())
twins = twins.eval().to(device)
for name, more in ("twins", {}), ("twins_sizes", {"dynamic": "batch=1..3"}):
    causeway.export(twins, (torch.randn(2, 40, device=device),), f"{folder}/{name}.cw", **more)
"""


@pytest.fixture(scope="session")
def made(run_python: Callable, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with one.cw and two.cw, which share shared.weights, and what was printed."""
    folder = tmp_path_factory.mktemp("weights")
    done = run_python(
        MODELS, args=(str(folder),), timeout=300, CAUSEWAY_SIM_CODE="1", CAUSEWAY_VENDOR="sim"
    )
    return folder, done.stdout.splitlines()


@pytest.fixture
def folder(made: tuple[Path, list[str]], tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    shutil.copytree(made[0], tmp_path / "models")
    return tmp_path / "models"


def cw(command: str, file: Path, *more: str | Path, **environment: str) -> tuple[int, str]:
    """The exit status of `cw`, and what it printed."""
    run = () if command == "inspect" else ("--vendor", SIM, "--allow-host-code")
    done = subprocess.run(
        [LIB / "cw", command, *run, *more, file],
        env={"PATH": os.environ["PATH"], "CAUSEWAY_SIM_CODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_second_model_adds_only_what_is_not_there(made: tuple[Path, list[str]]) -> None:
    folder, said = made
    sizes = {name: int(size) for name, size in (line.split() for line in said[:3])}
    trunk, head = 4 * 400 * 401, 4 * 3 * 401
    assert trunk < sizes["one"] < trunk + 20_000
    assert head < sizes["two"] - sizes["one"] < head + 2_000
    assert sizes["again"] == sizes["two"]
    inside = (folder / "inside.cw").stat().st_size
    assert inside - (folder / "two.cw").stat().st_size > trunk
    assert (folder / "two.cw").stat().st_size < 60_000


def test_a_name_outside_of_the_folder_or_of_another_file_is_refused(
    made: tuple[Path, list[str]],
) -> None:
    folder, said = made
    assert "out.weights is outside of" in said[3]
    assert "one.cw is there and is no weights file; give another name" in said[4]
    assert not list(folder.glob("no.cw"))
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("memory", ["unified", "discrete"])
def test_both_give_the_compiled_models_bits(made: tuple[Path, list[str]], memory: str) -> None:
    for name, parts in (("one", 4), ("two", 4), ("inside", 0)):
        status, said = cw("verify", made[0] / f"{name}.cw", CAUSEWAY_SIM_MEMORY_MODEL=memory)
        assert status == 0, said
        assert "output: equal bit for bit" in said
        assert (f"weights: {parts} parts of shared.weights have their SHA-256" in said) == (
            parts > 0
        )


@pytest.mark.parametrize("name", ["twins", "twins_sizes"])
def test_equal_weights_of_one_file_are_in_it_once(made: tuple[Path, list[str]], name: str) -> None:
    """Of three layers of equal weights and one of other, two matrices and a bias."""
    status, said = cw("inspect", made[0] / f"{name}.cw")
    matrix, bias = 40 * 40 * 4, 256
    assert status == 0, said
    assert f"weights  {2 * matrix + bias} bytes" in said
    status, said = cw("verify", made[0] / f"{name}.cw")
    assert status == 0, said
    assert "output: equal bit for bit" in said


def test_inspect_says_where_the_weights_are(folder: Path) -> None:
    status, said = cw("inspect", folder / "two.cw")
    assert status == 0
    assert "  in 4 parts of shared.weights, which has 6 parts with " in said
    assert "shared.weights" not in cw("inspect", folder / "inside.cw")[1]
    (folder / "shared.weights").unlink()
    status, said = cw("inspect", folder / "two.cw")
    assert status == 0
    assert f"{folder}/shared.weights cannot be opened" in said


def test_models_of_a_process_share_the_memory(made: tuple[Path, list[str]]) -> None:
    """The chip has room for the trunk once, whichever of the models ends first."""
    program = f"""
import causeway_run as run, numpy as np
device = run.Device({str(SIM)!r})
x = np.ones((4, 400), np.float32)
one = device.load({str(made[0])!r} + "/one.cw", allow_host_code=True)
for _ in range(3):
    two = device.load({str(made[0])!r} + "/two.cw", allow_host_code=True)
    first = two.session()(input=x)["output"]
    one.close()
    assert np.array_equal(two.session()(input=x)["output"], first)
    one = device.load({str(made[0])!r} + "/one.cw", allow_host_code=True)
    two.close()
try:
    device.load({str(made[0])!r} + "/inside.cw", allow_host_code=True)
except run.RunError as error:
    print(error)
one.close()
device.load({str(made[0])!r} + "/inside.cw", allow_host_code=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_SIM_MEMORY": "1M"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "mem_alloc of the weights failed: " in done.stdout
    assert "bytes free, and " in done.stdout


def test_a_file_in_memory_finds_its_weights_in_the_folder_that_is_named(folder: Path) -> None:
    program = f"""
import causeway_run as run, pathlib
file = pathlib.Path({str(folder)!r}, "one.cw").read_bytes()
try:
    run.load(file, {str(SIM)!r}, allow_host_code=True)
except run.RunError as error:
    print(error)
import os
os.environ["CAUSEWAY_WEIGHTS"] = {str(folder)!r}
print(list(run.load(file, {str(SIM)!r}, allow_host_code=True).inputs))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"CAUSEWAY_SIM_CODE": "1"},
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    refused, found = done.stdout.splitlines()
    assert "shared.weights cannot be opened (No such file or directory)" in refused
    assert "CAUSEWAY_WEIGHTS" in refused
    assert found == "['input']"


def test_weights_that_are_not_there_are_an_error(folder: Path, tmp_path: Path) -> None:
    where = folder / "shared.weights"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where.rename(elsewhere / "shared.weights")
    status, said = cw("verify", folder / "one.cw")
    assert status == 1
    assert f"one.cw: its weights are in a file of their own, and {where} cannot be opened" in said
    assert "CAUSEWAY_WEIGHTS" in said
    assert cw("verify", folder / "one.cw", "--weights", elsewhere)[0] == 0
    weights.add(where, {hashlib.sha256(b"another").digest(): b"another"})
    status, said = cw("verify", folder / "one.cw")
    assert status == 1
    assert f"{where} has no weights with the SHA-256 " in said
    assert "which " in said
    assert "take the one that the model was exported with, or export into this one again" in said
    for content, words in ((b"", "has 0 bytes"), (b"x" * 99, "is no weights file")):
        where.write_bytes(content)
        status, said = cw("verify", folder / "one.cw")
        assert status == 1
        assert f"{where}, which has the weights of " in said
        assert words in said
    where.unlink()
    where.mkdir()
    assert "which is no file" in cw("verify", folder / "one.cw")[1]


def test_damage_of_each_part_is_found(folder: Path) -> None:
    where = folder / "shared.weights"
    whole = where.read_bytes()
    entries = [e for e in _index(whole) if e[0].hex() in (folder / "one.cw").read_text("latin-1")]
    assert len(entries) == 4
    for _, place, size in entries:
        changed = bytearray(whole)
        changed[place + size - 1] ^= 1
        where.write_bytes(changed)
        status, said = cw("verify", folder / "one.cw")
        assert status == 1
        assert f"{where} is damaged: its {size} bytes at {place} do not have the SHA-256" in said
    for size in (63, len(whole) // 2, len(whole) - 1):
        where.write_bytes(whole[:size])
        assert cw("verify", folder / "one.cw")[0] == 1
    where.write_bytes(whole + b"what a writer left that was stopped")
    assert cw("verify", folder / "one.cw")[0] == 0


def _index(whole: bytes) -> list[tuple[bytes, int, int]]:
    index, count = struct.unpack_from("<QQ", whole, 24)
    return list(struct.iter_unpack("<32sQQ", whole[index : index + 48 * count]))


@pytest.mark.parametrize(
    "name", ["/tmp/any.weights", "../ed.weights.", "a/../b.weight", "./red.weights", "a//b.weights"]
)
def test_a_name_that_leads_out_of_the_folder_is_refused(folder: Path, name: str) -> None:
    whole = bytearray((folder / "one.cw").read_bytes())
    kind, _, at, size, _ = struct.unpack_from("<IIQQQ", whole, 64)
    assert kind == 1
    strings = bytes(whole[at : at + size])
    place = strings.index(b"\0shared.weights\0") + 1
    raw = name.encode()[:14].ljust(14, b"x")
    whole[at + place : at + place + 14] = raw
    _seal(whole)
    (folder / "one.cw").write_bytes(whole)
    status, said = cw("inspect", folder / "one.cw")
    assert status == 1
    assert "the name of its weights file leads out of the model's folder" in said


def _seal(file: bytearray) -> None:
    """Make its sums right."""
    count = struct.unpack_from("<I", file, 12)[0]
    for entry in range(64, 64 + 32 * count, 32):
        offset, size = struct.unpack_from("<QQ", file, entry + 8)
        struct.pack_into("<I", file, entry + 4, zlib.crc32(file[offset : offset + size]))
    struct.pack_into("<II", file, 24, zlib.crc32(file[64 : 64 + 32 * count]), 0)
    struct.pack_into("<I", file, 28, zlib.crc32(file[:64]))


def test_verify_finds_weights_with_another_sha256(folder: Path) -> None:
    """In the model's own file too, where a load looks at a CRC-32 alone."""
    whole = bytearray((folder / "inside.cw").read_bytes())
    at, _ = struct.unpack_from("<QQ", whole, 64 + 32 * 11 + 8)
    whole[at] ^= 1
    _seal(whole)
    (folder / "inside.cw").write_bytes(whole)
    status, said = cw("verify", folder / "inside.cw")
    assert status == 1
    assert "weights: WRONG, their " in said


# --- writing --------------------------------------------------------------------------------------


def _blobs(*texts: bytes) -> dict[bytes, bytes]:
    return {hashlib.sha256(t).digest(): t for t in texts}


def test_a_file_that_cannot_be_written_whole_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.weights"
    assert weights.add(path, _blobs(b"one", b"two")) == 6
    before, write, calls, fails = path.read_bytes(), os.pwrite, [], [0]

    def full(file: int, data: bytes, place: int) -> int:
        calls.append(place)
        if len(calls) == fails[0]:
            raise OSError(28, "No space left on device")
        return write(file, data, place)

    monkeypatch.setattr(os, "pwrite", full)
    for number in (1, 2, 3):  # a part, the index, the header
        calls.clear()
        fails[0] = number
        with pytest.raises(OSError, match="No space"):
            weights.add(path, _blobs(b"two", b"three"))
        assert path.read_bytes() == before
    fails[0] = 0
    assert weights.add(path, _blobs(b"two", b"three")) == 5
    assert len(_index(path.read_bytes())) == 3


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.weights"

    def write(name: int) -> None:
        for i in range(20):
            weights.add(path, _blobs(f"{name} {i % 15} of all".encode() if i % 2 else b"%d" % i))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = path.read_bytes()
    index = _index(whole)
    assert len(index) == 10 + 2 * len({i % 15 for i in range(1, 20, 2)})
    for digest, place, size in index:
        assert place % 64 == 0
        assert hashlib.sha256(whole[place : place + size]).digest() == digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b"CAUSEWAY" + b[8:], "is no weights file"),
        (lambda b: b[:8] + b"\2" + b[9:], "version 2"),
        (lambda b: b[:50], "is no weights file"),
        (lambda b: b[:-1], "is damaged or was cut"),
        (lambda b: b[:-1] + b"x", "is damaged or was cut"),
        (lambda b: b.replace(b"one", b"on3"), "do not have the SHA-256"),
    ],
)
def test_a_damaged_file_is_not_added_to(
    tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    path = tmp_path / "a.weights"
    weights.add(path, _blobs(b"one"))
    path.write_bytes(change(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(CausewayError, match=words):
        weights.add(path, _blobs(b"one", b"two"))
    assert path.read_bytes() == before


def test_names_are_paths_from_the_models_folder(tmp_path: Path) -> None:
    model = tmp_path / "m.cw"
    assert weights.name_beside(model, tmp_path / "w") == "w"
    assert weights.name_beside(model, tmp_path / "a" / ".." / "b" / "w") == "b/w"
    for wrong in (tmp_path.parent / "w", tmp_path, tmp_path / "a:b", tmp_path / "a\nb", model):
        with pytest.raises(CausewayError):
            weights.name_beside(model, wrong)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        weights.add(tmp_path / "none" / "w", _blobs(b"one"))
