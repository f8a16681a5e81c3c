"""The sections on expectations and on a comparison, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_support import Visit
from fake_folder import ENVIRONMENT, wide_folder, wide_rows, write_folder

from harness.report.html import write_page
from harness.report.page import build_page
from harness.report.rundata import read_run

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

HOSTILE = "</script><script>alert(1)</script>\x00\ud800\u202e<img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run against one on another machine, whose facts are hostile."""
    folder = tmp_path_factory.mktemp("compared")
    rows = wide_rows()
    for one in rows:
        if one["scenario"]["lock"] == "compile_gate" and one["repeat"] % 2:
            one.update(outcome="fx_error", outcomes=["fx_error"], tokens_per_s=None)
    before = write_folder(folder / "before", rows, environment={**ENVIRONMENT, "cpu": HOSTILE, "python": HOSTILE})
    after = wide_folder(folder / "after")
    return write_page(build_page(read_run(after), read_run(before)), after / "report.html")


def test_the_comparison_leads_to_its_scenario(visit: Visit, compared: Path) -> None:
    page = visit(compared)
    page.locator("nav a", has_text="Comparison").click()
    first = page.locator("#compared tbody tr").first
    assert "better" in first.inner_text()
    assert "29/59 → 0/59" in first.inner_text()
    assert "fewer failures" in first.inner_text()
    first.locator("a").click()
    page.wait_for_selector("#scenarios tr:target")


def test_what_is_not_fair_is_said_and_hostile_facts_are_text(visit: Visit, compared: Path) -> None:
    text = visit(compared).locator("#comparison").inner_text()
    assert "Not fair, so speed is shown and not counted: other processor: </script><script>alert(1)</script>␀" in text
    assert "Holm's correction" in text


def test_expectations_are_grouped_and_what_is_wrong_stands_open(visit: Visit, compared: Path) -> None:
    page = visit(compared)
    groups = page.locator("#expectations details")
    heads = groups.locator("summary").all_inner_texts()
    assert [head.split()[1].rstrip(":") for head in heads] == [
        "broken",
        "unexpected",
        "improved",
        "missing",
        "flaky",
        "met",
    ]
    opened = [group.get_attribute("open") is not None for group in groups.all()]
    assert opened == [True, True, True, False, False, False]
    assert "excludes a rate above 45.1 % at 95 % confidence" in groups.nth(2).inner_text()


@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_a_narrow_screen(visit: Visit, compared: Path, width: int) -> None:
    page = visit(compared, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
