"""What a scenario asks of torch itself, applied on the main thread before the workload is built."""

from __future__ import annotations

import torch

from harness.core.axes import HOSTED
from harness.core.errors import UserError
from harness.core.scenario import Scenario
from harness.torch_internals.backends import register_inductor_eager
from harness.torch_internals.device_guard import ensure_device_guard
from harness.torch_internals.dynamo_config import DynamoSettings, apply
from harness.torch_internals.early_lowering import lower_early
from harness.torch_internals.flex_cpu import FlexCpu
from harness.torch_internals.hosted_device import register

RAISED_LIMIT = 64

DYNAMO: dict[str, DynamoSettings] = {
    "default": DynamoSettings(),
    "nested_trace_allowed": DynamoSettings(error_on_nested_fx_trace=False),
    "suppress_errors": DynamoSettings(suppress_errors=True),
    "early_lowering": DynamoSettings(),
    # From torch 2.12 on this holds in the thread that sets it: the workers keep the default.
    "limit_in_main": DynamoSettings(recompile_limit=RAISED_LIMIT, accumulated_recompile_limit=16 * RAISED_LIMIT),
}


def prepare(scenario: Scenario) -> dict[str, str]:
    """Apply the axes `dynamo` and `lock = thread_local_fx`, and what every trial needs; what each said, by name.

    Raises UserError where the scenario needs what this torch does not have.
    """
    said: dict[str, str] = {}
    if scenario.devices == HOSTED:
        found = register()
        if not found.ok:
            raise UserError(f'devices = "hosted:0": {found.reason}')
        register_inductor_eager()
    if "cuda" not in scenario.devices:
        torch.set_num_threads(1)  # several drafters share the cores; one thread also adds in one order
        said["flex_cpu"] = _say(FlexCpu().install().reason)
    said["device_guard"] = _say(ensure_device_guard().reason)
    apply(DYNAMO[scenario.dynamo])
    if scenario.dynamo == "early_lowering":
        found = lower_early()
        if not found.ok:
            raise UserError(f'dynamo = "early_lowering": {found.reason}')
    if scenario.lock == "thread_local_fx":
        from harness.torch_internals.thread_local_fx import ThreadLocalFx

        found = ThreadLocalFx().install()
        if not found.ok:
            raise UserError(f'lock = "thread_local_fx": {found.reason}')
        said["thread_local_fx"] = _say(found.reason)
    return said


def apply_to_worker(scenario: Scenario) -> None:
    """What a worker thread sets for itself: its Dynamo configuration is its own from torch 2.12 on."""
    if scenario.dynamo in ("nested_trace_allowed", "suppress_errors"):
        apply(DYNAMO[scenario.dynamo])
    elif scenario.dynamo == "early_lowering":
        lower_early()


def _say(reason: str) -> str:
    return f"unavailable: {reason}" if reason else "ok"
