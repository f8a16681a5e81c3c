"""The ``[pipeline]`` table of a matrix: sizes and recipe of the DFlash pipeline. Defaults: a tiny CPU run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.errors import SettingError, nearest, show


def _number(
    default: float, *, least: float | None = None, above: float | None = None, most: float | None = None
) -> Any:
    return dataclasses.field(default=default, metadata={"least": least, "above": above, "most": most})


def _choice(default: str, *others: str) -> Any:
    return dataclasses.field(default=default, metadata={"choices": (default, *others)})


@dataclass(frozen=True)
class PipelineSettings:
    """Sizes and recipe. Make one by ``parse_settings``, which checks; this constructor does not.

    ``data`` is a path ("" = the built-in corpus). ``target_model``, ``drafter_model`` and ``tokenizer`` are
    local paths ("" = small random weights of the sizes here, and the built-in tokenizer).
    """

    data: str = ""
    target_model: str = ""
    drafter_model: str = ""
    tokenizer: str = ""
    hidden_size: int = _number(64, least=1)
    intermediate_size: int = _number(128, least=1)
    heads: int = _number(4, least=1)
    kv_heads: int = _number(2, least=1)
    head_dim: int = _number(16, least=2)
    vocab_size: int = _number(0, least=0)  # 0: the tokenizer's
    target_layers: int = _number(6, least=1)
    tapped: int = _number(2, least=1)  # target layers whose outputs feed the drafter
    drafter_layers: int = _number(2, least=1)
    block_size: int = _number(4, least=2)  # a block is one anchor and at least one slot to predict
    anchors: int = _number(8, least=1)  # per sequence
    tokens: int = _number(96, least=2)  # budget per sequence
    batch: int = _number(1, least=1)
    queue_depth: int = _number(2, least=1)
    learning_rate: float = _number(6e-4, above=0.0)
    warmup_ratio: float = _number(0.04, least=0.0, most=1.0)
    clip: float = _number(1.0, above=0.0)  # gradient norm
    weight_decay: float = _number(0.0, least=0.0)
    dtype: str = _choice("float32", "bfloat16", "float16")
    loss_chunk: int = _number(4, least=0)  # anchors per chunk; 0: unchunked
    loss_gradient: str = _choice("recompute", "in_forward")  # where a chunk's gradient is computed
    capture_error_mode: str = _choice("thread_local", "global", "relaxed")  # of cudagraphs=manual
    gamma: float = _number(0.0, least=0.0)  # 0: by block size
    dynamic: str = _choice("false", "auto", "true")  # torch.compile(dynamic=…)
    rope_theta: float = _number(10000.0, above=0.0)
    eps: float = _number(1e-6, above=0.0)
    mask_token_id: int = _number(-1, least=-1)  # -1: the last id of the vocabulary

    def to_dict(self) -> dict[str, str | int | float]:
        """Every setting by name: what a workload gets as ``ctx.settings``."""
        return dataclasses.asdict(self)


FIELDS: dict[str, dataclasses.Field[Any]] = {field.name: field for field in dataclasses.fields(PipelineSettings)}


def parse_settings(values: Mapping[str, object], file: str) -> PipelineSettings:
    """Settings from a ``[pipeline]`` table; ``file`` is named in errors.

    Raises:
        SettingError: an unknown key, a value of the wrong type (a bool is no number) or out of range, or two
            values that do not fit each other.
    """
    where = f"{file}: [pipeline]"
    checked: dict[str, Any] = {key: check_setting(key, value, where) for key, value in values.items()}
    settings = dataclasses.replace(PipelineSettings(), **checked)
    misfit = _misfit(settings)
    if misfit:
        raise SettingError(f"{where} key {misfit}")
    return settings


def _misfit(settings: PipelineSettings) -> str:
    """What is wrong with the first setting that does not fit another; "" when all fit."""
    s = settings
    if s.heads % s.kv_heads:
        return f'"kv_heads": {s.kv_heads} does not divide heads = {s.heads}; choose a divisor'
    if s.head_dim % 2:
        return f'"head_dim": {s.head_dim} is odd; rotary embedding needs an even size'
    if s.tapped > s.target_layers:
        return f'"tapped": {s.tapped} is more than target_layers = {s.target_layers}'
    if s.block_size > s.tokens:
        return f'"block_size": {s.block_size} is more than tokens = {s.tokens}'
    if s.vocab_size and s.mask_token_id >= s.vocab_size:
        return f'"mask_token_id": {s.mask_token_id} is outside vocab_size = {s.vocab_size}'
    return ""


def check_setting(key: str, value: object, where: str) -> str | int | float:
    """One value of the table, an int widened where a float is meant. Raises ``SettingError``."""
    field = FIELDS.get(key)
    if field is None:
        raise SettingError(f'{where}: no key is called "{key}"{nearest(key, FIELDS)}')
    at = f'{where} key "{key}"'
    if isinstance(field.default, str):
        if not isinstance(value, str):
            raise SettingError(f"{at}: {show(value)} is not a string")
        choices: tuple[str, ...] = field.metadata.get("choices", ())
        if choices and value not in choices:
            raise SettingError(f'{at}: no value "{value}"{nearest(value, choices)}; it takes {", ".join(choices)}')
        return value
    wants_float = isinstance(field.default, float)
    if isinstance(value, bool) or not isinstance(value, (int, float) if wants_float else int):
        raise SettingError(f"{at}: {show(value)} is not {'a number' if wants_float else 'an integer'}")
    number = float(value) if wants_float else value
    least, above, most = (field.metadata[bound] for bound in ("least", "above", "most"))
    if not math.isfinite(number):
        raise SettingError(f"{at}: {number} is not a finite number")
    if least is not None and number < least:
        raise SettingError(f"{at}: {number} is too small; the least is {least}")
    if above is not None and number <= above:
        raise SettingError(f"{at}: {number} is too small; it must be above {above}")
    if most is not None and number > most:
        raise SettingError(f"{at}: {number} is too large; the most is {most}")
    return number
