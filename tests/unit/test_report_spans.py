"""Events → lanes of nested spans, and who held what at a moment."""

from __future__ import annotations

from typing import Any

from fake_events import MS, collision, event, region
from hypothesis import given
from hypothesis import strategies as st

from harness.report import moments
from harness.report.spans import BAD, OPEN, Lane, Memory, Story, tell

ROLES = {"target-0": "target", **{f"drafter-{number}": "drafter" for number in range(3)}}
ERROR: dict[str, Any] = {
    "label": "fx_error",
    "thread": "drafter-1",
    "worker": "drafter-1",
    "at_s": 0.047,
    "tracers": [{"thread": "drafter-0", "worker": "drafter-0"}],
}


def lane(story: Story, thread: str) -> Lane:
    return next(one for one in story.lanes if one.thread == thread)


def shown(found: Lane) -> list[tuple[str, int, float, float]]:
    return [(span.name, span.depth, span.start / MS, span.end / MS) for span in found.spans]


def test_what_a_thread_was_in_nests() -> None:
    story = tell(collision(), ROLES)
    assert shown(lane(story, "drafter-0")) == [
        ("step", 0, 5, 80),
        ("forward", 1, 6, 70),
        ("compile lock", 2, 10, 62),
        ("compile frame", 3, 11, 60),
        ("FX trace", 4, 20, 40),
        ("FX trace", 5, 25, 30),
    ]
    assert [one.thread for one in story.lanes] == ["target-0", "drafter-0", "drafter-1", "drafter-2"]
    assert shown(lane(story, "target-0")) == [("queue.put", 0, 1, 9)]
    assert [one.role for one in story.lanes] == ["target", "drafter", "drafter", "drafter"]


def test_the_flag_and_the_locks_have_owners() -> None:
    story = tell(collision(), ROLES)
    held = {
        name: [(h.start / MS, h.end / MS, story.lanes[h.lane].thread) for h in one] for name, one in story.held.items()
    }
    assert list(held) == ["FX flag", "compile lock"]
    assert held["FX flag"] == [(20, 40, "drafter-0")], "the outermost trace alone"
    assert held["compile lock"] == [(10, 62, "drafter-0"), (62.5, 90, "drafter-2")]


def test_errors_and_open_ends_are_told() -> None:
    story = tell(collision(), ROLES)
    assert [span.flags for span in lane(story, "drafter-1").spans] == [BAD, BAD]
    wait, hold = lane(story, "drafter-2").spans
    assert (wait.kind, wait.flags) == ("wait", 0)
    assert (hold.kind, hold.flags, hold.end) == ("hold", OPEN, 90 * MS)


def test_memory_is_no_mark() -> None:
    story = tell(collision(), ROLES)
    assert story.memory == (Memory(75 * MS, "cuda:0", 2**30, 2**31),)
    assert [mark.kind for mark in lane(story, "drafter-0").marks] == ["step.done"]


def test_spans_that_cross_keep_their_rows() -> None:
    story = tell(
        [
            event(0, "a", "region.enter", r="step"),
            event(1, "a", "strategy_lock.acquired", lock="strategy"),
            event(2, "a", "region.exit", r="step"),
            event(3, "a", "region.enter", r="step"),
            event(4, "a", "strategy_lock.released", lock="strategy"),
            event(5, "a", "region.exit", r="step"),
        ],
        {},
    )
    assert shown(story.lanes[0]) == [("step", 0, 0, 2), ("lock strategy", 1, 1, 4), ("step", 2, 3, 5)]


def test_a_device_thread_works_for_several() -> None:
    engine = {"th": "autograd-7", "id": 7}
    story = tell(
        [
            {**event(1, "x", "region.enter", r="backward"), **engine, "w": "drafter-0"},
            {**event(2, "x", "region.exit", r="backward"), **engine, "w": "drafter-0"},
            {**event(3, "x", "region.enter", r="backward"), **engine, "w": "drafter-1"},
            {**event(4, "x", "region.exit", r="backward"), **engine, "w": "drafter-1"},
        ],
        ROLES,
    )
    assert (story.lanes[0].role, [span.worker for span in story.lanes[0].spans]) == (
        "engine",
        ["drafter-0", "drafter-1"],
    )


