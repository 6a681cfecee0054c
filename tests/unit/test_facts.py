"""What is known of single operators is in one table, csrc/ladder/facts.cpp, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from causeway.ops import facts

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "src/causeway"
TABLE = CSRC / "ladder/facts.cpp"


def schemas() -> dict[str, set[str]]:
    """The overloads of every operator of torch's: {"add": {"Tensor", "out", ...}}."""
    found: dict[str, set[str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, base = schema.name.partition("::")
        if space == "aten":
            found.setdefault(base, set()).add(schema.overload_name or "default")
    return found


def test_every_row_is_an_operator_of_torch_and_has_a_reason() -> None:
    known = schemas()
    for row, why in facts.reasons().items():
        base, _, overload = row.partition(".")
        assert base in known, row
        assert not overload or overload in known[base], row
        assert why, row
        assert all(reason.endswith(".") for reason in why), row


def test_a_row_holds_for_overloads_and_in_place_forms() -> None:
    assert facts.of("aten::cumsum.dimname").costly
    assert facts.of("aten::cumsum_").costly
    assert facts.of("aten::cumsum_.dimname").costly
    assert not facts.of("aten::_cumsum").costly


def test_a_row_of_an_overload_holds_for_it_alone() -> None:
    assert facts.of("aten::full_like").computed_by == "aten::fill_.Scalar"
    assert facts.of("aten::full_like.out").computed_by is None
    assert facts.of("aten::arange.start").computed_by == "aten::arange.start_out"


def test_nothing_is_known_of_other_libraries() -> None:
    assert facts.of("mylib::copy_") == facts.of("aten::add.Tensor")
    assert facts.of("copy_") == facts.of("aten::add.Tensor")


def test_fields_of_an_operator_come_from_all_its_rows() -> None:
    found = facts.of("aten::copy_")
    assert (found.reach, found.copies, found.mixed_devices) == ("own", True, True)


# --- no other place -------------------------------------------------------------------------------

# Files of csrc that name operators, and how many, with the reason why these are no knowledge.
NAMED = {
    "aten/autocast.cpp": (1, "a kernel of ours, registered for autocast"),
    "aten/dropout.cpp": (3, "the operators that it calls"),
    "aten/rms_norm.cpp": (2, "the operators whose autograd it is"),
    "aten/rnn.cpp": (5, "the operators that it calls"),
    "aten/tensor.cpp": (1, "the operator whose kernel it is"),
    "ladder/fill.cpp": (2, "the operators whose kernel it is"),
    "ladder/forms.cpp": (6, "asks whether a vendor offers arithmetic"),
    "ladder/foreach.cpp": (1, "the prefix of operators over lists"),
    "ladder/tracer.cpp": (1, "what torch.jit.trace sees of a convolution"),
    "ladder/wide.cpp": (1, "the operator that it calls"),
}
# Of portable kernels the names are those of what they compute.
KERNELS = "portable"


def named(root: Path) -> dict[str, int]:
    """How many names of operators each C++ file under `root` has in quotes, comments apart."""
    found = {}
    for path in sorted(root.rglob("*.cpp")):
        file = path.relative_to(root).as_posix()
        text = re.sub(r"//.*", "", path.read_text())
        if (names := len(re.findall(r'"aten::\w', text))) and not file.startswith(KERNELS):
            found[file] = names
    return found


def test_no_other_file_of_csrc_has_names_of_operators() -> None:
    found = named(CSRC)
    found.pop("ladder/facts.cpp", None)
    assert found == {file: count for file, (count, _) in NAMED.items()}, (
        "what is known of an operator is a row of csrc/ladder/facts.cpp"
    )


def test_a_table_in_another_file_of_csrc_is_found(tmp_path: Path) -> None:
    (tmp_path / "call.cpp").write_text('const std::set<std::string> names = {"aten::copy_"};\n')
    assert named(tmp_path) == {"call.cpp": 1}


# Lists of operators in Python, and why they are no rows of the table.
LISTS = {
    "compile/backend.py:SUMS_OVER_INDEX": "where our kernels are better than what Inductor writes",
    "compile/backend.py:WITHOUT_TEXT": "what the portable dialect has no text for",
    "compile/overrides.py:_FUNCTIONS": "functions of Inductor's, by their names in the dialect",
    "conformance/harvest.py:OTHER_NAMES": "names of torch's samples, which are no operators",
    "conformance/layouts.py:PRODUCTS": "which kernels a test of layouts asks",
    "conformance/recipes.py:RECIPES": "inputs to test a kernel with, a function each",
    "conformance/reference.py:ANYWHERE": "which of equal answers is right: a rule of comparison",
    "conformance/variations.py:BY_CHANCE": "inputs that a test leaves out",
    "conformance/variations.py:CHECKED": "inputs that a test leaves out",
    "numerics/rules.py:JUMPS": "rules of comparison, a table of their own",
    "numerics/rules.py:MAGNITUDE": "rules of comparison, a table of their own",
    "numerics/rules.py:OPERATORS": "rules of comparison, a table of their own",
    "numerics/rules.py:_PRODUCTS": "rules of comparison, a table of their own",
    "ops/composed/__init__.py:COMPOSED": "composites of ours, a function each",
    "ops/decompose.py:_OURS": "decompositions of ours, a function each",
    "ops/meant.py:COMPOSITES": "what people mean by a name that no call reaches",
    "trace/align.py:FILLS": "kinds of calls in a trace",
    "trace/align.py:SAME": "one computation by its names on other machines",
}
# Whose lists are of names in people's programs, or of torch's functions, and not of operators.
OF_PROGRAMS = ("apex", "compat", "integrations", "migrate", "redirect")
FEW = 3  # names that make a list


def lists(root: Path) -> Iterator[tuple[str, str]]:
    """(file, name): each list, set or table under `root` whose texts are names of operators."""
    known = schemas()

    def is_operator(text: str) -> bool:
        return text.removeprefix("aten::").partition(".")[0] in known

    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if file.startswith(OF_PROGRAMS):
            continue
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            names = [name for text in texts(node.value) for name in text.split()]
            if len(names) >= FEW and sum(map(is_operator, names)) > 0.8 * len(names):
                yield file, ast.unparse(target)


def texts(value: ast.expr) -> Iterator[str]:
    """The texts in a list or a set, and the keys of a table."""
    for node in ast.walk(value):
        if isinstance(node, ast.Dict):
            parts = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Set | ast.List | ast.Tuple):
            parts = node.elts
        elif isinstance(node, ast.Call):
            parts = node.args
        else:
            continue
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def test_no_other_file_of_python_has_a_list_of_operators() -> None:
    found = {f"{file}:{name}" for file, name in lists(PACKAGE)}
    assert found == set(LISTS), "what is known of an operator is a row of csrc/ladder/facts.cpp"


def test_a_list_in_another_file_of_python_is_found(tmp_path: Path) -> None:
    (tmp_path / "ladder.py").write_text('_COPIES = frozenset({"aten::clone", "copy_", "detach"})\n')
    assert list(lists(tmp_path)) == [("ladder.py", "_COPIES")]


@pytest.mark.parametrize("text", ["WORDS = {'float', 'bfloat', 'short'}", "A = ['add', 'mul']"])
def test_other_lists_are_not_taken_for_operators(tmp_path: Path, text: str) -> None:
    (tmp_path / "ladder.py").write_text(f"{text}\n")
    assert list(lists(tmp_path)) == []
