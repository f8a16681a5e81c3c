from __future__ import annotations

import pytest
import torch
import torch._dynamo
from internals_support import Recorder, clean_dynamo, in_thread, installed
from torch._dynamo import config

from harness.torch_internals.compiles import Compiles
from harness.torch_internals.dynamo_config import DynamoSettings, apply, is_per_thread, read, settings
from harness.torch_internals.versions import features

pytestmark = pytest.mark.usefixtures("clean_dynamo")
__all__ = ["clean_dynamo"]

CHANGED = DynamoSettings(
    recompile_limit=5,
    accumulated_recompile_limit=50,
    error_on_nested_fx_trace=False,
    suppress_errors=True,
)


def test_every_setting_is_set_and_put_back() -> None:
    before = read()
    with settings(CHANGED):
        assert read() == CHANGED
        assert config.recompile_limit == 5
    assert read() == before


def test_what_is_none_stays_as_it_is() -> None:
    before = read()
    with settings(DynamoSettings(recompile_limit=5)):
        assert read() == DynamoSettings(
            5, before.accumulated_recompile_limit, before.error_on_nested_fx_trace, before.suppress_errors
        )


def test_what_others_set_meanwhile_is_left_alone() -> None:
    before = read()
    try:
        with settings(DynamoSettings(recompile_limit=5)):
            apply(DynamoSettings(suppress_errors=True))
        assert read().suppress_errors is True
        assert read().recompile_limit == before.recompile_limit
    finally:
        apply(before)


def test_settings_are_put_back_after_an_error() -> None:
    before = read()
    with pytest.raises(KeyError), settings(CHANGED):
        raise KeyError
    assert read() == before


def test_apply_returns_what_held_before() -> None:
    before = read()
    assert apply(CHANGED) == before
    assert apply(before) == CHANGED
    assert read() == before


def test_the_config_is_per_thread_from_212_on() -> None:
    before = read()
    assert is_per_thread() == features().config_is_per_thread
    assert read() == before


def test_a_limit_set_here_holds_in_a_worker_only_where_the_config_is_global() -> None:
    """`dynamo = "limit_in_main"`: a lowered limit shows it as well as a raised one, with fewer compiles."""

    def work() -> int:
        sink = Recorder()
        function = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
        with installed(Compiles(), sink):
            for length in range(2, 6):
                function(torch.ones(length))
        return sink.count("compile_end graph True")

    with settings(DynamoSettings(recompile_limit=2)):
        assert in_thread(work) == (4 if features().config_is_per_thread else 2)


def test_older_names_are_used_where_the_others_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from harness.torch_internals import dynamo_config

    old = SimpleNamespace(cache_size_limit=8, suppress_errors=False)
    monkeypatch.setattr(dynamo_config, "_config", lambda: old)
    assert read() == DynamoSettings(recompile_limit=8, suppress_errors=False)
    apply(DynamoSettings(recompile_limit=9))
    assert old.cache_size_limit == 9
    with pytest.raises(AttributeError, match="error_on_nested_fx_trace"):
        apply(DynamoSettings(error_on_nested_fx_trace=False))
