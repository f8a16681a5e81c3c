"""Who waits for whom, as the probes tell it; the graph itself is `harness.core.waitgraph`, which both sides use."""

from __future__ import annotations

from harness.core.waitgraph import Edge, edges_of, find_cycle

__all__ = ["Edge", "edges_of", "find_cycle"]
