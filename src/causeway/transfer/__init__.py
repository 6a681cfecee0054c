"""The switch: the statement `import causeway.transfer` redirects CUDA's calls to the device.

One line at the top of a program is enough, as with torch_npu's transfer_to_npu.
`from causeway.transfer import transfer_to_device` is that line by a name that says what it does.
To choose when, use `from causeway import transfer` and `transfer.enable()`, which turns on nothing
by itself: it gives `causeway.redirect`, where the functions are.
"""

from causeway.redirect import (
    Place,
    Redirection,
    RedirectionReport,
    disable,
    enable,
    enabled,
    report,
)

__all__ = ["Place", "Redirection", "RedirectionReport", "disable", "enable", "enabled", "report"]

if not enabled():
    enable()
