"""Readers that know places: what they say is in the text, and what is not named in a change stays."""

# Tables of text are read best a row a line.
# ruff: noqa: E501

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from causeway.migrate import finding
from causeway.migrate.files import json_places, shell_words
from causeway.migrate.files.shell_words import EXPANDED, ShellSyntaxError
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings

_PIECES = st.sampled_from([
    "CUDA_VISIBLE_DEVICES=0", "python a.py", " --backend nccl", " --device=cuda:0", "nvidia-smi", "#",
    "'", '"', "\\", "\n", "\n", "\r\n", " ", "\t", ";", "&&", "|", "(", ")", "$(", "`", "${", "}", "$x",
    "<<EOF\n", "EOF", "EOF\n", "<<-'E'", "=(", "a", "é", "[[", "]]", "case x in", "esac", ">", "<(", "!",
    "\0", "$((", "))", "$'",
])  # fmt: skip


def convert(path: str, text: str, target: str = "npu") -> FileResult:
    converter = finding.converter(path)
    assert converter is not None
    return converter(FileInput(path, text.encode()), Settings(target=target))


def without_changes(result: FileResult) -> tuple[str, str]:
    """Both texts with what findings say was changed cut out."""
    before, after = result.before, result.after
    starts = [0]
    for line in before.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    at, kept_before, kept_after, place = 0, [], [], 0
    for found in sorted(f for f in result.findings if f.kind == "changed"):
        start = starts[found.line - 1] + found.column - 1
        assert before.startswith(found.before, start)
        kept_before.append(before[at:start])
        place += len(kept_before[-1])
        kept_after.append(after[place - len(kept_before[-1]) : place])
        assert after.startswith(found.after, place)
        place += len(found.after)
        at = start + len(found.before)
    return "".join([*kept_before, before[at:]]), "".join([*kept_after, after[place:]])


@settings(max_examples=150, deadline=None)
@given(st.lists(_PIECES, max_size=25).map("".join))
@example("CUDA_VISIBLE_DEVICES=0' --backend nccl --backend nccl$'")
def test_a_script_changes_only_where_findings_say(text: str) -> None:
    result = convert("a.sh", text)
    kept, still = without_changes(result)
    assert kept == still
    assert convert("a.sh", result.after).after == result.after


@settings(max_examples=150, deadline=None)
@given(st.lists(_PIECES, max_size=25).map("".join))
def test_each_character_of_a_word_is_where_the_word_says(text: str) -> None:
    try:
        script = shell_words.read(text)
    except ShellSyntaxError:
        return
    for command in script.commands:
        for word in (*command.words, *command.assignments):
            assert 0 <= word.start <= word.end <= len(text)
            for char, place in zip(word.text, word.at, strict=True):
                assert char in (text[place], EXPANDED)
    for variable in script.variables:
        assert text[variable.start : variable.end] == variable.name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 'b c' \"d $x e\" f\\ g", [["a", "b c", "d \0 e", "f g"]]),
        ("X=1 Y='2 3' cmd --a=b # c\nnext", [["cmd", "--a=b"], ["next"]]),
        ("if a; then b; else c; fi", [["a"], ["b"], ["c"]]),
        ("a $(b `c`) | d > e 2>&1 &", [["b", "\0"], ["c"], ["a", "\0"], ["d"]]),
        ("a <<E | b\nx y\nE\nc", [["a"], ["b"], ["c"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("x=$(case a in b) c;; d) e;; esac) f", [["case", "a", "in", "b"], ["c"], ["d"], ["e"], ["f"]]),
        ("f() { a; }\nwhile read x < <(b); do c; done", [["f"], ["a"], ["read", "x"], ["b"], ["c"]]),
        ("((i = 1 << 2)); for ((;;)); do a; done", [["for"], ["a"]]),
    ],
)  # fmt: skip
def test_a_script_is_taken_apart_as_bash_does(text: str, words: list[list[str]]) -> None:
    found = [[word.text for word in c.words] for c in shell_words.read(text).commands if c.words]
    assert sorted(found) == sorted(words)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(_JSON, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_json_is_read_as_python_reads_it_and_every_place_is_right(
    value: object, indent: int | str | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    def check(node: json_places.Node) -> None:
        part = json.loads(text[node.start : node.end])
        if node.members is None and node.items is None:
            assert repr(part) == repr(node.value)
        for inner in node.items or ():
            check(inner)
        for key, inner in node.members or ():
            assert repr(part[key.value]) == repr(json.loads(text[inner.start : inner.end]))
            check(key)
            check(inner)

    node = json_places.read(text)
    assert (node.start, node.end) == (0, len(text))
    check(node)


_KEYS = st.sampled_from(
    ["device", "backend", "name", "accelerator", "cuda", "max_epochs", "é", "a: b"]
)
_VALUES = st.sampled_from(
    ["cuda", "cuda:1", "nccl", "gpu", "cpu:gloo,cuda:nccl", "x", "", "é\n", "# cuda"]
)
_TREES = st.recursive(
    _VALUES | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


def renamed(value: object, key: str = "") -> object:
    """What a tree should become for npu."""
    if isinstance(value, dict):
        return {k: renamed(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [renamed(v, key) for v in value]
    if key == "device" and value in ("cuda", "cuda:1"):
        return str(value).replace("cuda", "npu")
    if key == "backend" and value in ("nccl", "cpu:gloo,cuda:nccl"):
        return str(value).replace("nccl", "hccl").replace("cuda:", "npu:")
    return "npu" if key == "accelerator" and value in ("gpu", "cuda") else value


@settings(max_examples=100, deadline=None)
@given(
    _TREES.filter(lambda t: isinstance(t, dict)),
    st.sampled_from([None, True, False]),
    st.sampled_from([None, '"', "'"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_yaml_means_the_same_but_for_the_device(
    tree: object, flow: bool | None, style: str | None, newline: str
) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow, default_style=style, allow_unicode=True)
    text = "# device: cuda\n" + text.replace("\n", newline)
    result = convert("a.yaml", text)
    assert yaml.safe_load(result.after) == renamed(tree)
    kept, still = without_changes(result)
    assert kept == still


@settings(max_examples=80, deadline=None)
@given(_TREES.filter(lambda t: isinstance(t, dict)), st.sampled_from([None, 1, "\t"]))
def test_json_means_the_same_but_for_the_device(tree: object, indent: int | str | None) -> None:
    text = json.dumps(tree, indent=indent)
    result = convert("a.json", text)
    assert json.loads(result.after) == renamed(tree)
    kept, still = without_changes(result)
    assert kept == still
