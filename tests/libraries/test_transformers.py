"""transformers finds the device: Trainer, generate, device_map and pipelines."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import causeway

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate, which Trainer uses, is not installed")
pytestmark = pytest.mark.once


@pytest.fixture
def trainer(llama, sentences, tmp_path: Path) -> Callable[..., Any]:
    """A function that makes a Trainer of the small Llama."""

    def make(**arguments: Any) -> Any:
        arguments = {
            "output_dir": str(tmp_path / "out"), "per_device_train_batch_size": 4, "max_steps": 8,
            "learning_rate": 1e-2, "logging_steps": 1, "save_strategy": "no", "report_to": [],
            "disable_tqdm": True, "seed": 1, **arguments,
        }  # fmt: skip
        args = transformers.TrainingArguments(**arguments)
        return transformers.Trainer(model=llama(), args=args, train_dataset=sentences)

    return make


def losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def matmuls(ledger: Any) -> set[str]:
    return {row.dtype for row in ledger.rows if row.operator in ("aten::mm", "aten::addmm")}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_trainer_trains_on_the_device_with_the_losses_of_the_cpu(
    trainer, device: torch.device, precision: str
) -> None:
    half = {"bf16": precision == "bfloat16"}
    there = trainer(**half)
    assert there.args.device == device
    assert there.args.n_gpu == 1
    with causeway.ledger() as ledger:
        there.train()
    assert {p.device for p in there.model.parameters()} == {device}
    assert matmuls(ledger) == {precision}
    here = trainer(use_cpu=True, **half)
    with causeway.ledger() as ledger:
        here.train()
    assert here.args.device.type == "cpu"
    assert ledger.total() == 0
    assert losses(there)[-1] < 0.8 * losses(there)[0]
    torch.testing.assert_close(losses(there), losses(here), rtol=1e-4, atol=1e-4)


def test_batches_are_on_the_device(trainer, device: torch.device) -> None:
    there = trainer()
    assert {t.device for t in next(iter(there.get_train_dataloader())).values()} == {device}


def test_fp16_scales_its_losses(trainer) -> None:
    there = trainer(fp16=True)
    with causeway.ledger() as ledger:
        there.train()
    assert there.accelerator.scaler.is_enabled()
    assert matmuls(ledger) == {"float16"}
    assert ledger.total(operator="_amp_foreach_non_finite_check_and_unscale_") > 0
    assert losses(there)[-1] < 0.8 * losses(there)[0]


def test_a_run_goes_on_from_its_checkpoint(trainer, llama, tmp_path: Path, device) -> None:
    """With dropout, so that the device's random state must have been kept too."""
    dropout = {"attention_dropout": 0.2}

    def run(**arguments: Any) -> Any:
        made = trainer(save_strategy="steps", save_steps=4, **arguments)
        for name, value in dropout.items():
            for layer in made.model.model.layers:
                setattr(layer.self_attn, name, value)
        return made

    whole = run(output_dir=str(tmp_path / "a"))
    whole.train()
    checkpoint = tmp_path / "a" / "checkpoint-4"
    rest = run(output_dir=str(tmp_path / "b"))
    rest.train(resume_from_checkpoint=str(checkpoint))
    assert losses(rest)[-4:] == losses(whole)[-4:]
    state = torch.load(checkpoint / "rng_state.pth", weights_only=False)
    assert device.type in state


def test_a_checkpoint_loads_on_the_cpu(trainer, tmp_path: Path) -> None:
    there = trainer()
    there.train()
    there.save_model(str(tmp_path / "model"))
    here = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    for name, value in here.state_dict().items():
        assert torch.equal(value, there.model.state_dict()[name].cpu())


def test_evaluation_is_the_same_as_on_the_cpu(trainer, sentences, device) -> None:
    found = [trainer(use_cpu=cpu).evaluate(sentences)["eval_loss"] for cpu in (False, True)]
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
def test_generate_gives_the_tokens_of_the_cpu(llama, tokenizer, device, beams: int) -> None:
    model = llama()
    prompt = tokenizer(["the quick brown", "a lazy dog"], return_tensors="pt")
    found = []
    for place in (torch.device("cpu"), device):
        there = model.to(place)
        with causeway.ledger() as ledger:
            tokens = there.generate(**prompt.to(place), max_new_tokens=8, num_beams=beams)
        assert tokens.device == place
        assert (ledger.total() > 0) == (place == device)
        found.append(tokens.cpu())
    assert torch.equal(*found)


def test_sampling_follows_the_seed(llama, device) -> None:
    model, prompt = llama().to(device), torch.tensor([[3, 4, 5]], device=device)
    found = []
    for seed in (1, 1, 2):
        transformers.set_seed(seed)
        found.append(model.generate(prompt, max_new_tokens=16, do_sample=True).tolist())
    assert found[0] == found[1] != found[2]


