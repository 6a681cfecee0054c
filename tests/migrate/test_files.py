"""Scripts, configurations, requirements: what becomes another text, and what must not."""

# Tables of text are read best a row a line.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.migrate import engine, finding, knowledge
from causeway.migrate.files import packages, rules
from causeway.migrate.files.cuda_source import estimate
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings

FLAGS = frozenset({"--no-cuda"})  # as if a script of the tree had it


def convert(path: str, text: str, target: str = "portable", *, unsafe: bool = False) -> FileResult:
    converter = finding.converter(path)
    assert converter is not None
    given = FileInput(path, text.encode(), flags=FLAGS)
    result = converter(given, Settings(target=target, unsafe=unsafe))
    assert result.status in ("converted", "unchanged"), result.reason
    assert result.before == text
    again = converter(
        FileInput(path, result.after.encode()), Settings(target=target, unsafe=unsafe)
    )
    assert again.after == result.after, "a second run changes it again"
    for found in result.findings:
        assert found.tip
        assert found.message
        assert found.rule in rules.RULES
    return result


# path, target, text: nothing changes and nothing is reported
NOOP = [
    ("a.sh", "npu", "python train.py --no-cuda --name barracuda --out runs/cuda\n"),
    ("a.sh", "npu", "# CUDA_VISIBLE_DEVICES=0 python train.py --backend nccl\n"),
    ("a.sh", "npu", "echo 'nvidia-smi --backend nccl CUDA_VISIBLE_DEVICES=0'\n"),
    ("a.sh", "npu", "cat <<EOF\nCUDA_VISIBLE_DEVICES=0 nvidia-smi\nEOF\n"),
    ("a.sh", "npu", "cat <<-'E F'\n\t--backend nccl\n\tE F\n"),
    ("a.sh", "npu", 'MY_CUDA_VISIBLE_DEVICES=0 python "cuda.py" --tag cuda\n'),
    ("a.sh", "npu", "python train.py --backend $BACKEND --device ${DEVICE:-cpu}\n"),
    ("a.sh", "npu", "case $x in cuda) echo cuda;; *) echo nccl;; esac\n"),
    ("a.sh", "npu", 'if [ "$DEVICE" = "cuda" ]; then echo "nvidia-smi"; fi\n'),
    ("a.sh", "npu", "grep -r nccl --include=cuda . | sed s/cuda/npu/\n"),
    ("a.sh", "npu", "python train.py --backend nccl  # causeway: keep\n"),
    ("a.sh", "npu", "export OMP_NUM_THREADS=4 WORLD=$((2 * (3 + 1)))\n"),
    ("a.sh", "npu", "pip install -r requirements-cuda.txt\n"),
    ("a.yaml", "npu", "name: cuda\nrun_id: nccl\ntitle: 'device: cuda'\n"),
    ("a.yaml", "npu", "# device: cuda\ndevice: cpu  # not cuda\n"),
    ("a.yaml", "npu", "note: |\n  device: cuda\n  backend: nccl\n"),
    ("a.yaml", "npu", "device: cuda:0  # causeway: keep\n"),
    ("a.yaml", "npu", "cuda:\n  - nccl\npaths:\n  checkpoint: /data/cuda/device\n"),
    ("a.json", "npu", '{"name": "cuda", "x": ["nccl"], "paths": {"device": "/cuda"}}'),
    ("a.toml", "npu", 'name = "cuda"\ntext = """\ndevice = "cuda"\n"""\n'),
    ("a.ini", "npu", "[cuda]\nname = cuda\n; device = cuda\n"),
    ("requirements.txt", "portable", "torch==2.1.0\nnumpy>=1.20  # +cu121\n-r other.txt\n"),
    ("requirements.txt", "portable", "cudatext-like==1.0\n--index-url https://pypi.org/simple\n"),
    ("Dockerfile", "npu", "FROM python:3.11\n# FROM nvidia/cuda:12\nRUN pip install torch\n"),
    ("a.cpp", "npu", "// cudaMalloc\nint cuda = 1;\n"),
]

