"""Sources in CUDA and C++ extensions that call it: counted and estimated, not rewritten."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from causeway.migrate.files.draft import Draft, Span, run
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings

SOURCE = "CW650"
EXTENSION = "CW651"

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_KERNEL = re.compile(
    r"__global__\s+(?:(?:static|inline|extern\s+\"C\"|__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)"
    r"|__cluster_dims__\s*\([^)]*\)|template\s*<[^>]*>)\s+)*void\s+"
    r"(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?([A-Za-z_]\w*)"
)
_LAUNCH = re.compile(r"<<<")
_LIBRARIES = {
    "cub": (r"\bcub::|<cub/", "torch.sort, cumsum and reductions"),
    "thrust": (r"\bthrust::|<thrust/", "torch.sort, unique, cumsum and reductions"),
    "cuBLAS": (r"\bcublas\w*|<cublas", "torch.matmul and torch.addmm"),
    "cuDNN": (r"\bcudnn[A-Z]\w*|<cudnn", "torch.nn.functional"),
    "cuFFT": (r"\bcufft\w*|<cufft", "torch.fft"),
    "cuSPARSE": (r"\bcusparse\w*|<cusparse", "torch.sparse"),
    "cuSOLVER": (r"\bcusolver\w*|<cusolver", "torch.linalg"),
    "cuRAND": (r"\bcurand\w*|<curand", "torch.rand with a torch.Generator"),
    "NCCL": (r"\bnccl[A-Z]\w*|<nccl", "torch.distributed"),
    "CUTLASS": (r"\bcutlass::|<cutlass/|\bcute::", "torch.matmul, torch.compile"),
}
_HARD = {
    "tensor cores": r"\bwmma::|\bmma_sync\b|\bwgmma\b|mma\.sync",
    "inline PTX": r"\basm\s+(?:volatile\s*)?\(|\basm\s*\(",
    "warp operations": r"__shfl\w*|__ballot\w*|__any_sync|__all_sync|__syncwarp|__activemask",
    "cooperative groups": r"cooperative_groups|\bcg::",
    "textures": r"\btex[123]D\w*\s*[<(]|cudaTextureObject_t",
    "dynamic shared memory": r"extern\s+__shared__",
    "asynchronous copies": r"cp\.async|__pipeline_\w+|cuda::memcpy_async",
}
_MEDIUM = {"shared memory": r"__shared__", "atomics": r"\batomic[A-Z]\w*"}
_HOST = re.compile(
    r"\bis_cuda\s*\(|\b(?:at|c10)::cuda::\w+|\bcuda(?:Stream|Event|Memcpy|Malloc|Free|Get|Set|"
    r"Device)\w*|\bCHECK_CUDA\b|\bAT_CUDA_CHECK\b|\bC10_CUDA_\w+|<(?:ATen/cuda|c10/cuda)/\S+>|"
    r"\bkCUDA\b|<cuda(?:_runtime)?\w*\.h>"
)
_WORTH = re.compile(r"torch/|ATen/|c10/|pybind11|PYBIND11_MODULE|TORCH_LIBRARY|cuda_runtime")


Effort = Literal["hours", "days", "weeks"]


@dataclass(frozen=True)
class Estimate:
    """What a source holds. `lines` are those with code."""

    lines: int
    kernels: tuple[tuple[str, Span], ...]
    launches: int
    libraries: tuple[str, ...]
    hard: tuple[str, ...]
    medium: tuple[str, ...]

    @property
    def effort(self) -> Effort:
        """hours: no kernels. days: plain kernels, each element for itself or nearly so. weeks:
        what depends on CUDA's hardware, or more than a handful of kernels.
        """
        if not self.kernels and not self.hard:
            return "hours"
        if self.hard or "CUTLASS" in self.libraries or len(self.kernels) > 8 or self.lines > 800:
            return "weeks"
        return "days"


def estimate(text: str) -> Estimate:
    """Count a source. Comments and strings do not count."""
    code = _COMMENT.sub(_blank, text)
    both = re.sub(r"//[^\n]*|/\*.*?\*/", _blank, text, flags=re.DOTALL)  # asm is in strings
    return Estimate(
        lines=sum(bool(line.strip()) for line in code.splitlines()),
        kernels=tuple((k.group(1), k.span(1)) for k in _KERNEL.finditer(code)),
        launches=len(_LAUNCH.findall(code)),
        libraries=tuple(name for name, (p, _) in _LIBRARIES.items() if re.search(p, both)),
        hard=tuple(name for name, pattern in _HARD.items() if re.search(pattern, both)),
        medium=tuple(name for name, pattern in _MEDIUM.items() if re.search(pattern, code)),
    )


def convert(file: FileInput, settings: Settings) -> FileResult:
    """A .cu or .cuh file. Never changed."""
    return run(file, settings, _source)


def convert_host(file: FileInput, settings: Settings) -> FileResult:
    """A C or C++ file; of interest where it is an extension of torch's. Never changed."""
    return run(file, settings, _host)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found.group())


def _source(draft: Draft) -> None:
    it = estimate(draft.text)
    if not it.lines:
        return
    names = [name for name, _ in it.kernels]
    parts = [f"{it.lines} lines of CUDA", _count(len(names), "kernel"),
             _count(it.launches, "launch", "launches")]  # fmt: skip
    if it.libraries:
        parts.append("uses " + ", ".join(it.libraries))
    if it.hard or it.medium:
        parts.append("with " + ", ".join((*it.hard, *it.medium)))
    tip = "; ".join(
        [f"{name}: {_LIBRARIES[name][1]}" for name in it.libraries]
        + [_ADVICE[it.effort]]
    )  # fmt: skip
    first = len(draft.text) - len(draft.text.lstrip())
    end = draft.text.find("\n", first)
    draft.say(
        SOURCE, "unsupported", (first, end if end > first else len(draft.text)),
        f"{', '.join(parts)} (effort: {it.effort})", tip[0].upper() + tip[1:],
        api="a source in CUDA",
        category="operator",
    )  # fmt: skip
    for name, span in it.kernels:
        draft.say(SOURCE, "unsupported", span, f"the kernel {name}", _ADVICE[it.effort][0].upper()
                  + _ADVICE[it.effort][1:], api=name, category="operator")  # fmt: skip


_ADVICE: dict[Effort, str] = {
    "hours": "it launches no kernel of its own: torch's operators or its generic streams will do.",
    "days": "write it with torch's operators first and let torch.compile fuse them; a kernel for "
    "the chip where that is too slow.",
    "weeks": "see whether torch has the operator by now (scaled_dot_product_attention, "
    "torchvision.ops); else write it with torch's operators, and kernels for the chip last.",
}


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _host(draft: Draft) -> None:
    if not _WORTH.search(draft.text) or not (
        _HOST.search(draft.text) or "__global__" in draft.text
    ):
        return
    if _KERNEL.search(_COMMENT.sub(_blank, draft.text)):
        _source(draft)
        return
    code = re.sub(r"//[^\n]*|/\*.*?\*/", _blank, draft.text, flags=re.DOTALL)
    found = list(_HOST.finditer(code))
    if not found:
        return
    names = sorted({match.group() for match in found})
    shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
    effort = "hours" if len(found) <= 10 else "days"
    draft.say(
        EXTENSION, "unsupported", found[0].span(),
        f"{_count(len(found), 'use')} of CUDA in a C++ extension: {shown} (effort: {effort})",
        api=names[0], category="operator",
    )  # fmt: skip
