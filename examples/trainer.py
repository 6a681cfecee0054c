"""Train a small language model with transformers' Trainer, on whatever accelerator this torch has.

There is nothing of a device in it: Trainer finds it, trains in bfloat16, stops half-way, goes on
from its checkpoint, and a pipeline says by heart what was learned. The text is the Zen of Python
and the model is made from a configuration, so nothing is downloaded. Exits with 1 where it did not
run on the accelerator, or the text was not learned.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import sys
import tempfile

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    pipeline,
    set_seed,
)

import causeway

with contextlib.redirect_stdout(io.StringIO()):
    import this

LINES = [line for line in codecs.decode(this.s, "rot13").splitlines() if line][1:]


def tokenizer_of(lines: list[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of the words of `lines`."""
    words = sorted({word for line in lines for word in line.split()})
    entries = {word: i for i, word in enumerate(["<pad>", "<unk>", "<eos>", *words])}
    plain = Tokenizer(models.WordLevel(entries, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>"
    )


def rows_of(lines: list[str], tokenizer: PreTrainedTokenizerFast) -> list[dict[str, list[int]]]:
    """Each line as tokens, all of one length; padding is no label."""
    encoded = [[*tokenizer(line)["input_ids"], tokenizer.eos_token_id] for line in lines]
    longest = max(map(len, encoded))
    return [
        {
            "input_ids": ids + [tokenizer.pad_token_id] * (longest - len(ids)),
            "attention_mask": [1] * len(ids) + [0] * (longest - len(ids)),
            "labels": ids + [-100] * (longest - len(ids)),
        }
        for ids in encoded
    ]


def main() -> int:
    """Train, go on, recite; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--cpu", action="store_true", help="use the CPU")
    asked = parser.parse_args()
    tokenizer = tokenizer_of(LINES)
    rows = rows_of(LINES, tokenizer)

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, max_steps=asked.steps, save_steps=asked.steps // 2, logging_steps=10, bf16=True,
            learning_rate=3e-3, per_device_train_batch_size=len(rows), report_to=[],
            use_cpu=asked.cpu, disable_tqdm=True,
        )  # fmt: skip

        def trainer() -> Trainer:
            set_seed(0)
            config = GPT2Config(
                vocab_size=len(tokenizer), n_positions=32, n_embd=64, n_layer=2, n_head=4,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id,
            )  # fmt: skip
            return Trainer(model=GPT2LMHeadModel(config), args=args, train_dataset=rows)

        with causeway.ledger() as ledger:
            trainer().train()
            half = trainer()
            half.train(resume_from_checkpoint=f"{folder}/checkpoint-{asked.steps // 2}")
        print(f"trained on {args.device}, {ledger.total()} operators there")

    speak = pipeline("text-generation", model=half.model, tokenizer=tokenizer)
    known = 0
    for line in LINES:
        start = " ".join(line.split()[:2]) + " "
        said = speak(start, max_new_tokens=30, do_sample=False)[0]["generated_text"]
        known += said == line
    print(f"knows {known} of {len(LINES)} lines by heart, such as: {said}")

    expected = "cpu" if asked.cpu else torch.accelerator.current_accelerator().type
    there = args.device.type == expected and half.model.device.type == expected
    return 0 if there and known >= 0.8 * len(LINES) else 1


if __name__ == "__main__":
    sys.exit(main())
