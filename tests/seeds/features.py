"""Each feature that the documents name which Causeway grew from, tried: writes docs/seeds.md.

python tests/seeds/features.py                # run every check, write the page
python tests/seeds/features.py --check        # run every check, compare with the page
python tests/seeds/features.py --only hccl    # run the checks of the features with that text

features/ has a file for each document, and a table for each feature: `name`, `docs` (a page, with
its heading), and one of

check     Python that asserts; it has torch, nn, F, causeway, os, re and `device`. It runs in a
          folder of its own, together with the others of the same variables in one process
program   Python that has a process to itself and imports what it needs
command   words of a shell; `prints` is a regular expression of what comes out, `status` its exit
test      a test that shows it, as pytest names it
differs   why it is different here, and what to do instead
missing   why it is not there, or only in part, and what to do instead

`differs` and `missing` may stand with a check of what is there. The documents are no part of this
repository.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "seeds.md"
BLOCK = re.compile(r"(<!-- from tests/seeds/features -->\n).*?(\n<!-- end -->)", re.DOTALL)
KINDS = ("check", "program", "command", "test")
LIMIT = 240  # seconds of one process

# Runs checks that share a process, each in a namespace and a folder of its own.
CHILD = """
import json, os, sys, tempfile, traceback
checks, out = json.load(sys.stdin), sys.argv[1]
import re, torch, causeway
given = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "causeway": causeway, "os": os,
         "re": re, "device": torch.accelerator.current_accelerator()}
failed = {}
for name, code in checks:
    os.chdir(tempfile.mkdtemp(dir=os.path.dirname(out)))
    try:
        exec(compile(code, name, "exec", dont_inherit=True), dict(given, __name__="check"))
    except BaseException as error:
        failed[name] = "".join(traceback.format_exception(error))
    with open(out, "w") as file:
        json.dump([name, failed], file)
"""


@dataclass(frozen=True)
class Feature:
    """A row: what a document names, and what shows that it is here."""

    document: str
    name: str
    docs: str
    check: str = ""
    program: str = ""
    command: str = ""
    prints: str = ""
    status: int = 0
    test: str = ""
    differs: str = ""
    missing: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def result(self) -> str:
        return "missing" if self.missing else "differs" if self.differs else "works"

    @property
    def key(self) -> str:
        return f"{self.document}: {self.name}"


@dataclass(frozen=True)
class Document:
    title: str
    about: str
    features: tuple[Feature, ...]


@cache
def documents() -> tuple[Document, ...]:
    """All of features/, in the order of their names. ValueError for a row that shows nothing."""
    found = []
    for path in sorted((HERE / "features").glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        shared = table.get("environment", {})
        rows = []
        for entry in table["feature"]:
            own = shared | entry.pop("environment", {})
            rows.append(Feature(document=path.stem, environment=own, **entry))
        for row in rows:
            shown = [kind for kind in KINDS if getattr(row, kind)]
            reasons = [kind for kind in ("differs", "missing") if getattr(row, kind)]
            if len(shown) > 1 or len(reasons) > 1 or not shown + reasons:
                raise ValueError(f"{row.key}: one of {', '.join(KINDS)}, or a reason, or both")
            if (row.command != "") != (row.prints != ""):
                raise ValueError(f"{row.key}: a command and what it prints come together")
        found.append(Document(table["title"], table["about"], tuple(rows)))
    return tuple(found)


def features() -> tuple[Feature, ...]:
    return tuple(row for document in documents() for row in document.features)


# --- running --------------------------------------------------------------------------------------


def _environment(row: Feature) -> dict[str, str]:
    """This process's without Causeway's variables, the row's, and the packages of its system."""
    from causeway import compat

    found = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
    path = [str(HERE / "stand_ins")]
    if system := row.environment.get("CAUSEWAY_COMPAT"):
        path.append(str(compat.first(system)))
    found["PYTHONPATH"] = os.pathsep.join(path)
    found["OMP_NUM_THREADS"] = "1"
    found["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{found.get('PATH', '')}"
    return found | {k: v.replace("{root}", str(ROOT)) for k, v in row.environment.items()}


def _run_checks(rows: list[Feature], folder: Path) -> dict[str, str]:
    """What failed of checks with the same variables. A process that ends early fails all that
    were not done.
    """
    folder.mkdir()
    out = folder / "results.json"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, str(out)],
        input=json.dumps([[row.key, row.check] for row in rows]), env=_environment(rows[0]),
        cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    names = [row.key for row in rows]
    last, failed = json.loads(out.read_text()) if out.exists() else ("", {})
    late = names[names.index(last) + 1 :] if last else names
    return failed | dict.fromkeys(late, f"the process ended: {done.stdout}{done.stderr}")