# path, target, before, after
CHANGES = [
    (
        "a.sh",
        "npu",
        "CUDA_VISIBLE_DEVICES=0,1  python -m torch.distributed.launch \\\n"
        "    --nproc_per_node=2 train.py --backend 'nccl' --device=cuda:0 # cuda\n",
        "ASCEND_RT_VISIBLE_DEVICES=0,1  python -m torch.distributed.launch \\\n"
        "    --nproc_per_node=2 train.py --backend 'hccl' --device=npu:0 # cuda\n",
    ),
    (
        "a.sh",
        "mlu",
        'export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"; n=$(echo $CUDA_VISIBLE_DEVICES)\n',
        'export MLU_VISIBLE_DEVICES="${MLU_VISIBLE_DEVICES:-0}"; n=$(echo $MLU_VISIBLE_DEVICES)\n',
    ),
    ("a.sh", "npu", "  nvidia-smi\n", "  npu-smi info\n"),
    ("a.sh", "npu", "watch -n 1 nvidia-smi\n", "watch -n 1 npu-smi info\n"),
    ("a.sh", "sim", "CUDA_VISIBLE_DEVICES=1 ./a\n", "CAUSEWAY_VISIBLE_DEVICES=1 ./a\n"),
    ("a.sh", "npu", "CUDA_LAUNCH_BLOCKING=1 x\n", "ASCEND_LAUNCH_BLOCKING=1 x\n"),
    (
        "a.sh",
        "npu",
        "ARGS=\"\n  --dist-backend nccl\n  --lr 1e-3 --device cuda\n\"\nR=(--backend nccl 'cuda')\n",
        "ARGS=\"\n  --dist-backend hccl\n  --lr 1e-3 --device npu\n\"\nR=(--backend hccl 'cuda')\n",
    ),
    (
        "a.sh",
        "npu",
        "bash -c 'CUDA_VISIBLE_DEVICES=0 python a.py --backend nccl'\n",
        "bash -c 'ASCEND_RT_VISIBLE_DEVICES=0 python a.py --backend hccl'\n",
    ),
    (
        "a.sh",
        "npu",
        "python train.py model.device=cuda trainer.accelerator=gpu +dist.backend=cpu:gloo,cuda:nccl\n",
        "python train.py model.device=npu trainer.accelerator=npu +dist.backend=cpu:gloo,npu:hccl\n",
    ),
    (
        "a.sh",
        "portable",
        "torchrun --nproc-per-node gpu a.py trainer.accelerator=gpu\r\n",
        "torchrun --nproc-per-node auto a.py trainer.accelerator=auto\r\n",
    ),
    (
        "a.sh",
        "portable",
        "mpirun -x PYTORCH_CUDA_ALLOC_CONF -np 2 env PYTORCH_CUDA_ALLOC_CONF=a:b python a.py\n",
        "mpirun -x PYTORCH_ALLOC_CONF -np 2 env PYTORCH_ALLOC_CONF=a:b python a.py\n",
    ),
    (
        "a.sh",
        "portable",
        "pip install 'torch==2.1.0+cu121' torchvision==0.16.0+cu121 numpy\n",
        "pip install 'torch==2.1.0' torchvision==0.16.0 numpy\n",
    ),
    (
        "a.yaml",
        "npu",
        '# cuda\ndevice:   "cuda:1"   # the second\nmodel: {map_location: cuda, name: cuda}\r\n'
        "devices: [cuda:0, 'cuda:1']\ndist_params:\n    backend: nccl\n",
        '# cuda\ndevice:   "npu:1"   # the second\nmodel: {map_location: npu, name: cuda}\r\n'
        "devices: [npu:0, 'npu:1']\ndist_params:\n    backend: hccl\n",
    ),
    (
        "a.yaml",
        "npu",
        "base: &b !!str cuda\na:\n  device: &d cuda\nb:\n  device: *d\n--- # second\ndevice: !!str cuda\n",
        "base: &b !!str cuda\na:\n  device: &d npu\nb:\n  device: *d\n--- # second\ndevice: !!str npu\n",
    ),
    (
        "a.yaml",
        "portable",
        "\ufefftrainer:\n  accelerator: gpu\n  devices: 2\n",
        "\ufefftrainer:\n  accelerator: auto\n  devices: 2\n",
    ),
    (
        ".github/workflows/ci.yml",
        "npu",
        "jobs:\n  a:\n    env:\n      CUDA_VISIBLE_DEVICES: '0'\n    steps:\n"
        "    - run: |\n        cat <<EOF\n        nvidia-smi\n        EOF\n"
        "        CUDA_VISIBLE_DEVICES=1 python a.py --backend nccl\n    - run: nvidia-smi\n",
        "jobs:\n  a:\n    env:\n      ASCEND_RT_VISIBLE_DEVICES: '0'\n    steps:\n"
        "    - run: |\n        cat <<EOF\n        nvidia-smi\n        EOF\n"
        "        ASCEND_RT_VISIBLE_DEVICES=1 python a.py --backend hccl\n    - run: npu-smi info\n",
    ),
    (
        "docker-compose.yml",
        "npu",
        "environment:\n  - CUDA_VISIBLE_DEVICES=0\nenv:\n- name: CUDA_VISIBLE_DEVICES\n  value: '1'\n",
        "environment:\n  - ASCEND_RT_VISIBLE_DEVICES=0\nenv:\n- name: ASCEND_RT_VISIBLE_DEVICES\n"
        "  value: '1'\n",
    ),
    ("default.yaml", "mlu", "distributed_type: MULTI_GPU\n", "distributed_type: MULTI_MLU\n"),
    (
        "environment.yml",
        "portable",
        "dependencies:\n  - python=3.9\n  - pip:\n    - torch==2.0.0+cu118  # x\n",
        "dependencies:\n  - python=3.9\n  - pip:\n    - torch==2.0.0  # x\n",
    ),
    (
        "a.json",
        "npu",
        '{\n\t"device" : "cuda:0", "n": 1.50, "dist": {"backend":"nccl"},\n\t"é": "\\u00e9" }',
        '{\n\t"device" : "npu:0", "n": 1.50, "dist": {"backend":"hccl"},\n\t"é": "\\u00e9" }',
    ),
    (
        "a.toml",
        "npu",
        "# cuda\n[train]\ndevice = 'cuda'   # cuda\nbackend=\"nccl\"\n",
        "# cuda\n[train]\ndevice = 'npu'   # cuda\nbackend=\"hccl\"\n",
    ),
    ("a.ini", "npu", "[train]\ndevice: cuda:0 ; x\n", "[train]\ndevice: npu:0 ; x\n"),
    (
        "pyproject.toml",
        "portable",
        '[project]\ndependencies = [\n  "torch==2.1.0+cu121", # a\n  "numpy",\n]\n',
        '[project]\ndependencies = [\n  "torch==2.1.0", # a\n  "numpy",\n]\n',
    ),
    (
        "requirements-dev.txt",
        "portable",
        "torch==2.1.0+cu121 ; python_version > '3.8' \\\n  --hash=sha256:00\ntorchvision === 0.1+cu118\n",
        "torch==2.1.0 ; python_version > '3.8' \\\n  --hash=sha256:00\ntorchvision === 0.1\n",
    ),
]

