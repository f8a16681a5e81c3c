"""What a bisection is to find out: the scenarios, the strategies or versions, and the numbers of the test.

It is kept in `bisect.json` of the run folder, so that `--resume` asks the same again.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from harness.analysis.intervals import P_MIN, trials_for_safe
from harness.analysis.order import strategy_order
from harness.control import matrices, results
from harness.control.session import select
from harness.core.axes import axis_named, coerce
from harness.core.errors import MatrixError, RunFolderError, UserError
from harness.core.lockspec import NAMES
from harness.core.matrix import load_matrix
from harness.core.scenario import Scenario
from harness.core.schedulespec import PORTFOLIO, parse_schedule

What = Literal["locks", "regions", "torch"]
SCHEMA = 1
QUESTION = results.BISECTION
ALPHA = 0.05
MOST_TRIALS = 2_000
"""More trials of one certification than this are a mistyped p_min or alpha."""
LEAST_SHARE = 1e-6

FAMILIES = tuple(f"delays:*:{setting}" for setting in PORTFOLIO)
"""The amplifying schedules: seeded delays, of each setting, with another seed in each trial."""


@dataclass(frozen=True)
class Asked:
    """What the user said; None where nothing."""

    what: What
    target: str | None = None
    only: str | None = None
    locks: str | None = None
    p_min: float | None = None
    alpha: float | None = None
    thorough: bool = False
    portfolio: bool | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class Question:
    """`contexts`: the scenarios without their locks; `locks`: cheapest first. Times are seconds."""

    what: What
    target: str
    contexts: tuple[Scenario, ...]
    locks: tuple[str, ...]
    p_min: float = P_MIN
    alpha: float = ALPHA
    thorough: bool = False
    portfolio: tuple[str, ...] = ()
    pipeline: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    hang_timeout_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """For `bisect.json`."""
        document = {"schema": SCHEMA, **dataclasses.asdict(self)}
        return {**document, "contexts": [context.to_dict() for context in self.contexts]}

    def matrix_text(self) -> str:
        """A matrix file with what can be run: every scenario under every lock. `harness run` and `report` read it."""
        lines = [f"# harness bisect {self.what} {self.target}", "schema = 1"]
        limits = {"timeout": self.timeout_s, "hang_timeout": self.hang_timeout_s}
        if any(limits.values()):
            lines += ["", "[defaults]", *(f"{key} = {value!r}" for key, value in limits.items() if value is not None)]
        if self.pipeline:
            lines += ["", "[pipeline]", *(f"{key} = {_toml(value)}" for key, value in self.pipeline.items())]
        default = Scenario()
        for context in self.contexts:
            axes = {name: value for name, value in context.to_dict().items() if name != "lock"}
            lines += ["", "[[include]]", f"lock = {_toml(list(self.locks))}"]
            lines += [f"{name} = {_toml(value)}" for name, value in axes.items() if value != default.value(name)]
        return "\n".join(lines) + "\n"


def make_question(asked: Asked) -> Question:
    """Read the target and check the numbers. Raises UserError: any of it cannot be."""
    p_min, alpha = _share("--p-min", asked.p_min, P_MIN), _share("--alpha", asked.alpha, ALPHA)
    _check_length(p_min, alpha)
    check_options(asked)
    target = asked.target or matrices.DEFAULT
    scenarios, pipeline, limits = _read_target(target, asked.only)
    contexts = tuple(dict.fromkeys(scenario.replace(lock="none") for scenario in scenarios))
    if asked.what == "torch":
        if len(scenarios) != 1:
            raise UserError(f"{target} has {len(scenarios)} scenarios; bisect torch takes one: choose it with --only")
        contexts, locks = (scenarios[0],), [scenarios[0].lock]
    elif asked.what == "regions":
        locks = ["none"]
    else:
        locks = list(strategy_order(_locks(asked.locks, scenarios)).names)
    own = {context.schedule for context in contexts}
    if asked.portfolio and own != {"none"}:
        raise UserError("--portfolio: the scenarios have a schedule of their own; leave the one or the other out")
    return Question(
        what=asked.what,
        target=target,
        contexts=contexts,
        locks=tuple(locks),
        p_min=p_min,
        alpha=alpha,
        thorough=asked.thorough,
        portfolio=FAMILIES if asked.portfolio is not False and asked.what != "torch" and own == {"none"} else (),
        pipeline=pipeline,
        timeout_s=asked.timeout_s or limits[0],
        hang_timeout_s=limits[1],
    )


def check_options(asked: Asked) -> None:
    """Raises UserError for an option that this kind of bisection has no use for."""
    if asked.locks is not None and asked.what == "torch":
        raise UserError("--locks: bisect torch asks about one scenario; write its lock into the scenario")
    if asked.locks is not None and asked.what == "regions":
        raise UserError("--locks: bisect regions tries sets of regions; leave the option out, or use bisect locks")
    if asked.thorough and asked.what != "locks":
        raise UserError(f"--thorough: it is for bisect locks; bisect {asked.what} leaves nothing cheaper open anyway")
    if asked.portfolio and asked.what == "torch":
        raise UserError("--portfolio: bisect torch runs the scenario's own schedule; leave the option out")


def resume_question(folder: Path, asked: Asked) -> Question:
    """The question that was begun in a folder. What the user says again must be the same; `thorough` may be added.

    Raises RunFolderError: no bisection was begun there, or another one.
    """
    check_options(asked)
    before = read_question(folder)
    if before.what != asked.what:
        raise RunFolderError(
            f"{folder} holds a bisection of {before.what}; resume it with harness bisect {before.what}"
        )
    for option, value, earlier in (
        ("--p-min", asked.p_min, before.p_min),
        ("--alpha", asked.alpha, before.alpha),
        ("--timeout", asked.timeout_s, before.timeout_s),
    ):
        if value is not None and value != earlier:
            raise RunFolderError(f"{folder} was begun with {option} {earlier}, not {value}; choose another --out")
    if asked.portfolio is not None and asked.portfolio != bool(before.portfolio):
        begun = "with" if before.portfolio else "without"
        raise RunFolderError(f"{folder} was begun {begun} the portfolio; leave the option out, or choose another --out")
    if asked.target is not None or asked.only is not None or asked.locks is not None:
        again = make_question(dataclasses.replace(asked, target=asked.target or before.target))
        if (again.contexts, again.locks, again.pipeline) != (before.contexts, before.locks, before.pipeline):
            raise RunFolderError(
                f"{folder} was begun with other scenarios or strategies: resume without naming any, or choose another --out"
            )
    return dataclasses.replace(before, thorough=before.thorough or asked.thorough)


def read_question(folder: Path) -> Question:
    """The question of a folder. Raises RunFolderError: there is none, it is damaged, or a newer harness wrote it."""
    file = folder / QUESTION
    try:
        document = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise RunFolderError(f"{folder} holds no bisection to resume") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"cannot read {file}: {error}") from error
    if not isinstance(document, dict) or document.pop("schema", None) != SCHEMA:
        raise RunFolderError(f"{file} was not written by this version of the harness; choose another --out")
    for extra in ("answer", "pythons"):
        document.pop(extra, None)
    try:
        contexts = tuple(Scenario.from_dict(axes) for axes in document.pop("contexts"))
        locks, portfolio = (tuple(document.pop(key)) for key in ("locks", "portfolio"))
        question = Question(contexts=contexts, locks=locks, portfolio=portfolio, **document)
        _check_types(question)
        return question
    except (KeyError, TypeError, AttributeError, MatrixError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise RunFolderError(f"{file} is not what a bisection wrote ({what}); choose another --out") from error


def _check_types(question: Question) -> None:
    """Raises TypeError: a field is not of the type that a bisection writes."""
    number = (float, int)
    for name, kinds in (
        ("target", str),
        ("p_min", number),
        ("alpha", number),
        ("thorough", bool),
        ("pipeline", dict),
        ("timeout_s", (*number, type(None))),
        ("hang_timeout_s", (*number, type(None))),
    ):
        if not isinstance(getattr(question, name), kinds):
            raise TypeError(f"{name} is {getattr(question, name)!r}")
    if question.what not in get_args(What) or not question.contexts:
        raise TypeError(f"what is {question.what!r}, of {len(question.contexts)} scenarios")
    if not all(isinstance(one, str) for one in (*question.locks, *question.portfolio)):
        raise TypeError("locks or portfolio are no texts")


def _read_target(
    target: str, only: str | None
) -> tuple[tuple[Scenario, ...], Mapping[str, Any], tuple[float | None, float | None]]:
    if "=" in target and not os.path.exists(target):
        if only is not None:
            raise UserError("--only chooses from a matrix; a scenario is written out, so leave it out")
        return (parse_scenario(target),), {}, (None, None)
    matrix = load_matrix(matrices.find_matrix(target))
    return select(matrix, only), matrix.pipeline, (matrix.timeout_s, matrix.hang_timeout_s)


def parse_scenario(text: str) -> Scenario:
    """`shapes=per_drafter,checkpoint=reentrant` → the scenario. Raises UserError: no such axis or value."""
    axes: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise UserError(f'scenario "{text}": "{part.strip()}" is no axis=value')
        if name in axes:
            raise UserError(f'scenario "{text}": axis "{name}" is given twice')
        whole = axis_named(name).kind == "int" and value.lstrip("-").isdigit()
        axes[name] = coerce(name, int(value) if whole else value)
    scenario = Scenario.from_dict(axes)
    parse_schedule(scenario.schedule)
    return scenario


def _locks(given: str | None, scenarios: Sequence[Scenario]) -> list[str]:
    if given is not None:
        return [str(coerce("lock", name.strip())) for name in given.split(",") if name.strip()]
    varied = list(dict.fromkeys(scenario.lock for scenario in scenarios))
    return varied if len(varied) > 1 else list(NAMES)


def _share(option: str, value: float | None, default: float) -> float:
    if value is None:
        return default
    if not 0 < value < 1:
        raise UserError(f"{option} {value:g}: it is a share between 0 and 1, such as {default}")
    if value < LEAST_SHARE:
        raise UserError(f"{option} {value:g}: no number of trials tells it from 0; take {LEAST_SHARE:g} or more")
    return value


def _check_length(p_min: float, alpha: float) -> None:
    trials = trials_for_safe(p_min, 1 - alpha)
    if trials > MOST_TRIALS:
        raise UserError(f"--p-min {p_min:g} with --alpha {alpha:g} takes {trials:,} trials to call one strategy safe")


def _toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
