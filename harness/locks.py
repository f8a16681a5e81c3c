"""Lock strategies for training loops that run `torch.compile`d code in several threads.

One file, standard library only: copy it into a project as it is. A worker names the stretches of its step
(`step` = `mask`, `forward` with `attention` in it, `loss`, `backward`); the strategy decides what is held.

    strategy = make_strategy("compile_gate", workers=["drafter-0", "drafter-1"])

    def train(worker, model, optimizer, batches):  # each in a thread of its own
        try:
            for x in batches:
                key = (id(model), x.device, x.dtype, x.shape, torch.is_grad_enabled())
                with strategy.region("step", worker, key=key):
                    with strategy.region("mask", worker):
                        mask = build_mask(x)
                    with strategy.region("forward", worker):  # within: strategy.region("attention", worker)
                        hidden = model(x, mask)
                    with strategy.region("loss", worker):
                        loss = loss_of(hidden, x)
                    with strategy.region("backward", worker):
                        loss.backward()
                optimizer.step()  # torch 2.13, 2.14: a foreach one inside of `step`, or fused=True / foreach=False
        finally:
            strategy.worker_done(worker)

Strategies
    none             nothing is held
    per_call         = each:attention
    per_forward      = span:mask..forward
    first_step       = span:mask..backward
    warmup_barrier   as first_step, and then nobody goes on until all live workers have done theirs
    compile_gate     a step with a key that is new to the process is exclusive, any other shared
    warm_gate        as compile_gate, and nobody goes on to a second step until all live workers have done their first
    every_step       every step exclusive
    each:a+b         each of these regions by itself, until this worker has done that region once
    span:a..b        one hold from entering `a` to leaving `b`, until this worker has done that once

A strategy looks at its own regions and at no others: compile_gate, warm_gate and every_step at `step` alone, per_call
at `attention`, per_forward, first_step and warmup_barrier at `mask` and what follows it. With the wrong ones it holds
nothing, so name them all, as above; a `step` that ends before anybody entered one that counts gives a UserWarning, once.

*Done* means that the region or span ended without an exception; the worker is then *warm* and passes freely.
An exception releases the lock and leaves the worker cold. A span ends cold when an exception leaves any
region of the worker, even one caught further out, and when `step` is left before `b`. Only entering `a`
begins it.

Ownership. With owner="worker" the worker holds, whichever OS thread it is on: a checkpoint's recompute on
autograd's device thread takes no lock again inside its own worker's hold. owner="thread" is what people
paste, a `threading.RLock` and a thread-local warmed flag: the same recompute is neither owner nor warm, and
waits for a thread that waits for it. Both use one kind of lock, so that ownership is all that differs; unlike
an RLock it is first come, first served, and a deadlock on it shows in `wait_graph()` and ends by `abort()`.

Gate. The key says what makes torch compile: model, device, dtype, shapes, grad mode, autocast. For the model
give its `id`: `forward` of what `torch.compile(model)` returns is torch's own, the same for every model, and
code objects compare by value, so two copies, with a cache each, would pass for one. A hold is never upgraded.
A step that waits to be exclusive turns shared if its key becomes known; a failed one leaves its key unknown.
key=None tells nothing, so such a step is always exclusive, as under every_step.

Barrier. `warmup_barrier` waits at the end of the first span, on leaving `backward`, with the lock released:
not even the optimizer runs while another worker compiles. `warm_gate` waits likewise on leaving the first
`step`; a worker whose key is known by then shares that step with others, and stands in no line for it. The
barrier waits for those in `workers`: name those that take steps and no others. A worker leaves it by
`worker_done`. One that was not named is locked like any other, but neither waits there nor is waited for.

Lock order, outermost first: the strategy's lock or gate (held while the caller's code runs, so outside
torch's compile lock); then an internal mutex, a leaf: held for a few instructions, never two at once, nothing
called under it but a key's hash and comparison. Whoever waits at the barrier holds neither. Observers are
called with no mutex held, and must not enter a region.
"""

from __future__ import annotations

import difflib
import threading
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Protocol

__all__ = ["REGIONS", "STRATEGIES", "LockState", "Observer", "Strategy", "StrategyAborted", "make_strategy"]

REGIONS = ("step", "mask", "forward", "attention", "loss", "backward")
"""In the order in which a step enters them."""

