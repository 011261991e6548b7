# SPDX-License-Identifier: Apache-2.0
"""A Trainer's own DataLoader, with the samples that the servers grant."""
from __future__ import annotations

from typing import Any, Callable, Iterator, Optional

from lodestar._batches import GrantedBatches
from lodestar._library import LodestarError
from lodestar.worker_api import Step

# Sets what an object is, also where the class has a property of that name, as accelerate's loaders.
_set_class = object.__dict__["__class__"].__set__


class TrainerBatches:
    """Replaces what a DataLoader iterates over, from now on until end(). Its length and all else
    stay, so that the Trainer counts epochs, steps and schedules as ever: its epochs have as many
    batches as before. To which pass over the data they belong is the job's business."""

    def __init__(self, loader: Any, source: GrantedBatches,
                 step_at_hand: Callable[[], Optional[Step]],
                 fail: Callable[[BaseException], None]) -> None:
        self._loader, self._source = loader, source
        self._step_at_hand, self._fail = step_at_hand, fail
        self._step: Optional[Step] = None  # that batches are taken of
        self._num_left = 0  # of its batches
        self._class = type(loader)
        _set_class(loader, type(self._class.__name__, (self._class,),
                                {"__iter__": lambda _: self._of_epoch()}))

    def end(self) -> None:
        """Makes the DataLoader what it was."""
        _set_class(self._loader, self._class)

    def _of_epoch(self) -> Iterator[Any]:
        for _ in range(len(self._loader)):
            if self._step_at_hand() is None:
                return  # the job is over
            try:
                batch = self._take()
            except BaseException as error:
                self._fail(error)
                raise
            yield batch

    def _take(self) -> Any:
        step = self._step_at_hand()
        assert step is not None
        if step is not self._step:
            self._step, self._num_left = step, len(self._source.begin(step.samples))
        if self._num_left == 0:
            raise LodestarError(
                "FAILED_PRECONDITION",
                "the Trainer takes more batches for a step than when training began. Do not change "
                "its number of accumulated batches during training, or use "
                "Callback(..., is_own=True)")
        self._num_left -= 1
        return self._source.take()
