"""`import apex` gives causeway.apex, where no other apex is: see causeway.importing."""

from __future__ import annotations

import sys

from causeway.importing import Aliases

_aliases = Aliases(
    {"apex": "causeway.apex", "amp_C": "causeway.apex.multi_tensor_apply.amp_C"},
    "Causeway's apex, which has torch's means only (see docs/amp.md)",
)
_INSTEAD = "call causeway.apex.install() in an environment without it, or write `from causeway import apex`"  # noqa: E501


def install() -> None:
    """Make `import apex` give this package, in this process. Does nothing where it does already.

    Raises CausewayError where another apex is installed or imported: it is never shadowed.
    """
    if not _aliases.installed:
        _aliases.refuse_others("apex", _INSTEAD)
        _aliases.install()


def install_where_absent() -> bool:
    """As install(), but where there is another apex leave it in its place; give whether ours is
    what `import apex` gives.
    """
    if "apex" not in sys.modules and _aliases.elsewhere("apex") is None:
        install()
    return installed()


def uninstall() -> None:
    """Take install() back. What was imported under these names is forgotten; programs that hold it
    still do.
    """
    _aliases.uninstall()


def installed() -> bool:
    """Whether `import apex` gives this package."""
    return _aliases.installed
