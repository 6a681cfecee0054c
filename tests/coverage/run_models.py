"""The ledger of each model of `models`, as JSON: {model: [[operator, rung, dtype, calls]]}.

In a process of its own: CAUSEWAY_VENDOR and the settings of the environment say on which chip. With
"dry" nothing is computed, with "small" what is small and known; a model that needs its numbers is
told by a string.
"""

from __future__ import annotations

import json
import sys

import models
import torch

import causeway
from causeway import _C

accelerator = torch.accelerator.current_accelerator()
assert accelerator is not None
device = torch.device(accelerator.type, 0)
dry = sys.argv[1:2] in (["dry"], ["small"])
small = 1 << 16 if sys.argv[1:2] == ["small"] else 0
found: dict[str, object] = {}
_C.init()
for model in models.MODELS:
    _C.set_dry(dry, small)
    with causeway.ledger() as ledger:
        try:
            model(device)
        except causeway.CausewayError as error:
            found[model.__name__] = str(error)
            continue
    _C.set_dry(False)
    found[model.__name__] = [[r.operator, r.rung, r.dtype, r.calls] for r in ledger.rows]
print(json.dumps(found))
