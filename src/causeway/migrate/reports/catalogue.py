"""What reports know of rules, whichever converter they belong to."""

from __future__ import annotations

from functools import cache

from causeway.migrate import knowledge
from causeway.migrate.files import packages
from causeway.migrate.files import rules as files
from causeway.migrate.finding import Finding
from causeway.migrate.systems import rules as systems

_GROUPS = {
    "CW17": "other systems",
    "CW1": "Python",
    "CW60": "options, keys, variables",
    "CW61": "launching",
    "CW62": "notebooks",
    "CW63": "packages",
    "CW64": "containers",
    "CW65": "CUDA and C++ sources",
    "CW7": "precision and speed",
}


@cache
def describe(code: str) -> dict[str, str]:
    """A rule's title, name, severity, why and by_hand; of one that is not known, its code."""
    from causeway.migrate import advice
    from causeway.migrate.rules import RULES

    tables = (RULES, systems.RULES, files.RULES, advice.RULES)
    rule = next((table[code] for table in tables if code in table), None)
    if rule is None:
        return {"title": code, "name": code, "severity": "warning", "why": "", "by_hand": ""}
    return {
        "title": rule.title,
        "name": rule.name,
        "severity": rule.severity,
        "why": rule.why,
        "by_hand": rule.by_hand,
    }


def page(code: str) -> str:
    """A rule's page as Markdown, the one that docs/rules has; "" for a code that has none."""
    from causeway.migrate import docs

    return docs.pages().get(f"{code}.md", "")


def group(found: Finding) -> str:
    """The sort of files or things that a finding is about."""
    for length in (4, 3):
        if found.rule[:length] in _GROUPS:
            return _GROUPS[found.rule[:length]]
    return "other"


# What is about a package as such: its import, its line among the requirements, its uses.
_PACKAGES = {"CW121", "CW161", "CW632"}


def package(found: Finding) -> str:
    """The package for CUDA that a place which stays is about, or "". The name on the index and the
    name that is imported are one: `flash-attn` is flash_attn.
    """
    if found.rule not in _PACKAGES or found.kind not in ("manual", "unsupported"):
        return ""
    if found.rule == "CW632":
        return packages.module(found.api)
    return found.api.partition(".")[0]


def is_unknown(found: Finding) -> bool:
    """Whether a finding is about a name that no table knows."""
    return found.api.startswith("torch.cuda.") and knowledge.find(found.api) is None
