"""Where a name of CUDA's goes decides what it is: a device, a word of a report, a case of a test."""

# Programs are read best a line a line.
# ruff: noqa: E501

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from causeway.migrate.engine import run
from causeway.migrate.python import convert_source
from causeway.migrate.settings import Settings

HEAD = "import torch\n"
PICK = 'def pick():\n    if torch.cuda.is_available():\n        return "cuda"\n    return "cpu"\n'


def convert(text: str, path: str = "example.py") -> str:
    after = convert_source(text, Settings(), path=path)[0]
    assert convert_source(after, Settings(), path=path)[0] == after, "a second run changes it"
    return after


def tree(folder: Path, files: dict[str, str]) -> dict[str, str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {file.path: file.after or files[file.path] for file in run([folder], Settings()).files}


# -- what a function returns

PLACES = {
    "a method that moves": "def f(model):\n    return model.to(pick())\n",
    "torch.device": "def f():\n    return torch.device(pick())\n",
    "where a checkpoint is loaded to": "def f(path):\n    return torch.load(path, map_location=pick())\n",
    "an argument called device": "def f():\n    return torch.ones(2, device=pick())\n",
    "a variable called so": "def f():\n    device = pick()\n    return make(device)\n",
    "a variable that is moved to": "def f(model):\n    where = pick()\n    return model.to(where)\n",
    "a variable of a variable": "def f(model):\n    a = pick()\n    b = a\n    return model.to(b)\n",
    "another function": "def again():\n    return pick()\ndef f(model):\n    return model.to(again())\n",
    "a choice": "def f(model, given):\n    return model.to(given or pick())\n",
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_what_a_function_returns_is_a_device_by_where_it_goes(place: str) -> None:
    after = convert(HEAD + PICK + PLACES[place])
    assert '"cuda"' not in after
    assert "torch.cuda" not in after
    assert "return accelerator.type" in after or "current_accelerator().type" in after


def test_what_a_method_returns_is_a_device_by_where_it_goes() -> None:
    method = 'class A:\n    def where(self):\n        return "cuda"\n    def load(self, model):\n        return model.to(self.where())\n'
    assert '"cuda"' not in convert(HEAD + method)
    other = method.replace("model.to(self.where())", "self.table[self.where()]")
    assert convert(HEAD + other) == HEAD + other


@pytest.mark.parametrize(
    "use",
    [
        "",
        "print(pick())\n",
        "def f(table):\n    return table[pick()]\n",
        "def f(log):\n    kind = pick()\n    log.info(f'runs on {kind}')\n",
    ],
)
def test_what_is_only_shown_or_looked_up_stays(use: str) -> None:
    assert convert(HEAD + PICK + use) == HEAD + PICK + use


def test_a_function_that_calls_itself_is_followed_once() -> None:
    text = 'def pick(n):\n    return pick(n - 1) if n else "cuda"\n'
    assert convert(HEAD + text) == HEAD + text
    assert '"cuda"' not in convert(HEAD + text + "def f(model):\n    model.to(pick(2))\n")


def test_a_comparison_with_what_is_returned_goes_with_it() -> None:
    asks = "def f(model):\n    model.to(pick())\n    if pick() == 'cuda':\n        torch.cuda.synchronize()\n    d = pick()\n    return d == 'cuda'\n"
    after = convert(HEAD + PICK + asks)
    assert 'pick() == accelerator.type != "cpu"' in after.replace("'", '"')
    assert 'd == accelerator.type != "cpu"' in after.replace("'", '"')
    assert "torch.accelerator.synchronize()" in after


def test_what_another_module_puts_tensors_on_is_a_device(tmp_path: Path) -> None:
    train = "import torch\nimport utils\nmodel.to(utils.pick())\nif utils.pick() == 'cuda':\n    torch.cuda.synchronize()\n"
    after = tree(tmp_path, {"utils.py": HEAD + PICK, "train.py": train})
    assert '"cuda"' not in after["utils.py"]
    assert "'cuda'" not in after["train.py"]
    shows = "import utils\nprint(utils.pick())\n"
    after = tree(tmp_path, {"utils.py": HEAD + PICK, "train.py": shows})
    assert after["utils.py"] == HEAD + PICK


# -- what a report says

REPORT = """\
import sys
champion_device = "cuda"
for entry in read(sys.argv[1]):
    device = entry.get("device", "cuda")
    print(f"{device:>5s}")
    champion_device = device
print("the best was", champion_device)
"""


def test_a_report_of_other_programs_keeps_their_device_and_needs_no_torch() -> None:
    assert convert(REPORT) == REPORT
    moves = REPORT.replace('print("the best was", champion_device)', "train(champion_device)")
    assert "import torch" in convert(moves)


def test_a_device_with_a_rank_behind_it_is_no_text() -> None:
    text = 'import sys\ndevice = "cuda"\nother_device = "cuda"\nstart(f"{device}:{sys.argv[1]}", other_device)\n'
    assert '"cuda"' not in convert(text)


# -- torch that may be missing

OPTIONAL = """\
import socket


def free(model):
    try:
        import torch
        torch.cuda.empty_cache()
        return model.to("cuda")
    except ImportError:
        return None


def name(given="cuda"):
    primary = "cuda" if "cuda" in given else "cpu"
    return f"{socket.gethostname()}-{primary}"


def pick(device="cuda"):
    return place(device=device)
"""


def test_a_module_that_does_without_torch_still_does(monkeypatch: pytest.MonkeyPatch) -> None:
    after = convert(OPTIONAL)
    assert "model.to(accelerator)" in after  # torch is there in that function
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        monkeypatch.setitem(sys.modules, name, None)
    space: dict[str, object] = {}
    exec(after, space)
    assert space["free"](None) is None  # type: ignore[operator]


def test_a_module_whose_handler_ends_needs_torch() -> None:
    text = OPTIONAL.replace("return None", "raise")
    assert "device=accelerator.type" in convert(text)


LAZY = """\
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Preprocessor:
    def __init__(self, device_type: str = "gpu"):
        import torch

        if device_type == "cpu" or not torch.cuda.is_available():
            self.device = torch.device("cpu")
        else:
            self.device = torch.device(f"cuda:{torch.cuda.current_device()}")

    def of(self, x: "torch.Tensor"):
        import torch

        return x.cuda().type(torch.cuda.FloatTensor), torch.zeros(2).cuda(), x.is_cuda
"""


def test_a_module_that_imports_torch_for_types_alone_does_not_load_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    after = convert(LAZY)
    assert "cuda" not in after
    monkeypatch.setitem(sys.modules, "torch", None)
    exec(after, {"__name__": "preprocessor"})


def test_a_tree_that_does_without_torch_keeps_modules_that_load_it_late(tmp_path: Path) -> None:
    late = 'def f(device="cuda"):\n    import torch\n    if device == "cuda":\n        torch.cuda.synchronize()\n    return torch.zeros(2).cuda(), device\n'
    guard = "try:\n    import torch\nexcept ImportError:\n    torch = None\n"
    after = tree(tmp_path / "a", {"depth.py": late, "shapes.py": guard})["depth.py"]
    assert after.startswith('def f(device="cuda"):\n    import torch\n    accelerator = ')
    assert 'device == "cuda"' in after  # as its default
    assert "torch.zeros(2).to(accelerator)" in after
    ends = guard.replace("torch = None", "raise SystemExit from None")
    after = tree(tmp_path / "b", {"depth.py": late, "shapes.py": ends})["depth.py"]
    assert "def f(device=accelerator.type):" in after


def test_a_module_that_takes_torch_in_a_branch_does_not_load_it() -> None:
    text = "def f(given, x):\n    if given:\n        import torch as th\n        x = th.zeros(2).cuda()\n    return x.cuda()\n"
    after = convert(text)
    assert "\nimport torch\n" not in f"\n{after}"
    assert "th.zeros(2).to(accelerator)" in after


def test_a_device_that_is_needed_before_torch_is_imported_has_its_line_above() -> None:
    text = "import math\n\nif __name__ == '__main__':\n    model = Net().cuda()\n    import torch\n    x = torch.ones(2).cuda()\n"
    after = convert(text)
    line = after.index("accelerator = torch.accelerator")
    assert after.index("import torch") < line < after.index("__main__")


# -- packages for CUDA by a switch

SWITCH = "try:\n    from mamba_ssm import Mamba\n    FAST = True\nexcept ImportError:\n    FAST = False\n"


@pytest.mark.parametrize(
    "use",
    [
        "def f(x, scan):\n    if FAST and x.is_cuda:\n        return Mamba(x)\n    return scan(x)\n",
        "class A:\n    def __init__(self):\n        self.fast = FAST and torch.cuda.is_available()\n",
        "if not torch.cuda.is_available():\n    raise SystemExit(2)\nif not FAST:\n    raise SystemExit(2)\n",
        "import sys\nif not FAST:\n    sys.exit(2)\nif not torch.cuda.is_available():\n    print('no GPU')\n    sys.exit(2)\n",
    ],
)
def test_a_question_stays_beside_a_switch_for_a_package_of_cudas(use: str) -> None:
    assert convert(HEAD + SWITCH + use) == HEAD + SWITCH + use
    einops = SWITCH.replace("mamba_ssm", "einops").replace("Mamba", "rearrange")
    text = HEAD + einops + use.replace("Mamba", "rearrange")
    assert convert(text) != text


# -- tests

STAND_IN = """\
import pytest
import torch
from unittest.mock import patch


@pytest.fixture(params=["cuda", "cpu"])
def mock_device(request):
    if request.param == "cuda":
        with patch("torch.Tensor.cuda", new=lambda self: self):
            yield "cuda"
    else:
        yield "cpu"


def test_it(mock_device):
    if mock_device == "cuda":
        assert loss.cuda().device.type == "cuda"
    loss.to(mock_device)
"""
REAL = "\n\ndef test_real():\n    torch.ones(2, device='cuda')\n"


def test_a_fixture_with_a_stand_in_for_cuda_stays_with_the_tests_that_it_serves() -> None:
    assert convert(STAND_IN, "test/test_loss.py") == STAND_IN
    after = convert(STAND_IN + REAL, "test/test_loss.py")
    assert "device=accelerator" in after
    assert 'params=["cuda", "cpu"]' in after
    assert 'mock_device == "cuda"' in after


@pytest.mark.parametrize(
    "cases",
    [
        '@pytest.mark.parametrize("device", ["cpu", {}])\ndef test_a(device):\n    torch.ones(2, device=device)\n',
        'device_params = ["cpu", {}]\n\n\n@pytest.mark.parametrize("d", device_params)\ndef test_a(d):\n    torch.ones(2, device=d)\n',
        '@pytest.fixture(params=["cpu", {}])\ndef device(request):\n    return request.param\n',
    ],
)
def test_a_case_of_a_test_is_converted_with_its_mark(cases: str) -> None:
    case = 'pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="none"))'
    after = convert("import pytest\nimport torch\n\n" + cases.format(case))
    assert "pytest.param(accelerator.type, marks=" in after
    assert "torch.accelerator.is_available()" in after


def test_what_is_added_to_a_list_of_devices_is_one() -> None:
    text = 'devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])\n'
    assert '"cuda"' not in convert(HEAD + text)
    of_words = text.replace("devices", "kinds").replace('"cpu"', '"jit"')
    assert convert(HEAD + of_words) == HEAD + of_words


# -- what stays with what, all or nothing


def test_a_question_that_an_import_brings_goes_with_what_is_behind_it() -> None:
    text = "def f(x):\n    from torch.cuda import is_available\n    there = is_available()\n    if there:\n        x = x.cuda()\n    return x\n"
    assert "cuda" not in convert(HEAD + text)


def test_a_name_beside_a_question_that_is_denied_stays_with_it() -> None:
    text = 'def f(torch: Any, device):\n    if device.type == "cuda" and not torch.cuda.is_available():\n        raise RuntimeError("no CUDA")\n'
    assert convert(text) == text


def test_a_number_as_a_text_is_another_librarys_device() -> None:
    text = 'def f():\n    return "0" if torch.cuda.is_available() else "cpu"\n'
    assert convert(HEAD + text) == HEAD + text
    assert "torch.accelerator" in convert(HEAD + text.replace('"0"', "0"))


def test_what_is_shown_beside_a_label_is_a_report() -> None:
    text = 'def show(log):\n    if torch.cuda.is_available():\n        log.pair("CUDA version", torch.version.cuda)\n        log.pair("GPU count", torch.cuda.device_count())\n'
    assert convert(HEAD + text) == HEAD + text
    used = text.replace('log.pair("GPU count", ', 'args.set("count", ')
    assert convert(HEAD + used) != HEAD + used


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return torch.cuda.is_available()  # Only True for CUDA, not MPS\n",
        "def f():\n    # Only beneficial for CUDA\n    pinned = torch.cuda.is_available()\n    return pinned\n",
        'def f(d):\n    word = "gpu" if torch.cuda.is_available() and d.type == "cuda" else "cpu"\n    return Trainer(accelerator=word)\n',
    ],
)
def test_a_question_for_cuda_alone_stays_by_its_comment_or_lightnings_word(text: str) -> None:
    assert convert(HEAD + text) == HEAD + text


