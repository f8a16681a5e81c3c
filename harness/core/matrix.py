"""Matrix files: TOML in, scenarios and expectations out. Each complaint names file, table and key."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.axes import AXES, BY_NAME, Value, coerce
from harness.core.errors import MatrixError, WhereError, nearest, show
from harness.core.expectations import Expectation, Judgement, judge, read_expectation
from harness.core.scenario import Scenario
from harness.core.settings import parse_settings
from harness.core.tables import (
    Table,
    check_keys,
    count_at,
    parse_toml,
    seconds_at,
    string_at,
    table_at,
    tables_at,
)
from harness.core.where import Where, parse_where

__all__ = ["Expectation", "Judgement", "Matrix", "judge", "load_matrix", "parse_matrix"]

SCHEMA = 1
MAX_SCENARIOS = 100_000
"""Most points of one product; a larger one is a mistake, and to expand it would look like a hang."""

_TABLES = ("schema", "defaults", "axes", "pipeline", "exclude", "include", "expect")
_RUN_KEYS = ("repeats", "timeout", "hang_timeout")


@dataclass(frozen=True)
class Matrix:
    """A matrix file, read. ``timeout_s`` and ``hang_timeout_s`` are None where the file leaves them open.

    ``scenarios`` are all different: the product, the axis written first varying slowest, then the includes.
    ``pipeline`` is the ``[pipeline]`` table as written. ``axes_varying`` are in axis order.
    """

    file: str
    text: str
    schema: int
    scenarios: tuple[Scenario, ...]
    repeats: int
    timeout_s: float | None
    hang_timeout_s: float | None
    pipeline: dict[str, Any]
    expectations: tuple[Expectation, ...]
    axes_varying: tuple[str, ...]

    def select(self, expression: str) -> Matrix:
        """The matrix with only the scenarios that a ``where`` expression means.

        Raises:
            WhereError: the expression cannot be read, or means none of them.
        """
        where = parse_where(expression)
        chosen = tuple(scenario for scenario in self.scenarios if where.matches(scenario))
        if not chosen:
            raise WhereError(f"{self.file}: no scenario of this matrix matches '{expression}'; see harness list")
        return dataclasses.replace(self, scenarios=chosen)


def load_matrix(path: str | Path) -> Matrix:
    """Read a matrix file.

    Raises:
        MatrixError: the file cannot be read, or as ``parse_matrix``.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        there = [other.name for other in path.parent.glob("*.toml")]
        raise MatrixError(f"{path}: no such matrix file{nearest(path.name, there)}") from None
    except UnicodeDecodeError as error:
        raise MatrixError(f"{path}: not UTF-8 text, at byte {error.start}") from None
    except OSError as error:
        raise MatrixError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_matrix(text, file=str(path))


def parse_matrix(text: str, *, file: str) -> Matrix:
    """Read the text of a matrix file; ``file`` is named in errors.

    Raises:
        MatrixError: no TOML, wrong schema, unknown key, axis, value or label, wrong type, a ``where`` that
            cannot be read, an include that repeats a scenario, no scenario left.
        SettingError: a key of ``[pipeline]`` or its value is wrong.
    """
    document = parse_toml(text, file)
    _check_top(document, file)
    defaults, run = _read_defaults(document, file)
    at = f"{file}: [defaults]"
    repeats = count_at(run, "repeats", at, 1)
    timeout_s, hang_timeout_s = (seconds_at(run, key, at) for key in ("timeout", "hang_timeout"))
    scenarios = _expand(document, defaults, file)
    return Matrix(
        file=file,
        text=text,
        schema=SCHEMA,
        scenarios=scenarios,
        repeats=repeats,
        timeout_s=timeout_s,
        hang_timeout_s=hang_timeout_s,
        pipeline=_read_pipeline(document, scenarios, file),
        expectations=tuple(
            read_expectation(table, f"{file}: [[expect]] number {number}")
            for number, table in enumerate(tables_at(document, "expect", file), start=1)
        ),
        axes_varying=tuple(axis.name for axis in AXES if len({s.value(axis.name) for s in scenarios}) > 1),
    )


def _expand(document: Table, defaults: Scenario, file: str) -> tuple[Scenario, ...]:
    """The product without what is excluded, then the includes."""
    product = _expand_axes(table_at(document, "axes", file), defaults, file)
    excludes = _read_excludes(document, file)
    kept = [scenario for scenario in product if not any(where.matches(scenario) for where in excludes)]
    scenarios = _add_includes(kept, defaults, document, file)
    if not scenarios and product:
        raise MatrixError(f"{file}: its excludes leave no scenario; drop one, or add an [[include]]")
    if not scenarios:
        raise MatrixError(f"{file}: it names no scenario; add [axes] or an [[include]]")
    return tuple(scenarios)


