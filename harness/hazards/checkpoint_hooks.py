"""What an exception inside a checkpoint leaves behind."""

from __future__ import annotations

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards.base import Hazard, Signature

_STEPS = [Step("A", "mark.failed"), Step("B", "mark.inside")]
_DROPPED_AT_ONCE = Counterfactual(settings={"drop": "here"})

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="checkpoint-hooks-astray",
        title="a failed checkpoint's hooks are popped off another thread",
        versions="<2.13",
        needs="cpu",
        window="A raised inside a non-reentrant checkpoint (an FX error, say), whose hooks stay on A's stack for as long as "
        "the exception's traceback is kept",
        access="B drops the exception, or its garbage collector does, while it is inside a checkpoint of its own",
        effect='B fails with "is_initialized && !tls.stack.empty() INTERNAL ASSERT FAILED" in SavedTensorHooks.cpp, though it '
        'did nothing wrong; A, if it goes on, recomputes what failed, or reports "A different number of tensors was saved", at '
        "every later step",
        remedy="Drop a failed step's exception with its traceback on the thread that raised it, before that thread takes "
        "another step (keep its text, not the object); or use torch 2.13, which closes the checkpoint of a function that "
        "raises.",
        signature=Signature(
            errors=(
                r"tls\.stack\.empty\(\) INTERNAL ASSERT FAILED.*SavedTensorHooks\.cpp",
                r"CheckpointError: torch\.utils\.checkpoint: A different number of tensors was saved",
            ),
            frames=("checkpoint",),
        ),
        program=Case(
            "checkpoint-hooks-astray",
            "one thread's exception, dropped inside another's checkpoint",
            Scenario(workload="harness.subject.programs.checkpoint_hooks:HooksAstray"),
            Plan({"A": "failing", "B": "bystander"}, steps=_STEPS, counterfactual=_DROPPED_AT_ONCE),
            Effect(labels=("error",), text="SavedTensorHooks.cpp"),
        ),
        elsewhere="as a consequence only: a drafter must fail first, which is another hazard's doing (seen on H200s after "
        "every FX error under a non-reentrant checkpoint)",
        reference=("pytorch/pytorch#184018",),
        found={"2.11": "20/20, counterfactual 0/20", "2.13": "0/3: harmless"},
    ),
)
