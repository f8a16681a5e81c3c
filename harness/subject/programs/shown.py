"""What the small programs share that look for their effect themselves, after all workers have ended."""

from __future__ import annotations

from .parts import Parts


class Shown(Parts):
    """A `Parts` that tells the fact `effect`. A subclass gives `effect`."""

    def effect(self) -> bool:
        """Whether the hazard's effect is there. On the main thread, once, after the workers."""
        raise NotImplementedError

    def check(self) -> list[str]:
        """Tells it; the fact decides, and no problem is reported beside it."""
        self.ctx.fact("", "effect", self.effect())
        return []
