"""References of a run: one process a configuration, made before the trials that are held against it, and kept.

A reference lives in `references/<key>/` of the run folder, laid out like a trial. It is no trial: it has no row, and no
count of it enters any statistic.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.analysis.numerics import differences, reference_key, reference_scenario
from harness.core.outcome import OK

from .request import Executor, Row, TrialRequest

FOLDER = "references"


class References:
    """The references of one run folder."""

    def __init__(self, run_dir: Path, dtype: str) -> None:
        self._base = run_dir / FOLDER
        self._dtype = dtype
        self._known: dict[str, Mapping[str, Any] | str] = {}  # workers of the result, or why there is none

    def prepare(self, requests: Iterable[TrialRequest], executor: Executor) -> None:
        """Run the references that these trials need and that are not there yet."""
        missing: dict[str, TrialRequest] = {}
        for request in requests:
            key = reference_key(request.scenario, request.pipeline)
            if key in self._known or key in missing or self._load(key):
                continue
            missing[key] = TrialRequest(
                trial_id=f"reference-{key}",
                scenario=reference_scenario(request.scenario),
                repeat=0,
                folder=self._base / key,
                pipeline=request.pipeline,
                timeout_s=request.timeout_s,
                hang_timeout_s=request.hang_timeout_s,
                probes=False,
                extra={"reference": True},
            )
        if not missing:
            return
        for request in missing.values():
            shutil.rmtree(request.folder, ignore_errors=True)  # half-made by a run that was killed
            request.folder.mkdir(parents=True)
        executor.run(list(missing.values()), lambda _: None, self._keep)

    def judge(self, row: Row) -> None:
        """Add to a trial's row what the comparison says: `oracles.numerics`, and the label where it differs."""
        if row["outcome"] in ("skipped", "setup_error", "interrupted", "out_of_memory") or not row["workers"]:
            return
        scenario = row["scenario"]
        known = self._known.get(str(row.get("reference", "")))
        oracles = row.setdefault("oracles", {})
        if known is None or isinstance(known, str):
            oracles["numerics"] = f"unavailable: {known or 'no reference was run'}"
            return
        found = differences(
            row["workers"], known, dtype=self._dtype, synchronised=scenario["replicas"] == "synchronised"
        )
        oracles["numerics"] = "ok" if not found else "; ".join(str(difference) for difference in found)
        if found:
            row["outcomes"] = [label for label in row["outcomes"] if label != OK] + ["numerics"]
            row["outcome"] = row["outcomes"][0]
            row["reason"] = row["reason"] or str(found[0])

    def key_of(self, request: TrialRequest) -> str:
        """The reference that a trial is held against, for its row."""
        return reference_key(request.scenario, request.pipeline)

    def _load(self, key: str) -> bool:
        """A reference of an earlier part of this run."""
        result = self._base / key / "result.json"
        if not result.exists():
            return False
        self._take(key, json.loads(result.read_text(encoding="utf-8")))
        return True

    def _keep(self, row: Row) -> None:
        self._take(row["trial"].removeprefix("reference-"), row)

    def _take(self, key: str, document: Mapping[str, Any]) -> None:
        if document["outcome"] == OK:
            self._known[key] = document["workers"]
        else:
            self._known[key] = f"the reference itself ended as {document['outcome']}: {document.get('reason', '')}"
