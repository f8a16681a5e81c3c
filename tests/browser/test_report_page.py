"""The report in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_support import Visit, colour, contrast, until
from hostile_folder import ATTACKS, hostile_folder

from harness.report.html import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def test_the_answer_comes_first_and_the_grid_is_seen_at_once(visit: Visit, report: Path) -> None:
    page = visit(report)
    assert page.locator("h1").inner_text().startswith("6 of 20 scenarios are unsafe")
    tile = page.locator(".grid a.tile").first
    assert tile.inner_text().split("\n")[:2] == ["✗ unsafe", "3/5 (15–95 %)"]
    box = tile.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 900, "within the first screen"


def test_every_verdict_can_be_told_without_colour(visit: Visit, report: Path) -> None:
    page = visit(report, forced_colors="active")
    words = {text.split("\n")[0] for text in page.locator(".grid a.tile").all_inner_texts()}
    assert words == {"✗ unsafe", "✓ safe", "? undecided", "… incomplete", "– skipped", "· not run"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(visit: Visit, report: Path, scheme: Any) -> None:
    page = visit(report, color_scheme=scheme)
    ground = colour(page, "body", "background-color")
    assert (sum(ground) < 3 * 128) == (scheme == "dark")
    assert contrast(colour(page, "body"), ground) > 7
    assert contrast(colour(page, ".quiet"), ground) > 4.5
    assert contrast(colour(page, "nav a"), ground) > 4.5
    for state in ("unsafe", "safe", "undecided", "incomplete"):
        tile = f".grid .tile.{state}"
        assert contrast(colour(page, tile), colour(page, tile, "background-color")) > 4.5, state


def test_a_cell_leads_to_its_scenario(visit: Visit, report: Path) -> None:
    page = visit(report)
    page.locator(".grid a.tile", has_text="deadlock").click()
    page.get_by_role("link", name="its line in the table").click()
    page.wait_for_selector("dialog", state="hidden")
    row = page.locator("#scenarios tr:target")
    assert "lock=every_step" in row.inner_text()
    assert "only ok where lock=compile_gate or lock=every_step" in row.inner_text(), "its details are open"
    assert "--only 'lock=every_step and checkpoint=none" in row.locator(".command code").inner_text()


def test_a_link_into_the_closed_table_opens_it(visit: Visit, report: Path) -> None:
    page = visit(report)
    page.locator("#all > summary").click()
    assert not page.locator("#scenarios").is_visible()
    page.locator("#expectations a").first.click()
    page.wait_for_selector("#scenarios tr:target")


def test_a_closed_part_is_opened_by_the_page_where_the_browser_does_not(visit: Visit, report: Path) -> None:
    """Chromium opens it by itself, others do not; so here the link's event alone comes again."""
    page = visit(report, "#s5")
    page.locator("#all > summary").click()
    page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
    assert page.locator("#s5").is_visible()


def test_a_page_opened_at_a_scenario_shows_it(visit: Visit, report: Path) -> None:
    page = visit(report, "#s5")
    assert page.locator("#s5 details").get_attribute("open") is not None


def test_both_stacks_stand_side_by_side(visit: Visit, report: Path) -> None:
    page = visit(report)
    stacks = page.locator("#errors .example").first.locator("figure")
    assert not stacks.first.is_visible(), "closed at first"
    page.locator("#errors summary").first.click()
    left, right = stacks.nth(0).bounding_box(), stacks.nth(1).bounding_box()
    assert left is not None
    assert right is not None
    assert left["y"] == right["y"]
    assert right["x"] > left["x"] + left["width"] - 1
    assert "compile_wrapper" in stacks.nth(0).inner_text()
    assert "was tracing" in stacks.nth(1).inner_text()


def test_a_long_stack_opens_at_its_innermost_frame(visit: Visit, tmp_path: Path) -> None:
    from fake_folder import TRACED, write_folder
    from fake_runs import row

    long = "".join(f'  File "a.py", line {number}, in f\n    call()\n' for number in range(200))
    run = write_folder(tmp_path, [row(None, 0, "fx_error", errors=[{**TRACED, "traceback": long}])], matrix=None)
    page = visit(write_report(run))
    page.locator("#errors summary").first.click()
    stack = page.locator("#errors .stack").first
    until(page, "document.querySelector('#errors .stack').scrollTop > 0")
    assert stack.evaluate("(one) => one.scrollTop + one.clientHeight >= one.scrollHeight - 2")


def test_on_a_phone_nothing_sticks_out(visit: Visit, report: Path) -> None:
    page = visit(report, viewport={"width": 360, "height": 740}, has_touch=True)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    boxes = [one.bounding_box() for one in page.locator("#errors .example").first.locator("figure").all()]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[1]["y"] > boxes[0]["y"] + boxes[0]["height"] - 1, "stacks stand one below the other"


