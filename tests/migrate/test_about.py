"""Parts that are about CUDA itself stay whole; what trains a model is converted whole as before."""

# Programs are read best a line a line.
# ruff: noqa: E501

from __future__ import annotations

import ast

import pytest

from causeway.migrate.python import convert_source
from causeway.migrate.settings import Settings

HEAD = "import torch\n\n"
_LEFT = "about CUDA itself"

# Each is changed with `about_cuda`, and not without.
STAYS = {
    "a check of the environment": """\
def environment():
    info = {"cuda": torch.version.cuda}
    info["torch.cuda.available"] = str(torch.cuda.is_available())
    if torch.cuda.is_available():
        info["torch.cuda.device_name"] = torch.cuda.get_device_name(0)
    return info
""",
    "an answer beside another spelling of the version": """\
def environment():
    info = {}
    info["cuda_version"] = getattr(getattr(torch, "version", None), "cuda", None)
    info["cuda_available"] = bool(torch.cuda.is_available())
    if torch.cuda.is_available():
        info["gpu"] = torch.cuda.get_device_name(0)
    return info
""",
    "a message that names CUDA, and its question": """\
def show(log):
    if not torch.cuda.is_available():
        log.info("runs on the CPU, slowly")
    else:
        name = torch.cuda.get_device_name(0)
        log.info(f"CUDA available: {name}")
""",
    "a check that tries CUDA once": """\
def check(results):
    if not torch.cuda.is_available():
        return
    results.append(f"CUDA {torch.version.cuda}")
    results.append(f"cuDNN {torch.backends.cudnn.version()}")
    x = torch.zeros(1).cuda()
""",
    "memory, where the driver is asked too": """\
def memory():
    if torch.cuda.is_available():
        return torch.cuda.mem_get_info(0)[1]
    return run(["nvidia-smi", "--query-gpu=memory.total"])
""",
    "a type for CTranslate2": """\
def kind(device, provider):
    if provider in CTRANSLATE2_PROVIDERS:
        if device != "cuda":
            return "auto"
        return "float16"
    return "float16" if device in ("cuda", "mps") else "float32"
""",
    "a kernel of Triton's, imported behind the question": """\
def pack(k, scale):
    if k.shape[1] == 1 and k.is_cuda:
        from kernels.triton_pack import pack_one
        return pack_one(k, scale)
    return torch.round(k / scale)
""",
    "the same by a name": """\
def pack(k, scale):
    use_kernel = k.shape[1] == 1 and k.is_cuda
    if use_kernel:
        from kernels.triton_pack import pack_one
        return pack_one(k, scale)
    return torch.round(k / scale)
""",
    "an operator that torch has for CUDA": """\
fused = torch.ops.aten._addmm_activation

def linear(layer, x):
    if x.device.type != "cuda":
        return torch.relu(layer(x))
    return fused(layer.bias, x, layer.weight.t(), use_gelu=False)
""",
}  # fmt: skip

# As much is changed without `about_cuda` as with it.
GOES = {
    "a training script that shows its device": """\
def main(data):
    print("CUDA available:", torch.cuda.is_available())
    print("version", torch.version.cuda)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Linear(2, 2).to(device)
    for x in data:
        model(x.cuda()).sum().backward()
""",
    "a branch that chooses the device, and says CUDA": """\
def choose():
    if torch.cuda.is_available():
        print(f"CUDA device: {torch.cuda.get_device_name(0)}")
        device = torch.device("cuda")
    else:
        device = torch.device("cpu")
    return device
""",
    "a branch that sets what the program does": """\
def choose(args):
    if torch.cuda.is_available():
        print(f"CUDA device: {torch.cuda.get_device_name(0)}")
        args.parallel = True
""",
    "arguments of a trainer beside a message": """\
def arguments():
    print(f"CUDA {torch.version.cuda}")
    return dict(fp16=torch.cuda.is_available())
""",
    "memory": """\
def free():
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    print(f"CUDA memory: {torch.cuda.memory_allocated()}")
""",
    "a run that shows one answer, and gives memory back": """\
def run(make):
    print("CUDA available:", torch.cuda.is_available())
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    return make()
""",
    "states of generators": """\
def states():
    return {"torch_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}
""",
    "a state that is compared before it is set, with CUDA's name in the error": """\
def restore(states):
    if not torch.cuda.is_available():
        raise RuntimeError("CUDA is not there")
    if len(states) != torch.cuda.device_count():
        raise RuntimeError(f"CUDA devices: {torch.cuda.device_count()}")
    torch.cuda.set_rng_state_all(states)
""",
    "a name that one import brings": """\
from torch.cuda import is_available

def shown():
    print("CUDA", torch.version.cuda, is_available())

def device():
    return is_available()
""",
}  # fmt: skip

TESTS = {
    "a comparison": """\
def test_a(model):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA")
    model.request = torch.device("cuda")
    assert model.detect() == "cuda:0"
""",
    "what a method is called with": """\
class TestA:
    def setUp(self):
        self.device = torch.device("cuda")

    def test_a(self, net):
        net.to.assert_called_with("cuda:1")
""",
    "a stand-in": """\
def test_a(mock_cuda_unavailable):
    assert Model(device=torch.device("cuda")).detect() == "cpu"
""",
}


