"""Who owns a hold: the worker on all its threads, or the OS thread, which deadlocks on a recompute."""

from __future__ import annotations

import threading

import pytest
from locks_support import LIMIT, Puppet, Stage

from harness.locks import StrategyAborted, make_strategy


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("each:attention+backward", ["backward"]),
        ("span:attention..backward", ["attention", "backward"]),
        ("each:step+attention", ["step"]),
    ],
)
class TestRecomputeOnAnEngineThread:
    """The worker's thread is in a held region; the recompute enters `attention` on another OS thread."""

    def begin(self, stage: Stage, held: list[str]) -> None:
        stage.through("a", *held[:-1])
        stage.enter("a", held[-1])
        assert stage.holders() == ("a",)

    def test_passes_inside_the_hold_of_its_worker(self, name: str, held: list[str]) -> None:
        with Stage(name, workers=["a"]) as stage:
            self.begin(stage, held)
            stage.through("a!", "attention")
            assert stage.holders() == ("a",)
            stage.leave("a", held[-1])
            assert stage.holders() == ()
            assert stage.log.of("a") == ["acquired", "released"]

    def test_waits_for_its_own_worker_if_threads_own(self, name: str, held: list[str]) -> None:
        with Stage(name, workers=["a"], owner="thread") as stage:
            self.begin(stage, held)
            recompute = stage.blocked("a!", "attention")
            state = stage.state()
            assert (state.holders, state.waiters) == (("a",), ("a",))  # a cycle of one
            assert state.holder_threads == (stage.puppet("a").thread.ident,)
            assert state.waiter_threads == (stage.puppet("a!").thread.ident,)
            stage.strategy.abort()
            with pytest.raises(StrategyAborted, match="a was waiting for the strategy lock"):
                recompute.result(LIMIT)
            assert stage.holders() == ("a",)  # who holds is not disturbed, and leaves as ever
            stage.leave("a", held[-1], error=StrategyAborted())
            assert stage.holders() == ()


def test_a_recompute_meets_another_worker_that_waits_for_the_engine() -> None:
    """`per_call` as pasted: a's engine thread wants the lock of b, which waits for that engine thread."""
    with Stage("per_call", owner="thread") as stage:
        stage.through("a", "attention")
        stage.enter("b", "attention")
        stage.blocked("a!", "attention")  # the flag of a's own thread is not seen here
    with Stage("per_call", owner="worker") as stage:
        stage.through("a", "attention")
        stage.enter("b", "attention")
        stage.through("a!", "attention")


def test_warm_is_by_thread_if_threads_own() -> None:
    with Stage("each:mask+attention", owner="thread") as stage:
        stage.through("a!", "attention")  # say, an engine thread on behalf of a
        stage.enter("b", "mask")
        stage.through("a!", "attention")
        stage.blocked("a!", "mask")
        stage.blocked("a", "attention")  # the worker's own thread has done nothing yet


def test_a_new_thread_is_cold_even_if_it_has_the_ident_of_one_that_ended() -> None:
    strategy = make_strategy("per_call", workers=["a", "b"], owner="thread")
    idents: list[int] = []
    held: list[bool] = []

    def call() -> None:
        idents.append(threading.get_ident())
        with strategy.region("attention", "a"):
            held.append(strategy.wait_graph()[0].holders == ("a",))

    while len(set(idents)) == len(idents) and len(idents) < 100:  # the system reuses them at once, as a rule
        thread = threading.Thread(target=call)
        thread.start()
        thread.join(LIMIT)
    assert all(held)


def test_an_engine_thread_is_warm_for_every_worker_that_it_serves() -> None:
    with Stage("per_call", owner="thread") as stage:
        stage.through("a!", "attention")
        stage.enter("b", "attention")
        engine = stage.puppet("a!")

        def recompute_for_another_worker() -> None:
            with stage.strategy.region("attention", "c"):
                pass

        engine.do(recompute_for_another_worker)


def test_a_thread_is_re_entrant_in_its_own_hold() -> None:
    with Stage("each:forward+attention", owner="thread") as stage:
        stage.enter("a", "forward", "attention")
        stage.leave("a", "attention")
        assert stage.holders() == ("a",)
        stage.leave("a", "forward")
        assert stage.log.of("a") == ["acquired", "released"]


def test_a_span_is_open_on_the_thread_that_began_it_if_threads_own() -> None:
    with Stage("first_step", owner="thread") as stage:
        stage.enter("a", "step")
        stage.through("a", "mask", "forward", "loss")
        stage.enter("a", "backward")
        stage.enter("a!", "attention")
        stage.leave("a!", "attention", error=ValueError())  # ends no span of this thread's: it began none
        assert stage.holders() == ("a",)
        stage.leave("a", "backward", "step", error=ValueError())
        assert stage.holders() == ()


def test_what_a_dead_thread_held_can_be_given_back() -> None:
    with Stage("first_step", owner="thread") as stage:
        stage.through("a", "mask")
        waiting = stage.blocked("b", "mask")
        stage.strategy.worker_done("a")  # from a thread that does not own it: an RLock would refuse
        waiting.result(LIMIT)


def test_it_blocks_exactly_where_the_pasted_code_blocks() -> None:
    """Four entries into `attention`, by the strategy and by the code that people paste."""

    lock, local = threading.RLock(), threading.local()

    def pasted_enters() -> bool:
        return getattr(local, "warm", False) or lock.acquire(blocking=False)

    def pasted_leaves() -> None:
        if not getattr(local, "warm", False):
            local.warm = True
            lock.release()

    with Stage("per_call", owner="thread") as stage:
        main, engine = Puppet("pasted main"), Puppet("pasted engine")
        assert main.do(pasted_enters)
        stage.enter("a", "attention")
        assert not engine.do(pasted_enters)
        waiting = stage.blocked("a!", "attention")
        main.do(pasted_leaves)
        stage.leave("a", "attention")
        waiting.result(LIMIT)
        assert engine.do(pasted_enters)
        assert main.do(pasted_enters)  # warm, though the engine thread holds
        stage.enter("a", "attention")
        engine.do(pasted_leaves)
        stage.leave("a!", "attention")
        assert engine.do(pasted_enters)
        stage.enter("a!", "attention")
        main.end()
        engine.end()
