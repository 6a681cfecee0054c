"""What a name and its value say about the device: `--backend nccl`, `device: cuda:0`.

Options of commands, keys of YAML, JSON, TOML and INI files and variables of shell scripts name the
same things, so one set of rules reads them all. A value is looked at only where its name says what
it is: `name: cuda` is a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass

from causeway.compat import systems
from causeway.migrate.files.draft import Draft, Span

BACKEND = "CW603"
DEVICE = "CW604"
ACCELERATOR = "CW605"
PROCESSES = "CW606"
SCHEDULER = "CW608"
PYTHON_NAME = "CW609"
LAUNCHER = "CW610"
GPU_COUNT = "CW611"
IMAGE = "CW640"

_BACKEND = re.compile(r"(?:^|_)backends?$")
_DEVICE = re.compile(r"(?:^|_)(?:device|devices|dev|device_type|device_name|map_location)$")
_ACCELERATOR = re.compile(r"(?:^|_)accelerator$")
_GPU_COUNT = re.compile(r"^(?:n|num)?_?gpus?(?:_ids?|_per_node|_count|_num)?$")
_IMAGE = re.compile(r"(?:^|_)(?:image|container|base_image|docker)$")
_PYTHON = re.compile(r"^(?:_?target_?|class_path|type|cls|callable)$")
# Other systems' names mean what CUDA's do: "npu:0", hccl.
_DEVICES = "|".join(["cuda", *(s.device for s in systems().values() if s.device)])
_BACKENDS = "|".join(["nccl", *(b for s in systems().values() for b in s.backends)])
_NCCL = re.compile(
    rf"(?:\w+:\w+,)*(?:(?:{_DEVICES}):)?(?:{_BACKENDS})(?:,\w+:\w+)*\Z", re.IGNORECASE
)
_CUDA = re.compile(rf"(?:{_DEVICES})(:\d+)?\Z")
_SEVERAL = re.compile(r"MULTI_(?:GPU|NPU|MLU)\Z")
_CUDA_IMAGE = re.compile(
    r"(?:^|/)nvidia/|nvcr\.io/|[:/\-_.]cu(?:da)?[-_]?\d|[:\-_]gpu\b|-cuda\b", re.IGNORECASE
)

# Stands among the keys of a mapping that is for a class which is not Lightning's.
OWN_TRAINER = "a class of another package"
# Keys beside `accelerator` that only a Trainer of Lightning has.
LIGHTNING = frozenset({
    "max_epochs", "min_epochs", "num_nodes", "strategy", "precision", "check_val_every_n_epoch",
    "num_sanity_val_steps", "accumulate_grad_batches", "gradient_clip_val", "log_every_n_steps",
    "fast_dev_run", "limit_train_batches", "limit_val_batches", "val_check_interval", "devices",
    "max_steps", "enable_checkpointing", "enable_progress_bar", "gradient_clip_algorithm",
})  # fmt: skip
# Keys beside it that a Trainer has not: a cluster, a container, a workflow, Accelerate.
_OTHERS = frozenset({
    "accelerator_count", "accelerator_type", "apiversion", "compute_environment", "container",
    "cpu", "cpus", "image", "include", "instance_type", "kind", "machine_type", "memory",
    "num_processes", "os", "partition", "queue", "replicas", "resources", "runner", "runs-on",
    "steps", "vm_size",
})  # fmt: skip
_TRAINER = re.compile(
    r"(?:\w+_)?trainer(?:_(?:args|arguments|cfg|conf|config|init_args|kwargs|options|params))?",
    re.I,
)


@dataclass(frozen=True)
class Named:
    """A value and the name it has. `span` is its place, None where it cannot be changed there;
    `around` is the place that is reported then.
    """

    name: str
    value: str
    span: Span | None
    around: Span
    lightning: bool = False  # it belongs to a Trainer
    launcher: bool = False  # it belongs to torchrun
    null: str = ""  # how the file's language writes null, if it does


def is_trainer(path: Sequence[str], beside: Set[str]) -> bool:
    """Whether a mapping is the arguments of a Trainer of Lightning: by the names that lead to it,
    or by the keys that it has, in lower case: `beside`, made once for a mapping, which may be a
    vocabulary.
    """
    if OWN_TRAINER in beside:
        return False
    around = [name for name in path if name not in ("init_args", "_args_")]
    if around and _TRAINER.fullmatch(around[-1]):
        return True
    return not LIGHTNING.isdisjoint(beside) and _OTHERS.isdisjoint(beside)


def key(name: str) -> str:
    """A name in one spelling: the last of a dotted one, without dashes."""
    return name.lstrip("-+~").rpartition(".")[2].replace("-", "_").lower()


def is_cuda_image(image: str) -> bool:
    """Whether the name of a container's image says that CUDA is in it."""
    return bool(_CUDA_IMAGE.search(image))


