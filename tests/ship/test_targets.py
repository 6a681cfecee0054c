"""One file for several chips, and binaries of kernels, which need consent."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from causeway import vendor as vendors
from causeway.errors import CausewayError
from causeway.ship import targets

ROOT = Path(__file__).parents[2]
LIB = ROOT / "src/causeway/lib"
SIM = LIB / "libcw_sim.so"
TARGET, PORTS, VECTORS = 2, 10, 11  # sections

pytestmark = [pytest.mark.process, pytest.mark.once]

MODEL = """
import sys, torch, causeway
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(30, 30), nn.GELU(), nn.Linear(30, 5)).eval().to("sim")
x, folder = torch.randn(4, 30, device="sim"), sys.argv[1]
causeway.export(model, (x,), f"{folder}/image.cw", weights=f"{folder}/own.weights", binaries=True)
"""


@pytest.fixture(scope="session")
def folder(run_python: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with image.cw, which has binaries, and its weights."""
    made = tmp_path_factory.mktemp("targets")
    run_python(MODEL, args=(str(made),), timeout=300, CAUSEWAY_SIM_CODE="1", CAUSEWAY_VENDOR="sim")
    return made


@pytest.fixture
def image(folder: Path) -> bytes:
    return (folder / "image.cw").read_bytes()


@pytest.fixture
def shared(folder: Path) -> bytes:
    return (folder / "own.weights").read_bytes()


def _section(file: bytes, kind: int) -> tuple[int, int]:
    return struct.unpack_from("<QQ", file, 64 + 32 * (kind - 1) + 8)  # type: ignore[return-value]


def _changed(image: bytes, at: int, value: bytes) -> bytes:
    """A file with other bytes at a place, and its sums made right."""
    file = bytearray(image)
    file[at : at + len(value)] = value
    count = struct.unpack_from("<I", file, 12)[0]
    for kind in range(1, count + 1):
        offset, size = _section(file, kind)
        crc = zlib.crc32(file[offset : offset + size])
        struct.pack_into("<I", file, 64 + 32 * (kind - 1) + 4, crc)
    struct.pack_into("<II", file, 24, zlib.crc32(file[64 : 64 + 32 * count]), 0)
    struct.pack_into("<I", file, 28, zlib.crc32(file[:64]))
    return bytes(file)


def _for_opencl(image: bytes) -> bytes:
    return _changed(image, _section(image, TARGET)[0], struct.pack("<I", 2))


