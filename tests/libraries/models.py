"""Small models of transformers, made from configurations, on the device and on the CPU.

python tests/libraries/models.py [NAME ...]     # all, or some; says what differs

Each model, with random weights, is compared in its outputs, its gradients, its losses over three
steps of AdamW, what it generates greedily with each kind of cache, and a checkpoint written on the
device and read back. `DAILY` are those that test_models.py runs every day.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

WIDTH = 32
DAILY = ("gpt2", "llama", "mixtral", "t5", "vit", "mamba")
CACHES = ("dynamic", "static", "offloaded")
_HEADS = {"num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": WIDTH}
_DENSE = _HEADS | {"intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 64}
_DENSE |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_GROUPED = _DENSE | {"num_key_value_heads": 2, "head_dim": 8}
_SEQUENCES = {"d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 64}
_SEQUENCES |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
_SEQUENCES |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "pad_token_id": 0, "bos_token_id": 1}
_SEQUENCES |= {"eos_token_id": 2, "decoder_start_token_id": 1}
_IMAGES = _HEADS | {"intermediate_size": 64, "image_size": 16, "patch_size": 4}


@dataclass(frozen=True)
class Model:
    """The classes of one model, without their common beginnings, and how it is called."""

    config: str
    head: str
    options: dict[str, Any]
    inputs: Callable[[], dict[str, torch.Tensor]]
    caches: tuple[str, ...] = ()

    def make(self) -> Any:
        """The model on the CPU, the same each time, with no dropout."""
        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**self.options)
        model = getattr(transformers, self.head)(config).eval()
        if model.can_generate():
            model.generation_config.update(max_new_tokens=6, do_sample=False, num_beams=1)
        return model


def _words(length: int = 10) -> torch.Tensor:
    return torch.randint(3, 64, (2, length), generator=torch.Generator().manual_seed(1))


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def _language() -> dict[str, torch.Tensor]:
    words = _words()
    return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": words}


def _images() -> dict[str, torch.Tensor]:
    return {"pixel_values": _numbers(2, 3, 16, 16), "labels": torch.tensor([0, 1])}


def _clip() -> dict[str, torch.Tensor]:
    words = _words(8)
    words[:, -1] = 2
    return {"input_ids": words, "pixel_values": _numbers(2, 3, 16, 16)}


MODELS = {
    "gpt2": Model(
        "GPT2Config", "GPT2LMHeadModel",
        {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "vocab_size": 64, "n_positions": 64,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        _language, CACHES,
    ),
    "bert": Model("BertConfig", "BertForMaskedLM", _DENSE, _language),
    "llama": Model("LlamaConfig", "LlamaForCausalLM", _GROUPED, _language, CACHES),
    "qwen2": Model("Qwen2Config", "Qwen2ForCausalLM", _GROUPED, _language, CACHES),
    "mistral": Model("MistralConfig", "MistralForCausalLM", _GROUPED, _language, CACHES),
    "mixtral": Model(
        "MixtralConfig", "MixtralForCausalLM", _GROUPED | {"num_local_experts": 4}, _language,
        CACHES,
    ),
    "gemma": Model("GemmaConfig", "GemmaForCausalLM", _GROUPED, _language, CACHES),
    "t5": Model(
        "T5Config", "T5ForConditionalGeneration",
        {"d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
         "vocab_size": 64, "decoder_start_token_id": 0},
        _language, ("dynamic",),
    ),
    "bart": Model(
        "BartConfig", "BartForConditionalGeneration", _SEQUENCES, _language, ("dynamic",)
    ),
    "whisper": Model(
        "WhisperConfig", "WhisperForConditionalGeneration",
        _SEQUENCES | {"num_mel_bins": 8, "max_source_positions": 20},
        lambda: {"input_features": _numbers(2, 8, 40), "labels": _words()},
    ),
    "wav2vec2": Model(
        "Wav2Vec2Config", "Wav2Vec2ForSequenceClassification",
        _DENSE | {"conv_dim": (16, 16), "conv_stride": (5, 4), "conv_kernel": (10, 4),
                  "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8,
                  "num_conv_pos_embedding_groups": 2},
        lambda: {"input_values": _numbers(2, 800), "labels": torch.tensor([0, 1])},
    ),
    "clip": Model(
        "CLIPConfig", "CLIPModel",
        {"text_config": _DENSE, "vision_config": _IMAGES, "projection_dim": 16}, _clip,
    ),
    "vit": Model("ViTConfig", "ViTForImageClassification", _IMAGES, _images),
    "mamba": Model(
        "MambaConfig", "MambaForCausalLM",
        {"hidden_size": WIDTH, "num_hidden_layers": 2, "vocab_size": 64, "state_size": 8,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        lambda: {"input_ids": _words(), "labels": _words()},
    ),
}  # fmt: skip


def _called(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    more = {"return_loss": True} if "labels" not in inputs else {}
    return model(**{key: value.to(model.device) for key, value in inputs.items()}, **more)


def _trained(model: Any, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    """What the first pass gives, and the losses of three steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found: dict[str, Any] = {}
    losses = []
    for step in range(3):
        output = _called(model, inputs)
        optimizer.zero_grad()
        output.loss.backward()
        if step == 0:
            name = "logits" if "logits" in output else "logits_per_text"
            found["outputs"] = output[name].detach().cpu()
            gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
            found["gradients"] = {n: g.cpu().clone() for n, g in gradients.items()}
        optimizer.step()
        losses.append(output.loss.item())
    return found | {"losses": torch.tensor(losses)}


def differences(
    name: str, device: torch.device, changed: Callable[[Any], None] | None = None
) -> Iterator[str]:
    """What differs between the device and the CPU, a line each.

    `changed` is given the device's model first: a fault that has to be found.
    """
    model = MODELS[name]
    inputs = model.inputs()
    here, there = model.make(), model.make().to(device)
    if changed is not None:
        changed(there)
    words = inputs.get("input_ids")
    for cache in model.caches:
        asked = {} if cache == "dynamic" else {"cache_implementation": cache}
        # On the CPU there is nothing to offload from: transformers asks for CUDA's streams.
        expected_by = {} if cache == "offloaded" else asked
        assert words is not None
        expected_words = here.generate(words, **expected_by)
        if not torch.equal(there.generate(words.to(device), **asked).cpu(), expected_words):
            yield f"{name}: generated with a {cache} cache"
    expected, found = _trained(here, inputs), _trained(there, inputs)
    for what, value in expected.items():
        try:
            torch.testing.assert_close(found[what], value, rtol=1e-3, atol=1e-4)
        except AssertionError as error:
            yield f"{name}: {what}: {error}"
    with tempfile.TemporaryDirectory() as folder:
        there.save_pretrained(folder)
        loaded = type(there).from_pretrained(folder)
        for key, weight in there.state_dict().items():
            if not torch.equal(loaded.state_dict()[key], weight.cpu()):
                yield f"{name}: {key} differs in the checkpoint"


Compared = Callable[[str, torch.device], Iterator[str]]


def main(names: list[str], differences: Compared = differences) -> int:
    """Compare the models; 1 where one differs or fails."""
    device = torch.accelerator.current_accelerator()
    assert device is not None, "there is no device"
    failed = 0
    for name in names or list(MODELS):
        try:
            lines = list(differences(name, device))
        except Exception as error:  # a sweep goes on with the next model
            lines = [f"{name}: {type(error).__name__}: {error}"]
        failed += bool(lines)
        print("\n".join(lines) if lines else f"{name}: equal", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
