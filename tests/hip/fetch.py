"""Brings HIP of Debian's packages into a folder: `python tests/hip/fetch.py build/hip`.

Its runtime with hiprtc, the compiler behind it and its headers are those of Debian 12; hipBLAS's
headers and library those of Debian 13, which is the first that has them. Nothing is installed, and
apt's own lists stay as they are: it is given lists of its own in that folder.

`--headers` instead brings the headers of a newer HIP, which triton's wheel on PyPI holds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

# What libamdhip64 and the compiler need is there too: LLVM, and what Debian 12 builds it on.
PACKAGES = {
    "bookworm": (
        "libamdhip64-5 libamdhip64-dev libhiprtc-builtins5 libamd-comgr2 libhsa-runtime64-1 "
        "libhsakmt1 libnuma1 libelf1 libdrm2 libdrm-amdgpu1 libllvm15 libedit2 libbsd0 libmd0 "
        "libz3-4 libxml2 libicu72 liblzma5"
    ),
    "trixie": "libhipblas-dev libhipblas0",
}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = "http://deb.debian.org/debian"
TRITON = "triton==3.9.0"  # has the headers of HIP 7.1
INCLUDE = "triton/backends/amd/include/"


def fetch(folder: Path) -> None:
    """Unpack the packages into `folder`: Debian 12's as usr/, 13's as hipblas/usr/."""
    if not Path(KEYRING).exists():
        sys.exit(f"{KEYRING} is not there: this takes Debian's apt and its keys")
    for release, names in PACKAGES.items():
        apt = folder / "apt" / release
        for part in ("state/lists/partial", "cache/archives/partial"):
            (apt / part).mkdir(parents=True, exist_ok=True)
        (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {MIRROR} {release} main\n")
        options = {
            "Dir::State": apt / "state",
            "Dir::Cache": apt / "cache",
            "Dir::Etc::sourcelist": apt / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "APT::Architecture": "amd64",
        }
        command = ["apt-get", "-q", *(f"-o{key}={value}" for key, value in options.items())]
        subprocess.run([*command, "update"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*command, "download", *names.split()], cwd=apt, check=True)
        to = folder if release == "bookworm" else folder / "hipblas"
        to.mkdir(exist_ok=True)
        for package in sorted(apt.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, to], check=True)
            package.unlink()
    shutil.rmtree(folder / "apt")
    (folder / "fetched").touch()  # all of it: what `make hip` looks for


def fetch_headers(folder: Path) -> None:
    """Unpack the headers of a newer HIP into `folder`/newer."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, "-d", folder, TRITON], check=True)
    (wheel,) = folder.glob("triton-*.whl")
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.startswith(INCLUDE + "hip/"):
                files.extract(name, folder / "newer")
    wheel.unlink()


if __name__ == "__main__":
    where = Path(sys.argv[1]).resolve()
    where.mkdir(parents=True, exist_ok=True)
    (fetch_headers if "--headers" in sys.argv else fetch)(where)
