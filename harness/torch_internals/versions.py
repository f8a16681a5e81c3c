"""What changed between the torch versions that the adapters know.

No private name is touched. Each fact is held by a test that ran on torch 2.11, 2.12.1, 2.13 and 2.14.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.core.versions import Version, parse_version

# Minor releases on which every adapter's test was run.
TESTED = frozenset({(2, 11), (2, 12), (2, 13), (2, 14)})


def release(version: str | None = None) -> Version:
    """`"2.14.1+cu130"` → `(2, 14, 1)`; None: the torch that is imported. UserError: no version number."""
    return parse_version(torch.__version__ if version is None else version)


@dataclass(frozen=True)
class Features:
    """Facts about one torch version that decide which hazards can occur."""

    fx_flag_is_global: bool  # up to 2.13: any thread's trace is seen by all
    compile_hides_fx_flag: bool  # 2.13: a compile's own trace is not answered as symbolic tracing
    config_is_per_thread: bool  # from 2.12: dynamo settings hold in the thread that sets them
    compiling_flag_covers_compiles: bool  # from 2.13: is_compiling() is True, for all threads, in a compile


def features(version: str | None = None) -> Features:
    """The facts for `version`, or for the torch that is imported."""
    minor = release(version)[:2]
    return Features(
        fx_flag_is_global=minor < (2, 14),
        compile_hides_fx_flag=minor >= (2, 13),
        config_is_per_thread=minor >= (2, 12),
        compiling_flag_covers_compiles=minor >= (2, 13),
    )
