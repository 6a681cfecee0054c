"""torch.compile where kernels cannot be fused: a chip without a compiler, or a torch that moved.

The default backend of torch.compile is then a function that looks at what a graph computes on: a
graph on the device runs by the ladder, operator by operator, behind AOTAutograd (`aot_eager`), and
this is said once; any other graph is Inductor's as ever. `torch.compiler.set_default_backend` is
torch's own switch for it, so that nothing is patched.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from causeway import _C
from causeway.compile import report

TESTED = ("2.13",)


def reason() -> str:
    """Why nothing can be fused in this process, or ""."""
    if "code.v1" not in _C.vendor_state().get("extensions", ()):
        return "the vendor offers no compiler (code.v1)"
    if ".".join(torch.__version__.split(".")[:2]) in TESTED:
        return ""
    from causeway.compile import names

    gone = names.missing()
    return f"torch {torch.__version__} has no {gone}" if gone else ""


def backend(gm: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Any:
    """A backend of torch.compile: the device's graphs by the ladder, others by Inductor."""
    device = torch._C._get_privateuse1_backend_name()
    if not any(t.device.type == device for t in _tensors(gm, inputs)):
        from torch._inductor import list_mode_options
        from torch._inductor.compile_fx import compile_fx

        patches = {**list_mode_options(options["mode"])} if options.get("mode") else {}
        return compile_fx(gm, inputs, config_patches={**patches, **(options.get("options") or {})})
    from torch._dynamo.backends.registry import lookup_backend

    say(device, reason())
    return lookup_backend("aot_eager")(gm, inputs)


def _tensors(gm: torch.fx.GraphModule, inputs: list[Any]) -> list[torch.Tensor]:
    found = [t for t in inputs if isinstance(t, torch.Tensor)]
    found += [*gm.parameters(), *gm.buffers()]
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            found.append(value)
    return found


def say(device: str, why: str) -> None:
    """Warn, once for each reason."""
    if report.unfused(why):
        warnings.warn(
            f"causeway: torch.compile fuses nothing on {device!r}: {why}. Each operator of a graph runs by the ladder "
            "(docs/compile.md)",
            stacklevel=3,
        )
