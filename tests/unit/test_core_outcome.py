"""Outcome labels: the closed list, and which of several names a trial."""

from __future__ import annotations

import pytest

from harness.core.outcome import FAILURES, INCOMPLETE, LABELS, OK, SKIPPED, is_failure, primary


def test_the_list_is_that_of_the_design() -> None:
    words = (
        "fx_error graph_corrupt dense numerics no_grad state_leak deadlock hang cudagraph_tls cudagraph_pool "
        "cudagraph_overwritten capture_invalidated cuda_fault crash error"
    )
    assert " ".join(FAILURES) == words
    assert INCOMPLETE == ("out_of_memory", "setup_error", "interrupted")
    assert len(set(LABELS)) == len(LABELS) == len(FAILURES) + len(INCOMPLETE) + 2


def test_only_failures_are_the_subjects_fault() -> None:
    assert [label for label in LABELS if is_failure(label)] == list(FAILURES)


@pytest.mark.parametrize(
    ("labels", "first"),
    [
        ([], OK),
        ([OK], OK),
        (["fx_error"], "fx_error"),
        (["dense", "fx_error"], "dense"),
        ([OK, "hang"], "hang"),
        (["out_of_memory", "hang"], "out_of_memory"),
        ([SKIPPED], SKIPPED),
    ],
)
def test_the_earliest_cause_is_primary(labels: list[str], first: str) -> None:
    assert primary(labels) == first


def test_a_label_outside_the_list_is_a_bug() -> None:
    with pytest.raises(ValueError, match="fx_eror"):
        is_failure("fx_eror")
    with pytest.raises(ValueError, match="fx_eror"):
        primary(["ok", "fx_eror"])