# path, text, the rule and kind that are reported, what it is about
REPORTS = [
    (  # the listing has ROCm's build of that version too, which pip would take
        "a.sh",
        "pip install torch==1.7.1+cu110 -f https://download.pytorch.org/whl/torch_stable.html\n",
        "CW630",
        "portable",
        "torch",
    ),
    ("a.sh", "CUDA_VISIBLE_DEVICES=0 python a.py\n", "CW601", "manual", "CUDA_VISIBLE_DEVICES"),
    ("a.sh", "export NCCL_DEBUG=INFO\n", "CW602", "portable", "NCCL_DEBUG"),
    ("a.sh", "python a.py --dist_backend nccl\n", "CW603", "manual", "--dist_backend"),
    ("a.sh", "nsys profile -o x python a.py\n", "CW607", "manual", "nsys"),
    ("a.sh", "#!/bin/bash\n#SBATCH --gres=gpu:4\n", "CW608", "manual", "--gres=gpu:4"),
    ("a.sh", "docker run --gpus all img\n", "CW608", "manual", "--gpus"),
    ("a.sh", "pip install flash-attn --no-build-isolation\n", "CW632", "unsupported", "flash-attn"),
    ("a.sh", "conda install -c nvidia pytorch-cuda=11.8\n", "CW633", "manual", "pytorch-cuda"),
    ("a.sh", "module load cuda/11.8\n", "CW607", "manual", "cuda/11.8"),
    ("a.yaml", "device: gpu\n", "CW604", "manual", "device"),
    ("a.yaml", "accelerator: gpu\n", "CW605", "manual", "accelerator"),
    ("a.yaml", "limits:\n  nvidia.com/gpu: 1\n", "CW608", "manual", "nvidia.com/gpu"),
    ("a.yaml", "_target_: torch.cuda.amp.GradScaler\n", "CW609", "manual", "torch.cuda.amp.GradScaler"),
    ("a.yaml", "gpus: 4\n", "CW611", "portable", "gpus"),
    ("environment.yml", "dependencies:\n- cudatoolkit=11.3\n", "CW633", "manual", "cudatoolkit"),
    ("requirements.txt", "nvidia-dali-cuda110\n", "CW632", "unsupported", "nvidia-dali-cuda110"),
    ("requirements.txt", "nvidia-cublas-cu12==12.1\n", "CW633", "manual", "nvidia-cublas-cu12"),
    ("requirements.txt", "git+https://github.com/NVIDIA/apex.git@master\n", "CW632", "unsupported", "apex"),
    ("requirements.txt", "cupy-cuda11x>=12\n", "CW632", "unsupported", "cupy-cuda11x"),
    ("requirements.txt", "--extra-index-url https://download.pytorch.org/whl/cu118\n", "CW631", "manual",
     "https://download.pytorch.org/whl/cu118"),
    ("Dockerfile", "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime AS a\n", "CW640", "manual",
     "pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime"),
    ("Dockerfile", "ENV A=1 \\\n    NVIDIA_VISIBLE_DEVICES=all\n", "CW641", "manual", "NVIDIA_VISIBLE_DEVICES"),
    ("Dockerfile", "RUN pip install torch==2.1.0+cu118 && \\\n    nvcc -V\n", "CW607", "manual", "nvcc"),
    ("k.cu", "__global__ void scale(float* x) { x[0] = 1; }\n", "CW650", "unsupported", "scale"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "target", "text"), NOOP)
