"""A real browser, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Open = Callable[[Path], Any]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """selenium's driver of a headless Chromium."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("there is no Chromium with its chromedriver to look at the pages with")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
        "disable-background-networking", "disable-component-update", "disable-sync",
        "disable-dev-shm-usage", "window-size=1280,1600",
        f"user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):  # fmt: skip
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = selenium.Chrome(options, selenium.ChromeService(executable_path=driver))
    try:
        yield window
    finally:
        window.quit()


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
