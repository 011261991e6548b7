# SPDX-License-Identifier: Apache-2.0
"""Where a worker is in data of its own, over its lives."""
from __future__ import annotations

import os
import time
import warnings
from typing import Any, Callable, Optional

from lodestar.worker_api import Step, Worker

# Keeping the state of a loader may take this part of the time.
_SHARE_OF_TIME = 0.05
# The servers may know of so many rounds less than the worker has made.
_ROUNDS_IN_HAND = 2


class OwnData:
    """Counts the batches that a worker takes, and keeps the state of a loader that has one, for the
    next process of the worker's name.

    Attributes:
      accumulate: batches of a step, as loader() is told.
      num_batches: of the step at hand.
      is_used: whether data are the worker's own, so that they begin again with each process.
    """

    def __init__(self, worker: Worker, name: Optional[str], state_dir: Optional[str],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.accumulate = 1
        self.num_batches = 1
        self.is_used = False
        self._worker, self._name, self._clock = worker, name, clock
        self._path = (os.path.join(state_dir, "loaders", name + ".state")
                      if name is not None and state_dir is not None else None)
        self._loader: Any = None  # that has a state
        self._is_asked = False  # the program knows how many batches there were
        self._has_begun = False
        self._rounds_before: Optional[int] = None  # of earlier processes of the name
        self._num_taken = 0  # in this process
        self._next_keep = 0.0
        self._has_warned = False  # that batches are not counted
        self._is_kept = True

    @property
    def batches_done(self) -> int:
        """Blocks until the worker has registered."""
        self._is_asked = True
        return self._done_before() + self._num_taken

    def _done_before(self) -> int:
        if self._rounds_before is None:  # later it may count rounds of this process
            self._rounds_before = int(self._worker.job("rounds_done"))
        return self._rounds_before * self._batches_of_round()

    def _batches_of_round(self) -> int:
        steps = self._worker.job("local_steps") if self._worker.job("has_local_steps") == "1" else 1
        return int(steps) * self.accumulate

    def follow(self, data: Any) -> Callable[[], int]:
        """Begins to keep the state of this data, if it has one. Returns what to call before its first
        batch: it restores the state that was kept, and returns how many batches come next
        that were trained on already."""
        self.is_used = True
        self._loader = _stateful_in(data)
        return self._restore

    def begin_step(self, step: Step) -> None:
        """Warns once if data begin again in a job that goes on."""
        if self._has_begun:
            return
        self._has_begun = True
        num_done = self._done_before()
        if not self.is_used or self._is_asked or self._finds_state():
            return
        if num_done > 0 or (self._name is None and step.round > 0):
            before = (f"this worker has trained on {num_done} batches before" if num_done > 0 else
                      f"the job is in round {step.round}, and this worker has no name by which the "
                      "servers could find its earlier batches")
            warnings.warn(
                f"the data of this program begin again at the first sample, but the job goes on: "
                f"{before}. Call join(name=), and skip the first ps.batches_done batches. Or use a "
                "loader with state_dict(), and call join(name=, state_dir=)")

    def begin_uneven_step(self) -> None:
        """Warns once if the program counts batches, which the servers count by steps."""
        if self._is_asked and not self._has_warned:
            self._has_warned = True
            warnings.warn("ps.batches_done counts one batch for each step, but the program takes "
                          "several batches for a step, or makes several steps with a batch; for "
                          "several batches give loader() accumulate=, or count batches yourself")

    def end_step(self) -> None:
        """Comes with the hand-over of each step."""
        self._num_taken += self.num_batches
        self._is_kept = False
        if self._clock() >= self._next_keep:
            self._keep()

    def close(self) -> None:
        """Comes when the worker leaves."""
        self._keep()

    def _finds_state(self) -> bool:
        return self._loader is not None and self._path is not None and os.path.exists(self._path)

    def _keep(self) -> None:
        if self._loader is None or self._path is None or self._is_kept:
            return
        import torch

        begin = self._clock()
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            torch.save({"batches": self._done_before() + self._num_taken,
                        "state": self._loader.state_dict()}, self._path + ".tmp")
            os.replace(self._path + ".tmp", self._path)
        except OSError as error:
            warnings.warn(f"the state of the loader cannot be kept in {self._path}: {error}")
            self._path = None
        self._is_kept = True
        end = self._clock()
        self._next_keep = end + (end - begin) / _SHARE_OF_TIME

    def _restore(self) -> int:
        if not self._finds_state():
            return 0
        import torch

        assert self._path is not None
        kept = torch.load(self._path, weights_only=False)
        num_done = self._done_before()
        if num_done == 0 and kept["batches"] > _ROUNDS_IN_HAND * self._batches_of_round():
            warnings.warn(f"{self._path} is of another job, in which this worker had trained on "
                          f"{kept['batches']} batches; the data of this program begin at the first "
                          "sample")
            return 0
        self._loader.load_state_dict(kept["state"])
        return max(num_done - kept["batches"], 0)


def _stateful_in(data: Any) -> Any:
    """Returns what has state_dict() and load_state_dict(): a loader, or the data set that it reads
    in this process. None: neither."""
    inner = getattr(data, "base_dataloader", data)  # accelerate's have both methods, and no state
    if _is_stateful(inner):
        return data
    dataset = getattr(inner, "dataset", None) if getattr(inner, "num_workers", 1) == 0 else None
    return dataset if _is_stateful(dataset) else None


def _is_stateful(data: Any) -> bool:
    return hasattr(data, "state_dict") and hasattr(data, "load_state_dict")
