"""Makes one source of many, so that a load of a file, or a graph's small launches, build once.

PoCL keeps what it built, by a sum of the source after the preprocessor: so each build of a load
reads OpenCL's header again, 24 ms for each of ResNet-18's fourteen sources. In the one source, what
all begin with is there once; behind it come the sources as they were, each between definitions that
rename what it declares, and the ends of those and of its own.

A source stays by itself where its text does not show that this changes nothing: pragmas, macros
that declare or that others have undefined, names that what all begin with has too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_COMMENT = r"//[^\n]*|/\*.*?\*/"
_LITERAL = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
_NOISE = re.compile(f"({_LITERAL})|{_COMMENT}", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)((?:[^\\\n]|\\.|\\\n)*)", re.MULTILINE)
_TOKEN = re.compile(rf"{_LITERAL}|[A-Za-z_]\w*|\.?\d(?:[\w.]|(?<=[eEpP])[+-])*|\S")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TESTS = ("if", "ifdef", "ifndef", "elif")
_PLAIN = (*_TESTS, "else", "endif", "define", "undef", "error", "")
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_ENUM = re.compile(r"\benum\b[^{;()]*\{([^}]*)\}")
_NOT_NAMES = ("__attribute__", "__attribute", "_Static_assert")
_OWN = "source{}_"  # what the names of a source begin with
_LIMIT = 4 << 20  # bytes of a source; run/check.c reads four times that


@dataclass
class _Read:
    """What a text says outside of its functions, and all its words."""

    words: set[str]
    called: set[str] = field(default_factory=set)  # in its code, not in macros
    macros: set[str] = field(default_factory=set)
    undefined: set[str] = field(default_factory=set)  # macros that it ends
    taken: set[str] = field(default_factory=set)  # of these, those that others had defined
    tested: set[str] = field(default_factory=set)  # by #if and its kind
    declared: set[str] = field(default_factory=set)
    whole: bool = True  # its braces and conditions are closed
    plain: bool = True  # no directive but definitions and conditions


def merged(functions: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(name, source) of each kernel, in the same order, from as few sources as there can be."""
    groups: dict[str, list[str]] = {}
    for source in dict.fromkeys(source for _, source in functions):
        groups.setdefault(source.partition("\n\n")[0], []).append(source)
    found: dict[str, tuple[str, str]] = {}
    for group in groups.values():
        if not any(re.search(r"\bsource\d+_", source) for source in group):
            found |= _merge(group)
    out = []
    for name, source in functions:
        begin, text = found.get(source, ("", source))
        out.append((begin + name, text))
    return out


def _merge(sources: Sequence[str]) -> dict[str, tuple[str, str]]:
    """What names of each source begin with in the new one, and that."""
    common = _common(sources)
    front = _read(common)
    bodies = {source: _read(source[len(common) :]) for source in sources}
    begins: dict[str, str] = {}
    text, lost, renamed = common, set[str](), set[str]()
    # Those first that end no macro of others: of a runtime whose functions are macros, say.
    for source, body in sorted(bodies.items(), key=lambda pair: bool(pair[1].taken)):
        begin = _OWN.format(len(begins))
        names = sorted(body.declared)
        head = "".join(f"#define {name} {begin}{name}\n" for name in names)
        tail = "".join(f"#undef {name}\n" for name in sorted(body.declared | body.macros))
        # Empty lines around it: pieces of sources that are equal are in the file once.
        more = f"\n\n{head}\n\n{source[len(common) :]}\n\n{tail}"
        if _fits(body, front, lost, renamed) and len(text) + len(more) < _LIMIT:
            begins[source] = begin
            text += more
            lost |= body.taken
            renamed |= body.declared
    return {source: (begin, text) for source, begin in begins.items()} if len(begins) > 1 else {}


def _fits(body: _Read, front: _Read, lost: set[str], renamed: set[str]) -> bool:
    """Whether a source can be before others, and behind some that ended the macros `lost`, which
    may be a runtime's, and declared `renamed`, some of which may be functions of a runtime's.
    """
    built_in = (body.called | front.called) - body.declared - body.macros
    return (
        body.whole
        and body.plain
        and not (body.macros | body.undefined) & front.macros
        and not body.declared & (body.macros | body.tested | front.macros | front.declared)
        and not (body.words | front.words) & lost
        and not built_in & renamed
    )


def _common(sources: Sequence[str]) -> str:
    """The lines that all begin with, up to where nothing is open."""
    lines = [source.splitlines(keepends=True) for source in sources]
    count = 0
    while all(len(mine) > count and mine[count] == lines[0][count] for mine in lines):
        count += 1
    while count and not _may_end(lines[0][:count]):
        count -= 1
    return "".join(lines[0][:count])


def _may_end(lines: Sequence[str]) -> bool:
    """Whether a declaration or a directive ends there, and no brace or condition is open."""
    text = _NOISE.sub(lambda found: found[1] or " ", "".join(lines))
    code = _DIRECTIVE.sub("", text).rstrip()
    ends = not code or code.endswith((";", "}"))
    return ends and "/*" not in code and not lines[-1].endswith("\\\n") and _read(text).whole


def _read(text: str) -> _Read:
    text = _NOISE.sub(lambda found: found[1] or " ", text)
    code = _DIRECTIVE.sub("", text)
    read = _Read(set(_WORD.findall(text)), set(_CALL.findall(code)))
    conditions = 0
    for directive in _DIRECTIVE.finditer(text):
        kind, rest = directive.groups()
        words = _WORD.findall(rest)
        conditions += kind in ("if", "ifdef", "ifndef")
        conditions -= kind == "endif"
        read.whole &= conditions >= 0
        read.plain &= kind in _PLAIN and (bool(words) or kind not in ("define", "undef"))
        if kind == "define":
            read.macros.update(words[:1])
        elif kind == "undef":
            read.undefined.update(words[:1])
            read.taken.update(set(words[:1]) - read.macros)
        elif kind in _TESTS:
            read.tested.update(words)
    outside, depth = _outside(_TOKEN.findall(code))
    read.whole &= not conditions and not depth
    read.plain &= "_Pragma" not in outside
    read.declared = _declared(outside)
    for inside in _ENUM.findall(code):
        read.declared.update(_WORD.findall(re.sub(r"=[^,]*", "", inside)))
    return read


def _outside(tokens: Sequence[str]) -> tuple[list[str], int]:
    """The tokens that are in no brackets, with the brackets, and how many are open at the end, or
    -1 where one was closed that was not open.
    """
    depth = 0
    outside: list[str] = []
    for token in tokens:
        if token in ("}", ")", "]"):
            depth -= 1
            if depth < 0:
                return outside, -1
        if depth == 0:
            outside.append(token)
        if token in ("{", "(", "["):
            depth += 1
    return outside, depth


def _declared(outside: Sequence[str]) -> set[str]:
    """Functions, variables, types and tags: what stands before "(", "[", "=", "," or ";", and
    behind struct and its kind.
    """
    found = set()
    for before, token, after in zip(["", *outside], outside, [*outside[1:], ";"], strict=False):
        named = after in ("(", "[", "=", ",", ";") or before in ("struct", "union", "enum")
        if named and _WORD.fullmatch(token) and token not in _NOT_NAMES:
            found.add(token)
    return found
