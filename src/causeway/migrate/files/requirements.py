"""Requirements: requirements.txt, environment.yml, pyproject.toml, setup.py, `pip install`.

A CUDA build's local version is taken off, which a CUDA host meets as before. Packages that exist
for CUDA alone are reported with an alternative; what a project needs is for people to decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from causeway.compat import packages as stood_in_for
from causeway.compat import systems
from causeway.migrate.files import packages
from causeway.migrate.files.draft import Draft, Span, run
from causeway.migrate.files.shell_words import EXPANDED, Word
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings

BUILD = "CW630"
INDEX = "CW631"
CUDA_ONLY = "CW632"
PART = "CW633"
SYSTEM = "CW634"

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)(\s*\[[^\]]*\])?")
_LOCAL = re.compile(r"===?\s*[0-9][0-9A-Za-z.!*]*(\+(?:cu\d+|pt[\w.]*cu\d+)[\w.]*)")
_INDEX = re.compile(r"https?://download\.pytorch\.org/whl/(?:nightly/)?(cu\d+)/?(?=[\s\"']|\Z)")
_LISTING = re.compile(r"https?://download\.pytorch\.org/whl/(?:cu\d+/)?torch_stable\.html")
# The one with the builds for every device: pip takes the last by its name there, which is ROCm's.
_EVERY = re.compile(r"https?://download\.pytorch\.org/whl/torch_stable\.html")
_OTHER_INDEX = re.compile(
    r"https?://(?:pypi\.(?:ngc\.)?nvidia\.com|developer\.download\.nvidia\.com|"
    r"data\.pyg\.org/whl/\S*cu\d+|download\.openmmlab\.com/\S*/cu\d+)\S*"
)
_WHEEL = re.compile(r"https?://\S*?/([A-Za-z0-9_.]+)-[^/\s]*?(?:%2B|\+)cu\d+[^/\s]*\.whl")
_GIT = re.compile(
    r"git\+\S*?/([\w.-]+?)(?:\.git)?(?:@[\w./-]+)?(?:#(?:egg=([\w.-]+))?\S*)?(?=[\s\"']|\Z)"
)


def convert(file: FileInput, settings: Settings) -> FileResult:
    """A file in pip's format."""
    return run(file, settings, _lines)


def _lines(draft: Draft) -> None:
    place = 0
    for line in draft.text.splitlines(keepends=True):
        comment = re.search(r"(?:^|\s)#", line)
        body = line[: comment.start()] if comment else line
        if body.strip():
            requirement(draft, body.rstrip("\\\r\n "), (place, place + len(body.rstrip())))
        place += len(line)


def requirement(draft: Draft, text: str, span: Span) -> None:
    """One requirement, or one option with an index, as in a file of pip's. `span` is its place;
    `text` begins there.
    """
    begin = span[0]
    if _indexes(draft, text, begin):
        return
    stripped = text.strip()
    at = begin + len(text) - len(text.lstrip())
    if stripped.startswith("-") and not stripped.startswith(("-e ", "--editable")):
        return
    git = _GIT.search(text)
    if git:
        egg = git.group(2) or git.group(1)
        _package(draft, egg, (begin + git.start(), begin + git.end()))
        return
    local = _LOCAL.search(text)
    name = _NAME.match(text)
    if local:
        place = (begin + local.start(1), begin + local.end(1))
        if _EVERY.search(draft.text):
            draft.say(BUILD, "portable", place, "the index has builds for every device",
                      "Leave it, or take the version without it from PyPI.",
                      api=name.group(1) if name else "")  # fmt: skip
        else:
            draft.change(
                BUILD, place, "", f"{local.group(1)[1:]} is a build for CUDA",
                "The version without it is met by the build of each host, CUDA's too.",
                api=name.group(1) if name else "",
            )  # fmt: skip
    if name:
        _package(draft, name.group(1), (at, at + len(name.group().strip())))


def arguments(draft: Draft, words: list[Word]) -> None:
    """The words after `pip install`."""
    previous = ""
    for word in words:
        value = previous in ("-f", "--find-links", "-i", "--index-url", "--extra-index-url")
        span = word.span(0, len(word.text))
        if span and (value or not word.text.startswith("-") or "=" in word.text):
            if value or previous not in ("-r", "--requirement", "-c", "--constraint"):
                requirement(draft, word.text, span)
        elif not span and EXPANDED not in word.text:
            found = _NAME.match(word.text)
            if found:
                _package(draft, found.group(1), (word.start, word.end))
        previous = word.text


def conda(draft: Draft, text: str, around: Span, span: Callable[[int, int], Span | None]) -> None:
    """One package of conda's: `pytorch-cuda=11.8`, `nvidia::cuda-nvcc`, `pytorch=2.1=*cuda*`."""
    name = re.match(r"(?:[\w/-]+::)?([A-Za-z0-9][\w.-]*)", text)
    if name:
        _package(draft, name.group(1), span(*name.span()) or around)
    build = re.search(r"=[^=]*=([^=]*(?:cuda|cu\d\d)[^=]*)\Z", text)
    if build and name and not packages.is_part_of_cuda(name.group(1)):
        tip = "Leave the build out; conda picks one for the host."
        draft.say(
            BUILD, "manual", around, f"{build.group(1)} is a build for CUDA", tip, api=name.group(1)
        )


def _indexes(draft: Draft, text: str, begin: int) -> bool:
    found = _INDEX.search(text)
    if found:
        span = (begin + found.start(1), begin + found.end(1))
        draft.change_unsafely(
            INDEX, span, "cpu", f"an index of builds for CUDA ({found.group(1)})",
            "With another device torch's CPU build is right; on a host with CUDA this line stays "
            "as it is.",
            api=found.group(),
        )  # fmt: skip
        return True
    wheel = _WHEEL.search(text)
    if wheel:
        span = (begin + wheel.start(), begin + wheel.end())
        draft.say(BUILD, "manual", span, f"a wheel of {wheel.group(1)} built for CUDA",
                  "Name the package and its version; pip takes the host's build.",
                  api=wheel.group(1))  # fmt: skip
        return True
    for pattern, what in ((_LISTING, "CPU builds too"), (_OTHER_INDEX, "")):
        found = pattern.search(text)
        if found:
            span = (begin + found.start(), begin + found.end())
            kind: Literal["portable", "manual"] = "portable" if what else "manual"
            message = f"an index with {what}" if what else "an index of builds for CUDA"
            draft.say(INDEX, kind, span, message, api=found.group())
            return True
    return False


def _package(draft: Draft, name: str, span: Span) -> None:
    package = packages.find(name)
    system = stood_in_for().get(name.lower().replace("-", "_"))
    if system is not None and systems()[system].device != draft.settings.target:
        draft.say(
            SYSTEM, "manual", span, f"{name} brings one vendor's device",
            "Leave it out: the device's package comes with the host, and torch finds it by itself.",
            api=name,
        )  # fmt: skip
    elif package is not None:
        draft.say(
            CUDA_ONLY,
            "manual" if package.portable else "unsupported",
            span,
            f"{name} {'has parts' if package.portable else 'exists'} for CUDA only"
            f" (effort: {package.effort})",
            f"Instead: {package.alternative}.",
            api=name,
            category="api",
        )
    elif packages.is_part_of_cuda(name):
        draft.say(PART, "manual", span, f"{name} is a part of CUDA", api=name)
