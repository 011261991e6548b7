# SPDX-License-Identifier: Apache-2.0
"""One worker of several ranks, each with its shards of the model (FSDP2): rank 0 leads, and the
others follow."""
from __future__ import annotations

import ctypes
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from lodestar._library import LodestarError
from lodestar._ranks import Ranks
from lodestar._sharded_tensors import rows_of_ranks
from lodestar.worker_api import Evaluation, Place, Step, Worker

# The settings of a job that are known by name.
_SETTINGS = ("mode", "has_local_steps", "local_steps", "batch_size", "global_batch_size",
             "optimizer", "learning_rate", "lr_schedule", "momentum", "beta1", "beta2", "epsilon", "weight_decay",
             "clip_norm", "rounds", "seed", "model", "layout_is_own", "counts_weights",
             "rounds_done")


class _Tensor(NamedTuple):
    """A tensor, as the ranks have it.

    Attributes:
      ends: where the elements of each rank end, in those of the whole tensor. Of an averaged tensor
        it is the end of the tensor, because each rank has it whole.
    """

    name: str
    ends: List[int]
    is_averaged: bool


class _Told(NamedTuple):
    """What each rank tells of a step of training or evaluation that it has made."""

    is_skipped: bool
    sums: Tuple[float, int, int]
    metrics: Dict[str, float]
    weight: Optional[int]
    is_stopping: bool
    num_expected: int


class _Given(NamedTuple):
    """What rank 0 tells of the step that comes. `settings` is None if they are as they were."""

    step: Optional[Step]
    expected: List[Optional[Step]]
    settings: Optional[Dict[str, str]]
    weights_version: int
    evaluation: Optional[Evaluation]
    place: Optional[Place]