Observer = Callable[[str, str, str], None]
"""Called as (event, lock, worker). Events: "wait" and "barrier.wait" (only where it must really wait),
"acquired", "barrier.leave", and "released" (just before the lock is given up, so that no log shows two
exclusive holders). Locks: "strategy", "gate" (shared holds too), "barrier". Entering a region inside one's
own hold is no event; a wait that is aborted has no further one."""

Owner = str | int
"""Who holds: a worker's name, or the ident of an OS thread."""


class StrategyAborted(RuntimeError):
    """Raised in every region that waits, or would have to wait, once the strategy was aborted."""

    consequence = True  # of whatever made somebody abort: never a cause by itself


@dataclass(frozen=True)
class LockState:
    """Who holds a lock and who waits for it, by worker. A barrier's holders are those it still waits for.

    The idents of their threads, in the same order, are for stack dumps; a barrier's holders have none.
    """

    name: str
    holders: tuple[str, ...]
    waiters: tuple[str, ...]
    holder_threads: tuple[int, ...] = field(default=(), compare=False)
    waiter_threads: tuple[int, ...] = field(default=(), compare=False)


# Ownership: who holds, and who is warm


class _Ownership(Protocol):
    warm: set[tuple[Owner, str]]  # the owner, and what it has done

    def owner(self, worker: str) -> Owner: ...


class _ByWorker:
    def __init__(self) -> None:
        self.warm: set[tuple[Owner, str]] = set()

    def owner(self, worker: str) -> Owner:
        return worker


class _ByThread(threading.local):
    """Thread-local: an engine thread starts with an empty set, and is then warm for all workers it serves."""

    def __init__(self) -> None:
        self.warm: set[tuple[Owner, str]] = set()

    def owner(self, worker: str) -> Owner:
        return get_ident()


_OWNERSHIPS: dict[str, Callable[[], _Ownership]] = {"worker": _ByWorker, "thread": _ByThread}


# The lock and the barrier


class _Hold:
    """One owner's hold of the lock; `depth` counts its regions inside."""

    __slots__ = ("depth", "exclusive", "key", "owner", "thread", "worker")

    def __init__(self, owner: Owner, worker: str, key: Hashable, exclusive: bool) -> None:
        self.owner = owner
        self.worker = worker
        self.thread = get_ident()
        self.key = key
        self.exclusive = exclusive
        self.depth = 1


class _Waiter(_Hold):
    """A hold to come, in the queue: `depth` is 0 until it is handed over."""

    __slots__ = ("joined", "wake")

    def __init__(self, owner: Owner, worker: str, key: Hashable) -> None:
        super().__init__(owner, worker, key, exclusive=True)
        self.depth = 0
        self.joined: _Hold | None = None  # another thread of the owner came first, and this is its hold
        self.wake = threading.Lock()  # released when the hold is handed over, or at an abort
        self.wake.acquire()


