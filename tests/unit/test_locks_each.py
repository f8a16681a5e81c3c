"""`each:`, `per_call`: listed regions, held one by one until they were done once."""

from __future__ import annotations

from locks_support import LIMIT, Stage

OOPS = ValueError("oops")


def test_a_cold_region_is_exclusive_and_handed_on() -> None:
    with Stage("per_call") as stage:
        stage.enter("a", "step", "mask")
        stage.leave("a", "mask")
        stage.enter("a", "forward", "attention")
        waiting = stage.blocked("b", "attention")
        assert stage.holders() == ("a",)
        stage.leave("a", "attention")
        waiting.result(LIMIT)
        assert stage.holders() == ("b",)
        stage.leave("b", "attention")
        assert stage.log.events == [
            ("acquired", "strategy", "a"),
            ("wait", "strategy", "b"),
            ("released", "strategy", "a"),
            ("acquired", "strategy", "b"),
            ("released", "strategy", "b"),
        ]


def test_only_listed_regions_are_held() -> None:
    with Stage("each:mask+backward") as stage:
        stage.enter("a", "backward")
        stage.enter("b", "step", "forward", "attention", "loss")
        stage.blocked("b", "mask")  # one lock for all listed regions


def test_warm_is_by_worker_and_region() -> None:
    with Stage("each:mask+forward") as stage:
        stage.through("a", "mask")
        stage.enter("b", "mask")
        stage.through("a", "mask")  # warm: passes though b holds
        waiting = stage.blocked("a", "forward")  # not warm for this one
        stage.leave("b", "mask")
        waiting.result(LIMIT)
        stage.leave("a", "forward")
        stage.enter("b", "forward")
        stage.through("a", "mask", "forward")


def test_warm_holds_on_every_thread_of_the_worker() -> None:
    with Stage("per_call") as stage:
        stage.through("a", "attention")
        stage.enter("b", "attention")
        stage.through("a!", "attention")


def test_an_exception_releases_and_leaves_cold() -> None:
    with Stage("per_call") as stage:
        stage.enter("a", "attention")
        stage.leave("a", "attention", error=OOPS)
        stage.enter("b", "attention")  # released
        waiting = stage.blocked("a", "attention")  # cold
        stage.leave("b", "attention", error=OOPS)
        waiting.result(LIMIT)


def test_a_region_inside_an_own_hold_takes_nothing_and_gives_nothing_back() -> None:
    with Stage("each:forward+attention") as stage:
        stage.enter("a", "forward", "attention")
        assert stage.log.of("a") == ["acquired"]
        stage.leave("a", "attention", error=OOPS)
        assert stage.holders() == ("a",)
        waiting = stage.blocked("b", "forward")
        stage.leave("a", "forward")
        waiting.result(LIMIT)
        assert stage.log.of("a") == ["acquired", "released"]
        stage.blocked("a", "attention")  # forward is warm, the attention that failed is not


def test_two_threads_of_one_worker_share_its_hold() -> None:
    with Stage("each:mask+attention") as stage:
        stage.enter("a", "attention")
        stage.enter("a!", "mask")
        stage.leave("a", "attention")
        assert stage.holders() == ("a",)  # the second thread is still inside
        waiting = stage.blocked("b", "mask")
        stage.leave("a!", "mask")
        waiting.result(LIMIT)


def test_a_waiting_thread_gets_in_with_its_sibling() -> None:
    """Left behind in the queue, it would wait for a thread that may be waiting for it."""
    with Stage("each:mask+attention") as stage:
        stage.enter("b", "mask")
        first = stage.blocked("a", "attention")
        other = stage.blocked("c", "mask")
        second = stage.blocked("a!", "mask")
        stage.leave("b", "mask")
        first.result(LIMIT)
        second.result(LIMIT)
        assert not other.done()
        stage.leave("a", "attention")
        assert stage.holders() == ("a",)
        stage.leave("a!", "mask")
        other.result(LIMIT)
        assert stage.log.of("a") == ["wait", "wait", "acquired", "released"]


def test_first_come_first_served() -> None:
    with Stage("per_call", workers=list("abcde")) as stage:
        stage.enter("a", "attention")
        waiting = [stage.blocked(worker, "attention") for worker in "bcde"]
        assert stage.state().waiters == tuple("bcde")
        for leaver, entering in zip("abcd", waiting, strict=True):
            stage.leave(leaver, "attention", error=OOPS)  # it stays cold, and would barge in if it could
            late = stage.blocked(leaver, "attention")
            entering.result(LIMIT)
            assert not late.done()


def test_none_holds_nothing() -> None:
    with Stage("none") as stage:
        stage.enter("a", "step", "mask", "forward", "attention", "loss", "backward")
        stage.enter("b", "step", "mask", "forward", "attention", "loss", "backward")
        assert stage.strategy.wait_graph() == []
        assert stage.log.events == []
