"""Pages are looked at in a browser that tells what they load and what goes wrong in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Open = Callable[[Path], Any]


@pytest.fixture
def open_page(browser: Any) -> Open:
    """Open a file; fails the test where the page has an error or loads something."""

    def open(path: Path) -> Any:
        browser.get_log("browser")
        browser.get(path.as_uri())
        severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert severe == []
        loaded = browser.execute_script(
            "return performance.getEntriesByType('resource').map(e => e.name)"
        )
        assert loaded == []
        return browser

    return open
