"""Kernels of threads by ctypes: compiled by libacl_rtc, loaded and launched."""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    _SimpleCData,
    byref,
    c_char_p,
    c_size_t,
    c_uint32,
    c_void_p,
    cast,
    create_string_buffer,
    pointer,
)

from ascendcl import Library, start

HEADER = '#include "simt_api/asc_simt.h"\n'
# Twice an element and its right neighbour in the block, which shares memory.
NEIGHBOURS = (
    HEADER
    + r"""
static __aicore__ inline float twice(float x) { return fmaf(x, 2.0f, 0.0f); }
extern "C" __global__ __launch_bounds__(64)
void neighbours(float* to, const float* from, uint64_t n) {
  __ubuf__ float mine[64];
  const uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  mine[threadIdx.x] = at < n ? from[at] : 0.0f;
  asc_syncthreads();
  const float next = mine[(threadIdx.x + 1) % blockDim.x];
  asc_syncthreads();
  mine[threadIdx.x] = next;
  if (at < n) to[at] = twice(from[at]) + mine[threadIdx.x];
}
"""
)

acl = start()
rtc = Library("libacl_rtc.so")


class Sides(Structure):
    _fields_ = (("x", c_uint32), ("y", c_uint32), ("z", c_uint32))


def compiled(text: str = NEIGHBOURS) -> bytes | str:
    """The binary, or the compiler's words."""
    program, size = c_void_p(), c_size_t()
    rtc.aclrtcCreateProg(byref(program), text.encode(), b"kernel.asc", 0, None, None)
    options = (c_char_p * 2)(b"--npu-arch=dav-3510", b"--enable-simt")
    if rtc.library.aclrtcCompileProg(program, 2, options):
        rtc.aclrtcGetCompileLogSize(program, byref(size))
        log = create_string_buffer(size.value)
        rtc.aclrtcGetCompileLog(program, log)
        return log.value.decode()
    rtc.aclrtcGetBinDataSize(program, byref(size))
    binary = create_string_buffer(size.value)
    rtc.aclrtcGetBinData(program, binary)
    rtc.aclrtcDestroyProg(byref(program))
    return binary.raw


def loaded(binary: bytes, name: str) -> c_void_p:
    handle, function = c_void_p(), c_void_p()
    acl.aclrtBinaryLoadFromData(binary, c_size_t(len(binary)), None, byref(handle))
    acl.aclrtBinaryGetFunction(handle, name.encode(), byref(function))
    return function


def launch(function: c_void_p, blocks: int, threads: int, *arguments: _SimpleCData) -> None:
    places = (c_void_p * len(arguments))(*[cast(pointer(a), c_void_p) for a in arguments])
    grid, block = Sides(blocks, 1, 1), Sides(threads, 1, 1)
    acl.aclrtLaunchSIMTKernelWithArgsArray(
        function, grid, block, c_size_t(0), None, None, cast(places, POINTER(c_void_p))
    )
