"""The trials of a run as a table for other programs: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterable, Mapping
from typing import Any

from harness.core.errors import UserError
from harness.frames import MAYBE_WHOLE, NUMBER, TRUTH, WHOLE, trial_columns, trial_record
from harness.report.text import visible

Row = Mapping[str, Any]


def to_csv(rows: Iterable[Row]) -> str:
    """One line a trial, the columns of `harness.load(…).trials`. What was not measured is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns = trial_columns()
    writer.writerow(columns)
    for row in rows:
        record = trial_record(row)
        writer.writerow([_cell(record.get(name)) for name in columns])
    return stream.getvalue()


def to_parquet(rows: Iterable[Row]) -> bytes:
    """The same columns, typed. Raises UserError where pyarrow is missing."""
    try:
        arrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    except ImportError:
        raise UserError(
            '--parquet needs pyarrow: python -m pip install "dflash-harness[parquet]", or pyarrow itself'
        ) from None
    types = {WHOLE: arrow.int64(), MAYBE_WHOLE: arrow.int64(), NUMBER: arrow.float64(), TRUTH: arrow.bool_()}
    records = [trial_record(row) for row in rows]
    fields, columns = [], []
    for name, (dtype, meaning) in trial_columns().items():
        kind = types.get(dtype, arrow.string())
        values = [record.get(name) for record in records]
        if dtype not in types:
            values = ["" if value is None else visible(str(value)) for value in values]
        fields.append(arrow.field(name, kind, metadata={"meaning": meaning}))
        columns.append(arrow.array(values, type=kind))
    stream = io.BytesIO()
    parquet.write_table(arrow.table(columns, schema=arrow.schema(fields)), stream)
    return stream.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return visible(value) if isinstance(value, str) else value