class _FairLock:
    """A re-entrant lock with an explicit owner: exclusive, or shared by those whose key is known.

    First come, first served: whoever comes behind a waiter queues, so neither kind starves. A hold is handed
    over under the mutex, to a waiter with a wake-up of its own: none is lost, or taken by someone else.
    """

    def __init__(self, name: str, observer: Observer | None) -> None:
        self.name = name
        self._observer = observer
        self._mutex = threading.RLock()  # re-entrant, for wait_graph() in a signal handler of its holder
        self._holders: dict[Owner, _Hold] = {}
        self._queue: deque[_Waiter] = deque()
        self._known: set[Hashable] = set()
        self._aborted = False

    def acquire(self, owner: Owner, worker: str, key: Hashable = None) -> _Hold:
        """Waits until `owner` holds: shared if `key` is known, else exclusive. At once if it holds already.

        Raises StrategyAborted if it waits or has to while the strategy is aborted.
        """
        made: _Hold | None = None  # what an interrupt, or the observer's own error, must not leave behind
        try:
            with self._mutex:
                if self._queue:
                    self._grant()  # what an interrupted release has left undone
                hold = self._holders.get(owner)
                if hold is not None:
                    hold.depth += 1
                    if hold.depth > 1:
                        return hold
                    made = hold  # a sibling thread has told of its release but not made it: this is a new hold
                else:
                    shared = key in self._known  # None never is
                    if not self._queue and (not self._holders or (shared and not self._exclusive)):
                        made = _Hold(owner, worker, key, not shared)
                        self._holders[owner] = made
                    elif self._aborted:
                        raise StrategyAborted(f"{worker} would have to wait for the {self.name} lock")
                    else:
                        made = _Waiter(owner, worker, key)
                        self._queue.append(made)
            if isinstance(made, _Waiter):
                self._wait(made)
                if made.joined is not None:
                    return made.joined
            if self._observer is not None:
                self._observer("acquired", self.name, worker)
        except BaseException:
            if made is not None:
                self._give_up(made)
            raise
        return made

    def release(self, hold: _Hold, done: bool, whole: bool = False) -> None:
        """Gives back one level of `hold`, or all; `done` makes the key of an exclusive hold known.

        A hold that `drop` took back in the meantime is left alone.
        """
        with self._mutex:
            if self._holders.get(hold.owner) is not hold:
                return
            hold.depth = 0 if whole else hold.depth - 1
            if hold.depth > 0:
                return
            if self._observer is None:
                self._remove(hold, done)
                return
        try:
            self._observer("released", self.name, hold.worker)
        finally:
            with self._mutex:
                if hold.depth == 0 and self._holders.get(hold.owner) is hold:
                    self._remove(hold, done)

    def drop(self, worker: str) -> None:
        """Gives back all that `worker` holds, on whichever thread."""
        with self._mutex:
            holds = [hold for hold in self._holders.values() if hold.worker == worker]
        for hold in holds:
            self.release(hold, done=False, whole=True)
        with self._mutex:
            self._grant()  # what an interrupted release has left undone

    def abort(self) -> None:
        with self._mutex:
            self._aborted = True
            while self._queue:
                self._queue.popleft().wake.release()

    def state(self) -> LockState:
        with self._mutex:
            holds, queue = list(self._holders.values()), list(self._queue)
        return LockState(
            self.name,
            tuple(hold.worker for hold in holds),
            tuple(hold.worker for hold in queue),
            tuple(hold.thread for hold in holds),
            tuple(hold.thread for hold in queue),
        )

    def _wait(self, waiter: _Waiter) -> None:
        if self._observer is not None:
            self._observer("wait", self.name, waiter.worker)
        waiter.wake.acquire()
        if not waiter.depth and waiter.joined is None:
            raise StrategyAborted(f"{waiter.worker} was waiting for the {self.name} lock")

    def _give_up(self, hold: _Hold) -> None:
        """Takes back a hold whose region will not be entered, or a place in the queue."""
        with self._mutex:
            if isinstance(hold, _Waiter):
                if hold in self._queue and self._holders.get(hold.owner) is not hold:
                    self._queue.remove(hold)
                    self._grant()  # it may have been all that kept those behind it from sharing
                    return
                hold = hold.joined or hold
            if self._holders.get(hold.owner) is hold:
                hold.depth -= 1
                if hold.depth <= 0:
                    self._remove(hold, done=False)

    # The rest is called under the mutex. An interrupt may end it between any two of its stores, so each store leaves what
    # the next call of `_grant` can finish.

    @property
    def _exclusive(self) -> bool:
        """Whether there is an exclusive holder, which is then the only one."""
        for hold in self._holders.values():
            return hold.exclusive  # of the first: others share
        return False

    def _remove(self, hold: _Hold, done: bool) -> None:
        if hold.exclusive and done and hold.key is not None:
            self._known.add(hold.key)  # first: a key's own comparison may raise
        if self._queue and self._queue[0] is hold:
            self._queue.popleft()
        del self._holders[hold.owner]
        if self._queue:
            self._grant()

    def _grant(self) -> None:
        """Hands the lock to the head of the queue, then to those behind it that can share it."""
        while self._queue:
            head = self._queue[0]
            if self._holders.get(head.owner) is not head:  # else an interrupt came between, and the rest is to be done
                if self._exclusive:
                    return
                shared = self._knows(head.key)  # perhaps only since it began to wait
                if self._holders and not shared:
                    return
                head.depth, head.exclusive = 1, not shared
                self._holders[head.owner] = head
            # Other threads of the same owner are inside its hold from now on. Left in the queue, they would
            # wait for a thread that may be waiting for them.
            for sibling in [waiter for waiter in self._queue if waiter.owner == head.owner and waiter is not head]:
                sibling.joined = head
                head.depth += 1
                self._queue.remove(sibling)
                sibling.wake.release()
            if head.wake.locked():
                head.wake.release()
            self._queue.popleft()

    def _knows(self, key: Hashable) -> bool:
        """In the name of another thread, which is to get the error of its key's comparison, if any: then it is not known."""
        try:
            return key in self._known
        except Exception:  # noqa: BLE001
            return False


