# SPDX-License-Identifier: Apache-2.0
"""A worker as the C API has it: flat vectors and numbers of samples. NumPy, or nothing, is enough.

    worker = lodestar.Worker(coordinator="host:50051")
    worker.add_tensor("weight", [3], block=0)
    worker.set_data(num_train_samples=1000)
    worker.allocate()
    weights = numpy.frombuffer(worker.parameters, dtype=numpy.float32)   # a view, not a copy
    gradient = numpy.frombuffer(worker.gradients, dtype=numpy.float32)
    weights[:] = ...                            # what the job begins with, if it begins with this one
    worker.start()
    for step in worker.steps():
        if step.is_training:
            gradient[:] = ...                   # of the mean loss over step.samples
        worker.step_done(loss_sum, num_correct, num_predictions=len(step.samples))
"""
from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from lodestar import _library
from lodestar._library import LodestarError

_TRAIN, _EVALUATE, _END = 1, 2, 3
# Between two looks at signals.
_WAIT_MILLISECONDS = 100

# Those that leave when the program ends, instead of being waited for.
_open_workers: "weakref.WeakSet[Worker]" = weakref.WeakSet()


os.register_at_fork(after_in_child=_open_workers.clear)


@atexit.register
def _close_all() -> None:
    for worker in list(_open_workers):
        worker.close()


class Step(NamedTuple):
    """Something to compute with the weights as they are.

    Attributes:
      is_training: else the loss alone is wanted, of held-out samples.
      round: of the job.
      step, num_steps: which of the round's local steps, from 0 on; 0 of 1 without local steps.
      learning_rate: of the job's schedule.
      server_incarnation: another one than before: the servers have begun anew.
      samples: their numbers, each below num_train_samples (num_heldout_samples).
      epochs: the passes over the data that they belong to; 0 of held-out ones.
      first_position: place of the first among all samples that the job has trained on.
      epoch: of training: the pass in which the round began, which all workers with the same data
        have alike; with local steps the pass of the first sample. It is that of all ranks that are
        one worker.
    """

    is_training: bool
    round: int
    step: int
    num_steps: int
    learning_rate: float
    server_incarnation: int
    samples: List[int]
    epochs: List[int]
    first_position: int
    epoch: int


class Evaluation(NamedTuple):
    """An evaluation of the job, over all workers.

    Attributes:
      round: how many updates the weights had had.
      loss: the mean over predictions, in nats.
      accuracy: the share of right predictions; NaN if it is not known.
    """

    round: int
    loss: float
    accuracy: float


class Place(NamedTuple):
    """What a worker is among the living workers of its job.

    Attributes:
      index: the lowest number from 0 that no other living worker had when this one registered.
      count: how many workers live.
      is_first: whether no living worker has a lower index.
    """

    index: int
    count: int
    is_first: bool


def _bytes(subject: str, value: object) -> bytes:
    """Returns text for the library, in which bytes of file names that are no UTF-8 stay as they
    are. Raises LodestarError INVALID_ARGUMENT for text that has no such form."""
    text = str(value)
    try:
        if "\0" not in text:
            return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        pass
    raise LodestarError("INVALID_ARGUMENT",
                        f"{subject} is {text!r}, which has a NUL character or is not valid Unicode; "
                        "give other text")


def _step_of(step: _library.Step, epoch: Optional[int] = None) -> Step:
    count = step.num_samples
    if epoch is None:
        epoch = step.epochs[0] if count else 0
    return Step(step.kind == _TRAIN, step.round, step.step, step.num_steps, step.learning_rate,
                step.server_incarnation, step.samples[:count], step.epochs[:count],
                step.first_position, epoch)


