"""`harness.region` in a watched program."""

from __future__ import annotations

from types import TracebackType

from .log import WatchLog
from .process import Watched
from .threads import fit, sums_now

LONG_NS = 1_000_000_000
MOST_NAMES = 100
OTHERS = "other regions"


class Region:
    """One stay. Nothing is held; an exception that leaves it is recorded, whoever handles it further out."""

    __slots__ = ("_before", "_began", "_name", "_watched", "_worker")

    def __init__(self, watched: Watched, name: str, worker: str) -> None:
        self._watched = watched
        self._name = name
        self._worker = worker

    def __enter__(self) -> None:
        thread = self._watched.threads.current()
        self._before = thread.worker
        if self._worker:
            thread.worker = self._worker
        thread.regions.append(self._name)
        self._began = self._log().emit("region.enter", f',"r":"{self._name}"')
        self._watched.sample()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        watched = self._watched
        thread = watched.threads.current()
        if isinstance(error, Exception):
            watched.caught(error, "region", thread.region)
        watched.sample()
        at = self._log().emit("region.exit", f',"r":"{self._name}"' + (',"error":1' if error is not None else ""))
        thread.regions.pop()
        took = at - self._began
        if took > LONG_NS:
            self._log().mark()
        regions = sums_now(thread).regions
        name = self._name if self._name in regions or len(regions) < MOST_NAMES else OTHERS
        sums = regions.get(name)
        if sums is None:
            sums = regions[name] = [0, 0, 0]
        sums[0] += 1
        sums[1] += took
        sums[2] = max(sums[2], took)
        thread.worker = self._before

    def _log(self) -> WatchLog:
        return self._watched.log


class Regions:
    """What `harness.region` calls."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._fit: dict[str, str] = {}

    def __call__(self, name: str, worker: str) -> Region:
        return Region(self._watched, self._known(name), self._known(worker))

    def _known(self, name: str) -> str:
        found = self._fit.get(name)
        if found is None:
            if len(self._fit) >= 10 * MOST_NAMES:
                return OTHERS
            found = self._fit[name] = fit(name)
        return found
