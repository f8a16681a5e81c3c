"""References of a run: one process a configuration, run beside the trials that are held against it, and kept.

A reference lives in `references/<key>/` of the run folder, laid out like a trial. It is no trial: it has no row, and no
count of it enters any statistic. A trial's row needs it only when it is judged, so it may come after the trial.

A trial whose losses leave those of its reference is in doubt: on a GPU two honest runs differ, too. Then, and only then, the
reference is run a second time, once a configuration, in `references/<key>-again/`; it is handled as any other reference.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.analysis.numerics import (
    NOT_AGAIN,
    Difference,
    Workers,
    agreement,
    compared,
    differences,
    reference_key,
    reference_scenario,
)
from harness.core.outcome import OK

from .request import Executor, Row, TrialRequest

FOLDER = "references"
LABEL = "numerics"
PREFIX = "reference-"
AGAIN = "-again"
"""What the key of a reference's second run has more than that of its first."""


class References:
    """The references of one run folder."""

    def __init__(self, run_dir: Path, dtype: str) -> None:
        self._base = run_dir / FOLDER
        self._dtype = dtype
        self._known: dict[str, Workers | str] = {}  # workers of the result, or how it ended without being one

    def claim(
        self, requests: Iterable[TrialRequest], *, again: bool = False, wait: bool = False
    ) -> dict[str, TrialRequest]:
        """By key, in the order of the trials: the references that these need and that are not there yet.

        With `again` their second runs: `requests` are trials in doubt.

        The caller runs them and hands each row to `ended`. Where several processes share a run folder, one that another
        makes is left out, or with `wait` waited for: it is known then, or handed to the caller if the other left none.
        """
        claimed: dict[str, TrialRequest] = {}
        for request in requests:
            key = self.key_of(request) + (AGAIN if again else "")
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

    def prepare(self, requests: Iterable[TrialRequest], executor: Executor, *, again: bool = False) -> None:
        """Have the references of these trials, with `again` the second runs of them, and run nothing beside them."""
        requests = list(requests)
        try:
            if claimed := self.claim(requests, again=again):
                executor.run(list(claimed.values()), lambda _: None, self.ended)
            for request in requests:  # one at a time: nobody waits for another while he keeps one back
                if claimed := self.claim([request], again=again, wait=True):
                    executor.run(list(claimed.values()), lambda _: None, self.ended)
        finally:
            self.release()

    def knows(self, key: str) -> bool:
        """Whether that reference has come, or ended without being one: what waits for it can be judged."""
        return key in self._known

    def awaited(self, row: Row) -> str:
        """Key of the reference that a trial's row waits for: it cannot be judged yet; "" where it can.

        One that tells no losses needs no reference, and one that agrees with the first no second.
        """
        key = str(row.get("reference", ""))
        if not _tells_losses(row):
            return ""
        if not self.knows(key):
            return key
        return key + AGAIN if not self.knows(key + AGAIN) and self._differences(row) else ""

    def judge(self, row: Row) -> None:
        """Add to a trial's row what the comparison says: `oracles.numerics`, and the label where it differs.

        A difference stands, too, where the reference's second run has not come or was none: its text says so.
        """
        if not _tells_losses(row):
            return
        key = str(row.get("reference", ""))
        known = self._known.get(key)
        oracles = row.setdefault("oracles", {})
        if known is None or isinstance(known, str):
            why = "no reference was run" if known is None else f"the reference itself {known}"
            oracles["numerics"] = f"unavailable: {why}"
            return
        if not compared(row["workers"], known, synchronised=_synchronised(row)):
            oracles["numerics"] = "unavailable: no loss to compare"
            return
        again, why = self._again(row, known) if self._differences(row) else (None, "")
        found = self._differences(row, again)
        if not found:
            oracles["numerics"] = agreement(
                row["workers"], known, dtype=self._dtype, synchronised=_synchronised(row), again=again
            )
            return
        unsettled = f"; {NOT_AGAIN}: {why}" if again is None else ""
        oracles["numerics"] = "; ".join(map(str, found)) + unsettled
        row["outcomes"] = list(dict.fromkeys([*(label for label in row["outcomes"] if label != OK), LABEL]))
        row["outcome"] = row["outcomes"][0]
        row["reason"] = row["reason"] or str(found[0]) + unsettled

    def _differences(self, row: Row, again: Workers | None = None) -> list[Difference]:
        known = self._known[str(row["reference"])]
        if isinstance(known, str):
            return []
        synchronised = _synchronised(row)
        return differences(row["workers"], known, dtype=self._dtype, synchronised=synchronised, again=again)

    def _again(self, row: Row, first: Workers) -> tuple[Workers | None, str]:
        """The second run of a row's reference; or None, and why there is none."""
        found = self._known.get(str(row["reference"]) + AGAIN, "did not come to an end a second time")
        if isinstance(found, str):
            return None, f"it {found}"
        if not compared(found, first, synchronised=_synchronised(row)):
            return None, "its second run told no loss to compare"
        return found, ""

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
            why = document.get("reason")
            self._known[key] = f"ended as {document['outcome']}" + (f": {why}" if why else "")


def _tells_losses(row: Row) -> bool:
    return row["outcome"] not in ("skipped", "setup_error", "interrupted", "out_of_memory") and bool(row["workers"])


def _synchronised(row: Row) -> bool:
    return bool(row["scenario"]["replicas"] == "synchronised")
