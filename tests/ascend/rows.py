"""The vendor's table of operators, and what CANN's headers say of each: `rows.py LIBRARY [FOLDER]`.

FOLDER is where headers of aclnn's operators are (`aclnnop/` of an installed CANN, or the sources
of its operators). Each line's parameters are compared with theirs: number, kind, order.
"""

from __future__ import annotations

import ctypes as C
import re
import sys
from dataclasses import dataclass
from pathlib import Path

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
DECLARED = re.compile(r"aclnn(\w+)GetWorkspaceSize\s*\(([^;{]*?)\)\s*;", re.DOTALL)
# By the last type named in a parameter: the letters of vendors/ascend/src/call.hpp.
LETTERS = {
    "aclTensorList": "L", "aclScalarList": "S", "aclTensor": "t", "aclScalar": "s",
    "aclIntArray": "I", "aclBoolArray": "B", "aclFloatArray": "F", "int64_t": "i",
    "uint64_t": "i", "aclDataType": "n", "int32_t": "n", "int": "n", "int8_t": "c",
    "bool": "b", "double": "d", "float": "f", "char": "z",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One call: torch's operator, aclnn's, and a letter for each of its parameters."""

    operator: str
    name: str
    parameters: str


class _Host(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32),
        ("abi_version", C.c_uint32),
        ("entries", C.c_void_p * 4),
    ]


def rows(library: Path) -> list[Row]:
    """The lines of the vendor's table; opens no library of CANN's."""
    from causeway.conformance.table import Backend

    host = _Host(C.sizeof(_Host), 1)
    opened = C.CDLL(str(library))
    opened.cw_open_v1.restype = C.POINTER(Backend)
    table = opened.cw_open_v1(C.byref(host))
    text = C.c_void_p()
    status = table.contents.extension(b"ascend.rows.v1", C.byref(text))
    assert status == 0, status
    return [Row(*line.split()) for line in C.string_at(text.value or 0).decode().splitlines()]


def letter(parameter: str) -> str:
    words = re.findall(r"\w+", parameter)
    return next((LETTERS[w] for w in words if w in LETTERS), "?")


def declared(folder: Path) -> dict[str, str]:
    """aclnn's operators by the headers below a folder: a letter for each parameter."""
    found: dict[str, str] = {}
    for header in sorted(folder.rglob("*.h")):
        text = COMMENT.sub(" ", header.read_text(errors="replace"))
        for name, parameters in DECLARED.findall(text):
            # The last two are workspaceSize and executor.
            given = [letter(p) for p in parameters.split(",")][:-2]
            found.setdefault(f"aclnn{name}", "".join(given))
    return found


def differences(table: list[Row], headers: dict[str, str]) -> list[str]:
    """What is wrong, a line each; operators that no header declares are left out."""
    return [
        f"{row.operator}: {row.name} takes {headers[row.name]}, the table passes {row.parameters}"
        for row in table
        if row.name in headers and headers[row.name] != row.parameters
    ]


def main(arguments: list[str]) -> int:
    table = rows(Path(arguments[0]))
    if len(arguments) < 2:
        print("\n".join(f"{r.operator:50} {r.name:34} {r.parameters}" for r in table))
        return 0
    headers = declared(Path(arguments[1]))
    if not headers:
        print(f"{arguments[1]}: no header declares an operator of aclnn", file=sys.stderr)
        return 2
    wrong = differences(table, headers)
    known = sum(row.name in headers for row in table)
    print(
        "\n".join(
            [*wrong, f"{known} of {len(table)} calls are declared there, {len(wrong)} differ"]
        )
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
