"""A run folder in which everything that comes from outside is an attack on the page that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fake_events import write_events
from fake_folder import ENVIRONMENT, write_folder
from fake_runs import row

from harness.core.scenario import Scenario

ATTACKS = (
    "<script>document.title='pwned'</script>",
    "</script><script>document.title='pwned'</script>",
    "</pre></style></title><img src=x onerror=\"document.title='pwned'\">",
    "\"'><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "\x1b[31m\0\x07\u202e\ud800",
    "<!-- -->]]>&amp;&lt;",
)


def hostile_rows(attack: str) -> list[dict[str, Any]]:
    """Every text of a row that comes from outside."""
    error = {
        "label": "fx_error",
        **dict.fromkeys(("type", "message", "fingerprint", "worker", "thread", "region", "traceback"), attack),
        "step": 1,
        "at_s": 0.007,
        "tracers": [dict.fromkeys(("thread", "worker", "region", "stack"), attack)],
    }
    workers = {attack: {"dense_calls": 3, "facts": {"first_dense_stack": attack}}}
    event = {"t": 1, "th": attack, "w": attack, "k": attack, attack: attack}
    return [
        row(Scenario(), 0, "fx_error", errors=[error], workers=workers, dense_calls=3, torch=attack, python=attack),
        row(Scenario(), 1, "hang", reason=attack, last_events=[event], exit={"signal": attack, "how": attack}),
        row(Scenario(), 2, "no_grad", problems=[{"label": attack, "text": attack}], oracles={attack: attack}),
        row(
            Scenario(),
            3,
            probes={attack: f"unavailable: {attack}", "x": "off"},
            oracles={"a": f"unavailable: {attack}"},
        ),
        {**row(Scenario(lock="per_call"), 0, "skipped", reason=attack), "trial": attack},
        {**row(Scenario(lock="first_step"), 0), "outcomes": [attack]},
    ]


def hostile_environment(attack: str) -> dict[str, Any]:
    return {
        **{key: attack if isinstance(value, str) else value for key, value in ENVIRONMENT.items()},
        "command": ["harness", attack],
        "variables": {attack: attack},
        "gpus": [{"name": attack, "driver": attack}],
        "options": {"matrix": attack, attack: attack},
    }


def hostile_events(attack: str) -> list[dict[str, Any]]:
    """A log in which every name and every text is the attack."""
    kinds = {"region.enter": "r", "strategy_lock.acquired": "lock", "compile.start": "what", "wait.enter": "what"}
    events: list[dict[str, Any]] = [
        {"t": at * 1_000_000, "k": kind, key: attack} for at, (kind, key) in enumerate(kinds.items(), start=1)
    ]
    events += [
        {"t": 5_000_000, "k": "memory", "d": attack, "a": 5, "r": 6},
        {"t": 6_000_000, "k": "flag.checked", "answer": True, "tracers": attack},
        {"t": 7_000_000, "k": "hang", "why": attack},
        {"t": 8_000_000, "k": attack, attack: attack},
    ]
    return [{"th": attack, "id": 1, "w": attack, **event} for event in events]


def hostile_folder(path: Path, attack: str) -> Path:
    """A run folder in which everything that can be is this text."""
    reason = json.dumps("".join(sign for sign in attack if sign.isprintable()))
    expect = f'[[expect]]\nwhere = "lock=none"\nmust = ["ok"]\nreason = {reason}\n'
    matrix = f'schema = 1\n[axes]\nlock = ["none", "per_call"]\n{expect}'
    write_folder(path, hostile_rows(attack), matrix=matrix, environment=hostile_environment(attack))
    for trial in ("default--r0", "default--r1", "default--r3"):
        write_events(path, trial, hostile_events(attack))
    folder = path / "trials" / "default--r1"
    (folder / "stacks.txt").write_bytes(attack.encode("utf-8", "surrogatepass") + b"\xff\xfe")
    return path
