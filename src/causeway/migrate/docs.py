"""Pages of the rules, written from the rules: `python -m causeway.migrate.docs FOLDER`."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from causeway.migrate import advice, knowledge
from causeway.migrate.files import rules as files
from causeway.migrate.rule import Rule
from causeway.migrate.rules import RULES
from causeway.migrate.systems import rules as systems

_WRITTEN = "Written by `python -m causeway.migrate.docs docs/rules`."

_LANGUAGES = {".py": "python", ".sh": "sh", ".yaml": "yaml", ".cu": "cuda", ".cpp": "cpp"}


@cache
def pages() -> dict[str, str]:
    """The pages by file name: one for each rule, `README.md` with all of them, `torch_cuda.md`."""
    every = RULES | systems.RULES | files.RULES | advice.RULES
    found = {f"{rule.code}.md": _page(rule) for rule in every.values()}
    found["README.md"] = "\n".join([
        "# Rules", "", "[中文](../zh/rules/README.md)", "", _WRITTEN, "",
        "A rule that is not safe is applied with `--unsafe` only, and reports until then.", "",
        "## Python", "", *_table(RULES),
        "## Code for other systems' packages", "",
        "See [code for other systems](../migrate.md#code-for-other-systems).",
        "", *_table(systems.RULES),
        "## Scripts, configurations, notebooks, packages, sources", "",
        "See [what happens to these files](../migrate_files.md).", "", *_table(files.RULES),
        "## Hints on precision and speed", "",
        "They hold on any accelerator and change nothing; `--ignore CW7` leaves them out.", "",
        *_table(advice.RULES),
    ])  # fmt: skip
    found["torch_cuda.md"] = _names()
    return found


def _table(rules: dict[str, Rule]) -> list[str]:
    rows = [
        f"| [{r.code}]({r.code}.md) | {r.title} | {r.severity} | {'yes' if r.safe else 'no'} | "
        f"{'reports' if r.before == r.after else 'converts'} |"
        for r in rules.values()
    ]
    head = ["| code | about | severity | safe | it |", "| --- | --- | --- | --- | --- |"]
    return [*head, *rows, ""]


def _fenced(rule: Rule, text: str) -> list[str]:
    language = _LANGUAGES.get(Path(rule.path).suffix, "text")
    return [f"```{language}", text.rstrip("\n"), "```", ""]


def _page(rule: Rule) -> str:
    parts = [
        f"# {rule.code}: {rule.title}", "", _WRITTEN, "",
        f"`{rule.name}`, severity {rule.severity}, {'safe' if rule.safe else 'not safe'}.", "",
        "## Why", "", rule.why, "",
    ]  # fmt: skip
    named = "" if rule.target == "portable" else f", with `--target {rule.target}`"
    if not rule.before:
        pass
    elif rule.before == rule.after:
        parts += ["## What it reports", "", *_fenced(rule, rule.before)]
    else:
        parts += ["## Before", "", *_fenced(rule, rule.before)]
        parts += [f"## After{named}", "", *_fenced(rule, rule.after)]
    parts += ["## By hand", "", rule.by_hand, ""]
    names = [a for a in knowledge.apis().values() if a.rule == rule.code and a.status != "internal"]
    if names:
        parts += [
            "## Names",
            "",
            "| name | status | becomes | remark |",
            "| --- | --- | --- | --- |",
        ]
        parts += [f"| `{a.name}` | {a.status} | {_becomes(a)} | {a.tip} |" for a in names] + [""]
    packages = [p for p in knowledge.packages().values() if p.rule == rule.code]
    if packages:
        parts += ["## Packages", "", "| package | effort | alternative |", "| --- | --- | --- |"]
        parts += [f"| `{p.only or p.name}` | {p.effort} | {p.alternative} |" for p in packages] + [
            ""
        ]
    notes = [n for n in knowledge.notes().values() if n.rule == rule.code]
    if notes:
        parts += ["## Names", "", "| name | kind | remark |", "| --- | --- | --- |"]
        parts += [f"| `{n.name}` | {n.kind} | {n.tip} |" for n in notes] + [""]
    return "\n".join(parts)


def _becomes(api: knowledge.Api) -> str:
    name = api.name.removeprefix("torch.cuda.")
    return {
        "rename": f"`{api.to}`",
        "special": f"`{api.to}`" if api.to else f"see [{api.rule}]({api.rule}.md)",
        "module": f"`torch.get_device_module().{name}`",
        "keep": "stays",
        "manual": "by hand",
    }[api.action]


def _names() -> str:
    known = [a for a in knowledge.apis().values() if a.status != "internal"]
    count = {s: sum(a.status == s for a in known) for s in ("supported", "limited", "missing")}
    rows = [
        f"| `{a.name.removeprefix('torch.cuda.')}` | {a.status} | {_becomes(a)} | "
        f"{a.since or ''} | [{a.rule}]({a.rule}.md) |"
        for a in known
    ]
    return "\n".join([
        "# Every public name of torch.cuda", "", _WRITTEN, "",
        f"{len(known)} names: {count['supported']} have a spelling for every device, "
        f"{count['limited']} are asked of the device's own module or need a look, "
        f"{count['missing']} exist for CUDA alone.", "",
        "| `torch.cuda.` | status | becomes | since torch | rule |",
        "| --- | --- | --- | --- | --- |", *rows, "",
    ])  # fmt: skip


def main(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
