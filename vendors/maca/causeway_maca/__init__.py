"""MetaX's GPUs for Causeway. Importing it opens no driver."""

from pathlib import Path

__all__ = ["SETTINGS", "library"]

# Each with what it takes, its default and its meaning, for `causeway config` and `causeway doctor`.
_FOUND = "Empty: the loader's, MACA_PATH, /opt/maca."
SETTINGS = {
    "maca": ("text", "", f"The path of libmcruntime.so. {_FOUND}"),
    "mcrtc": ("text", "", "The path of the library with mcrtc. Empty: MACA's own, else as `maca`."),
    "mcblas": (
        "text",
        "",
        f"The path of libmcblas.so; 0: portable kernels multiply matrices. {_FOUND}",
    ),
    "cache": ("text", "", "The folder of compiled programs. Empty: that in the user's cache."),
    "paper": (
        "text",
        "",
        "xcore1000: a device on paper (xcore1000x2: two), whose memory is the host's.",
    ),
}


def library() -> str:
    """The path of the vendor's library, for the entry point of group `causeway.vendors`."""
    return str(Path(__file__).parent / "libcw_metax.so")
