"""Huawei's Ascend NPUs for Causeway. Importing it opens no library of CANN's."""

from pathlib import Path

__all__ = ["SETTINGS", "library"]

# Each with what it takes, its default and its meaning, for `causeway config` and `causeway doctor`.
_FOUND = "Empty: the loader's, then ASCEND_TOOLKIT_HOME, ASCEND_HOME_PATH, /usr/local/Ascend."
SETTINGS = {
    "libraries": ("text", "", f"The folder of libascendcl.so and libopapi.so. {_FOUND}"),
    "executors": ("integer", 4096, "The most executors of aclnn that are kept; 0: none."),
    "ops": ("flag", True, "0: no operators of aclnn; memory, streams and events alone."),
}


def library() -> str:
    """The path of the vendor's library, for the entry point of group `causeway.vendors`."""
    return str(Path(__file__).parent / "libcw_ascend.so")
