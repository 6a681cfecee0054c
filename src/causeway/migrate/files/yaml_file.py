"""YAML: values by the places that the parser says they have; the file is never written anew.

Scripts inside (`run: |` of a workflow) are read as scripts, environment.yml's packages as packages.
Tags are not resolved, so no object is ever made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from causeway.migrate.files import requirements, shell, values
from causeway.migrate.files.draft import Draft, NotReadableError, Span, run
from causeway.migrate.files.variables import judge_variable
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings
from causeway.migrate.systems import words

# Parsing is slow; most files say nothing of this.
_SYSTEMS = words().pattern.decode()
_WORTH = re.compile(
    rf"cuda|nccl|gpu|nvidia|^dependencies:|MULTI_|{_SYSTEMS}", re.IGNORECASE | re.MULTILINE
)
_SCRIPT_WORTH = re.compile(rf"cuda|nccl|gpu|nvidia|nsys|install|npu-smi|cnmon|{_SYSTEMS}", re.I)
_LARGEST = 1 << 20
_SCRIPTS = {
    "after_script", "args", "before_script", "cmd", "command", "commands", "entrypoint", "run",
    "script", "setup",
}  # fmt: skip
_ENVIRONMENTS = {"env", "env_vars", "environment", "environment_variables", "envs", "variables"}
_RESOURCE = re.compile(r"nvidia\.com/gpu|amd\.com/gpu")


@dataclass
class _Scalar:
    """A value with the keys that lead to it; `span` is None where it has escapes."""

    path: tuple[str, ...]
    value: str
    span: Span | None
    around: Span
    block: bool
    beside: frozenset[str]  # the keys of the same mapping that mean what a Trainer means by them
    listed: bool = False  # it is one of a list


def convert(file: FileInput, settings: Settings) -> FileResult:
    """A YAML file; one larger than 1 MiB is data and is left."""
    if len(file.data) > _LARGEST:
        return FileResult(file.path, "skipped", "larger than 1 MiB: data, not a configuration")
    return run(file, settings, _convert)


def _convert(draft: Draft) -> None:
    if not _WORTH.search(draft.text):
        return
    for document in _documents(draft.text):
        for scalar in _scalars(document, draft.text, (), frozenset(), set()):
            if isinstance(scalar, _Scalar):
                _value(draft, scalar)
        _keys(draft, document, ())


def _documents(text: str) -> list[Any]:
    try:
        import yaml
    except ModuleNotFoundError:
        raise NotReadableError("PyYAML is missing: `pip install pyyaml`") from None

    try:
        documents = list(yaml.compose_all(text, Loader=_loader(yaml)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise NotReadableError(f"not YAML: {error.problem}", mark.index if mark else None) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise NotReadableError(f"not YAML: {type(error).__name__}") from None
    return [document for document in documents if document is not None]


def _loader(yaml: Any) -> Any:
    """libyaml's reader is seven times as fast; its marks count characters too."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _scalars(
    node: Any, text: str, path: tuple[str, ...], beside: frozenset[str], seen: set[int]
) -> Iterator[_Scalar]:
    if id(node) in seen:  # an alias
        return
    seen.add(id(node))
    if node.id == "scalar":
        yield _scalar(node, text, path, beside)
    elif node.id == "sequence":
        for item in node.value:
            for scalar in _scalars(item, text, path, beside, seen):
                own = scalar.path == path  # no mapping between
                yield replace(scalar, listed=True) if own else scalar
    else:
        keys = frozenset(
            str(k.value).lower()
            for k, value in node.value
            if k.id == "scalar" and _fits(k.value, value)
        )
        if any(
            k.value in ("_target_", "class_path") and not _of_lightning(v) for k, v in node.value
        ):
            keys |= {values.OWN_TRAINER}
        for key, value in node.value:
            name = str(key.value) if key.id == "scalar" else "?"
            yield from _scalars(value, text, (*path, name), keys, seen)


def _of_lightning(target: Any) -> bool:
    """Whether the class that a mapping is for is one of Lightning's, or may be."""
    own = target.id == "scalar" and "." in str(target.value)
    return not own or re.match(r"(?:pytorch_)?lightning", target.value) is not None


