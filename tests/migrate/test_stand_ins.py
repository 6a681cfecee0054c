"""Converted programs where there is a GPU, and where there is Apple's: by stand-ins of both.

On CUDA a converted program must do what it did: the same calls, in the same order, and the same
losses. On a device whose module lacks names of torch.cuda, what is written must not ask for them.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import shutil
import textwrap
from pathlib import Path

import pytest
import torch

import warm
from causeway.migrate import engine, knowledge
from causeway.migrate.python import convert_source
from causeway.migrate.rules import RULES
from causeway.migrate.settings import Settings

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "programs"
RUNS = {
    "image": (), "image --amp": ("--amp",), "image --no-cuda": ("--no-cuda",), "text": (),
    "gan": (), "rl": (), "diffusion": (), "gpt": (), "mnist": (),
}  # fmt: skip
FAULTS = {
    "a model that stays on the CPU": ("gan", "generator.to(accelerator)", "generator"),
    "data that stays on the CPU": ("mnist", "data.to(device, non_blocking=True)", "data"),
    "a call that is lost": ("diffusion", "torch.accelerator.synchronize()", "pass"),
}
Outcome = dict[str, object]


def converted(name: str) -> str:
    text = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    return convert_source(text, Settings())[0]


def run(code: str, *arguments: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = warm.run(["-c", code, str(HERE), *arguments], env=environment, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What each program called and printed, as it is, converted, and with the planted faults."""
    folder = tmp_path_factory.mktemp("converted")
    work: dict[str, list[str]] = {}
    for key, options in RUNS.items():
        name = key.partition(" ")[0]
        (folder / f"{name}.py").write_text(converted(name), encoding="utf-8")
        work[key] = [str(PROGRAMS / f"{name}.py"), *options]
        work[f"{key} converted"] = [str(folder / f"{name}.py"), *options]
    for fault, (name, old, new) in FAULTS.items():
        text = converted(name)
        assert old in text, fault
        file = folder / f"{len(work)}.py"
        file.write_text(text.replace(old, new), encoding="utf-8")
        work[fault] = [str(file)]
    for code, rule in RULES.items():
        for which, text in (("before", rule.before), ("after", rule.after)):
            file = folder / f"{code}_{which}.py"
            file.write_text(text, encoding="utf-8")
            work[f"{code} {which}"] = [str(file)]
    code = """
        import json, sys
        sys.path.insert(0, sys.argv[1])
        import stand_in
        print(json.dumps(list(stand_in.main(json.loads(sys.argv[2])))))
    """
    said = run(textwrap.dedent(code), json.dumps(list(work.values())))
    return dict(zip(work, json.loads(said.splitlines()[-1]), strict=True))


def losses(outcome: Outcome) -> list[str]:
    assert "error" not in outcome, outcome["error"]
    return [line for line in str(outcome["said"]).splitlines() if "loss" in line]


