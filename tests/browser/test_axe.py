"""axe-core finds nothing serious: the whole page, all parts open, and a trial; light and wide, dark and narrow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_support import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which is not kept here: its licence is another (MPL 2.0)."""
    package = pytest.importorskip("axe_playwright_python", reason="needs: pip install axe-playwright-python")
    return (Path(str(package.__file__)).parent / "axe.min.js").read_text("utf-8")


def findings(page: Page, axe: str) -> list[tuple[str, str, str]]:
    page.evaluate(axe)
    found: dict[str, Any] = page.evaluate("axe.run()")
    assert len(found["passes"]) > 10, "it has looked"
    return [
        (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_the_page_has_no_serious_finding(visit: Visit, report: Path, axe: str, scheme: str, width: int) -> None:
    page = visit(report, color_scheme=scheme, viewport={"width": width, "height": 900})
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert findings(page, axe) == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_a_trial_has_no_serious_finding(visit: Visit, collisions: Path, axe: str, scheme: str, width: int) -> None:
    page = visit(collisions, "#trial=default--r1", color_scheme=scheme, viewport={"width": width, "height": 900})
    page.wait_for_selector("dialog[data-ready] .stage[data-draw-ms]")
    page.evaluate("document.querySelectorAll('dialog details').forEach((one) => { one.open = true; })")
    assert findings(page, axe) == []