class ShardedWorker:
    """Is for one rank what a Worker is for one process. It has the rank's shards instead of whole
    tensors, and its samples instead of the worker's. All ranks call the same methods in the same
    order, but for log(), expect(), stop(), state, and those that end it.

    Before a step rank 0 has the weights of the model, in the vectors of the C library, and each
    other rank gets its shards; after it rank 0 gets their shards of the gradient, or, with local
    steps, of the weights.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.num_ranks = ranks.count
        self.weights_version = -1
        self.evaluation: Optional[Evaluation] = None
        self._place: Optional[Place] = None
        self.has_step = False
        self._wants_stop = False
        self._preparations: List[Tuple[Any, ...]] = []  # methods of the worker, and arguments
        self._tensors: List[_Tensor] = []
        self._settings: Dict[str, str] = {}
        self._has_started = False
        self._has_asked = False  # for a step
        self._is_over = False
        self._step: Optional[Step] = None  # of all ranks
        self._expected: List[Optional[Step]] = []
        self._num_expected = 0  # how far ahead was asked
        self._metrics: Dict[str, float] = {}
        self._rates: Dict[int, float] = {}  # of the step at hand, by block
        self._weight: Optional[int] = None  # of the step at hand
        self._blocks: Dict[str, int] = {}  # as the tensors were added

    @property
    def is_in_fork(self) -> bool:
        return self.ranks.is_in_fork

    def set(self, setting: str, value: object) -> None:
        """Keeps a setting, as propose() does, or sets it after start()."""
        if not self._has_started:
            self._preparations.append(("set", setting, value))
            return
        self.ranks.agree([("set", setting, value)])
        self.ranks.lead(lambda: self._worker().set(setting, value))

    def propose(self, setting: str, value: object) -> None:
        """Keeps a proposal. Rank 0 makes this call, and those that follow until start(), with
        start(), which raises their errors."""
        self._preparations.append(("propose", setting, value))

    def add_tensor(self, name: str, shape: Sequence[int], block: int = 0,
                   decays: bool = True) -> None:
        """Appends a tensor by the shape of the whole tensor."""
        self._add_rows("add_tensor", name, shape, block, decays)

    def add_embedding(self, name: str, shape: Sequence[int], block: int = 0,
                      decays: bool = True) -> None:
        """Appends a table by the shape of the whole table."""
        self._add_rows("add_embedding", name, shape, block, decays)

    def _add_rows(self, method: str, name: str, shape: Sequence[int], block: int,
                  decays: bool) -> None:
        self._preparations.append((method, name, shape, block, decays))
        self._blocks[name] = block
        row_size = _product(shape[1:])
        self._add(_Tensor(name, [row_size * end for _, end in rows_of_ranks(
            shape[0], self.num_ranks)], False))

    def add_averaged(self, name: str, shape: Sequence[int], block: int) -> None:
        """Appends a tensor that each rank has whole. The mean over the ranks counts."""
        self._preparations.append(("add_averaged", name, shape, block))
        self._add(_Tensor(name, [_product(shape)] * self.num_ranks, True))

    def set_data(self, *data: Any) -> None:
        if not self._has_started:
            self._preparations.append(("set_data", *data))
            return
        self.ranks.agree([("set_data", *data)])
        self.ranks.lead(lambda: self._worker().set_data(*data))

    def start(self) -> None:
        """Connects. Raises LodestarError INVALID_ARGUMENT also if the ranks differ in what they
        have said."""
        self.ranks.agree(self._preparations)

        def start() -> None:
            for method, *arguments in self._preparations:
                getattr(self._worker(), method)(*arguments)
            self._worker().start()

        self.ranks.lead(start)
        self._has_started = True

    def job(self, setting: str) -> str:
        """Returns a setting of the job. Once the ranks have it, each may ask by itself."""
        if not self._settings:
            settings, self._place = self.ranks.lead(
                lambda: (self._read_settings(), self._read_place()),
                lambda: self._worker().is_ready(for_job=True))
            self._take_settings(settings)
        if setting not in self._settings:
            raise LodestarError("INVALID_ARGUMENT", f"a job has no setting called {setting!r}")
        return self._settings[setting]

    @property
    def place(self) -> Place:
        """Returns the place of the worker, as rank 0 has told it with the job, or with the newest
        step."""
        if self._place is None:
            raise LodestarError("UNIMPLEMENTED" if self._settings else "FAILED_PRECONDITION",
                                "the servers have not told this worker its index; if they are "
                                "of an earlier release, upgrade them")
        return self._place

    def _read_place(self) -> Optional[Place]:
        """Reads the place in rank 0. None means that the servers are of an earlier release."""
        try:
            return self._worker().place
        except LodestarError:
            return None

    def _read_settings(self) -> Dict[str, str]:
        return {setting: self._worker().job(setting) for setting in _SETTINGS}

    def _take_settings(self, settings: Dict[str, str]) -> None:
        self._settings = settings
        size, count = int(settings["batch_size"]), self.num_ranks
        if size == 0:
            raise LodestarError(
                "FAILED_PRECONDITION",
                "ps_server has --global_batch_size, so a worker's part of it changes when workers "
                f"join or leave. The {count} ranks of this worker must always get the same number "
                "of samples each. Start ps_server with --batch_size instead")
        if size % count != 0:
            raise _uneven(size, count)

    def next(self) -> Optional[Step]:
        if not self._has_asked:
            self._has_asked = True
            self._collect("parameters")
        given: _Given = self.ranks.lead(self._ask, lambda: self._worker().is_ready())
        self.weights_version, self.evaluation = given.weights_version, given.evaluation
        self._place = given.place
        self._step, self._expected = given.step, given.expected
        self._metrics, self._rates, self._weight = {}, {}, None
        self.has_step = given.step is not None
        self._is_over = given.step is None
        # Between local steps weights are the program's.
        if given.step is None or given.step.step == 0 or not given.step.is_training:
            self._distribute()
        if given.settings is not None:
            self._take_settings(given.settings)
        if given.step is None:
            self.ranks.close_at_end()
            return None
        return self._part_of(given.step)

    def _ask(self) -> _Given:
        """Asks for the next step in rank 0."""
        worker = self._worker()
        before = self._step
        step = worker.next()
        is_new = step is not None and (before is None
                                       or step.server_incarnation != before.server_incarnation)
        expected = [worker.expect(ahead + 1) for ahead in range(self._num_expected)
                    ] if step is not None and step.is_training else []
        return _Given(step, expected, self._read_settings() if is_new else None,
                      worker.weights_version, worker.evaluation, self._read_place())

    def _part_of(self, step: Step) -> Step:
        """Returns the part of a step that this rank has. Forward and backward of a sharded model
        need all ranks, the same number of times: each has as many samples."""
        total = len(step.samples)
        if not self._is_cut(step):
            if step.is_training:
                raise _uneven(total, self.num_ranks)
            return step
        begin = total // self.num_ranks * self.ranks.rank
        end = begin + total // self.num_ranks
        return step._replace(samples=step.samples[begin:end], epochs=step.epochs[begin:end],
                             first_position=step.first_position + begin)

    def _is_cut(self, step: Step) -> bool:
        """Returns whether the ranks divide the samples. If it is False, each rank has all samples
        of an evaluation."""
        return len(step.samples) % self.num_ranks == 0

    def extend(self) -> Step:
        try:
            step = self.ranks.lead(lambda: self._worker().extend(), lambda: True)
        except LodestarError:
            self.has_step = False
            raise
        return self._part_of(step)

    def keep_samples(self) -> None:
        self.ranks.lead(lambda: self._worker().keep_samples(), lambda: True)

    def keep_state(self, num_vectors: int) -> None:
        raise self._has_no_state()

    def pull_state(self, number: int) -> Any:
        raise self._has_no_state()

    def set_initial_state(self, number: int, state: memoryview, num_updates: int) -> None:
        raise self._has_no_state()

    @staticmethod
    def _has_no_state() -> LodestarError:
        return LodestarError(
            "FAILED_PRECONDITION",
            "optimizer.state_dict() and load_state_dict() do not work with join(group=) where the "
            "servers make the steps, because no rank has the servers' state. Resume from ps_server "
            "--checkpoint_dir, or start ps_server with --mode=local_sgd or --optimizer=reduce, which "
            "use the program's optimizer")

    def expect(self, ahead: int = 1) -> Optional[Step]:
        """Returns what rank 0 tells with each step, from the first time on that a rank has
        asked."""
        self._num_expected = max(self._num_expected, ahead)
        step = self._expected[ahead - 1] if ahead <= len(self._expected) else None
        return self._part_of(step) if step is not None and self._is_cut(step) else None

    def set_learning_rate(self, rate: float, block: int = -1) -> None:
        """Sets the rate of a block. The job uses the rates that rank 0 sets."""
        self._rates[block] = rate

    def set_weight(self, weight: int) -> None:
        """Sets the weight of this rank's part of the step. The sum over the ranks counts."""
        self._weight = weight

    def block_ready(self, block: int) -> None:
        """Does nothing, because shards leave together, with step_done()."""

    def log(self, name: str, value: float) -> None:
        """Keeps a metric. The mean over the ranks that tell it counts."""
        self._metrics[name] = float(value)

    def step_done(self, loss_sum: float = 0.0, num_correct: int = 0,
                  num_predictions: int = 0) -> None:
        """Hands the step in, with the sums of this rank's samples."""
        told = self._meet(is_skipped=False, sums=(loss_sum, num_correct, num_predictions))
        assert self._step is not None
        if self._step.is_training:
            has_local_steps = self._settings["has_local_steps"] == "1"
            self._collect("parameters" if has_local_steps else "gradients")
        self.has_step = False
        self._answer(told)

    def step_skipped(self) -> None:
        told = self._meet(is_skipped=True, sums=(0.0, 0, 0))
        self.has_step = False
        self._answer(told)

    def _meet(self, is_skipped: bool, sums: Tuple[float, int, int]) -> List[_Told]:
        told: List[_Told] = self.ranks.meet(
            _Told(is_skipped, sums, self._metrics, self._weight, self._wants_stop,
                  self._num_expected))
        if len({rank.is_skipped for rank in told}) > 1:
            raise LodestarError("INTERNAL",
                                "some ranks of this worker skipped the step, but other ranks made "
                                "it; make sure that all ranks skip the same steps")
        self._num_expected = max(rank.num_expected for rank in told)
        if any(rank.is_stopping for rank in told):
            self._wants_stop = True
        return told

    def step_failed(self, why: str) -> None:
        self.has_step = False
        self.ranks.end(why)

    def stop(self) -> None:
        """Stops the worker. One rank or several may call it; rank 0 knows with the end of the step
        at hand."""
        self._wants_stop = True

    def close(self) -> None:
        # At the end of the job all ranks know, and the one that is first leaves none alone.
        if not self._is_over:
            self.ranks.end("it has left the job")

    def _collect(self, vector: str) -> None:
        """Brings the shards of a vector to rank 0, and takes the mean of what is averaged over the
        ranks."""
        averaged = torch.frombuffer(self.parameters, dtype=torch.float32)
        for tensor in self._tensors:
            if tensor.is_averaged:
                self.ranks.take_mean(self._whole(averaged, tensor))
        self.ranks.gather(self._shards(torch.frombuffer(getattr(self, vector),
                                                        dtype=torch.float32)))

    def _distribute(self) -> None:
        """Gives each rank its shards of the weights, and all that is averaged."""
        weights = torch.frombuffer(self.parameters, dtype=torch.float32)
        self.ranks.scatter(self._shards(weights))
        for tensor in self._tensors:
            if tensor.is_averaged:
                self.ranks.share_values(self._whole(weights, tensor))

    def _whole(self, vector: Any, tensor: _Tensor) -> Any:
        begin = self.offset(tensor.name)
        return vector[begin:begin + tensor.ends[-1]]

    @property
    def parameters(self) -> memoryview:
        """Returns the weights with the shards of this rank, at offset(). The gradients are
        alike."""
        raise NotImplementedError

    @property
    def gradients(self) -> memoryview:
        raise NotImplementedError

    def allocate(self) -> None:
        raise NotImplementedError

    def offset(self, name: str) -> int:
        raise NotImplementedError

    @property
    def state(self) -> str:
        raise NotImplementedError

    def block(self, name: str) -> int:
        """Returns the block of a tensor. All shards leave together; blocks tell learning rates
        apart."""
        return self._blocks[name]

    def _add(self, tensor: _Tensor) -> None:
        self._tensors.append(tensor)

    def _worker(self) -> Worker:
        """Returns the worker of rank 0."""
        raise NotImplementedError

    def _answer(self, told: List[_Told]) -> None:
        """Hands the step in."""

    def _shards(self, vector: Any) -> List[Tuple[int, Any]]:
        """Returns the shards of the other ranks, in the order of the tensors, as Ranks.gather()
        wants them."""
        raise NotImplementedError


