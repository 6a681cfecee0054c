"""Tiny models and data for the libraries, made here: nothing is downloaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

# A hub must not be asked, not even whether it is there.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

WORDS = ["<pad>", "<unk>", "<eos>"]
WORDS += ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs"]
WORDS += ["away", "from", "it"]


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The first device."""
    return torch.device(torch._C._get_privateuse1_backend_name(), 0)


@pytest.fixture
def tokenizer() -> Any:
    """A tokenizer of whole words."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel(
        {word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"
    )
    plain = tokenizers.Tokenizer(words)
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>"
    )


@pytest.fixture
def llama() -> Callable[[], Any]:
    """A function that makes a small Llama, the same each time."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=0, bos_token_id=2, eos_token_id=2,
    )  # fmt: skip

    def make() -> Any:
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(config)

    return make


@pytest.fixture
def sentences() -> list[dict[str, list[int]]]:
    """Sixteen sentences in which each word says the next."""
    rows = [[3 + (start + i) % 14 for i in range(12)] for start in range(16)]
    return [{"input_ids": row, "labels": row} for row in rows]


@pytest.fixture
def perceptron() -> Callable[[], torch.nn.Module]:
    """A function that makes a small classifier, the same each time."""

    def make() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))

    return make


@pytest.fixture
def points() -> torch.utils.data.TensorDataset:
    """Points, each of the class of its largest coordinate."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 8, generator=generator)
    return torch.utils.data.TensorDataset(inputs, inputs[:, :4].argmax(1))


@pytest.fixture(autouse=True)
def _forgets() -> Iterator[None]:
    """accelerate keeps its state for the process; the random state is that of the process too."""
    torch.manual_seed(0)
    yield
    if "accelerate.state" in sys.modules:
        sys.modules["accelerate.state"].AcceleratorState._reset_state(True)
