"""Libraries of DIOPI's functions for Causeway. Importing it opens none."""

from pathlib import Path

__all__ = ["SETTINGS", "library"]

# Each with what it takes, its default and its meaning, for `causeway config` and `causeway doctor`.
SETTINGS = {
    "library": ("text", "", "The path of the library of DIOPI's functions, libdiopi_impl.so."),
    "device": (
        "text",
        "",
        "The path of the library with device_malloc and its like. Empty: the library itself where "
        "it has them, else the host's memory. host: the host's memory.",
    ),
    "memory": ("integer", 0, "Bytes of memory of the device; 0: as much as the host has."),
    "contiguous": ("flag", False, "1: tensors come dense, for libraries that take no strides."),
    "ops": ("flag", True, "0: no operators of the library; memory and copies alone."),
}


def library() -> str:
    """The path of the vendor's library, for the entry point of group `causeway.vendors`."""
    return str(Path(__file__).parent / "libcw_diopi.so")
