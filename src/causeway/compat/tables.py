"""docs/compat.md: how code for each system runs, and the tables of its names and variables."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

from causeway.compat import Variable, names, systems
from causeway.compat.npu_module import _PUBLIC

# The modules whose names are listed, by the name under which a program imports them.
_MODULES = {
    "torch_npu": "causeway.compat.torch_npu.operators",
    "torch.npu": "causeway.compat.npu_module",
    "torch_npu.contrib": "causeway.compat.torch_npu.contrib",
    "torch_npu.optim": "causeway.compat.torch_npu.optim",
    "torch_npu.profiler": "causeway.compat.torch_npu.profiler",
    "torch_npu.distributed": "causeway.compat.torch_npu.distributed",
    "torch_npu.utils": "causeway.compat.torch_npu.utils",
    "torch_mlu.core.mlu_model": "causeway.compat.torch_mlu.core.mlu_model",
    "torch_mlu.core.mlu_quantize": "causeway.compat.torch_mlu.core.mlu_quantize",
    "torch_mlu.core.dumptool": "causeway.compat.torch_mlu.core.dumptool",
    "torch_mlu.utils": "causeway.compat.torch_mlu.utils",
    "cnmix": "causeway.compat.cnmix",
    "mindspore": "causeway.compat.mindspore",
    "mindspore.ops": "causeway.compat.mindspore.ops",
    "mindtorch.tools": "causeway.compat.mindtorch.tools",
}


_HEAD = Path(__file__).with_name("page.md")  # what the page says before the tables


def _here(variable: Variable) -> str:
    """What becomes of a variable, in the words of the page."""
    if variable.setting:
        return f"`CAUSEWAY_{variable.setting.upper()}`"
    return variable.says if variable.package else f"no effect: {variable.says}"


def markdown() -> str:
    """The page, with all tables, as Markdown."""
    parts = []
    for system in systems().values():
        parts.append(f"## {system.title}\n")
        parts.append("| variable | here |\n|---|---|\n" + "".join(
            f"| `{v.name}` | {_here(v)} |\n" for v in system.variables.values()
        ))  # fmt: skip
        for name, where in _MODULES.items():
            if name.partition(".")[0] in system.packages or (name, system.name) == (
                "torch.npu", "npu",
            ):  # fmt: skip
                parts.append(_table(name, importlib.import_module(where)))
        parts += [_covered()] if system.name == "npu" else []
    return _HEAD.read_text(encoding="utf-8") + "\n".join(part for part in parts if part)


def _covered() -> str:
    """How many of torch_npu's public names are there; tests/compat/names.py counts them."""
    table = json.loads(Path(__file__).with_name("covered.json").read_text(encoding="utf-8"))
    release = table["wheel"].replace("-", " ")
    rows = [(f"`{module}`", counts) for module, counts in table["modules"].items()]
    kinds = ("works", "says what to write", "unknown")
    rows.append(("all", {k: sum(counts.get(k, 0) for _, counts in rows) for k in kinds}))
    body = "".join(
        f"| {module} | {sum(counts.values())} | " + " | ".join(str(counts.get(k, 0)) for k in kinds)
        + " |\n" for module, counts in rows
    )  # fmt: skip
    return (
        f"### How many of them\n\nThe public names of {release}, as its wheel has them, counted by "
        "`tests/compat/names.py`.\n\n| module | names | work | raise and say what to write | "
        f"neither |\n|---|---|---|---|---|\n{body}"
    )


def works(module: ModuleType) -> dict[str, str]:
    """The names of a module that work, with a line on each."""
    if module.__name__.endswith("npu_module"):
        names = sorted(_PUBLIC)
    else:
        names = [
            n for n in sorted(vars(module))
            if not n.startswith("_") and callable(vars(module)[n])
            and n not in ("Any", "Sequence", "Callable", "Tensor", "getter", "no_effect", "TypeVar",
                          "CausewayError", "TracebackType", "Enum", "Aliases")
        ]  # fmt: skip
    found = {}
    for name in names:
        text = (vars(module)[name].__doc__ or "").strip().split("\n\n")[0]
        from_where = str(getattr(vars(module)[name], "__module__", ""))
        own = from_where.startswith(("causeway", "torch_npu"))  # as its files name a class
        found[name] = " ".join(text.split()) if own else "torch's own"
    return found


def _table(name: str, module: ModuleType) -> str:
    rows = [(n, text) for n, text in works(module).items()]
    rows += [(n, f"raises: {text}") for n, text in sorted(names.instead(name).items())]
    if not rows:
        return ""
    body = "".join(f"| `{n}` | {text.replace('|', chr(92) + '|')} |\n" for n, text in rows)
    return f"### {name}\n\n| name | here |\n|---|---|\n{body}"
