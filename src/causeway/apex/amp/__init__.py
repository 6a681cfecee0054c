"""apex.amp: mixed precision by level. See docs/amp.md."""

from causeway.apex.amp._amp_state import _amp_state as _amp_state
from causeway.apex.amp._amp_state import master_params
from causeway.apex.amp.frontend import deactivate, initialize, load_state_dict, opt_levels
from causeway.apex.amp.frontend import state_dict as state_dict
from causeway.apex.amp.functions import (
    bfloat16_function,
    float_function,
    half_function,
    promote_function,
    register_bfloat16_function,
    register_float_function,
    register_half_function,
    register_promote_function,
)
from causeway.apex.amp.handle import disable_casts, scale_loss
from causeway.apex.amp.optimizer import combined_gradients

__all__ = [
    "bfloat16_function",
    "combined_gradients",
    "deactivate",
    "disable_casts",
    "float_function",
    "half_function",
    "initialize",
    "load_state_dict",
    "master_params",
    "opt_levels",
    "promote_function",
    "register_bfloat16_function",
    "register_float_function",
    "register_half_function",
    "register_promote_function",
    "scale_loss",
    "state_dict",
]


def init(*args: object, **kwargs: object) -> None:
    """The interface of apex before 2019. Raises RuntimeError with what came after it."""
    raise RuntimeError(
        "amp.init() is apex's interface of before 2019: call model, optimizer = "
        'amp.initialize(model, optimizer, opt_level="O1"), and amp.scale_loss as before'
    )
