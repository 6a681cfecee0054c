"""Programs in CUDA style that are converted and run, on the device and on the CPU.

tests/programs has image, text, GAN, reinforcement learning, diffusion and distributed training; the
tests of the redirection run the same programs as they are. Nobody edits what comes out. The same
seeds must give the same losses on the simulated chip and on a torch that sees no device.
"""

from __future__ import annotations

import ast
import gc
import json
import math
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import warm
from causeway.migrate.finding import FileInput
from causeway.migrate.python import convert, convert_source
from causeway.migrate.settings import Settings

CORPUS = Path(__file__).parents[1] / "programs"
PROGRAMS = ("image", "text", "gan", "rl", "diffusion", "gpt", "mnist")
LEFT = re.compile(r"torch\.cuda\.(?!nvtx)|\.cuda\(\)|\bc\.\w+\(")


def converted(name: str, folder: Path) -> Path:
    text = (CORPUS / f"{name}.py").read_text(encoding="utf-8")
    after, _ = convert_source(text, Settings())
    path = folder / f"{name}.py"
    path.write_text(after, encoding="utf-8")
    return path


# All programs in one process a device: starting torch takes longer than all of them.
DRIVER = """
import contextlib, io, json, runpy, sys, traceback
outcomes = {}
for key, argv in json.loads(sys.argv[1]):
    sys.argv, out = argv, io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(argv[0], run_name="__main__")
        outcomes[key] = {"said": out.getvalue()}
    except BaseException:
        outcomes[key] = {"error": traceback.format_exc()}
print(json.dumps(outcomes))
"""
RUNS = {name: (name,) for name in PROGRAMS} | {
    "amp": ("image", "--amp"),
    "no-cuda": ("image", "--no-cuda"),
    "fault": ("fault",),
}


def run(arguments: list[str], *, device: bool) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1" if device else "0"
    done = warm.run(arguments, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, dict[str, dict[str, object]]]:
    """What each program gave, with the device and without."""
    folder = tmp_path_factory.mktemp("converted")
    for name in PROGRAMS:
        converted(name, folder)
    # The planted fault: a program whose device is lost on the way.
    text = (folder / "gan.py").read_text(encoding="utf-8")
    lost = text.replace("generator.to(accelerator)", "generator")
    assert lost != text
    (folder / "fault.py").write_text(lost, encoding="utf-8")
    work = json.dumps([(k, [str(folder / f"{n}.py"), *more]) for k, (n, *more) in RUNS.items()])
    return {d: json.loads(run(["-c", DRIVER, work], device=d)) for d in (True, False)}


def losses(outcome: dict[str, object], device: str) -> list[float]:
    assert "error" not in outcome, outcome["error"]
    said = [words for line in str(outcome["said"]).splitlines() if len(words := line.split()) == 2]
    assert [what.partition(":")[0] for name, what in said if name == "device"] == [device]
    return [float(what) for name, what in said if name == "loss"]


def same(name: str, one: list[float], other: list[float]) -> None:
    assert len(one) == len(other) > 3, name
    assert all(math.isfinite(x) for x in one)
    torch.testing.assert_close(one, other, rtol=2e-4, atol=1e-4)
    assert len({round(x, 6) for x in one}) > 2, "losses that do not move prove nothing"


Outcomes = dict[bool, dict[str, dict[str, object]]]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_converted_program_gives_the_cpus_losses_on_the_device(
    name: str, outcomes: Outcomes
) -> None:
    on_device = losses(outcomes[True][name], "sim")
    same(name, on_device, losses(outcomes[False][name], "cpu"))


def test_mixed_precision_trains_on_the_device_and_is_off_on_the_cpu(outcomes: Outcomes) -> None:
    plain = losses(outcomes[False]["image"], "cpu")
    off = losses(outcomes[False]["amp"], "cpu")
    assert off == plain, "torch.cuda.amp was off on the CPU; so it must be"
    device = losses(outcomes[True]["amp"], "sim")
    assert device != losses(outcomes[True]["image"], "sim"), "half precision was not used"
    torch.testing.assert_close(device, plain, rtol=3e-2, atol=3e-2)


def test_a_flag_for_the_cpu_still_works(outcomes: Outcomes) -> None:
    flag = losses(outcomes[True]["no-cuda"], "cpu")
    same("image", flag, losses(outcomes[False]["image"], "cpu"))


