"""Which libraries have an integration, by the modules that begin it.

It imports nothing, because the settings read it.
"""

from __future__ import annotations

from collections.abc import Sequence

# Roots of modules, and the library whose integration they belong to. Of torch only the modules that
# are named here are watched.
LIBRARIES = {
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "diffusers": "diffusers",
    "lightning": "lightning",
    "lightning_fabric": "lightning",
    "peft": "peft",
    "pytorch_lightning": "lightning",
    "safetensors": "safetensors",
    "timm": "timm",
    "torch._dynamo.device_interface": "inductor",
    "torch._inductor.compile_fx": "inductor",
    "torch.distributed.tensor": "dtensor",
    "torch.distributed.tensor.experimental._context_parallel._attention": "dtensor",
    "torch.nn.attention.flex_attention": "flex_attention",
    "torch.testing._internal.opinfo.core": "opinfo",
    "torchao": "torchao",
    "torchvision": "torchvision",
    "transformers": "transformers",
}


def known(names: Sequence[str]) -> str | None:
    """The first of `names` that the setting `integrations` does not know, or None."""
    every = {"all", "none", *LIBRARIES.values()}
    return next((n for n in names if n.removeprefix("-") not in every), None)
