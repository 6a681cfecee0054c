"""From numbers to integers and what one step of them is."""

from __future__ import annotations

import warnings

import torch

from causeway.errors import CausewayError
from causeway.quant import formats
from causeway.quant.calibrate import Range
from causeway.quant.settings import Settings

DTYPES = {8: torch.int8, 16: torch.int16}


def levels_of(dtype: torch.dtype) -> int:
    """The largest integer of a symmetric format."""
    return 127 if dtype == torch.int8 else 32767


def scales_of(sizes: torch.Tensor, settings: Settings) -> torch.Tensor:
    """What one step of integers is, for numbers up to `sizes`; 1 where all are 0."""
    if settings.fixed_point:
        steps = [2.0 ** formats.by_position(float(v), settings.bits).position for v in sizes]
        return torch.tensor(steps, dtype=torch.float32)
    scales = sizes.double() / settings.levels
    # Below the least normal number float32 has no quotients to speak of.
    return torch.where(scales > 2.0**-126, scales, 1.0).float()


def integers_of(
    rows: torch.Tensor, settings: Settings, by_row: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The integers of a matrix, on the CPU, and their scales: of each row, or one.

    Raises:
        CausewayError: it has infinity or NaN.
    """
    rows = rows.detach().float().cpu()
    if not bool(torch.isfinite(rows).all()):
        raise CausewayError("a weight is infinite or NaN: it has no integer")
    scales = scales_of(rows.abs().amax(1) if by_row else rows.abs().max().view(1), settings)
    # float64: a float32 quotient could round across a tie.
    q = (rows.double() / scales.double().view(-1, 1)).round()
    return q.clamp(-settings.levels, settings.levels).to(DTYPES[settings.bits]), scales


def input_scale(seen: Range, settings: Settings) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The scale of an input, [1], and its zero point where it has one; a scale of [0] where nothing
    was seen, which is said.
    """
    if seen.batches == 0:
        warnings.warn(
            "converted or saved without calibration: no input was seen, so ranges are measured as "
            "inputs come. Run some through the model first",
            stacklevel=4,
        )
        return torch.empty(0), None
    least, most = seen.limits()
    if settings.symmetric:
        size = torch.tensor([max(-least, most) * settings.data_scale], dtype=torch.float32)
        return scales_of(size, settings), None
    least, most = min(least, 0.0) * settings.data_scale, max(most, 0.0) * settings.data_scale
    low, steps = -(2 ** (settings.bits - 1)), 2**settings.bits - 1
    scale = torch.tensor([(most - least) / steps or 1.0], dtype=torch.float32)
    zero = round(low - least / float(scale))
    return scale, torch.tensor([zero], dtype=torch.int32)


def measured(x: torch.Tensor, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of an input's scale and the scale, [1] each, as it comes: the host waits for
    nothing. NaN and infinity in it become NaN in the scale, and so in what is computed.
    """
    if x.numel() == 0:
        one = torch.ones(1, device=x.device)
        return one, one
    size = x.float().abs().amax().view(1)
    known = size > 2.0**-120
    return torch.where(known, levels / size, 1.0), torch.where(known, size / levels, 1.0 + size * 0)


def waits_for_integers() -> CausewayError:
    return CausewayError(
        "this model waits for its integers: load_state_dict what the state_dict of a model "
        "calibrated with quantize_dynamic(..., gen_quant=True) gave"
    )
