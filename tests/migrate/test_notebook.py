"""Notebooks: the code of cells changes, every other byte stays."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.migrate import finding
from causeway.migrate.files import ipython
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings

sys.path.insert(0, str(Path(__file__).parent))
import plain_python

OLD, NEW = plain_python.OLD, plain_python.NEW
Convert = Callable[..., FileResult]


@pytest.fixture
def convert(monkeypatch: pytest.MonkeyPatch) -> Convert:
    """Convert a notebook, with a converter of Python that renames one function."""
    monkeypatch.setitem(finding.CONVERTERS, ".py", f"{plain_python.__name__}:convert")
    return run


def run(text: str, target: str = "portable") -> FileResult:
    converter = finding.converter("a.ipynb")
    assert converter is not None
    chosen = Settings(target=target)
    result = converter(FileInput("a.ipynb", text.encode()), chosen)
    again = converter(FileInput("a.ipynb", result.after.encode()), chosen)
    assert again.after == result.after, "a second run changes it again"
    return result


def code(*lines: str, **more: Any) -> dict[str, Any]:
    return {
        "cell_type": "code", "execution_count": 3, "id": "cuda-0", "metadata": {"device": "cuda"},
        "outputs": [{"name": "stdout", "output_type": "stream", "text": [f"{OLD}()\n", "é\n"]}],
        "source": [line + "\n" for line in lines[:-1]] + list(lines[-1:]),
    } | more  # fmt: skip


def notebook(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    metadata = {"kernelspec": {"language": "python", "name": "python3"}, "device": "cuda"}
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5} | more


CELLS = (
    {"cell_type": "markdown", "metadata": {}, "source": [f"`{OLD}()` on cuda\n"]},
    code("# first", "import torch"),
    code("%matplotlib inline", "!nvidia-smi", f"{OLD}()", "x = !ls /cuda", "torch?"),
    code("%%bash", "CUDA_VISIBLE_DEVICES=0 python a.py --backend nccl"),
    code("%%html", f"<b>{OLD}</b>"),
    code("%%time", f"{OLD}()  # é", "if torch:", "    !python a.py \\", "       --backend nccl"),
    code(f"print 'python 2', {OLD}"),
    code("%%writefile a.sh", "python a.py --backend nccl"),
    code("s = '''", "%env no magic", f"{OLD}()", "'''"),
    code(""),
    code(f"await f({OLD}())", ""),
)
# What each cell becomes, for npu.
AFTER = {
    2: ["%matplotlib inline", "!npu-smi info", f"{NEW}()", "x = !ls /cuda", "torch?"],
    3: ["%%bash", "ASCEND_RT_VISIBLE_DEVICES=0 python a.py --backend hccl"],
    5: ["%%time", f"{NEW}()  # é", "if torch:", "    !python a.py \\", "       --backend hccl"],
    7: ["%%writefile a.sh", "python a.py --backend hccl"],
    8: ["s = '''", "%env no magic", f"{NEW}()", "'''"],
    10: [f"await f({NEW}())", ""],
}
LAYOUTS = [
    {"indent": 1},
    {"indent": 4, "ensure_ascii": False},
    {"indent": "\t"},
    {},
    {"separators": (",", ":")},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("as_string", [False, True])
def test_cells_change_and_every_other_byte_stays(
    convert: Convert, layout: dict[str, Any], as_string: bool
) -> None:
    """The result is what the same writer would have written for the changed cells."""

    def tree(changed: dict[int, list[str]]) -> dict[str, Any]:
        cells = []
        for i, cell in enumerate(CELLS):
            cell = json.loads(json.dumps(cell))
            if i in changed:
                cell["source"] = code(*changed[i])["source"]
            if as_string:
                cell["source"] = "".join(cell["source"])
            cells.append(cell)
        return notebook(*cells)

    before = json.dumps(tree({}), **layout) + "\n"
    result = convert(before, "npu")
    assert result.status == "converted"
    assert result.before == before
    assert json.loads(result.after) == tree(AFTER)
    assert result.after == json.dumps(tree(AFTER), **layout) + "\n"


def test_a_finding_says_its_cell_and_its_line_in_the_file(convert: Convert) -> None:
    text = json.dumps(notebook(*CELLS), indent=1, ensure_ascii=False)
    lines = text.split("\n")
    found = [f for f in convert(text).findings if f.rule == "CW101"]
    assert [f.message.split(":")[0] for f in found] == [
        "cell 3, line 3", "cell 6, line 2", "cell 9, line 3", "cell 11, line 1",
    ]  # fmt: skip
    for f in found:
        assert lines[f.line - 1][f.column - 1 :].startswith(OLD)
        assert lines[f.line - 1][: f.end_column - 1].endswith(OLD)


def test_an_import_that_is_added_goes_into_the_first_cell(convert: Convert) -> None:
    text = json.dumps(notebook(code("# wants an import"), code(f"{OLD}()")), indent=1)
    cells = json.loads(convert(text).after)["cells"]
    assert cells[0]["source"] == ["import added\n", "# wants an import"]
    assert cells[1]["source"] == [f"{NEW}()"]


def test_an_import_that_is_added_goes_behind_what_installs_torch() -> None:
    cells = [
        code("%pip install -U torch"), code("from lib import Model"),
        code('a = Model(device="cuda")\n', 'b = Model(device="cuda")'),
    ]  # fmt: skip
    result = run(json.dumps(notebook(*cells)))
    sources = ["".join(cell["source"]) for cell in json.loads(result.after)["cells"]]
    assert sources[0] == "%pip install -U torch"
    assert sources[1].startswith("import torch\nfrom lib import Model\n")


def test_the_device_is_named_before_the_first_cell_that_uses_it() -> None:
    """With Python's own converter, and functions defined before torch is imported."""
    cells = (
        code("def early():", "    pass"),
        code("import torch", "import torch.nn as nn"),
        code("use = torch.cuda.is_available()", "if use:", "    model = nn.Linear(2, 2).cuda()"),
        code(
            "from __future__ import annotations", "import torch", "%time x = torch.ones(2).cuda()"
        ),
        code("y = await f(x.cuda())"),
    )
    after = json.loads(run(json.dumps(notebook(*cells), indent=1)).after)["cells"]
    sources = ["".join(cell["source"]) for cell in after]
    defined = [i for i, source in enumerate(sources) if "current_accelerator" in source]
    assert defined == [1]
    assert sources[0] == "def early():\n    pass"
    assert "from __future__ import annotations\n" in sources[3]
    assert not any("cuda" in source.replace("torch.ones(2).cuda()", "") for source in sources)
    names: dict[str, Any] = {}
    for source in sources[:3]:
        exec(source, names)
    assert isinstance(names["use"], bool)


