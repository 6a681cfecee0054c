"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def check(*paths: str | os.PathLike[str] | None) -> None:
    """Raise OSError, before the work that makes them, where one of these files cannot be written.
    None and "" are no file.
    """
    for path in paths:
        if not path:
            continue
        target = Path(path)
        if not target.parent.is_dir():
            raise FileNotFoundError(
                f"{target} cannot be written: there is no folder {target.parent}"
            )
        if target.is_dir():
            raise IsADirectoryError(f"{target} cannot be written: it is a folder")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise PermissionError(f"{target} cannot be written: {target.parent} takes no files")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file beside `path`, with the same ending, that takes its place at the end of the block.

    After an error it is gone, and what was there before stays. The mode of a file that is there is
    kept. Raises OSError, naming `path`, where it cannot be written.
    """
    target = Path(path)
    check(target)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=f".{target.name}")
    os.close(handle)
    try:
        yield Path(temporary)
        if target.exists():
            shutil.copymode(target, temporary)
        else:
            os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file all at once: who reads it never sees half of it. As `replacing`."""
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    with replacing(path) as temporary:
        temporary.write_bytes(content)
