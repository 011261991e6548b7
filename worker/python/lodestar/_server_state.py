# SPDX-License-Identifier: Apache-2.0
"""The state of the servers' optimizer, as optimizers of PyTorch have theirs."""
from __future__ import annotations

import warnings
from typing import Any, Dict, Mapping

import torch

from lodestar._library import LodestarError
from lodestar._trained_tensors import TrainedTensors
from lodestar.worker_api import Worker

# What PyTorch calls the vectors that an optimizer of the servers has, in their order.
_NAMES = {"adamw": ("exp_avg", "exp_avg_sq"), "momentum": ("momentum_buffer",),
          "nesterov": ("momentum_buffer",), "sgd": ()}
# The number of updates, of the optimizers that have it in their state.
_STEP = "step"


class ServerState:
    """Reads the state of a job's optimizer, or begins the job with that of a program."""

    def __init__(self, worker: Worker, tensors: TrainedTensors, optimizer: str) -> None:
        """`optimizer` is the job's."""
        self._worker, self._tensors = worker, tensors
        self._names = _NAMES[optimizer]
        self._counts_steps = optimizer == "adamw"

    def pull(self) -> Dict[Any, Dict[str, Any]]:
        """Returns the state that belongs to the weights of the step at hand, in f32 on the CPU, by
        parameter. Warns if it is newer than these weights. A parameter without updates has none."""
        found: Dict[Any, Dict[str, Any]] = {}
        is_newer = False
        for number, name in enumerate(self._names, 1):
            vector, updates, is_vector_newer = self._worker.pull_state(number)
            is_newer = is_newer or is_vector_newer
            values = torch.frombuffer(vector, dtype=torch.float32)
            for tensor in self._tensors.trained:
                num_updates = updates[tensor.block]
                if num_updates == 0:
                    continue
                state = found.setdefault(tensor.parameter, {})
                if self._counts_steps:
                    state[_STEP] = torch.tensor(float(num_updates), dtype=torch.float32)
                state[name] = tensor.part_of(values).clone()
        if is_newer:
            warnings.warn(
                "optimizer.state_dict() has the state of newer weights than the program has, because "
                "the servers have made further updates meanwhile. In --mode=sync call it before "
                "backward(), or after optimizer.step(), and start ps_server without --quorum")
        return found

    def keep(self) -> None:
        """Makes pull() possible after the job, too."""
        if self._names:
            self._worker.keep_state(len(self._names))

    def hand_over(self, states: Mapping[Any, Mapping[str, Any]]) -> None:
        """Lets the job begin with the state of a program's optimizer, if it begins with its weights.

        Raises:
          LodestarError: FAILED_PRECONDITION if some parameters have had more updates than others.
        """
        of_trained = {tensor.name: states.get(tensor.parameter, {})
                      for tensor in self._tensors.trained}
        # One without a number counts as one update, so that pull() tells it.
        steps = {int(state.get(_STEP, 0)) if self._counts_steps else 1: name
                 for name, state in of_trained.items()}
        if len(steps) > 1:
            (fewest, name), (most, other) = min(steps.items()), max(steps.items())
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"the optimizer's state of {name} has had {fewest} updates, and that of {other} "
                f"{most}, but the servers begin a job with one number for all. Begin without state "
                "(optimizer.state.clear()), or start ps_server with --mode=local_sgd or "
                "--optimizer=reduce, which use the program's optimizer")
        for number, key in enumerate(self._names, 1):
            vector = memoryview(bytearray(4 * len(self._worker.parameters))).cast("f")
            values = torch.frombuffer(vector, dtype=torch.float32)
            for tensor in self._tensors.trained:
                value = of_trained[tensor.name].get(key)
                if value is not None:
                    tensor.part_of(values).copy_(value)
            self._worker.set_initial_state(number, vector, next(iter(steps)))