def test_a_text_that_only_looks_like_cuda_is_left_alone(path: str, target: str, text: str) -> None:
    result = convert(path, text, target, unsafe=True)
    assert result.after == text
    assert result.findings == []


@pytest.mark.parametrize(("path", "target", "before", "after"), CHANGES)
def test_a_text_is_changed_where_it_names_cuda_and_nowhere_else(
    path: str, target: str, before: str, after: str
) -> None:
    result = convert(path, before, target)
    assert result.after == after
    assert result.status == "converted"
    changed = [f for f in result.findings if f.kind == "changed"]
    assert changed
    lines = before.split("\n")
    for found in changed:  # each says where it is
        begin = lines[found.line - 1][found.column - 1 :]
        assert begin.startswith(found.before.split("\n")[0].rstrip("\r"))


@pytest.mark.parametrize(("path", "text", "rule", "kind", "api"), REPORTS)
def test_what_is_not_changed_is_reported_with_what_to_do(
    path: str, text: str, rule: str, kind: str, api: str
) -> None:
    result = convert(path, text)
    assert result.after == text
    found = [f for f in result.findings if f.rule == rule]
    assert [f.kind for f in found][:1] == [kind]
    assert api in [f.api for f in found]


@pytest.mark.parametrize("code", sorted(rules.RULES))
def test_the_example_of_a_rule_is_true(code: str) -> None:
    rule = rules.RULES[code]
    if not rule.before:
        pytest.skip("its example would be a notebook: test_notebook.py")
    result = convert(rule.path, rule.before, rule.target, unsafe=not rule.safe)
    assert result.after == rule.after
    assert code in {f.rule for f in result.findings}


def test_an_unsafe_change_waits_to_be_asked_for() -> None:
    text = "--extra-index-url https://download.pytorch.org/whl/cu118\n"
    asked = convert("requirements.txt", text, unsafe=True)
    assert asked.after == "--extra-index-url https://download.pytorch.org/whl/cpu\n"
    assert [f.safe for f in asked.findings] == [False]
    assert convert("a.yaml", "backend: 'nccl'\n", unsafe=True).after == "backend: null\n"
    assert convert("a.yaml", "backend: 'nccl'\n").after == "backend: 'nccl'\n"


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("a.sh", "echo a\necho 'never closed\n", 2),
        ("a.yaml", "device: cuda\n  b: [1\n", 2),
        ("a.json", '{"device": "cuda",\n nothing}', 2),
        ("a.toml", 'device = "cuda"\nb = = 2\n', 0),
        ("a.ipynb", '{"cells": [torch', 1),
    ],
)
def test_a_file_that_cannot_be_read_is_said_and_kept(path: str, text: str, line: int) -> None:
    converter = finding.converter(path)
    assert converter is not None
    result = converter(FileInput(path, text.encode()), Settings(target="npu"))
    assert result.status == "unparsable"
    assert result.after == result.before == text
    assert result.reason.startswith(f"line {line}:" if line else "not TOML")


