"""What each process of test_processes.py does, under torchrun: train with each library there is.

python -m torch.distributed.run --nproc-per-node 2 processes.py FOLDER PART...

Each rank writes FOLDER/PART-RANK.json: where it was, its backend and the weights that it has at the
end, which are to be those of one process that trains on batches of twice the size. With a `1` for
WORLD_SIZE, or none, the same functions are that process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BATCH = 8 // WORLD
Found = dict[str, Any]


def model() -> torch.nn.Sequential:
    """A small classifier, the same in each process."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def points() -> torch.utils.data.TensorDataset:
    """64 points of four classes."""
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.TensorDataset(inputs, inputs[:, :4].argmax(1))


def weights(parameters: Iterable[torch.Tensor]) -> list[float]:
    """All of them as numbers."""
    return [float(x) for p in parameters for x in p.detach().float().cpu().flatten()]


def backend() -> str | None:
    """The backend that this process talks with."""
    return torch.distributed.get_backend() if torch.distributed.is_initialized() else None


def accelerate(folder: Path) -> Found:
    """As accelerate's documentation writes it; what a rank gathers too."""
    from accelerate import Accelerator

    made = Accelerator()
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batches = torch.utils.data.DataLoader(points(), batch_size=BATCH)
    net, optimizer, batches = made.prepare(net, optimizer, batches)
    for inputs, classes in batches:
        made.backward(torch.nn.functional.cross_entropy(net(inputs), classes))
        optimizer.step()
        optimizer.zero_grad()
    there = torch.tensor([made.process_index], device=made.device)
    found = {
        "place": str(made.device),
        "backend": backend(),
        "gathered": made.gather(there).tolist(),
        "weights": weights(net.parameters()),
    }
    made.wait_for_everyone()
    return found


def trainer(folder: Path) -> Found:
    """transformers' Trainer, float32."""
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=16,
    )  # fmt: skip
    rows = [{"input_ids": [(s + i) % 20 for i in range(8)]} for s in range(32)]
    rows = [{**row, "labels": row["input_ids"]} for row in rows]
    args = transformers.TrainingArguments(
        str(folder / f"trainer-{WORLD}"), per_device_train_batch_size=BATCH, max_steps=4,
        optim="sgd", learning_rate=0.1, lr_scheduler_type="constant", report_to=[],
        save_strategy="no", disable_tqdm=True, max_grad_norm=0.0,
    )  # fmt: skip
    made = transformers.Trainer(
        model=transformers.LlamaForCausalLM(config), args=args, train_dataset=rows
    )
    made.train()
    return {
        "place": str(args.device),
        "backend": backend(),
        "weights": weights(made.model.parameters()),
    }


def lightning(folder: Path) -> Found:
    """Lightning's Trainer with strategy "ddp"."""
    import lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = model()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    made = pl.Trainer(
        accelerator="auto", devices=WORLD if WORLD > 1 else 1,
        strategy="ddp" if WORLD > 1 else "auto", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=str(folder), use_distributed_sampler=False,
    )  # fmt: skip
    share = torch.utils.data.DistributedSampler(points(), WORLD, RANK, shuffle=False)
    made.fit(module, torch.utils.data.DataLoader(points(), batch_size=BATCH, sampler=share))
    return {
        "place": str(made.strategy.root_device),
        "backend": backend(),
        "weights": weights(module.parameters()),
    }


def deepspeed(folder: Path) -> Found:
    """DeepSpeed's engine, ZeRO of stages 1 to 3; of one process, the same training without it."""
    inputs, classes = points().tensors
    found: Found = {}
    for stage in (1, 2, 3):
        net = model()
        loss = torch.nn.functional.cross_entropy
        if WORLD == 1:
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.0)
            for start in range(0, 64, BATCH):
                mine = slice(start, start + BATCH)
                optimizer.zero_grad()
                loss(net(inputs[mine]), classes[mine]).backward()
                optimizer.step()
            found[f"weights of {stage}"] = weights(net.parameters())
            continue
        import deepspeed as ds

        engine, _, _, _ = ds.initialize(
            model=net,
            model_parameters=net.parameters(),
            config={
                "train_micro_batch_size_per_gpu": BATCH,
                "optimizer": {"type": "Adam", "params": {"lr": 1e-2}},
                "zero_optimization": {"stage": stage},
            },
        )
        for start in range(RANK * BATCH, 64, 8):
            mine = slice(start, start + BATCH)
            there = engine(inputs[mine].to(engine.device))
            engine.backward(loss(there, classes[mine].to(engine.device)))
            engine.step()
        with ds.zero.GatheredParameters(list(engine.module.parameters()), enabled=stage == 3):
            found[f"weights of {stage}"] = weights(engine.module.parameters())
        found |= {"place": str(engine.device), "backend": backend()}
    return found


PARTS: dict[str, Callable[[Path], Found]] = {
    "accelerate": accelerate,
    "trainer": trainer,
    "lightning": lightning,
    "deepspeed": deepspeed,
}


def main() -> None:
    """Do the parts that were asked for, one after the other."""
    folder, parts = Path(sys.argv[1]), sys.argv[2:]
    for part in parts:
        found = PARTS[part](folder)
        (folder / f"{part}-{RANK}-of-{WORLD}.json").write_text(json.dumps(found))
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