class _Barrier:
    """Opens once every worker has arrived or left, and stays open."""

    def __init__(self, name: str, workers: Sequence[str], observer: Observer | None) -> None:
        self.name = name
        self._observer = observer
        self._changed = threading.Condition(threading.RLock())
        self._live = set(workers)
        self._missing = dict.fromkeys(workers)  # a set, in the order in which they were named
        self._waiting: list[tuple[str, int]] = []
        self._aborted = False

    def wait(self, worker: str) -> None:
        """Arrives, and waits for those who are missing. Raises StrategyAborted."""
        me = (worker, get_ident())
        with self._changed:
            self._missing.pop(worker, None)
            self._changed.notify_all()
            if not self._bars(worker):
                return
            self._waiting.append(me)
        try:
            if self._observer is not None:
                self._observer("barrier.wait", self.name, worker)
            with self._changed:
                while self._bars(worker):
                    if self._aborted:
                        raise StrategyAborted(f"{worker} was waiting at the {self.name}")
                    self._changed.wait()
        finally:
            with self._changed:
                self._waiting.remove(me)
        if self._observer is not None:
            self._observer("barrier.leave", self.name, worker)

    def drop(self, worker: str) -> None:
        with self._changed:
            self._live.discard(worker)
            self._missing.pop(worker, None)
            self._changed.notify_all()

    def abort(self) -> None:
        with self._changed:
            self._aborted = True
            self._changed.notify_all()

    def state(self) -> LockState:
        with self._changed:
            missing, waiting = tuple(self._missing), tuple(self._waiting)
        waiters = tuple(worker for worker, _ in waiting)
        return LockState(self.name, missing, waiters, waiter_threads=tuple(thread for _, thread in waiting))

    def _bars(self, worker: str) -> bool:
        return bool(self._missing) and worker in self._live


# The strategies, one class a family


@dataclass(frozen=True)
class _Setup:
    name: str
    workers: Sequence[str]
    ownership: _Ownership
    observer: Observer | None
    warn: bool


class Strategy:
    """What `make_strategy` returns; itself, the one that holds nothing. Any thread may call its methods."""

    def __init__(self, setup: _Setup) -> None:
        self.name = setup.name
        self._parts: list[_FairLock | _Barrier] = []
        self._idle = False  # it looks at regions other than `step`, and nobody has entered one yet
        self._told = threading.Lock()  # taken for good by whoever warns of it

    def region(self, name: str, worker: str, key: Hashable = None) -> AbstractContextManager[None]:
        """One pass of `worker` through region `name`: a context manager, to enter once, in the same thread.

        `key` matters to `compile_gate`, on `step`. Entering may wait, and then raises StrategyAborted after
        `abort()`; so may leaving `backward` under `warmup_barrier`. Raises ValueError for an unknown name.
        """
        return _free(name)

    def worker_done(self, worker: str) -> None:
        """`worker` has ended or failed: gives back what it holds, and no barrier waits for it any more."""
        for part in self._parts:
            part.drop(worker)

    def wait_graph(self) -> list[LockState]:
        """Each lock with its holders and waiters; [] without locks. Never waits for a region."""
        return [part.state() for part in self._parts]

    def abort(self) -> None:
        """For shutdown: raises StrategyAborted in all that wait, and henceforth in any that would have to."""
        for part in self._parts:
            part.abort()


_FREE = nullcontext()


def _free(name: str) -> AbstractContextManager[None]:
    """The region that holds nothing. A name that is misspelt is an error: it would never be locked."""
    if name not in REGIONS:
        raise ValueError(f"there is no region {name!r}{_nearest(name, REGIONS)}; known: {', '.join(REGIONS)}")
    return _FREE


class _Region:
    """A pass through a region that the strategy may hold."""

    __slots__ = ("_hold", "_key", "_name", "_strategy", "_worker")
    _hold: Any  # what `enter` returned, for `leave`

    def __init__(self, strategy: _Each | _Span, name: str, worker: str, key: Hashable = None) -> None:
        self._strategy = strategy
        self._name = name
        self._worker = worker
        self._key = key

    def __enter__(self) -> None:
        self._hold = self._strategy.enter(self._name, self._worker, self._key)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._strategy.leave(self._name, self._worker, self._hold, kind is None)


