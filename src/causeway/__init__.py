"""Causeway: any accelerator as a stock PyTorch device, through one C table.

`import torch` is enough: torch calls `_autoload` at its end. `import causeway` gives the few names
that are Causeway's own: the ledger, the policy, the settings and the errors. It imports torch; only
the command line leaves that to the commands that need it.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"


# First of all: `import causeway` imports torch, and torch asks for this before it returns.
def _autoload() -> None:
    """Entry point of group `torch.backends`. Never raises."""
    from causeway import autoload

    autoload.start()


if TYPE_CHECKING:
    from causeway import apex as apex
    from causeway import code as code
    from causeway import config as config
    from causeway import quant as quant
    from causeway import redirect as transfer
    from causeway import run as run
    from causeway.comparison.compare import CompareError as CompareError
    from causeway.comparison.compare import compare as compare
    from causeway.comparison.divergence import first_divergence as first_divergence
    from causeway.compile.report import compile_report as compile_report
    from causeway.debug.dump import dump as dump
    from causeway.debug.overflow import overflow as overflow
    from causeway.errors import CausewayError as CausewayError
    from causeway.errors import ConfigError as ConfigError
    from causeway.errors import DeviceIndexError as DeviceIndexError
    from causeway.errors import DeviceLostError as DeviceLostError
    from causeway.errors import FallbackError as FallbackError
    from causeway.errors import NonFiniteError as NonFiniteError
    from causeway.errors import TraceError as TraceError
    from causeway.errors import UnsupportedDtypeError as UnsupportedDtypeError
    from causeway.errors import VendorError as VendorError
    from causeway.observe.steps import step as step
    from causeway.ops.ladder import fallback as fallback
    from causeway.ops.ladder import policy as policy
    from causeway.ops.ledger import ledger as ledger
    from causeway.ship.export import export as export
    from causeway.trace.record import record as record

# Imported at their first use: they cost `import torch` nothing.
_NAMES = {
    "apex": "causeway.apex",
    "code": "causeway.code",
    "config": "causeway.config",
    "quant": "causeway.quant",
    "run": "causeway.run",
    "dump": "causeway.debug.dump",
    "ledger": "causeway.ops.ledger",
    "overflow": "causeway.debug.overflow",
    "record": "causeway.trace.record",
    "transfer": "causeway.redirect",
    "policy": "causeway.ops.ladder",
    "fallback": "causeway.ops.ladder",
    "compile_report": "causeway.compile.report",
    "export": "causeway.ship.export",
    "compare": "causeway.comparison.compare",
    "CompareError": "causeway.comparison.compare",
    "first_divergence": "causeway.comparison.divergence",
    "step": "causeway.observe.steps",
    "CausewayError": "causeway.errors",
    "ConfigError": "causeway.errors",
    "DeviceIndexError": "causeway.errors",
    "DeviceLostError": "causeway.errors",
    "FallbackError": "causeway.errors",
    "NonFiniteError": "causeway.errors",
    "TraceError": "causeway.errors",
    "UnsupportedDtypeError": "causeway.errors",
    "VendorError": "causeway.errors",
}
__all__ = [
    "CausewayError",
    "CompareError",
    "ConfigError",
    "DeviceIndexError",
    "DeviceLostError",
    "FallbackError",
    "NonFiniteError",
    "TraceError",
    "UnsupportedDtypeError",
    "VendorError",
    "__version__",
    "apex",
    "compare",
    "compile_report",
    "config",
    "dump",
    "export",
    "fallback",
    "first_divergence",
    "ledger",
    "overflow",
    "policy",
    "quant",
    "record",
    "step",
    "transfer",
]


_WITHOUT_TORCH = {"causeway.config", "causeway.errors", "causeway.run"}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'causeway' has no attribute {name!r}")
    if _NAMES[name] not in _WITHOUT_TORCH:
        importlib.import_module("torch")  # says that it is missing, where it is
    module = importlib.import_module(_NAMES[name])
    # `transfer` is a module under another name: the statement `import causeway.transfer` does more.
    whole = _NAMES[name] == f"causeway.{name}" or name == "transfer"
    return module if whole else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])


def _is_command() -> bool:
    """Whether this is the process of `causeway ...` or `python -m causeway ...`."""
    if "causeway_command" in sys.modules:
        return True
    # While Python looks for the module of -m, that stands in place of the module's path.
    return sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] in ("causeway", "-mcauseway")


if not _is_command():
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as missing:
        # A machine that only runs model files: `causeway.run` needs no torch, and all else says at
        # its first use that there is none.
        if missing.name not in (None, "torch"):
            raise
    else:
        _autoload()  # for TORCH_DEVICE_BACKEND_AUTOLOAD=0; else torch has called it already
