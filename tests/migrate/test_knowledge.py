"""What is known of torch's names agrees with the torch that is installed."""

from __future__ import annotations

import importlib
import re
import tomllib
import types
from pathlib import Path

import pytest
import torch

from causeway.migrate import knowledge, vendors
from causeway.migrate.finding import FileInput
from causeway.migrate.python import _CONCERNS, convert, convert_source
from causeway.migrate.rules import RULES
from causeway.migrate.settings import Settings
from causeway.migrate.systems import rules as systems

SUBMODULES = ("amp", "nvtx", "profiler", "comm", "nccl", "sparse", "gds", "tunable")
IMPORTED = {"contextlib", "contextmanager", "check_error", "cudart", "collections", "warnings",
            "Sequence", "torch", "Callable", "Storage", "os", "sys", "concurrent", "glob", "mp",
            "shutil", "autocast_mode", "common", "grad_scaler", "Iterator",
            "NamedTuple"}  # fmt: skip


def exists(name: str) -> bool:
    parts = name.split(".")
    found: object = importlib.import_module(parts[0])
    for part in parts[1:]:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def test_every_public_name_of_torch_cuda_is_known() -> None:
    names = {f"torch.cuda.{n}" for n in dir(torch.cuda) if not n.startswith("_")}
    for module in SUBMODULES:
        found = importlib.import_module(f"torch.cuda.{module}")
        names |= {
            f"torch.cuda.{module}.{n}"
            for n in dir(found)
            if not n.startswith("_") and n not in IMPORTED
        }
    assert not sorted(names - set(knowledge.apis())), "names that nobody classified"


def test_every_replacement_exists_in_the_installed_torch() -> None:
    assert [a.to for a in knowledge.apis().values() if a.to and not exists(a.to)] == []


def test_replacements_are_no_younger_than_the_oldest_torch_that_is_supported() -> None:
    def release(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(".")))

    young = [a.name for a in knowledge.apis().values() if a.since and release(a.since) > (2, 11)]
    assert young == []
    assert all(a.since for a in knowledge.apis().values() if a.to)


def test_names_asked_of_the_device_module_exist_on_the_simulated_chip() -> None:
    missing = [
        api.name
        for api in knowledge.apis().values()
        if api.action == "module" and not exists(api.name.replace("torch.cuda", "torch.sim"))
    ]
    # What it lacks is named in docs/device.md with the reason.
    assert all(knowledge.apis()[name].status == "limited" for name in missing)
    assert len(missing) <= 12, missing


@pytest.mark.parametrize("name", sorted(knowledge.apis()))
def test_a_name_is_spelled_out_as_its_entry_says(name: str) -> None:
    api = knowledge.apis()[name]
    assert api.rule in RULES
    assert api.tip
    after, findings = convert_source(f"import torch\n\nf = {name}\n", Settings())
    if api.action == "rename":
        assert api.to in after
    if api.action == "module":
        short = name.removeprefix("torch.cuda.")
        wanted = f'getattr(torch.get_device_module(), "{short}", '
        assert (wanted if api.lacking else f"torch.get_device_module().{short}") in after
    if api.action in ("keep", "manual"):
        assert name in after
    if api.status != "internal":
        assert findings, "nothing was said about it"


@pytest.mark.parametrize("device", ["cpu", "mps", "mtia", "xpu"])
def test_modules_of_devices_have_the_names_that_the_table_gives_them(device: str) -> None:
    module = importlib.import_module(f"torch.{device}")
    table = tomllib.loads((Path(knowledge.__file__).parent / "knowledge/modules.toml").read_text())
    younger = table[device].get("younger", ())
    for api in knowledge.apis().values():
        name = api.name.removeprefix("torch.cuda.")
        if api.status != "internal" and "." not in name:
            listed = device not in knowledge.lacking(name)
            if listed or torch.__version__.startswith("2.13"):
                assert hasattr(module, name) == (listed or name in younger), name


@pytest.mark.parametrize("device", ["cpu", "mps", "mtia", "xpu"])
def test_what_stands_in_where_a_module_lacks_a_name_can_be_called(device, monkeypatch) -> None:
    """By a stand-in with the names of that module: the real ones need their devices."""
    module = importlib.import_module(f"torch.{device}")
    bare = types.SimpleNamespace(**{n: lambda *_: "its own" for n in vars(module)})
    monkeypatch.setattr(torch, "get_device_module", lambda *_: bare)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda *_: None)
    called = 0
    for api in knowledge.apis().values():
        name = api.name.removeprefix("torch.cuda.")
        if not api.lacking or hasattr(bare, name):
            continue
        one = name in ("set_rng_state", "set_rng_state_all", "stream", "StreamContext", "device")
        body = f"import torch\n\nresult = {api.name}({'[]' if one else ''})\n"
        if api.action != "module" and not one:
            continue  # a rule of its own, which writes the name only behind a question
        exec(convert_source(body, Settings())[0], {})
        called += 1
    assert called > 0 or device == "xpu"


def test_every_name_that_a_conversion_writes_exists() -> None:
    """Convert each name in a call, and look all names of torch up that come out."""
    for api in knowledge.apis().values():
        after, _ = convert_source(f"import torch\n\n{api.name}(x)\n", Settings())
        for name in re.findall(r"\btorch(?:\.\w+)+", after.partition("\n\n")[2]):
            if name != api.name:
                assert exists(name), f"{api.name} became {name}"


def test_the_filter_of_bytes_lets_through_whatever_a_rule_looks_for() -> None:
    packages = [p.only or p.name for p in knowledge.packages().values()]
    for name in (*knowledge.apis(), *packages):
        assert _CONCERNS.search(f"import {name}".encode()), name
    for rule in RULES.values():
        result = convert(FileInput("x.py", rule.before.encode()), Settings())
        assert result.findings, rule.code


def test_packages_are_found_as_names_and_messages_have_them() -> None:
    words = re.compile(rf"\b(?:{vendors.words('kernels', 'named')})\b", re.I)
    for text in ("flash_attn", "FlashAttention needs CUDA", "use flash-attn", "bnb", "Apex"):
        assert words.search(text), text
    for text in ("flash", "attention", "engine", "inapexible", "cudnn"):
        assert not words.search(text), text


def test_notes_and_packages_name_rules_and_alternatives() -> None:
    assert all(note.tip and note.rule in RULES for note in knowledge.notes().values())
    for package in knowledge.packages().values():
        assert package.alternative
        assert package.rule in RULES
        assert package.effort in ("hours", "days", "weeks")


def test_docs_have_a_page_for_each_rule() -> None:
    from causeway.migrate import docs

    folder = Path(__file__).parents[2] / "docs" / "rules"
    pages = docs.pages()
    assert {f"{code}.md" for code in RULES | systems.RULES} <= set(pages)
    for name, text in pages.items():
        assert (folder / name).read_text(encoding="utf-8") == text, "run `make docs`"


def test_the_example_of_the_docs_is_what_comes_out() -> None:
    page = (Path(__file__).parents[2] / "docs" / "migrate.md").read_text(encoding="utf-8")
    before, after, theirs, ours, kept = re.findall(r"```py(?:thon)?\n(.*?)```", page, re.S)
    assert convert_source(before, Settings())[0] == after
    assert convert_source(theirs, Settings())[0] == ours
    assert convert_source(kept, Settings())[0] == kept
