"""Which hazards of the catalogue a dump shows, and which of its threads plays which role.

    for match in match(parse(text), HAZARDS):
        print(match.hazard.id, *match.roles, match.why)

An exception is enough by its message; stacks are enough only if every pattern of the hazard has a thread of its own. Stacks
that were cut still fit while what is missing is missing at the cut end and at least half of the pattern is there. Hazards with
one message are told apart by the stack of the thread that traced, where a trial has it. A thread that traces itself shows none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.analysis.dump_values import Dump, DumpThread, Frame, Raised
from harness.analysis.frame_patterns import MISFIT, Fit, fit, matches, of_engine
from harness.analysis.paths import short_path
from harness.analysis.self_trace import traces_itself
from harness.core.versions import parse_specifier
from harness.hazards.base import Hazard, Signature, ThreadPattern

RAISED = "raised"
"""The role of a thread whose exception matched; the traceback does not say whether it was A or B."""

LONGEST_MESSAGE = 20_000
_ANYBODYS = ("TypeError", "AttributeError", "KeyError", "IndexError")
"""Python's own words, which say nothing without the way to them; nor does an AssertionError without a message."""

_HARNESS = re.compile(r"(?:^|/)harness/(?!pipeline/|subject/programs/)")

_TYPE = re.compile(r"\^?[\w\\.]+: (?=[\w\\('\"\[])")


@dataclass(frozen=True)
class Role:
    """A thread of the dump in a role of the hazard.

    at    the frame that decided, from the innermost on: "torch/_dynamo/convert_frame.py:1200 in _compile"; "" where the
          text has no frames
    user  the innermost frame that is neither torch's nor the standard library's; "" where there is none
    """

    role: str
    thread: str
    doing: str
    at: str = ""
    user: str = ""

    def __str__(self) -> str:
        where = f" at {self.at}" if self.at else ""
        called = f", called from {self.user}" if self.user and self.user != self.at else ""
        return f"{self.role}: {self.thread}{where}{called}"


@dataclass(frozen=True)
class Match:
    """A hazard that fits. `why`: what decided, in words; `certain`: nothing had to be supposed.

    `missing`: what would tell it from others with the same message and was not seen, in words; "" for nothing.
    """

    hazard: Hazard
    roles: tuple[Role, ...]
    why: str
    certain: bool = True
    exception: Raised | None = None
    missing: str = ""


def match(dump: Dump, hazards: Sequence[Hazard] | None = None, torch: str = "") -> list[Match]:
    """The hazards that the dump shows, the most specific first.

    hazards  the catalogue; None: all of it
    torch    version of the torch that the dump is of, if known: hazards that it cannot have are left out

    First comes what fits for certain, and of that what most of the evidence speaks for; last comes what only the stack of
    the thread that traced could tell, when that is not there or is another.
    """
    if hazards is None:
        from harness.hazards import HAZARDS

        hazards = HAZARDS
    if torch:
        hazards = [hazard for hazard in hazards if parse_specifier(hazard.versions).contains(torch)]
    raised = [each for each in dump.exceptions if traces_itself(each) is None]
    ranked: list[tuple[tuple[int, ...], Match]] = []
    for number, hazard in enumerate(hazards):
        found = _by_threads(hazard, dump.threads) or _by_exception(hazard, raised)
        if found is not None:
            asked = _asked(hazard, found)
            last = found.exception is not None and _traced_otherwise(hazard.signature, found.exception)
            ranked.append(((not found.certain, last, -asked if found.certain else asked, number), found))
    return [found for _, found in sorted(ranked, key=lambda pair: pair[0])]


def bare(text: str) -> Dump:
    """A text that has neither a stack nor an exception, taken as the message of one."""
    return Dump((), (Raised("", text.strip()[:LONGEST_MESSAGE]),))


def _asked(hazard: Hazard, found: Match) -> int:
    """How much the signature asked for: the more, the more specific is the match."""
    if found.exception is not None:
        return 2 * len(hazard.signature.frames) + len(hazard.signature.tracer)
    return 100 + sum(len(pattern.frames) for pattern in hazard.signature.threads)


def _by_exception(hazard: Hazard, exceptions: Iterable[Raised]) -> Match | None:
    best: Match | None = None
    for raised in exceptions:
        found = _exception(hazard, raised)
        if found is not None and (best is None or (found.certain and not best.certain)):
            best = found
    return best


def _exception(hazard: Hazard, raised: Raised) -> Match | None:
    signature = hazard.signature
    if not any(_says(pattern, raised) for pattern in signature.errors):
        return None
    fitted = Fit(True, True, None)
    if signature.frames:
        fitted = fit(signature.frames, raised.frames, cut_outer=raised.cut_outer, cut_inner=False)
        if not raised.frames:
            if not raised.message or raised.type in _ANYBODYS:
                return None
            fitted = Fit(True, False, None)
    if not fitted.fits:
        return None
    first = raised.texts[0].splitlines()[0]
    why = f"its message is known: {first[:160]}"
    if not fitted.certain:
        why += "; of the calls that led to it not all are in this text"
    elif signature.frames:
        why += "; so is the way to it"
    missing = _missing(signature, raised)
    if missing or signature.tracer:
        why += f"; {missing or 'so is the stack of the thread that traced'}"
    return Match(hazard, _raised_roles(raised), why, fitted.certain and not missing, raised, missing)