def test_a_mixture_of_experts_has_the_gradients_of_the_cpu(device: torch.device) -> None:
    """It counts integers with histc wherever a device is no CPU, as on CUDA."""
    config = transformers.MixtralConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    here = transformers.MixtralForCausalLM(config)
    there = copy.deepcopy(here).to(device)
    tokens = torch.randint(1, 40, (2, 12))
    here(input_ids=tokens, labels=tokens).loss.backward()
    with causeway.ledger() as ledger:
        there(input_ids=tokens.to(device), labels=tokens.to(device)).loss.backward()
    assert "aten::histc" in {row.operator for row in ledger.rows}
    for (name, ours), theirs in zip(there.named_parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_device_map_auto_puts_a_model_on_all_devices(llama, tmp_path: Path, device) -> None:
    model = llama()
    model.save_pretrained(tmp_path)
    prompt = torch.tensor([[3, 4, 5]])
    expected = model.generate(prompt, max_new_tokens=6, do_sample=False)
    spread = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map="auto")
    places = {p.device for p in spread.parameters()}
    count = torch.accelerator.device_count()
    assert places == {torch.device(device.type, i) for i in range(min(count, 2))}
    tokens = spread.generate(prompt.to(device), max_new_tokens=6, do_sample=False)
    assert torch.equal(tokens.cpu(), expected)


def test_device_map_auto_leaves_on_the_cpu_what_does_not_fit(llama, tmp_path: Path, device) -> None:
    model = llama()
    model.save_pretrained(tmp_path)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    prompt = torch.tensor([[3, 4, 5]])
    split = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, device_map="auto", max_memory={0: size // 2, "cpu": 10 * size}
    )
    assert set(split.hf_device_map.values()) == {0, "cpu"}
    tokens = split.generate(prompt.to(device), max_new_tokens=6, do_sample=False)
    assert torch.equal(tokens.cpu(), model.generate(prompt, max_new_tokens=6, do_sample=False))


@pytest.mark.parametrize("given", [0, "device", None, "cpu", -1])
def test_a_pipeline_is_where_it_was_asked_to_be(llama, tokenizer, device, given) -> None:
    place = device.type if given == "device" else given
    made = transformers.pipeline(
        "text-generation", model=llama(), tokenizer=tokenizer, device=place
    )
    assert made.device.type == ("cpu" if given in ("cpu", -1) else device.type)
    text = made("the quick brown", max_new_tokens=4, do_sample=False)[0]["generated_text"]
    assert text.startswith("the quick brown")


def test_the_memory_metrics_are_those_of_the_device(trainer) -> None:
    there = trainer(skip_memory_metrics=False)
    metrics = there.train().metrics
    assert metrics["train_mem_gpu_peaked_delta"] > 0


def test_transformers_says_which_devices_there_are(device: torch.device) -> None:
    from transformers.utils import get_available_devices, is_torch_npu_available

    assert device.type in get_available_devices()
    assert not is_torch_npu_available()  # that question is about Ascend's package


@pytest.mark.parametrize("cache", ["offloaded", "offloaded_static"])
def test_generate_with_an_offloaded_cache(llama: Any, device: torch.device, cache: str) -> None:
    model = llama().eval().to(device)
    start = torch.arange(3, 8, device=device)[None]
    options = {"max_new_tokens": 6, "do_sample": False, "disable_compile": True}
    expected = model.generate(start, **options)
    assert torch.equal(model.generate(start, cache_implementation=cache, **options), expected)


def test_its_own_tests_find_the_device(device: torch.device) -> None:
    testing = pytest.importorskip("transformers.testing_utils")
    module = torch.get_device_module(device)
    assert testing.torch_device == device.type
    assert testing.backend_device_count(device.type) == module.device_count()
    assert testing.backend_torch_accelerator_module(device.type) is module
    testing.backend_manual_seed(device.type, 0)
    testing.backend_synchronize(device.type)
    testing.backend_empty_cache(device.type)
    assert testing.backend_memory_allocated(device.type) == module.memory_allocated()


SAVES = """
import sys, torch, transformers
config = transformers.GPT2Config(
    n_layer=1, n_embd=64, n_head=2, vocab_size=100, n_positions=32, bos_token_id=1, eos_token_id=2)
torch.manual_seed(0)
model = transformers.GPT2LMHeadModel(config).to("sim").eval()
ids = torch.arange(8, device="sim")[None]
def kept():
    with torch.no_grad():
        for _ in range(4): logits = model(ids).logits
    return torch.sim.layout_stats()["kept"], logits
before, logits = kept()
pointer = model.transformer.wpe.weight.data_ptr()  # what was given away before stays so
model.save_pretrained(sys.argv[1])
after, same = kept()
assert before == after > 3 and torch.equal(logits, same), (before, after)
from causeway import _C
assert not _C.keeps_layouts(model.transformer.wpe.weight)
model = transformers.GPT2LMHeadModel.from_pretrained(sys.argv[1]).to("sim").eval()
assert kept()[0] >= before
"""


def test_a_saved_model_keeps_its_weights_in_the_chips_layout(run_python, tmp_path: Path) -> None:
    run_python(SAVES, args=(str(tmp_path),), CAUSEWAY_SIM_OPS="all")