def test_a_cell_that_is_not_python_is_said_and_the_others_are_converted(convert: Convert) -> None:
    result = convert(json.dumps(notebook(code("torch ="), code(f"{OLD}()"))))
    assert json.loads(result.after)["cells"][1]["source"] == [f"{NEW}()"]
    assert [(f.rule, f.message[:6]) for f in result.findings] == [
        ("CW620", "cell 1"), ("CW101", "cell 2"),
    ]  # fmt: skip


def test_a_notebook_of_another_language_is_left_alone(convert: Convert) -> None:
    other = {"kernelspec": {"language": "julia", "name": "julia"}}
    text = json.dumps(notebook(code(f"{OLD}()"), metadata=other))
    result = convert(text)
    assert (result.status, result.after, result.findings) == ("unchanged", text, [])


def test_a_notebook_of_format_3_is_converted(convert: Convert) -> None:
    cell = {"cell_type": "code", "input": [f"{OLD}()"], "outputs": [], "language": "python"}
    old = {"worksheets": [{"cells": [cell]}], "metadata": {}, "nbformat": 3}
    after = json.loads(convert(json.dumps(old)).after)
    assert after["worksheets"][0]["cells"][0]["input"] == [f"{NEW}()"]


def test_a_converter_that_loses_a_cell_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(finding.CONVERTERS, ".py", f"{plain_python.__name__}:lose_marks")
    text = json.dumps(notebook(code("!torch", "a = 1"), code("b = 1")))
    result = run(text)
    assert (result.status, result.after) == ("unparsable", text)
    assert "left as it was" in result.reason


def test_a_keep_comment_holds_in_a_cell_that_is_a_script(convert: Convert) -> None:
    text = json.dumps(notebook(code("!python a.py --backend nccl  # causeway: keep")))
    assert convert(text, "npu").after == text


@pytest.mark.parametrize(
    "source",
    [
        "a = (1\n  % 2)\n%time a",
        "!echo a \\\n  b\nc = 1",
        "%%time\n!ls\n",
        "x?\n?y\nd",
        "a, b = !ls",
    ],
)
def test_what_was_hidden_comes_back_as_it_was(source: str) -> None:
    cell = ipython.read(source, 1)
    assert cell is not None
    compile(cell.body, "cell", "exec")
    assert cell.restore(cell.body) == source


_WORD = st.sampled_from([
    OLD, "torch", "x = 1", "%time y", "!nvidia-smi", "'", '"', "\\", "é", "😀", "\u2028",
    "\x0c", "\t",
    "if x:", "    pass", "#", "__causeway_cell_1__", "(", "\n", "\n", "\n", "%%bash", "?", "\r",
])  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    sources=st.lists(st.lists(_WORD, max_size=8).map("".join), max_size=4),
    layout=st.sampled_from(LAYOUTS),
    split=st.booleans(),
)
def test_outside_of_code_cells_nothing_changes_whatever_is_in_them(
    sources: list[str], layout: dict[str, Any], split: bool
) -> None:
    """The tree differs in the sources of code cells at most, and the text where they are."""
    cells = [
        code() | {"source": s.splitlines(keepends=True) if split else s} for s in sources
    ]  # fmt: skip
    text = json.dumps(notebook(*cells), **layout)
    saved = finding.CONVERTERS[".py"]
    finding.CONVERTERS[".py"] = f"{plain_python.__name__}:convert"
    try:
        result = run(text, "npu")
    finally:
        finding.CONVERTERS[".py"] = saved
    after = json.loads(result.after)
    for cell, old in zip(after["cells"], cells, strict=True):
        new = "".join(cell["source"])
        was = "".join(old["source"])
        assert new.count("\n") == was.count("\n")
        if result.status == "unparsable":
            assert new == was
        cell["source"] = old["source"]
    assert json.dumps(after, **layout) == text
