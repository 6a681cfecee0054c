"""What runs on a public host is configured for what is here: targets, Pythons, releases, hooks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def targets_run(text: str, matrix: dict[str, list[str]]) -> set[str]:
    """The targets that the lines of a workflow or of the Dockerfile give to make."""
    text = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", r"@\1", text)
    found: set[str] = set()
    for given in re.findall(r"\bmake (.+)", text):
        for word in given.replace('"', "").split():
            if word[0] == "@":
                found |= set(matrix[word[1:]])
            elif re.fullmatch(r"[a-z][a-z-]*", word):
                found.add(word)
    return found


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_targets_that_exist_with_least_rights(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job, name
        matrix = job.get("strategy", {}).get("matrix", {})
        assert targets_run(commands(job), matrix) - TARGETS == set(), name


def test_a_target_that_is_not_there_is_found() -> None:
    assert targets_run("make tset JOBS=2\nmake lint test", {}) - TARGETS == {"tset"}
    assert targets_run('make "${{ matrix.x }}" JOBS=2', {"x": ["a", "b"]}) == {"a", "b"}


def test_the_dockerfile_runs_targets_that_exist() -> None:
    text = (ROOT / "Dockerfile").read_text()
    lines = "\n".join(line for line in text.split("\n") if line.startswith("RUN make"))
    assert targets_run(lines, {}) == {"build", "wheel"}
    assert {"build", "wheel"} <= TARGETS
    for copied in re.findall(r"^COPY (?!\.)(.*) \./$", text, re.MULTILINE):
        assert [name for name in copied.split() if not (ROOT / name).exists()] == []


def test_wheels_are_built_for_the_same_pythons_everywhere() -> None:
    built = [name.removesuffix("-*") for name in PROJECT["tool"]["cibuildwheel"]["build"]]
    matrix = load(ROOT / ".github/workflows/wheels.yml")["jobs"]["wheel"]["strategy"]["matrix"]
    assert matrix["python"] == built == ["cp311", "cp312", "cp313", "cp314"]
    assert built[0] == "cp" + PROJECT["project"]["requires-python"].removeprefix(">=").replace(
        ".", ""
    )
    assert "to 3.14" in (ROOT / "RELEASING.md").read_text()


def test_torchs_libraries_stay_out_of_the_wheel() -> None:
    """CMake links to them, and auditwheel must leave each of them where torch has it."""
    linked = re.search(
        r"foreach\(name (.*)\)\n  find_library\(TORCH", (ROOT / "CMakeLists.txt").read_text()
    )
    assert linked
    repair = PROJECT["tool"]["cibuildwheel"]["linux"]["repair-wheel-command"]
    excluded = set(re.findall(r"--exclude lib(\w+)\.so", repair))
    assert excluded == set(linked[1].split())


def test_the_releases_of_the_matrix_are_promised() -> None:
    (asked,) = {r for r in PROJECT["build-system"]["requires"] if r.startswith("torch")}
    low, high = (int(minor) for minor in re.findall(r"2\.(\d+)", asked))
    included = load(ROOT / ".github/workflows/check.yml")["jobs"]["test"]["strategy"]["matrix"][
        "include"
    ]
    for row in included:
        assert low <= int(row["torch"].split(".")[1]) < high, row


def test_hooks_say_what_lint_says() -> None:
    """A hook runs the tool of the development environment, or a linter that has no place there."""
    hooks = load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    lint = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    for hook in hooks:
        if hook["language"] == "system":
            tool = hook["entry"].split()[0].removeprefix(".venv/bin/")
            assert tool == "python" or f"$(BIN)/{tool}" in lint, hook["id"]


def test_the_version_is_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = ROOT / PROJECT["tool"]["scikit-build"]["metadata"]["version"]["input"]
    version = re.search(r'^__version__ = "(.+)"$', source.read_text(), re.MULTILINE)
    assert version
    for other in ("pyproject.toml", "CMakeLists.txt", "README.md", "docs/site/conf.py"):
        assert version[1] not in (ROOT / other).read_text(), other
