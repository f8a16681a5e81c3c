"""A trial: its stacks, who held what, and its timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser_support import Visit, until
from fake_events import collision_folder, long_log, write_events

from harness.report.html import write_page
from harness.report.rundata import read_run
from harness.report.trialpage import build_trial_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

PAINTED = """(one, wanted) => {
  const { data } = one.getContext("2d").getImageData(0, 0, one.width, one.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) found += ((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]) === wanted;
  return found;
}"""
FAILED = "#trial=default--r1"


def window(page: Page) -> tuple[float, float]:
    """What the timeline shows, in ticks of 100 ns, once it is drawn."""
    until(page, "document.querySelector('.stage')?.dataset.view")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    first, last = str(page.locator(".stage").get_attribute("data-view")).split()
    return float(first), float(last)


def open_trial(visit: Visit, report: Path, **options: object) -> Page:
    page = visit(report, FAILED, **options)
    page.wait_for_selector("dialog[data-ready='default--r1']")
    return page


def test_a_cell_opens_its_failing_trial(visit: Visit, collisions: Path) -> None:
    page = visit(collisions)
    page.locator("a.tile.unsafe").first.click()
    page.wait_for_selector("dialog[data-ready='default--r1']")
    text = page.locator("dialog").inner_text()
    assert "drafter-1 failed in attention, step 0, while drafter-0 was tracing in forward." in text
    facts = page.locator("dialog .facts").inner_text()
    assert "seed 0" in facts
    assert "schedule none" in facts
    figures = page.locator("dialog .example figure")
    left, right = figures.nth(0).bounding_box(), figures.nth(1).bounding_box()
    assert left is not None
    assert right is not None
    assert left["y"] == right["y"]
    assert right["x"] >= left["x"] + left["width"]
    assert "drafter-1: failed" in figures.nth(0).inner_text()
    assert "drafter-0: was tracing" in figures.nth(1).inner_text()
    row = page.locator("dialog table.held tr", has_text="drafter-0")
    assert row.locator("td").all_inner_texts() == [
        "step › forward",
        "compile lock",
        "–",
        "compile frame, tracing: the FX flag is its own",
    ]


def test_a_scenario_that_did_not_run_says_why(visit: Visit, report: Path) -> None:
    page = visit(report)
    page.locator("a.tile.skipped").first.click()
    page.wait_for_selector("dialog[open]")
    assert "needs a CUDA build of torch; this is 2.11.0+cpu" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.locator("a.tile", has_text="deadlock").click()
    page.wait_for_selector("dialog[data-ready]")
    assert "broken: only ok where lock=compile_gate or lock=every_step" in page.locator(".panel-said").inner_text()


def test_the_command_that_runs_it_again_is_copied(visit: Visit, collisions: Path) -> None:
    page = open_trial(visit, collisions, permissions=["clipboard-read", "clipboard-write"])
    page.locator("dialog .command button").first.click()
    until(page, "document.querySelector('dialog .command button').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.endswith("--only 'lock=none and checkpoint=none and shapes=fixed and mask=eager' --repeats 4")


def test_every_trial_of_the_scenario_can_be_chosen(visit: Visit, collisions: Path) -> None:
    page = open_trial(visit, collisions)
    chips = page.locator(".chip")
    assert [" ".join(text.split()) for text in chips.all_inner_texts()] == [
        "✗ 1 fx_error",
        "✗ 3 fx_error",
        "✓ 0 ok",
        "✓ 2 ok",
    ]
    chips.nth(2).click()
    page.wait_for_selector("dialog[data-ready='default--r0']")
    assert "trial=default--r0" in page.evaluate("location.hash")
    assert page.locator("dialog .example").count() == 0
    chips.nth(1).click()
    page.wait_for_selector("dialog[data-ready='default--r3']")
    assert "harness report" in page.locator("dialog .panel-body .command").inner_text(), (
        "not in this file: how to see it"
    )
    assert "--trial default--r3" in page.locator("dialog .panel-body .command").inner_text()


def test_wheel_drag_keys_and_buttons_move_the_timeline(visit: Visit, collisions: Path) -> None:
    page = open_trial(visit, collisions)
    whole = window(page)
    assert whole[0] <= 0
    assert whole[1] >= 900_000
    stage = page.locator(".stage")
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 700, box["y"] + 60)
    page.mouse.wheel(0, -600)
    zoomed = window(page)
    assert zoomed[1] - zoomed[0] < 0.5 * (whole[1] - whole[0])
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 60, steps=4)
    page.mouse.up()
    moved = window(page)
    assert moved[0] > zoomed[0], "what is dragged to the left shows what comes later"
    assert moved[1] - moved[0] == pytest.approx(zoomed[1] - zoomed[0], rel=0.01)
    stage.focus()
    stage.press("ArrowLeft")
    assert window(page)[0] < moved[0]
    stage.press("+")
    assert window(page)[1] - window(page)[0] < moved[1] - moved[0]
    stage.press("0")
    assert window(page) == whole
    page.get_by_role("button", name="Zoom in").click()
    assert window(page)[1] < whole[1]
    page.get_by_role("button", name="Show all of it").click()
    assert window(page) == whole


def test_pointing_tells_what_it_is_and_a_click_keeps_it(visit: Visit, collisions: Path) -> None:
    page = open_trial(visit, collisions)
    window(page)
    stage = page.locator(".stage")
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    assert box is not None
    at = box["x"] + 132 + (box["width"] - 132) * 0.30, box["y"] + 28  # the first lane, while drafter-0 traced
    page.mouse.move(*at)
    assert page.locator(".tip").inner_text().split("\n") == ["FX flag: drafter-0", "0.0200 s to 0.0400 s: 20.00 ms"]
    page.mouse.click(*at)
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    assert page.locator(".tip").is_hidden()
    assert "FX flag: drafter-0" in page.locator(".pinned").inner_text()
    page.get_by_role("button", name="Zoom to it").click()
    assert window(page) == pytest.approx((160_000, 440_000), abs=10)


def test_an_error_leads_to_its_place_and_back(visit: Visit, collisions: Path) -> None:
    page = open_trial(visit, collisions)
    window(page)
    page.get_by_role("button", name="Show it in the timeline").click()
    first, last = window(page)
    assert (first + last) / 2 == pytest.approx(400_000, abs=100_000)
    assert page.locator(".stage").is_visible()
    assert "RuntimeError" in page.locator(".pinned").inner_text()
    page.get_by_role("button", name="See its stacks").click()
    assert page.evaluate("document.activeElement.id") == "trial-error-0"


def test_alarms_are_reached_by_keys(visit: Visit, collisions: Path) -> None:
    page = open_trial(visit, collisions)
    window(page)
    page.locator(".stage").focus()
    page.keyboard.press("n")
    assert "flag.checked" in page.locator(".pinned").inner_text()
    page.keyboard.press("n")
    assert "step.failed" in page.locator(".pinned").inner_text()


def test_the_timeline_is_also_a_table(visit: Visit, collisions: Path) -> None:
    page = open_trial(visit, collisions)
    page.locator("dialog summary", has_text="As tables").click()
    row = page.locator("dialog [aria-label='Seconds by thread'] tr", has_text="drafter-0")
    assert row.locator("td").all_inner_texts() == ["1", "0.075", "0.020", "0.049", "–", "–", "0.052", "–", "–"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_drawn_in_the_colours_of_the_page(visit: Visit, collisions: Path, scheme: str) -> None:
    page = open_trial(visit, collisions, color_scheme=scheme)
    window(page)
    flag = {"light": 0xB04A15, "dark": 0xF0935C}[scheme]
    found = page.locator(".stage canvas").evaluate(PAINTED, flag)
    assert found > 1_000, "the owner of the flag, in the colour of its scheme"


def test_on_a_phone_a_trial_can_be_read(visit: Visit, collisions: Path) -> None:
    page = open_trial(visit, collisions, viewport={"width": 360, "height": 740}, has_touch=True)
    window(page)
    page.evaluate("document.querySelectorAll('dialog details').forEach((one) => { one.open = true; })")
    assert page.locator(".panel-scroll").evaluate("(one) => one.scrollWidth <= one.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_trial_has_a_page_of_its_own(visit: Visit, tmp_path: Path) -> None:
    run = collision_folder(tmp_path / "run")
    path = write_page(build_trial_page(read_run(run), "default--r1"), tmp_path / "one.html")
    page = visit(path)
    page.wait_for_selector("html[data-ready]")
    assert page.locator("h1").inner_text() == "This trial failed: FX-tracing errors."
    window(page)
    assert page.locator("main .example figure").count() == 2


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString"])
def test_a_trial_may_be_called_as_every_object_has_it(visit: Visit, tmp_path: Path, name: str) -> None:
    from fake_folder import TRACED, write_folder
    from fake_runs import row

    from harness.report.html import write_report

    rows = [{**row(None, 0, "fx_error", errors=[TRACED]), "trial": name}, {**row(None, 1), "trial": "other"}]
    page = visit(write_report(write_folder(tmp_path / "run", rows, matrix=None)), f"#trial={name}")
    page.wait_for_selector(f"dialog[data-ready='{name}'] .example")
    page.locator(".chip").nth(1).click()
    page.wait_for_selector("dialog[data-ready='other']")
    assert "no event log of this trial" in page.locator("dialog").inner_text()


@pytest.mark.slow
def test_a_long_log_is_thinned_says_so_and_moves_without_delay(visit: Visit, tmp_path: Path) -> None:
    run = collision_folder(tmp_path / "run")
    write_events(run, "default--r1", long_log(60_000))
    page = visit(write_page(build_trial_page(read_run(run), "default--r1"), tmp_path / "one.html"))
    page.wait_for_selector("html[data-ready]")
    assert "Left out of 59,977 events: 9,978, the shortest" in page.locator("p.left-out").inner_text()
    window(page)
    stage = page.locator(".stage")
    stage.focus()
    times = []
    for key in ("+",) * 12 + ("-",) * 12:
        stage.press(key)
        window(page)
        times.append(float(str(stage.get_attribute("data-draw-ms"))))
    assert sorted(times)[len(times) // 2] < 100, "many times what is measured: a machine may be busy"