@pytest.mark.parametrize("name", RUNS)
def test_a_converted_program_calls_on_cuda_what_it_called(
    name: str, outcomes: dict[str, Outcome]
) -> None:
    before, after = outcomes[name], outcomes[f"{name} converted"]
    assert losses(before) == losses(after) != []
    # An empty tensor of CUDA's type held in a variable is made on the CPU and moved.
    was, now = (
        ["to the device" if call == "empty on the device" else call for call in each["calls"]]  # type: ignore[attr-defined]
        for each in (before, after)
    )
    assert was == now
    assert any("to the device" in call for call in before["calls"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_program_that_calls_something_else_is_found(
    fault: str, outcomes: dict[str, Outcome]
) -> None:
    assert outcomes[FAULTS[fault][0]]["calls"] != outcomes[fault]["calls"]


def test_the_rules_own_examples_call_on_cuda_what_they_called(outcomes: dict[str, Outcome]) -> None:
    ran = [code for code in RULES if "error" not in outcomes[f"{code} before"]]
    differ = {
        code: (outcomes[f"{code} before"]["calls"], outcomes[f"{code} after"])
        for code in ran
        if outcomes[f"{code} before"]["calls"] != outcomes[f"{code} after"]["calls"]
    }
    assert not differ
    assert len(ran) > 12, ran


def missing(module: str, names: list[str]) -> dict[str, str]:
    """Names of torch.cuda, asked for behind the question whether there is a device, that fail where
    the device's module has just `names`.
    """
    texts = {}
    for api in knowledge.apis():
        name = api.removeprefix("torch.cuda.")
        # A module, which `import torch` alone need not bring, is imported by who asks for it.
        found = getattr(torch.cuda, name, None)
        if "." in name or name.startswith("_") or inspect.ismodule(found):
            continue
        if hasattr(torch.cuda, name):
            text = f"import torch\n\nif torch.cuda.is_available():\n    x = torch.cuda.{name}\n"
            texts[name] = convert_source(text, Settings())[0]
    assert len(texts) > 80
    code = """
        import json, sys
        sys.path.insert(0, sys.argv[1])
        import stand_in
        stand_in.only(sys.argv[2], json.loads(sys.argv[3]))
        failed = {}
        for name, text in json.loads(sys.argv[4]).items():
            try:
                exec(compile(text, name + ".py", "exec"), {})
            except AttributeError as error:
                failed[name] = str(error)
        print(json.dumps(failed))
    """
    return json.loads(  # type: ignore[no-any-return]
        run(textwrap.dedent(code), module, json.dumps(names), json.dumps(texts))
    )


def test_no_name_is_asked_of_apples_module_that_it_lacks() -> None:
    assert missing("mps", [n for n in dir(torch.mps) if not n.startswith("_")]) == {}


def test_no_name_is_asked_of_a_module_that_has_none() -> None:
    assert missing("sim", []) == {}


LARGE = ("transformers", "peft", "lightning", "deepspeed", "torchmetrics")  # make test-libraries


def packages_fail(package: str, folder: Path, *, fault: bool = False) -> dict[str, str]:
    """Modules of a package that were converted, and ask Apple's module for what it lacks."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    shutil.copytree(Path(found.origin).parent, folder / package)
    result = engine.run([folder / package], Settings())
    names = []
    for file in result.files:
        assert file.status in ("converted", "unchanged", "unparsable"), file
        if file.changed and file.path.endswith(".py"):
            text = file.after + ("\ntorch.get_device_module().nothing()\n" if fault else "")
            (folder / package / file.path).write_text(text, encoding="utf-8")
            names.append(".".join([package, *Path(file.path).with_suffix("").parts]))
    code = """
        import json, sys
        sys.path[:0] = [sys.argv[1], sys.argv[2]]
        import stand_in
        stand_in.only("mps", json.loads(sys.argv[3]))
        names = json.loads(sys.argv[4])
        failed = stand_in.imported([n.removesuffix(".__init__") for n in names])
        print(json.dumps([failed, stand_in.others]))
    """
    apples = [n for n in dir(torch.mps) if not n.startswith("_")]
    said = run(textwrap.dedent(code), str(folder), json.dumps(apples), json.dumps(names))
    failed, others = json.loads(said.splitlines()[-1])
    assert len(names) > len(others), others
    return failed  # type: ignore[no-any-return]


def test_a_converted_package_asks_apples_module_for_nothing_that_it_lacks(tmp_path: Path) -> None:
    assert packages_fail("accelerate", tmp_path) == {}


def test_a_package_that_asks_for_too_much_is_found(tmp_path: Path) -> None:
    assert packages_fail("accelerate", tmp_path, fault=True)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("package", LARGE)
def test_large_packages_ask_apples_module_for_nothing_that_it_lacks(
    package: str, tmp_path: Path
) -> None:
    assert packages_fail(package, tmp_path) == {}
