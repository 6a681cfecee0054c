"""Sources of a file as one: what each computes stays, and what cannot be among others is not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from causeway.device.merge import merged
from causeway.errors import VendorError
from causeway.ship import export

# What all begin with.
FRONT = """
#ifdef WIDE_INDEX
typedef long idx;
#else
typedef int idx;
#endif
#define FUNCTION static inline
#define TWICE(x) ((x) * TIMES)

FUNCTION idx half(idx x) { return x / 2; } /* { and #if are words here */
"""
# Macros, types, functions and tables of the same names, and of other meaning.
SOURCES = [
    FRONT
    + """typedef float T;
enum order { FIRST, SECOND };
#define TIMES 2
#define STEP(x) x + 1
const T table[2] = {1, 2}, other = 3; // a '{'
struct pair { T a, b; };
FUNCTION T of(T x) { return TWICE(x) + table[1] + other + SECOND; }
T kernel_main(T x) { struct pair p = {of(x), STEP(half(9))}; return p.a + p.b; }
""",
    FRONT
    + """typedef double T;
enum { FIRST = 2, SECOND = FIRST * (1 + 1) };
#define TIMES 3
#ifndef STEP
#define STEP(x) \\
  x * \\
  10
#endif
const T table[2] = {5, 7};
struct pair { char name['}' - '|']; T a; };
FUNCTION T of(T x) {
  const char* s = "} \\" #undef";
  return TWICE(x) + table[0] + s[0] - '}' + SECOND;
}
FUNCTION T later(T x);
T kernel_main(T x) { struct pair p = {"", later(x)}; return p.a; }
FUNCTION T later(T x) { return of(x) + STEP(x); }
""",
    FRONT + "#define TIMES 5\nidx kernel_main(idx x) { return TWICE(x) + sizeof(idx); }\n",
]


def _results(folder: Path, name: str, source: str, kernels: list[str]) -> list[str]:
    calls = "".join(f'  printf("%g\\n", (double){kernel}(7));\n' for kernel in kernels)
    path = folder / f"{name}.c"
    path.write_text(f"#include <stdio.h>\n{source}\nint main(void) {{\n{calls}  return 0;\n}}\n")
    made = path.with_suffix("")
    flags = ("-std=c11", "-Wall", "-Werror", "-Wno-unused")
    subprocess.run(["cc", *flags, path, "-o", made], check=True)
    return subprocess.run([made], capture_output=True, text=True, check=True).stdout.split()


def test_each_kernel_computes_what_it_did(tmp_path: Path) -> None:
    alone = [_results(tmp_path, f"s{i}", s, ["kernel_main"])[0] for i, s in enumerate(SOURCES)]
    found = merged([("kernel_main", source) for source in SOURCES])
    (text,) = {source for _, source in found}
    assert [name for name, _ in found] == [f"source{i}_kernel_main" for i in range(3)]
    assert text.count("static inline") == text.count("half(idx x)") == 1
    assert _results(tmp_path, "merged", text, [name for name, _ in found]) == alone
    assert len(set(alone)) == 3


def test_kernels_of_one_source_stay_together() -> None:
    both = FRONT + "void f(idx x) {}\nvoid g(idx x) {}\n"
    found = merged([("f", both), ("kernel_main", SOURCES[2]), ("g", both)])
    assert [name for name, _ in found] == ["source0_f", "source1_kernel_main", "source0_g"]
    assert len({source for _, source in found}) == 1


def test_one_source_is_left_as_it_is() -> None:
    assert merged([("kernel_main", SOURCES[0])]) == [("kernel_main", SOURCES[0])]
    assert merged([]) == []


@pytest.mark.parametrize(
    "body",
    [
        "#pragma OPENCL EXTENSION all : enable\nvoid f() {}\n",
        "#include <other.h>\nvoid f() {}\n",
        "#undef FUNCTION\nvoid f() {}\n",
        "#define FUNCTION\nvoid f() {}\n",
        "#define DECLARE(name) void name() {}\nDECLARE(f)\n",
        "#if defined(FAST)\nvoid f() {\n#else\nvoid f() { g();\n#endif\n}\n",
        "#ifdef f\n#endif\nvoid f() {}\n",
        "FUNCTION idx half(idx x);\nvoid f() {}\n",
        '_Pragma("once")\nvoid f() {}\n',
        "void f() {\n",
        "void f() {}\n#endif\n",
        "int source0_f;\nvoid f() {}\n",
        "#undef log\n#define log(x) log2(x)\nvoid f() {}\n",
        "float log(float x) { return x; }\nvoid f() {}\n",
    ],
)  # fmt: skip
def test_what_may_differ_among_others_stays_by_itself(body: str) -> None:
    """The last two: `log` of another source is a function, or a macro, of the runtime's."""
    calls = [("g", FRONT + f"idx g(idx x) {{ return log(x) + {i}; }}\n") for i in range(2)]
    if "log" in body:  # what ends a macro goes last, so another such is behind it
        calls.append(("g", FRONT + "#undef exp\nidx g(idx x) { return log(x) + exp(x); }\n"))
    found = merged([("f", FRONT + body), *calls])
    texts = [source for _, source in found]
    apart = texts if "source0_f" in body else texts[-1:] if "undef log" in body else texts[:1]
    assert all(texts.count(text) == 1 for text in apart)


def test_sources_of_other_beginnings_are_apart() -> None:
    mine = [("kernel_main", source) for source in SOURCES[:2]]
    yours = [("add", f"#pragma one\n\nvoid add() {{ int x = {i}; }}\n") for i in range(2)]
    found = merged([mine[0], yours[0], mine[1], yours[1]])
    assert [name for name, _ in found] == [
        "source0_kernel_main", "source0_add", "source1_kernel_main", "source1_add"
    ]  # fmt: skip
    assert found[0][1] == found[2][1] != found[1][1] == found[3][1]


def test_a_compiler_that_refuses_the_one_source_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def build(source: str, **options: object) -> None:
        built.append(source)
        raise VendorError("line 7 is wrong")

    monkeypatch.setattr(export.code, "Program", build)
    apart = [("kernel_main", source) for source in SOURCES]
    with pytest.warns(UserWarning, match=r"stay in sources of their own.*: line 7 is wrong"):
        assert export._in_one_source(apart, torch.device("cpu")) == apart
    assert len(built) == 1
    assert export._in_one_source(apart[:1], torch.device("cpu")) == apart[:1]
