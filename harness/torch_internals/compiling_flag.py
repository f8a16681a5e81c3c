"""What `torch.compiler.is_compiling()` would say, sampled without calling or patching it.

Private names: `torch.compiler._is_compiling_flag`, `torch.compiler._compile_session_context`. Verified on
torch 2.11, 2.12.1, 2.13 and 2.14.1. Missing: `compiling_now` answers None.

`is_compiling` itself is left alone, since Dynamo folds it by identity. The flag is one for the process on
all three versions. Up to 2.12 only `torch.export` sets it; from 2.13 on each Dynamo compile does, so a
thread that compiles nothing sees True while another compiles.
"""

from __future__ import annotations

from typing import Any

import torch

_compiler: Any = torch.compiler
_FLAG = "_is_compiling_flag"


def compiling_now() -> bool | None:
    """The flag as any thread sees it now; None: this torch keeps it elsewhere."""
    flag = vars(_compiler).get(_FLAG)
    return flag if isinstance(flag, bool) else None


def flag_is_global() -> bool | None:
    """Whether the flag is one for the process; None: not known for this torch."""
    return True if isinstance(vars(_compiler).get(_FLAG), bool) else None


def set_by_compiles() -> bool:
    """Whether a Dynamo compile sets the flag (from 2.13), and not `torch.export` alone."""
    return hasattr(_compiler, "_compile_session_context")
