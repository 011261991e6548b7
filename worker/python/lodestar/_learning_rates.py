# SPDX-License-Identifier: Apache-2.0
"""Which learning rates a job uses: those of its schedule, or those of the programs' optimizers."""
from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional

from lodestar._accelerate import inner_scheduler
from lodestar._arguments import described
from lodestar._library import LodestarError
from lodestar._optimizer_settings import first_rate
from lodestar.worker_api import Step, Worker

if TYPE_CHECKING:  # it needs PyTorch
    from lodestar._trained_tensors import TrainedTensor

# Keys of an optimizer's groups that schedulers set.
_SCHEDULED_KEYS = ("lr", "momentum", "betas")


class LearningRates:
    """Holds the learning rates of one optimizer.

    Attributes:
      largest: the largest rate with which a group began.
      may_change: whether changes are overwritten without an error if the job uses its own rates.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._firsts = [first_rate(group) for group in optimizer.param_groups]
        self.largest = max(self._firsts, default=0.0)
        self._shares = [rate / self.largest if self.largest else 1.0 for rate in self._firsts]
        self._are_own = False
        self._first_rate = 1.0  # of the job, if are_own
        self._scale = 1.0  # of the job, by psctl and roll-backs
        self._set: List[Optional[float]] = []  # by begin_step(), if the job uses its own rates
        self.may_change = False

    def propose(self, worker: Worker) -> None:
        """Proposes these rates to the job. The job uses them if this is the first worker and the
        servers were given no flag of the learning rate. Raises LodestarError for a rate that is not
        valid."""
        if self.largest > 0:
            worker.propose("learning_rate", self.largest)
        worker.propose("lr_schedule", "program")

    def take_job(self, worker: Worker) -> None:
        """Reads from the job which rates it uses."""
        self._are_own = worker.job("lr_schedule") == "program"
        self._first_rate = float(worker.job("learning_rate"))

    @property
    def are_own(self) -> bool:
        """Returns whether the job uses the rates of the optimizer."""
        return self._are_own

    def begin_step(self, of_job: float) -> None:
        """`of_job` is the job's rate for the step. Raises LodestarError FAILED_PRECONDITION as
        check()."""
        if self._are_own:
            self._scale = of_job / self._first_rate
            return
        self.check()
        groups = self._optimizer.param_groups
        for group, share in zip(groups, self._shares):
            if group.get("lr") is not None:
                group["lr"] = of_job * share
        self._set = [group.get("lr") for group in groups]

    def check(self) -> None:
        """Raises LodestarError FAILED_PRECONDITION if the program has changed rates of the job."""
        if self._are_own or self.may_change:
            return
        for number, (group, rate) in enumerate(zip(self._optimizer.param_groups, self._set)):
            if rate is not None and group.get("lr") not in (None, rate):
                raise LodestarError(
                    "FAILED_PRECONDITION",
                    f"a scheduler, or the loop, has set the learning rate of group {number} to "
                    f"{float(group['lr']):g}, but this job uses the rate of its own schedule, "
                    f"{rate:g}. Remove the scheduler, and give ps_server --lr_schedule. Or, to use "
                    "the program's rates, start a new job without flags of the learning rate, and "
                    "not with --mode=async")

    def now(self, of_job: float) -> float:
        """Returns the largest rate with which the step at hand is made; `of_job` is the job's."""
        if not self._are_own:
            return of_job
        return self._scale * max((float(group["lr"]) for group in self._groups()), default=0.0)

    def _groups(self) -> List[Dict[str, Any]]:
        """Returns the groups of parameters that have a learning rate: some optimizers choose it by
        themselves."""
        return [group for group in self._optimizer.param_groups if group.get("lr") is not None]

    @contextlib.contextmanager
    def scaled(self) -> Iterator[None]:
        """Gives the optimizer's own step, within it, the job's scale."""
        if not self._are_own or self._scale == 1.0:
            yield
            return
        groups = self._groups()
        rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * self._scale
        try:
            yield
        finally:
            for group, rate in zip(groups, rates):
                group["lr"] = rate

    def check_groups(self) -> None:
        """Raises LodestarError FAILED_PRECONDITION if servers make the steps, and the groups do not
        begin with one rate, and the job uses its own schedule, which has one rate for all."""
        if not self._are_own and any(share != 1.0 for share in self._shares):
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"groups of parameters differ in lr ({_text(self._firsts)}), but the job's "
                "schedule has one rate for all groups. Start ps_server without flags of the learning "
                "rate, and not with --mode=async; or give it --mode=local_sgd or --optimizer=reduce")

    def by_block(self, tensors: Iterable[TrainedTensor]) -> Optional[Dict[int, float]]:
        """Returns the rates that servers are to make a step with, by block; -1 means all blocks.
        None: the job uses its own rates. Raises LodestarError FAILED_PRECONDITION if a block has
        several rates."""
        if not self._are_own:
            return None
        groups = self._groups()
        if len({float(group["lr"]) for group in groups}) == 1:
            return {-1: float(groups[0]["lr"])}
        rates = {id(parameter): float(group["lr"]) for group in groups
                 for parameter in group["params"]}
        of_blocks: Dict[int, float] = {}
        first: Dict[int, str] = {}
        for tensor in tensors:
            rate = rates.get(id(tensor.parameter))
            if rate is None:
                continue  # it was taken out of the optimizer, which the step refuses
            name = first.setdefault(tensor.block, tensor.name)
            if of_blocks.setdefault(tensor.block, rate) != rate:
                raise LodestarError(
                    "FAILED_PRECONDITION",
                    f"{tensor.name} has the learning rate {rate:g}, but {name}, which is sent with "
                    f"{tensor.name}, has {of_blocks[tensor.block]:g}. Give the parameter groups "
                    "different rates from the start in all programs, or start ps_server with "
                    "--mode=local_sgd or --optimizer=reduce, which keep the program's optimizer")
        return of_blocks