def changed(text: str, *, path: str = "example.py", about_cuda: bool = False) -> str:
    after, findings = convert_source(HEAD + text, Settings(about_cuda=about_cuda), path=path)
    ast.parse(after)
    assert convert_source(after, Settings(about_cuda=about_cuda), path=path)[0] == after
    if about_cuda:
        assert not any(_LEFT in f.message for f in findings)
    return after


@pytest.mark.parametrize("what", STAYS)
def test_a_part_about_cuda_stays_whole_unless_asked_for(what: str) -> None:
    text = STAYS[what]
    assert changed(text) == HEAD + text
    assert changed(text, about_cuda=True) != HEAD + text


@pytest.mark.parametrize("what", GOES)
def test_what_only_names_cuda_is_converted_as_before(what: str) -> None:
    text = GOES[what]
    assert changed(text) == changed(text, about_cuda=True)


@pytest.mark.parametrize("what", GOES)
def test_what_is_converted_as_before_is_converted(what: str) -> None:
    assert changed(GOES[what]) != HEAD + GOES[what]


@pytest.mark.parametrize("what", TESTS)
def test_a_test_that_expects_cudas_names_stays(what: str) -> None:
    text = TESTS[what]
    assert changed(text, path="test_a.py") == HEAD + text
    assert changed(text, path="test_a.py", about_cuda=True) != HEAD + text
    assert changed(text, path="tool.py") != HEAD + text or what == "what a method is called with"


def test_a_test_of_where_a_tensor_is_converts_with_it() -> None:
    text = 'def test_a(x):\n    y = x.cuda()\n    assert str(y.device) == "cuda:0"\n'
    assert ".cuda()" not in changed(text, path="test_a.py")


def test_what_stays_is_reported_by_hand_with_the_reason() -> None:
    text = HEAD + STAYS["a check of the environment"]
    found = [f for f in convert_source(text, Settings())[1] if _LEFT in f.message]
    assert {f.kind for f in found} == {"manual"}
    assert all("about CUDA itself: torch." in f.message for f in found)
    assert all("--about-cuda" in f.tip for f in found)


def test_a_function_that_trains_beside_a_check_is_converted() -> None:
    text = (
        STAYS["a check of the environment"] + "\ndef train(model, x):\n    model.cuda()(x.cuda())\n"
    )
    after = changed(text)
    assert STAYS["a check of the environment"] in after
    assert "model.to(accelerator)(x.to(accelerator))" in after


def test_a_layer_beside_a_shown_name_is_converted() -> None:
    show = 'if torch.cuda.is_available():\n    print(f"CUDA device: {torch.cuda.get_device_name(0)}")\n'
    text = f"{show}\ndef forward(x):\n    torch.cuda.synchronize()\n    return x\n"
    after = changed(text)
    assert show in after
    assert (
        "    if torch.accelerator.is_available():\n        torch.accelerator.synchronize()" in after
    )


@pytest.mark.parametrize(
    "value",
    [
        '"cuda"',
        'torch.device("cuda:0")',
        'torch.device("cuda" if torch.cuda.is_available() else "cpu")',
    ],
)
def test_a_device_that_functions_use_is_converted_whatever_is_shown_first(value: str) -> None:
    shown = "print(torch.version.cuda)\n" * 9
    text = f"{shown}device = {value}\n\ndef train(model, x):\n    model.to(device)(x.to(device)).backward()\n"
    after = changed(text)
    assert "torch.version.cuda" in after
    assert "def train" in after
    assert f"device = {value}" not in after


def test_an_answer_that_others_go_by_is_converted_with_what_is_said() -> None:
    check = 'def check():\n    if torch.cuda.is_available():\n        print("CUDA is available")\n        return True\n    return False\n'
    after = changed(
        f"{check}\ndef f(model, x):\n    if check():\n        model.cuda()\n    return model(x.cuda())\n"
    )
    assert "if torch.accelerator.is_available()" in after
    assert "cuda" not in after.lower().replace('"cuda is available"', "")


def test_a_name_that_one_import_brings_means_one_thing() -> None:
    text = HEAD + GOES["a name that one import brings"]
    assert not any(_LEFT in f.message for f in convert_source(text, Settings())[1])


def test_a_variable_of_a_part_that_stays_is_no_device_for_others() -> None:
    checks = "print(torch.version.cuda, torch.backends.cudnn.version())\n"
    text = f'device = torch.device("cuda")\n{checks}\ndef move(x):\n    return x.cuda()\n'
    after = changed(text)
    assert 'device = torch.device("cuda")' in after
    assert "x.to(accelerator)" in after


def test_a_vendors_names_are_written_everywhere() -> None:
    text = HEAD + STAYS["a check of the environment"]
    after, _ = convert_source(text, Settings(target="npu"))
    assert "torch.npu.is_available()" in after


def test_another_systems_name_among_those_of_others_stays() -> None:
    text = (
        'def f(ids):\n    is_mps = ids.device.type == "mps"\n    is_npu = ids.device.type == "npu"\n'
        "    return torch.float32 if is_mps or is_npu else torch.float64\n"
    )
    assert changed(text) == HEAD + text
