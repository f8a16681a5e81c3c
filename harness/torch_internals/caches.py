"""Where torch keeps compiled code on disk, and how a trial gets caches of its own.

Environment variables of torch 2.11, 2.12.1, 2.13 and 2.14.1 (no private name): `TORCHINDUCTOR_CACHE_DIR` and
`TRITON_CACHE_DIR` are read whenever a file is looked up, so they may be set after torch was imported (a
fork from a warm server), but before the first compile. The switches are read once, when
`torch._functorch.config` (that is: torch) and `torch._inductor.config` are imported.

A cold trial needs empty folders, not switched-off caches. A *hit* in AOTAutograd's cache hides what this
project looks for: it skips the joint trace (no FX window) and brings the backward along (no lazy lowering).
On torch 2.12 and later, the switches set through the config modules hold for the setting thread only; use
the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_INDUCTOR, _TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"

# To be set before torch is imported.
SWITCHED_OFF: Mapping[str, str] = {
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
}
LOCAL_ONLY: Mapping[str, str] = {
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": "0",
}


def folders(root: Path) -> dict[str, str]:
    """The variables that put both caches below `root`. Two trials with one `root` share them (a warm
    cache)."""
    return {_INDUCTOR: str(root / "inductor"), _TRITON: str(root / "triton")}


def use(root: Path) -> None:
    """Puts the caches of this process below `root` and makes the folders; call it before the first
    compile."""
    for name, folder in folders(root).items():
        Path(folder).mkdir(parents=True, exist_ok=True)
        os.environ[name] = folder
