"""Models of transformers, compiled on the device, against eager on the CPU.

python tests/compile/models.py [NAME ...]     # all, or some; says what differs

What tests/libraries/models.py compares: outputs, gradients and the losses of three steps of AdamW.
`model.compile()` is all that is changed. A batch of another size has no new graphs.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import causeway

_path = Path(__file__).parents[1] / "libraries" / "models.py"
_spec = importlib.util.spec_from_file_location("library_models", _path)
assert _spec is not None
assert _spec.loader is not None
models = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)


def differences(name: str, device: torch.device) -> Iterator[str]:
    """What differs, a line each."""
    torch._dynamo.reset()
    # Generating with a compiled model is a test of its own: it compiles once a length.
    models.MODELS[name] = dataclasses.replace(models.MODELS[name], caches=())
    before = len(causeway.compile_report().graphs)
    yield from models.differences(name, device, lambda model: model.compile())
    made = causeway.compile_report().graphs[before:]
    if not any(graph.kernels for graph in made):
        yield f"{name}: no kernel was made"
    yield from other_batches(name, device)


def other_batches(name: str, device: torch.device) -> Iterator[str]:
    """Batches of other sizes have the CPU's numbers, and the third makes no graph (at the second,
    some of transformers' models have filled in their configuration, which the first asked)."""
    torch._dynamo.reset()
    here, there = models.MODELS[name].make(), models.MODELS[name].make().to(device)
    there.compile(dynamic=True)
    made = []
    for size in (5, 7, 9):  # no other size of a model is one of these
        inputs = {k: _repeated(v, size) for k, v in models.MODELS[name].inputs().items()}
        with torch.no_grad():
            expected, found = (models._called(model, inputs) for model in (here, there))
        key = "logits" if "logits" in expected else "logits_per_text"
        try:
            torch.testing.assert_close(found[key].cpu(), expected[key], rtol=1e-3, atol=1e-4)
        except AssertionError as error:
            yield f"{name}: a batch of {size}: {error}"
        made.append(len(causeway.compile_report().graphs))
    if made[1] != made[2]:
        yield f"{name}: the third batch compiled {made[2] - made[1]} graphs"


def _repeated(value: Any, size: int) -> Any:
    return value[:1].repeat(size, *[1] * (value.dim() - 1))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(models.main(sys.argv[1:], differences))
