# SPDX-License-Identifier: Apache-2.0
"""join() and what it returns: a PyTorch model, its optimizer and a data set as one worker of a job."""
from __future__ import annotations

import contextlib
import os
import re
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple,
                    Union, cast)

from lodestar._accelerate import batches_per_step, inner_optimizer
from lodestar._arguments import (check_data, check_function, check_heldout, described,
                                 is_map_style, number, whole_number)
from lodestar._attached_models import AttachedModel
from lodestar._attached_optimizers import (AttachedOptimizer, JointOptimizer, optimizers_of,
                                           take_together)
from lodestar._batches import GrantedBatches, OwnBatches, make_loader
from lodestar._join_strings import address_of_environment, is_join_setting
from lodestar._learning_rates import JobSchedulers, LearningRates
from lodestar._library import LodestarError
from lodestar._one_thread import OneThread, call_of_one_thread, items_of_one_thread
from lodestar._optimizer_settings import Settings, settings_of
from lodestar._own_data import OwnData
from lodestar._step_weights import StepWeights
from lodestar.worker_api import Evaluation, Place, Step, Worker

if TYPE_CHECKING:  # they need PyTorch, and Worker does not
    from lodestar._data_loaders import Placement
    from lodestar._exchange import Exchange, HookedSteps
    from lodestar._trained_tensors import TrainedTensor, TrainedTensors

# Batch size of an evaluation, if the job says none.
_EVALUATION_BATCH = 32
# As servers limit them.
_METRIC_NAME_BYTES = 64
# Name of the metric that has the learning rate of a program's optimizer.
_RATE_METRIC = "learning_rate"
# Stands for the length of data that have none: passes over them say nothing.
_ENDLESS = 1 << 40

# Gradients do not leave during backward before so many steps have shown whether the program takes
# one batch for each: the first step of `if i % 4 == 0: optimizer.step()` has one batch, too.
_STEPS_TO_LEARN = 2
# Batches of one step, at most. A program with more has forgotten optimizer.step().
_MOST_BATCHES = 1024

# Options of a DataLoader that are not the program's to choose.
_GRANTED_OPTIONS = ("shuffle", "sampler", "batch_sampler", "drop_last")

# Attribute of an optimizer that is attached.
_SESSION = "_lodestar_session"

Evaluate = Callable[[Any], Tuple[float, int, int]]

# Those without a name of their own, which a process can have one of.
_unnamed_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def join(address: Optional[str] = None, *, name: Optional[str] = None,
         state_dir: Optional[str] = None, keep_residuals: Optional[str] = None,
         tls_cert: Optional[str] = None, tls_key: Optional[str] = None,
         tls_ca: Optional[str] = None, insecure: bool = False, shared_memory: bool = True,
         threads: int = 1, leave_timeout: str = "30s", connect_timeout: str = "1h",
         check_frozen: bool = True, group: Any = None) -> "Session":
    """Says which cluster this program will be a worker of; connects with Session.loader().

    Args:
      address: "host:port" of the server of shard 0 (several with commas), for a server on this
        machine, or one that this machine has a certificate of, or insecure=True; or what `psctl token
        create` has printed ("lodestar://..."), or a file with that. None: $LODESTAR, else the
        cluster of $LODESTAR_JOIN, else this machine.
      name: of this worker, unique in the job. None: one of host and process, or of its certificate;
        a session of this process that has none either leaves its job then.
      state_dir: where keys and certificates are kept, and with a name what error feedback has, and
        where loaders with state_dict() are. None: as gpu_worker does, and no such states.
      keep_residuals: in which jobs with error feedback: "local_steps" (as None), "always", "never".
      tls_cert, tls_key, tls_ca: files with a certificate of an authority of your own.
      insecure: allows plain text to other machines.
      shared_memory: whether weights and gradients go through it, where the server is here.
      threads: that encode what is sent; 0 means one per core that the process may use.
      leave_timeout: how long a worker that leaves tries to tell servers that do not answer, such as
        "5s".
      connect_timeout: how long no server may answer before the session gives up with UNAVAILABLE,
        such as "90s"; "0" means for ever.
      check_frozen: whether frozen parameters must have the same bytes in all programs, which is
        not checked with group=. A worker with others is refused.
      group: of torch.distributed, whose processes are one worker together, with a model that went
        through fully_shard(); all of them call this, and everything else of the session, alike.

    Raises:
      LodestarError: INVALID_ARGUMENT for a setting that is none.
    """
    address = address or address_of_environment()
    if not isinstance(address, (str, os.PathLike, type(None))):
        raise LodestarError("INVALID_ARGUMENT",
                            f"address= is {described(address)}, but must be text such as "
                            "\"host:50051\", or the path of a file")
    address = None if address is None else os.fspath(address)
    if not isinstance(insecure, bool):
        raise LodestarError("INVALID_ARGUMENT",
                            f"insecure= is {described(insecure)}, but must be True or False")
    is_join_string = address is not None and is_join_setting(address)

    def make_worker() -> Worker:
        return Worker(coordinator=None if is_join_string else address,
                      join=address if is_join_string else None, name=name, state_dir=state_dir,
                      keep_residuals=keep_residuals, tls_cert=tls_cert, tls_key=tls_key, tls_ca=tls_ca,
                      insecure=True if insecure else None, shared_memory=shared_memory,
                      threads=threads, leave_timeout=leave_timeout,
                      connect_timeout=connect_timeout)

    if group is None:
        session = Session(make_worker(), check_frozen=check_frozen, name=name, state_dir=state_dir)
        if name is None:
            _end_unnamed_sessions()
            _unnamed_sessions.add(session)
        return session
    from lodestar._sharded_session import ShardedSession

    return ShardedSession(group, make_worker, name=name, state_dir=state_dir)


def _end_unnamed_sessions() -> None:
    for session in list(_unnamed_sessions):
        if not session.has_left:
            warnings.warn("join() was called again, so the earlier session of this process leaves "
                          "the job. To have several sessions, give each a name=")
            session.leave()


