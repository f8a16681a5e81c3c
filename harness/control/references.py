"""References of a run: one process a configuration, run beside the trials that are held against it, and kept.

A reference lives in `references/<key>/` of the run folder, laid out like a trial. It is no trial: it has no row, and no
count of it enters any statistic. A trial's row needs it only when it is judged, so it may come after the trial.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.analysis.numerics import compared, differences, reference_key, reference_scenario
from harness.core.outcome import OK

from .request import Executor, Row, TrialRequest

FOLDER = "references"
PREFIX = "reference-"


class References:
    """The references of one run folder."""

    def __init__(self, run_dir: Path, dtype: str) -> None:
        self._base = run_dir / FOLDER
        self._dtype = dtype
        self._known: dict[str, Mapping[str, Any] | str] = {}  # workers of the result, or why there is none

    def claim(self, requests: Iterable[TrialRequest], *, wait: bool = False) -> dict[str, TrialRequest]:
        """By key, in the order of the trials: the references that these need and that are not there yet.

        The caller runs them and hands each row to `ended`. Where several processes share a run folder, one that another
        makes is left out, or with `wait` waited for: it is known then, or handed to the caller if the other left none.
        """
        claimed: dict[str, TrialRequest] = {}
        for request in requests:
            key = self.key_of(request)
            if key in self._known or key in claimed or self._load(key) or not self._own(key, wait):
                continue
            folder = self._base / key
            shutil.rmtree(folder, ignore_errors=True)  # half-made by a run that was killed
            folder.mkdir(parents=True)
            claimed[key] = TrialRequest(
                trial_id=f"{PREFIX}{key}",
                scenario=reference_scenario(request.scenario),
                repeat=0,
                folder=folder,
                pipeline=request.pipeline,
                timeout_s=request.timeout_s,
                hang_timeout_s=request.hang_timeout_s,
                probes=False,
                extra={"reference": True},
            )
        return claimed

    def ended(self, row: Row) -> None:
        """A reference that was claimed has ended. One that was interrupted says nothing: it is still to be made."""
        if row["outcome"] != "interrupted":
            self._take(row["trial"].removeprefix(PREFIX), row)

    def abandon(self, request: TrialRequest) -> None:
        """A reference that was claimed is not made: nothing is held against it any more."""
        shutil.rmtree(request.folder)

    def release(self) -> None:
        """Nothing that was claimed is run any more."""

    def prepare(self, requests: Iterable[TrialRequest], executor: Executor) -> None:
        """Have the references of these trials, and run nothing beside them."""
        requests = list(requests)
        try:
            if claimed := self.claim(requests):
                executor.run(list(claimed.values()), lambda _: None, self.ended)
            for request in requests:  # one at a time: nobody waits for another while he keeps one back
                if claimed := self.claim([request], wait=True):
                    executor.run(list(claimed.values()), lambda _: None, self.ended)
        finally:
            self.release()

    def knows(self, key: str) -> bool:
        """Whether that reference has come, or ended without being one: what waits for it can be judged."""
        return key in self._known

    def awaits(self, row: Row) -> bool:
        """Whether a trial's row cannot be judged yet. One that tells no losses needs no reference."""
        return _tells_losses(row) and not self.knows(str(row.get("reference", "")))

    def judge(self, row: Row) -> None:
        """Add to a trial's row what the comparison says: `oracles.numerics`, and the label where it differs."""
        if not _tells_losses(row):
            return
        scenario = row["scenario"]
        known = self._known.get(str(row.get("reference", "")))
        oracles = row.setdefault("oracles", {})
        if known is None or isinstance(known, str):
            oracles["numerics"] = f"unavailable: {known or 'no reference was run'}"
            return
        synchronised = scenario["replicas"] == "synchronised"
        if not compared(row["workers"], known, synchronised=synchronised):
            oracles["numerics"] = "unavailable: no loss to compare"
            return
        found = differences(row["workers"], known, dtype=self._dtype, synchronised=synchronised)
        oracles["numerics"] = "ok" if not found else "; ".join(str(difference) for difference in found)
        if found:
            row["outcomes"] = [label for label in row["outcomes"] if label != OK] + ["numerics"]
            row["outcome"] = row["outcomes"][0]
            row["reason"] = row["reason"] or str(found[0])

    def key_of(self, request: TrialRequest) -> str:
        """The reference that a trial is held against, for its row."""
        return reference_key(request.scenario, request.pipeline)

    def key_of_reference(self, request: TrialRequest) -> str:
        """Which one a claimed request makes."""
        return request.trial_id.removeprefix(PREFIX)

    def _load(self, key: str) -> bool:
        """A reference of an earlier part of this run."""
        result = self._base / key / "result.json"
        if not result.exists():
            return False
        self._take(key, json.loads(result.read_text(encoding="utf-8")))
        return True

    def _own(self, key: str, wait: bool) -> bool:
        """Whether this process is to make that reference, which is not there yet."""
        del key, wait
        return True

    def _take(self, key: str, document: Mapping[str, Any]) -> None:
        if document["outcome"] == OK:
            self._known[key] = document["workers"]
        else:
            self._known[key] = f"the reference itself ended as {document['outcome']}: {document.get('reason', '')}"


def _tells_losses(row: Row) -> bool:
    return row["outcome"] not in ("skipped", "setup_error", "interrupted", "out_of_memory") and bool(row["workers"])
