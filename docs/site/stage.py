"""Gather the pages of the site: `python docs/site/stage.py FOLDER`, the first half of `make site`.

The pages keep their places, so that a link in them works here, on a host of code and in an editor.
Made besides are `index`, from docs/README.md, whose headings are the sections of the sidebar; the
reference; and a page for each file of code that a page links to. A page that no section lists is a
warning of Sphinx, and so an error.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

import reference

ROOT = Path(__file__).parents[2]
ABOUT = ("README.md", "README.zh.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md")
ABOUT += ("RELEASING.md", "SECURITY.md")
INDEX = "docs/README.md"
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".cpp": "cpp", ".hpp": "cpp"}
LANGUAGES |= {".toml": "toml", ".yml": "yaml", ".json": "json", ".sh": "sh"}
_FENCE = re.compile(r"^(`{3,}|~{3,})")
_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)#\s]*)(#[^)\s]*)?\)")


def pages() -> list[str]:
    """The pages that are written by hand or by `make docs`, as paths from the root."""
    found = [ROOT / name for name in ABOUT]
    folders = ("docs", "docs/rules", "docs/coming", "docs/zh")
    for pattern in (*(f"{folder}/*.md" for folder in folders), "vendors/*/README.md"):
        found += sorted(ROOT.glob(pattern))
    found += [ROOT / "tests/README.md"]
    return [path.relative_to(ROOT).as_posix() for path in found]


class Stage:
    """A folder of pages that Sphinx reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = set(pages())
        self.code: set[str] = set()
        self.written: set[Path] = set()

    def write(self, path: str, text: str) -> None:
        """What is the same stays as it is, so that Sphinx does not read it again."""
        target = self.folder / path
        self.written.add(target)
        if not target.exists() or target.read_text() != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def target(self, path: str) -> str:
        """Where the site has what lies at `path` of the repository."""
        for name, (_, header) in reference.HEADERS.items():
            if path == header:
                return f"reference/{name}.md"
        if path == INDEX:
            return "index.md"
        if path in self.pages or path.endswith(".svg"):
            return path
        if not (ROOT / path).exists():
            raise FileNotFoundError(path)
        self.code.add(path)
        return f"code/{path}.md"

    def linked(self, page: str, text: str, into: str | None = None) -> str:
        """The text of `page`, with links that lead where the site has their targets."""
        base = posixpath.dirname(into or page)

        def link(found: re.Match[str]) -> str:
            label, path, anchor = found[1], found[2], found[3] or ""
            if not path or re.match(r"[a-z]+:", path):
                return found[0]
            given = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
            try:
                there = self.target(given)
            except FileNotFoundError:
                raise SystemExit(f"{page}: a link to {path}, which is not there") from None
            return f"{label}({posixpath.relpath(there, base or '.')}{anchor})"

        lines, fence = [], ""
        for line in text.split("\n"):
            mark = _FENCE.match(line.strip())
            if mark and (not fence or line.strip() == fence):
                fence = "" if fence else mark[1]
            lines.append(line if fence or mark else _LINK.sub(link, line))
        return "\n".join(lines)

    def index(self) -> None:
        """docs/README.md as the first page, its sections as the sidebar's."""
        text = (ROOT / INDEX).read_text()
        linked = self.linked(INDEX, text, into="index.md")
        listed: set[str] = set()
        parts = [linked]
        for section in re.split(r"^## ", linked, flags=re.MULTILINE)[1:]:
            title = section.split("\n", 1)[0]
            targets = [re.sub(r"\.md$", "", found[2]) for found in _LINK.finditer(section)]
            entries = [t for t in dict.fromkeys(targets) if t and "://" not in t]
            entries = [t for t in entries if t not in listed and t[:5] != "code/"]
            if title == "Reference":
                entries += [page for page in reference.PAGES if page not in {*listed, *entries}]
            listed |= set(entries)
            parts.append(_toctree(title, entries))
        about = [name.removesuffix(".md") for name in ABOUT]
        parts.append(_toctree("About", [name for name in about if name not in listed]))
        self.write("index.md", "\n\n".join(parts) + "\n")

    def listing(self, path: str) -> str:
        """A page of code: the file, or the names in the folder."""
        place = ROOT / path
        if place.is_dir():
            names = sorted(f"{p.name}/" if p.is_dir() else p.name for p in place.iterdir())
            kept = [name for name in names if name[0] not in "._"]
            body = "\n".join(f"- `{name}`" for name in kept)
        else:
            language = LANGUAGES.get(place.suffix, "text")
            text = place.read_text().rstrip("\n")
            fence = "`" * (3 + max((len(run) for run in re.findall("`+", text)), default=0))
            body = f"{fence}{{code-block}} {language}\n:linenos:\n\n{text}\n{fence}"
        return f"---\norphan: true\n---\n\n# {path}\n\n{body}\n"

    def build(self) -> None:
        self.index()
        for page in self.pages - {INDEX}:
            text = self.linked(page, (ROOT / page).read_text())
            if page == "docs/rules/README.md":
                text += "\n" + _toctree("", ["CW*"], glob=True)
            self.write(page, text)
        for page, text in reference.pages().items():
            self.write(f"{page}.md", text)
        for path in sorted(self.code):
            self.write(f"code/{path}.md", self.listing(path))
        for picture in (ROOT / "docs/pictures").glob("*.svg"):
            self.write(f"docs/pictures/{picture.name}", picture.read_text())
        for old in self.folder.rglob("*.*"):
            if old.is_file() and old not in self.written:
                old.unlink()


def _toctree(caption: str, entries: list[str], *, glob: bool = False) -> str:
    options = ([f":caption: {caption}"] if caption else []) + [":hidden:", ":maxdepth: 1"]
    options += [":glob:"] if glob else []
    return "\n".join(["```{toctree}", *options, "", *entries, "```"])


if __name__ == "__main__":
    Stage(Path(sys.argv[1])).build()
