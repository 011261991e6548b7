# SPDX-License-Identifier: Apache-2.0
"""Where a backward pass of autograd ends, and whether a GradScaler makes a step."""
from __future__ import annotations

import sys
from types import FrameType
from typing import Callable, Iterator, Optional, Set

import torch
from torch.autograd.function import BackwardCFunction


class BackwardEnd:
    """Calls a function at the end of backward passes, as DistributedDataParallel does.

    A pass within a pass, as of reentrant checkpointing, does not know where the outer one ends. At
    its end the function is called only if all gradients are there.
    """

    def __init__(self, function: Callable[[], None], num_gradients: int) -> None:
        """`function` may be called twice for one pass. `num_gradients` are those of a whole pass."""
        self._function = function
        self._num_gradients = num_gradients
        self._brought: Set[int] = set()
        self._pass = -1  # that will call the function

    def expect(self, parameter: object) -> None:
        """Expects the end of the pass that has just brought the gradient of `parameter`."""
        self._brought.add(id(parameter))
        of_gradient = torch._C._current_graph_task_id()
        if of_gradient != self._pass:
            self._pass = of_gradient
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        self._pass = -1
        if len(self._brought) < self._num_gradients and _is_within_pass():
            return
        self._brought.clear()
        self._function()


def _is_within_pass() -> bool:
    return any(frame.f_code is BackwardCFunction.apply.__code__ for frame in _frames())


def is_step_of_scaler() -> bool:
    """Returns whether an enabled GradScaler has called the optimizer's step. Scalers keep no list of
    themselves, and tell the optimizer nothing."""
    scalers = (frame.f_locals.get("self") for frame in _frames()
               if frame.f_globals.get("__name__") == torch.amp.GradScaler.__module__)
    return any(isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled()
               for scaler in scalers)


def _frames() -> Iterator[FrameType]:
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_finite(values: torch.Tensor) -> bool:
    """Returns whether no element is Inf or NaN. A sum is faster than looking at each element, but the
    sum of finite values may overflow."""
    values = values._values() if values.is_sparse else values
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())