class Leader(ShardedWorker):
    """Is rank 0, whose own shards are the first rows of the tensors in the worker's vectors."""

    def __init__(self, ranks: Ranks, make_worker: Callable[[], Worker]) -> None:
        super().__init__(ranks)
        self._own: Optional[Worker] = None
        self._has_left_out = False  # a metric

        def make() -> None:
            self._own = make_worker()

        ranks.lead(make)

    def _worker(self) -> Worker:
        assert self._own is not None
        return self._own

    @property
    def parameters(self) -> memoryview:
        return self._worker().parameters

    @property
    def gradients(self) -> memoryview:
        return self._worker().gradients

    def allocate(self) -> None:
        self.ranks.lead(self._worker().allocate)

    def offset(self, name: str) -> int:
        return self._worker().offset(name)

    def block(self, name: str) -> int:
        return self._worker().block(name)

    def _shards(self, vector: Any) -> List[Tuple[int, Any]]:
        shards = []
        for tensor in self._tensors:
            offset = self.offset(tensor.name)
            if not tensor.is_averaged:
                shards += [(rank, vector[offset + tensor.ends[rank - 1]:offset + tensor.ends[rank]])
                           for rank in range(1, self.num_ranks)]
        return shards

    def _answer(self, told: List[_Told]) -> None:
        assert self._step is not None
        worker = self._worker()
        if self._wants_stop:
            worker.stop()
        if told[0].is_skipped:
            worker.step_skipped()
            return
        for block, rate in self._rates.items():
            worker.set_learning_rate(rate, block)
        weights = [rank.weight for rank in told if rank.weight is not None]
        if weights:
            worker.set_weight(sum(weights))
        for name in dict.fromkeys(name for rank in told for name in rank.metrics):
            values = [rank.metrics[name] for rank in told if name in rank.metrics]
            self._log(name, sum(values) / len(values))
        counted = told if self._is_cut(self._step) else told[:1]
        loss_sum, num_correct, num_predictions = (sum(sums)
                                                  for sums in zip(*(rank.sums for rank in counted)))
        worker.step_done(loss_sum, num_correct, num_predictions)

    def _log(self, name: str, value: float) -> None:
        """Warns once of a metric that the round has no room for, and leaves it out."""
        try:
            self._worker().log(name, value)
        except LodestarError as error:
            if error.code != "INVALID_ARGUMENT":
                raise
            if not self._has_left_out:
                warnings.warn(f"{error}; this metric is left out")
            self._has_left_out = True

    def step_failed(self, why: str) -> None:
        super().step_failed(why)
        self._worker().step_failed(why)

    @property
    def state(self) -> str:
        return self._worker().state

    def stop(self) -> None:
        super().stop()
        self._worker().stop()

    def close(self) -> None:
        super().close()
        self._worker().close()


