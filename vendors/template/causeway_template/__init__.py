"""Template for Causeway. Importing it opens no driver."""

from pathlib import Path

__all__ = ["library"]


def library() -> str:
    """The path of the library, for the entry point of group `causeway.vendors`."""
    return str(Path(__file__).parent / "libcw_template.so")
