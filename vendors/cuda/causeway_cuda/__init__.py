"""NVIDIA's GPUs for Causeway. Importing it opens no driver."""

from pathlib import Path

__all__ = ["SETTINGS", "library"]

# Each with what it takes, its default and its meaning, for `causeway config` and `causeway doctor`.
_FOUND = "Empty: the wheel's next to this package, the loader's, CUDA_HOME, /usr/local/cuda."
SETTINGS = {
    "nvrtc": ("text", "", f"The path of libnvrtc.so. {_FOUND}"),
    "cublas": (
        "text",
        "",
        f"The path of libcublas.so; 0: portable kernels multiply matrices. {_FOUND}",
    ),
    "cudnn": (
        "text",
        "",
        f"The path of libcudnn.so.9; 0: portable kernels compute convolutions. {_FOUND}",
    ),
    "winograd": (
        "flag",
        False,
        "1: convolutions may use Winograd's and Fourier's algorithms, which spread an Inf over a "
        "tile and round more.",
    ),
    "cache": ("text", "", "The folder of compiled programs. Empty: that in the user's cache."),
    "paper": (
        "text",
        "",
        "sm_90: a device on paper (sm_90x2: two), which compiles kernels and runs none.",
    ),
}


def library() -> str:
    """The path of the vendor's library, for the entry point of group `causeway.vendors`."""
    return str(Path(__file__).parent / "libcw_nvidia.so")