def _missing(signature: Signature, raised: Raised) -> str:
    """What the stacks of the threads that traced do not tell, in words."""
    if not signature.tracer:
        return ""
    if not any(thread.frames for thread in raised.meanwhile):
        return "the stack of the thread that traced, which would tell it from others, is not in this text"
    if _traced_otherwise(signature, raised):
        return "the frames that would tell it from others are not on the stack of the thread that traced"
    return f"no stack tells {signature.unseen}" if signature.unseen else ""


def _traced_otherwise(signature: Signature, raised: Raised) -> bool:
    traced = [thread.frames for thread in raised.meanwhile if thread.frames]
    return bool(signature.tracer and traced) and not any(_traced_so(signature, frames) for frames in traced)


def _traced_so(signature: Signature, frames: Sequence[Frame]) -> bool:
    if not fit(signature.tracer, frames, cut_outer=False, cut_inner=False).fits:
        return False
    begin = next(number for number, frame in enumerate(frames) if matches(signature.tracer[0], frame))
    return not any(matches(pattern, frame) for frame in frames[:begin] for pattern in signature.unless)


def _says(pattern: str, raised: Raised) -> bool:
    if not raised.type:
        pattern = _TYPE.sub("", pattern, count=1) if _TYPE.match(pattern) else pattern  # only the message was pasted
    return any(re.search(pattern, text) for text in raised.texts)


def _raised_roles(raised: Raised) -> tuple[Role, ...]:
    who = f'Thread "{raised.thread}"' if raised.thread else "a thread, which this text does not name,"
    tracing = tuple(
        Role("A", str(thread), "was inside an FX trace", *_places(thread.frames, _trace(thread)))
        for thread in raised.meanwhile
    )
    role = Role("B" if tracing else RAISED, who, "raised the exception", *_places(raised.frames, None))
    return (*tracing, role)


def _trace(thread: DumpThread) -> int | None:
    """The innermost frame that is the trace, below which a probe of the harness may hold the thread."""
    found = [number for number, frame in enumerate(thread.frames) if matches("_symbolic_trace.py:trace", frame)]
    return found[-1] if found else None


def _by_threads(hazard: Hazard, threads: Sequence[DumpThread]) -> Match | None:
    patterns = hazard.signature.threads
    if not patterns:
        return None
    for dump in dict.fromkeys(thread.dump for thread in threads):
        here = [thread for thread in threads if thread.dump == dump]
        for tolerant in (False, True):
            fits = [[_fit(pattern, thread, tolerant) for thread in here] for pattern in patterns]
            chosen = _assign(fits)
            if chosen is None:
                continue
            roles = tuple(
                _role(pattern, here[index], fits[number][index])
                for number, (pattern, index) in enumerate(zip(patterns, chosen, strict=True))
            )
            why = "; ".join(f"{role.role} {role.doing}" for role in roles)
            certain = all(fits[number][index].certain for number, index in enumerate(chosen))
            return Match(hazard, roles, why if certain else f"{why}; their stacks are cut here", certain)
    return None


def _fit(pattern: ThreadPattern, thread: DumpThread, tolerant: bool) -> Fit:
    if pattern.engine and not of_engine(thread.frames, cut_outer=thread.cut_outer):
        return MISFIT
    cut_outer, cut_inner = tolerant and thread.cut_outer, tolerant and thread.cut_inner
    return fit(pattern.frames, thread.frames, cut_outer=cut_outer, cut_inner=cut_inner)


def _assign(fits: Sequence[Sequence[Fit]]) -> list[int] | None:
    """A thread of its own for every pattern, by augmenting paths."""
    holder: dict[int, int] = {}  # thread → pattern

    def place(pattern: int, tried: set[int]) -> bool:
        for thread, found in enumerate(fits[pattern]):
            if found.fits and thread not in tried:
                tried.add(thread)
                if thread not in holder or place(holder[thread], tried):
                    holder[thread] = pattern
                    return True
        return False

    if not all(place(pattern, set()) for pattern in range(len(fits))):
        return None
    return [thread for _, thread in sorted((pattern, thread) for thread, pattern in holder.items())]


def _role(pattern: ThreadPattern, thread: DumpThread, found: Fit) -> Role:
    at, user = _places(thread.frames, found.last)
    return Role(pattern.role, str(thread), pattern.doing, at, user)


def _places(frames: Sequence[Frame], decided: int | None) -> tuple[str, str]:
    if not frames:
        return "", ""
    decided = len(frames) - 1 if decided is None else decided
    at = next((frame for frame in reversed(frames[: decided + 1]) if frame.is_python), frames[decided])
    users = [frame for frame in frames if frame.is_python and not _is_library(frame.file)]
    return _shown(at), _shown(users[-1]) if users else ""


def _is_library(file: str) -> bool:
    parts = file.split("/")
    return (
        file.startswith("<")
        or _HARNESS.search(file) is not None
        or any(part in ("site-packages", "dist-packages", "torch") or part.startswith("python3.") for part in parts)
        or (len(parts) == 1 and file in _SHORT_STDLIB)
        or parts[0] in ("concurrent", "asyncio", "multiprocessing", "importlib")
        or (any(part.lower() == "lib" for part in parts[:-1]) and parts[-1] in _SHORT_STDLIB)
        or not file.endswith(".py")
    )


_SHORT_STDLIB = ("threading.py", "queue.py", "contextlib.py", "functools.py", "runpy.py", "thread.py", "socket.py")


def _shown(frame: Frame) -> str:
    """The path from the package on: what stands before it differs by machine."""
    return str(Frame(frame.function, short_path(frame.file), frame.line))
