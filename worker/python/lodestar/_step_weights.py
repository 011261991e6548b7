# SPDX-License-Identifier: Apache-2.0
"""The weight of a step in the mean over the workers, where it is not the number of samples."""
from __future__ import annotations

from typing import Any, Callable, Iterator, Optional

from lodestar._arguments import number
from lodestar._library import LodestarError
from lodestar.worker_api import Worker

# Targets that have this value are left out by losses of PyTorch (ignore_index).
_IGNORED = -100
_MOST = 1 << 40  # the highest weight that lodestar_set_weight() takes


class StepWeights:
    """What a program says with log(weight=), and whether it should."""

    def __init__(self, worker: Worker, warn_once: Callable[[str, str], None]) -> None:
        self._worker = worker
        self._warn_once = warn_once
        self._of_step: Optional[int] = None
        self._before_batch: Optional[int] = None  # of the step, without the batch at hand
        self._are_given: Optional[bool] = None  # in the steps so far
        self._has_effect: Optional[bool] = None  # not known before the first weight
        self._is_uneven = False  # a batch of the step has uneven numbers of targets

    def begin_step(self, is_further: bool = False) -> None:
        """Begins a step. One that is made with the batches of the step before has their weight."""
        weight, self._of_step = self._of_step, None
        self._is_uneven = False
        if is_further and weight is not None:
            self.add(weight)
        self.begin_batch()

    def begin_batch(self) -> None:
        """Begins a batch that the step gets in addition."""
        self._before_batch = self._of_step

    def begin_batch_again(self) -> None:
        """Forgets the weight of the batch at hand, which comes again."""
        self._of_step = self._before_batch

    def look_at(self, batch: Any) -> None:
        """Looks whether the samples of a batch have different numbers of targets."""
        if not self._are_given and not self._is_uneven:
            self._is_uneven = any(_has_uneven_targets(tensor) for tensor in _tensors_in(batch))

    def add(self, weight: Any, is_late: bool = False, is_made: bool = False) -> None:
        """Adds the weight of a batch to that of the step at hand. `is_late` says that the step was
        handed over, and `is_made` that optimizer.step() was called for it.

        Raises:
          LodestarError: INVALID_ARGUMENT as checked_weight(); FAILED_PRECONDITION if gradients of the
            step may have been sent.
        """
        weight = checked_weight(weight)
        total = (self._of_step or 0) + weight
        self._warn_of_no_effect()
        if not is_late:
            try:
                self._worker.set_weight(total)
            except LodestarError as error:
                if error.code != "FAILED_PRECONDITION":
                    raise
                is_late = True
        if is_late and is_made:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"log(weight={weight}) was called after optimizer.step(). Further steps with the same "
                "batch keep its weight, so call it once for each batch, before the first backward()")
        if is_late:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"log(weight={weight}) was called after gradients of the step may have been sent. "
                "Call it before the last backward() of the step, or use attach(..., "
                "overlap=False)")
        self._of_step = total

    def _warn_of_no_effect(self) -> None:
        if self._has_effect is not None:
            return
        self._has_effect = self._worker.job("counts_weights") == "1"
        if not self._has_effect:
            self._warn_once(
                "weightless", "log(weight=) has no effect in this job, in which each contribution "
                              "is an update of its own. Use sync or local_sgd, or leave weight= out")

    def check_step(self) -> None:
        """Comes with the end of a step that was made.

        Raises:
          LodestarError: FAILED_PRECONDITION if it has a weight and earlier ones had none, or the
            other way round.
        """
        is_given = self._of_step is not None
        if self._are_given is None:
            self._are_given = is_given
        if self._are_given != is_given:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"this step has {'a' if is_given else 'no'} weight, and the steps before it have "
                f"{'none' if is_given else 'one'}: call log(..., weight=) in each step, or in none")
        if self._is_uneven and not is_given and self._counts_samples():
            self._warn_once(
                "uneven", f"samples of a batch have different numbers of targets that are not "
                          f"{_IGNORED}, but the mean over the workers counts samples. Call "
                          "log(loss, weight=number of targets) before backward(), so that "
                          "the mean counts targets")

    def _counts_samples(self) -> bool:
        """Returns whether the contributions of several workers are weighed by their samples."""
        try:
            return self._worker.place.count > 1 and self._worker.job("mode") != "async"
        except LodestarError:
            return False


def checked_weight(weight: Any) -> int:
    """Returns the weight as a whole number.

    Raises:
      LodestarError: INVALID_ARGUMENT if it is no whole number, or is out of range.
    """
    value = number("weight=", weight)
    if not 0 <= value <= _MOST or value != int(value):
        raise LodestarError("INVALID_ARGUMENT",
                            f"weight={weight} is not allowed; it must be a whole number from 0 to "
                            f"{_MOST}")
    return int(value)


def _tensors_in(batch: Any) -> Iterator[Any]:
    if hasattr(batch, "values") and callable(batch.values) and not hasattr(batch, "is_sparse"):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for part in batch:
            yield from _tensors_in(part)
    elif hasattr(batch, "is_sparse"):
        yield batch


def _has_uneven_targets(tensor: Any) -> bool:
    """Returns whether rows of a tensor of targets, on the CPU, have different numbers of them."""
    is_number = tensor.is_floating_point() or tensor.is_complex()
    if is_number or not tensor.dtype.is_signed or tensor.dim() == 0 or tensor.is_sparse \
            or tensor.device.type != "cpu":
        return False
    if tensor.numel() == 0:
        return False
    is_target = tensor.ne(_IGNORED)
    if bool(is_target.all()):
        return False
    counts = is_target.reshape(len(tensor), -1).sum(1)
    return bool(counts.ne(counts[0]).any())