class Session:
    """Is one worker, which one thread at a time uses. As a context manager it leaves the job at the
    end."""

    def __init__(self, worker: Worker, *, check_frozen: bool = False, name: Optional[str] = None,
                 state_dir: Optional[str] = None) -> None:
        self._worker = worker
        self.thread = OneThread()  # that is in a call
        self._check_frozen = check_frozen
        self._own_data = OwnData(worker, name, state_dir)
        self._model: Any = None
        self._optimizer: Any = None
        self._exchange: Optional[Exchange] = None  # once the job is known
        self._data: Any = None  # once it has started
        self._is_shuffled = True
        self._source: Any = None  # of batches, and what it was made for
        self._source_of: Any = None
        self._batch_size: Optional[int] = None
        self._heldout: Any = None
        self._evaluate: Optional[Evaluate] = None
        self._collate: Callable[[List[Any]], Any] = list

        self._has_started = False
        self._has_left = False
        self._is_over = False  # the job's end has come
        self._is_stopping = False
        self._last_step: Optional[Step] = None  # the last one that has ended
        self._epoch = 0  # of the first sample of the newest step
        self._incarnation = 0
        self._has_comm_hook = False
        self._step: Optional[Step] = None  # at hand
        self._is_made = False  # the optimizer has made it
        self._is_handed_over = False
        self._has_gradients = False  # backward has given it some
        self._is_skipped = False  # a GradScaler has found Inf in it
        # Whether the backward pass under way is the last one of its step. None means unknown.
        self._is_last_backward: Optional[Callable[[], bool]] = None
        self._adds_batches = False  # the program has taken several batches for a step
        self._num_steps = 0  # made by the program
        self._num_idle = 0  # batches since the last step
        self._keeps_samples = False  # steps come without, because the program makes several with one
        self._kept_step: Optional[Step] = None  # whose samples are those of the next batch
        self._is_cut = False  # the job has ended between two steps with the batch at hand
        self._loss_before: Tuple[float, int, int] = (0.0, 0, 0)  # of the batch at hand
        self._following: List[Optional[Step]] = []  # that came early; None: there is none
        self._ignores_schedulers = False
        self._logs_rate = False  # the program tells one itself
        self._warned_of: Set[str] = set()  # subjects of metrics
        self._batch_samples = 0  # of the batch at hand
        self._is_last_batch = True
        self._loss: Tuple[float, int, int] = (0.0, 0, 0)
        # Metrics, and losses, that were told after their step was handed over.
        self._late: List[Tuple[str, float]] = []
        self._late_loss: Tuple[float, int, int] = (0.0, 0, 0)
        self._weights = StepWeights(worker, self._warn_once)

    def attach(self, model: Any, optimizer: Any, *, overlap: bool = True,
               keep_weights: bool = False, schedulers: Sequence[Any] = (),
               clip_norm: Optional[float] = None) -> Tuple[Any, Any]:
        """Makes a model and its optimizer those of the job; returns both.

        Either may be a list of several. Parameters of a list of models are named by their place,
        "0.weight". Several optimizers need a job whose programs make the steps (local_sgd or
        --optimizer=reduce); with reduce all programs make them in the same order.

        The weights of the first worker of a job are those that it begins with, unless the servers
        have a model of their own, with the same names and shapes. Parameters that the optimizer has
        and that need a gradient travel, under their names in the model, without `module.` and
        `_orig_mod.`; tied ones once. So do buffers that are saved with the model: their mean over
        the workers counts, of counters too; other integers stay as they are. In sync and async
        optimizer.step() hands the gradient over, and the servers make the step, as their flags say,
        or, where those say nothing, as the optimizer of the first worker does; in local_sgd it makes
        the step as in plain PyTorch. With --optimizer=reduce it makes the step with the mean gradient, which is
        there at the end of backward(), so that clipping and hooks see it.

        In sync and async new weights come with the next batch. optimizer.step(wait=True) waits for
        them, for an average of weights (EMA) and for other programs that look at them at once. In
        other jobs it makes no difference.

        The learning rates of the optimizer hold, whatever sets them. In sync they leave with the
        gradients, and all workers of a round need the same. If ps_server has a flag of the learning
        rate, has a model of its own, or has --mode=async, the job's schedule holds instead, and a
        change of a rate here raises an error.

        Args:
          model: torch.nn.Module, with f32, bf16, f16 or f64 parameters on any device.
          optimizer: torch.optim.Optimizer of its parameters, or what accelerator.prepare() has made
            of it. In sync and async its state_dict() has the servers' state for the weights that
            the program has. After step(), state_dict() of model or optimizer brings the weights of
            the step first. State that the optimizer has before the first batch begins the job, if
            this program's weights do.
          overlap: gradients leave while backward computes the others. False: at optimizer.step(),
            for programs that change this worker's gradients in between (a GradScaler; clipping in
            sync) or call backward several times for one batch.
          keep_weights: of a job with --optimizer=reduce: the weights here count, also where the job
            has begun; all workers have loaded the same.
          schedulers: of learning rates, that the program steps once after each optimizer.step(). A
            worker that joins later, or has missed rounds, gets them stepped to where the others are.
          clip_norm: the norm to which the program clips all gradients before optimizer.step(). In
            sync and async the servers clip in its place, and in sync the mean over the workers: to
            this norm, if this is the first worker and ps_server has no --clip_norm. The program's
            own clipping makes no difference then; with overlap=False leave it out.

        Raises:
          LodestarError: FAILED_PRECONDITION if something was attached before; INVALID_ARGUMENT
            for other than modules and optimizers, without a parameter to train, or for one of an
            optimizer that is not the model's.
        """
        if self._model is not None:
            raise LodestarError(
                "FAILED_PRECONDITION",
                "this session already has a model and an optimizer. Attach several at once, as "
                "attach([a, b], [optimizer_a, optimizer_b]). A model of another job needs another "
                "session (join(..., name=))")
        from lodestar._clipping import checked_norm

        given = model, optimizer
        model, optimizer = take_together(model, optimizer)
        if any(getattr(each, _SESSION, self) is not self for each in optimizers_of(optimizer)):
            raise LodestarError("FAILED_PRECONDITION",
                                "another session has this optimizer; call its leave() first, or "
                                "make an optimizer and a model for each session")
        if schedulers and isinstance(optimizer, JointOptimizer):
            raise LodestarError("INVALID_ARGUMENT",
                                "schedulers= is given with several optimizers, which step at "
                                "different times; leave schedulers= out")
        self._tensors = self._make_tensors(model, optimizer)
        self._overlap, self._keep_weights = overlap, keep_weights
        self._clip_norm = checked_norm(clip_norm)
        self._worker.set("device", f"PyTorch on {next(iter(model.parameters())).device.type}")
        self._rates = LearningRates(optimizer)
        self._rates.may_change = self._ignores_schedulers
        self._schedulers = JobSchedulers(schedulers)
        self._propose(optimizer)
        self._hooks = self._tensors.on_each_gradient(self._on_gradient)
        if overlap and self._is_last_backward is None:
            self._is_last_backward = lambda: self._is_last_batch
        self._attached = [AttachedOptimizer(each, self._make_step, self._look_for_inf,
                                            self._state_of_servers)
                          for each in optimizers_of(optimizer)]
        for each in self._attached:
            setattr(each.optimizer, _SESSION, self)
        self._attached_model = AttachedModel(model, self._bring_weights)
        self._model, self._optimizer = model, optimizer
        return given

    def _make_tensors(self, model: Any, optimizer: Any) -> TrainedTensors:
        from lodestar._trained_tensors import TrainedTensors

        return TrainedTensors(self._worker, model, optimizer)

    def _propose(self, optimizer: Any) -> None:
        """Proposes settings, which the job uses if this is the first worker and servers have no flag."""
        self._settings: Union[Settings, LodestarError]
        if self._clip_norm is not None:
            self._worker.propose("clip_norm", self._clip_norm)
        try:
            self._rates.propose(self._worker)
            self._settings = settings_of(optimizer)
            for name, value in self._settings.items():
                self._worker.propose(name, value)
        except LodestarError as error:
            # Is raised unless the job leaves the steps to the program. Its traceback would keep the
            # frames of the program, with their tensors and groups.
            self._settings = error.with_traceback(None)

    def loader(self, dataset: Any, batch_size: Optional[int] = None, *,
               accumulate: Optional[int] = None,
               heldout: Any = None, evaluate: Optional[Evaluate] = None, fingerprint: str = "",
               is_own: bool = False, predictions_per_sample: int = 1,
               **options: Any) -> Iterable[Any]:
        """Returns the batches that this worker is to train on.

        The servers say which samples of a map-style data set come, and in which order, so that none
        is taken twice in a pass, although workers join and leave. One loop is the whole job, and when it is
        over the model has the weights of the whole job.

        A torch.utils.data.DataLoader over such a data set is taken apart: the servers grant its
        samples, and batch_size, collate_fn, num_workers, pin_memory, worker_init_fn, generator,
        prefetch_factor and persistent_workers are the DataLoader's, and so is the device of one that
        accelerate has prepared. With shuffle=False each pass has the samples in order, in all
        programs. Samplers and batch samplers of other kinds are refused, unless is_own.
        All batches are whole, whatever drop_last is. One loop is one pass: it ends before the first
        round that begins with a sample of the next pass, or with the job. All workers end it with
        the same round, except in async and with local steps, where a worker ends it before its own
        first step that begins so. `epoch` says which pass comes: `for epoch in range(ps.epoch,
        epochs)`. What is returned has len(), at the present number of workers, and `dataset`.

        A batch that optimizer.step() is not called for stays with those of the next step, whose round
        gets it in addition. In local_sgd the program makes as many steps with a batch as it likes.

        If the data is any other iterable (an iterable data set, also in a DataLoader, or a
        generator), each worker has its own batches, and only their number is counted. One loop is the whole job.

        Args:
          dataset: with len() and [index], the same for all workers; or a DataLoader; or an iterable
            of batches, or an IterableDataset of samples, which begins again where it ends.
          batch_size: of a batch, at most. The job's --batch_size is accumulate times that, times the
            ranks of join(group=), or becomes it with the first worker; in a job with
            --global_batch_size a step has as many batches as it needs. None: whatever the job has.
          accumulate: so many batches are one step; call optimizer.step() after the last one of
            them, with losses times `share` (1/accumulate where batches are equal). None:
            gradient_accumulation_steps of the program's Accelerator, or 1.
          heldout: a map-style data set for evaluations, which the job asks for (--eval_every).
          evaluate: called with a batch of it, without gradients and with the model in eval mode;
            returns the sum of the losses in nats, how many predictions were right, and how many
            there are.
          fingerprint: 16 hex digits that are equal for workers with the same data; compared. Without
            it only the numbers of samples are, of training and held out.
          is_own: the data is this worker's alone (--data_partition=own of gpu_worker). A DataLoader
            then draws its samples itself, and begins again where it ends.
          predictions_per_sample: tokens of a sequence, for the rate in the log.
          options: of torch.utils.data.DataLoader: num_workers, collate_fn, pin_memory, ... With
            processes of its own it loads what is expected to be granted next.

        Raises:
          LodestarError: what the cluster refuses, or the job ended with; INVALID_ARGUMENT for a
            DataLoader whose samples cannot be granted; FAILED_PRECONDITION before attach(), for an
            optimizer that is not the job's, and, from the loop, if optimizer.step() was not called
            for a batch whose gradients may have left, or for very many batches.
        """
        accumulate = (batches_per_step() if accumulate is None else
                      whole_number("accumulate", accumulate))
        if batch_size is not None:
            batch_size = whole_number("batch_size", batch_size)
        wrong = [name for name in _GRANTED_OPTIONS if name in options]
        if wrong:
            raise LodestarError("INVALID_ARGUMENT",
                                f"{', '.join(wrong)} cannot be given, because the servers choose "
                                "the samples and their order; leave it out")
        is_pass = not is_own and _is_granted_loader(dataset)
        is_shuffled, placement = True, None
        of_data = None if is_map_style(dataset) else getattr(dataset, "batch_size", None)
        if is_pass:
            from lodestar._data_loaders import take_apart

            if options:
                raise LodestarError("INVALID_ARGUMENT",
                                    f"{', '.join(options)} cannot be given here, because the "
                                    "DataLoader already has its options; leave it out")
            dataset, of_data, options, is_shuffled, placement = take_apart(dataset)
        if batch_size is not None and of_data is not None and batch_size != of_data:
            raise LodestarError("INVALID_ARGUMENT",
                                f"batch_size={batch_size} is given, but the batches of the data "
                                f"have {of_data} samples; leave batch_size= out")
        batch_size = batch_size or of_data
        self._start(dataset, None if batch_size is None else batch_size * accumulate,
                    heldout=heldout, evaluate=evaluate, collate_fn=options.get("collate_fn"),
                    fingerprint=fingerprint, is_own=is_own,
                    predictions_per_sample=predictions_per_sample, is_shuffled=is_shuffled)
        self._own_data.accumulate = accumulate
        made_for = (batch_size, accumulate, options, placement)
        if self._source is None or self._source_of != made_for:
            with self._leaving_on_error():
                self._source = self._make_source(dataset, *made_for)
            self._source_of = made_for
        if not is_pass:
            return self._batches()
        from lodestar._data_loaders import GrantedLoader

        assert batch_size is not None
        in_round = batch_size * self._worker.num_ranks  # with one batch of each worker, times those
        return GrantedLoader(dataset, lambda: self._batches(is_pass=True),
                             lambda: -(-len(dataset) // (in_round * self.count)))

    def batch_sampler(self, dataset: Any, batch_size: Optional[int] = None, *,
                      fingerprint: str = "", is_own: bool = False,
                      predictions_per_sample: int = 1) -> Iterator[List[int]]:
        """Returns the numbers of the samples of each step, for a DataLoader of one's own:
        `DataLoader(dataset, batch_sampler=ps.batch_sampler(dataset, 32))`. A DataLoader that asks
        ahead, as with num_workers, is refused: what is granted beyond the step at hand is not known
        for certain, and loader() can throw a wrong guess away.

        Args:
          dataset: map-style; only its length is looked at. The others are those of loader().

        Raises:
          LodestarError: as loader(); INVALID_ARGUMENT for data that is not map-style.
        """
        if not is_map_style(dataset):
            raise LodestarError("INVALID_ARGUMENT",
                                f"a {type(dataset).__name__} has no numbered samples, so "
                                "batch_sampler() cannot use it; give it to loader()")
        self._start(dataset, batch_size, fingerprint=fingerprint, is_own=is_own,
                    predictions_per_sample=predictions_per_sample)
        return self._granted_samples()

    def steps(self, num_samples: Optional[int] = None, *,
              batch_size: Optional[int] = None) -> Iterator[Step]:
        """Returns the steps that this worker is to make, for programs whose loop brings batches of its own:
        one optimizer.step() each, with which gradients leave. Weights are new after each. Nothing
        here makes the batches of two workers differ: choose them by `index` and `count`, such as
        files[ps.index::ps.count], and draw by another seed, such as seed + ps.index. After a restart
        skip `batches_done`.

        Args:
          num_samples: of this worker's data; None: endless.
          batch_size: samples of a step, as in loader(), without accumulate.

        Raises:
          LodestarError: as loader().
        """
        count = _ENDLESS if num_samples is None else whole_number("num_samples", num_samples)
        if batch_size is not None:
            batch_size = whole_number("batch_size", batch_size)
        self._start(_Counted(count), batch_size, is_own=True)
        self._own_data.is_used = True
        return self._steps()

    def trainer_steps(self, loader: Any, accumulate: int, *,
                      is_own: bool = False
                      ) -> Tuple[Iterator[Step], Optional[Callable[[], None]]]:
        """The steps of a Trainer with this DataLoader, for Callback. From now on its batches have the
        samples that the servers grant, `accumulate` batches for each step, until what comes second
        is called. None: the Trainer reads its own data.

        Raises:
          LodestarError: as loader().
        """
        if is_own or not _is_granted_loader(loader):
            dataset, batches = (getattr(loader, part, None) for part in ("dataset", "batch_sampler"))
            num_samples = len(dataset) if hasattr(dataset, "__len__") else None
            of_batch = getattr(loader, "batch_size", None) or getattr(batches, "batch_size", None)
            steps = self.steps(num_samples, batch_size=of_batch and of_batch * accumulate)
            return steps, None
        from lodestar._data_loaders import take_apart
        from lodestar._trainer_batches import TrainerBatches

        dataset, batch_size, options, is_shuffled, placement = take_apart(loader, "Callback")
        self._start(dataset, batch_size * accumulate, is_shuffled=is_shuffled)
        # A Trainer takes as many batches for a step, whatever the servers grant.
        self._source = self._make_source(dataset, None, accumulate, options, placement)
        batches = TrainerBatches(loader, self._source, lambda: self._step, self._fail)
        return self._steps(), batches.end

    def _make_source(self, dataset: Any, batch_size: Optional[int], accumulate: int,
                     options: dict, placement: Optional[Placement]) -> Any:
        import torch

        def num_parts(num_samples: int) -> int:
            # With --global_batch_size a step has as many samples as there are for each worker.
            return -(-num_samples // batch_size) if batch_size else accumulate

        if isinstance(dataset, torch.utils.data.IterableDataset):
            dataset = make_loader(dataset, {"batch_size": batch_size or 1, **options})
            return OwnBatches(dataset, num_parts, self._own_data.follow(dataset))
        if is_map_style(dataset):
            return GrantedBatches(dataset, self._expected_samples, num_parts, options,
                                  *([] if placement is None else [placement.put]))
        if options:
            raise LodestarError("INVALID_ARGUMENT",
                                f"{', '.join(options)} cannot be given, because an iterable makes "
                                "its batches itself; leave it out")
        return OwnBatches(dataset, lambda _: accumulate, self._own_data.follow(dataset))

    @call_of_one_thread
    def _start(self, dataset: Any, batch_size: Optional[int], *, heldout: Any = None,
               evaluate: Optional[Evaluate] = None,
               collate_fn: Optional[Callable[[List[Any]], Any]] = None, fingerprint: str = "",
               is_own: bool = False, predictions_per_sample: int = 1,
               is_shuffled: bool = True) -> None:
        self._check_attached()
        if not isinstance(dataset, _Counted):
            check_data(dataset)
        check_heldout(heldout, evaluate)
        check_function("evaluate", evaluate)
        check_function("collate_fn", collate_fn)
        predictions_per_sample = whole_number("predictions_per_sample", predictions_per_sample)
        if not isinstance(fingerprint, str):
            raise LodestarError("INVALID_ARGUMENT",
                                f"fingerprint= is {described(fingerprint)}, but must be 16 hex "
                                "digits as text")
        if self._has_left:
            raise LodestarError("FAILED_PRECONDITION",
                                "this session has left the job; call join() again")
        if self._data is not None:
            if not _is_same(self._data, dataset) or self._is_shuffled != is_shuffled:
                raise LodestarError("FAILED_PRECONDITION",
                                    "this session already trains on another data set, or in another "
                                    "order; for this one, call join() again")
            return
        if heldout is not None and collate_fn is None:
            from torch.utils.data import default_collate
            collate_fn = default_collate
        self._heldout, self._evaluate = heldout, evaluate
        self._collate = collate_fn or list
        self._is_shuffled = is_shuffled
        if not is_shuffled:
            self._worker.set("data_order", "sequential")
        is_numbered = is_map_style(dataset)
        self._worker.set_data(
            len(dataset) if is_numbered or isinstance(dataset, _Counted) else _ENDLESS,
            0 if heldout is None else len(heldout), predictions_per_sample, fingerprint,
            is_own or not is_numbered)
        self._data = dataset
        if batch_size is not None:
            self._batch_size = batch_size * self._worker.num_ranks
        if self._exchange is not None:
            with self._leaving_on_error():
                self._check_job()
                # The program may have loaded weights since the session has connected.
                self._tensors.place(self._worker, in_vector=self._exchange.in_vector)
            return
        if batch_size is not None:
            self._worker.propose("batch_size", self._batch_size)
        self._enter_job()

    def _check_attached(self) -> None:
        if self._model is None:
            raise LodestarError("FAILED_PRECONDITION",
                                "this session has no model yet; call attach() first")

    @contextlib.contextmanager
    def _leaving_on_error(self) -> Iterator[None]:
        """Leaves the job after an error, so that a worker that does not fit holds up no other."""
        try:
            yield
        except BaseException:
            self.leave()
            raise

    def _enter_job(self) -> None:
        if self._check_frozen:
            self._worker.set("frozen_hash", self._tensors.frozen_hash())
        self._has_started = True
        self._worker.start()
        with self._leaving_on_error():
            self._take_job()

    def _take_job(self) -> None:
        from lodestar._backward import BackwardEnd
        from lodestar._exchange import make_exchange

        self._exchange = make_exchange(self._worker, self._tensors, self._optimizer,
                                       overlap=self._overlap,
                                       ends_backward=self._is_last_backward is not None,
                                       keep_weights=self._keep_weights,
                                       has_hook=self._has_comm_hook, rates=self._rates,
                                       settings=self._settings, clip_norm=self._clip_norm)
        self._backward_end = BackwardEnd(self._end_backward, len(self._tensors.trained))
        self._check_job()
        self._worker.allocate()
        self._tensors.place(self._worker, in_vector=self._exchange.in_vector)

    def _check_job(self) -> None:
        """Checks that program and job fit together."""
        assert self._exchange is not None
        self._rates.take_job(self._worker)
        of_job = int(self._worker.job("batch_size"))
        if self._batch_size is not None and of_job not in (0, self._batch_size):
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"a step has {self._batch_size} samples in this program, but the job has {of_job}. "
                f"Start ps_server with --batch_size={self._batch_size}, or leave the batch size "
                "out in the program")
        self._exchange.check()

    @items_of_one_thread
    def _batches(self, is_pass: bool = False) -> Iterator[Any]:
        """Yields the batches of the job, or of one pass over the data."""
        source = self._source
        epoch: Optional[int] = None
        for step in self._steps():
            if is_pass and epoch is not None and step.epoch > epoch:
                return  # the next loop begins with this step
            epoch = step.epoch
            sizes = source.begin(step.samples)
            self._own_data.num_batches = len(sizes)
            for part, size in enumerate(sizes):
                if self._has_left:
                    return
                try:
                    batch = source.take()
                except BaseException as error:
                    self._fail(error)
                    raise
                self._begin_batch(is_last=part + 1 == len(sizes))
                self._batch_samples = size
                self._weights.look_at(batch)
                yield batch

    def _begin_batch(self, is_last: bool) -> None:
        exchange = self._exchange
        assert exchange is not None
        self._is_last_batch = is_last
        is_learning = exchange.learns_loop and self._num_steps < _STEPS_TO_LEARN
        exchange.begin(is_last, may_leave=not (is_learning or self._adds_batches),
                       is_learning=is_learning and not self._adds_batches)

    @items_of_one_thread
    def _granted_samples(self) -> Iterator[List[int]]:
        for step in self._steps(may_extend=False):
            self._begin_batch(is_last=True)
            yield step.samples

    def _expected_samples(self, ahead: int) -> List[int]:
        step = self._worker.expect(ahead)
        return [] if step is None else step.samples

    @items_of_one_thread
    def _steps(self, may_extend: bool = True) -> Iterator[Step]:
        if self._is_over:
            warnings.warn("the job has done all rounds of ps_server --rounds, so there are no "
                          "more batches")
            return
        if self._step is not None and not self.is_step_made:
            # The loop before was left in the middle of it.
            assert self._exchange is not None
            self._exchange.begin_again()
            self._loss = self._loss_before
            self._weights.begin_batch_again()
            yield self._step
        while not self._has_left:
            try:
                self._tensors.check_unchanged(self._optimizer)
                if not may_extend:
                    self._check_is_made()
                step = self._extended_step()
                is_new = step is None
                while step is None and not self._is_cut:
                    self._end_step()
                    step = self._next_training_step()
                    if step is None:
                        break
                    if not step.samples:
                        step = self._with_samples(step)
            except BaseException as error:
                self._fail(error)
                raise
            if step is None:
                self._is_over, self._is_cut = True, False
                self._close_source()
                return
            if is_new:
                self._begin_step(step)
            else:
                self._step, self._epoch = step, step.epoch
                self._batch_samples, self._loss_before = len(step.samples), self._loss
                self._weights.begin_batch()
                self._own_data.begin_uneven_step()
            # How often backward is called is not known without batches.
            self._is_last_batch = True
            yield step

    def _begin_step(self, step: Step, is_further: bool = False) -> None:
        """Begins a step. `is_further` says that it is made with the batch of the step before."""
        self._step = step
        self._epoch = step.epoch if step.samples else self._epoch
        self._own_data.begin_step(step)
        self._is_made = self._is_handed_over = False
        self._has_gradients = self._is_skipped = False
        self._batch_samples = len(step.samples) or self._batch_samples
        self._loss = self._loss_before = self._late_loss
        self._late_loss = (0.0, 0, 0)
        late, self._late = self._late, []
        for name, value in late:
            self._log_metric(name, value)
        self._weights.begin_step(is_further)
        assert self._exchange is not None
        self._exchange.begin(is_last=False)
        if self._rates.are_own:
            self._schedulers.follow(step, int(self._worker.job("local_steps")))
        self._rates.begin_step(step.learning_rate)

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()

    def exchange_in_backward(self, is_last: Callable[[], bool]) -> None:
        """Before attach(..., overlap=False): with --optimizer=reduce gradients are exchanged at the
        end of backward nevertheless, where `is_last` says that it is the last one of the step. For
        Trainers, which clip before optimizer.step()."""
        self._is_last_backward = is_last

    def ignore_schedulers(self) -> None:
        """Lets the job's rates, if it uses its own, replace without an error what a scheduler has
        set. It is for Trainers, which always have a scheduler, and comes before attach()."""
        self._ignores_schedulers = True

    def _check_is_made(self) -> None:
        self._look_for_inf()
        if self._step is None or self._is_made or self._is_skipped:
            return
        raise LodestarError(
            "FAILED_PRECONDITION",
            "optimizer.step() was not called for the last batch, but each batch of batch_sampler() "
            "needs one step. For several batches per step, use loader(..., accumulate=). For a "
            "step that is left out, call skip_step(). If a DataLoader with num_workers= uses "
            "batch_sampler(), give num_workers= to loader() instead")

    def _extended_step(self) -> Optional[Step]:
        """Returns the step at hand with the samples of one more batch, if the program has not made it
        by now. None: it is over, or was lost with its gradients."""
        exchange = self._exchange
        assert exchange is not None
        if not self._adds_batches:
            self._look_for_inf()
        if self._step is None or self._is_made or self._is_skipped:
            return None
        self._num_idle += 1
        if self._num_idle >= _MOST_BATCHES:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"optimizer.step() was not called for the last {_MOST_BATCHES} batches; call it "
                "after each batch, or after every few")
        if exchange.has_local_steps:
            return None
        exchange.check_may_extend()
        self._adds_batches = self._adds_batches or self._has_gradients
        return self._extended()

    def _extended(self) -> Optional[Step]:
        """Returns the step at hand with more samples. None: its round was lost."""
        try:
            return self._worker.extend()
        except LodestarError as error:
            if error.code not in ("ABORTED", "CANCELLED", "UNAVAILABLE"):
                raise
            if not self._is_stopping:
                warnings.warn(f"a round was lost ({error}), so gradients that were added up for it "
                              "are dropped")
        for tensor in self._tensors.trained:
            tensor.parameter.grad = None
        self._step = None
        return None

    def _look_for_inf(self) -> None:
        """Finds out whether a GradScaler leaves the step out: it calls optimizer.step() only where
        all gradients are finite."""
        if self._step is None or self._is_made or self._is_skipped or not self._has_gradients:
            return
        gradients = [tensor.parameter.grad for tensor in self._tensors.trained]
        self._is_skipped = not all(
            bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)

    def skip_step(self) -> None:
        """Leaves the step at hand out, whose batch or gradient is bad. The round goes on without it.
        Before backward, or anywhere before the step with overlap=False. Not needed where
        optimizer.zero_grad() comes after a GradScaler that has left it out."""
        if self._step is None or self._is_made:
            raise LodestarError("FAILED_PRECONDITION",
                                "skip_step() was called without an open batch; call it between a "
                                "batch and its optimizer.step()")
        if self._is_handed_over:
            raise LodestarError("FAILED_PRECONDITION",
                                "skip_step() was called after backward(), which has exchanged the "
                                "gradients of the step; call it before backward(), or use "
                                "attach(..., overlap=False)")
        self._is_skipped = True

    def _next_training_step(self) -> Optional[Step]:
        """Evaluates what the servers ask for before."""
        exchange = self._exchange
        assert exchange is not None
        if self._incarnation == 0:
            exchange.hand_state_over()  # the program may have loaded it since loader()
        while True:
            step = self._following.pop() if self._following else self._worker.next()
            if step is not None and step.server_incarnation != self._incarnation:
                if self._incarnation != 0:
                    self._check_job()
                    exchange.begin_anew(goes_on=self._follows_last(step))
                    self._kept_step = None  # they hand its samples out again
                self._incarnation = step.server_incarnation
            exchange.take(step)
            if step is None or step.is_training:
                return step
            sums = self._evaluate_samples(step.samples)
            exchange.check_kept()
            self._worker.step_done(*sums)

    def _follows_last(self, step: Step) -> bool:
        """Returns whether the step belongs to the round after that of this worker's last step, and
        that round had no more steps: the servers then have all that this worker has made."""
        last = self._last_step
        return (last is not None and last.step + 1 == last.num_steps and
                step.round == last.round + 1)

    def _evaluate_samples(self, samples: List[int]) -> Tuple[float, int, int]:
        """Returns the three sums. The batches have the size of the job's, which fit."""
        import torch

        assert self._evaluate is not None
        size = int(self._worker.job("batch_size")) // self._worker.num_ranks or _EVALUATION_BATCH
        modes = [(module, module.training) for module in self._model.modules()]
        loss_sum, num_correct, num_predictions = 0.0, 0, 0
        self._model.eval()
        try:
            with torch.no_grad():
                for begin in range(0, len(samples), size):
                    batch = self._collate([self._heldout[k] for k in samples[begin:begin + size]])
                    sums = self._evaluate(batch)
                    if not isinstance(sums, Sequence) or len(sums) != 3:
                        raise LodestarError(
                            "INVALID_ARGUMENT", "evaluate= must return three numbers, not "
                                                f"{type(sums).__name__}: the sum of the losses, "
                                                "the number of correct predictions, and the "
                                                "number of predictions")
                    loss, correct, predictions = (number("a result of evaluate=", value)
                                                  for value in sums)
                    loss_sum += loss
                    num_correct += int(correct)
                    num_predictions += int(predictions)
        finally:
            for module, was_training in modes:
                module.training = was_training
        return loss_sum, num_correct, num_predictions

    def _fail(self, error: BaseException) -> None:
        self._step = None
        if self._worker.has_step:
            self._worker.step_failed(f"{type(error).__name__}: {error}")

    def _hand_over(self) -> None:
        """Hands over the step at hand. It comes as late as can be: until then weights may be looked
        at."""
        if self._step is None or self._is_handed_over:
            return
        assert self._exchange is not None
        if self._is_skipped:
            self._exchange.skip()
        else:
            if self._is_made or not self._exchange.has_local_steps:
                self._weights.check_step()
            self._exchange.hand_over()
            self._worker.step_done(*self._loss)
        self._is_handed_over = True
        self._own_data.end_step()

    def _end_step(self) -> None:
        """Ends the step that was made, or has been left out."""
        if self._step is not None and self._exchange is not None:
            self._exchange.check_kept()
            if self._is_skipped and self._exchange.answers_in_step:
                if isinstance(self._optimizer, JointOptimizer):
                    raise LodestarError(
                        "FAILED_PRECONDITION",
                        "a step was left out, but with several optimizers and --optimizer=reduce "
                        "this session cannot know which optimizers the other workers have stepped. "
                        "Start ps_server with --mode=local_sgd")
                # Others may have made it.
                self._await_answer()
                self._exchange.finish_skipped(self._make_inner_step)
        self._hand_over()
        if self._step is not None:
            self._last_step = self._step
        self._step = None

    def _await_answer(self) -> None:
        """Waits for the answer to the step at hand, which is handed over. The answer comes with the
        following step."""
        self._hand_over()
        self._following.append(self._worker.next())

    def on_bucket(self, bucket: Any) -> Any:
        """Takes a bucket of gradients from comm_hook()."""
        if self._step is None or self._exchange is None or self._is_made:
            raise LodestarError("FAILED_PRECONDITION",
                                "backward() was called without a batch of the session's loader(); "
                                "take batches from ps.loader(...)")
        exchange = cast("HookedSteps", self._exchange)
        try:
            if not self._is_last_batch:
                raise LodestarError(
                    "FAILED_PRECONDITION",
                    "gradients were ready before the last batch of the step. With accumulate=, "
                    "call backward() inside model.no_sync() while is_last_batch is False")
            return exchange.on_bucket(bucket, self._await_answer)
        except BaseException as error:
            self._fail(error)
            raise

    def use_comm_hook(self) -> None:
        """Lets gradients come by on_bucket()."""
        if self._data is not None:
            raise LodestarError("FAILED_PRECONDITION",
                                "comm_hook() was called after loader(); call it before loader()")
        self._has_comm_hook = True

    def _on_gradient(self, tensor: TrainedTensor) -> None:
        if self._exchange is not None and self._step is not None and not (self._is_made
                                                                          or self._is_skipped):
            self._has_gradients = True
            self._exchange.on_gradient(tensor)
            if self._exchange.ends_backward:
                assert self._is_last_backward is not None
                if self._is_last_backward():
                    self._backward_end.expect(tensor.parameter)

    def _end_backward(self) -> None:
        """Exchanges the gradients of the step: all are there."""
        exchange = self._exchange
        if exchange is None or self._step is None or self._is_handed_over or self._is_skipped:
            return
        try:
            exchange.end_backward()
            self._log_learning_rate()
            self._await_answer()
            exchange.take_answer()
        except BaseException as error:
            self._fail(error)
            raise

    @call_of_one_thread
    def _make_step(self, attached: AttachedOptimizer, closure: Optional[Callable[[], Any]],
                   *args: Any, wait: bool = False, **kwargs: Any) -> Any:
        check_function("closure", closure)
        exchange = self._exchange
        if self._is_cut:
            return None
        if self._step is None or exchange is None:
            raise LodestarError("FAILED_PRECONDITION",
                                "optimizer.step() was called outside of a step of the session. "
                                "Call it in a loop over ps.loader(...), or over ps.steps() if you "
                                "make the batches yourself")
        if self._is_skipped and not exchange.has_local_steps:
            raise LodestarError("FAILED_PRECONDITION",
                                "optimizer.step() was called for a step that was left out, by "
                                "skip_step() or because its gradient was not finite; leave "
                                "optimizer.step() out, too")

        def make_step(closure: Optional[Callable[[], Any]]) -> Any:
            with self._rates.scaled():
                return attached.make_step(closure, *args, **kwargs)

        try:
            if self._is_made and not exchange.has_local_steps and not self._begin_further_step():
                return None
            self._rates.check()
            self._is_skipped = False
            if isinstance(self._optimizer, JointOptimizer):
                exchange.select(attached.optimizer)
            attached.optimizer._opt_called = True
            result = exchange.make(make_step, closure)
            self._is_made = True
            self._num_steps += 1
            self._num_idle = 0
            if not self._is_handed_over:
                self._log_learning_rate()
                if exchange.answers_in_step:
                    self._await_answer()
            if exchange.answers_in_step:
                exchange.finish(make_step)
            elif wait and not exchange.has_local_steps and not self._is_handed_over:
                exchange.check_kept()
                self._await_answer()
                exchange.take(self._following[-1])
        except BaseException as error:
            self._fail(error)
            raise
        return result

    @call_of_one_thread
    def _bring_weights(self) -> None:
        """Waits for the servers' step after optimizer.step(), and copies the new weights into the
        model. Does nothing where the program makes the steps."""
        exchange = self._exchange
        if (exchange is None or not exchange.has_state_at_servers or self._has_left
                or self._step is None or not self._is_made or self._is_handed_over):
            return
        try:
            exchange.check_kept()
            exchange.keep_state()  # the job may be over after this step
            self._await_answer()
            exchange.take(self._following[-1])
        except BaseException as error:
            self._fail(error)
            raise

    @call_of_one_thread
    def _state_of_servers(self) -> Dict[Any, Dict[str, Any]]:
        """Returns the state of the servers' optimizer for the weights that the program has, by
        parameter. Calls _bring_weights() before. It is empty where the program's optimizer has its
        own state, and before loader()."""
        exchange = self._exchange
        if exchange is None or not exchange.has_state_at_servers or self._has_left:
            return {}
        exchange.keep_state()
        self._bring_weights()
        if not self._worker.has_step and not self._has_ended:
            return {}  # no weights have come
        try:
            return exchange.state()
        except LodestarError as error:
            if self._worker.has_step or error.code != "FAILED_PRECONDITION":
                raise
            self._warn_once("state", "optimizer.state_dict() has no state, because the job is over "
                                     "and the servers' state was not asked for before. Call it "
                                     "in the loop, too, or resume from ps_server --checkpoint_dir")
            return {}

    def _begin_further_step(self) -> bool:
        """Begins the next round, for another step with the batch at hand. Returns false if the job is
        over. Raises LodestarError FAILED_PRECONDITION if the round would bring weights that the
        gradient was not computed with."""
        exchange = self._exchange
        assert exchange is not None
        exchange.check_may_go_on()
        if not self._keeps_samples:
            self._keeps_samples = True
            self._worker.keep_samples()
        self._end_step()
        step = self._next_training_step()
        if step is None:
            self._is_cut = True
            return False
        if step.samples:
            self._kept_step = step  # it was granted before anything told of further steps
        self._own_data.begin_uneven_step()
        self._begin_step(step, is_further=True)
        return True

    def _with_samples(self, step: Step) -> Optional[Step]:
        """Returns a step without samples with those of the next batch. None: its round was lost."""
        kept, self._kept_step = self._kept_step, None
        if kept is None:
            return self._extended()
        return step._replace(samples=kept.samples, epochs=kept.epochs, epoch=kept.epoch,
                             first_position=kept.first_position)

    def _make_inner_step(self, closure: Optional[Callable[[], Any]]) -> Any:
        """Makes the step of the program's only optimizer."""
        with self._rates.scaled():
            return self._attached[0].make_step(closure)

    @property
    def clips_at_servers(self) -> bool:
        """Whether servers clip gradients in place of the program, which has given clip_norm= to
        attach(). False before loader()."""
        return self._exchange is not None and self._exchange.clips_at_servers

    @property
    def share(self) -> float:
        """Returns the share of the batch at hand in the samples of its step. It is 1 without
        accumulate. The mean loss of a batch times this, summed over the batches of a step, is the
        mean loss of the step."""
        if self._step is None:
            return 0.0
        return self._batch_samples / (len(self._step.samples) or self._batch_samples)

    def log(self, values: Union[Mapping, Any] = None, *, weight: Optional[int] = None,
            num_correct: int = 0, num_predictions: Optional[int] = None) -> None:
        """Tells the cluster how the batch at hand went: for its status and its curves, and to notice
        a run that diverges. Before optimizer.step(); with several batches a step, after each. What
        is told after the gradients of the step were exchanged, as backward() does with
        --optimizer=reduce, counts to the next round.

        Args:
          values: the mean loss of the batch, in nats: a number, or a tensor of one, which is waited
            for. Or a mapping of names to such, of which "loss" is that loss, and all others are
            metrics of the program's own. In their names each character that is no letter, digit
            or one of "._-/" becomes "_": "acc@1" is told as "acc_1". A round has 32 metrics at
            most, and others are left out. Either brings one warning.
          weight: over how many targets the loss is a mean, where that is not the same for each
            sample, as with masked or padded targets. In sync and local_sgd the mean over the workers
            counts the batch so often, and not once for each sample. Those of a step's batches add
            up. The gradient that leaves has to be the mean over all targets of the step. Before
            backward(), unless attach(overlap=False) or local_sgd; in each step, by all workers.
          num_correct: how many predictions were right.
          num_predictions: over how many the loss is a mean. None: `weight`, or one for each sample.
        """
        if self._step is None:
            raise LodestarError("FAILED_PRECONDITION",
                                "log() was called without an open batch. Call it between a batch "
                                "and its optimizer.step()")
        if weight is not None:
            self._weights.add(weight, is_late=self._is_handed_over, is_made=self._is_made)
        metrics = dict(values) if isinstance(values, Mapping) else {"loss": values}
        loss = metrics.pop("loss", None)
        for name, value in metrics.items():
            told = number(f"{name!r} in log()", value)
            if self._is_handed_over:
                self._late.append((str(name), told))
            else:
                self._log_metric(str(name), told)
        if loss is None:
            return
        if num_predictions is None:
            count = self._batch_samples if weight is None else weight
        else:
            count = _count("num_predictions", num_predictions)
        if count == 0:
            return  # the mean over no targets is NaN
        so_far = self._late_loss if self._is_handed_over else self._loss
        sums = (so_far[0] + number("the loss in log()", loss) * count,
                so_far[1] + _count("num_correct", num_correct), so_far[2] + count)
        if self._is_handed_over:
            self._late_loss = sums
        else:
            self._loss = sums

    def _log_learning_rate(self) -> None:
        """Tells the learning rate, unless the program does: the servers know only their
        schedule."""
        if self._rates.are_own and not self._logs_rate:
            with contextlib.suppress(LodestarError):  # beyond the limit of metrics
                self._worker.log(_RATE_METRIC, self.learning_rate)

    def _log_metric(self, name: str, value: float) -> None:
        told = _metric_name(name)
        self._logs_rate = self._logs_rate or told == _RATE_METRIC
        if told != name:
            self._warn_once(
                "renamed", f"metric {name!r} is renamed to {told!r}, because names may have only "
                           f"letters, digits and ._-/, and at most {_METRIC_NAME_BYTES} bytes")
        try:
            self._worker.log(told, value)
        except LodestarError as error:
            if error.code != "INVALID_ARGUMENT":
                raise
            self._warn_once("left out", f"{error}; this metric is left out")

    def _warn_once(self, subject: str, text: str) -> None:
        if subject not in self._warned_of:
            self._warned_of.add(subject)
            warnings.warn(text)

    @property
    def is_last_batch(self) -> bool:
        """Returns whether optimizer.step() is due after the batch at hand: with accumulate after
        the last one of each step."""
        return self._is_last_batch

    @property
    def is_step_made(self) -> bool:
        """Returns whether optimizer.step() was called for the step at hand, or has to be left out
        for it."""
        self._look_for_inf()
        return self._is_made or self._is_skipped

    @property
    def has_left(self) -> bool:
        """Returns whether leave() was called."""
        return self._has_left

    @property
    def is_over(self) -> bool:
        """Returns whether the loader has come to the end of the job."""
        return self._is_over

    @property
    def round(self) -> int:
        """Returns the round of the batch at hand. -1 means that there is none."""
        return -1 if self._step is None else self._step.round

    @property
    def epoch(self) -> int:
        """The pass over the data, from 0 on, in which the round of the batch at hand began, or, with
        local steps, that of the step's first sample. With no batch at hand, the next one is waited
        for, and its pass is returned. After the job it is the last one. Passes are
        of the job, and not of this worker, unless the data is its own. 0 before loader()."""
        if self._step is None and self._data is not None and not (self._is_over or self._has_left):
            next(self._steps(), None)  # the next loop begins with it
        return self._epoch

    @property
    def index(self) -> int:
        """The lowest number from 0 that no other living worker had when this one registered. It
        stays as it is while this worker lives, also if servers are started again; a worker that
        was taken for dead, and registers again, gets a new one. In a job with sites it tells the
        workers of one site apart. Programs seed by it what is to differ between workers, as dropout
        and augmentation: `torch.manual_seed(seed + ps.index)`.

        This, `count` and `is_first` connect if loader() has not: the job's --batch_size is then the
        server's, and not proposed by loader(). They raise LodestarError FAILED_PRECONDITION before
        attach(), UNIMPLEMENTED if the servers are of an earlier release, and what join() and
        loader() say of connecting. With group= all ranks ask before loader(), or none does."""
        return self._place().index

    @property
    def count(self) -> int:
        """Returns how many workers of the job live, by the newest grant or heartbeat."""
        return self._place().count

    @property
    def is_first(self) -> bool:
        """Returns whether no living worker has a lower index, by the newest grant or heartbeat: for
        what one worker of the job is to do, such as writing a file. When the first worker ends,
        another one becomes it; two may be it for a moment."""
        return self._place().is_first

    @property
    def batches_done(self) -> int:
        """How many batches this worker has taken in the job, in earlier lives under its name, too:
        those of steps that are over. So a program skips them in data of its own that begin again:
        `itertools.islice(batches, ps.batches_done, None)`. The servers count them by join(name=); a
        worker without a name begins at 0. Before loader(), which says accumulate=, it counts steps;
        batches that a step takes without accumulate= count once.
        Connects as `index` does."""
        self._connect()
        return self._own_data.batches_done

    def _place(self) -> Place:
        self._connect()
        return self._worker.place

    def _connect(self) -> None:
        if self._exchange is None and not self._has_left:
            self._check_attached()
            self._enter_job()

    @property
    def evaluation(self) -> Optional[Evaluation]:
        """Returns the last evaluation of the job, over the held-out samples of all workers
        (heldout=), as the servers have told of it with the batch at hand, or with the end of the
        job: `round`, `loss` in nats and `accuracy`. None means that there was none. All workers are
        told of the same ones, some perhaps with their next round."""
        return self._worker.evaluation

    @property
    def learning_rate(self) -> float:
        """Returns the largest rate of the optimizer's groups, for the batch at hand, with the scale
        that an operator has set. It is 0 without a batch."""
        return 0.0 if self._step is None else self._rates.now(self._step.learning_rate)

    @property
    def state(self) -> str:
        """Returns what the worker does now: "wait", "pull", "compute", "push", ..."""
        return self._worker.state

    def job(self, setting: str) -> str:
        """Returns a setting of the job, as text, once loader() was called; see Worker.job()."""
        self._check_connected()
        return self._worker.job(setting)

    def save_pretrained(self, folder: str, **options: Any) -> None:
        """Writes the model as it is now for from_pretrained() of its library, without wrappers.

        Args:
          folder: made if it is not there.
          options: of the model's save_pretrained().

        Raises:
          LodestarError: FAILED_PRECONDITION before attach(), and if the model has none.
        """
        self._check_attached()
        model = self._model
        while model is not None and not hasattr(model, "save_pretrained"):
            model = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if model is None:
            raise LodestarError(
                "FAILED_PRECONDITION",
                "the model has no save_pretrained(). Use torch.save(model.state_dict(), ...), or "
                "psctl export, which writes a safetensors file of any model")
        # torch.compile's wrapper would pass its own names on.
        getattr(model, "_orig_mod", model).save_pretrained(folder, **options)

    def stop(self) -> None:
        """Makes the loop end when the round at hand is over, as gpu_worker does for SIGTERM. A
        signal handler or another thread may call it. With --optimizer=reduce weights lack the step
        of that round, whose mean does not come any more."""
        self._check_connected()
        self._is_stopping = True
        self._worker.stop()

    def _check_connected(self) -> None:
        if not self._has_started:
            raise LodestarError("FAILED_PRECONDITION",
                                "this session is not in a job yet; call attach() and loader() "
                                "first")

    def leave(self) -> None:
        """Leaves the job now. Steps that were made are handed in. Model and optimizer stay usable.
        In a process that was forked from the worker's, it only gives both back: the worker stays."""
        self._has_left = True
        self._close_source()
        if self._is_made and not self._worker.is_in_fork:
            self._hand_over()
        self._own_data.close()
        self._step = None
        self._leave_state()
        if self._optimizer is not None:
            for hook in self._hooks:
                hook.remove()
            self._attached_model.detach()
            for attached in self._attached:
                attached.detach()
                attached.optimizer.__dict__.pop(_SESSION, None)
        self._worker.close()

    @property
    def _has_ended(self) -> bool:
        """Returns whether the worker knows that the job is over. The loader may end only later."""
        return self._is_over or self._following == [None]

    def _leave_state(self) -> None:
        """Gives the program's optimizer the state that the job has ended with, if the program has
        asked for the state before, so that training can go on without servers."""
        exchange = self._exchange
        if exchange is None or not exchange.keeps_state or not self._has_ended:
            return
        with contextlib.suppress(LodestarError):
            self._optimizer.state.update(exchange.state())

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        self.leave()


class _Counted:
    """Is data of which only the number of samples is told."""

    def __init__(self, num_samples: int) -> None:
        self._num_samples = num_samples

    def __len__(self) -> int:
        return self._num_samples


def _is_same(data: Any, other: Any) -> bool:
    if isinstance(data, _Counted) and isinstance(other, _Counted):
        return len(data) == len(other)
    return data is other


def _is_granted_loader(data: Any) -> bool:
    """Returns whether `data` is a DataLoader over samples that servers can grant."""
    from torch.utils.data import DataLoader

    return isinstance(data, DataLoader) and is_map_style(data.dataset)


def _metric_name(name: str) -> str:
    """Returns the nearest name that servers take."""
    return re.sub(r"[^A-Za-z0-9._/-]", "_", name)[:_METRIC_NAME_BYTES] or "_"


def _count(name: str, value: Any) -> int:
    count = int(number(f"{name}=", value))
    if count < 0:
        raise LodestarError("INVALID_ARGUMENT", f"{name}= is {count}, but must be at least 0")
    return count
