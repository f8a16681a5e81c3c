"""Beliefs that people hold about this race, each with trials that put it to the test on the torch at hand.

An answer is computed from the rows of trials, never written down. `expected` says what was seen when the belief was last
looked at, so that another answer stands out; it decides nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.errors import UserError, nearest
from harness.core.plan import Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.core.versions import parse_specifier
from harness.hazards import claim_readings as readings
from harness.hazards.claim_readings import CANNOT_TELL, DOES_NOT, Answer, Tests


@dataclass(frozen=True)
class Claim:
    """A belief and its test.

    belief    in the words of those who hold it
    known     what measurements and the sources say of it, in a sentence
    tests     name → what is run, once each
    read      evidence by name of the test → the answer
    expected  condition on torch's version → verdict; the first that fits counts
    devices   how many CUDA devices its tests take
    """

    id: str
    belief: str
    known: str
    tests: Mapping[str, Case]
    read: Callable[[Tests], Answer]
    expected: Mapping[str, str] = field(default_factory=lambda: {"": DOES_NOT})
    devices: int = 0

    def expects(self, torch: str) -> str:
        """The verdict that was seen before with such a version; "" when it was not looked at."""
        fitting = (verdict for versions, verdict in self.expected.items() if parse_specifier(versions).contains(torch))
        return next(fitting, "")


def _case(name: str, title: str, workload: str, plan: Plan | None = None, effect: Effect | None = None, **axes: Any) -> Case:
    scenario = Scenario.from_dict({"workload": f"harness.subject.programs.{workload}", **axes})
    return Case(name, title, scenario, plan or Plan(), effect or Effect(fact="effect"))


def _of_hazard(name: str, **axes: Any) -> Case:
    """The small program of a hazard with its plan, without its counterfactual."""
    from harness.hazards import find

    case = find(name).program
    plan = dataclasses.replace(case.plan, counterfactual=None)
    return dataclasses.replace(case, plan=plan, scenario=case.scenario.replace(**axes))


_FX_ERROR = Effect(labels=("fx_error",))
_BACKWARD_TRACES = Plan(
    {"A": "drafter", "B": "drafter"},
    gates=[Gate("!A", "compiled_call.enter", until="A traces")],
    steps=[
        Step("A", "compiled_call.enter"),
        Step("A", "fx.window.open", where="backward", name="A traces"),
        Step("B", "compiled_call.checked"),
        Step("A", "fx.window.closing"),
    ],
)
_WARM_MEETS_BACKWARD = Plan(
    {"B": "drafter", "A": "drafter"},
    gates=[Gate("B", "compiled_call.enter", until="A traces")],
    steps=[
        Step("B", "region.step.exit"),
        Step("A", "fx.window.open", where="backward", name="A traces"),
        Step("B", "compiled_call.checked"),
        Step("A", "fx.window.closing"),
    ],
)
_RECOMPUTE_MEETS_TRACE = Plan(
    {"B": "caller", "A": "tracer"},
    gates=[Gate("B", "compiled_call.enter", until="A traces")],
    steps=[
        Step("B", "region.backward.enter"),
        Step("A", "region.step.enter"),
        Step("A", "fx.window.open", name="A traces"),
        Step("B", "compiled_call.checked"),
        Step("A", "fx.window.closing"),
    ],
)

_UNLOCKED = _case(
    "unlocked", "no lock; one drafter's first backward meets another's call", "claims_locks:Drafters",
    _BACKWARD_TRACES, _FX_ERROR,
)  # fmt: skip


def claims() -> tuple[Claim, ...]:
    """All of them. A function, since some use the programs of hazards."""
    return (
        Claim(
            "cache-per-thread",
            "Dynamo's cache of compiled code is per thread, so each thread must compile",
            "entries hang on the code object; what differs by thread is what is guarded: grad mode, autocast, device, modes",
            {
                "shared": _case("shared", "one trains, then eight others", "claims_compiles:Shared"),
                "other lengths": _case(
                    "other-lengths", "the same, each of another length", "claims_compiles:Shared", shapes="per_drafter"
                ),
            },
            readings.checked(readings.cache),
        ),
        Claim(
            "main-warm-up-useless",
            "a warm-up on the main thread does not help worker threads",
            "it does, if device, shapes, grad mode and modes are the same",
            {
                "cold": _case("cold", "two workers, no warm-up", "claims_compiles:Warmed"),
                "warmed": _case("warmed", "a warm-up with gradient", "claims_compiles:Warmed", warmup="main_grad"),
            },
            readings.checked(readings.main_warm_up),
        ),
        Claim(
            "no-grad-warm-up-enough",
            "a warm-up without gradient is enough",
            "grad mode is guarded, so training compiles once more",
            {
                "warmed without gradient": _case(
                    "warmed-no-grad", "a warm-up without gradient", "claims_compiles:Warmed", warmup="main_no_grad"
                )
            },
            readings.checked(readings.no_grad),
        ),
        Claim(
            "attention-lock-enough",
            "locking each thread's first compiled-attention call is enough",
            "mask building, loss and backward compile too",
            {
                "unlocked": _UNLOCKED,
                "per_call": _case(
                    "per-call", "a lock around each first attention call", "claims_locks:Drafters",
                    _BACKWARD_TRACES, _FX_ERROR, lock="per_call",
                ),
            },
            readings.checked(readings.lock("per_call", "with a lock around each thread's first attention call")),
            {"<2.14": DOES_NOT, "": CANNOT_TELL},
        ),
        Claim(
            "non-reentrant-safe",
            "use_reentrant=False avoids the error",
            "a recompute calls compiled code with either",
            {
                kind: _case(
                    kind, "a trace meets a recompute", "fx_flag:Recompute", _RECOMPUTE_MEETS_TRACE, _FX_ERROR, checkpoint=kind
                )
                for kind in ("non_reentrant", "reentrant")
            },
            readings.checked(readings.reentrant),
            {"<2.14": DOES_NOT, "": CANNOT_TELL},
        ),
        Claim(
            "first-step-lock-enough",
            "locking each thread's whole first forward and backward is enough",
            "only while all threads share one compile: other shapes, devices or code objects bring another",
            {
                "unlocked": _UNLOCKED,
                "first_step": _case(
                    "first-step", "a lock around each first step, two static shapes", "claims_locks:Drafters",
                    _WARM_MEETS_BACKWARD, _FX_ERROR, lock="first_step", shapes="per_drafter",
                ),
            },
            readings.checked(readings.lock("first_step", "in a warm thread, against another's locked first backward")),
            {"<2.14": DOES_NOT, "": CANNOT_TELL},
        ),
        Claim(
            "safe-after-first",
            "after the first iteration all threads run at full speed, unlocked and safe",
            "not when shapes, devices or grad modes bring another compile",
            {
                "one length": _case("one-length", "three steps of one length", "claims_compiles:Later"),
                "new lengths": _case(
                    "new-lengths", "three steps, each of another length", "claims_compiles:Later", shapes="variable"
                ),
            },
            readings.checked(readings.later),
        ),
        Claim(
            "dense-is-loud",
            "attention that falls back to dense raises or warns",
            "only the first such call of a process may warn, and that can be lost",
            {"past the limit": _case("past-the-limit", "more lengths than Dynamo keeps", "claims_dense:PastTheLimit")},
            readings.checked(readings.dense),
        ),
        Claim(
            "newer-fixes-it",
            "a newer torch fixes it",
            "the error goes (2.13 masks it, 2.14 isolates it); the deadlock of the compile lock with autograd's thread, "
            "rewound generators and a stance that holds everywhere stay",
            {
                "the error": _UNLOCKED,
                "compile-lock-engine-deadlock": _of_hazard("compile-lock-engine-deadlock"),
                "rng-rewind": _of_hazard("rng-rewind"),
                "stance-leak": _of_hazard("stance-leak"),
            },
            readings.checked(readings.newer),
            {"<2.13": CANNOT_TELL, "": DOES_NOT},
        ),
        Claim(
            "one-lock-for-cuda-graphs",
            "one big lock makes CUDA graphs safe",
            "not with two devices: the trees of a device live in thread-local storage that other threads do not have",
            {
                "every step locked": Case(
                    "every-step-graphs",
                    "CUDA-graph trees on two devices, one lock around every step",
                    Scenario.from_dict(
                        {
                            "lock": "every_step", "cudagraphs": "trees", "devices": "cuda:0+cuda:1",
                            "drafters": 4, "steps": 4,
                        }
                    ),
                    Plan(),
                    Effect(labels=("cudagraph_tls", "error")),
                )
            },
            readings.checked(readings.big_lock),
            {"<2.13": DOES_NOT},
            devices=2,
        ),
    )  # fmt: skip


def find_claims(names: list[str]) -> list[Claim]:
    """Those of these ids, in the order of the catalogue; all for none. Raises UserError naming the nearest."""
    known = {claim.id: claim for claim in claims()}
    for name in names:
        if name not in known:
            raise UserError(f'no claim is called "{name}"{nearest(name, known) or "; harness claims --help"}')
    return [claim for claim in known.values() if not names or claim.id in names]
