"""Kernels of threads: the stand-in libacl_rtc compiles them for the host, libascendcl runs them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable

import pytest

Run = Callable[..., str]

pytestmark = pytest.mark.skipif(
    not shutil.which("clang") and not shutil.which("c++"),
    reason="no compiler: apt-get install clang",
)


@pytest.fixture
def on_950(on_chip: Run) -> Run:
    def run(program: str, **settings: str) -> str:
        begin = "acl.aclrtSetDevice(0)\nfrom simt_programs import *\n"
        return on_chip(begin + textwrap.dedent(program), **({"SOC": "Ascend950PR_9599"} | settings))

    return run


def test_threads_of_a_block_share_memory_behind_barriers(on_950: Run) -> None:
    assert (
        on_950("""
        from struct import pack, unpack
        n = 100
        a, b = malloc(acl, 4 * n), malloc(acl, 4 * n)
        write(acl, a, pack(f"{n}f", *range(n)))
        function = loaded(compiled(), "neighbours")
        count = c_size_t()
        acl.aclrtFunctionGetParamCount(function, byref(count))
        launch(function, 4, 32, b, a, c_uint64(n))
        acl.aclrtSynchronizeStream(None)
        found = unpack(f"{n}f", read(acl, b, 4 * n))
        def after(i):
            next = i // 32 * 32 + (i + 1) % 32
            return float(next) if next < n else 0.0
        print(count.value, found == tuple(2.0 * i + after(i) for i in range(n)))
    """)
        == "3 True"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('extern "C" __global__ void f(double* x) { *x = 1; }', "poison"),
        ('extern "C" __global__ void f(float* x) { *x = (float)(*x * 0.1); }', "double"),
        ('extern "C" __global__ void f(float* x, int n) { *x = (float)(n * 0.1); }', "float64"),
        (
            "struct two { int a, b; };\n"
            'extern "C" __global__ void f(int* x, two v) { *x = v.a + v.b; }',
            "no structures",
        ),
        ('extern "C" __global__ void f(float* x) { *x = erfcxf(*x); }', "erfcxf"),
    ],
)
def test_what_the_language_does_not_have_does_not_compile(
    on_950: Run, text: str, words: str
) -> None:
    assert words in on_950(f"print(compiled(HEADER + {text!r}))")


def test_launches_that_the_chip_refuses(on_950: Run) -> None:
    assert "for 64 at most" in on_950("""
        a = malloc(acl, 400)
        function = loaded(compiled(), "neighbours")
        print(refused(INVALID_PARAMETER, launch, function, 1, 65, a, a, c_uint64(1)))
        refused(INVALID_PARAMETER, launch, function, 65536, 1, a, a, c_uint64(1))
        refused(INVALID_PARAMETER, launch, function, 0, 1, a, a, c_uint64(1))
        here = c_void_p(ctypes.addressof(a))
        assert "no address of the device" in refused(
            INVALID_PARAMETER, launch, function, 1, 1, a, here, c_uint64(1))
        refused(INVALID_PARAMETER, loaded, compiled(), "others")
        refused(INVALID_PARAMETER, loaded, b"no binary" * 20, "neighbours")
        acl.aclrtSetDevice(1)
        refused(INVALID_HANDLE, launch, function, 1, 1, a, a, c_uint64(1))
    """)


def test_a_barrier_that_not_all_threads_reach_fails_on_the_device(on_950: Run) -> None:
    assert "barrier" in on_950("""
        a = malloc(acl, 400)
        text = NEIGHBOURS.replace("  mine[threadIdx.x] = next;", "  if (threadIdx.x) asc_syncthreads();")
        launch(loaded(compiled(text), "neighbours"), 1, 32, a, a, c_uint64(1))
        print(refused(507035, acl.aclrtSynchronizeStream, None))
    """)


def test_another_chip_has_no_threads(on_950: Run) -> None:
    program = """
        function = loaded(compiled(), "neighbours")
        print(refused(207000, launch, function, 1, 1, function, function, c_uint64(1)))
    """
    assert "has no threads" in on_950(program, SOC="Ascend910B1")


def test_the_compiler_can_be_named_and_may_be_missing(on_950: Run) -> None:
    assert "apt-get install clang" in on_950("print(compiled())", COMPILER="no-such-compiler")


@pytest.mark.skipif(not shutil.which("c++"), reason="no c++")
def test_another_compiler_than_clang_does_and_says_so(on_950: Run) -> None:
    assert on_950("print(compiled()[:4])", COMPILER="c++") == r"b'\x7fELF'"
