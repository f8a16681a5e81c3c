"""What the row of a trial says in a bisection: whether it is evidence at all, of what, and what there is to show of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.analysis.ladder import Kind
from harness.analysis.numerics import is_unsettled
from harness.control.dump_source import read_source
from harness.control.request import Row
from harness.core.errors import UserError
from harness.core.outcome import FAILURES, INCOMPLETE, SKIPPED

NUMERICS = "numerics"
FROM_LOCKS = ("deadlock", "hang")
"""Failures that a lock can bring about by itself: they say nothing of strategies that hold less."""


def known_as(folder: Path, *, certain: bool = False) -> str:
    """The hazard of the catalogue that fits the evidence in a trial's folder best; "" where none does, or there is none.

    `certain`: nor where it is but possible.
    """
    from harness.analysis.explain import match  # with the catalogue
    from harness.analysis.row_signs import joined

    try:
        source = read_source(str(folder))
    except UserError:
        return ""
    found = joined(match(source.dump, torch=source.torch), source.signs, source.torch)
    return found[0].hazard.id if found and (found[0].certain or not certain) else ""


def named(witness: Mapping[str, Any] | None, run_dir: Path) -> Mapping[str, Any] | None:
    """A witness with the hazard behind it, for the table (`known_as`), where its trial tells that for certain.

    Not of `numerics`: what a probe saw beside it need not be why.
    """
    if not witness or not witness.get("trial") or "hazard" in witness or "known_as" in witness:
        return witness
    if witness["label"] == NUMERICS:
        return witness
    hazard = known_as(run_dir / witness["trial"], certain=True)
    return {**witness, "known_as": hazard} if hazard else witness


def failures_of(row: Row) -> set[str]:
    """Its labels that say something against its strategy.

    Losses that leave the reference, where that could not be run again to tell how far it leaves itself, or does not tell where
    losses are finite, say nothing: an honest trial on a GPU may look like that.
    """
    failed = {*row["outcomes"]} & {*FAILURES}
    told = any(problem.get("label") == NUMERICS for problem in row.get("problems") or ())  # found by the workload itself
    if not told and is_unsettled(str((row.get("oracles") or {}).get(NUMERICS, ""))):
        failed.discard(NUMERICS)
    return failed


def from_locks_only(row: Row) -> bool:
    """Whether it failed, and only in ways that a lock can bring about by itself."""
    failed = failures_of(row)
    return bool(failed) and failed <= {*FROM_LOCKS}


def kind_of(row: Row) -> Kind:
    """Whether a row is evidence at all, and of what."""
    labels = set(row["outcomes"])
    if SKIPPED in labels:
        return "skipped"
    if failures_of(row):
        return "failed"
    return "incomplete" if labels <= {*INCOMPLETE, NUMERICS} else "ok"


def reason_of(row: Row) -> str:
    """Why a row says nothing, or what failed, in a line."""
    reason = str(row.get("reason") or "")
    errors = row.get("errors") or []
    if not reason and errors:
        reason = f"{errors[0]['type']}: {errors[0]['message']}"
    return " ".join(f"{row['outcome']}: {reason}".split())[:300] if reason else str(row["outcome"])


def witness_of(row: Row) -> dict[str, Any]:
    """What to show of a failure: where it is, what was raised by whom, and who was tracing meanwhile."""
    errors = sorted(row.get("errors") or (), key=lambda error: bool(error.get("consequence")))
    error = errors[0] if errors else {}
    return {
        "trial": f"trials/{row['trial']}",
        "label": row["outcome"],
        "schedule": row["scenario"]["schedule"],
        "message": " ".join(str(error.get("message") or row.get("reason") or "").split())[:300],
        "worker": error.get("worker", ""),
        "region": error.get("region", ""),
        "against": [
            {"worker": tracer.get("worker", ""), "region": tracer.get("region", "")}
            for tracer in error.get("tracers") or ()
        ],
    }
