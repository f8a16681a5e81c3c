"""Every wait has a way out: abort, an interrupt, an observer that raises."""

from __future__ import annotations

import signal
import threading

import pytest
from locks_support import LIMIT, Stage

from harness.locks import StrategyAborted, make_strategy

OOPS = ValueError("oops")


@pytest.mark.parametrize(
    ("name", "region"), [("per_call", "attention"), ("first_step", "mask"), ("every_step", "step")]
)
@pytest.mark.parametrize("owner", ["worker", "thread"])
def test_abort_raises_in_those_that_wait_and_in_those_that_would(name: str, region: str, owner: str) -> None:
    with Stage(name, owner=owner) as stage:
        stage.enter("a", region)
        waiting = [stage.blocked("b", region), stage.blocked("c", region)]
        stage.strategy.abort()
        for entering in waiting:
            with pytest.raises(StrategyAborted, match="was waiting"):
                entering.result(LIMIT)
        with pytest.raises(StrategyAborted, match="would have to wait"):
            stage.begin_enter("b", region).result(LIMIT)
        assert stage.state().waiters == ()
        assert stage.holders() == ("a",)
        stage.leave("a", region, error=OOPS)
        stage.strategy.worker_done("a")
        stage.enter("b", region)  # what need not wait goes on


def test_shared_and_exclusive_waiters_of_the_gate_are_aborted() -> None:
    with Stage("compile_gate", workers=list("abcd")) as stage:
        stage.through("a", "step", key=1)
        stage.enter("a", "step", key=1)
        waiting = [stage.blocked("b", "step", key=2), stage.blocked("c", "step", key=1)]
        stage.strategy.abort()
        for entering in waiting:
            with pytest.raises(StrategyAborted):
                entering.result(LIMIT)
        stage.enter("d", "step", key=1)  # shares with a: no wait


def test_an_interrupted_waiter_leaves_the_queue_and_those_behind_it_move_up() -> None:
    """Ctrl-C in the main thread, as an exclusive waiter of the gate that keeps shared ones behind it."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals arrive on the main thread only")
    with Stage("compile_gate", workers=["a", "b", "main"]) as stage:
        stage.through("a", "step", key=1)
        stage.enter("a", "step", key=1)
        interrupter = stage.puppet("interrupter")
        behind = []

        def interrupt() -> None:
            stage.log.expect("wait", "main")
            behind.append(stage.blocked("b", "step", key=1))
            signal.pthread_kill(main_ident, signal.SIGINT)

        main_ident = threading.get_ident()
        interrupting = interrupter.begin(interrupt)
        with pytest.raises(KeyboardInterrupt), stage.strategy.region("step", "main", 2):
            pytest.fail("entered beside a shared step")
        interrupting.result(LIMIT)
        behind[0].result(LIMIT)
        assert stage.state().waiters == ()


@pytest.mark.parametrize("event", ["acquired", "wait", "released"])
def test_an_observer_that_raises_leaves_no_lock_behind(event: str) -> None:
    told = threading.Event()

    def observer(what: str, lock: str, worker: str) -> None:
        if worker == "bad" and what == event:
            told.set()
            raise OOPS

    strategy = make_strategy("every_step", workers=["bad", "good"], observer=observer)
    if event == "wait":
        holding = strategy.region("step", "good")
        holding.__enter__()
    with pytest.raises(ValueError, match="oops"), strategy.region("step", "bad"):
        pass
    assert told.is_set()
    if event == "wait":
        assert strategy.wait_graph()[0].waiters == ()
        holding.__exit__(None, None, None)
    assert strategy.wait_graph()[0].holders == ()


def test_an_observer_may_look_at_the_wait_graph() -> None:
    """It is called with no mutex held: another thread can look, too, while the observer is still running."""
    seen = []

    def observer(what: str, lock: str, worker: str) -> None:
        looking = threading.Thread(target=lambda: seen.append((what, strategy.wait_graph()[0].holders)))
        looking.start()
        looking.join(LIMIT)
        assert not looking.is_alive(), "an internal mutex is held while the observer runs"

    strategy = make_strategy("every_step", workers=["a"], observer=observer)
    with strategy.region("step", "a"):
        pass
    assert seen == [("acquired", ("a",)), ("released", ("a",))]