class JobSchedulers:
    """Schedulers that the program steps once after each step of the optimizer. They are moved to
    where those of a program are that has made all steps of the job."""

    def __init__(self, schedulers: Sequence[Any]) -> None:
        """Raises LodestarError INVALID_ARGUMENT for one that cannot be moved."""
        if not isinstance(schedulers, Sequence):
            raise LodestarError("INVALID_ARGUMENT",
                                f"schedulers= is {described(schedulers)}, but must be a list: "
                                "schedulers=[scheduler]")
        schedulers = [inner_scheduler(scheduler) for scheduler in schedulers]
        for scheduler in schedulers:
            if not hasattr(scheduler, "last_epoch") or hasattr(scheduler, "patience"):
                raise LodestarError(
                    "INVALID_ARGUMENT",
                    f"schedulers= has a {type(scheduler).__name__}, whose rate does not depend on "
                    "the number of steps alone. Leave that scheduler out of schedulers=")
        self._schedulers = schedulers
        self._first = [copy.deepcopy(scheduler.state_dict()) for scheduler in schedulers]
        self._first_groups = [self._scheduled(scheduler.optimizer) for scheduler in schedulers]
        self._step: Optional[Step] = None  # the last one

    @staticmethod
    def _scheduled(optimizer: Any) -> List[Dict[str, Any]]:
        return [{key: copy.deepcopy(group[key]) for key in _SCHEDULED_KEYS if key in group}
                for group in optimizer.param_groups]

    def follow(self, step: Step, local_steps: int) -> None:
        """Comes before each step. Moves the schedulers if the step is not the next one of the last:
        the worker has joined a job that has begun, has missed rounds, or servers have gone back. A
        first state that is ahead of the job, because it was loaded, stays."""
        before, self._step = self._step, step
        if not self._schedulers:
            return
        number = step.round * local_steps + step.step
        now = self._schedulers[0].last_epoch
        if before is None:
            self._move(max(number - now, 0))
        elif (step.round, step.step) not in ((before.round, before.step + 1),
                                             (before.round + 1, 0)):
            self._move(number - (before.round * local_steps + before.step + 1))

    def _move(self, steps: int) -> None:
        if steps < 0:
            steps += self._schedulers[0].last_epoch
            for scheduler, state, groups in zip(self._schedulers, self._first, self._first_groups):
                scheduler.load_state_dict(copy.deepcopy(state))
                for group, scheduled in zip(scheduler.optimizer.param_groups, groups):
                    group.update(copy.deepcopy(scheduled))
            steps -= self._schedulers[0].last_epoch
        with warnings.catch_warnings():
            # PyTorch warns if a scheduler steps before the optimizer has made a step.
            warnings.simplefilter("ignore")
            for _ in range(steps):
                for scheduler in self._schedulers:
                    scheduler.step()


def _text(rates: Iterable[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)
