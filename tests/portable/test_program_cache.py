"""Programs that earlier processes built: kept for this user alone, and run only where nobody else
can have written them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[2] / "include"
# At the C table: what is built, and whether it runs; no torch.
BUILDS = """
import ctypes, os, sys
os.umask(0)
from causeway.conformance.table import STATUS, Library
from causeway import vendor
settings = {"cache": sys.argv[1], "code": "1"}
library = Library(vendor.sim_library(), settings.get)
source = b"const unsigned f_arguments = 0; void f(void* const* a, const unsigned* b) {}"
for k in range(2):  # the second is opened beside the first
    program, function = ctypes.c_void_p(), ctypes.c_void_p()
    status = library.code().build(0, source + b"/* %d */" % k, None, ctypes.byref(program))
    assert STATUS[status] == "OK", library.words()
    status = library.code().function(program, b"f", ctypes.byref(function))
    assert STATUS[status] == "OK", library.words()
"""


@pytest.fixture
def build(run_python, tmp_path: Path):
    """build(folder, **variables): how many programs the compiler was asked for, of two."""
    cc, asked = tmp_path / "cc", tmp_path / "asked"
    cc.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) ;; *) echo >> {asked};; esac\n'
        f'exec {shutil.which("cc")} "$@"\n'
    )
    cc.chmod(0o755)

    def run(folder: Path | str, **variables: str | None) -> int:
        asked.write_text("")
        run_python(BUILDS, args=(str(folder),), **{"CC": str(cc), **variables})
        return len(asked.read_text())

    return run


def test_what_is_kept_is_this_users_alone(build, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    assert build(folder) == 2
    files = list(folder.iterdir())
    assert len(files) == 2
    for made in (tmp_path / "new", folder):
        assert made.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert build(folder) == 0


def test_without_a_home_nothing_is_kept(build, tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    none = {"HOME": None, "XDG_CACHE_HOME": None, "TMPDIR": str(place)}
    assert build("", **none) == 2
    assert build("", **none) == 2
    assert list(place.iterdir()) == []


def test_a_folder_that_others_may_write_is_not_used(build, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert build(folder) == 2
    folder.chmod(0o777)
    assert build(folder) == 2
    folder.chmod(0o700)
    assert build(folder) == 0


def test_a_file_that_others_may_have_written_is_built_anew(build, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert build(folder) == 2
    one, other = folder.iterdir()
    one.chmod(0o666)
    other.rename(tmp_path / "elsewhere")
    other.symlink_to(tmp_path / "elsewhere")
    assert build(folder) == 2
    assert one.stat().st_mode & 0o777 == 0o600
    assert not other.is_symlink()
    assert build(folder) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_or_folder_of_another_user_is_not_used(build, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert build(folder) == 2
    for file in folder.iterdir():
        os.chown(file, 65534, -1)
    assert build(folder) == 2
    os.chown(folder, 65534, -1)
    assert build(folder) == 2


@pytest.mark.parametrize("length", [0, 100, 4096, -1])
def test_a_file_that_was_cut_is_built_anew(build, tmp_path: Path, length: int) -> None:
    folder = tmp_path / "cache"
    assert build(folder) == 2
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:length])
    assert build(folder) == 2
    assert build(folder) == 0


HEADER = r"""
#include <sys/resource.h>
#include "causeway/program_cache.hpp"
int main(int, char** argv) {
  const causeway::ProgramCache cache(argv[1]);
  const std::string key = "key";
  if (!cache.keep(key, {1, 2, 3}) || cache.find(key).size() != 3) return 1;
  // The size that the header tells, of 4 GiB less 16 bytes.
  const std::string damage = "printf '\\360\\377\\377\\377' | dd of=$(echo " + cache.where() +
                             "/*.bin) bs=1 seek=16 conv=notrunc status=none";
  if (system(damage.c_str()) != 0) return 2;
  rlimit limit{size_t{1} << 30, size_t{1} << 30};  // of address space
  setrlimit(RLIMIT_AS, &limit);
  return cache.find(key).empty() ? 0 : 3;
}
"""


def test_a_damaged_header_costs_no_memory(tmp_path: Path) -> None:
    (tmp_path / "header.cpp").write_text(HEADER)
    program = tmp_path / "header"
    command = ["c++", "-std=c++17", f"-I{INCLUDE}", tmp_path / "header.cpp", "-o", program]
    subprocess.run(command, check=True)
    done = subprocess.run([program, tmp_path / "cache"], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