def _fits(name: str, value: Any) -> bool:
    """Whether a value is one that Lightning's Trainer takes for a key that others have too: a
    deployment has a `strategy`, a container has `devices`.
    """
    if name not in ("devices", "num_nodes", "precision", "strategy"):
        return True
    if value.id == "mapping":
        return any(k.value in ("_target_", "class_path") for k, _ in value.value)
    if value.id == "sequence":
        numbers = all(v.id == "scalar" and v.value.isdigit() for v in value.value)
        return name == "devices" and numbers
    return "/" not in value.value


def _scalar(node: Any, text: str, path: tuple[str, ...], beside: frozenset[str]) -> _Scalar:
    start, end = node.start_mark.index, node.end_mark.index
    value: str = node.value
    block = node.style in ("|", ">")
    span: Span | None = None
    if node.style == "|":
        head = text.find("\n", start, end)
        span = (head + 1, end) if head >= 0 else None
    elif node.style in ("'", '"'):
        inner = (end - 1 - len(value), end - 1)
        span = inner if text[slice(*inner)] == value and text[inner[0] - 1] == node.style else None
    elif not node.style:
        # Tags and anchors are inside the marks, before the value.
        begin = text.find(value, start, end) if value else -1
        span = (end - len(value), end) if text[end - len(value) : end] == value else None
        span = span or ((begin, begin + len(value)) if begin >= 0 else None)
    return _Scalar(path, value, span, (start, end), block, beside)


def _value(draft: Draft, it: _Scalar) -> None:
    name = it.path[-1] if it.path else ""
    if "dependencies" in it.path and it.span and not it.block:
        if name == "pip":
            requirements.requirement(draft, it.value, it.span)
        elif name == "dependencies":
            begin = it.span[0]
            requirements.conda(draft, it.value, it.span, lambda i, j: (begin + i, begin + j))
        return
    if name == "channels" and it.value == "nvidia" and it.span:
        draft.say(requirements.PART, "manual", it.span, "a channel of CUDA's packages",
                  "Leave it out with the packages that come from it.", api=it.value)  # fmt: skip
        return
    if name.lower() in _SCRIPTS and it.span and _SCRIPT_WORTH.search(it.value):
        _script(draft, it.span)
        return
    if name.lower() in _ENVIRONMENTS and it.span:  # a list of NAME=value
        found = re.match(r"[A-Za-z_]\w*(?==)", it.value)
        if found:
            judge_variable(draft, found.group(), (it.span[0], it.span[0] + found.end()), use=False)
            return
    named = name == "name" and it.path[-2:-1] and it.path[-2].lower() in _ENVIRONMENTS
    if named and it.span and judge_variable(draft, it.value, it.span, use=False):
        return
    if not it.block:
        values.judge(
            draft,
            values.Named(
                name, it.value, it.span, it.around,
                lightning=not it.listed and values.is_trainer(it.path[:-1], it.beside),
                null="null",
            ),
        )  # fmt: skip


def _script(draft: Draft, span: Span) -> None:
    """What is not a script to our eyes stays as it is; the rest of the file is still read."""
    first = re.compile(r"[ ]*").match(draft.text, span[0])
    try:
        shell.convert_part(draft, *span, indent=len(first.group()) if first else 0)
    except NotReadableError:
        draft.say("CW607", "manual", span, "a script that could not be read names CUDA",
                  "Look through it by hand.")  # fmt: skip


def _keys(draft: Draft, node: Any, path: tuple[str, ...], seen: set[int] | None = None) -> None:
    """Keys that are names themselves: environment variables, resources."""
    seen = set() if seen is None else seen
    if id(node) in seen or node.id == "scalar":
        return
    seen.add(id(node))
    if node.id == "sequence":
        for item in node.value:
            _keys(draft, item, path, seen)
        return
    for key, value in node.value:
        name = str(key.value) if key.id == "scalar" else ""
        start, end = key.start_mark.index, key.end_mark.index
        if _RESOURCE.search(name):
            draft.say(values.SCHEDULER, "manual", (start, end), f"{name} is a resource of GPUs",
                      "Name the resource of the vendor's device plugin.", api=name)  # fmt: skip
        elif draft.text[start:end] == name and name.isupper():
            judge_variable(draft, name, (start, end), use=False)
        _keys(draft, value, (*path, name), seen)