def judge(draft: Draft, it: Named) -> None:
    """Change the value, or say why it stays."""
    name, value = key(it.name), it.value.strip()
    if _own(draft, value):
        pass  # it is converted for the system that the value is of
    elif _BACKEND.search(name) and _NCCL.match(value):
        _backend(draft, it)
    elif _ACCELERATOR.search(name) and (value == "gpu" or re.fullmatch(_DEVICES, value)):
        _accelerator(draft, it)
    elif (
        name == "nproc_per_node"
        and it.launcher
        and (value == "gpu" or re.fullmatch(_DEVICES, value))
    ):
        new = draft.target.name if draft.target else "auto"
        _change(draft, PROCESSES, it, new, "a process for each device of the host")
    elif _DEVICE.search(name) and _CUDA.match(value):
        _device(draft, it)
    elif _DEVICE.search(name) and value == "gpu":
        tip = "See that what reads it takes torch.accelerator.current_accelerator() for it."
        draft.say(DEVICE, "manual", it.around, f"{value!r} is this program's own word", tip,
                  api=it.name)  # fmt: skip
    elif name == "distributed_type" and _SEVERAL.match(value):
        _launcher(draft, it)
    elif _PYTHON.match(name) and re.match(rf"torch\.(?:{_DEVICES})\.", value):
        draft.say(PYTHON_NAME, "manual", it.around, f"{value} is called by its name", api=value)
    elif _IMAGE.search(name) and is_cuda_image(value):
        draft.say(IMAGE, "manual", it.around, f"the image {value!r} holds CUDA", api=value)
    elif name in ("runtime", "driver") and value == "nvidia":
        draft.say(SCHEDULER, "manual", it.around, f"{it.name}: nvidia hands over GPUs", api=it.name)
    elif it.lightning and name == "gpus":
        tip = "Lightning 2: `accelerator: auto` and `devices:` with this value."
        draft.say(GPU_COUNT, "manual", it.around, "Lightning 2 has no `gpus`", tip, api=it.name)
    elif _GPU_COUNT.match(name) and re.match(r"[\d,\[\] ]+\Z|all\Z|auto\Z", value):
        draft.say(GPU_COUNT, "portable", it.around, f"{it.name} counts or lists devices",
                  api=it.name)  # fmt: skip


def _own(draft: Draft, value: str) -> bool:
    """Whether a value names the device, or its backend, that the file is converted for already."""
    target = draft.target
    return target is not None and (
        bool(re.fullmatch(rf"{target.name}(:\d+)?", value))
        or value in (target.backend, target.distributed_type, f"{target.name}:{target.backend}")
    )


def _change(draft: Draft, rule: str, it: Named, new: str, message: str) -> None:
    if it.span is None:
        tip = f"Write {new!r}: quotes or escapes inside the value are in the way."
        draft.say(rule, "manual", it.around, message, tip, api=it.name)
    else:
        draft.change(rule, it.span, new, message, api=it.name)


def _whose(value: str) -> str:
    """Whose device or backend a value names."""
    for system in systems().values():
        names = [system.device, *system.backends] if system.device else []
        if any(re.search(rf"\b{name}\b", value, re.I) for name in names):
            return f"the {system.device.upper()}"
    return "CUDA"


def _backend(draft: Draft, it: Named) -> None:
    target = draft.target
    if target is not None and target.backend:
        new = re.sub(rf"\b(?:{_DEVICES}):", f"{target.name}:", it.value, flags=re.IGNORECASE)
        new = re.sub(rf"\b(?:{_BACKENDS})\b", target.backend, new, flags=re.IGNORECASE)
        _change(draft, BACKEND, it, new, f"{target.name}'s collectives are {target.backend}")
        return
    message = f"{it.name}: {it.value} serves {_whose(it.value)} alone"
    if it.null and it.span is not None and target is None:
        tip = "With none given, torch.distributed takes the backend of the device."
        place = _with_quotes(draft.text, it.span)
        draft.change_unsafely(BACKEND, place, it.null, message, tip, api=it.name)
    else:
        draft.say(BACKEND, "manual", it.around, message, api=it.name)


def _with_quotes(text: str, span: Span) -> Span:
    start, end = span
    quoted = start > 0 and text[start - 1] in "\"'" and text[end : end + 1] == text[start - 1]
    return (start - 1, end + 1) if quoted else span


def _device(draft: Draft, it: Named) -> None:
    if draft.target is not None:
        new = re.sub(rf"\b(?:{_DEVICES})\b", draft.target.name, it.value)
        _change(draft, DEVICE, it, new, f"torch's name of the device is {draft.target.name}")
    else:
        draft.say(
            DEVICE,
            "manual",
            it.around,
            f"{it.name}: {it.value} names {_whose(it.value)}",
            api=it.name,
        )


def _accelerator(draft: Draft, it: Named) -> None:
    if draft.target is not None:
        name = draft.target.name
        _change(draft, ACCELERATOR, it, name, f"the accelerator is called {name}")
    elif it.lightning:
        _change(draft, ACCELERATOR, it, "auto", "Lightning's word for the accelerator that is here")
    elif it.span is not None:
        tip = "auto is Lightning's word; see whether this program knows it."
        message = f"{it.name}: {it.value} means {_whose(it.value)}"
        draft.change_unsafely(ACCELERATOR, it.span, "auto", message, tip, api=it.name)


def _launcher(draft: Draft, it: Named) -> None:
    known = draft.target.distributed_type if draft.target else ""
    if known:
        _change(draft, LAUNCHER, it, known, f"Accelerate's word for several devices is {known}")
    else:
        message = f"{it.value} means {_whose(it.value.partition('_')[2].lower())}"
        draft.say(LAUNCHER, "manual", it.around, message, api=it.name)