@pytest.mark.timeout(60)  # minutes where each value looks at all keys
@pytest.mark.parametrize(
    ("path", "line"), [("a.json", '"k%d": "cuda%d",'), ("a.yaml", "k%d: cuda%d")]
)
def test_a_vocabulary_is_read_in_time_that_grows_with_its_size(path: str, line: str) -> None:
    text = "\n".join(line % (i, i) for i in range(30000))
    result = convert(path, "{" + text.rstrip(",") + "}" if path == "a.json" else text + "\n")
    assert (result.status, result.findings) == ("unchanged", [])


@pytest.mark.parametrize(
    "path", ["a.sh", "a.yaml", "a.json", "a.ipynb", "requirements.txt", "a.cu"]
)
def test_a_file_in_another_encoding_is_said_and_kept(path: str) -> None:
    converter = finding.converter(path)
    assert converter is not None
    result = converter(FileInput(path, b"cuda \xff\xfe"), Settings())
    assert result.status == "unparsable"
    assert "UTF-8" in result.reason


def test_rules_can_be_left_out() -> None:
    converter = finding.converter("a.sh")
    assert converter is not None
    text = b"CUDA_VISIBLE_DEVICES=0 python a.py --backend nccl\n"
    result = converter(FileInput("a.sh", text), Settings(target="npu", ignore=("CW601",)))
    assert result.after == "CUDA_VISIBLE_DEVICES=0 python a.py --backend hccl\n"


def test_a_cuda_source_is_counted_without_its_comments_and_strings() -> None:
    source = """
// __global__ void no() {}
#include <cublas_v2.h>
#include <thrust/sort.h>
template <typename T>
__global__ void __launch_bounds__(256, 2) scale(T* x) { __shared__ float s[32]; }
static __global__ void add(float* x) { atomicAdd(x, 1.f); }
/* scale<<<1, 2>>>(x); */
void run(float* x) { scale<float><<<1, 2>>>(x); add<<<1, 2>>>(x); puts("<<<"); }
"""
    found = estimate(source)
    assert [name for name, _ in found.kernels] == ["scale", "add"]
    assert found.launches == 2
    assert found.lines == 6
    assert found.libraries == ("thrust", "cuBLAS")
    assert found.medium == ("shared memory", "atomics")
    assert found.effort == "days"
    assert estimate('void f() { asm volatile("mov.u32 %0, %laneid;"); }').effort == "weeks"
    assert estimate("void f() {}").effort == "hours"


@pytest.mark.parametrize("name", ["Flash_Attn", "nvidia-dali-cuda120", "cupy-cuda12x", "mmcv.full"])
def test_a_package_is_known_by_its_name_on_the_index(name: str) -> None:
    package = packages.find(name)
    assert package is not None
    assert package.effort in ("hours", "days", "weeks")
    assert package.alternative


def test_every_module_that_a_package_stands_for_is_in_the_table() -> None:
    assert set(packages._MODULES.values()) <= knowledge.packages().keys()


@pytest.mark.parametrize(
    "name", ["torch", "numpy", "cuda-like", "nvidia", "tritonclient", "apex-x"]
)
def test_a_package_that_only_sounds_like_one_is_not(name: str) -> None:
    assert packages.find(name) is None
    assert not packages.is_part_of_cuda(name)


def test_setup_is_converted_as_python_and_its_requirements_too() -> None:
    text = (
        "from setuptools import setup\nimport torch\n\n"
        'setup(name="torch==2.0+cu118", install_requires=["torch==2.1.0+cu121", "numpy"],\n'
        "      extras_require={'é': ['flash-attn>=2', \"tri\" \"ton\"]}, cuda=torch.cuda.device_count())\n"
    )
    converter = finding.converter("sub/setup.py")
    assert converter is not None
    result = converter(FileInput("sub/setup.py", text.encode()), Settings())
    after = text.replace("2.1.0+cu121", "2.1.0").replace("torch.cuda", "torch.accelerator")
    assert (result.before, result.after, result.status) == (text, after, "converted")
    found = {(f.rule, f.line, f.before) for f in result.findings}
    assert {("CW630", 4, "+cu121"), ("CW632", 5, "flash-attn")} <= found
    again = converter(FileInput("sub/setup.py", after.encode()), Settings())
    assert again.after == after


