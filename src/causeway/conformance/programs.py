"""A small program in each language of code.v1, for the checks that build and launch one."""

from __future__ import annotations

import ctypes as C
from typing import Any

from causeway.conformance.chip import Chip, expect
from causeway.conformance.table import STATUS, CodeArg, CodeInfo, i32, ptr, u32

# For each language a function that writes `in` times `factor` plus its index.
_SOURCES = {
    1: """
#include <stdint.h>
const uint32_t scale_arguments = 4;
void scale(void* const* args, const uint32_t* group, const uint32_t* grid) {
  int32_t* to = *(int32_t**)args[0];
  const int32_t* from = *(int32_t**)args[1];
  int32_t factor = *(int32_t*)args[2];
  uint32_t n = *(uint32_t*)args[3];
  for (uint32_t i = group[0]; i < n; i += grid[0]) to[i] = from[i] * factor + (int32_t)i;
}
""",
    2: """
__kernel void scale(POINTER(to), POINTER(from), int factor, uint n) {
  OPEN(to) OPEN(from)
  for (uint i = get_global_id(0); i < n; i += get_global_size(0)) to[i] = from[i] * factor + (int)i;
}
""",
    3: """
extern "C" __global__ void scale(int* to, const int* from, int factor, unsigned n) {
  for (unsigned i = blockIdx.x; i < n; i += gridDim.x) to[i] = from[i] * factor + (int)i;
}
""",
}
# Of one name for what both have, and with nothing of either's headers.
_SOURCES[4] = _SOURCES[3]
_SPLIT = 2  # CW_CODE_SPLIT_POINTERS
_POINTERS = {
    False: "#define POINTER(x) __global int* x\n#define OPEN(x)\n",
    True: "#define POINTER(x) __global char* x##_base, ulong x##_at\n"
    "#define OPEN(x) __global int* x = (__global int*)(x##_base + x##_at);\n",
}


class Code:
    """A chip's code.v1, and what its compiler makes of `scale`."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.table = chip.extension("code.v1", chip.library.code)
        info = self.info = CodeInfo(struct_size=C.sizeof(CodeInfo))
        self.good("info", 0, C.byref(info))
        expect(info.language in _SOURCES, "a language of abi.h", info.language)
        self.source = _SOURCES[info.language]
        if info.language == 2:
            self.source = _POINTERS[bool(info.flags & _SPLIT)] + self.source
        self.program, self.function = ptr(), ptr()

    def answer(self, entry: str, *args: object) -> str:
        return str(STATUS[getattr(self.table, entry)(*args)])

    def good(self, entry: str, *args: object) -> None:
        status = self.answer(entry, *args)
        expect(status == "OK", f"OK of {entry}", f"{status}: {self.chip.library.words()}")

    def build(self) -> None:
        self.good("build", 0, self.source.encode(), None, C.byref(self.program))
        self.good("function", self.program, b"scale", C.byref(self.function))

    def launch(
        self, to: int, source: int, n: int, groups: int = 1, stream: Any = None, given: int = 4
    ) -> str:
        """Launch to[i] = source[i] * 2 + i for n values with `given` of its arguments."""
        values = [i32(2), u32(n)]
        places = [(0, to), (0, source), *[(4, C.addressof(v)) for v in values]]
        args = (CodeArg * 4)(*[CodeArg(b, 0, at) for b, at in places])
        one, grid = (u32 * 3)(1, 1, 1), (u32 * 3)(groups, 1, 1)
        status = self.answer("launch", self.function, grid, one, args, given, stream)
        for value in values:  # they were copied
            value.value = 0
        return status
