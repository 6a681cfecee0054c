"""Checkpoints of GPTQ and AWQ, packed here number by number, by the formats' documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import causeway.quant.checkpoints as checkpoints
from causeway.errors import CausewayError, ConfigError
from causeway.quant import load_packed
from causeway.quant.weights import WeightOnlyLinear

pytestmark = pytest.mark.once

INS, OUTS, GROUP = 96, 24, 32
AWQ = [0, 2, 4, 6, 1, 3, 5, 7]


def words(rows: list[list[int]], bits: int) -> torch.Tensor:
    """Each row's numbers in int32, the first in the lowest bits."""
    per, packed = 32 // bits, []
    for row in rows:
        packed.append([])
        for at in range(0, len(row), per):
            word = 0
            for i, number in enumerate(row[at : at + per]):
                word |= number << (bits * i)
            packed[-1].append(word - 2**32 if word >= 2**31 else word)
    return torch.tensor(packed, dtype=torch.int32)


def checkpoint(
    kind: str, bits: int = 4, shuffled: bool = False, group: int = GROUP, outs: int = OUTS
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """A layer's tensors, and its weight [out, in]."""
    g = torch.Generator().manual_seed(bits)
    groups = INS // group
    q = torch.randint(0, 2**bits, (INS, outs), generator=g)
    zero = torch.randint(0, 2**bits, (groups, outs), generator=g)
    zero[0, 0] = 0  # which GPTQ's first format stores as all ones
    scale = (torch.rand(groups, outs, generator=g) * 0.02 + 0.01).half()
    of = torch.arange(INS) // group
    if shuffled:
        of = of[torch.randperm(INS, generator=g)]
    weight = ((q - zero[of]) * scale[of].float()).t().contiguous()
    state = {"scales": scale, "bias": torch.randn(outs, generator=g).half()}
    if kind == "awq":
        mixed = [n + i for n in range(0, outs, 8) for i in AWQ]
        state["qweight"] = words(q[:, mixed].tolist(), bits)
        state["qzeros"] = words(zero[:, mixed].tolist(), bits)
    else:
        state["qweight"] = words(q.t().tolist(), bits).t().contiguous()
        state["qzeros"] = words(((zero - int(kind == "gptq")) % 2**bits).tolist(), bits)
        state["g_idx"] = of.int()
    return state, weight


def config(kind: str, bits: int = 4, group: int = GROUP) -> dict[str, Any]:
    if kind == "awq":
        return {"quant_method": "awq", "bits": bits, "group_size": group, "version": "gemm"}
    return {
        "quant_method": "gptq", "bits": bits, "group_size": group, "checkpoint_format": kind,
    }  # fmt: skip


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.proj = nn.LayerNorm(INS), nn.Linear(INS, OUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(self.norm(x))  # type: ignore[no-any-return]


def whole(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    norm = {"norm.weight": torch.full((INS,), 1.5), "norm.bias": torch.full((INS,), 0.25)}
    return {**{f"proj.{k}": v for k, v in state.items()}, **norm}


def off(net: nn.Module, state: dict[str, torch.Tensor], weight: torch.Tensor) -> float:
    """How far `net` is from the float layer with this weight."""
    plain = Net()
    plain.load_state_dict(
        {
            **{k: v for k, v in whole(state).items() if k.startswith("norm")},
            "proj.weight": weight,
            "proj.bias": state["bias"].float(),
        }
    )
    x = torch.randn(7, INS, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        device = net.norm.weight.device
        return float((net(x.to(device)).cpu() - plain(x)).abs().max())


@pytest.mark.parametrize(
    ("kind", "bits", "shuffled"),
    [
        *(("gptq", 4, False), ("gptq_v2", 4, False), ("gptq", 8, False), ("awq", 4, False)),
        *(("gptq", 4, True), ("gptq", 8, True)),
    ],
)
def test_a_checkpoint_has_the_weights_that_were_packed(
    kind: str, bits: int, shuffled: bool, device: torch.device
) -> None:
    state, weight = checkpoint(kind, bits, shuffled)
    net = load_packed(Net(), whole(state), config(kind, bits))
    layer: Any = net.proj
    assert isinstance(layer, WeightOnlyLinear)
    assert (layer.order is not None) == shuffled
    assert layer.weight.numel() * layer.weight.element_size() == weight.numel() * bits // 8
    assert off(net, state, weight) < 1e-4
    assert off(net.to(device), state, weight) < 1e-4
    again = load_packed(Net(), whole(checkpoint(kind, bits, shuffled)[0]), config(kind, bits))
    again.load_state_dict(net.cpu().state_dict())


def test_one_group_may_hold_all_inputs() -> None:
    state, weight = checkpoint("gptq", group=INS)
    net = load_packed(Net(), whole(state), config("gptq", group=-1))
    assert off(net, state, weight) < 1e-4


@pytest.mark.parametrize("fault", ["halves", "group", "channel", "zero", "order of AWQ"])
def test_a_fault_in_reading_would_be_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = "awq" if fault == "order of AWQ" else "gptq"
    state, weight = checkpoint(kind)
    given = config(kind)
    if fault == "halves":
        plain = checkpoints.pack4
        turned = lambda q: (lambda b: (b << 4) | (b >> 4))(plain(q))  # noqa: E731
        monkeypatch.setattr(checkpoints, "pack4", turned)
    elif fault == "zero":
        given = config("gptq_v2")  # which stores them as they are
    elif fault == "order of AWQ":
        monkeypatch.setattr(checkpoints, "_AWQ_ORDER", tuple(range(8)))
    else:
        state["scales"] = state["scales"].roll(1, 0 if fault == "group" else 1)
    net = load_packed(Net(), whole(state), given)
    assert off(net, state, weight) > 0.02


@pytest.mark.parametrize("name", ["config.json", "quantize_config.json"])
def test_a_folder_says_itself_how_it_is_packed(name: str, tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch").save_file
    state, weight = checkpoint("gptq")
    parts = list(whole(state).items())
    save(dict(parts[:3]), tmp_path / "model-00001-of-00002.safetensors")
    save(dict(parts[3:]), tmp_path / "model-00002-of-00002.safetensors")
    said = config("gptq")
    said = {"quantization_config": said} if name == "config.json" else said
    (tmp_path / name).write_text(json.dumps(said))
    with torch.device("meta"):
        net: nn.Module = Net()
    assert off(load_packed(net, tmp_path), state, weight) < 1e-4


def test_a_language_model_of_transformers_loads(device: torch.device) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": INS, "intermediate_size": INS, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 40}
    made = transformers.LlamaConfig(**sizes, **heads, tie_word_embeddings=True)
    net = transformers.LlamaForCausalLM(made).eval()
    plain = {k: v.clone() for k, v in net.state_dict().items() if k != "lm_head.weight"}
    state: dict[str, torch.Tensor] = {}
    for key in plain:
        name = key.removesuffix(".weight")
        if not name.endswith("_proj"):
            state[key] = plain[key]
            continue
        packed, weight = checkpoint("awq", outs=INS)
        plain[key] = weight
        state |= {f"{name}.{k}": v for k, v in packed.items() if k != "bias"}
    reference = transformers.LlamaForCausalLM(made).eval()
    reference.load_state_dict(plain, strict=False)
    ids = torch.arange(9).unsqueeze(0)
    net = load_packed(net, state, config("awq")).to(device)
    with torch.no_grad():
        got, expected = net(ids.to(device)).logits.cpu(), reference(ids).logits
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
    assert sum(isinstance(m, WeightOnlyLinear) for m in net.modules()) == 7


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    state = whole(checkpoint("gptq")[0])
    given = config("gptq")

    def refused(error: type[Exception], said: str, *args: Any) -> None:
        with pytest.raises(error, match=said):
            load_packed(*args)

    refused(ConfigError, "does not say how", Net(), dict(state))
    refused(ConfigError, "only of 4 or 8", Net(), dict(state), {**given, "bits": 3})
    refused(ConfigError, "gptq or awq", Net(), dict(state), {**given, "quant_method": "bnb"})
    refused(ConfigError, "version", Net(), dict(state), {**config("awq"), "version": "gemv"})
    refused(ConfigError, "gptq_v2", Net(), dict(state), {**given, "checkpoint_format": "marlin"})
    refused(CausewayError, "has no qzeros", Net(), _without(state, "proj.qzeros"), given)
    refused(CausewayError, "does not have norm.bias", Net(), _without(state, "norm.bias"), given)
    extra = {**state, "other.weight": torch.ones(1)}
    refused(CausewayError, "the model has not, other.weight", Net(), extra, given)
    refused(CausewayError, r"qzeros is \(3, 3\)", Net(), dict(state), {**given, "group_size": 48})
    refused(CausewayError, "but the model has not", nn.Linear(4, 4), dict(state), given)
    refused(CausewayError, "no packed weights", Net(), {"norm.bias": state["norm.bias"]}, given)
    refused(CausewayError, "no file in safetensors", Net(), tmp_path, given)
    uneven = {**state, "proj.g_idx": torch.zeros(INS, dtype=torch.int32)}
    refused(CausewayError, "g_idx", Net(), uneven, given)


def _without(state: dict[str, torch.Tensor], key: str) -> dict[str, torch.Tensor]:
    return {k: v for k, v in state.items() if k != key}
