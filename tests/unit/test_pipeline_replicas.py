"""Averaging gradients between drafters: the mean, its order, and members that leave, skip or fail."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from harness.pipeline.queues import QueueAborted
from harness.pipeline.replicas import GradientAverager, mean_gradients

WAIT_S = 20.0
SHORT_S = 0.05
Mean = list[Tensor | None]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def waits(future: "Future[Mean]") -> bool:
    try:
        future.result(SHORT_S)
    except TimeoutError:
        return True
    return False


def one(value: float) -> list[Tensor | None]:
    return [torch.tensor([value])]


def value(mean: Mean) -> float:
    assert mean[0] is not None
    return mean[0].item()


def test_everybody_gets_the_mean(pool: ThreadPoolExecutor) -> None:
    averager = GradientAverager("abc")
    futures = [pool.submit(averager.average, name, one(v)) for name, v in zip("abc", (1.0, 2.0, 6.0), strict=True)]
    assert [value(f.result(WAIT_S)) for f in futures] == [3.0, 3.0, 3.0]


def test_nobody_goes_on_before_the_last_has_come(pool: ThreadPoolExecutor) -> None:
    averager = GradientAverager("ab")
    first = pool.submit(averager.average, "a", one(1.0))
    assert waits(first)
    averager.average("b", one(3.0))
    assert value(first.result(WAIT_S)) == 2.0


def test_the_sum_is_taken_in_the_order_of_names_not_of_arrival() -> None:
    """(1 + 1e8) − 1e8 is 0 in float32, (−1e8 + 1e8) + 1 is 1."""
    forward = {"a": one(1.0), "b": one(1e8), "c": one(-1e8)}
    backward = dict(reversed(list(forward.items())))
    assert value(mean_gradients(forward)) == value(mean_gradients(backward)) == 0.0


def test_a_member_without_gradients_gets_the_mean_of_the_others(pool: ThreadPoolExecutor) -> None:
    averager = GradientAverager("abc")
    idle = pool.submit(averager.average, "a", None)
    other = pool.submit(averager.average, "b", one(2.0))
    assert value(averager.average("c", one(4.0))) == 3.0
    assert value(idle.result(WAIT_S)) == value(other.result(WAIT_S)) == 3.0


def test_when_nobody_has_gradients_the_mean_is_empty(pool: ThreadPoolExecutor) -> None:
    averager = GradientAverager("ab")
    other = pool.submit(averager.average, "a", None)
    assert averager.average("b", None) == []
    assert other.result(WAIT_S) == []


def test_parameters_without_gradient() -> None:
    mean = mean_gradients({"a": [torch.tensor(4.0), None, None], "b": [torch.tensor(2.0), torch.tensor(1.0), None]})
    assert [None if m is None else m.item() for m in mean] == [3.0, 0.5, None]


def test_a_member_that_leaves_frees_those_who_wait(pool: ThreadPoolExecutor) -> None:
    averager = GradientAverager("abc")
    waiting = [pool.submit(averager.average, name, one(v)) for name, v in (("a", 1.0), ("b", 3.0))]
    assert all(map(waits, waiting))
    averager.leave("c")
    assert [value(f.result(WAIT_S)) for f in waiting] == [2.0, 2.0]
    with pytest.raises(ValueError, match="has left"):
        averager.average("c", one(0.0))


def test_the_last_member_averages_alone() -> None:
    averager = GradientAverager("ab")
    averager.leave("a")
    assert value(averager.average("b", one(5.0))) == 5.0


def test_abort_frees_everybody(pool: ThreadPoolExecutor) -> None:
    averager = GradientAverager("ab")
    waiting = pool.submit(averager.average, "a", one(1.0))
    assert waits(waiting)
    averager.abort()
    with pytest.raises(QueueAborted):
        waiting.result(WAIT_S)
    with pytest.raises(QueueAborted):
        averager.average("b", one(1.0))


def test_whoever_fails_to_make_the_mean_leaves_and_the_other_goes_on(pool: ThreadPoolExecutor) -> None:
    """Shapes that do not fit make the mean raise in the one who computes it, whichever of the two that is."""
    averager = GradientAverager("ab")
    futures = [pool.submit(averager.average, name, [torch.ones(n)]) for n, name in ((2, "a"), (3, "b"))]
    errors = [f.exception(WAIT_S) for f in futures]
    assert sorted(type(e).__name__ for e in errors) == ["NoneType", "RuntimeError"]


def test_many_rounds_with_members_that_leave_at_different_times(pool: ThreadPoolExecutor) -> None:
    """Member i takes part in 20·(i + 1) rounds and brings i; each mean is that of the members still there."""
    averager = GradientAverager(str(i) for i in range(4))

    def member(i: int) -> list[float]:
        means = [value(averager.average(str(i), one(float(i)))) for _ in range(20 * (i + 1))]
        averager.leave(str(i))
        return means

    results = [f.result(WAIT_S) for f in [pool.submit(member, i) for i in range(4)]]
    expected = [1.5] * 20 + [2.0] * 20 + [2.5] * 20 + [3.0] * 20
    for i, means in enumerate(results):
        assert means == expected[: 20 * (i + 1)]
