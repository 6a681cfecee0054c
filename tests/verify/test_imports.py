"""Which files a script imports, and what a large folder is converted as."""

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.errors import CausewayError
from causeway.verify import imports, runner
from causeway.verify.runner import Options, converted_with, verify

TREE = {
    "train.py": "import torch, os\nimport helpers\nfrom models import net\nimport missing.part\n",
    "helpers.py": "def f():\n    import late\n",
    "late.py": "import train\n",
    "models/__init__.py": "",
    "models/net.py": "from . import layers\nfrom .deep.block import B\nfrom ..other import x\n",
    "models/layers.py": "import importlib\nimportlib.import_module('.shapes', __package__)\n",
    "models/shapes.py": "",
    "models/unused.py": "",
    "models/deep/block.py": "B = 1\n",
    "unused.py": "import everything\n",
}
IMPORTED = [
    "helpers.py", "late.py", "models/__init__.py", "models/deep/block.py", "models/layers.py",
    "models/net.py", "models/shapes.py", "train.py",
]  # fmt: skip


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "train.py"


def test_what_a_script_imports_is_found_without_running_it(tmp_path: Path) -> None:
    script = tree(tmp_path, TREE)
    found = [path.relative_to(tmp_path).as_posix() for path in imports.files(script)]
    assert found == IMPORTED


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("import sys; sys.path.insert(0, '..')", "train.py:1 uses sys.path"),
        ("import importlib\nimportlib.import_module(name)", r"train.py:2 calls import_module\(\)"),
        ("import runpy\nrunpy.run_path('a.py')", r"train.py:2 calls run_path\(\)"),
        ("def f(:", "train.py cannot be read"),
    ],
)
def test_an_import_that_is_only_known_at_run_time_is_said(
    tmp_path: Path, line: str, says: str
) -> None:
    with pytest.raises(imports.UnknownImport, match=says):
        imports.files(tree(tmp_path, {"train.py": line + "\n"}))


def test_a_small_folder_is_converted_whole_and_of_a_large_one_what_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = str(tree(tmp_path, TREE))
    assert converted_with(script, Options()) == [tmp_path.resolve()]
    monkeypatch.setattr(runner, "_MOST_FILES", len(TREE) - 1)
    names = [
        p.relative_to(tmp_path.resolve()).as_posix() for p in converted_with(script, Options())
    ]
    assert names == IMPORTED
    assert converted_with(script, Options(folder=str(tmp_path))) == [tmp_path.resolve()]
    tree(tmp_path, {"train.py": "import sys\nsys.path.append('x')\n"})
    with pytest.raises(CausewayError, match=r"(?s)uses sys\.path.*--folder.*--way transfer"):
        converted_with(script, Options())


PROGRAM = """
import torch
from pathlib import Path
from models import net
size = int((Path(__file__).parent / "size.txt").read_text())
model = net.make(size).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.ones(2, size).cuda()).sum()
    loss.backward()
    optimizer.step()
"""


def test_a_program_of_a_large_folder_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tree(tmp_path, {
        "train.py": PROGRAM,
        "size.txt": "4",
        "models/__init__.py": "",
        "models/net.py": "import torch\n\n\ndef make(n):\n    return torch.nn.Linear(n, 1)\n",
        "broken.py": "torch.cuda.is_available(\n",
    })  # fmt: skip
    monkeypatch.setattr(runner, "_MOST_FILES", 3)
    report = verify([str(script)], [], Options(steps=2, way="migrated", operators=False))
    assert report.scripts[0].good, report.scripts[0].verdict()
    assert report.scripts[0].converted
    assert report.scripts[0].steps == (2, 2)
