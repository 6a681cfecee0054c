"""Docs cannot rot: their tables are what the code writes, their Python runs, their paths exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import warm
from causeway import config

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "vendors/template/README.md"]
PAGES += ["AGENTS.md", "SECURITY.md", "RELEASING.md"]
PAGES += [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))]
PAGES += [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs/coming").glob("*.md"))]

CHINESE = ["README.zh.md"]  # their code is the English pages': test_chinese.py
CHINESE += [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs/zh").glob("*.md"))]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_table_of_settings_is_what_the_code_writes() -> None:
    assert (ROOT / "docs/settings.md").read_text() == config.markdown(), "run `make docs`"


def test_the_table_of_operators_is_what_was_counted() -> None:
    script = ROOT / "tests/torch/results.py"
    table = warm.run([script, "--markdown"]).stdout
    assert table
    assert table in (ROOT / "docs/support.md").read_text(), f"run `{script.name} --docs`"


def test_the_table_of_libraries_is_what_was_run() -> None:
    script = ROOT / "tests/libraries/results.py"
    table = warm.run([script, "--markdown"]).stdout
    assert table
    assert table in (ROOT / "docs/libraries.md").read_text(), f"run `{script.name} --docs`"


def test_the_table_of_torchs_releases_is_what_was_run() -> None:
    script = ROOT / "tests/releases.py"
    table = warm.run([script, "--markdown"]).stdout
    assert table
    assert table in (ROOT / "docs/torch.md").read_text(), f"run `{script.name} --docs`"


def test_the_tables_of_chips_are_their_reports() -> None:
    script = ROOT / "tests/conformance/published.py"
    table = warm.run([script, "--markdown"]).stdout
    assert table
    assert table in (ROOT / "docs/chips.md").read_text(), f"run `{script.name}`"


def test_the_tables_of_quantization_are_what_was_run() -> None:
    script = ROOT / "benchmarks/quant_accuracy.py"
    tables = warm.run([script, "--markdown"]).stdout
    assert tables
    assert tables in (ROOT / "docs/quantize.md").read_text(), f"run `{script.name} --docs`"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_python_in_docs_runs(run_python, page: str, tmp_path: Path) -> None:
    program = "\n".join(blocks(page, "python"))
    compile(program, page, "exec")
    done = run_python(f"import os\nos.chdir({str(tmp_path)!r})\n{program}")  # it may write files
    assert done.stderr == ""


@pytest.mark.parametrize("page", [*PAGES, *CHINESE])
def test_links_in_docs_lead_somewhere(page: str) -> None:
    prose = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\((?!http)([^)#]+)", prose)  # in code it may be a C++ lambda
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert missing == []


def test_files_that_code_and_docs_speak_of_exist() -> None:
    named = re.compile(
        r"\b(?:tests|docs|vendors|examples|benchmarks)/[\w/]+\.(?:py|md|toml|json)\b"
    )
    # Written by `make test-torch-next`.
    made = {"tests/releases.json"}
    missing = []
    for folder in ("csrc", "include", "src", "tests", "vendors", "docs", "examples", "benchmarks"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix not in (".cpp", ".h", ".hpp", ".c", ".py", ".md", ".toml"):
                continue
            near = (ROOT, file.parent, file.parent.parent)  # a vendor's own tests, say
            for name in set(named.findall(file.read_text())) - made:
                if not any((base / name).exists() for base in near):
                    missing.append(f"{file.relative_to(ROOT)}: {name}")
    assert missing == []


def test_the_readme_tree_is_the_tree() -> None:
    (tree,) = blocks("README.md", "text")
    folder = ""
    for line in tree.splitlines():
        name = line.split()[0]
        folder = folder if line.startswith("  ") else name
        path = ROOT / folder / name if line.startswith("  ") else ROOT / name
        assert path.exists(), line
    # Every module of the package has its line.
    package = ROOT / "src" / "causeway"
    modules = [p.name for p in package.iterdir() if p.suffix == ".py" and p.name[0] != "_"]
    assert [name for name in modules if f"  {name} " not in tree] == []


def test_every_make_target_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE))
    for target in phony.split():
        assert re.search(rf"^{target}:.*## \S", makefile, re.MULTILINE), target
