"""The switch by a name that says what it does: `from causeway.transfer import transfer_to_device`.

The package has turned the redirection on before this is read. The name gives the same functions.
"""

from causeway.redirect import disable, enable, enabled, report

__all__ = ["disable", "enable", "enabled", "report"]
