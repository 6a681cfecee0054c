"""OpenCL devices for Causeway. Importing it opens no driver."""

from pathlib import Path

__all__ = ["SETTINGS", "library"]

# Each with what it takes, its default and its meaning, for `causeway config` and `causeway doctor`.
SETTINGS = {
    "platform": (
        "text",
        "",
        "A platform's number, or a part of its name. Empty: the first with a GPU, with an "
        "accelerator, with any device.",
    ),
    "memory": ("bytes", "", "Bytes of each device at most. Empty: all that it has."),
    "memory_model": (
        ("auto", "fine", "coarse", "buffer"),
        "auto",
        "How memory is shared with the host: fine or coarse SVM, or buffers.",
    ),
    "hold_launches": ("flag", True, "0: on a CPU, too, each launch goes to the runtime at once."),
    "pin_threads": ("flag", True, "0: on a CPU the system may move the runtime's threads."),
    "in_turn": ("flag", True, "0: kernels for GPUs on a CPU, to test them."),
    "cache": ("text", "", "The folder of built programs. Empty: the user's cache."),
}


def library() -> str:
    """The path of the vendor's library, for the entry point of group `causeway.vendors`."""
    return str(Path(__file__).parent / "libcw_opencl.so")
