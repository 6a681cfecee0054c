"""What is said of a Python file that does not parse: why, what to do, which lines need a look.

It is read by the Python that runs Causeway, so a program of Python 2 and one that is newer than
this Python are left as they are. The error message distinguishes them where possible.
"""

from __future__ import annotations

import re
import sys

# The statements print, exec and raise of Python 2, and names that Python 3 has no more.
_OLD = re.compile(
    r"""^[ \t]*(?:print[ \t]+["'%\w]|exec[ \t]+["'\w]|raise[ \t]+\w+,"""
    r"""|except[ \t]+[\w.]+,[ \t]*[a-z_]\w*[ \t]*:)"""
    r"""|\b(?:xrange|unicode|raw_input)\(|\.(?:iteritems|has_key)\(""",
    re.M,
)
# Type parameters and the statement `type` of 3.12, template strings of 3.14.
_NEW = re.compile(
    r"""^[ \t]*(?:type[ \t]+\w+(?:\[[^\]]*\])?[ \t]*=|(?:async[ \t]+)?(?:def|class)[ \t]+\w+\[)"""
    r"""|(?<!\w)t["']""",
    re.M,
)
_SHOWN = 8


def why(error: SyntaxError | ValueError, text: str) -> str:
    """One line on a module that the parser refused with `error`."""
    line = getattr(error, "lineno", None)
    what = str(getattr(error, "msg", None) or error)
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if _OLD.search(text) and not _NEW.search(text):
        todo = "it looks like Python 2: convert it with 2to3 first"
    else:
        todo = f"if it is written for a Python newer than {python}, run Causeway with that one"
    named = [i for i, row in enumerate(text.splitlines(), 1) if "cuda" in row or "nccl" in row]
    shown = ", ".join(map(str, named[:_SHOWN])) + (", …" if len(named) > _SHOWN else "")
    return (
        (f"line {line}: " if line else "")
        + f"{what}; {todo}"
        + (f"; lines that name CUDA: {shown}" if named else "")
    )
