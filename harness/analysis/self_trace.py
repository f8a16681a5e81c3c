"""Whether a compiled call was refused because its own thread traces, which is no race.

    found = traces_itself(raised)       # None: it does not, or its traceback does not show it
    found.by, found.trace, found.caller
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.analysis.dump_values import Frame, Raised
from harness.analysis.frame_patterns import matches

_REFUSED = re.compile(r"Detected that you are using FX to symbolically trace a dynamo-optimized function")
_CALL = "_dynamo/eval_frame.py:compile_wrapper|_dynamo/eval_frame.py:_fn"
_TRACE = "fx/_symbolic_trace.py:trace|fx/_symbolic_trace.py:symbolic_trace"
_MAKE_FX = "proxy_tensor.py:wrapped|proxy_tensor.py:dispatch_trace|proxy_tensor.py:_trace_inner"
_EXPORT = re.compile(r"(?:^|/)torch/(?:_export|export)/")

SAYS = "this thread traces itself: a compiled function was called inside {by}; no race"
REMEDY = (
    "Do not trace through a compiled callable: trace the original function, and compile afterwards. Where only the compiled "
    "one is at hand, torch.compiler.disable(it) can be traced: the original's operators. For symbolic_trace, torch.fx.wrap "
    "of a function that calls it makes it one node. torch.compiler.allow_in_graph does not help here, nor does a lock."
)


@dataclass(frozen=True)
class SelfTrace:
    """`by`: "symbolic_trace", "make_fx" or "export". `trace`: the frame that opened the trace; `call`: the refused call.

    `caller`: the frame that made the call.
    """

    raised: Raised
    by: str
    trace: Frame
    call: Frame
    caller: Frame

    @property
    def says(self) -> str:
        """The answer, in one line."""
        return SAYS.format(by=self.by)


def traces_itself(raised: Raised) -> SelfTrace | None:
    """The trace that stands outside of the refused call on the same traceback."""
    if not any(_REFUSED.search(text) for text in raised.texts):
        return None
    frames = raised.frames
    call = next((number for number in reversed(range(len(frames))) if not frames[number].is_observer), 0)
    if call == 0 or not matches(_CALL, frames[call]):
        return None
    outside = frames[:call]
    made = next((frame for frame in outside if _is(frame, _MAKE_FX)), None)
    trace = made or next((frame for frame in outside if _is(frame, _TRACE)), None)
    if trace is None:
        return None
    exported = any(_EXPORT.search(frame.file) for frame in outside)
    by = "export" if exported else "make_fx" if made else "symbolic_trace"
    return SelfTrace(raised, by, trace, frames[call], outside[-1])


def _is(frame: Frame, pattern: str) -> bool:
    """`matches`, but a file of the user's that is called the same is none of torch's."""
    return "torch/" in frame.file and not frame.is_observer and matches(pattern, frame)
