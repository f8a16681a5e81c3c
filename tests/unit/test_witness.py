"""The interleaving as people read it."""

from __future__ import annotations

from typing import Any

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


def test_many_threads_keep_a_readable_column() -> None:
    lines = interleaving([event(f"w{i}", "engine.enter") for i in range(8)], 80)
    assert "engine.enter" in lines[-1]


def test_positions_are_the_callers_and_not_the_harness_own() -> None:
    import sys

    torch, user = source_positions(sys._getframe())
    assert torch == ""
    assert user.endswith("test_positions_are_the_callers_and_not_the_harness_own")
    assert "unit/test_witness.py:" in user
