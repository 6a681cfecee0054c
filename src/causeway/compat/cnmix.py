"""cnmix, Cambricon's mixed precision of before torch.mlu.amp: its four functions are apex's, which
causeway.apex has. What it chose of integers in fixed point has no effect.
"""

from __future__ import annotations

import types
from typing import Any

from causeway.apex import amp
from causeway.apex.amp import load_state_dict as load_state_dict
from causeway.apex.amp import master_params as master_params
from causeway.apex.amp import scale_loss as scale_loss
from causeway.apex.amp import state_dict as state_dict
from causeway.compat.missing import getter, no_effect


def initialize(
    models: Any, optimizers: Any = None, opt_level: str = "O1", **options: Any
) -> tuple[Any, Any]:
    """apex.amp.initialize, which gives both back, also where there is no optimizer."""
    made = amp.initialize(models, optimizers, opt_level=opt_level, **options)
    return made if optimizers is not None else (made, None)


def cnmix_set_amp_quantify_params(layers: Any, params: Any) -> None:
    """How often integers are measured again: products are in half precision, not in integers."""
    no_effect("cnmix_set_amp_quantify_params", "mixed precision is float16 or bfloat16")


def cnmix_set_amp_use_online(enabled: bool) -> None:
    """Whether integers are measured in each step: as above."""
    if enabled:
        no_effect("cnmix_set_amp_use_online", "mixed precision is float16 or bfloat16")


core = types.SimpleNamespace(
    cnmix_set_amp_quantify_params=cnmix_set_amp_quantify_params,
    cnmix_set_amp_use_online=cnmix_set_amp_use_online,
)

__getattr__ = getter("cnmix")
