"""Checkpoints of GPTQ and AWQ, as their tools write them in safetensors, into `WeightOnlyLinear`.

Both hold int32 words of eight numbers of 4 bits (GPTQ of 8 bits: four), a scale and a zero point
for each group of inputs, for weights of [in, out]:

    GPTQ  qweight [in / 8, out]: number i of a word is input 8 * row + i
          qzeros [groups, out / 8]: one less than the zero point, but as it is in format `gptq_v2`
          g_idx [in]: the group of each input, which is not in order where `desc_act` is set
    AWQ   qweight [in, out / 8], qzeros [groups, out / 8]: number i of a word is output
          8 * column + (0, 2, 4, 6, 1, 3, 5, 7)[i]

and w = (q - zero) * scale. They are packed anew, once, as `causeway::qlinear_weight` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from causeway.errors import CausewayError, ConfigError
from causeway.quant.select import replace_in
from causeway.quant.weights import WeightOnlyLinear, pack4

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_PARTS = ("qweight", "qzeros", "scales", "g_idx")
_CONFIGS = ("quantize_config.json", "quant_config.json")


@dataclass(frozen=True)
class Format:
    """How a checkpoint holds its weights."""

    method: str  # "gptq" or "awq"
    bits: int
    group: int  # -1: all inputs
    zero_offset: int  # what is added to the zero points that are stored

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Format:
        """By a `quantization_config`."""
        method = str(config.get("quant_method") or ("awq" if "w_bit" in config else "gptq")).lower()
        if method not in ("gptq", "awq"):
            raise ConfigError(f"quant_method is gptq or awq, not {method!r}")
        bits = int(config.get("bits", config.get("w_bit", 4)))
        if bits not in ((4, 8) if method == "gptq" else (4,)):
            more = " or 8" if method == "gptq" else ""
            raise ConfigError(
                f"weights of {method} with {bits} bits cannot be read: only of 4{more}"
            )
        version = str(config.get("version", "gemm")).lower()
        if method == "awq" and version != "gemm":
            raise ConfigError(
                f"AWQ checkpoints are read in version 'gemm', not {version!r}: convert it first"
            )
        format_ = str(config.get("checkpoint_format") or "gptq").lower()
        if method == "gptq" and format_ not in ("gptq", "gptq_v2"):
            raise ConfigError(f"checkpoint_format is gptq or gptq_v2, not {format_!r}")
        offset = int(method == "gptq" and format_ == "gptq")
        group = int(config.get("group_size", config.get("q_group_size", 128)))
        return cls(method, bits, group, offset)


def load_packed(
    model: nn.Module,
    source: str | Path | Mapping[str, torch.Tensor],
    config: Mapping[str, Any] | None = None,
) -> nn.Module:
    """`model` with the weights of a GPTQ or AWQ checkpoint, in place.

    Args:
        model: Made from the checkpoint's configuration, in floating point, also on `meta`. Its
            Linear layers that the checkpoint has packed become `WeightOnlyLinear`; everything else
            is loaded as it is.
        source: A file in safetensors, the folder of a checkpoint, or the tensors themselves.
        config: Its `quantization_config`; None: what the folder says.

    Raises:
        CausewayError: tensors are missing, left over, or of other sizes than the model's.
        ConfigError: the format is another one.
    """
    if isinstance(source, Mapping):
        state, found = dict(source), None
    else:
        state, found = _read(Path(source))
    config = config or found
    if config is None:
        raise ConfigError(
            "the checkpoint does not say how it is packed: give config, as "
            '{"quant_method": "gptq", "bits": 4, "group_size": 128}'
        )
    form = Format.of(config)
    packed = sorted(k.removesuffix(".qweight") for k in state if k.endswith(".qweight"))
    if not packed:
        raise CausewayError("the checkpoint has no packed weights: none is called `….qweight`")
    made: dict[str, nn.Module] = {}
    for name in packed:
        try:
            linear = model.get_submodule(name)
        except AttributeError:
            raise CausewayError(f"the checkpoint has {name!r}, but the model has not") from None
        if not isinstance(linear, nn.Linear):
            raise CausewayError(f"{name} is packed, but the model has a {type(linear).__name__}")
        given = {p: state.pop(f"{name}.{p}", None) for p in _PARTS}
        parts = {p: None if t is None else t.cpu() for p, t in given.items()}
        made[name] = _layer(name, linear, parts, state.pop(f"{name}.bias", None), form)
    tied = _shared(model)
    model = replace_in(model, made)
    _load_rest(model, state, made, tied)
    return model


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any] | None]:
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise CausewayError(
            "reading a checkpoint needs safetensors: pip install safetensors"
        ) from None
    folder = path if path.is_dir() else path.parent
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise CausewayError(f"there is no file in safetensors at {path}")
    state: dict[str, torch.Tensor] = {}
    for file in files:
        state.update(load_file(file))
    for name in _CONFIGS:
        if (folder / name).exists():
            return state, json.loads((folder / name).read_text())
    whole = folder / "config.json"
    config = json.loads(whole.read_text()) if whole.exists() else {}
    return state, config.get("quantization_config")


def _numbers(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The numbers of each word, lowest bits first, in a new last dimension."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    numbers: torch.Tensor = (words.unsqueeze(-1) >> shifts) & (2**bits - 1)
    return numbers


def _layer(
    name: str,
    linear: nn.Linear,
    parts: Mapping[str, torch.Tensor | None],
    bias: torch.Tensor | None,
    form: Format,
) -> WeightOnlyLinear:
    words, zeros, scales = parts["qweight"], parts["qzeros"], parts["scales"]
    if words is None or zeros is None or scales is None:
        missing = [p for p in _PARTS[:3] if parts[p] is None]
        raise CausewayError(f"{name}: the checkpoint has no {' and no '.join(missing)}")
    ins, outs = linear.in_features, linear.out_features
    group = ins if form.group == -1 else form.group
    per = 32 // form.bits
    wanted = (ins // per, outs) if form.method == "gptq" else (ins, outs // per)
    sizes = {
        "qweight": wanted,
        "qzeros": (-(-ins // group), outs // per),
        "scales": (-(-ins // group), outs),
    }
    for part, size in sizes.items():
        tensor = parts[part]
        assert tensor is not None
        if tuple(tensor.shape) != size:
            raise CausewayError(
                f"{name}: {part} is {tuple(tensor.shape)}, but a layer of {ins} inputs and {outs} "
                f"outputs in groups of {group} has {size}"
            )
    if group % 32 or ins % group:
        raise CausewayError(
            f"{name}: groups of {group} for {ins} inputs cannot be read: multiples of 32 that "
            "divide the inputs can"
        )
    if form.method == "gptq":
        q = _numbers(words, form.bits).transpose(1, 2).reshape(ins, outs)
        zero = _numbers(zeros, form.bits).flatten(1)
    else:
        back = torch.tensor(_AWQ_ORDER).argsort()
        q = _numbers(words, form.bits)[..., back].flatten(1)
        zero = _numbers(zeros, form.bits)[..., back].flatten(1)
    zero = (zero + form.zero_offset) & (2**form.bits - 1)  # 0 is stored as all ones
    order = _order(name, parts["g_idx"], ins, group)
    if order is not None:
        q = q[order]
    if form.bits == 8:
        weight = (q - 128).to(torch.int8).t().contiguous()
        zero = zero - 128
    else:
        weight = pack4(q.t())
    packed = [weight, *(t.float().t().contiguous() for t in (scales, zero))]
    place = linear.weight.device
    place = torch.device("cpu") if place.type == "meta" else place
    rest = [None if t is None else t.to(place) for t in (*packed, bias, order)]
    w, scale, zero_, bias, order = rest
    assert w is not None
    assert scale is not None
    return WeightOnlyLinear(w, scale, zero_, bias, form.bits, group, order)


def _order(name: str, groups: torch.Tensor | None, ins: int, group: int) -> torch.Tensor | None:
    """Inputs in the order of their groups; None where they are."""
    if groups is None or groups.numel() == 0:
        return None
    plain = torch.arange(ins) // group
    if torch.equal(groups.long(), plain):
        return None
    order = groups.long().argsort(stable=True)
    if not torch.equal(groups.long()[order], plain):
        raise CausewayError(
            f"{name}: g_idx does not put {group} inputs into each group, which cannot be read"
        )
    return order


def _shared(model: nn.Module) -> dict[str, set[str]]:
    """The other names of each parameter that has several."""
    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    return {n: several - {n} for several in names.values() for n in several if len(several) > 1}


def _load_rest(
    model: nn.Module,
    state: dict[str, torch.Tensor],
    made: Mapping[str, nn.Module],
    tied: Mapping[str, set[str]],
) -> None:
    on_meta = any(p.is_meta for p in model.parameters())
    missing, unexpected = model.load_state_dict(state, strict=False, assign=on_meta)
    missing = [
        k
        for k in missing
        if k.rpartition(".")[0] not in made and not tied.get(k, set()) & state.keys()
    ]
    for what, keys in (("does not have", missing), ("has, and the model has not,", unexpected)):
        if keys:
            more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
            raise CausewayError(f"the checkpoint {what} {', '.join(keys[:5])}{more}")
    if on_meta and callable(getattr(model, "tie_weights", None)):
        model.tie_weights()  # type: ignore[operator]
    left = [
        n
        for n, t in (*model.named_parameters(), *model.named_buffers())
        if t.is_meta and not tied.get(n)
    ]
    if left:
        raise CausewayError(
            f"{', '.join(left[:5])} is on meta, and the checkpoint does not have it: make the "
            "model on a device"
        )
