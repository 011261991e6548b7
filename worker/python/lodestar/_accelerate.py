# SPDX-License-Identifier: Apache-2.0
"""What Hugging Face's accelerate puts around optimizers and schedulers."""
from __future__ import annotations

import sys
from typing import Any

from lodestar._library import LodestarError


def _is_prepared(wrapper: Any) -> bool:
    """Returns whether Accelerator.prepare() has made this."""
    return hasattr(wrapper, "gradient_state")


def inner_optimizer(optimizer: Any) -> Any:
    """Returns the optimizer that a prepared one steps with, where gradients are whole. Raises
    LodestarError FAILED_PRECONDITION if a GradScaler keeps the step that it had before attach()."""
    if not _is_prepared(optimizer):
        return optimizer
    if getattr(optimizer, "scaler", None) is not None:
        raise LodestarError("FAILED_PRECONDITION",
                            "the Accelerator has mixed_precision=\"fp16\", and its GradScaler still "
                            "calls the step() that the optimizer had before attach(). Call attach() "
                            "before accelerator.prepare(), or use \"bf16\"")
    return optimizer.optimizer


def inner_scheduler(scheduler: Any) -> Any:
    """Returns the scheduler that a prepared one steps."""
    return scheduler.scheduler if _is_prepared(scheduler) else scheduler


def batches_per_step() -> int:
    """Returns gradient_accumulation_steps of the program's Accelerator, or 1 without one. All
    Accelerators of a process share it."""
    state = sys.modules.get("accelerate.state")
    return state.GradientState().num_steps if state is not None else 1
