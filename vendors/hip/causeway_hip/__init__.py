"""AMD's GPUs, and Hygon's, for Causeway. Importing it opens no driver."""

from pathlib import Path

__all__ = ["SETTINGS", "library"]

# Each with what it takes, its default and its meaning, for `causeway config` and `causeway doctor`.
_FOUND = "Empty: the loader's, ROCM_PATH, /opt/rocm, /opt/dtk."
SETTINGS = {
    "hip": ("text", "", f"The path of libamdhip64.so. {_FOUND}"),
    "hiprtc": (
        "text",
        "",
        "The path of libhiprtc.so. Empty: HIP's own library where it has it, else as `hip`.",
    ),
    "hipblas": (
        "text",
        "",
        f"The path of libhipblas.so; 0: portable kernels multiply matrices. {_FOUND}",
    ),
    "architecture": (
        "text",
        "",
        "gfx90a: what programs are compiled for. Empty: what the device says.",
    ),
    "cache": ("text", "", "The folder of compiled programs. Empty: that in the user's cache."),
    "paper": (
        "text",
        "",
        "gfx90a: a device on paper (gfx90ax2: two), which compiles kernels and runs none.",
    ),
}


def library() -> str:
    """The path of the vendor's library, for the entry point of group `causeway.vendors`."""
    return str(Path(__file__).parent / "libcw_amd.so")
