"""Does every link of the built site lead somewhere? `python docs/site/links.py build/site/html`.

Sphinx checks what it resolves itself. This reads the pages as a browser gets them: each href and
src that stays on the site names a file, and each #fragment an id of that page.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[tuple[int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value or "")
            elif name in ("href", "src") and value:
                self.links.append((self.getpos()[0], value))


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def check(folder: Path) -> tuple[int, list[str]]:
    """How many links there are, and what is wrong with some."""
    pages = {path.resolve(): _read(path) for path in sorted(folder.rglob("*.html"))}
    count, wrong = 0, []
    for path, page in pages.items():
        for line, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            where = f"{path.relative_to(folder.resolve())}:{line}: {link}"
            if not target.exists():
                wrong.append(f"{where}: no such file")
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].ids
            ):
                wrong.append(f"{where}: no such place on that page")
    return count, wrong


def main(folder: str) -> int:
    count, wrong = check(Path(folder))
    print("\n".join([*wrong, f"{count} links, {len(wrong)} lead nowhere"]))
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
