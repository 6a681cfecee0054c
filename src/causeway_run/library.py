"""The shared runtime, its functions and structs as `include/causeway/run.h` declares them.

A new function of run.h is a line here. Nothing is loaded before the first call.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

NAME = "libcw_run.so"
ALLOW_HOST_CODE = 1
INPUT, PLACE = 1 << 31, (1 << 64) - 1  # of cw_run_get
TRUST_BINARIES = 2
INVALID = 3  # CW_INVALID of abi.h


class RunError(RuntimeError):
    """What the runtime refuses or cannot do, with its message.

    `status` is the `cw_status` of abi.h. A wrong argument is CW_INVALID, whether Python or C found
    it.
    """

    def __init__(self, message: str, status: int = INVALID) -> None:
        super().__init__(message)
        self.status = status


class PortStruct(ctypes.Structure):
    """cw_run_port."""

    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_int32),
        ("ndim", c_int32),
        ("shape", c_int64 * 8),
        ("bytes", c_uint64),
    )


class InfoStruct(ctypes.Structure):
    """cw_run_info."""

    _fields_ = (
        ("about", c_char_p),
        ("weights", c_uint64),
        ("arena", c_uint64),
        ("inputs", c_uint32),
        ("outputs", c_uint32),
        ("steps", c_uint32),
        ("kernels", c_uint32),
        ("vectors", c_uint32),
        ("binaries", c_uint32),
    )


class StepStruct(ctypes.Structure):
    """cw_run_step."""

    _fields_ = (("name", c_char_p), ("line", c_char_p), ("ms", c_double))


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cw_run_open": (c_char_p, c_int32, POINTER(c_void_p)),
    "cw_run_close": (c_void_p,),
    "cw_run_load": (c_void_p, c_char_p, c_uint32, POINTER(c_void_p)),
    "cw_run_load_memory": (c_void_p, c_void_p, c_uint64, c_uint32, POINTER(c_void_p)),
    "cw_run_unload": (c_void_p,),
    "cw_run_describe": (c_void_p, POINTER(InfoStruct)),
    "cw_run_port_of": (c_void_p, c_int32, c_uint32, POINTER(PortStruct)),
    "cw_run_begin": (c_void_p, c_void_p, POINTER(c_void_p)),
    "cw_run_end": (c_void_p,),
    "cw_run_set": (c_void_p, c_uint32, c_void_p, c_uint64),
    "cw_run_get": (c_void_p, c_uint32, c_void_p, c_uint64),
    "cw_run": (c_void_p,),
    "cw_run_start": (c_void_p,),
    "cw_run_step_of": (c_void_p, c_uint32, c_int32, POINTER(StepStruct)),
}

_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None


def folders() -> list[Path]:
    """Where libcw_run.so and the simulated chip are looked for: in this folder, where a copy for
    one machine may lie, then in the folder of the package `causeway`.
    """
    own = Path(__file__).resolve().parent
    return [own, own.parent / "causeway" / "lib"]


def call(name: str, *arguments: Any) -> None:
    """Call a function of run.h. Raises RunError with the runtime's message where it fails.

    ctypes lets other threads of Python run meanwhile.
    """
    library = _loaded or _library()
    status = getattr(library, name)(*arguments)
    if status:
        # The message is this thread's, so it is read before anything else is called.
        raise RunError(library.cw_run_error().decode(errors="replace"), status)


def function(name: str) -> Any:
    """A function of run.h, for a caller that needs no check of its status."""
    return getattr(_library(), name)


def _library() -> ctypes.CDLL:
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _load()
        return _loaded


def _load() -> ctypes.CDLL:
    paths = [folder / NAME for folder in folders()]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        places = " or ".join(str(path.parent) for path in paths)
        raise RunError(
            f"the runtime {NAME} is not in {places}: install the wheel of causeway, or build it "
            "with `cmake -S run -B build-run` and copy it there"
        )
    try:
        library = ctypes.CDLL(str(path))
        for name, types in FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, c_int32
        library.cw_run_error.argtypes, library.cw_run_error.restype = (), c_char_p
    except (OSError, AttributeError) as error:
        raise RunError(f"the runtime {path} does not load: {error}") from error
    return library
