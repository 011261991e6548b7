# SPDX-License-Identifier: Apache-2.0
"""A program's clipping to a norm, which the servers do where they make the steps."""
from __future__ import annotations

import math
from typing import Any, Optional, Sequence

import torch

from lodestar._arguments import number
from lodestar._library import LodestarError


def checked_norm(clip_norm: Optional[float]) -> Optional[float]:
    """Returns the norm to which a program clips. None means that it does not clip. Raises
    LodestarError INVALID_ARGUMENT for a negative number and for NaN."""
    if clip_norm is None:
        return None
    norm = number("clip_norm=", clip_norm)
    if math.isnan(norm) or norm < 0:
        raise LodestarError("INVALID_ARGUMENT",
                            f"clip_norm={clip_norm} is out of range; it must be at least 0, and 0 "
                            "means that the program does not clip")
    return norm if 0 < norm < math.inf else None


def has_clipped(before: Sequence[Any], after: Sequence[Any], clip_norm: float) -> bool:
    """Returns whether gradients are those `before`, as torch.nn.utils.clip_grad_norm_() clips them to
    this norm."""
    norm = torch.stack([gradient.norm() for gradient in before]).norm()
    scale = torch.clamp(clip_norm / (norm + 1e-6), max=1.0)
    for old, new in zip(before, after):
        # The norm of gradients in half precision is rounded as they are.
        limits = torch.finfo(new.dtype)
        if not torch.allclose(new.to(old), scale * old, rtol=1e-5 + 4 * limits.eps,
                              atol=2 * limits.smallest_normal * limits.eps):
            return False
    return True
