"""Dynamo's settings that matter to threads: recompile limits, nested traces, suppressed errors.

Private names: `torch._dynamo.config.{recompile_limit, accumulated_recompile_limit,
error_on_nested_fx_trace, suppress_errors}`. Verified on torch 2.11, 2.12.1, 2.13 and 2.14.1. Before 2.6 the
limits are called `cache_size_limit` and `accumulated_cache_size_limit`; those names are used where the
others are missing.

From torch 2.12 on a value that is set holds in the thread (context) that sets it; another thread, even one
started later, has the default.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

_OLDER_NAMES = {
    "recompile_limit": "cache_size_limit",
    "accumulated_recompile_limit": "accumulated_cache_size_limit",
}


@dataclass(frozen=True)
class DynamoSettings:
    """Values of one thread; None: this torch has no such setting (when read), leave as it is (when set)."""

    recompile_limit: int | None = None
    accumulated_recompile_limit: int | None = None
    error_on_nested_fx_trace: bool | None = None
    suppress_errors: bool | None = None


def _config() -> Any:
    return importlib.import_module("torch._dynamo.config")


def _name(config: Any, name: str) -> str | None:
    for candidate in (name, _OLDER_NAMES.get(name)):
        if candidate is not None and hasattr(config, candidate):
            return candidate
    return None


def read() -> DynamoSettings:
    """The values that hold in the current thread."""
    config = _config()
    names = {field.name: _name(config, field.name) for field in fields(DynamoSettings)}
    return DynamoSettings(
        **{key: None if name is None else getattr(config, name) for key, name in names.items()}
    )


def apply(settings: DynamoSettings) -> DynamoSettings:
    """Sets what is not None, in the current thread (up to 2.11: in all); returns what held before.

    AttributeError: this torch has no such setting.
    """
    config, before = _config(), read()
    for field in fields(DynamoSettings):
        value = getattr(settings, field.name)
        if value is not None:
            name = _name(config, field.name)
            if name is None:
                raise AttributeError(f"torch._dynamo.config has no {field.name}")
            setattr(config, name, value)
    return before


@contextmanager
def settings(wanted: DynamoSettings) -> Iterator[None]:
    """`apply` for the length of a `with` block, in the current thread."""
    before = apply(wanted)
    try:
        yield
    finally:
        apply(DynamoSettings(**{
            field.name: getattr(before, field.name)
            for field in fields(DynamoSettings) if getattr(wanted, field.name) is not None
        }))


def is_per_thread() -> bool:
    """Whether a value set in one thread is unseen by another; found out by trying, and put back."""
    limit = read().recompile_limit
    if limit is None:
        return False
    seen: list[int | None] = []
    with settings(DynamoSettings(recompile_limit=limit + 1)):
        thread = threading.Thread(target=lambda: seen.append(read().recompile_limit))
        thread.start()
        thread.join()
    return seen == [limit]
