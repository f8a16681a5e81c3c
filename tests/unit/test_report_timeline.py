"""What of a story is drawn, and in which form it travels."""

from __future__ import annotations

import itertools
from typing import Any

from fake_events import MS, collision, event, long_log
from test_report_spans import ROLES

from harness.report import pack
from harness.report.spans import tell
from harness.report.timeline import ALARMS, columns, thinned


def starts(part: dict[str, Any]) -> list[int]:
    return list(itertools.accumulate(part["start"]))


def test_columns_hold_the_story() -> None:
    told = columns(tell(collision(), ROLES), "")
    drafter = told["lanes"][1]
    names = [told["names"][number] for number in drafter["name"]]
    assert (drafter["thread"], drafter["rows"], drafter["role"]) == ("drafter-0", 6, "drafter")
    assert list(zip(names, starts(drafter), drafter["length"], drafter["row"], strict=True))[2] == (
        "compile lock",
        100_000,  # ticks of 100 ns: 10 ms
        520_000,
        2,
    )
    flag = told["held"][0]
    assert (flag["name"], starts(flag), flag["length"], flag["lane"]) == ("FX flag", [200_000], [200_000], [1])
    assert told["end"] == 900_000
    assert told["events"] == len(collision())
    assert pack.inflated(pack.deflated(told)) == told


def test_an_open_span_says_so() -> None:
    told = columns(tell(collision(), ROLES), "")
    last = told["lanes"][3]
    assert told["names"][last["name"][-1]] == "compile lock, not ended"


def test_holds_at_one_time_stand_in_rows_of_their_own() -> None:
    events = [
        event(at, name, f"fx.trace.{what}")
        for at, name, what in ((1, "a", "enter"), (2, "b", "enter"), (3, "a", "exit"), (4, "b", "exit"))
    ]
    [flag] = columns(tell(events, {}), "")["held"]
    assert (flag["rows"], flag["row"]) == (2, [0, 1])


def test_a_log_within_the_limit_is_whole() -> None:
    story = tell(long_log(2_000), {})
    assert thinned(story, 50_000) == (story, "")


def test_of_a_longer_log_the_shortest_spans_are_left_out_and_trouble_is_kept() -> None:
    story = tell(long_log(40_000), {})
    less, said = thinned(story, 12_000)
    size = sum(2 * len(lane.spans) + len(lane.marks) for lane in less.lanes)
    left = sum(2 * len(lane.spans) + len(lane.marks) for lane in story.lanes)
    assert 11_500 < size <= 12_000
    assert said.startswith(f"Left out of {left:,} events: {left - size:,}, the shortest spans first (")
    assert [mark.kind for lane in less.lanes for mark in lane.marks if mark.kind in ALARMS] == ["step.failed"]
    near = story.end - 400 * MS
    kept = [span for lane in less.lanes for span in lane.spans if span.start > near]
    assert len(kept) == sum(span.start > near for lane in story.lanes for span in lane.spans), "whole near the failure"
    far = [span.end - span.start for lane in less.lanes for span in lane.spans if span.end < near - 600 * MS]
    assert min(far) > 0.9 * MS, "elsewhere the shortest are gone"


def test_text_that_travels_is_visible_and_cannot_end_a_script() -> None:
    attack = "</script><!-- \x1b\u202e\ud800 & \u2028"
    text = pack.as_json({attack: [attack]})
    assert not set("<>&\x1b\u202e\u2028").intersection(text)
    assert text.encode()
    shown = pack.inflated(pack.deflated([attack]))[0]
    assert shown == "</script><!-- ␛\\u202e\\ud800 & \\u2028"
