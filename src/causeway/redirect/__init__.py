"""CUDA's calls in code that may not be edited go to the device at run time.

`from causeway import transfer` gives these functions; the statement `import causeway.transfer`
turns the redirection on besides. Nothing here is imported or changed by `import causeway`.

A program sees one view: `x.is_cuda`, `x.device.type == "cuda"` and `torch.cuda.is_available()`
agree. `torch.device` is torch's own and is not replaced: a device of CUDA's is a plain value, and
becomes the real device where it enters torch. torch's own Python code is shown the real device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.redirect.places import Place as Place
    from causeway.redirect.places import RedirectionReport as RedirectionReport
    from causeway.redirect.switch import Redirection as Redirection
    from causeway.redirect.switch import disable as disable
    from causeway.redirect.switch import enable as enable
    from causeway.redirect.switch import enabled as enabled
    from causeway.redirect.switch import report as report

_NAMES = {
    "Place": "places",
    "RedirectionReport": "places",
    "Redirection": "switch",
    "disable": "switch",
    "enable": "switch",
    "enabled": "switch",
    "report": "switch",
}
__all__ = ["Place", "Redirection", "RedirectionReport", "disable", "enable", "enabled", "report"]


def __getattr__(name: str) -> Any:
    # Imported at first use: the command line takes its functions from this package.
    if name not in _NAMES:
        raise AttributeError(f"module 'causeway.transfer' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"causeway.redirect.{_NAMES[name]}"), name)
