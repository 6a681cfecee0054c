"""One file for several chips: `causeway export --target`.

A process has one vendor, so each target is exported by a process of its own, and their files become
one: run/format.h has its layout. All must be the same model, which their test vectors show.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from causeway import atomic
from causeway import vendor as vendors
from causeway.errors import CausewayError
from causeway.numerics import spans

VERSION = 1
MOST = 16
ANY = "any"  # a text for each vendor of this environment
_ALIASES = {"c": "sim"}  # the simulated chip is what builds C
_FLOATS = {9: torch.float16, 10: torch.bfloat16, 11: torch.float32, 12: torch.float64}
_NO_VECTOR = (1 << 64) - 1


@dataclass(frozen=True)
class Target:
    """A vendor, by name or by its library's path. One that is named has its binaries kept and must
    be exported; one of `any` is text, and is left out where it cannot be. With an architecture it
    is a chip that is not here, on paper.
    """

    vendor: str
    named: bool
    architecture: str = ""

    @property
    def name(self) -> str:
        return ":".join(part for part in (self.vendor, self.architecture) if part)

    @property
    def setting(self) -> str:
        """The variable that gives the vendor a device on paper."""
        stem = Path(self.vendor).name.removeprefix("libcw_").removesuffix(".so")
        return f"CAUSEWAY_{re.sub('[^A-Z0-9]', '_', stem.upper())}_PAPER"


def targets(names: Sequence[str]) -> list[Target]:
    """What `--target` asks for, each vendor once: `any` is each vendor of this environment without
    binaries, and `nvidia:sm_90` that vendor's chip of this architecture, which need not be here.
    """
    found: dict[tuple[str, str], bool] = {}
    for name in names:
        split = re.fullmatch(r"(.+):([^/:]+)", name)
        vendor, architecture = split.groups() if split else (name, "")
        if vendor == ANY:
            if architecture:
                raise CausewayError(
                    f"--target {name}: an architecture is a vendor's, as nvidia:sm_90"
                )
            for each in _here():
                found.setdefault((each, ""), False)
        else:
            found[_ALIASES.get(vendor, vendor), architecture] = True
    if len(found) > MOST:
        raise CausewayError(f"a file has at most {MOST} targets, and {len(found)} were given")
    return [Target(vendor, named, where) for (vendor, where), named in found.items()]


def _here() -> list[str]:
    """The vendors of this environment, the one that it takes first and the simulated chip, which
    builds C, among them.
    """
    asked = os.environ.get("CAUSEWAY_VENDOR", "").strip()
    names = vendors.installed()
    return list(dict.fromkeys([*([asked] if asked else []), *vendors.real(names), "sim"]))


def export(
    output: Path, wanted: Sequence[Target], arguments: Sequence[str], weights: Path | None
) -> None:
    """Run `causeway export` with `arguments` for each target, and write their files as one. What
    of `any` is left out is said on stderr.

    Raises:
        CausewayError: a target that was named fails, or all do, with what it said, or the files are
            not of one model.
    """
    with contextlib.ExitStack() as stack:
        if weights:  # a path from the model's folder names it, so the images are made there
            made = [stack.enter_context(_beside(output)) for _ in wanted]
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=output.parent)))
            made = [folder / f"target {i}" for i in range(len(wanted))]
        where = weights or folder / output.name  # the name that its images have for it
        names: list[str] = []
        images: list[bytes] = []
        for target, path in zip(wanted, made, strict=True):
            if said := _run(target, [*arguments, "--output", str(path), "--weights", str(where)]):
                failed = f"target {target.name} was not exported: {said}"
                if target.named or (target is wanted[-1] and not images):
                    raise CausewayError(failed)
                print(f"any: {failed}", file=sys.stderr)
                continue
            names.append(target.name)
            images.append(path.read_bytes())
        for name, image in zip(names[1:], images[1:], strict=True):
            _compare(names[0], images[0], name, image)
        atomic.write(output, join(images, b"" if weights else where.read_bytes()))


def join(images: Sequence[bytes], weights: bytes) -> bytes:
    """The file of several model files, and of the weights file that they share, or b""."""
    at = _round(64 + 16 * len(images))
    table, parts = b"", [b""]
    for image in images:
        table += struct.pack("<QQ", at, len(image))
        parts.append(image + bytes(_round(len(image)) - len(image)))
        at += _round(len(image))
    parts[0] = table + bytes(_round(64 + len(table)) - 64 - len(table))
    end = at + len(weights) if weights else at
    counts = (VERSION, len(images), end, at if weights else 0, len(weights), zlib.crc32(table))
    header = struct.pack("<8sIIQQQI", b"CTARGETS", *counts)
    crc = zlib.crc32(header + bytes(20))
    return b"".join([header, struct.pack("<I16x", crc), *parts, weights])


@contextlib.contextmanager
def _beside(output: Path) -> Iterator[Path]:
    """A file beside the output, which is gone afterwards."""
    handle, name = tempfile.mkstemp(dir=output.parent, prefix=".", suffix=f".{output.name}")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _run(target: Target, arguments: Sequence[str]) -> str:
    """Why it failed, or ""."""
    environment = os.environ | {"CAUSEWAY_VENDOR": target.vendor}
    if target.vendor == "sim":
        environment.setdefault("CAUSEWAY_SIM_CODE", "1")
    own = ["--binaries"] if target.named else []
    if target.architecture:
        environment[target.setting] = target.architecture
        own += ["--on-paper", target.architecture]
    done = subprocess.run(
        [sys.executable, "-m", "causeway", "export", *arguments, *own],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.returncode:
        return ""
    return (done.stderr or done.stdout).strip() or f"its process ended with {done.returncode}"


def _compare(one_name: str, one: bytes, other_name: str, other: bytes) -> None:
    """That two files are of one model: the same inputs to the bit, and outputs that are near."""
    ports, others = _ports(one), _ports(other)
    same = [p[:3] for p in ports] == [p[:3] for p in others]
    for mine, yours in zip(ports, others, strict=False):
        same = same and _near(mine, yours)
    if not same:
        raise CausewayError(
            f"{one_name} and {other_name} were given different models, or compute different "
            "numbers: the function must make the same model and arguments each time it is called, "
            "without a random number that `--seed` does not reach"
        )


def _near(mine: tuple[int, int, str, bytes], yours: tuple[int, int, str, bytes]) -> bool:
    kind, dtype, _, data = mine
    if data == yours[3]:
        return True
    if kind == 0 or len(data) != len(yours[3]):
        return False
    if dtype not in _FLOATS:
        return True  # what is rounded, or the place of the largest, may be another integer
    came, reference = (
        torch.frombuffer(bytearray(part), dtype=_FLOATS[dtype]) for part in (data, yours[3])
    )
    return spans.near(came, reference, "kernel")[0].good


def _ports(image: bytes) -> list[tuple[int, int, str, bytes]]:
    """(kind, dtype, name, test vector) of each input and output."""
    sections = {}
    for i in range(struct.unpack_from("<I", image, 12)[0]):
        kind, _, at, size, _ = struct.unpack_from("<IIQQQ", image, 64 + 32 * i)
        sections[kind] = image[at : at + size]
    found = []
    for name, kind, _, dtype, ndim, _, _, size, at, *shape in struct.iter_unpack(
        "<6I3Q8q", sections[10]
    ):
        text = sections[1][name : sections[1].index(b"\0", name)].decode()
        data = b"" if at == _NO_VECTOR else sections[11][at : at + size]
        found.append((kind, dtype, f"{text} {shape[:ndim]}", data))
    return found


def _round(size: int) -> int:
    return -(-size // 64) * 64