def test_who_held_what_when_it_failed() -> None:
    """The answer was written at 45 ms, when the trace had ended: the moment shown is the last at which it was open."""
    story = tell(collision(), ROLES)
    moment = moments.moment_of(story, ERROR)
    assert moment == 40 * MS - 1
    standings = {one.thread: one for one in moments.at(story, moment)}
    assert standings["drafter-1"].regions == "step › attention"
    assert standings["drafter-0"].holds == ("compile lock",)
    assert standings["drafter-0"].doing == ("compile frame", "tracing: the FX flag is its own")
    assert standings["drafter-2"].waits == ("compile lock",)
    assert "target-0" not in standings


def test_who_is_in_the_engine_waits_where_autograd_has_threads_of_its_own() -> None:
    entered = event(5, "drafter-0", "engine.enter")
    lowers = {**event(6, "x", "region.enter", r="attention"), "th": "autograd-7", "id": 7, "w": "drafter-0"}
    ends = event(9, "drafter-0", "engine.exit")
    on_the_cpu, on_a_device = tell([entered, ends], ROLES), tell([entered, lowers, ends], ROLES)
    assert [one.waits for one in moments.at(on_the_cpu, 7 * MS)] == [()]
    assert {one.thread: one.waits for one in moments.at(on_a_device, 7 * MS)}["drafter-0"] == ("autograd's thread",)


def test_a_gate_that_two_hold_is_shared_and_the_first_hold_of_it_is_exclusive() -> None:
    def gate(at: float, who: str, what: str) -> dict[str, Any]:
        return event(at, who, f"strategy_lock.{what}", lock="gate")

    first = [gate(1, "drafter-0", "acquired"), gate(3, "drafter-0", "released")]
    both = [gate(4, "drafter-0", "acquired"), gate(5, "drafter-1", "acquired"), gate(7, "drafter-0", "released")]
    last = [gate(8, "drafter-1", "released"), gate(9, "drafter-0", "acquired"), event(11, "drafter-0", "step.done")]
    story = tell([*first, *both, *last], ROLES)

    def held(at: float) -> dict[str, tuple[str, ...]]:
        return {one.thread: one.holds for one in moments.at(story, int(at * MS))}

    assert held(2) == {"drafter-0": ("lock gate (exclusive)",)}
    assert held(6) == {"drafter-0": ("lock gate (shared)",), "drafter-1": ("lock gate (shared)",)}
    assert held(7.5) == {"drafter-1": ("lock gate (shared)",)}, "it keeps the mode that it began with"
    assert held(10) == {"drafter-0": ("lock gate",)}, "of a key that may be known: the log does not prove which"


def test_other_errors_are_placed_where_they_left_their_innermost_region() -> None:
    story = tell(collision(), ROLES)
    assert moments.moment_of(story, {**ERROR, "label": "error", "tracers": []}) == int(46.1 * MS) - 1
    assert moments.moment_of(story, {**ERROR, "at_s": None}) is None
    assert moments.moment_of(story, {**ERROR, "thread": "nobody", "worker": ""}) is None


values = st.none() | st.integers(-5, 2**60) | st.text(max_size=4) | st.booleans() | st.lists(st.integers(), max_size=2)
kinds = st.sampled_from(["region.enter", "region.exit", "compile_lock.acquired", "compile_lock.released", "hang", "x"])
anything = st.dictionaries(
    st.sampled_from(["t", "th", "id", "w", "k", "r", "a", "d", "lock"]), values | kinds, max_size=7
)


@given(st.lists(anything | st.builds(event, st.integers(0, 50), st.sampled_from("ab"), kinds, r=st.sampled_from("rs"))))
def test_no_event_breaks_the_story(events: list[dict[str, Any]]) -> None:
    story = tell(sorted(events, key=lambda one: one["t"] if isinstance(one.get("t"), int) else -1), {})
    for one in story.lanes:
        rows: dict[int, float] = {}
        for span in one.spans:
            assert 0 <= span.start <= span.end <= story.end
            assert span.start >= rows.get(span.depth, 0), "spans of a row do not overlap"
            rows[span.depth] = span.end
    moments.at(story, story.end)


def test_regions_of_one_thread_do_not_end_anothers() -> None:
    story = tell(sorted(region("a", "step", 0, 10) + region("b", "step", 2, 4), key=lambda one: one["t"]), {})
    assert shown(lane(story, "a")) == [("step", 0, 0, 10)]
    assert shown(lane(story, "b")) == [("step", 0, 2, 4)]