def test_a_wrong_conversion_is_caught(outcomes: Outcomes) -> None:
    assert "error" in outcomes[True]["fault"]


@pytest.mark.long
def test_two_processes_train_together_on_the_device(tmp_path: Path) -> None:
    path = converted("distributed", tmp_path)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    arguments = [str(path), "--gloo", "--port", port, "--out", str(tmp_path / "losses.txt")]
    device = {"said": run(arguments, device=True)}
    cpu = {"said": run(arguments, device=False)}
    torch.testing.assert_close(losses(device, "sim"), losses(cpu, "cpu"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(path.stem for path in CORPUS.glob("*.py")))
def test_nothing_of_cuda_is_left_in_a_program(name: str) -> None:
    text = (CORPUS / f"{name}.py").read_text(encoding="utf-8")
    after, findings = convert_source(text, Settings())
    told = {f.line for f in findings if f.kind != "changed"}
    assert told or not LEFT.search(after)
    again, _ = convert_source(after, Settings())
    assert again == after


def test_the_hard_script_keeps_what_only_looks_like_cuda() -> None:
    before = (CORPUS / "hard.py").read_text(encoding="utf-8")
    after, findings = convert_source(before, Settings())
    for untouched in (
        '"--no-cuda"', "args.cuda", "args.no_cuda", '"barracuda"', '"checkpoints/cuda/model_cuda.pt"',  # noqa: E501
        '{"cuda": True,', "// torch.cuda.synchronize()", "def cuda(self, device=None):",
        "b = Batch(next(it)).cuda()", "# cuda comment", "return torch.cuda.is_available()",
        "keepme = torch.cuda.device_count()  # causeway: keep",
    ):  # fmt: skip
        assert untouched in before, untouched
        assert untouched in after, untouched
    for written in (
        "y = next(it).to(accelerator)",
        'd3 = f"{accelerator.type}:{rank}"',
        'dist.init_process_group(f"cpu:gloo,{accelerator.type}:'
        '{dist.get_default_backend_for_device(accelerator)}")',
        "from torch.amp import autocast as ac, GradScaler",
        "torch.device(accelerator.type, next(it))",
        "{torch.accelerator.current_device_index()} {fish}",
    ):
        assert written in after, written
    assert ast.parse(after)
    assert {f.kind for f in findings} >= {"changed", "portable", "manual"}
    assert before.count("next(it)") == after.count("next(it)")


@pytest.mark.parametrize("pattern", ["[a-c]*.py", "email/*.py", "asyncio/*.py"])
def test_pythons_own_files_pass_through_byte_for_byte(pattern: str) -> None:
    """A sample; tests/migrate/sweep.py takes all of them, and all of torch's."""
    for path in sorted(Path(ast.__file__).parent.glob(pattern)):
        result = convert(FileInput(path.name, path.read_bytes()), Settings())
        assert not result.changed, path
        assert result.status == "unchanged", (path, result.reason)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["utils", "nn", "optim", "distributed", "cuda", "backends"])
def test_torchs_own_files_pass_through_and_stay_after_a_second_time(folder: str) -> None:
    """A sample of torch, with all of its own ways to name a device."""
    paths = sorted((Path(torch.__file__).parent / folder).rglob("*.py"))[::5]
    for path in paths:
        first = convert(FileInput(path.name, path.read_bytes()), Settings())
        assert first.status in ("unchanged", "converted"), (path, first.reason)
        if first.changed:
            second = convert(FileInput(path.name, first.after.encode()), Settings())
            assert not second.changed, path


def test_conversion_takes_a_few_times_as_long_as_pythons_parser() -> None:
    """10,000 lines a second of one core, said as a ratio to the parser, which is written in C: 9 to
    15 by the kind of processor, for files as short as these.
    """
    texts = [(CORPUS / f"{n}.py").read_text(encoding="utf-8") for n in (*PROGRAMS, "hard")]

    def seconds(act: Callable[[str], object], times: int) -> float:
        begun = time.process_time()
        for _ in range(times):
            for text in texts:
                act(text)
        return (time.process_time() - begun) / times

    convert_source(texts[0], Settings())
    gc.disable()
    try:  # in turn: a core that another process shares is slower for both
        ratio = min(
            seconds(lambda t: convert_source(t, Settings()), 1) / seconds(ast.parse, 8)
            for _ in range(5)
        )
    finally:
        gc.enable()
    assert ratio < 20
