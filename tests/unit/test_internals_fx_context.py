"""The context in which the FX-tracing flag is one per thread."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.fx import symbolic_trace

from harness.core.errors import UserError
from harness.torch_internals.fx_context import thread_local_fx
from harness.torch_internals.versions import TESTED, release

SERVED = release()[:2] in TESTED and release()[:2] < (2, 14)


def collide() -> BaseException | None:
    """One thread stays in a symbolic trace while this one calls a compiled function; what the call raises."""
    tracing, go_on = threading.Event(), threading.Event()

    def slow(x: torch.Tensor) -> torch.Tensor:
        tracing.set()
        assert go_on.wait(30)
        return x + 1

    compiled = torch.compile(lambda x: x * 2, backend="eager")
    compiled(torch.ones(2))
    thread = threading.Thread(target=symbolic_trace, args=(slow,))
    thread.start()
    try:
        assert tracing.wait(30)
        assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    except RuntimeError as error:
        return error
    finally:
        go_on.set()
        thread.join(30)
    return None


@pytest.mark.skipif(not SERVED, reason="this torch is not served")
def test_inside_nobody_is_in_anothers_trace() -> None:
    assert "FX" in str(collide())
    with thread_local_fx():
        assert collide() is None
    assert "FX" in str(collide()), "and it is gone afterwards"


@pytest.mark.skipif(not SERVED, reason="this torch is not served")
def test_it_goes_when_the_block_raises() -> None:
    with pytest.raises(ZeroDivisionError), thread_local_fx():
        raise ZeroDivisionError
    with thread_local_fx():
        pass


@pytest.mark.skipif(SERVED, reason="this torch is served")
def test_it_refuses_where_it_was_not_tested_or_is_not_needed() -> None:
    with pytest.raises(UserError, match="thread_local_fx: "), thread_local_fx():
        raise AssertionError("not reached")
