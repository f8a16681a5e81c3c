"""How all checks stand, as a Markdown table and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .check import CUT, FAILED, SKIPPED, Check
from .devices import Devices
from .ledger import Ledger
from .session import folder_of

SUMMARY, TABLE = "summary.json", "table.md"
SCHEMA = 1
_MET = {True: "reached", False: "missed", None: "open"}


def standing_rows(checks: Iterable[Check], ledger: Ledger, skipped: Mapping[str, str], base: Path) -> list[dict[str, Any]]:
    """One of each check. One that was begun earlier and skipped now is as it was left, with the reason added."""
    return [_row(check, ledger, skipped.get(check.name, ""), base) for check in checks]


def _row(check: Check, ledger: Ledger, skipped: str, base: Path) -> dict[str, Any]:
    standing = ledger.of(check.name)
    row: dict[str, Any] = {
        "check": check.name, "measures": check.measures, "devices": check.devices, "goal": check.goal,
        "status": SKIPPED, "why": skipped or "not asked for", "figure": None, "values": {}, "reached": None,
        "seconds": 0.0, "attempt": 0, "machine": "", "folder": "",
    }  # fmt: skip
    if standing is None:
        return row
    figure = standing.figure
    return {
        **row,
        "status": standing.status,
        "why": "; ".join(filter(None, [standing.why, f"now skipped: {skipped}" if skipped else ""])),
        "figure": None if figure is None else figure.text,
        "values": {} if figure is None else dict(figure.values),
        "reached": None if figure is None or not check.goal else figure.reached,
        "seconds": round(standing.seconds, 1),
        "attempt": standing.attempt,
        "machine": standing.machine,
        "folder": str(folder_of(base, check.name, standing.attempt).relative_to(base)),
    }


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Check, status, figure, goal, seconds."""
    lines = ["| check | status | figure | must reach | seconds |", "| --- | --- | --- | --- | ---: |"]
    for row in rows:
        status = row["status"] + (f": {row['why']}" if row["why"] else "")
        goal = f"{row['goal']}: {_MET[row['reached']]}" if row["goal"] else ""
        seconds = f"{row['seconds']:.0f}" if row["attempt"] else "–"
        cells = (f"`{row['check']}`", status, row["figure"] or "–", goal, seconds)
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    return "\n".join(lines) + "\n"


def listing(checks: Iterable[Check], ledger: Ledger, devices: Devices) -> str:
    """What there is to run, and how it stands."""
    lines = [
        "| check | measures | must reach | GPUs | about (s) | beside others | stands |",
        "| --- | --- | --- | ---: | ---: | --- | --- |",
    ]
    for check in checks:
        standing = ledger.of(check.name)
        stands = devices.lacks(check.devices) if standing is None else standing.status
        beside = f"up to {check.jobs} trials" if check.jobs else "alone"
        cells = (f"`{check.name}`", check.measures, check.goal, str(check.devices), f"{check.cost_s:.0f}", beside, stands)
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    return "\n".join(lines) + "\n"


def write(base: Path, rows: Sequence[Mapping[str, Any]], devices: Devices) -> str:
    """`summary.json` and `table.md`, each whole or not at all; the table."""
    text = f"{devices.machine}\n\n{markdown(rows)}"
    document = {"schema": SCHEMA, "machine": devices.machine, "gpus": devices.count, "torch": devices.torch, "checks": rows}
    _replace(base / SUMMARY, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    _replace(base / TABLE, text)
    return text


def exit_code(rows: Iterable[Mapping[str, Any]]) -> int:
    """1: a check failed or missed its goal; 3: something is cut or was not run; else 0."""
    rows = list(rows)
    if any(row["status"] == FAILED or row["reached"] is False for row in rows):
        return 1
    return 3 if any(row["status"] in (CUT, SKIPPED) for row in rows) else 0


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
