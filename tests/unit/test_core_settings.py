"""The ``[pipeline]`` table."""

from __future__ import annotations

import dataclasses
import json

import pytest

from harness.core.errors import SettingError
from harness.core.settings import FIELDS, PipelineSettings, parse_settings


def test_the_defaults_pass_their_own_checks() -> None:
    defaults = PipelineSettings()
    assert parse_settings({}, "m.toml") == defaults
    assert parse_settings(json.loads(json.dumps(defaults.to_dict())), "m.toml") == defaults
    assert parse_settings(dataclasses.asdict(defaults), "m.toml") == defaults


def test_values_are_kept_and_an_int_is_taken_where_a_float_is_meant() -> None:
    settings = parse_settings({"hidden_size": 96, "clip": 2, "dtype": "bfloat16"}, "m.toml")
    assert (settings.hidden_size, settings.clip, settings.dtype) == (96, 2.0, "bfloat16")
    assert isinstance(settings.clip, float)


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("hiden_size", 64, ["hiden_size", '"hidden_size"']),
        ("hidden_size", "64", ['"64"', "not an integer"]),
        ("hidden_size", True, ["true (a boolean)", "not an integer"]),
        ("hidden_size", 64.0, ["64.0", "not an integer"]),
        ("hidden_size", 0, ["0", "least is 1"]),
        ("clip", True, ["true (a boolean)", "not a number"]),
        ("clip", 0.0, ["above 0"]),
        ("learning_rate", float("nan"), ["finite"]),
        ("learning_rate", float("inf"), ["finite"]),
        ("warmup_ratio", 1.5, ["1.5", "most is 1"]),
        ("dtype", "float23", ["float23", '"float32"', "bfloat16"]),
        ("dynamic", True, ["true (a boolean)", "not a string"]),
        ("data", 3, ["3", "not a string"]),
        ("block_size", 1, ["1", "least is 2"]),
        ("block_size", 97, ["97", "tokens = 96"]),
        ("kv_heads", 3, ["3", "heads = 4"]),
        ("head_dim", 15, ["15", "odd"]),
        ("tapped", 7, ["7", "target_layers = 6"]),
        ("mask_token_id", -2, ["-2", "least is -1"]),
        ("anchors", [1], ["a list", "not an integer"]),
    ],
)
def test_a_bad_setting_is_refused_with_file_key_and_reason(key: str, value: object, parts: list[str]) -> None:
    with pytest.raises(SettingError) as caught:
        parse_settings({key: value}, "m.toml")
    for part in ["m.toml", "[pipeline]", f'"{key}"', *parts]:
        assert part in str(caught.value)


def test_a_mask_token_outside_a_given_vocabulary_is_refused() -> None:
    with pytest.raises(SettingError, match="vocab_size = 100"):
        parse_settings({"vocab_size": 100, "mask_token_id": 100}, "m.toml")
    assert parse_settings({"vocab_size": 100, "mask_token_id": 99}, "m.toml").mask_token_id == 99


def test_every_setting_has_a_scalar_default() -> None:
    assert all(isinstance(field.default, (str, int, float)) for field in FIELDS.values())
