"""A run in one line for CI, and as a badge: an SVG file that needs nothing else."""

from __future__ import annotations

from html import escape

from harness.report.answer import state
from harness.report.comparison import Comparison
from harness.report.expectations import Expectations, counts
from harness.report.page import Page
from harness.report.rundata import RunData
from harness.report.text import one_line, visible
from harness.report.wording import plural

LABEL = "harness"
HEIGHT = 20
_COLOURS = {"bad": "#b3261e", "good": "#1e6b34", "open": "#7a5c00", "none": "#5b5b5b"}
"""Each has a contrast of at least 4.5 with the white text."""
_NARROW, _WIDE = set("fijlrtI.,:;'!|()[] "), set("mwMW%@")


def summary_line(data: RunData, page: Page) -> str:
    """`quick on torch 2.11.0: 2 unsafe, 14 undecided of 16 scenarios; expectations: 1 broken, 15 met`; of a bisection its
    answer, as on its page."""
    said = _verdicts(data, page) if page.bisected is None else f"{page.answer.sentence} {page.answer.rest}".strip().rstrip(".")
    line = f"{page.title} on torch {data.torches}: {said}"
    if page.comparison is not None:
        line += f"; {_comparison(page.comparison)}"
    if page.left_out:
        line += f"; {plural(len(page.left_out), 'note')} on what was left out"
    return visible(one_line(line, 2_000))


def _verdicts(data: RunData, page: Page) -> str:
    states = {"not run": len(data.not_run)} if data.not_run else {}
    for item in data.summary.scenarios:
        states[state(item)] = states.get(state(item), 0) + 1
    verdicts = ", ".join(f"{count:,} {word}" for word, count in sorted(states.items(), key=lambda one: -one[1]))
    found = f"{verdicts} of {plural(len(data.values), 'scenario')}" if verdicts else "nothing ran"
    return f"{found}; expectations: {_expectations(page.expectations)}"


def badge(page: Page) -> str:
    """The SVG text: how the run stands to its expectations, or its verdicts where none are stated."""
    text, colour = _message(page)
    left, right = (10 + _width(part) for part in (LABEL, text))
    title = escape(f"{LABEL}: {text}")
    parts = (
        f'<rect width="{left}" height="{HEIGHT}" fill="#3d3d3d"/>',
        f'<rect x="{left}" width="{right}" height="{HEIGHT}" fill="{_COLOURS[colour]}"/>',
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">',
        f'<text x="{left / 2:g}" y="14">{LABEL}</text>',
        f'<text x="{left + right / 2:g}" y="14">{escape(text)}</text></g>',
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{HEIGHT}" role="img" '
        f'aria-label="{title}"><title>{title}</title>{"".join(parts)}</svg>\n'
    )


def _message(page: Page) -> tuple[str, str]:
    found = page.expectations
    wrong = [f"{found.scenarios(kind):,} {kind}" for kind in ("broken", "unexpected") if found.scenarios(kind)]
    if wrong:
        return ", ".join(wrong), "bad"
    if found.stated and not found.unjudged:
        held = found.scenarios("met") + found.scenarios("flaky")
        if found.scenarios("improved"):
            return f"{found.scenarios('improved'):,} improved", "open"
        return ("as expected", "good") if held else ("nothing judged", "none")
    tone = {"unsafe": "bad", "safe": "good", "undecided": "open"}.get(page.answer.tone, "none")
    count = sum(view.state == page.answer.tone for view in page.scenarios)
    return (f"{count:,} {page.answer.tone}" if count else page.answer.tone), tone


def _expectations(found: Expectations) -> str:
    if found.unjudged:
        return "not judged"
    return counts(found) or ("nothing judged" if found.stated else "none stated")


def _comparison(found: Comparison) -> str:
    said: dict[str, int] = {}
    for row in found.rows:
        said[row.word] = said.get(row.word, 0) + 1
    return "against the baseline: " + (", ".join(f"{n:,} {word}" for word, n in said.items()) or "nothing comparable")


def _width(text: str) -> int:
    """About, in pixels, of Verdana at 11."""
    return round(sum(4.5 if sign in _NARROW else 10 if sign in _WIDE else 7 for sign in text))
