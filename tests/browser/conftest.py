"""Headless Chromium, offline. Tests skip, and say why, where there is none.

To run these: `pip install playwright`, and either a Chromium of the system (Debian and Ubuntu: `apt install chromium`)
or `playwright install chromium`. HARNESS_CHROMIUM may name the program.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_support import Visit
from fake_events import collision_folder
from fake_folder import wide_folder

from harness.report.html import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs: pip install playwright")
    named = os.environ.get("HARNESS_CHROMIUM")
    program = named or next(filter(None, map(shutil.which, PROGRAMS)), None)
    with sync_api.sync_playwright() as playwright:
        try:
            found = playwright.chromium.launch(executable_path=program, args=list(QUIET))
        except sync_api.Error as error:
            pytest.skip(f"needs Chromium: apt install chromium, or playwright install chromium ({str(error)[:200]})")
        yield found
        found.close()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with every sort of outcome, without event logs."""
    return write_report(wide_folder(tmp_path_factory.mktemp("wide") / "run"))


@pytest.fixture(scope="session")
def collisions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run on four axes, with the event logs of its trials."""
    return write_report(collision_folder(tmp_path_factory.mktemp("collisions") / "run"))


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Open a file offline. At the end of the test: no error in the console, and no request but for the file."""
    contexts, complaints, requests = [], [], []

    def go(path: Path, anchor: str = "", **options: Any) -> Page:
        context = browser.new_context(offline=True, **{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url.partition("#")[0]))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.goto(path.as_uri() + anchor)
        expected.append(path.as_uri())
        return page

    expected: list[str] = []
    yield go
    for context in contexts:
        context.close()
    assert complaints == []
    assert sorted(requests) == sorted(expected)