def test_it_can_be_used_with_the_keyboard(visit: Visit, report: Path) -> None:
    page = visit(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    for _ in range(20):
        page.keyboard.press("Tab")  # the choices, and the region that scrolls
        if "tile" in page.evaluate("document.activeElement.className"):
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[data-ready]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="hidden")
    assert "tile" in page.evaluate("document.activeElement.className"), "back where it was opened"
    page.locator("#errors summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#errors figure").first.is_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "stack", "can be scrolled with the arrow keys"


def test_the_table_can_be_filtered(visit: Visit, report: Path) -> None:
    page = visit(report)
    page.locator(".filter input").fill("unsafe lock=none")
    rows = page.locator("#scenarios tbody tr:visible")
    assert rows.count() == 4
    assert all("unsafe" in text and "lock=none" in text for text in rows.all_inner_texts())
    assert page.locator(".filter [role=status]").inner_text() == "4 of 20"
    page.locator(".filter input").fill("")
    assert rows.count() == 20


def test_a_command_is_copied_as_it_is_typed(visit: Visit, report: Path) -> None:
    page = visit(report, permissions=["clipboard-read", "clipboard-write"])
    box = page.locator("#errors .command").first
    box.locator("button").click()
    until(page, "document.querySelector('#errors .command button').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == box.locator("code").evaluate("(one) => one.textContent")
    assert copied.startswith("harness run ")
    assert " --only 'lock=none and checkpoint=none and shapes=fixed and devices=cpu' --repeats 5" in copied


def test_it_is_whole_without_its_script(visit: Visit, report: Path) -> None:
    page = visit(report, java_script_enabled=False)
    assert page.locator(".grid a.tile").count() == 20
    assert page.locator("#scenarios tbody tr").count() == 20
    assert page.locator("button, select").count() == 0
    page.locator(".grid a.tile").first.click()
    page.wait_for_selector("#scenarios tr:target")


def test_it_prints_without_what_cannot_be_used_on_paper(visit: Visit, report: Path) -> None:
    page = visit(report, color_scheme="dark")
    page.emulate_media(media="print")
    assert sum(colour(page, "body", "background-color")) == 3 * 255, "paper is white"
    assert sum(colour(page, "body")) < 200
    assert not page.locator("nav").is_visible()
    assert not page.locator("button").first.is_visible()
    assert page.locator(".grid a.tile").first.is_visible()


@pytest.mark.parametrize("attack", ATTACKS)
def test_text_of_a_run_is_shown_and_never_run(visit: Visit, tmp_path: Path, attack: str) -> None:
    page = visit(write_report(hostile_folder(tmp_path / "run", attack)))
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for_timeout(100)
    assert "1 of 2 scenarios is unsafe" in page.title()
    assert page.locator("script:not([type])").count() == 1
    assert page.locator("img, svg:not(.bar, .chart, .swatch), iframe, object").count() == 0
    if attack.isprintable():
        assert page.locator("#errors .message").first.inner_text() == f"{attack}: {attack}"
    page.locator(".grid a.tile.unsafe").click()
    page.wait_for_selector("dialog[data-ready] .stage[data-draw-ms]")
    page.evaluate("document.querySelectorAll('dialog details').forEach((one) => { one.open = true; })")
    stage = page.locator(".stage")
    stage.focus()
    for key in ("n", "n", "p", "0"):
        stage.press(key)
    box = stage.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 600, box["y"] + 30)
    page.mouse.click(box["x"] + 600, box["y"] + 30)
    assert page.locator("dialog").locator("script, img, iframe, object").count() == 0
    assert "pwned" not in page.title()
    if attack.isprintable():
        assert page.locator("dialog .message").first.inner_text() == f"{attack}: {attack}"
        assert page.locator("dialog pre.stack").first.text_content() == attack


def test_markup_that_got_in_all_the_same_could_do_nothing(browser: Browser, report: Path, tmp_path: Path) -> None:
    """The policy of the page is a second wall: here the first, escaping, is taken down on purpose."""
    inside = (
        "<script>document.title='pwned'</script><img src='https://example.org/x' onerror=\"document.title='pwned'\">"
    )
    broken = tmp_path / "broken.html"
    broken.write_text(report.read_text("utf-8").replace("<main>", f"<main>{inside}"), "utf-8")
    page = browser.new_page()
    refused, fetched = [], []
    page.on("console", lambda message: refused.append(message.text))
    page.on("requestfinished", lambda request: fetched.append(request.url))
    page.goto(broken.as_uri())
    page.wait_for_timeout(200)
    assert "pwned" not in page.title()
    assert sum("Content Security Policy" in text for text in refused) == 3, "script, image, handler"
    assert fetched == [broken.as_uri()]
    page.close()