class Worker:
    """Is one worker of a job. One thread uses it, but for block_ready(), state and stop().

    Settings are called as the flags of gpu_worker: coordinator, name, join, state_dir,
    keep_residuals, tls_cert, tls_key, tls_ca, insecure, shared_memory, leave_timeout,
    connect_timeout, threads; device, a name for people; frozen_hash, a text that must be equal
    for all workers that tell one, of the weights that they have beside and do not train; and
    data_order, "shuffled" or "sequential", which all programs with the same data have alike.
    None: not set. Every method raises LodestarError with what was refused and why.
    """

    num_ranks = 1  # processes that it is

    def __init__(self, **settings: object) -> None:
        self._library = _library.library()
        self._handle: int = self._library.new()
        self._process = os.getpid()
        self._has_started = False
        self._has_step = False  # that is not done
        for setting, value in settings.items():
            if value is not None:
                text = str(int(value)) if isinstance(value, bool) else str(value)
                self._check(self._library.set(self._handle, _bytes("a setting", setting),
                                              _bytes(f"{setting}=", text)))

    def _check(self, code: int) -> None:
        self._library.check(code)

    def set(self, setting: str, value: object) -> None:
        """Sets one of the settings of the constructor. Call it before start(), and for data_order
        before set_data()."""
        self._check(self._library.set(self._handle, _bytes("a setting", setting),
                                      _bytes(f"{setting}=", value)))

    def propose(self, setting: str, value: object) -> None:
        """Proposes a setting of the job. It counts if this is the first program of a new job, and
        where the operator of the servers has not given it: optimizer, momentum, beta1, beta2,
        epsilon, weight_decay, learning_rate, clip_norm or batch_size, as the flags of ps_server; or
        lr_schedule as "program", if the rates of programs' optimizers are used. Servers ignore
        clip_norm where programs make the steps. job() tells what came of it."""
        self._check(self._library.propose(self._handle, _bytes("a setting", setting),
                                          _bytes(f"{setting}=", value)))

    def add_tensor(self, name: str, shape: Sequence[int], block: int = 0,
                   decays: bool = True) -> None:
        """Appends a tensor. Blocks are 0, 1, 2, ... in the order in which forward uses them."""
        sizes = (ctypes.c_int64 * len(shape))(*shape)
        self._check(self._library.add_tensor(self._handle, _bytes("a tensor", name), sizes,
                                             len(shape), block, int(decays)))

    def add_embedding(self, name: str, shape: Sequence[int], block: int = 0,
                      decays: bool = True) -> None:
        """Appends a table of which a sample touches few rows: of it the servers take the plain mean,
        where --outer_reduction=direction takes the mean direction of others."""
        sizes = (ctypes.c_int64 * len(shape))(*shape)
        self._check(self._library.add_embedding(self._handle, _bytes("a tensor", name), sizes,
                                                len(shape), block, int(decays)))

    def add_averaged(self, name: str, shape: Sequence[int], block: int) -> None:
        """Appends a tensor that no gradient belongs to, such as a running mean: each step leaves its
        new values in `parameters`, and the next weights have the mean of what all workers left. Its
        block has no others but such, and block_ready() refuses it."""
        sizes = (ctypes.c_int64 * len(shape))(*shape)
        self._check(self._library.add_averaged(self._handle, _bytes("a tensor", name), sizes,
                                               len(shape), block))

    def set_data(self, num_train_samples: int, num_heldout_samples: int = 0,
                 predictions_per_sample: int = 1, fingerprint: str = "",
                 is_own: bool = False) -> None:
        """Tells how many samples there are. Call it before start(), or once after it, before the
        first step: so `place` can decide which data it is. `fingerprint` has 16 hex digits that are
        equal for workers with the same data; an empty one is not compared. `is_own` means that the
        data is this worker's alone."""
        self._check(self._library.set_data(self._handle, _bytes("fingerprint=", fingerprint), num_train_samples,
                                           num_heldout_samples, predictions_per_sample,
                                           int(is_own)))

    def allocate(self) -> None:
        """Makes both vectors, of zeros. Before start(): of the tensors as they were added, and the
        job's layout must be equal. After it: as the job has them, in its order; blocks until that is
        known, and the weights to begin with are written before the first step is asked for."""
        if self._has_started:
            self._wait(for_job=True)
        self._check(self._library.allocate(self._handle))

    def _vector(self, floats: object) -> memoryview:
        count = self._library.num_elements(self._handle)
        if count == 0:
            raise LodestarError("FAILED_PRECONDITION",
                                "the vectors do not exist yet; call allocate() first")
        array = ctypes.cast(floats, ctypes.POINTER(ctypes.c_float * count)).contents
        array.owner = self  # the memory is there for as long as it is looked at
        return memoryview(array).cast("B").cast("f")

    @property
    def parameters(self) -> memoryview:
        """Returns the weights: [num_elements] float32, all tensors one after the other."""
        return self._vector(self._library.parameters(self._handle))

    @property
    def gradients(self) -> memoryview:
        """Returns the gradients of the mean loss over a step's samples: [num_elements] float32."""
        return self._vector(self._library.gradients(self._handle))

    def offset(self, name: str) -> int:
        """Returns where a tensor begins, in elements. Raises KeyError if there is none of that
        name."""
        offset = self._library.offset(self._handle, name.encode())
        if offset < 0:
            raise KeyError(name)
        return offset

    @property
    def num_blocks(self) -> int:
        """Returns how many blocks the vectors have. 0 means that allocate() was not called."""
        return self._library.num_blocks(self._handle)

    def block(self, name: str) -> int:
        """Returns the block that a tensor is in. Raises KeyError if there is none of that name."""
        block = self._library.block(self._handle, name.encode())
        if block < 0:
            raise KeyError(name)
        return block

    def start(self) -> None:
        """Connects, and trains until the job is done, on a thread of its own."""
        self._check(self._library.start(self._handle))
        self._has_started = True
        _open_workers.add(self)

    def job(self, setting: str) -> str:
        """Returns a setting of the job as text: mode, model, layout_is_own, has_local_steps ("0",
        "1"), local_steps, batch_size, global_batch_size, optimizer, learning_rate, lr_schedule,
        momentum, beta1, beta2, epsilon, weight_decay, clip_norm, rounds or seed; or rounds_done, the
        number of rounds that a worker of this name had contributed to before; or counts_weights
        ("0", "1"): whether set_weight() has an effect. Blocks until the worker has registered."""
        self._wait(for_job=True)
        value = self._library.job(self._handle, setting.encode())
        if value is None:
            self._check(self._library.last_code())
        return value.decode()

    @property
    def place(self) -> Place:
        """Returns what this worker is among the living workers of the job. The index stays for the
        worker's life; the others are those of the newest grant or heartbeat. Blocks until the
        worker has registered."""
        self._wait(for_job=True)
        index, count, is_first = ctypes.c_int64(), ctypes.c_int64(), ctypes.c_int()
        self._check(self._library.place(self._handle, ctypes.byref(index), ctypes.byref(count),
                                        ctypes.byref(is_first)))
        return Place(index.value, count.value, bool(is_first.value))

    @property
    def is_in_fork(self) -> bool:
        """Returns whether this process was forked from the one that has made the worker."""
        return os.getpid() != self._process

    def _wait(self, for_job: bool) -> None:
        """Waits so that handlers of signals run meanwhile."""
        if self.is_in_fork:
            raise LodestarError("FAILED_PRECONDITION",
                                "a worker can be used only in the process that made it; make a "
                                "worker in each process")
        while not self.is_ready(for_job):
            pass

    def is_ready(self, for_job: bool = False) -> bool:
        """Returns whether next(), or job(), would not block. Waits a moment for it."""
        return bool(self._library.wait(self._handle, int(for_job), _WAIT_MILLISECONDS))

    def next(self) -> Optional[Step]:
        """Blocks until there is something to compute. None: the job is done, or the worker was told
        to stop."""
        self._wait(for_job=False)
        step = _library.Step(size=ctypes.sizeof(_library.Step))
        self._has_step = True
        try:
            self._check(self._library.next(self._handle, ctypes.byref(step)))
        except LodestarError:
            self._has_step = False
            raise
        if step.kind == _END:
            self._has_step = False
            return None
        return self._at_hand(step)

    def _at_hand(self, step: _library.Step) -> Step:
        if step.kind != _TRAIN:
            return _step_of(step)
        epoch = ctypes.c_int64()
        self._check(self._library.round_pass(self._handle, ctypes.byref(epoch)))
        return _step_of(step, epoch.value)

    def extend(self) -> Step:
        """Blocks until the servers have granted more samples for the step of training at hand, as
        many as it began with, and returns the step with these in place of the earlier ones. The
        contribution has the same weight as without them. After an error the step is over. Raises
        FAILED_PRECONDITION after block_ready(), INVALID_ARGUMENT with local steps; any other code
        but UNIMPLEMENTED means that this worker has lost the round, and that next() goes on."""
        step = _library.Step(size=ctypes.sizeof(_library.Step))
        try:
            self._check_beside(self._library.extend, ctypes.byref(step))
        except LodestarError:
            self._has_step = False
            raise
        return self._at_hand(step)

    def _check_beside(self, function: Callable[..., int], *arguments: object) -> None:
        """Calls a function of the library that blocks, on a thread of its own, so that handlers of
        signals run meanwhile. Raises LodestarError for what it has returned."""
        errors: List[BaseException] = []

        def call() -> None:
            try:
                self._check(function(self._handle, *arguments))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_WAIT_MILLISECONDS / 1000)
        if errors:
            raise errors[0]

    def set_initial_state(self, number: int, state: memoryview, num_updates: int) -> None:
        """Sets a vector of the state that the servers' optimizer begins the job with, if the job
        begins with this program's weights: [num_elements] float32. Vectors are numbered from 1: for
        adamw exp_avg and exp_avg_sq, for momentum and nesterov the momentum. Call it in this order,
        after allocate() and while the weights to begin with may be written. `num_updates` is the
        number of updates that the state has had."""
        count = self._library.num_elements(self._handle)
        array = (ctypes.c_float * count).from_buffer(state)
        self._check(self._library.set_initial_state(self._handle, number, array, num_updates))

    def pull_state(self, number: int) -> Tuple[memoryview, List[int], bool]:
        """Returns a vector of the state of the servers' optimizer, numbered as in
        set_initial_state(). Blocks until it has arrived. Call it while there is a step, or after the
        last one if keep_state() was called before.

        Returns: [num_elements] float32; for each block the number of updates that its state has had;
          and whether the state is newer than the weights of the step.
        """
        array = (ctypes.c_float * self._library.num_elements(self._handle))()
        updates = (ctypes.c_int64 * self.num_blocks)()
        is_newer = ctypes.c_int()
        self._check_beside(self._library.pull_state, number, array, updates,
                           ctypes.byref(is_newer))
        return memoryview(array).cast("B").cast("f"), list(updates), bool(is_newer.value)

    def keep_state(self, num_vectors: int) -> None:
        """Makes so many vectors of the state come with the last weights of the job, for
        pull_state() after it. Call it before the last step is done."""
        self._check(self._library.keep_state(self._handle, num_vectors))

    def keep_samples(self) -> None:
        """From the next request for a step on, steps of training have no samples: the program makes
        them with samples that it has, or with those of extend(). Not with local steps."""
        self._check(self._library.keep_samples(self._handle))

    def expect(self, ahead: int = 1) -> Optional[Step]:
        """Returns the step of training that comes so many steps after the one at hand, to load its
        data ahead: samples, epochs, round, step and num_steps. It is certain within a round. Beyond
        the round it is a guess, right as long as no worker joins or leaves. None means that it
        cannot be told."""
        step = _library.Step(size=ctypes.sizeof(_library.Step))
        self._check(self._library.expect(self._handle, ahead, ctypes.byref(step)))
        return _step_of(step) if step.num_samples > 0 else None

    def steps(self) -> Iterator[Step]:
        """Yields all steps that are left."""
        while (step := self.next()) is not None:
            yield step

    def set_learning_rate(self, rate: float, block: int = -1) -> None:
        """Sets the rate of the program's optimizer for a block in the step of training at hand,
        before the first block_ready() of it. Block -1 means all that have none of their own. In
        sync, and if job("lr_schedule") is "program", servers make the step with it. A worker with
        another rate than others in the round is refused."""
        self._check(self._library.set_learning_rate(self._handle, block, rate))

    def set_weight(self, weight: int) -> None:
        """Sets the weight of the step of training at hand in the mean over the workers, in place of
        its number of samples, before the first block_ready() of it. Weights of local steps add up.
        All workers set one in each step, or none does. It has no effect in async, and where
        contributions are deferred, as with --overlap_steps."""
        self._check(self._library.set_weight(self._handle, weight))

    def block_ready(self, block: int) -> None:
        """Tells that the gradient of a block is there: it may leave while the others are
        computed."""
        self._check(self._library.block_ready(self._handle, block))

    def step_done(self, loss_sum: float = 0.0, num_correct: int = 0,
                  num_predictions: int = 0) -> None:
        """Hands the step in, with sums over its predictions, and losses in nats. num_predictions 0
        means that their number is not known."""
        self._check(self._library.step_done(self._handle, loss_sum, num_correct, num_predictions))
        self._has_step = False

    def log(self, name: str, value: float) -> None:
        """Tells a number of the step of training at hand, beside its loss. `psctl status` and
        --metrics_out have the mean over the round's steps and over the workers that told it. Names
        are of letters, digits and ._-/, at most 64 bytes, at most 32 in a round."""
        self._check(self._library.log(self._handle, _bytes("a metric", name), float(value)))

    def step_skipped(self) -> None:
        """Leaves out a step of training whose gradient is not finite, instead of step_done(). The
        round goes on without it. It is refused after block_ready(), and with local steps."""
        self._check(self._library.step_skipped(self._handle))
        self._has_step = False

    def step_failed(self, why: str) -> None:
        """Tells that the step cannot be computed: the worker leaves the job, and next() raises
        why."""
        self._has_step = False
        self._check(self._library.step_failed(self._handle, why.encode("utf-8", "replace")))

    @property
    def has_step(self) -> bool:
        """Returns whether there is a step that is neither done nor failed."""
        return self._has_step

    @property
    def weights_version(self) -> int:
        """Returns how many updates the weights have had that next() has come with, or those that
        the job has ended with. -1 means that some tensors have had more than others, or that there
        are none yet."""
        return self._library.weights_version(self._handle)

    @property
    def evaluation(self) -> Optional[Evaluation]:
        """Returns the last evaluation that the servers have told of. None means that there was
        none."""
        loss, accuracy = ctypes.c_double(), ctypes.c_double()
        number = self._library.evaluation(self._handle, ctypes.byref(loss), ctypes.byref(accuracy))
        return None if number < 0 else Evaluation(number, loss.value, accuracy.value)

    @property
    def state(self) -> str:
        """Returns what the worker does now: "wait", "pull", "compute", "push", ..."""
        return self._library.state(self._handle).decode()

    def stop(self) -> None:
        """Makes steps end once the round at hand is over."""
        self._check(self._library.stop(self._handle))

    def leave(self) -> None:
        """Leaves at once; local steps that were made are handed in."""
        self._check(self._library.leave(self._handle))

    def close(self) -> None:
        """Leaves, if that was not done, whatever comes of it. The vectors stay."""
        if self._has_started and not self.is_in_fork:
            self._has_started = False
            _open_workers.discard(self)
            self._library.leave(self._handle)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The threads of a worker are not in a child of its process.
        if hasattr(self, "_process") and os.getpid() == self._process:
            self._library.free(self._handle)
