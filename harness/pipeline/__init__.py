"""DFlash training: a small block-diffusion drafter learns from a target model's hidden states.

Reads as an ordinary training program. Of the harness it knows the workload protocol, the scenario, the
settings and the errors, and nothing else.
"""

from harness.pipeline.config import DFlashConfig, build_target_layer_ids
from harness.pipeline.drafter import Drafter
from harness.pipeline.loss import dflash_loss
from harness.pipeline.mask import dflash_block_mask
from harness.pipeline.target import Target
from harness.pipeline.training import Pipeline

__all__ = [
    "DFlashConfig",
    "Drafter",
    "Pipeline",
    "Target",
    "build_target_layer_ids",
    "dflash_block_mask",
    "dflash_loss",
]
