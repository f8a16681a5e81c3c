"""What the catalogue says of a hazard: facts, how it shows, what helps, and how to make it happen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.core.case import Case
from harness.core.versions import parse_specifier

ENGINE = "cuda or hosted:0"
"""A device that autograd has a thread for: on the CPU a backward runs on the thread that asks for it."""

NEEDS: Mapping[str, int] = {"cpu": 0, ENGINE: 0, "cuda": 1, "cuda x2": 2}
"""What a hazard needs, and how many CUDA devices that is."""


@dataclass(frozen=True)
class ThreadPattern:
    """A thread of a dump, in a role of the hazard.

    role     "A" or "B", as in the plan
    doing    what it does, in words: "holds torch's compile lock and waits for the autograd engine"
    frames   names of functions on its stack, outermost first, others between them allowed. "convert_frame.py:_compile"
             also asks for the end of the path; alternatives are divided by "|". A last one that ends in "$" is the
             innermost frame of Python: the thread is there now, and not in something that it called. "<lock>" is a wait
             for a lock of Python's in the frame itself, which only a dump with native frames shows
    engine   it is autograd's own thread of a device. On the CPU a backward runs on the thread that asked for it: the same
             functions, and nobody waits for that thread
    """

    role: str
    doing: str
    frames: tuple[str, ...]
    engine: bool = False


@dataclass(frozen=True)
class Signature:
    """How a hazard shows in what a stranger has: a traceback, or the stacks of a process.

    errors   regular expressions over "Type: message" of an exception, any one of them
    frames   functions that the traceback of that exception goes through, as in `ThreadPattern.frames`; () for any
    threads  for a dump of stacks: each must be matched by a thread of its own; () when it leaves nothing in a dump
    tracer   functions on the stack of the thread that traced meanwhile, which tell it from hazards with the same message; ()
             when that stack tells nothing
    unless   functions that do not stand outside of `tracer` on that stack
    unseen   what tells it from others and is on no stack, in words; "" for nothing
    """

    errors: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    threads: tuple[ThreadPattern, ...] = ()
    tracer: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    unseen: str = ""

    def __post_init__(self) -> None:
        for text in self.errors:
            re.compile(text)

    @property
    def silent(self) -> bool:
        """It leaves neither: no exception and no stack tells of it."""
        return not (self.errors or self.threads)


@dataclass(frozen=True)
class Hazard:
    """One row of the catalogue.

    id         as on the command line
    title      one line
    versions   releases of torch in which it can happen, as a specifier: "<2.13"; "" for all
    needs      a key of `NEEDS`
    window     what thread A is in the middle of
    access     what thread B does meanwhile; "" where it takes no second thread
    effect     what follows
    remedy     what to do about it, in a sentence or two
    reference  public reports: "pytorch/pytorch#126024"
    program    its smallest program with its plan (workload "harness.subject.programs.NAME:CLASS")
    pipeline   the plan against the DFlash pipeline; None where it cannot occur there, and `elsewhere` says why
    found      what was seen, by torch release: {"2.11": "20/20, counterfactual 0/20"}
    """

    id: str
    title: str
    versions: str
    needs: str
    window: str
    access: str
    effect: str
    remedy: str
    signature: Signature
    program: Case
    pipeline: Case | None = None
    elsewhere: str = ""
    reference: tuple[str, ...] = ()
    found: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_specifier(self.versions)
        if self.needs not in NEEDS:
            raise ValueError(f"{self.id}: needs = {self.needs!r}, which is none of {', '.join(NEEDS)}")
        if self.pipeline is None and not self.elsewhere:
            raise ValueError(f"{self.id}: it has no case for the pipeline and does not say why")

    def applies(self, torch_version: str, cuda: int = 0) -> bool:
        """Whether it can come about with this torch ("2.11.0+cu130") and so many CUDA devices."""
        return not self.why_not(torch_version, cuda)

    def why_not(self, torch_version: str, cuda: int = 0) -> str:
        """Why it cannot come about here; "" when it can."""
        if not parse_specifier(self.versions).contains(torch_version):
            return f"torch {torch_version} is not {self.versions}"
        if NEEDS[self.needs] > cuda:
            return f"needs {self.needs}"
        return ""

    def case(self, where: str) -> Case | None:
        """For "program" or "pipeline"."""
        return self.program if where == "program" else self.pipeline
