"""What moves or chooses elements keeps their bits, those of halves that are NaN too.

Halves that pass through float32 come back with other bits where they are signalling NaN: programs
that view memory as halves (2:4 sparse float32) would get other numbers.
"""

from __future__ import annotations

import pytest

PROGRAM = """
import torch

NAME = torch._C._get_privateuse1_backend_name()
bits = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
places = torch.randperm(65536, generator=torch.Generator().manual_seed(0))
MOVES = {
    "clone": lambda x, i: x.view(256, 256).t().contiguous(),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i),
    "index": lambda x, i: x[i],
    "where": lambda x, i: torch.where(i > 30000, x, x.flip(0)),
    "masked_fill": lambda x, i: x.masked_fill(i > 30000, x[0]),
    "cat": lambda x, i: torch.cat([x, x[i]]),
    "index_put": lambda x, i: torch.zeros_like(x).index_put((i,), x),
    "masked_select": lambda x, i: x.masked_select(i > 30000),
    "roll": lambda x, i: x.roll(5),
}
for dtype in (torch.half, torch.bfloat16):
    for name, move in MOVES.items():
        expected = move(bits, places)  # the same move of integers
        got = move(bits.to(NAME).view(dtype), places.to(NAME)).cpu().view(torch.int16)
        wrong = (got != expected).sum().item()
        assert wrong == 0, f"{name} of {dtype}: {wrong} of {got.numel()} changed"
"""


@pytest.mark.parametrize(
    "settings",
    [
        {"CAUSEWAY_SIM_OPS": "all", "CAUSEWAY_SIM_CODE": "0"},
        {"CAUSEWAY_SIM_OPS": "none", "CAUSEWAY_SIM_CODE": "1"},
    ],
    ids=["vendor", "portable"],
)
def test_no_bit_changes(run_python, settings) -> None:
    run_python(PROGRAM, **settings)
