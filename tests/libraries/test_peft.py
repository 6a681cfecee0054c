"""peft trains adapters on the device, and loads them there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import causeway

peft = pytest.importorskip("peft", reason="peft is not installed")
pytestmark = pytest.mark.once


def adapted(llama, **options):
    torch.manual_seed(0)
    config = peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **options
    )
    return peft.get_peft_model(llama(), config)


def train(model, place: torch.device, sentences, steps: int = 12) -> list[float]:
    model = model.to(place)
    tokens = torch.tensor([row["input_ids"] for row in sentences]).to(place)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=5e-2)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("variant", ["lora", "dora"])
def test_adapters_train_on_the_device_with_the_losses_of_the_cpu(
    llama, sentences, device, variant: str
) -> None:
    options = {"use_dora": variant == "dora"}
    model = adapted(llama, **options)
    frozen = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
    with causeway.ledger() as ledger:
        there = train(model, device, sentences)
    assert ledger.total() > 0
    assert {p.device for p in model.parameters()} == {device}
    here = train(adapted(llama, **options), torch.device("cpu"), sentences)
    assert there[-1] < 0.97 * there[0]
    torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-3)
    for name, parameter in model.named_parameters():
        if name in frozen:
            assert torch.equal(parameter.cpu(), frozen[name])


def test_adapters_are_loaded_to_the_device(llama, sentences, tmp_path: Path, device) -> None:
    model = adapted(llama)
    train(model, device, sentences, steps=2)
    model.save_pretrained(tmp_path)
    assert peft.utils.infer_device() == device.type
    loaded = peft.PeftModel.from_pretrained(llama().to(device), tmp_path)
    assert {p.device for p in loaded.parameters()} == {device}
    tokens = torch.tensor([[3, 4, 5]], device=device)
    torch.testing.assert_close(loaded(tokens).logits, model.eval()(tokens).logits)


def test_merged_adapters_give_the_same(llama, sentences, device) -> None:
    model = adapted(llama)
    train(model, device, sentences, steps=2)
    tokens = torch.tensor([[3, 4, 5]], device=device)
    before = model.eval()(tokens).logits
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(tokens).logits, before, rtol=1e-4, atol=1e-4)
