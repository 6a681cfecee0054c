"""The rules for files that are not Python: what each is about and what to do by hand.

A rule's code never changes and is never given to another. CW60x are variables, options and keys,
CW61x what launches and schedules, CW62x notebooks, CW63x packages, CW64x containers, CW65x sources
in C++ and CUDA.
"""

from __future__ import annotations

from causeway.migrate.rule import Rule

_TABLE = (
    Rule(
        code="CW601",
        name="visible-devices",
        title="The variable that says which devices a program sees",
        why="CUDA_VISIBLE_DEVICES is read by CUDA's driver alone: on another device the program "
        "sees all devices. There is no variable that all vendors read.",
        by_hand="Also set the variable of the device: CAUSEWAY_VISIBLE_DEVICES for one that "
        "Causeway brings (`--unsafe` does), ASCEND_RT_VISIBLE_DEVICES, MLU_VISIBLE_DEVICES; or "
        "run with `--target NAME`.",
        before="CUDA_VISIBLE_DEVICES=0,1 python train.py",
        after="ASCEND_RT_VISIBLE_DEVICES=0,1 python train.py",
        path="run.sh",
        target="npu",
    ),
    Rule(
        code="CW602",
        name="cuda-variable",
        title="Variables of CUDA's runtime and libraries",
        why="NCCL_*, CUDA_LAUNCH_BLOCKING and their like are read by CUDA's libraries; elsewhere "
        "they have no effect. PYTORCH_CUDA_ALLOC_CONF has a name without CUDA, which torch "
        "reads for every device.",
        by_hand="Nothing, or set what the vendor's own libraries read.",
        before="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        after="export PYTORCH_ALLOC_CONF=expandable_segments:True",
        severity="info",
        path="run.sh",
    ),
    Rule(
        code="CW603",
        name="nccl-option",
        title="NCCL named as the backend of collectives",
        why="nccl serves CUDA alone. torch.distributed picks the backend of the device where none"
        " is given.",
        by_hand="Leave the backend out, or name the device's; `--target NAME` writes it.",
        before="torchrun train.py --dist-backend nccl",
        after="torchrun train.py --dist-backend hccl",
        path="run.sh",
        target="npu",
    ),
    Rule(
        code="CW604",
        name="device-option",
        title="A device named cuda in an option or a configuration",
        why="The program hands the name to torch, which looks for CUDA. Files have no word for "
        "'the accelerator that is here'; only code has.",
        by_hand="Leave it out where the program has a default, which is done for options whose "
        "default is cuda in a script of the same tree; else let the program read "
        "torch.accelerator.current_accelerator(), or run with `--target NAME`.",
        before="device: cuda:0  # the first",
        after="device: npu:0  # the first",
        path="config.yaml",
        target="npu",
    ),
    Rule(
        code="CW605",
        name="accelerator-gpu",
        title="accelerator: gpu",
        why="For Lightning gpu means CUDA (or Apple's); auto takes the accelerator that is there,"
        " and the CPU where there is none.",
        by_hand="Write auto.",
        before="trainer:\n  accelerator: gpu\n  max_epochs: 3",
        after="trainer:\n  accelerator: auto\n  max_epochs: 3",
        path="config.yaml",
    ),
    Rule(
        code="CW606",
        name="torchrun-gpu",
        title="torchrun --nproc_per_node=gpu",
        why="torchrun's gpu asks torch.cuda and fails without it; auto counts the accelerator's "
        "devices, CUDA's too.",
        by_hand="Write auto.",
        before="torchrun --nproc_per_node=gpu train.py",
        after="torchrun --nproc_per_node=auto train.py",
        path="run.sh",
    ),
    Rule(
        code="CW607",
        name="nvidia-tool",
        title="NVIDIA's tools",
        why="nvidia-smi, nsys, ncu, nvcc and modules of CUDA are not on a host with other "
        "devices; a script that stops at an error stops there.",
        by_hand="`causeway doctor` lists devices, torch.profiler traces on any device; vendors "
        "have tools of their own.",
        before="nvidia-smi",
        after="npu-smi info",
        path="run.sh",
        target="npu",
    ),
    Rule(
        code="CW608",
        name="gpu-resource",
        title="GPUs asked of a scheduler or a container runtime",
        why="--gres=gpu, --gpus, nvidia.com/gpu and runtime: nvidia are names of resources: the "
        "cluster calls other devices otherwise.",
        by_hand="Ask the cluster's administrator for the resource's name; with docker, hand the "
        "device over with --device.",
        before="#SBATCH --gres=gpu:4",
        after="#SBATCH --gres=gpu:4",
        path="run.sh",
    ),
    Rule(
        code="CW609",
        name="cuda-target",
        title="Functions of torch.cuda named in a configuration",
        why="A configuration that is turned into calls reaches torch.cuda as code does.",
        by_hand="Name the device-agnostic function (torch.accelerator, torch.amp); its arguments "
        "differ.",
        before="_target_: torch.cuda.amp.GradScaler",
        after="_target_: torch.cuda.amp.GradScaler",
        path="config.yaml",
    ),
    Rule(
        code="CW610",
        name="multi-gpu",
        title="Accelerate's distributed_type: MULTI_GPU",
        why="Accelerate has a word for the devices of each vendor; MULTI_GPU is CUDA's.",
        by_hand="`accelerate config` on the new host, or write MULTI_NPU, MULTI_MLU, MULTI_XPU.",
        before="distributed_type: MULTI_GPU",
        after="distributed_type: MULTI_NPU",
        path="config.yaml",
        target="npu",
    ),
    Rule(
        code="CW611",
        name="gpu-count",
        title="A number of GPUs in a configuration",
        why="A count or a list of indices is right for any device; only the name says GPU. "
        "Lightning 2 took its `gpus` away.",
        by_hand="Nothing; for Lightning `accelerator: auto` and `devices:`.",
        before="gpus: 4",
        after="gpus: 4",
        severity="info",
        path="config.yaml",
    ),
    Rule(
        code="CW612",
        name="launch-module",
        title="python -m torch.distributed.launch",
        why="It works on any device. It hands --local-rank to the program, where torchrun sets "
        "LOCAL_RANK.",
        by_hand="Nothing now; torchrun when the program reads LOCAL_RANK.",
        before="python -m torch.distributed.launch --nproc_per_node=2 train.py",
        after="python -m torch.distributed.launch --nproc_per_node=2 train.py",
        severity="info",
        path="run.sh",
    ),
    Rule(
        code="CW613",
        name="vendor-flag-given",
        title="An option named after CUDA, on a command line",
        why="--no-cuda of a program of the same tree switches any accelerator off once that is "
        "converted.",
        by_hand="Nothing; `--rename-flags` writes --no-accel here and in the program. A README is "
        "only reported.",
        before="python train.py --no-cuda",
        after="python train.py --no-cuda",
        severity="info",
        path="run.sh",
    ),
    Rule(
        code="CW614",
        name="system-variable",
        title="A variable of another system's runtime",
        why="ASCEND_*, HCCL_*, MLU_* and DIPU_* are read by that system alone. Where Causeway has "
        "a setting for the same, it is that.",
        by_hand="Set what the table of docs/compat.md says, or leave it out.",
        before="export ASCEND_RT_VISIBLE_DEVICES=0,1",
        after="export CAUSEWAY_VISIBLE_DEVICES=0,1",
        path="run.sh",
    ),
    Rule(
        code="CW620",
        name="notebook-cell",
        title="A notebook's cell that is not Python",
        why="A cell that does not parse stays as it is; the others are converted together, as one"
        " program.",
        by_hand="Convert the cell by hand.",
        before="",
        after="",
        severity="info",
        path="example.ipynb",
    ),
    Rule(
        code="CW630",
        name="cuda-build",
        title="A CUDA build of torch among the requirements",
        why="A version such as 2.1.0+cu121 exists in CUDA's index only. Without the part behind +"
        " it means the same version on every host, and is met by the CUDA build too.",
        by_hand="Leave the part behind + out.",
        before="torch==2.1.0+cu121",
        after="torch==2.1.0",
        path="requirements.txt",
    ),
    Rule(
        code="CW631",
        name="cuda-index",
        title="An index of CUDA wheels",
        why="download.pytorch.org/whl/cu121 offers builds for CUDA. With another device torch's"
        " CPU build is right: the vendor's package brings the device.",
        by_hand="On a host without CUDA use https://download.pytorch.org/whl/cpu, or no index.",
        before="--extra-index-url https://download.pytorch.org/whl/cu121",
        after="--extra-index-url https://download.pytorch.org/whl/cpu",
        safe=False,
        path="requirements.txt",
    ),
    Rule(
        code="CW632",
        name="cuda-requirement",
        title="A package that exists for CUDA",
        why="Its kernels are CUDA's: it does not install, or fails at import or at its first call.",
        by_hand="Take the alternative that the finding names; it says what that costs.",
        before="flash-attn==2.5.8",
        after="flash-attn==2.5.8",
        severity="error",
        path="requirements.txt",
    ),
    Rule(
        code="CW633",
        name="cuda-part",
        title="CUDA's libraries as packages",
        why="nvidia-*-cu12, cudatoolkit and pytorch-cuda are parts of CUDA that a CUDA build of "
        "torch asks for by itself.",
        by_hand="Leave the line out: a build of torch that needs it brings it.",
        before="nvidia-cublas-cu12==12.1.3.1",
        after="nvidia-cublas-cu12==12.1.3.1",
        path="requirements.txt",
    ),
    Rule(
        code="CW634",
        name="system-package",
        title="A requirement of another system's package",
        why="torch_npu, torch_mlu, torch_dipu and MindTorch bring one vendor's device each, and "
        "are built for one release of torch.",
        by_hand="Leave it out: the device's package comes with the host.",
        before="torch_npu==2.1.0",
        after="torch_npu==2.1.0",
        path="requirements.txt",
    ),
    Rule(
        code="CW640",
        name="cuda-image",
        title="An image with CUDA",
        why="nvidia/cuda, nvcr.io and images with cuda in their tag hold CUDA's libraries and a "
        "build of torch for them.",
        by_hand="Start from an image with the device's driver, and install torch's CPU wheel and "
        "the vendor's package.",
        before="FROM nvidia/cuda:12.1.0-devel-ubuntu22.04",
        after="FROM nvidia/cuda:12.1.0-devel-ubuntu22.04",
        path="Dockerfile",
    ),
    Rule(
        code="CW641",
        name="cuda-container",
        title="A container set up for CUDA",
        why="NVIDIA_VISIBLE_DEVICES, paths to /usr/local/cuda and packages of CUDA are of no use "
        "on another device.",
        by_hand="Set what the vendor's runtime asks for in their place.",
        before="ENV NVIDIA_VISIBLE_DEVICES=all",
        after="ENV NVIDIA_VISIBLE_DEVICES=all",
        path="Dockerfile",
    ),
    Rule(
        code="CW650",
        name="cuda-source",
        title="A source in CUDA",
        why="Kernels are written for CUDA's compiler. They are counted, with the libraries they "
        "use, and an estimate of the work.",
        by_hand="First ask whether torch has the operator by now; then write it with torch's "
        "operators or in Triton; last, a kernel for the chip.",
        before="__global__ void scale(float* x) {}",
        after="__global__ void scale(float* x) {}",
        severity="error",
        path="kernel.cu",
    ),
    Rule(
        code="CW651",
        name="cuda-extension-source",
        title="A C++ extension that calls CUDA",
        why="The host's side of an extension: checks for CUDA tensors, streams, launches.",
        by_hand="x.is_cuda() is x.device().is_privateuseone() elsewhere; streams and guards have "
        "generic forms in c10 (c10::Stream, c10::DeviceGuard, c10::impl::VirtualGuardImpl).",
        before="#include <torch/extension.h>\nvoid f(at::Tensor x) { TORCH_CHECK(x.is_cuda()); }",
        after="#include <torch/extension.h>\nvoid f(at::Tensor x) { TORCH_CHECK(x.is_cuda()); }",
        severity="error",
        path="extension.cpp",
    ),
)

RULES: dict[str, Rule] = {rule.code: rule for rule in _TABLE}
