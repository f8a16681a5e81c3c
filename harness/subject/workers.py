"""What a workload's `workers()` gave: Workers, one at least, each with a name of its own."""

from __future__ import annotations

from collections.abc import Iterable

from harness.core.workload import Worker, Workload


def checked_workers(workload: Workload, name: str) -> list[Worker]:
    """Those of the workload `name`. Raises TypeError: it gave something else; and what `workers()` raises."""
    found: object = workload.workers()  # another's code: it may return anything
    gave = f'workers() of workload "{name}" gave'
    workers: dict[str, Worker] = {}
    for worker in found if isinstance(found, Iterable) else [found]:
        if not isinstance(worker, Worker):
            raise TypeError(f"{gave} {worker!r:.200}, which is no Worker")
        if not isinstance(worker.name, str) or not worker.name:
            raise TypeError(f"{gave} a Worker whose name is {worker.name!r:.200}; it is a text that is not empty")
        if worker.name in workers:
            raise TypeError(f"{gave} two Workers of the name {worker.name!r:.200}; each needs a name of its own")
        workers[worker.name] = worker
    if not workers:
        raise TypeError(f"{gave} no Worker; it has to give one at least")
    return list(workers.values())