def cw(command: str, file: Path, *more: str) -> tuple[int, str]:
    """The exit status of `cw`, and what it printed."""
    run = () if command == "inspect" else ("--vendor", SIM, "--allow-host-code")
    done = subprocess.run(
        [LIB / "cw", command, *run, *more, file],
        env={"PATH": os.environ["PATH"], "CAUSEWAY_SIM_CODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def _loaded(file: Path, *more: str) -> list[str]:
    """How many sources were taken as binaries, by a load with each of these arguments."""
    program = (
        "import sys, causeway_run as run\n"
        f"device = run.Device({str(SIM)!r})\n"
        "import pathlib; file = pathlib.Path(sys.argv[1])\n"
        "for more in sys.argv[2:]:\n"
        "    try: print(eval(f'device.load({more}).binaries'))\n"
        "    except run.RunError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, file, *more],
        env=os.environ | {"CAUSEWAY_SIM_CODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_chip_that_lacks_what_only_makes_it_faster_runs_a_file(
    folder: Path, image: bytes, tmp_path: Path
) -> None:
    """Made where the CPU multiplies bytes and where it does not; not where groups run otherwise."""
    shutil.copy(folder / "own.weights", tmp_path)
    file, at = tmp_path / "image.cw", _section(image, TARGET)[0] + 4
    for flag, wanted in ((8, 0), (1, 1)):
        flags = struct.unpack_from("<I", image, at)[0] ^ flag
        file.write_bytes(_changed(image, at, struct.pack("<I", flags)))
        status, said = cw("verify", file)
        assert status == wanted, said
        assert ("differs (how groups run" in said) == bool(wanted)


# --- binaries -------------------------------------------------------------------------------------


def test_binaries_are_taken_with_consent_alone(folder: Path) -> None:
    file = folder / "image.cw"
    both = "allow_host_code=True, trust_binaries=True"
    said = _loaded(file, "file, allow_host_code=True", f"file, {both}", "file, trust_binaries=True")
    assert said[:2] == ["0", "2"]
    assert "CW_RUN_ALLOW_HOST_CODE" in said[2]  # they are native code as well
    for more in ((), ("--trust-binaries",)):
        status, words = cw("verify", file, *more)
        assert status == 0, words
        assert "output: equal bit for bit" in words


def test_binaries_of_another_driver_or_damaged_leave_the_sources(
    image: bytes, shared: bytes, tmp_path: Path
) -> None:
    (tmp_path / "own.weights").write_bytes(shared)
    key = image.index(b"sim\nSim 0\n") + 10
    made, _ = _section(image, 22)
    for i, file in enumerate((_changed(image, key, b"x"), _changed(image, made, b"none"))):
        path = tmp_path / f"{i}.cw"
        path.write_bytes(file)
        assert _loaded(path, "file, allow_host_code=True, trust_binaries=True") == [str(i)]
        assert cw("verify", path, "--trust-binaries")[0] == 0


def test_inspect_lists_binaries(folder: Path) -> None:
    assert "  and binaries of 2 sources, " in cw("inspect", folder / "image.cw")[1]


# --- several targets ------------------------------------------------------------------------------


def test_the_target_of_this_chip_is_taken(image: bytes, shared: bytes, tmp_path: Path) -> None:
    """Also from memory; its weights are in the file, whatever lies beside it."""
    file = tmp_path / "model.cw"
    file.write_bytes(targets.join([_for_opencl(image), image], shared))
    status, said = cw("verify", file)
    assert status == 0, said
    assert "output: equal bit for bit" in said
    assert cw("bench", file, "--rounds", "2")[0] == 0
    more = "allow_host_code=True, trust_binaries=True"
    assert _loaded(file, f"file, {more}", f"file.read_bytes(), {more}") == ["2", "2"]
    (tmp_path / "own.weights").write_bytes(shared)
    file.write_bytes(targets.join([_for_opencl(image), image], b""))
    assert cw("verify", file)[0] == 0


def test_of_several_that_fit_the_one_with_binaries_for_this_chip_is_taken(
    image: bytes, shared: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "model.cw"
    other = _changed(image, image.index(b"sim\nSim 0\n") + 10, b"x")
    file.write_bytes(targets.join([other, image], shared))
    both = "file, allow_host_code=True, trust_binaries=True"
    assert _loaded(file, "file, allow_host_code=True", both) == ["0", "2"]


def test_a_file_without_this_chip_says_what_it_has(
    image: bytes, shared: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "model.cw"
    file.write_bytes(targets.join([_for_opencl(image)] * 2, shared))
    status, said = cw("verify", file)
    assert status == 1
    assert "none of its 2 targets (sim, Sim 0; sim, Sim 0) is taken for this chip: " in said
    assert "its kernels are in OpenCL C, and sim builds C" in said
    file.write_bytes(targets.join([image, _for_opencl(image)], shared))
    refused = _loaded(file, "file")
    assert "CW_RUN_ALLOW_HOST_CODE" in refused[0]


def test_inspect_lists_targets(image: bytes, shared: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.cw"
    file.write_bytes(targets.join([_for_opencl(image), image], shared))
    status, said = cw("inspect", file)
    assert status == 0
    lines = said.splitlines()
    assert lines[0].startswith("target 1 of 2, 3 steps, ")
    assert lines[0].endswith("for sim, Sim 0 (kernels in OpenCL C)")
    assert lines[2].startswith("target 2 of 2, 3 steps, ")
    assert lines[4:6] == ["target 1", "for sim, Sim 0 (kernels in OpenCL C)"]
    assert "  in 4 parts of this file, which has 4 parts with " in said
    assert "target 2\nfor sim, Sim 0 (kernels in C)" in cw("inspect", file, "--target", "2")[1]
    assert "no such --target" in cw("inspect", file, "--target", "3")[1]


def test_damage_anywhere_is_found(image: bytes, shared: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.cw"
    whole = targets.join([image, _for_opencl(image)], shared)
    at, size = struct.unpack_from("<QQ", whole, 24)
    part = struct.unpack_from("<32sQQ", shared, struct.unpack_from("<Q", shared, 24)[0])
    places = [0, 9, 20, 30, 70, 80, 200, 100 + len(image) // 2, at + 4, at + part[1]]
    for place in (*places, at + size - 1):
        changed = bytearray(whole)
        changed[place] ^= 0x40
        file.write_bytes(changed)
        status, said = cw("verify", file)
        assert status == 1, place
        assert "is refused: " in said or "do not have the SHA-256" in said, (place, said)
    for size in (1, 63, 64, 90, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        for command in ("inspect", "verify"):
            assert cw(command, file)[0] == 1, size


# --- the command ----------------------------------------------------------------------------------


def test_each_vendor_is_a_target_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*names: str) -> list[tuple[str, bool]]:
        return [(t.vendor, t.named) for t in targets.targets(names)]

    monkeypatch.setattr(vendors, "installed", lambda: {"sim": None, "opencl": None, "acme": None})
    monkeypatch.delenv("CAUSEWAY_VENDOR", raising=False)
    assert found("any") == [("acme", False), ("opencl", False), ("sim", False)]
    assert found("any", "c", "sim") == [("acme", False), ("opencl", False), ("sim", True)]
    assert found("c", "any") == [("sim", True), ("acme", False), ("opencl", False)]
    monkeypatch.setenv("CAUSEWAY_VENDOR", "opencl")
    assert found("any") == [("opencl", False), ("acme", False), ("sim", False)]
    with pytest.raises(CausewayError, match="at most 16 targets"):
        found(*map(str, range(17)))


def test_targets_must_be_one_model(image: bytes) -> None:
    targets._compare("one", image, "other", image)
    at, _ = _section(image, VECTORS)
    result = struct.unpack_from("<Q", image, _section(image, PORTS)[0] + 112 + 40)[0]
    (value,) = struct.unpack_from("<f", image, at + result)
    near = _changed(image, at + result, struct.pack("<f", value * (1 + 1e-6)))
    targets._compare("one", image, "other", near)
    for place in (at, at + result):
        wrong = _changed(image, place, struct.pack("<f", value + 9))
        with pytest.raises(CausewayError, match="one and other were given different models"):
            targets._compare("one", image, "other", wrong)


def _export(folder: Path, *targets: object, **environment: str) -> tuple[int, str]:
    """The command's exit status and stderr; the file is net.cw."""
    (folder / "net.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(6, 2), torch.randn(3, 6)\n"
    )
    given = {k: v for k, v in os.environ.items() if k != "CAUSEWAY_VENDOR"} | environment
    command = [sys.executable, "-m", "causeway", "export", "net.py:make", "-o", "net.cw"]
    command += [str(part) for target in targets for part in ("--target", target)]
    done = subprocess.run(
        command, cwd=folder, env=given, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_a_process_that_ends_without_a_word_is_not_taken_for_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = subprocess.CompletedProcess("export", -11, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: ended)
    assert targets._run(targets.Target("acme", True), ()) == "its process ended with -11"


def test_any_is_a_text_for_each_vendor_that_can_be_exported(tmp_path: Path) -> None:
    status, said = _export(tmp_path, "any", CAUSEWAY_VENDOR="/dev/null/libcw_acme.so")
    assert status == 0, said
    assert "any: target /dev/null/libcw_acme.so was not exported: " in said
    assert "there is no such file" in said
    status, said = cw("inspect", tmp_path / "net.cw")
    assert status == 0
    assert "target 1 of 1, " in said
    assert "(kernels in C)" in said
    assert cw("verify", tmp_path / "net.cw")[0] == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_command_exports_for_two_chips(opencl_library: Path, tmp_path: Path) -> None:
    status, said = _export(tmp_path, "c", opencl_library)
    assert status == 0, said
    assert {p.name for p in tmp_path.iterdir()} - {"__pycache__"} == {"net.py", "net.cw"}
    status, said = cw("verify", tmp_path / "net.cw")
    assert status == 0
    assert "weights: 2 parts of net.cw have their SHA-256" in said
    on_opencl = subprocess.run(
        [LIB / "cw", "verify", "--vendor", opencl_library, "--trust-binaries", tmp_path / "net.cw"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert on_opencl.returncode == 0, on_opencl.stderr
    status, said = _export(tmp_path, "nothing")
    assert status != 0
    assert "target nothing was not exported: " in said
    assert {p.name for p in tmp_path.iterdir()} - {"__pycache__"} == {"net.py", "net.cw"}