@pytest.mark.parametrize(
    "text", ["setup(cuda\n", "# é\r\nsetup(install_requires=['torch==1+cu118'])\r\n"]
)
def test_setup_keeps_its_line_ends_and_says_where_it_is_broken(text: str) -> None:
    converter = finding.converter("setup.py")
    assert converter is not None
    result = converter(FileInput("setup.py", text.encode()), Settings())
    assert result.after == text.replace("+cu118", "")
    assert result.status == ("converted" if "cu118" in text else "unparsable")


SCRIPT = """import argparse, torch
p = argparse.ArgumentParser()
p.add_argument("-d", "--device", default="cuda" if torch.cuda.is_available() else "cpu")
p.add_argument("--dist-backend", default="nccl")
p.add_argument("--where", default="cuda")
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("python ../train.py --device cuda --lr 1\n", "python ../train.py --lr 1\n"),
        ("torchrun --nproc_per_node=2 train.py \\\n  --device=cuda \\\n  --lr 1\n",
         "torchrun --nproc_per_node=2 train.py \\\n  --lr 1\n"),
        ("python train.py --lr 1 --dist-backend 'nccl'\n", "python train.py --lr 1\n"),
        # another device, an option that is none of a device's, another script, one said twice
        ("python train.py --device cuda:1\n", None),
        ("python train.py --where cuda\n", None),
        ("python other.py --device cuda\n", None),
        ("python train.py --device cpu --device cuda\n", None),
        ("python train.py --device cuda  # causeway: keep\n", None),
    ],
)  # fmt: skip
def test_an_option_that_its_script_now_sets_by_itself_is_left_out(
    before: str, after: str | None, tmp_path: Path
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "scripts" / "run.sh").write_text(before)
    found = engine.run([tmp_path], Settings(jobs=1)).files
    assert [f.after for f in found if f.path == "scripts/run.sh"] == [after or before]
    for file in found:
        (tmp_path / file.path).write_text(file.after)
    assert not any(f.changed for f in engine.run([tmp_path], Settings(jobs=1)).files)


def test_the_twin_of_cuda_visible_devices_is_written_where_that_is_asked_for() -> None:
    text = "CUDA_VISIBLE_DEVICES=0,$X python a.py\nexport CUDA_VISIBLE_DEVICES='1'\n"
    assert convert("a.sh", text).after == text
    assert convert("a.sh", text, unsafe=True).after == (
        "CUDA_VISIBLE_DEVICES=0,$X CAUSEWAY_VISIBLE_DEVICES=0,$X python a.py\n"
        "export CUDA_VISIBLE_DEVICES='1' CAUSEWAY_VISIBLE_DEVICES='1'\n"
    )
    twice = "CUDA_VISIBLE_DEVICES=$(pick) python a.py\n"
    assert convert("a.sh", twice, unsafe=True).after == twice


TRAINERS = [
    "accelerator: gpu\ndevices: 1\n",
    "accelerator: cuda\ndevices: [0, 1]\n",
    "accelerator: gpu\nstrategy: ddp\nmax_epochs: 3\n",
    "accelerator: gpu\nstrategy:\n  class_path: DDPStrategy\n",
    "accelerator: gpu\nprecision: 16-mixed\n",
    "trainer:\n  accelerator: gpu\n",
    "pl_trainer_args:\n  accelerator: gpu\n",
    "model:\n  trainer:\n    class_path: Trainer\n    init_args:\n      accelerator: 'gpu'\n",
]
NO_TRAINERS = [
    "accelerator: gpu\n",
    "jobs:\n  test:\n    strategy:\n      matrix:\n        accelerator: [cpu, gpu]\n"
    "        precision: [16, 32]\n",
    "accelerator: gpu\ndevices: [/dev/nvidia0]\n",
    "accelerator: gpu\ndevices:\n- driver: other\n",
    "accelerator: gpu\nstrategy:\n  type: Recreate\n",
    "accelerator: gpu\nimage: python:3.11\nprecision: 16\n",
    "trainer:\n  resources:\n    accelerator: gpu\n    cpus: 3\n",
    "accelerator: gpu\nnum_nodes: 2\nmachine_type: a2-highgpu-1g\n",
]


@pytest.mark.parametrize("text", TRAINERS)
@pytest.mark.parametrize("name", ["anything.yaml", "a/b.yml"])
def test_a_trainers_accelerator_is_auto_in_every_yaml_file(name: str, text: str) -> None:
    assert convert(name, text).after == text.replace("gpu", "auto").replace("cuda", "auto")


@pytest.mark.parametrize("text", NO_TRAINERS)
def test_an_accelerator_of_something_else_stays(text: str) -> None:
    assert convert("a.yaml", text).after == text