class _WatchedStep:
    """A pass through `step` while no region that the strategy looks at was entered: warns if that is so at its end."""

    __slots__ = ("_regions", "_step", "_strategy")

    def __init__(self, strategy: _Each | _Span, step: AbstractContextManager[None], regions: str) -> None:
        self._strategy = strategy
        self._step = step
        self._regions = regions

    def __enter__(self) -> None:
        self._step.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._step.__exit__(kind, error, trace)
        strategy = self._strategy
        if kind is None and strategy._idle and strategy._told.acquire(blocking=False):
            strategy._idle = False
            warnings.warn(
                f"lock strategy {strategy.name!r} has held nothing: a step has ended, and nobody has entered {self._regions}; "
                "name these regions within the step",
                stacklevel=2,
            )


class _Each(Strategy):
    """The listed regions, each held by itself until it was done once; one lock for all of them."""

    def __init__(self, setup: _Setup, regions: Sequence[str], lock: str = "strategy") -> None:
        super().__init__(setup)
        self._ownership = setup.ownership
        self._regions = frozenset(regions)
        self._lock = _FairLock(lock, setup.observer)
        self._parts = [self._lock]
        self._idle = setup.warn and "step" not in self._regions

    def region(self, name: str, worker: str, key: Hashable = None) -> AbstractContextManager[None]:
        if name not in self._regions or (self._ownership.owner(worker), name) in self._ownership.warm:
            if self._idle and name == "step":
                return _WatchedStep(self, _FREE, " or ".join(sorted(self._regions, key=REGIONS.index)))
            return _free(name)
        self._idle = False
        return _Region(self, name, worker)

    def enter(self, name: str, worker: str, key: Hashable) -> _Hold:
        return self._lock.acquire(self._ownership.owner(worker), worker, key)

    def leave(self, name: str, worker: str, hold: _Hold, done: bool) -> None:
        if done:
            self._ownership.warm.add((self._ownership.owner(worker), name))
        self._lock.release(hold, done)


class _Step(_Each):
    """The `step` region, for good: exclusive, or shared if `keyed` and its key is known."""

    def __init__(self, setup: _Setup, keyed: bool) -> None:
        super().__init__(setup, ["step"], "gate" if keyed else "strategy")
        self._keyed = keyed

    def region(self, name: str, worker: str, key: Hashable = None) -> AbstractContextManager[None]:
        if name != "step":
            return _free(name)
        return _Region(self, name, worker, key if self._keyed else None)

    def leave(self, name: str, worker: str, hold: _Hold, done: bool) -> None:
        self._lock.release(hold, done)


class _WarmGate(_Step):
    """A keyed step, and the barrier behind each worker's first good one."""

    def __init__(self, setup: _Setup) -> None:
        super().__init__(setup, keyed=True)
        self._barrier = _Barrier("barrier", setup.workers, setup.observer)
        self._parts = [self._lock, self._barrier]

    def leave(self, name: str, worker: str, hold: _Hold, done: bool) -> None:
        super().leave(name, worker, hold, done)
        first = (hold.owner, "step")
        if done and hold.depth <= 0 and first not in self._ownership.warm:
            self._ownership.warm.add(first)
            self._barrier.wait(worker)


class _Span(Strategy):
    """One hold from entering `first` to leaving `last`, until done once; then the barrier, if any."""

    def __init__(self, setup: _Setup, first: str, last: str, barrier: bool = False) -> None:
        super().__init__(setup)
        self._ownership = setup.ownership
        self._first, self._last = first, last
        self._open: dict[Owner, _Hold] = {}
        self._lock = _FairLock("strategy", setup.observer)
        self._barrier = _Barrier("barrier", setup.workers, setup.observer) if barrier else None
        self._parts = [self._lock] if self._barrier is None else [self._lock, self._barrier]
        self._idle = setup.warn and first != "step"

    def region(self, name: str, worker: str, key: Hashable = None) -> AbstractContextManager[None]:
        if (self._ownership.owner(worker), "span") in self._ownership.warm or name not in REGIONS:
            return _free(name)
        region = _Region(self, name, worker)  # any region: an exception that leaves it ends the span
        return _WatchedStep(self, region, self._first) if self._idle and name == "step" else region

    def enter(self, name: str, worker: str, key: Hashable) -> None:
        owner = self._ownership.owner(worker)
        if name == self._first and owner not in self._open:
            self._idle = False
            self._open[owner] = self._lock.acquire(owner, worker)

    def leave(self, name: str, worker: str, hold: None, done: bool) -> None:
        finished = done and name == self._last
        if done and not finished and name != "step":
            return
        owner = self._ownership.owner(worker)
        span = self._open.pop(owner, None)
        if span is None:
            return
        if finished:
            self._ownership.warm.add((owner, "span"))
        self._lock.release(span, finished, whole=True)
        if finished and self._barrier is not None:
            self._barrier.wait(worker)

    def worker_done(self, worker: str) -> None:
        for owner in [owner for owner, hold in list(self._open.items()) if hold.worker == worker]:
            self._open.pop(owner, None)
        super().worker_done(worker)


