"""The grid: axes and filters that the reader chooses, keys, and addresses that lead back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser_support import Visit, until
from test_report_bisected import with_seeds

from harness.report.html import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def heads(page: Page) -> tuple[str, list[str], list[str]]:
    """Of the first table: the corner, the columns, the rows."""
    first = page.locator("table.grid").first
    corner, *columns = first.locator("thead th").all_inner_texts()
    return corner, columns, first.locator("tbody th").all_inner_texts()


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.hash ?? ''"))


def test_the_reader_chooses_the_axes(visit: Visit, collisions: Path) -> None:
    page = visit(collisions)
    assert page.locator("table.grid").count() == 4
    page.get_by_label("Rows").select_option("shapes")
    page.get_by_label("Columns").select_option("mask")
    corner, columns, rows = heads(page)
    assert corner.split() == ["mask", "→", "shapes", "↓"]
    assert (columns, rows) == (["eager", "compiled"], ["fixed", "variable"])
    assert page.locator("table.grid").count() == 6
    assert page.locator("table.grid caption").first.inner_text() == "lock=none, checkpoint=none"
    assert page.locator("a.tile").count() == 24, "each scenario once"
    page.get_by_label("Rows").select_option("mask")
    assert heads(page)[0].split() == ["shapes", "→", "mask", "↓"], "an axis is not both: they change places"
    page.get_by_role("button", name="Reset").click()
    assert page.locator("table.grid").count() == 4


def test_the_other_axes_are_filters(visit: Visit, collisions: Path) -> None:
    page = visit(collisions)
    page.get_by_label("Rows").select_option("lock")
    page.get_by_label("Columns").select_option("checkpoint")
    controls = page.locator(".controls")
    assert not controls.get_by_label("lock", exact=True).is_visible(), "an axis of the grid is no filter"
    controls.get_by_label("shapes", exact=True).select_option("fixed")
    controls.get_by_label("mask", exact=True).select_option("eager")
    assert page.locator("table.grid").count() == 1
    assert controls.locator("[role=status]").inner_text() == "6 of 24 scenarios"
    controls.get_by_label("Verdict", exact=True).select_option("unsafe")
    assert page.locator("a.tile").count() == 2
    assert {text.split("\n")[0] for text in page.locator("a.tile").all_inner_texts()} == {"✗ unsafe"}


def test_the_address_holds_what_was_chosen(visit: Visit, collisions: Path) -> None:
    page = visit(collisions)
    page.get_by_label("Rows").select_option("shapes")
    page.locator(".controls").get_by_label("mask", exact=True).select_option("compiled")
    page.get_by_label("Verdict", exact=True).select_option("unsafe")
    before = page.locator(".grids").inner_text()
    again = visit(collisions, "#" + page.url.partition("#")[2])
    assert again.locator(".grids").inner_text() == before
    assert again.get_by_label("Rows").input_value() == "shapes"
    assert visit(collisions, "#rows=nothing&only.mask=x&show=y").locator("a.tile").count() == 24, "what it cannot mean"


def test_arrow_keys_walk_through_the_cells(visit: Visit, collisions: Path) -> None:
    page = visit(collisions, "#rows=lock&cols=checkpoint&only.shapes=fixed")
    cells = [
        f"#{anchor}" for anchor in page.locator("a.tile").evaluate_all("(all) => all.map((one) => one.hash.slice(1))")
    ]
    assert len(cells) == 12, "two tables of three rows and two columns"
    assert page.locator("a.tile[tabindex='0']").count() == 1, "one stop for Tab"
    page.locator("a.tile").first.focus()
    for key, expected in (
        ("ArrowRight", 1),
        ("ArrowDown", 3),
        ("ArrowLeft", 2),
        ("ArrowUp", 0),
        ("End", 1),
        ("ArrowDown", 3),
        ("ArrowDown", 5),
        ("ArrowDown", 7),
        ("ArrowLeft", 6),
        ("ArrowLeft", 5),
    ):
        page.keyboard.press(key)
        assert focused(page) == cells[expected], key
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[data-ready]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="hidden")
    assert focused(page) == cells[5]
    until(page, "!location.hash.includes('scenario=')")
    assert "only.shapes=fixed" in page.evaluate("location.hash"), "what was chosen stays"


def test_back_closes_what_was_opened(visit: Visit, collisions: Path) -> None:
    page = visit(collisions)
    page.locator("a.tile.unsafe").first.click()
    page.wait_for_selector("dialog[data-ready]")
    page.go_back()
    page.wait_for_selector("dialog", state="hidden")


def test_a_run_of_one_scenario_has_nothing_to_choose(visit: Visit, tmp_path: Path) -> None:
    from fake_folder import write_folder
    from fake_runs import row

    from harness.report.html import write_report

    page = visit(write_report(write_folder(tmp_path / "run", [row()], matrix='schema = 1\n[axes]\nlock = ["none"]\n')))
    assert page.locator(".controls").count() == 0
    page.locator("a.tile").click()
    page.wait_for_selector("dialog[data-ready]")


def test_seeds_of_a_family_of_schedules_stand_side_by_side(visit: Visit, tmp_path: Path) -> None:
    page = visit(write_report(with_seeds(tmp_path)))
    first = page.locator("table.grid").first
    assert [row.strip() for row in heads(page)[1]] == ["none", "delays:*:rare", "delays:*:dense"]
    assert first.locator(".several a.tile").count() == 7
    before = first.inner_text()
    page.get_by_label("Verdict", exact=True).select_option("safe")
    assert page.locator("a.tile").count() == 7, "drawn anew"
    page.locator("a.tile").first.focus()
    page.keyboard.press("ArrowRight")
    assert focused(page) == page.locator("a.tile").nth(1).get_attribute("href")
    page.get_by_role("button", name="Reset").click()
    assert page.locator("table.grid").first.inner_text() == before