def test_a_question_beside_other_comments_and_words_is_converted() -> None:
    text = 'def f():\n    there = torch.cuda.is_available()  # CUDA, or the CPU\n    word = "gpu" if torch.cuda.is_available() else "cpu"\n    return there, use(mode=word)\n'
    assert "torch.cuda" not in convert(HEAD + text)


def test_a_backend_of_a_runtime_for_cuda_stays() -> None:
    text = 'def f(rank):\n    from sglang.srt import distributed as d\n    d.init(rank, "nccl")\n    d.start(1, backend="nccl")\n'
    assert convert(HEAD + text) == HEAD + text


def test_a_class_that_is_registered_by_its_name_stays_a_class() -> None:
    text = "import torch.cuda.amp as amp\nfrom core import register\nScaler = register()(amp.GradScaler)\n"
    assert convert(text) == text


def test_a_seed_as_a_whole_number_is_the_same_seed() -> None:
    text = "def f(seed):\n    torch.manual_seed(int(seed))\n    torch.cuda.manual_seed_all(int(seed))\n"
    assert "cuda" not in convert(HEAD + text)


def test_a_list_of_cudas_devices_that_a_report_shows_stays() -> None:
    text = """\
def info():
    cuda_available = bool(torch.cuda.is_available())
    count = int(torch.cuda.device_count()) if cuda_available else 0
    names = []
    for i in range(count):
        try:
            names.append(torch.cuda.get_device_name(i))
        except RuntimeError:
            names.append(f"cuda:{i}")
    return {"cuda_available": cuda_available, "cuda_device_count": count, "cuda_devices": names}
"""
    assert convert(HEAD + text) == HEAD + text
    moves = text.replace('"cuda_devices": names', '"models": [net.to(name) for name in names]')
    assert convert(HEAD + moves) != HEAD + moves


# -- autocast


def test_autocasts_options_in_a_dictionary_stay_off_on_the_cpu() -> None:
    text = 'def options(amp):\n    return {"device_type": "cuda", "enabled": amp or 1, "dtype": torch.half}\n'
    after = convert(HEAD + text)
    assert '"enabled": (amp or 1) and accelerator.type != "cpu"' in after


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ('device == "cuda"', 'device == accelerator.type != "cpu"'),
        ('amp and x.device.type == "cuda"', 'amp and x.device.type == accelerator.type != "cpu"'),
        ("torch.cuda.is_available()", "torch.accelerator.is_available()"),
        (
            'device != "cuda"',
            'not device == accelerator.type != "cpu" and accelerator.type != "cpu"',
        ),
        ("amp", 'amp and accelerator.type != "cpu"'),
    ],
)
def test_an_autocast_that_asks_for_the_device_is_asked_once(given: str, after: str) -> None:
    text = f'def f(x, device, amp):\n    with torch.autocast("cuda", enabled={given}):\n        return x\n'
    assert f"enabled={after}):" in convert(HEAD + text)
