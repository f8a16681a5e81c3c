"""Who waits for whom: a graph over threads, and its cycles.

Edges come from what every lock says of itself (holders and waiters) and from threads that wait in the autograd engine
for a device thread. Reading takes no lock of the subject's, so the watchdog can look at any moment; a cycle must
therefore be seen again and again before it is called one (`harness.subject.standing`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Edge:
    """`waiter` waits for `holder` because of `what` ("compile_lock", "strategy lock attention", …)."""

    waiter: str
    what: str
    holder: str

    def __str__(self) -> str:
        return f"{self.waiter} waits for {self.what}, held by {self.holder}"


def edges_of(what: str, holders: Iterable[str], waiters: Iterable[str]) -> list[Edge]:
    """Every waiter waits for every holder."""
    held = list(holders)
    return [Edge(waiter, what, holder) for waiter in waiters for holder in held]


def find_cycle(edges: Iterable[Edge]) -> list[Edge]:
    """The edges of one cycle, from its alphabetically first member round; [] when there is none.

    A node that waits for itself (a lock that is not re-entrant, or a recompute on an engine thread that wants what its
    own worker holds) is a cycle of one edge.
    """
    graph: dict[str, list[Edge]] = {}
    for edge in edges:
        graph.setdefault(edge.waiter, []).append(edge)
    done: set[str] = set()
    for root in sorted(graph):
        if root in done:
            continue
        path: list[Edge] = []
        on_path = {root: 0}
        stack = [iter(graph[root])]
        while stack:
            try:
                edge = next(stack[-1])
            except StopIteration:  # every edge of the innermost node was followed
                stack.pop()
                if path:
                    gone = path.pop()
                    on_path.pop(gone.holder, None)
                    done.add(gone.holder)
                continue
            if edge.holder in on_path:
                return [*path[on_path[edge.holder] :], edge]
            if edge.holder in done or edge.holder not in graph:
                continue
            path.append(edge)
            on_path[edge.holder] = len(path)
            stack.append(iter(graph[edge.holder]))
        done.add(root)
    return []