# The registry


_REGISTRY: dict[str, Callable[[_Setup], Strategy]] = {
    "none": Strategy,
    "per_call": lambda setup: _Each(setup, ["attention"]),
    "per_forward": lambda setup: _Span(setup, "mask", "forward"),
    "first_step": lambda setup: _Span(setup, "mask", "backward"),
    "warmup_barrier": lambda setup: _Span(setup, "mask", "backward", barrier=True),
    "compile_gate": lambda setup: _Step(setup, keyed=True),
    "warm_gate": _WarmGate,
    "every_step": lambda setup: _Step(setup, keyed=False),
}

_ELSEWHERE = {
    "thread_local_fx": "is no lock: put harness.torch_internals.fx_context.thread_local_fx() around the life of all workers",
    "process": "is no lock: start each worker in a process of its own",
}
"""Names that a matrix file takes beside these; as a lock they would hold nothing, in silence."""

STRATEGIES = tuple(_REGISTRY)
"""The names without parameters; `each:` and `span:` names are made of REGIONS."""


def make_strategy(
    name: str, *, workers: Sequence[str], owner: str = "worker", observer: Observer | None = None, warn: bool = True
) -> Strategy:
    """A new strategy. `workers`: those that take steps, for the barrier. `owner`: "worker" or "thread".

    `warn`: whether a step that ends before anybody entered a region that the strategy looks at gives a UserWarning.

    Raises ValueError if there is no such strategy or owner, or a worker is named twice.
    """
    build = _parse(name)
    if owner not in _OWNERSHIPS:
        raise ValueError(f"owner is {owner!r}; it is one of {', '.join(_OWNERSHIPS)}")
    if isinstance(workers, str) or len(set(workers)) < len(workers):
        raise ValueError(f"workers is {workers!r}; it is a list of names, each given once")
    return build(_Setup(name, tuple(workers), _OWNERSHIPS[owner](), observer, warn))


def _parse(name: str) -> Callable[[_Setup], Strategy]:
    if name in _REGISTRY:
        return _REGISTRY[name]
    if name in _ELSEWHERE:
        raise ValueError(f"lock strategy {name!r} {_ELSEWHERE[name]}")
    kind, _, rest = name.partition(":")
    if kind == "each":
        regions = rest.split("+")
        _check_regions(name, regions)
        if len(set(regions)) < len(regions):
            raise ValueError(f"lock {name!r}: a region is listed twice; name it once")
        return lambda setup: _Each(setup, regions)
    if kind == "span" and ".." in rest:
        first, _, last = rest.partition("..")
        _check_regions(name, [first, last])
        if not _can_span(first, last):
            raise ValueError(f"lock {name!r}: {last} has ended before {first} begins; swap the two")
        return lambda setup: _Span(setup, first, last)
    known = (*STRATEGIES, "each:mask+forward", "span:mask..backward")
    raise ValueError(f"there is no lock strategy {name!r}{_nearest(name, known)}; known: {', '.join(known)}")


def _check_regions(name: str, regions: Sequence[str]) -> None:
    for region in regions:
        if region not in REGIONS:
            hint = f"{_nearest(region, REGIONS)}; known: {', '.join(REGIONS)}"
            raise ValueError(f"lock {name!r}: there is no region {region!r}{hint}")


def _can_span(first: str, last: str) -> bool:
    """Is `first` entered before `last` is left? A region that contains another ends after it."""
    contained = last == "step" or (first, last) == ("attention", "forward")
    return contained or REGIONS.index(first) <= REGIONS.index(last)


def _nearest(word: str, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(word, known, n=1)
    return f' (did you mean "{found[0]}"?)' if found else ""
