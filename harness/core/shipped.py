"""The workloads that ship with the harness: short name → where they are. Anybody's own is "package.module:factory"."""

from __future__ import annotations

from collections.abc import Mapping

SHIPPED: Mapping[str, str] = {
    "dflash": "harness.pipeline:Pipeline",
    "inference_server": "harness.workloads.inference_server:InferenceServer",
    "trainer": "harness.workloads.trainer:Trainer",
    "nothing": "harness.subject.programs.nothing:Nothing",
}
