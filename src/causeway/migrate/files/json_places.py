"""JSON with the place of each value: Python's own reader forgets where things were."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from json import decoder
from typing import Any

from causeway.migrate.files.draft import NotReadableError

# The reader of strings in C; typeshed does not know its name.
_scan = vars(decoder)["scanstring"]
_SPACE = re.compile(r"[ \t\r\n]*")
_ATOM = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|NaN|-?Infinity")


@dataclass
class Node:
    """A value: `text[start:end]`. An object has `members`, a list `items`, all else a `value`."""

    start: int
    end: int
    value: Any = None
    members: list[tuple[Node, Node]] | None = None
    items: list[Node] | None = None
    keys: dict[str, Node] = field(default_factory=dict)

    def get(self, key: str) -> Node | None:
        """The member called `key`, or None; also of what is no object."""
        return self.keys.get(key)

    def strings(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node, Node]]:
        """All strings and numbers with the keys that lead to them and the object they are in."""
        for key, node in self.members or ():
            if node.members is None and node.items is None:
                yield (*path, key.value), node, self
            else:
                yield from node.strings((*path, key.value))
        for node in self.items or ():
            if node.members is None and node.items is None:
                yield path, node, self
            else:
                yield from node.strings(path)


def read(text: str) -> Node:
    """The value in `text`. Raises NotReadableError where it is not JSON."""
    try:
        start = _SPACE.match(text)
        assert start is not None
        node = _value(text, start.end())
        end = _blank(text, node.end)
    except RecursionError:
        raise NotReadableError("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise NotReadableError(f"not JSON: {error.msg}", error.pos) from None
    if end != len(text):
        raise NotReadableError("not JSON: text behind the end", end)
    return node


def _blank(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _value(text: str, at: int) -> Node:
    char = text[at : at + 1]
    if char == '"':
        value, end = _scan(text, at + 1, False)
        return Node(at, end, value)
    if char == "{":
        return _object(text, at)
    if char == "[":
        return _list(text, at)
    atom = _ATOM.match(text, at)
    if atom is None:
        raise NotReadableError("not JSON: a value is expected", at)
    return Node(at, atom.end(), json.loads(atom.group()))


def _object(text: str, start: int) -> Node:
    node = Node(start, start, members=[])
    at = _blank(text, start + 1)
    while text[at : at + 1] != "}":
        if node.members:
            at = _expect(text, at, ",")
        key = _value(text, at)
        if not isinstance(key.value, str):
            raise NotReadableError("not JSON: a key is expected", at)
        at = _expect(text, _blank(text, key.end), ":")
        value = _value(text, at)
        node.members.append((key, value))  # type: ignore[union-attr]
        node.keys[key.value] = value
        at = _blank(text, value.end)
    node.end = at + 1
    return node


def _list(text: str, start: int) -> Node:
    node = Node(start, start, items=[])
    at = _blank(text, start + 1)
    while text[at : at + 1] != "]":
        if node.items:
            at = _expect(text, at, ",")
        item = _value(text, at)
        node.items.append(item)  # type: ignore[union-attr]
        at = _blank(text, item.end)
    node.end = at + 1
    return node


def _expect(text: str, at: int, char: str) -> int:
    if text[at : at + 1] != char:
        raise NotReadableError(f"not JSON: {char!r} is expected", at)
    return _blank(text, at + 1)
