"""A comparison as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.analysis.versus import TESTS, RunComparison, ScenarioComparison
from harness.report.comparison import sentence
from harness.report.facts import where
from harness.report.rundata import RunData


def to_json(found: RunComparison, before: RunData, after: RunData) -> dict[str, Any]:
    """The document of `compare --json`."""
    return {
        "before": _run(before),
        "after": _run(after),
        "sentence": sentence(found),
        "alpha": found.alpha,
        "correction": "Holm",
        "tests_counted": found.family,
        "fairness": dataclasses.asdict(found.fair),
        "scenarios": [_scenario(item) for item in found.scenarios],
        "only_before": [{"id": one.scenario_id, "near": one.near} for one in found.only_before],
        "only_after": [{"id": one.scenario_id, "near": one.near} for one in found.only_after],
        "exit_code": found.exit_code,
    }


def _scenario(item: ScenarioComparison) -> dict[str, Any]:
    tests = []
    for test in item.tests:
        ratio = test.found.ratio
        document: dict[str, Any] = {
            "measure": test.measure,
            "test": TESTS[test.measure],
            "word": test.found.word,
            "told": test.told,
            "p": test.found.p,
            "p_adjusted": test.adjusted,
            "could_tell": test.could_tell,
            "at_odds": test.found.at_odds,
            "unfair": test.unfair,
            "ratio": None if ratio is None else {"value": ratio.value, "low": ratio.low, "high": ratio.high},
        }
        tests.append(document)
    counts = {
        side: {"failures": of.counts.failures, "trials": of.counts.trials}
        for side, of in (("before", item.before), ("after", item.after))
    }
    return {
        "id": item.scenario_id,
        "scenario": dict(item.scenario),
        "word": item.word,
        "why_not": item.why_not,
        **counts,
        "tests": tests,
    }


def _run(data: RunData) -> dict[str, str]:
    return {"run_dir": str(data.source.path.resolve()), "torch": data.torches, "where": where(data.environment)}
