"""The lock against a model of it: any order of entering, leaving, failing and dying, step by step.

The threads obey one at a time, so that the order is the example's and a failure is no accident: after every order
the holders and waiters must be the model's, in its order, and all that the model lets in must come in.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from locks_support import LIMIT, Stage

WORKERS = ("a", "b", "c", "d")
KEYS = (1, 2, 3, None)
Order = tuple[str, str, Any]  # worker, what, key

orders = st.lists(
    st.tuples(st.sampled_from(WORKERS), st.sampled_from(["go", "go", "go", "fail", "die"]), st.sampled_from(KEYS)),
    max_size=40,
)


class Model:
    """First come, first served; shared if the key is known, exclusive if not."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.known: set[Any] = set()  # keys, or warm workers
        self.holders: dict[str, tuple[Any, bool]] = {}  # worker → key, shared
        self.queue: list[tuple[str, Any]] = []

    def enter(self, worker: str, key: Any) -> None:
        if self.kind == "per_call" and worker in self.known:
            return
        self.queue.append((worker, key))
        self.grant()

    def leave(self, worker: str, done: bool) -> None:
        if done and self.kind == "per_call":
            self.known.add(worker)
        if worker not in self.holders:
            return  # warm, or taken for dead in the meantime
        key, _ = self.holders.pop(worker)
        if done and self.kind == "compile_gate" and key is not None:
            self.known.add(key)
        self.grant()

    def grant(self) -> None:
        while self.queue:
            worker, key = self.queue[0]
            shared = self.kind == "compile_gate" and key in self.known
            if self.holders and not (shared and all(shared for _, shared in self.holders.values())):
                return
            self.queue.pop(0)
            self.holders[worker] = (key, shared)


@pytest.mark.parametrize("owner", ["worker", "thread"])
@pytest.mark.parametrize("name", ["compile_gate", "every_step", "per_call"])
@given(orders=orders)
@settings(
    max_examples=150,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # a blocked thread costs the limit: no time to shrink
    suppress_health_check=[HealthCheck.too_slow],
)
def test_the_lock_does_what_its_model_does(name: str, owner: str, orders: list[Order]) -> None:
    region = "attention" if name == "per_call" else "step"
    model = Model(name)
    with Stage(name, workers=WORKERS, owner=owner) as stage:
        inside: dict[str, Future[Any]] = {}  # entered, or about to
        for worker, what, key in orders:
            waiting = {waiter for waiter, _ in model.queue}
            if worker in waiting:
                continue  # it can do nothing now
            if worker not in inside:
                model.enter(worker, key)
                if worker in {waiter for waiter, _ in model.queue}:
                    inside[worker] = stage.blocked(worker, region, key)
                else:
                    inside[worker] = stage.begin_enter(worker, region, key)
                    inside[worker].result(LIMIT)
            elif what == "die":  # said by someone else; the region is left, too late, by a later order
                model.leave(worker, done=False)
                stage.strategy.worker_done(worker)
            else:
                done = what == "go"
                model.leave(worker, done)
                del inside[worker]
                stage.leave(worker, region, error=None if done else ValueError())
            state = stage.state()
            assert state.holders == tuple(model.holders)
            assert state.waiters == tuple(waiter for waiter, _ in model.queue)
            for holder in model.holders:
                inside[holder].result(LIMIT)
