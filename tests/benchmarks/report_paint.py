"""The report in headless Chromium: its first paint, and how a long timeline moves.

    python -m tests.benchmarks.report_paint [trials …]

Goals: the grid is painted within 1.5 s for 1,000 trials and 3 s for 20,000 of 2,016 scenarios; a page of 1,000 trials is
built within 10 s; every page has at most 6 MB. Rows are those of `report_size --distinct`, which grow most; the first 200
trials have event logs of 2,000 events. The timeline has 50,000 events: frames while it is zoomed by the wheel.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.control.rundir import dump_environment
from harness.core.matrix import parse_matrix
from harness.report.html import write_page, write_report
from harness.report.rundata import read_run
from harness.report.trialpage import build_trial_page

from . import report_size
from .machine import machine, spread

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from fake_events import long_log, write_events

WIDE = report_size.MATRIX.replace("[[expect]]", "seed = [0, 1, 2, 3, 4, 5, 6, 7]\n[[expect]]")
LOGS, LOG_EVENTS = 200, 2_000
LIMITS = {1_000: 1.5, 20_000: 3.0}
FRAMES = 60

PAINTED = """
const look = () => {
  const tile = document.querySelector('.grid a.tile');
  if (tile && tile.getBoundingClientRect().height) requestAnimationFrame(() => { window.gridPainted = performance.now(); });
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
ZOOM = """
async (frames) => {
  const stage = document.querySelector('.stage'), canvas = stage.firstChild;
  const box = canvas.getBoundingClientRect();
  const taken = [], drawn = [];
  let last = performance.now();
  for (let frame = 0; frame < frames; frame += 1) {
    const deltaY = frame < frames / 2 ? -120 : 120;
    const where = { clientX: box.left + box.width / 2, clientY: box.top + 80 };
    canvas.dispatchEvent(new WheelEvent('wheel', { deltaY, ...where, bubbles: true, cancelable: true }));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const now = performance.now();
    taken.push((now - last) / 2);
    drawn.push(Number(stage.dataset.drawMs));
    last = now;
  }
  return [taken, drawn];
}
"""


def wide_rows(trials: int) -> Iterator[dict[str, Any]]:
    """Rows over 2,016 scenarios in turn, or as many as there are trials."""
    scenarios = parse_matrix(WIDE, file="m").scenarios
    for number, row in enumerate(report_size.rows(trials, True)):
        scenario = scenarios[number % len(scenarios)]
        repeat = number // len(scenarios)
        named = {"scenario": scenario.to_dict(), "scenario_id": scenario.id, "repeat": repeat}
        yield {**row, **named, "trial": f"{scenario.id}--r{repeat}"}


def make_run(run: Path, trials: int) -> Path:
    """A run folder of so many trials."""
    (run / "matrix.toml").write_text(WIDE)
    (run / "environment.json").write_text(dump_environment({"torch": "2.11.0"}))
    log = long_log(LOG_EVENTS)
    with open(run / "results.jsonl", "w", encoding="utf-8") as file:
        for number, row in enumerate(wide_rows(trials)):
            file.write(json.dumps(row) + "\n")
            if number < LOGS:
                write_events(run, row["trial"], log)
    return run


def paints(browser: Any, path: Path, times: int = 5) -> tuple[list[float], list[float]]:
    """Milliseconds to the first contentful paint, and to the frame after the grid has its cells."""
    first, grid = [], []
    for _ in range(times):
        context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
        context.add_init_script(PAINTED)
        page = context.new_page()
        page.goto(path.as_uri())
        while not page.evaluate("window.gridPainted && performance.getEntriesByName('first-contentful-paint').length"):
            page.wait_for_timeout(50)  # the page's policy forbids what wait_for_function does
        first.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        grid.append(page.evaluate("window.gridPainted"))
        context.close()
    return first, grid


def zooms(browser: Any, path: Path) -> tuple[list[float], list[float]]:
    """Milliseconds a frame while the wheel zooms, and of them in drawing."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector(".stage[data-draw-ms]")
    taken, drawn = page.evaluate(ZOOM, FRAMES)
    page.close()
    return taken, drawn


def main() -> None:
    """Print the figures; exit 1 when a goal is missed."""
    from playwright.sync_api import sync_playwright

    missed = False
    print(machine())
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as base:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        for trials in [int(argument) for argument in sys.argv[1:]] or list(LIMITS):
            run = Path(base, str(trials))
            run.mkdir()
            make_run(run, trials)
            began, busy = time.perf_counter(), time.process_time()
            path = write_report(run)
            seconds, busy = time.perf_counter() - began, time.process_time() - busy
            size = path.stat().st_size / 1e6
            first, grid = paints(browser, path)
            print(f"{trials:,} trials: built in {seconds:.2f} s, {busy:.2f} s of them computing, {size:.2f} MB")
            print(f"  first contentful paint {spread(first)} ms, grid painted {spread(grid)} ms")
            missed |= size > 6 or max(grid) / 1e3 > LIMITS.get(trials, 3.0) or (trials <= 1_000 and seconds > 10)
        trial = next(wide_rows(1))["trial"]
        write_events(run, trial, long_log(50_000))
        path = write_page(build_trial_page(read_run(run), trial), Path(base) / "trial.html")
        taken, drawn = zooms(browser, path)
        print(
            f"50,000 events, {path.stat().st_size / 1e6:.2f} MB: {spread(taken)} ms a frame, {spread(drawn)} ms of it drawing"
        )
        browser.close()
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
