"""The rules for files that are not Python: what each is about and what to do by hand.

A rule's code never changes and is never given to another. CW60x are variables, options and keys,
CW61x what launches and schedules, CW62x notebooks, CW63x packages, CW64x containers, CW65x sources
in C++ and CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass

from causeway.migrate.finding import Severity


@dataclass(frozen=True)
class Rule:
    """One rule: `why` it matters, an example `before` and `after` (the same where nothing is
    written, `target` says for which), and how to do it `by_hand`, which is also the tip of findings
    that have none of their own.
    """

    code: str
    title: str
    severity: Severity
    why: str
    by_hand: str
    before: str = ""
    after: str = ""
    target: str = "portable"
    safe: bool = True
    path: str = "run.sh"  # what sort of file the example is


_TABLE = (
    Rule(
        "CW601",
        "The variable that says which devices a program sees",
        "warning",
        "CUDA_VISIBLE_DEVICES is read by CUDA's driver alone: on another device the program sees "
        "all devices. There is no variable that all vendors read.",
        "Set the variable of the device beside it: CAUSEWAY_VISIBLE_DEVICES for one that Causeway "
        "brings, ASCEND_RT_VISIBLE_DEVICES, MLU_VISIBLE_DEVICES; or run with `--target NAME`.",
        "CUDA_VISIBLE_DEVICES=0,1 python train.py",
        "ASCEND_RT_VISIBLE_DEVICES=0,1 python train.py",
        target="npu",
    ),
    Rule(
        "CW602",
        "Variables of CUDA's runtime and libraries",
        "info",
        "NCCL_*, CUDA_LAUNCH_BLOCKING and their like are read by CUDA's libraries; elsewhere they "
        "have no effect. PYTORCH_CUDA_ALLOC_CONF has a name without CUDA, which torch reads for "
        "every device.",
        "Nothing, or set what the vendor's own libraries read.",
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "export PYTORCH_ALLOC_CONF=expandable_segments:True",
    ),
    Rule(
        "CW603",
        "NCCL named as the backend of collectives",
        "warning",
        "nccl serves CUDA alone. torch.distributed picks the backend of the device where none is "
        "given.",
        "Leave the backend out, or name the device's; `--target NAME` writes it.",
        "torchrun train.py --dist-backend nccl",
        "torchrun train.py --dist-backend hccl",
        target="npu",
    ),
    Rule(
        "CW604",
        "A device named cuda in an option or a configuration",
        "warning",
        "The program hands the name to torch, which looks for CUDA. Files have no word for "
        "'the accelerator that is here'; only code has.",
        "Leave it out where the program has a default; else let the program read "
        "torch.accelerator.current_accelerator(), or run with `--target NAME`.",
        "device: cuda:0  # the first",
        "device: npu:0  # the first",
        target="npu",
        path="config.yaml",
    ),
    Rule(
        "CW605",
        "accelerator: gpu",
        "warning",
        "For Lightning gpu means CUDA (or Apple's); auto takes the accelerator that is there, and "
        "the CPU where there is none.",
        "Write auto.",
        "trainer:\n  accelerator: gpu\n  max_epochs: 3",
        "trainer:\n  accelerator: auto\n  max_epochs: 3",
        path="config.yaml",
    ),
    Rule(
        "CW606",
        "torchrun --nproc_per_node=gpu",
        "warning",
        "torchrun's gpu asks torch.cuda and fails without it; auto counts the accelerator's "
        "devices, CUDA's too.",
        "Write auto.",
        "torchrun --nproc_per_node=gpu train.py",
        "torchrun --nproc_per_node=auto train.py",
    ),
    Rule(
        "CW607",
        "NVIDIA's tools",
        "warning",
        "nvidia-smi, nsys, ncu, nvcc and modules of CUDA are not on a host with other devices; a "
        "script that stops at an error stops there.",
        "`causeway doctor` lists devices, torch.profiler traces on any device; vendors have tools "
        "of their own.",
        "nvidia-smi",
        "npu-smi info",
        target="npu",
    ),
    Rule(
        "CW608",
        "GPUs asked of a scheduler or a container runtime",
        "warning",
        "--gres=gpu, --gpus, nvidia.com/gpu and runtime: nvidia are names of resources: the "
        "cluster calls other devices otherwise.",
        "Ask the cluster's administrator for the resource's name; with docker, hand the device "
        "over with --device.",
        "#SBATCH --gres=gpu:4",
        "#SBATCH --gres=gpu:4",
    ),
    Rule(
        "CW609",
        "Functions of torch.cuda named in a configuration",
        "warning",
        "A configuration that is turned into calls reaches torch.cuda as code does.",
        "Name the device-agnostic function (torch.accelerator, torch.amp); its arguments differ.",
        "_target_: torch.cuda.amp.GradScaler",
        "_target_: torch.cuda.amp.GradScaler",
        path="config.yaml",
    ),
    Rule(
        "CW610",
        "Accelerate's distributed_type: MULTI_GPU",
        "warning",
        "Accelerate has a word for the devices of each vendor; MULTI_GPU is CUDA's.",
        "`accelerate config` on the new host, or write MULTI_NPU, MULTI_MLU, MULTI_XPU.",
        "distributed_type: MULTI_GPU",
        "distributed_type: MULTI_NPU",
        target="npu",
        path="config.yaml",
    ),
    Rule(
        "CW611",
        "A number of GPUs in a configuration",
        "info",
        "A count or a list of indices is right for any device; only the name says GPU. Lightning 2 "
        "took its `gpus` away.",
        "Nothing; for Lightning `accelerator: auto` and `devices:`.",
        "gpus: 4",
        "gpus: 4",
        path="config.yaml",
    ),
    Rule(
        "CW612",
        "python -m torch.distributed.launch",
        "info",
        "It works on any device. It hands --local-rank to the program, where torchrun sets "
        "LOCAL_RANK.",
        "Nothing now; torchrun when the program reads LOCAL_RANK.",
        "python -m torch.distributed.launch --nproc_per_node=2 train.py",
        "python -m torch.distributed.launch --nproc_per_node=2 train.py",
    ),
    Rule(
        "CW620",
        "A notebook's cell that is not Python",
        "info",
        "A cell that does not parse stays as it is; the others are converted together, as one "
        "program.",
        "Convert the cell by hand.",
    ),
    Rule(
        "CW630",
        "A CUDA build of torch among the requirements",
        "warning",
        "A version such as 2.1.0+cu121 exists in CUDA's index only. Without the part behind + it "
        "means the same version on every host, and is met by the CUDA build too.",
        "Leave the part behind + out.",
        "torch==2.1.0+cu121",
        "torch==2.1.0",
        path="requirements.txt",
    ),
    Rule(
        "CW631",
        "An index of CUDA wheels",
        "warning",
        "download.pytorch.org/whl/cu121 offers builds for CUDA. Beside another device torch's CPU "
        "build is right: the vendor's package brings the device.",
        "On a host without CUDA use https://download.pytorch.org/whl/cpu, or no index at all.",
        "--extra-index-url https://download.pytorch.org/whl/cu121",
        "--extra-index-url https://download.pytorch.org/whl/cpu",
        safe=False,
        path="requirements.txt",
    ),
    Rule(
        "CW632",
        "A package that exists for CUDA",
        "error",
        "Its kernels are CUDA's: it does not install, or fails at import or at its first call.",
        "See the package's line in the table of packages: an alternative, and what it costs.",
        "flash-attn==2.5.8",
        "flash-attn==2.5.8",
        path="requirements.txt",
    ),
    Rule(
        "CW633",
        "CUDA's libraries as packages",
        "warning",
        "nvidia-*-cu12, cudatoolkit and pytorch-cuda are parts of CUDA that a CUDA build of torch "
        "asks for by itself.",
        "Leave the line out: a build of torch that needs it brings it.",
        "nvidia-cublas-cu12==12.1.3.1",
        "nvidia-cublas-cu12==12.1.3.1",
        path="requirements.txt",
    ),
    Rule(
        "CW640",
        "An image with CUDA",
        "warning",
        "nvidia/cuda, nvcr.io and images with cuda in their tag hold CUDA's libraries and a build "
        "of torch for them.",
        "Start from an image with the device's driver, and install torch's CPU wheel and the "
        "vendor's package.",
        "FROM nvidia/cuda:12.1.0-devel-ubuntu22.04",
        "FROM nvidia/cuda:12.1.0-devel-ubuntu22.04",
        path="Dockerfile",
    ),
    Rule(
        "CW641",
        "A container set up for CUDA",
        "warning",
        "NVIDIA_VISIBLE_DEVICES, paths to /usr/local/cuda and packages of CUDA are of no use on "
        "another device.",
        "Set what the vendor's runtime asks for in their place.",
        "ENV NVIDIA_VISIBLE_DEVICES=all",
        "ENV NVIDIA_VISIBLE_DEVICES=all",
        path="Dockerfile",
    ),
    Rule(
        "CW650",
        "A source in CUDA",
        "error",
        "Kernels are written for CUDA's compiler. They are counted, with the libraries they use, "
        "and an estimate of the work.",
        "First ask whether torch has the operator by now; then write it with torch's operators or "
        "in Triton; last, a kernel for the chip.",
        "__global__ void scale(float* x) {}",
        "__global__ void scale(float* x) {}",
        path="kernel.cu",
    ),
    Rule(
        "CW651",
        "A C++ extension that calls CUDA",
        "error",
        "The host's side of an extension: checks for CUDA tensors, streams, launches.",
        "x.is_cuda() is x.device().is_privateuseone() elsewhere; streams and guards have generic "
        "forms in c10 (c10::Stream, c10::DeviceGuard, c10::impl::VirtualGuardImpl).",
        "#include <torch/extension.h>\nvoid f(at::Tensor x) { TORCH_CHECK(x.is_cuda()); }",
        "#include <torch/extension.h>\nvoid f(at::Tensor x) { TORCH_CHECK(x.is_cuda()); }",
        path="extension.cpp",
    ),
)  # fmt: skip

RULES: dict[str, Rule] = {rule.code: rule for rule in _TABLE}
