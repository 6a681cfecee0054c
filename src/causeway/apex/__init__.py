"""NVIDIA's apex for every device: amp, fused optimizers and norms, parallel, on torch's own parts.

`from causeway import apex`. `apex.install()`, the setting `apex` (CAUSEWAY_APEX=1) and `causeway
run` make `import apex` give this package where no other apex is installed. docs/amp.md says what
differs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.apex import amp as amp
    from causeway.apex import contrib as contrib
    from causeway.apex import fp16_utils as fp16_utils
    from causeway.apex import fused_dense as fused_dense
    from causeway.apex import mlp as mlp
    from causeway.apex import multi_tensor_apply as multi_tensor_apply
    from causeway.apex import normalization as normalization
    from causeway.apex import optimizers as optimizers
    from causeway.apex import parallel as parallel
    from causeway.apex.importing import install as install
    from causeway.apex.importing import uninstall as uninstall

_PACKAGES = (
    "amp", "contrib", "fp16_utils", "fused_dense", "mlp", "multi_tensor_apply", "normalization",
    "optimizers", "parallel",
)  # fmt: skip
__all__ = [*_PACKAGES, "install", "uninstall"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"causeway.apex.{name}")
    if name in ("install", "uninstall"):
        return getattr(importlib.import_module("causeway.apex.importing"), name)
    raise AttributeError(f"module 'causeway.apex' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
