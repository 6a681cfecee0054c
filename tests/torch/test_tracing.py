"""torch.jit.trace over torch's operator database: `python tests/torch/tracing.py` is all of it."""

from __future__ import annotations

import operators
import pytest
import tracing

SHARDS = 12
# Some every day; `make test-long` has the others.
EACH = [pytest.param(i, marks=pytest.mark.long if i else ()) for i in range(SHARDS)]
CONVOLUTIONS = "nn.functional.conv"


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("shard", EACH)
def test_a_trace_gives_what_the_operator_gives(shard: int, backward: bool) -> None:
    every = operators.database()
    chosen = every[shard::SHARDS]
    if shard == 0:
        chosen = chosen[::4] + [op for op in every if op.name.startswith(CONVOLUTIONS)]
    counts, wrong = tracing.scan(chosen, backward)
    assert counts["same"] > 5
    assert not wrong, "\n".join(wrong)
