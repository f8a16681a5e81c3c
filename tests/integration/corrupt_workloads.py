"""The DFlash pipeline with one thing planted in drafter-1, from its second step on. Imported by subjects only.

Each plant runs without an error and trains on; only its losses, or a repeated state, can give it away.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.core.workload import Context, Scenario
from harness.pipeline import Pipeline
from harness.pipeline.drafter_worker import DrafterWorker

FROM_STEP = 1


class _Planted(Pipeline):
    def setup(self, scenario: Scenario, ctx: Context) -> None:
        super().setup(scenario, ctx)
        self.victim: DrafterWorker = self._drafters[1]
        self.taken = 0
        self.plant()

    def reference(self, scenario: Scenario) -> None:
        raise AssertionError("the reference is the healthy pipeline's")

    def plant(self) -> None:
        raise AssertionError("a subclass says what")

    def before_each_item(self, action: Any) -> None:
        get = self.victim.queue.get

        def planted() -> Any:
            item = get()
            if item is not None and self.taken >= FROM_STEP:
                item = action(item)
            self.taken += 1
            return item

        self.victim.queue.get = planted  # type: ignore[method-assign]


class WrongMask(_Planted):
    """One thread's mask lets a block see all of the context, also behind its anchor."""

    def plant(self) -> None:
        build = self.victim._build_mask
        built = 0

        def wrong(predicate: Any, *shape: Any) -> Any:
            nonlocal built
            built += 1
            if built <= FROM_STEP:
                return build(predicate, *shape)
            return build(lambda b, h, q, kv: predicate(b, h, q, kv) | (kv < 48), *shape)

        self.victim._build_mask = wrong


class SwappedItem(_Planted):
    """Two items of one drafter come in the other order."""

    def plant(self) -> None:
        get = self.victim.queue.get
        kept: list[Any] = []

        def planted() -> Any:
            if self.taken == FROM_STEP:
                kept.append(get())
            self.taken += 1
            return kept.pop() if kept and self.taken == FROM_STEP + 2 else get()

        self.victim.queue.get = planted  # type: ignore[method-assign]


class RewoundGenerator(_Planted):
    """The anchors' generator is put back, so a step draws what the step before it drew."""

    def plant(self) -> None:
        state = self.victim._anchor_generator.get_state()

        def rewind(item: Any) -> Any:
            self.victim._anchor_generator.set_state(state)
            return item

        self.before_each_item(rewind)


class StaleWeight(_Planted):
    """One weight of one drafter falls back to its value of the step before, at every step."""

    def plant(self) -> None:
        weight = next(p for name, p in self.victim.drafter.named_parameters() if name.endswith("o_proj.weight"))
        old = weight.detach().clone()

        def restore(item: Any) -> Any:
            nonlocal old
            with torch.no_grad():
                newer = weight.detach().clone()
                weight.copy_(old)
                old = newer
            return item

        self.before_each_item(restore)
