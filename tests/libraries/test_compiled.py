"""The libraries' own ways to torch.compile, on a chip with a compiler: generate, Trainer,
accelerate. Each makes kernels and has eager's tokens or losses."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = [pytest.mark.once, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def compiled(run_python: Run, tmp_path_factory) -> Callable[..., str]:
    """A function that runs a program with the simulated chip's compiler; Inductor's cache is this
    file's."""
    root = tmp_path_factory.getbasetemp()
    env = {
        "CAUSEWAY_SIM_CODE": "1", "CAUSEWAY_COMPILE": "strict", "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(root / "inductor-libraries"),
    }  # fmt: skip

    def run(program: str, *args: str) -> str:
        said = run_python(BEGIN + program + END, args=args, timeout=850, **env).stdout
        return str(said)

    return run


BEGIN = """
import sys, torch, causeway
device = torch.accelerator.current_accelerator()
"""
END = """
report = causeway.compile_report()
assert sum(len(graph.kernels) for graph in report.graphs) > 0, report
assert any(graph.launches for graph in report.graphs), report
assert not report.unfused, report
"""

GENERATE = """
import transformers

def make():
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads, **ends)).eval()

words = torch.arange(3, 17).reshape(2, 7)
options = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": "static"}
expected = make().generate(words, **options)
assert expected.shape[1] > 12, expected.shape
more = {"compile_config": transformers.CompileConfig(mode=sys.argv[1])} if sys.argv[1:] else {}
model = make().to(device)
for _ in range(2):
    assert torch.equal(model.generate(words.to(device), **options, **more).cpu(), expected)
if not more:
    plain = len(causeway.compile_report().graphs)
    model.generate(words.to(device), **options, disable_compile=True)
    assert len(causeway.compile_report().graphs) == plain
    assert sum(causeway.compile_report().replays.values()) > 8, causeway.compile_report()
"""


@pytest.mark.parametrize(
    "mode",
    [pytest.param((), marks=pytest.mark.long), ("default",)],
    ids=["as it comes", "default"],
)
def test_generate_with_a_static_cache_is_compiled_and_has_eagers_tokens(
    compiled, mode: tuple[str, ...]
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    compiled(GENERATE, *mode)


TRAINER = """
import transformers

rows = [[3 + (start + i) % 14 for i in range(12)] for start in range(16)]
data = [{"input_ids": row, "labels": row} for row in rows]

def losses(**more):
    torch._dynamo.reset()
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 24, "n_positions": 32}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **none))
    args = transformers.TrainingArguments(
        output_dir=sys.argv[1], per_device_train_batch_size=4, max_steps=6, learning_rate=1e-2,
        logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, seed=1, **more)
    trainer = transformers.Trainer(model=model, train_dataset=data, args=args)
    trainer.train()
    assert next(model.parameters()).device.type == ("cpu" if "use_cpu" in more else device.type)
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

for half in ({}, {"bf16": True}):
    there, here = losses(torch_compile=True, **half), losses(use_cpu=True, **half)
    tolerance = 2e-2 if half else 1e-3
    torch.testing.assert_close(there, here, rtol=tolerance, atol=tolerance)
    assert there[-1] < 0.8 * there[0], there
"""


@pytest.mark.long
def test_trainer_with_torch_compile_trains_with_the_losses_of_the_cpu(
    compiled, tmp_path: Path
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate, which Trainer uses, is not installed")
    compiled(TRAINER, str(tmp_path))


PERCEPTRON = """
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
points = torch.utils.data.TensorDataset(inputs, inputs[:, :4].argmax(1))
batches = torch.utils.data.DataLoader(points, batch_size=20)  # the last one is of 4

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
"""
ACCELERATE = """
import accelerate

def losses(**more):
    torch._dynamo.reset()
    accelerate.state.AcceleratorState._reset_state(True)
    made = accelerate.Accelerator(**more)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = made.prepare(model, optimizer, batches)
    found = []
    for _ in range(3):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            made.backward(loss)
            made.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
    return found, made

there, made = losses(dynamo_backend="inductor")
assert made.device.type == device.type
here, _ = losses(cpu=True)
torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-4)
regional = accelerate.utils.TorchDynamoPlugin(backend="inductor", use_regional_compilation=True)
there, _ = losses(dynamo_plugin=regional)
torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-4)
"""


def test_accelerate_with_dynamo_trains_with_the_losses_of_the_cpu(compiled) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    compiled(PERCEPTRON + ACCELERATE)
