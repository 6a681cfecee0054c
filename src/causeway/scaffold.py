"""`causeway new NAME`: the package of a vendor's library, written from vendors/template.

The template is a package named "template" that builds and passes its tests as it is; what is
written is the same with another name, so there is one source and it is tested.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from causeway import device_name, vendor
from causeway.errors import CausewayError

WORD = "template"  # in names of files and in what they say, in three spellings


def template_dir() -> Path:
    """The folder of vendors/template in this package."""
    return Path(__file__).parent / "vendor-template"


def write(name: str, folder: str | Path) -> list[str]:
    """Write the package of chip `name` into `folder`, which is made; give the files' paths in it.

    All or nothing. Raises CausewayError for a name that no device can have, and for a folder that
    has something in it.
    """
    target = Path(folder).expanduser().absolute()
    if (why := device_name.refusal(name)) is not None:
        raise CausewayError(f"a device cannot be called {name!r}: {why}")
    if name in vendor.installed():
        raise CausewayError(f"a vendor called {name!r} is installed here: take another name")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise CausewayError(f"{target} is there, and is no folder")
    if target.is_dir() and any(target.iterdir()):
        raise CausewayError(f"{target} is not empty: nothing was written")
    words = {spell(WORD): spell(name) for spell in (str.lower, str.upper, str.capitalize)}

    def renamed(text: str) -> str:
        for old, new in words.items():
            text = text.replace(old, new)
        return text

    source, files = template_dir(), []
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            for path in sorted(source.rglob("*")):
                if path.is_dir() or "__pycache__" in path.parts:
                    continue
                at = renamed(str(path.relative_to(source)))
                (part / at).parent.mkdir(parents=True, exist_ok=True)
                (part / at).write_text(renamed(path.read_text()))
                files.append(at)
            part.chmod(0o777 & ~_umask())
            os.rename(part, target)  # over a folder only where that is empty
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise CausewayError(f"{target} cannot be written: {error.strerror or error}") from error
    return files


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
