"""The page of a conversion in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from causeway.migrate import engine
from causeway.migrate.reports import page
from causeway.migrate.settings import Settings

EVIL = "<script>document.title='run'</script>"


def test_the_page_of_a_conversion_shows_changes_side_by_side(
    tmp_path: Path, open_page: Callable[[Path], Any]
) -> None:
    root = tmp_path / EVIL.replace("/", "_")
    root.mkdir()
    lines = [f"x{i} = torch.zeros({i}).cuda()" for i in range(8)]
    (root / "a.py").write_text(f"import torch  # {EVIL}\n" + "\n".join(lines) + "\n")
    (root / "run.sh").write_text(f"echo '{EVIL}'\nCUDA_VISIBLE_DEVICES=0 python a.py\n")
    (root / "k.cu").write_text(f"// {EVIL}\n__global__ void scale(float* x) {{}}\n")
    result = engine.run([root], Settings(target="npu", jobs=1))
    page.write(result, tmp_path / "page.html")

    browser = open_page(tmp_path / "page.html")
    assert browser.title == "Migration"
    figures = [f.text.split("\n") for f in browser.find_elements("css selector", ".figure")]
    shown = {
        label: number for number, label in (f[:2] if f[0].isdigit() else f[1::-1] for f in figures)
    }
    assert shown["changed"] == str(result.totals()["changed"])
    assert shown["exists for CUDA only"] == "2"

    diffs = browser.find_elements("css selector", ".diff")
    assert len(diffs) == 2
    text = diffs[0].text
    assert EVIL in text
    assert ".cuda()" in text
    assert ".npu()" in text
    marks = [m.text for m in diffs[1].find_elements("css selector", "mark")]
    assert marks == ["CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"]

    link = browser.find_element("css selector", "a[href='#file-0']")
    assert link.text == "a.py"
    link.click()
    assert browser.current_url.endswith("#file-0")
