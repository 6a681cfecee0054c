"""What the vendor declares, against the headers and the names of torch_npu's wheel (`make
ascend-headers`). The wheel has AscendCL's headers and no header of aclnn's operators: of those it
has the names, and rows.py compares the vendor's table with other headers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from rows import rows

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

pytestmark = [pytest.mark.process, pytest.mark.once]


def compiled(headers: Path, *flags: str) -> str:
    """What the compiler says of declarations.cpp, empty where all is right."""
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler")
    folders = [
        headers / "include",
        headers / "include/third_party/acl/inc",
        ROOT / "vendors/ascend/src",
        ROOT / "include",
    ]
    if home := os.environ.get("ASCEND_HOME_PATH"):  # a CANN here: what the wheel lacks is its
        flags += ("-idirafter", f"{home}/include")
    done = subprocess.run(
        ["c++", "-std=c++17", "-fsyntax-only", *flags, *(f"-I{f}" for f in folders),
         HERE / "declarations.cpp"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stderr if done.returncode else ""


def test_every_function_and_number_is_the_headers(headers: Path) -> None:
    assert compiled(headers) == ""


@pytest.mark.parametrize(
    ("planted", "words"),
    [("NUMBER", "ACL_INT16"), ("PARAMETER", "aclrtMalloc has other parameters")],
)
def test_a_planted_difference_is_found(headers: Path, planted: str, words: str) -> None:
    assert words in compiled(headers, f"-DPLANTED_{planted}")


def names(headers: Path) -> set[str]:
    library = (headers / "lib/libtorch_npu.so").read_bytes()
    return {name.decode() for name in re.findall(rb"aclnn[A-Z]\w+", library)}


def test_every_operator_of_the_table_is_one_that_torch_npu_names(
    headers: Path, ascend_library: Path
) -> None:
    known = names(headers)
    assert len(known) > 900
    assert "aclnnNoSuchOperator" not in known
    assert [row.name for row in rows(ascend_library) if row.name not in known] == []


def test_what_converts_formats_is_named_by_torch_npu(headers: Path) -> None:
    text = (ROOT / "vendors/ascend/src/layout.cpp").read_text()
    ours = re.findall(r'find_aclnn\("(aclnn\w+)"\)', text)
    ours += [f"aclnn{name}" for name in re.findall(r'look\(made->\w+, "(\w+)"\)', text)]
    assert len(ours) == 4
    assert [name for name in ours if name not in names(headers)] == []


def letters(parameters: str) -> list[str]:
    """A pointer, or the last word of its type, for each parameter."""
    kinds = []
    for parameter in parameters.split(","):
        words = re.findall(r"\w+", parameter)
        kinds.append("*" if "*" in parameter else "int" if "int" in words else words[-1])
    return kinds


def test_what_makes_aclnns_arguments_takes_what_op_plugin_passes(headers: Path) -> None:
    """Its typedefs: _aclCreateTensor and its like, by parameters."""
    text = (
        headers / "include/third_party/op-plugin/op_plugin/utils/op_api_common_base.h"
    ).read_text()
    theirs = dict(re.findall(r"\(\*_(acl(?:Create|Destroy)\w+)\)\s*\(([^)]*)\)", text))
    ours = dict(
        re.findall(
            r"F\(\w+, [\w*]+, (acl\w+),[\s\\]*\(([^)]*)\)\)",
            (ROOT / "vendors/ascend/src/acl.hpp").read_text(),
        )
    )
    assert len(ours) == 14
    missing = [name for name in ours if name not in theirs]
    assert missing == []
    for name, parameters in ours.items():
        assert parameters.count(",") == theirs[name].count(","), name
        pointers = [("*" in p) for p in parameters.split(",")]
        assert pointers == [("*" in p) for p in theirs[name].split(",")], name


def test_msptis_functions_are_those_that_torch_npu_calls(headers: Path) -> None:
    """The wheel has no header of MSPTI's: their names, and torch_npu's own functions around them,
    which take the same but for what a subscriber is called with.
    """
    text = (ROOT / "vendors/ascend/src/mspti.hpp").read_text()
    ours = dict(re.findall(r"F\(\w+, (mspti\w+),[\s\\]*\(([^)]*)\)\)", text))
    assert len(ours) == 9
    library = (headers / "lib/libtorch_npu.so").read_bytes()
    text = (headers / "include/torch_npu/csrc/framework/interface/MsptiInterface.h").read_text()
    theirs = dict(re.findall(r"bool (Mspti\w+)\(([^)]*)\)", text))
    for name, parameters in ours.items():
        assert name.encode() in library, name
        if name == "msptiSubscribe":
            continue
        mine, their = (p.split(",") for p in (parameters, theirs["M" + name[1:]]))
        assert len(mine) == len(their), name
        if name == "msptiUnsubscribe":  # a handle, which is a pointer
            continue
        assert [p.count("*") for p in mine] == [p.count("*") for p in their], name
        for a, b in zip(mine, their, strict=True):
            assert ("64" in a, "32" in a) == ("64" in b, "32" in b), name
