"""Which layers of a model are replaced, and which a user names."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

from torch import nn

from causeway.errors import ConfigError
from causeway.quant import settings

Kinds = tuple[type[nn.Module], ...]

CONVOLUTIONS: Kinds = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
# What reads the weights of its children itself.
_CLOSED: Kinds = (nn.MultiheadAttention,)


def kind_of(module: nn.Module, kinds: Kinds) -> type[nn.Module] | None:
    """Which of `kinds` it is, where it computes what that computes."""
    for kind in kinds:
        if isinstance(module, kind):
            return kind if type(module).forward is kind.forward else None
    return None


def layers_of(model: nn.Module, kinds: Kinds) -> dict[str, nn.Module]:
    """The layers of these kinds by their names, one that has several under each; but for those
    whose weights something else reads.
    """
    everything = list(model.named_modules(remove_duplicate=False))
    closed = [m for _, m in everything if isinstance(m, _CLOSED)]
    inside = {id(c) for m in closed for c in m.modules() if c is not m}
    return {n: m for n, m in everything if kind_of(m, kinds) and id(m) not in inside}


def replace_in(model: nn.Module, made: Mapping[str, nn.Module]) -> nn.Module:
    """`model` with these modules in the places of their names, which may be its own."""
    if "" in made:
        model = made[""]
    for name, module in made.items():
        if name:
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, module)
    close_fused_paths(model)
    return model


def close_fused_paths(model: nn.Module) -> None:
    """Keep torch from reading the weights of an encoder's linear layers past their forward."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0


def named(given: Mapping[str, str], names: list[str]) -> dict[str, str]:
    """A `mixed_layer` by the names of layers.

    Raises ConfigError for a name that none has, and for another dtype.
    """
    chosen: dict[str, str] = {}
    for patterns, dtype in given.items():
        settings.one_of(f"mixed_layer[{patterns!r}]", dtype, (*settings.DTYPES, "float"))
        for pattern in (p.strip() for p in patterns.split(",")):
            hits = [n for n in names if fnmatch.fnmatchcase(n, pattern)]
            hits += [n for n in names if n.startswith(f"{pattern}.") and n not in hits]
            if not hits:
                raise ConfigError(
                    f"mixed_layer: no layer that is quantized is called {pattern!r}."
                    + settings.nearest(pattern, names)
                )
            chosen.update(dict.fromkeys(hits, dtype))
    return chosen