def _run_alone(row: Feature, folder: Path) -> str:
    """Why a program or a command failed, or ""."""
    folder.mkdir()
    command = row.command.replace("{root}", str(ROOT))
    words = [sys.executable, "-c", row.program] if row.program else ["sh", "-c", command]
    done = subprocess.run(
        words, env=_environment(row), cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    printed = done.stdout + done.stderr
    if done.returncode != row.status:
        return f"exit status {done.returncode}, not {row.status}: {printed}"
    if not re.search(row.prints, printed, re.DOTALL):
        return f"nothing like {row.prints!r} in: {printed}"
    return ""


def missing_test(name: str) -> str:
    """Why a test that is named is not one, or "": file.py::function, read and not imported."""
    file, _, function = name.partition("::")
    if not (ROOT / file).is_file():
        return f"there is no file {file}"
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return "" if function in functions else f"there is no {function} in {file}"


def run(rows: list[Feature]) -> dict[str, str]:
    """What failed, by key, with the reason. Two processes run at a time; checks of the same
    variables share one.
    """
    groups: dict[tuple[tuple[str, str], ...], list[Feature]] = {}
    for row in rows:
        if row.check:
            groups.setdefault(tuple(sorted(row.environment.items())), []).append(row)
    failed = {row.key: reason for row in rows if row.test and (reason := missing_test(row.test))}
    alone = [row for row in rows if row.program or row.command]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(2) as threads:
        folders = (Path(temporary) / str(number) for number in count())
        longest = sorted(groups.values(), key=len, reverse=True)
        shared = [threads.submit(_run_checks, group, next(folders)) for group in longest]
        single = [(row.key, threads.submit(_run_alone, row, next(folders))) for row in alone]
        for future in shared:
            failed |= future.result()
        failed |= {key: reason for key, future in single if (reason := future.result())}
    return failed


# --- the page -------------------------------------------------------------------------------------


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def shown(row: Feature, failed: dict[str, str]) -> str:
    if row.key in failed:
        return "**fails**"
    words = {"works": "works", "differs": "differs: ", "missing": "not, or in part: "}
    return words[row.result] + _cell(row.differs or row.missing)


def _link(docs: str) -> str:
    page = docs.partition("#")[0]
    if not page.startswith("../"):
        return f"[{page}]({docs})"
    return f"[{page[3:]}]({docs})"


def markdown(failed: dict[str, str]) -> str:
    """The tables of docs/seeds.md: how many, then each document's features."""
    lines = ["| | features | work | differ | not, or in part |", "| --- | --- | --- | --- | --- |"]
    counted = [(d.title, [row.result for row in d.features]) for d in documents()]
    counted.append(("all", [row.result for row in features()]))
    for title, results in counted:
        numbers = [len(results), *(results.count(r) for r in ("works", "differs", "missing"))]
        lines.append(f"| {title} | {' | '.join(map(str, numbers))} |")
    for document in documents():
        lines += ["", f"## {document.title}", "", _cell(document.about), ""]
        lines += ["| feature | result | where |", "| --- | --- | --- |"]
        for row in document.features:
            lines.append(f"| {_cell(row.name)} | {shown(row, failed)} | {_link(row.docs)} |")
    return "\n".join(lines)


def page(failed: dict[str, str]) -> str:
    """docs/seeds.md with its tables as they are now."""
    text = PAGE.read_text(encoding="utf-8")
    return BLOCK.sub(lambda m: m[1] + markdown(failed) + m[2], text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the page")
    parser.add_argument("--only", metavar="TEXT", help="some features; nothing is written")
    options = parser.parse_args()
    rows = [row for row in features() if (options.only or "").lower() in row.key.lower()]
    failed = run(rows)
    for name, reason in failed.items():
        print(f"{name}\n{reason}\n", file=sys.stderr)
    print(f"{len(rows)} features, {len(failed)} fail")
    if options.only:
        return int(bool(failed))
    text = page(failed)
    if options.check:
        same = PAGE.read_text(encoding="utf-8") == text
        if not same:
            print("docs/seeds.md is not what was found: run tests/seeds/features.py")
        return int(bool(failed) or not same)
    PAGE.write_text(text, encoding="utf-8")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
