"""SARIF as the specification has it, as far as we write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from causeway.pages import sarif
from causeway.pages.sarif import Result, SarifRule

RULES = [
    SarifRule(
        "CW-missing", "An operator that the chip lacks", "warning", "Missing", "Ask the vendor."
    ),
    SarifRule("CW-dtype", "A dtype that the chip lacks", "error"),
]


def check(document: dict[str, Any]) -> None:
    """What sections 3.13 to 3.30 of the specification require of the properties that we write."""
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    for run in document["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        ids = [rule["id"] for rule in driver["rules"]]
        assert len(set(ids)) == len(ids)
        for rule in driver["rules"]:
            assert rule["shortDescription"]["text"]
            assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
            assert "help" not in rule or rule["help"]["text"]
        assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        bases = run.get("originalUriBaseIds", {})
        assert all(base["uri"].endswith("/") for base in bases.values())
        for result in run["results"]:
            assert result["message"]["text"]
            assert ids[result["ruleIndex"]] == result["ruleId"]
            assert result["level"] in ("none", "note", "warning", "error")
            for location in result.get("locations", []):
                physical = location["physicalLocation"]
                artifact = physical["artifactLocation"]
                if "uriBaseId" in artifact:
                    assert artifact["uriBaseId"] in bases
                    assert not artifact["uri"].startswith("/")
                else:
                    assert artifact["uri"].startswith("file:///")
                assert " " not in artifact["uri"]
                region = physical.get("region", {"startLine": 1})
                assert region["startLine"] >= 1
                assert all(
                    region.get(key, 1) >= 1 for key in ("startColumn", "endLine", "endColumn")
                )


def test_a_document_has_the_required_structure(tmp_path: Path) -> None:
    results = [
        Result("CW-missing", "aten::nms runs on the host", "train me.py", 3, 5, 3, 9, text="nms()"),
        Result("CW-dtype", "float64", tmp_path / "model.py", 8, level="note"),
        Result("CW-dtype", "somewhere else", "/elsewhere/x.py", 1),
        Result("CW-dtype", "of the file", "model.py"),
        Result("CW-dtype", "nowhere"),
    ]
    document = sarif.document(
        "causeway", RULES, results, root=tmp_path, version="1", uri="https://x"
    )
    check(document)
    target = tmp_path / "x.sarif"
    sarif.write(target, document)
    assert json.loads(target.read_text()) == document
    first, second, *_ = document["runs"][0]["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "train%20me.py", "uriBaseId": "SRCROOT"}
    assert (place["region"]["startLine"], place["region"]["endColumn"]) == (3, 9)
    assert place["region"]["snippet"] == {"text": "nms()"}
    assert second["level"] == "note"
    assert "locations" not in document["runs"][0]["results"][-1]


def test_a_finding_is_known_again_where_lines_moved() -> None:
    def prints(*lines: int) -> list[str]:
        results = [Result("CW-dtype", "m", "a.py", line, text="x.double()") for line in lines]
        run = sarif.document("t", RULES, results, root=".")["runs"][0]
        return [r["partialFingerprints"]["primaryLocationLineHash"] for r in run["results"]]

    assert prints(3, 9) == prints(5, 12)
    assert len(set(prints(3, 9))) == 2


def test_what_readers_would_refuse_is_refused() -> None:
    with pytest.raises(ValueError, match="not among the rules"):
        sarif.document("t", RULES, [Result("CW-other", "m")])
    with pytest.raises(ValueError, match="the same id"):
        sarif.document("t", [RULES[0], RULES[0]], [])
    with pytest.raises(ValueError, match="level 'fatal'"):
        sarif.document("t", RULES, [Result("CW-dtype", "m", level="fatal")])  # type: ignore[arg-type]
