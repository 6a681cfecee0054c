"""The examples in C, C++ and Python print what torch predicts; run.hpp refuses what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/causeway"
SIM = PACKAGE / "lib/libcw_sim.so"

pytestmark = [pytest.mark.process, pytest.mark.once, pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str | Path, status: int = 0, cwd: Path = ROOT) -> tuple[str, str]:
    """What a command printed and what it said of errors."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=kept | {"CAUSEWAY_SIM_CODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make examples` fills."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    folder = tmp_path_factory.mktemp("examples")
    said, errors = run("make", "examples", f"SHIP={folder}")
    assert "warning: " not in errors  # of a compiler
    (right,) = [line for line in errors.splitlines() if line.endswith(" of 360 are right")]
    assert int(right.split()[0]) > 300
    assert "print the same" in said
    return folder


def test_each_language_prints_torchs_digits(made: Path) -> None:
    digits = (made / "torch.txt").read_text()
    assert [len(line) for line in digits.splitlines()] == [36] * 10
    assert set(digits) == set("0123456789\n")
    for name in ("c", "c++", "python"):
        assert (made / f"{name}.txt").read_text() == digits, name


def test_the_programs_load_neither_python_nor_torch(made: Path) -> None:
    for name in ("infer-c", "infer-c++"):
        needed, _ = run("ldd", made / name)
        assert "torch" not in needed.replace(str(ROOT), "")
        assert "python" not in needed.replace(str(ROOT), "")


@pytest.mark.parametrize("program", ["infer-c", "infer-c++", "infer.py"])
def test_an_example_says_what_is_wrong(program: str, made: Path, tmp_path: Path) -> None:
    start: list[str | Path] = [made / program]
    if program == "infer.py":
        start = [sys.executable, ROOT / "examples/ship/infer.py"]
    cut = tmp_path / "cut.cw"
    cut.write_bytes((made / "digits.cw").read_bytes()[:-1])
    images = made / "images.bin"
    for library, model, part in (
        (SIM, cut, "cut.cw is refused: "),
        (SIM, tmp_path / "no.cw", "no.cw cannot be opened"),
        (tmp_path / "libcw_no.so", made / "digits.cw", "the vendor's library does not open: "),
    ):
        said, errors = run(*start, library, model, images, status=1)
        assert said == ""
        assert errors.startswith("infer: ")
        assert part in errors


HEADER = r"""
#include <causeway/run.hpp>
#include <iostream>

template <class F>
void refused(F call) {
  try {
    call();
    std::cout << "nothing was refused\n";
  } catch (const cw::run::Error& error) {
    std::cout << error.status << ": " << error.what() << "\n";
  }
}

int main(int, char** argv) {
  cw::run::Session first = [&] {  // the session keeps its model and device
    cw::run::Device device(argv[1]);
    return cw::run::Session(cw::run::Model(device, argv[2], CW_RUN_ALLOW_HOST_CODE));
  }();
  refused([&] { first.set("imag", std::vector<float>(36 * 64)); });
  refused([&] { first.set("image", std::vector<double>(36 * 64)); });
  refused([&] { first.set("image", std::vector<float>(3)); });
  refused([&] { first.get<std::int64_t>("output"); });
  refused([&] { cw::run::Device(argv[1], 9); });
  refused([&] { cw::run::Model(cw::run::Device(argv[1]), argv[2]); });
  const std::vector<float> image(36 * 64);
  first.set("image", image.data(), image.size());
  first.run();
  std::cout << first.get<float>("output").size() << "\n";
  refused([&] { first.place<double>("image"); });
  float* place = first.place<float>("image");
  const float* output = first.output<float>("output");
  place[0] = 3;
  first.run();
  first.set("image", place, image.size());  // copies nothing
  first.run();
  const std::vector<float> copied = first.get<float>("output");
  std::cout << (output[0] == copied[0] && place[0] == 3) << "\n";
}
"""


def test_the_header_for_cpp_refuses_what_is_wrong(made: Path, tmp_path: Path) -> None:
    (tmp_path / "header.cpp").write_text(HEADER)
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", PACKAGE / "include"]
    library = [PACKAGE / "lib/libcw_run.a", "-ldl", "-lpthread"]
    run("c++", *flags, tmp_path / "header.cpp", *library, "-o", tmp_path / "header")
    said = run(tmp_path / "header", SIM, made / "digits.cw")[0].splitlines()
    for line, part in zip(
        said,
        [
            '3: there is no input "imag"',
            '3: input "image" has numbers of another type',
            '3: input "image" has 9216 bytes, and 12 were given',
            '3: output "output" has numbers of another type',
            "3: there is no device 9",
            "its kernels are C",
            "360",
            '3: input "image" has numbers of another type',
            "1",
        ],
        strict=True,
    ):
        assert part in line