class Follower(ShardedWorker):
    """Is any other rank, with vectors that have its shards, one after the other."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(ranks)
        self._offsets: Dict[str, int] = {}
        self._num_elements = 0
        self._parameters = self._gradients = _floats(0)
        ranks.lead(lambda: None)  # rank 0 has a worker

    def _add(self, tensor: _Tensor) -> None:
        super()._add(tensor)
        self._offsets[tensor.name] = self._num_elements
        self._num_elements += self._size(tensor)

    def _size(self, tensor: _Tensor) -> int:
        rank = self.ranks.rank
        return tensor.ends[rank] - (0 if tensor.is_averaged else tensor.ends[rank - 1])

    @property
    def parameters(self) -> memoryview:
        return self._parameters

    @property
    def gradients(self) -> memoryview:
        return self._gradients

    def allocate(self) -> None:
        self.ranks.lead(lambda: None)
        # PyTorch does not take an empty one.
        self._parameters, self._gradients = (_floats(max(self._num_elements, 1)) for _ in range(2))

    def offset(self, name: str) -> int:
        return self._offsets[name]

    def _shards(self, vector: Any) -> List[Tuple[int, Any]]:
        return [(self.ranks.rank, vector[self._offsets[tensor.name]:][:self._size(tensor)])
                for tensor in self._tensors if not tensor.is_averaged]

    @property
    def state(self) -> str:
        return "compute" if self.has_step else "wait"


def _uneven(num_samples: int, num_ranks: int) -> LodestarError:
    return LodestarError(
        "FAILED_PRECONDITION",
        f"a step of this job has {num_samples} samples per worker, which cannot be divided evenly "
        f"among the {num_ranks} ranks of this worker. Start ps_server with a --batch_size that is "
        f"a multiple of {num_ranks}")


def _floats(count: int) -> memoryview:
    return memoryview((ctypes.c_float * count)()).cast("B").cast("f")


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
