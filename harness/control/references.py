"""References of a run: one process a configuration, run beside the trials that are held against it, and kept.

A reference lives in `references/<key>/` of the run folder, laid out like a trial. It is no trial: it has no row, and no
count of it enters any statistic. A trial's row needs it only when it is judged, so it may come after the trial.

A trial whose losses leave those of its reference is in doubt: on a GPU two honest runs differ, too. Then, and only then, the
reference is run a second time, once a configuration, in `references/<key>-again/`; and what that does not settle is put to two
more (`-again2`, `-again3`). They are handled as any other reference.

On CUDA each of the further runs starts from weights that are off by one rounding (`Nudges`): equal ones would choose the same
kernels, having the device to themselves, and agree to the bit, whatever trials with several streams do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.analysis.drift import REFERENCES, Workers
from harness.analysis.numerics import (
    Difference,
    agreement,
    compared,
    differences,
    reference_key,
    reference_scenario,
    unsettled,
)
from harness.core.outcome import OK
from harness.core.scenario import Scenario

from .request import Executor, Row, TrialRequest

FOLDER = "references"
LABEL = "numerics"
PREFIX = "reference-"
AGAIN = "-again"
"""What the key of a reference's second run has more than that of its first."""
FURTHER = (AGAIN, *(f"{AGAIN}{number}" for number in range(2, REFERENCES)))
"""Likewise of all its further runs."""


class References:
    """The references of one run folder."""

    def __init__(self, run_dir: Path, dtype: str) -> None:
        self._base = run_dir / FOLDER
        self._dtype = dtype
        self._known: dict[str, Workers | str] = {}  # workers of the result, or how it ended without being one
        self._still: set[str] = set()  # keys of those whose further runs nothing could nudge

    def firsts(self, requests: Iterable[TrialRequest]) -> dict[str, TrialRequest]:
        """By key, in the order of the trials: the references that these are held against at first."""
        return {self.key_of(request): request for request in requests}

    def claim(self, needs: Mapping[str, TrialRequest], *, wait: bool = False) -> dict[str, TrialRequest]:
        """By key: those of these references that are not there yet. `needs` has for each a trial that is held against it.

        The caller runs them and hands each row to `ended`. Where several processes share a run folder, one that another
        makes is left out, or with `wait` waited for: it is known then, or handed to the caller if the other left none.
        """
        claimed: dict[str, TrialRequest] = {}
        for key, request in needs.items():
            if key in self._known or self._load(key) or not self._own(key, wait):
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
                extra={"reference": True, **_nudged(key, request.scenario)},
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

    def prepare(self, needs: Mapping[str, TrialRequest], executor: Executor) -> None:
        """Have these references, and run nothing beside them."""
        try:
            if claimed := self.claim(needs):
                executor.run(list(claimed.values()), lambda _: None, self.ended)
            for key, request in needs.items():  # one at a time: nobody waits for another while he keeps one back
                if claimed := self.claim({key: request}, wait=True):
                    executor.run(list(claimed.values()), lambda _: None, self.ended)
        finally:
            self.release()

    def knows(self, key: str) -> bool:
        """Whether that reference has come, or ended without being one: what waits for it can be judged."""
        return key in self._known

    def awaited(self, row: Row) -> tuple[str, ...]:
        """Keys of the references that a trial's row waits for: it cannot be judged yet; none where it can.

        One that tells no losses needs no reference, one that agrees with the first no second, and one that two settle no more.
        """
        key = str(row.get("reference", ""))
        if not _tells_losses(row):
            return ()
        if not self.knows(key):
            return (key,)
        if not self._differences(row):
            return ()
        if not self.knows(key + AGAIN):
            return (key + AGAIN,)
        others, _ = self._others(row)
        found = self._differences(row, others)
        if not others or any(one.at_once for one in found) or not any(one.in_doubt or one.stands for one in found):
            return ()
        return tuple(key + more for more in FURTHER if not self.knows(key + more))

    def judge(self, row: Row) -> None:
        """Add to a trial's row what the comparison says: `oracles.numerics`, and the label where it differs.

        A difference that is not settled, as further runs of the reference have not come or were none, is told as one: its text
        says so.
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
        others, why = self._others(row) if self._differences(row) else ([], "")
        found = self._differences(row, others)
        if not found:
            oracles["numerics"] = agreement(
                row["workers"], known, dtype=self._dtype, synchronised=_synchronised(row), others=others
            )
            return
        standing = [one for one in found if one.stands]
        beyond = "" if standing else unsettled(found, why)
        oracles["numerics"] = "; ".join(map(str, standing or found)) + beyond
        row["outcomes"] = list(dict.fromkeys([*(label for label in row["outcomes"] if label != OK), LABEL]))
        row["outcome"] = row["outcomes"][0]
        row["reason"] = row["reason"] or str((standing or found)[0]) + beyond

    def _differences(self, row: Row, others: Sequence[Workers] = ()) -> list[Difference]:
        known = self._known[str(row["reference"])]
        if isinstance(known, str):
            return []
        return differences(
            row["workers"],
            known,
            dtype=self._dtype,
            synchronised=_synchronised(row),
            others=others,
            still=row["reference"] in self._still,
        )

    def _others(self, row: Row) -> tuple[list[Workers], str]:
        """The further runs of a row's reference that there are; and why the first that is missing is."""
        key = str(row["reference"])
        first = self._known[key]
        others: list[Workers] = []
        missing: list[str] = []
        for more in FURTHER:
            time = "a second time" if more == AGAIN else "once more"
            if not self.knows(key + more):
                self._load(key + more)  # of an earlier part of this run, asked for by another trial
            found = self._known.get(key + more, f"did not come to an end {time}")
            if isinstance(found, str):
                missing.append(f"it {found}")
            elif isinstance(first, str) or not compared(found, first, synchronised=_synchronised(row)):
                missing.append(f"its {'second' if more == AGAIN else 'further'} run told no loss to compare")
            else:
                others.append(found)
        return others, missing[0] if missing else ""

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
        if document.get("facts", {}).get("nudged") is False:
            self._still.add(key.partition(AGAIN)[0])
        if document["outcome"] == OK:
            self._known[key] = document["workers"]
        else:
            why = document.get("reason")
            self._known[key] = f"ended as {document['outcome']}" + (f": {why}" if why else "")


def _nudged(key: str, scenario: Scenario) -> dict[str, int]:
    """What a further run of a reference on CUDA is told: which of them it is, from 1 on."""
    further = next((number for number, more in enumerate(FURTHER, start=1) if key.endswith(more)), 0)
    return {"nudged": further} if further and "cuda" in scenario.devices else {}


def _tells_losses(row: Row) -> bool:
    return row["outcome"] not in ("skipped", "setup_error", "interrupted", "out_of_memory") and bool(row["workers"])


def _synchronised(row: Row) -> bool:
    return bool(row["scenario"]["replicas"] == "synchronised")