def _check_top(document: Table, file: str) -> None:
    for key in document:
        if key in BY_NAME or key in _RUN_KEYS:
            place = "[defaults] or, as a list, [axes]" if key in BY_NAME else "[defaults]"
            raise MatrixError(f'{file}: key "{key}" stands outside a table; move it to {place}')
    check_keys(document, _TABLES, file)
    if "schema" not in document:
        raise MatrixError(f'{file}: key "schema" is missing; write schema = {SCHEMA} on its first line')
    schema = document["schema"]
    if isinstance(schema, bool) or not isinstance(schema, int):
        raise MatrixError(f'{file}: key "schema": {show(schema)} is not an integer; write schema = {SCHEMA}')
    if schema != SCHEMA:
        raise MatrixError(f'{file}: key "schema": this version reads schema {SCHEMA}, not {schema}')


def _read_defaults(document: Table, file: str) -> tuple[Scenario, dict[str, Any]]:
    """The scenario that others start from, and the keys that say how to run."""
    table = table_at(document, "defaults", file)
    at = f"{file}: [defaults]"
    check_keys(table, (*BY_NAME, *_RUN_KEYS), at)
    axes = {key: value for key, value in table.items() if key in BY_NAME}
    for name, value in axes.items():
        if isinstance(value, list):
            raise MatrixError(f'{at} axis "{name}": a default is one value; lists stand in [axes]')
    run = {key: value for key, value in table.items() if key in _RUN_KEYS}
    return Scenario.from_dict({name: _value(name, value, at) for name, value in axes.items()}), run


def _value(name: str, value: object, at: str) -> Value:
    try:
        return coerce(name, value)
    except MatrixError as error:
        raise MatrixError(f"{at} {error}") from None


def _check_axis_names(table: Table, at: str) -> None:
    for key in table:
        if key in _RUN_KEYS:
            raise MatrixError(f'{at}: key "{key}" is no axis; it stands in [defaults]')
    check_keys(table, BY_NAME, at, "axis")


def _values(name: str, values: list[object], at: str) -> tuple[Value, ...]:
    if not values:
        raise MatrixError(f'{at} axis "{name}": the list is empty, which leaves no scenario; name a value')
    canonical = [_value(name, value, at) for value in values]
    for value in canonical:
        if canonical.count(value) > 1:
            raise MatrixError(f'{at} axis "{name}": {show(value)} is listed twice; name it once')
    return tuple(canonical)


def _product(axes: Mapping[str, tuple[Value, ...]], base: Scenario, at: str) -> Iterator[Scenario]:
    size = math.prod(len(values) for values in axes.values())
    if size > MAX_SCENARIOS:
        raise MatrixError(f"{at}: {size} scenarios are more than {MAX_SCENARIOS}; use fewer values")
    for point in itertools.product(*axes.values()):
        yield base.replace(**dict(zip(axes, point, strict=True)))


def _expand_axes(table: Table, defaults: Scenario, file: str) -> list[Scenario]:
    at = f"{file}: [axes]"
    _check_axis_names(table, at)
    axes: dict[str, tuple[Value, ...]] = {}
    for name, values in table.items():
        if not isinstance(values, list):
            raise MatrixError(f'{at} axis "{name}": {show(values)} is not a list; put it in brackets')
        axes[name] = _values(name, values, at)
    return list(_product(axes, defaults, at)) if axes else []


def _read_excludes(document: Table, file: str) -> list[Where]:
    excludes = []
    for number, table in enumerate(tables_at(document, "exclude", file), start=1):
        at = f"{file}: [[exclude]] number {number}"
        check_keys(table, ("where",), at)
        text = string_at(table, "where", at)
        try:
            excludes.append(parse_where(text))
        except WhereError as error:
            raise MatrixError(f'{at} key "where": {error}') from None
    return excludes


def _add_includes(kept: list[Scenario], defaults: Scenario, document: Table, file: str) -> list[Scenario]:
    scenarios = list(kept)
    origin = dict.fromkeys(kept, "[axes]")
    for number, table in enumerate(tables_at(document, "include", file), start=1):
        name = f"[[include]] number {number}"
        at = f"{file}: {name}"
        _check_axis_names(table, at)
        if not table:
            raise MatrixError(f"{at}: it names no axis")
        axes = {key: _values(key, v if isinstance(v, list) else [v], at) for key, v in table.items()}
        for scenario in _product(axes, defaults, at):
            if scenario in origin:
                raise MatrixError(
                    f'{at}: axis "{next(iter(axes))}": scenario {scenario.id} is there already, from '
                    f"{origin[scenario]}; remove one of the two"
                )
            origin[scenario] = name
            scenarios.append(scenario)
    return scenarios


def _read_pipeline(document: Table, scenarios: tuple[Scenario, ...], file: str) -> dict[str, Any]:
    """The table as written. For DFlash it is checked; the keys of another workload are its own."""
    table = table_at(document, "pipeline", file)
    for key, value in table.items():
        if not isinstance(value, (str, int, float)) or (isinstance(value, float) and not math.isfinite(value)):
            raise MatrixError(
                f'{file}: [pipeline] key "{key}": {show(value)} is not a string, a finite number or a boolean'
            )
    if any(scenario.workload == "dflash" for scenario in scenarios):
        parse_settings(table, file)
    return dict(table)
