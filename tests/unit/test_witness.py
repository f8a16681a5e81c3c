"""The interleaving as people read it."""

from __future__ import annotations

from typing import Any

import pytest

from harness.report.witness import interleaving
from harness.subject.schedules.witness import source_positions


def event(seat: str, point: str, **more: Any) -> dict[str, Any]:
    return {"seat": seat, "point": point, "info": "", "event": "step", "role": "", "attempt": 1, "torch": "", **more}


WITNESS = [
    event("drafter-0", "fx.window.open", role="A", name="A traces", torch="torch/fx/_symbolic_trace.py:880 trace"),
    event("drafter-1", "compiled_call.enter", event="let go", attempt=0),
    event("drafter-1", "compiled_call.checked", role="B", info="true", source="pipeline/attention.py:122 call"),
    event("drafter-0", "fx.window.closing", role="A"),
]


def test_numbered_lines_with_a_column_for_each_thread() -> None:
    assert interleaving(WITNESS, 80) == [
        "     A = drafter-0                        B = drafter-1",
        "     -----------------------------------  -----------------------------------",
        '  1  fx.window.open  "A traces"',
        "       torch/fx/_symbolic_trace.py:880",
        "         trace",
        "  2                                       (compiled_call.enter: was held",
        "                                          until now)",
        "  3                                       compiled_call.checked true",
        "                                            pipeline/attention.py:122 call",
        "  4  fx.window.closing",
    ]


def test_only_the_last_attempt_is_shown() -> None:
    earlier = [event("drafter-2", "fx.window.open", role="A")]
    later = [{**line, "attempt": 2 if line["attempt"] else 0} for line in WITNESS]
    assert interleaving([*earlier, *later], 80) == interleaving(WITNESS, 80)


def test_nothing_to_show() -> None:
    assert interleaving([]) == []


@pytest.mark.parametrize("threads", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("width", [80, 110])
def test_no_number_of_threads_is_wider_than_was_asked(threads: int, width: int) -> None:
    place = "site-packages/torch/_functorch/_aot_autograd/runtime_wrappers.py:2830 get_or_compile"
    seats = [f"drafter-{i}@engine" for i in range(threads)]
    lines = interleaving([event(seat, "backward_lowering.enter", role="B", torch=place) for seat in seats], width)
    assert max(len(line) for line in lines) <= width
    words = "".join(" ".join(lines).split())
    for said in ("backward_lowering.enter", "runtime_wrappers.py", ":2830", "get_or_compile"):
        assert words.count(said) == threads


def test_with_too_many_threads_for_columns_each_event_names_its_thread() -> None:
    lines = interleaving([event(f"w{i}", "engine.enter") for i in range(8)], 80)
    assert lines[:2] == ["  1  w0:", "     engine.enter"]
    assert lines[-2:] == ["  8  w7:", "     engine.enter"]


def test_a_narrow_column_shows_fewer_parts_of_a_path() -> None:
    seats = [event("a", "x", source="one/two/train.py:7 call"), event("b", "x"), event("c", "x")]
    assert "one/two/train.py:7" in interleaving(seats, 100)[3]
    assert "one" not in (narrow := interleaving(seats, 60)[3])
    assert "two/train.py:7" in narrow


def test_positions_are_the_callers_and_not_the_harness_own() -> None:
    import sys

    torch, user = source_positions(sys._getframe())
    assert torch == ""
    assert user.endswith("test_positions_are_the_callers_and_not_the_harness_own")
    assert "unit/test_witness.py:" in user
