# SPDX-License-Identifier: Apache-2.0
"""What a step of a program's optimizer means in a job: one class for each way of training."""
from __future__ import annotations

import warnings
from typing import Any, Callable, Collection, Dict, List, Optional, Set, Tuple, Union

import torch

from lodestar._attached_optimizers import optimizers_of
from lodestar._backward import is_finite, is_step_of_scaler
from lodestar._clipping import has_clipped
from lodestar._learning_rates import LearningRates
from lodestar._library import LodestarError
from lodestar._optimizer_settings import (Settings, differing, first_state,
                                          settings_by_parameter)
from lodestar._server_state import ServerState
from lodestar._trained_tensors import TrainedTensor, TrainedTensors, checksum
from lodestar.worker_api import Step, Worker

Closure = Optional[Callable[[], Any]]
MakeStep = Callable[[Closure], Any]


class Exchange:
    """Stands between the tensors of a model and the vectors of its worker, in one life of a job.

    Attributes:
      in_vector: whether parameters may live in the worker's vector of weights.
      answers_in_step: the optimizer's step needs what the round brings: hand it over within.
      ends_backward: what the round brings is needed at the end of the step's last backward.
      clips_at_servers: the servers clip in place of the program.
      has_local_steps: what the program's optimizer does with a batch is its own business, and a
        batch without a step is handed over, too.
      learns_loop: gradients do not leave during backward before the first step has shown whether
        the program takes several batches for a step.
      has_state_at_servers: the optimizer's state is the servers'.
      keeps_state: keep_state() was called.
    """

    in_vector = True
    answers_in_step = False
    ends_backward = False
    clips_at_servers = False
    has_local_steps = False
    learns_loop = False
    has_state_at_servers = False
    keeps_state = False

    def __init__(self, worker: Worker, tensors: TrainedTensors, optimizer: Any) -> None:
        self._worker = worker
        self._tensors = tensors
        self._optimizer = optimizer

    def check(self) -> None:
        """Checks that program and job fit together. Raises LodestarError."""

    def hand_state_over(self) -> None:
        """Lets the job begin with the state that the program's optimizer has, where
        has_state_at_servers. Comes before the first step is asked for."""

    def state(self) -> Dict[Any, Dict[str, Any]]:
        """Returns the state that the servers have, by parameter, as the optimizer would have it."""
        return {}

    def keep_state(self) -> None:
        """Makes state() possible after the job, too, where has_state_at_servers."""

    def begin_anew(self, goes_on: bool) -> None:
        """Is called after the servers have begun anew. Unless `goes_on`, their weights lack some of
        this worker's last steps."""

    def take(self, step: Optional[Step]) -> None:
        """Brings the weights that the step begins with, or, None, those that the job ends with."""
        raise NotImplementedError

    def begin(self, is_last: bool, may_leave: bool = True, is_learning: bool = False) -> None:
        """Begins a batch. `is_last` says that it is the last one of its step, `may_leave` that its
        gradients may leave during backward then, and `is_learning` that those of later steps will,
        if the program makes its step with this batch alone."""

    def on_gradient(self, tensor: TrainedTensor) -> None:
        """Is called when backward has the gradient of a tensor, in one of its batches."""

    def make(self, make_step: MakeStep, closure: Closure) -> Any:
        """Makes the program's step; then the vectors have its gradient. Returns what the step
        returns."""
        raise NotImplementedError

    def check_kept(self) -> None:
        """Raises LodestarError FAILED_PRECONDITION if the program has changed, since take(), what
        the servers hold."""

    def hand_over(self) -> None:
        """Leaves in the vectors what the program has changed beside its gradients. Comes as late
        as can be, so that what it does after its step counts."""
        self._tensors.hand_over_buffers()

    def finish(self, make_step: MakeStep) -> None:
        """Makes what is left of the step, where answers_in_step, once the answer has come."""
        raise NotImplementedError

    def end_backward(self) -> None:
        """Collects all gradients of the step, where ends_backward, before it is handed over."""
        raise NotImplementedError

    def take_answer(self) -> None:
        """Takes what the round has brought, where ends_backward."""
        raise NotImplementedError

    def finish_skipped(self, make_step: MakeStep) -> None:
        """Makes the step that this program has left out, where answers_in_step, if others have made
        it. The answer has come."""
        raise NotImplementedError

    def begin_again(self) -> None:
        """Begins the step at hand again, whose loop was left before it was made. Raises
        LodestarError FAILED_PRECONDITION if that is too late."""

    def check_may_extend(self) -> None:
        """Raises LodestarError FAILED_PRECONDITION if the step at hand, which was not made, cannot get
        another batch."""

    def check_may_go_on(self) -> None:
        """Raises LodestarError FAILED_PRECONDITION if there cannot be another step with the batch at
        hand."""

    def select(self, optimizer: Any) -> None:
        """Says which of several optimizers makes the next step."""

    def skip(self) -> None:
        """Leaves the step out instead of make(): gradients are not finite. Tells the worker.
        finish() comes as after make()."""
        raise NotImplementedError


class _GradientSteps(Exchange):
    """Sends gradients, during backward or with the step."""

    def __init__(self, worker: Worker, tensors: TrainedTensors, optimizer: Any, overlap: bool,
                 rates: Optional[LearningRates] = None) -> None:
        """`rates` are those that leave with the gradients."""
        super().__init__(worker, tensors, optimizer)
        self._sender = _GradientSender(worker, tensors, optimizer, overlap, rates)

    def begin(self, is_last: bool, may_leave: bool = True, is_learning: bool = False) -> None:
        self._sender.begin(is_last, may_leave, is_learning)

    def on_gradient(self, tensor: TrainedTensor) -> None:
        self._sender.on_gradient(tensor)

    def make(self, make_step: MakeStep, closure: Closure) -> Any:
        result = None if closure is None else closure()
        self._sender.collect()
        return result

    def begin_again(self) -> None:
        self._sender.begin_again()

    def check_may_extend(self) -> None:
        self._sender.check_may_extend()

    def select(self, optimizer: Any) -> None:
        self._sender.select({id(parameter) for group in optimizer.param_groups
                             for parameter in group["params"]})

    def skip(self) -> None:
        self._sender.skip()


class ServerSteps(_GradientSteps):
    """Sends gradients, and the servers make the step: sync and async."""

    learns_loop = True
    has_state_at_servers = True

    def __init__(self, worker: Worker, tensors: TrainedTensors, optimizer: Any, overlap: bool,
                 rates: LearningRates, settings: Union[Settings, LodestarError],
                 clip_norm: Optional[float]) -> None:
        """`settings` are those of the optimizer with attach(), or why servers have none such.
        `clip_norm` is that of the program."""
        super().__init__(worker, tensors, optimizer, overlap, rates)
        self._settings, self._rates = settings, rates
        self._sender.clip_norm = self._clip_norm = clip_norm
        self._sender.watches = True
        self.clips_at_servers = clip_norm is not None
        self._has_warned = False

    def check(self) -> None:
        wanted = self._settings
        if isinstance(wanted, LodestarError):
            raise wanted
        self._rates.check_groups()
        of_job = {name: self._worker.job(name) for name in wanted}
        others = differing(wanted, of_job)
        if others:
            given = " ".join(f"--{name}={value}" for name, value in of_job.items())
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"the servers make the steps of this job, with {given}, but the program's "
                f"{type(self._optimizer).__name__} has other settings. Start ps_server with "
                f"{' '.join(others)}, or give the program's optimizer the settings of the job")
        self._check_optimizer()
        self._check_clipping()

    def _check_clipping(self) -> None:
        """Warns once if the program clips to another norm than the job."""
        if self._clip_norm is None or self._has_warned:
            return
        of_job = self._worker.job("clip_norm")
        if differing({"clip_norm": self._clip_norm}, {"clip_norm": of_job}):
            self._has_warned = True
            done = f"clip to {of_job}" if float(of_job) else "do not clip (clip_norm=0)"
            warnings.warn(
                f"the program clips gradients to the norm {self._clip_norm:g}, but in this job the "
                f"servers clip in its place, and they {done}. To clip as the program says, start "
                f"ps_server with --clip_norm={self._clip_norm:g}")

    def _check_optimizer(self) -> None:
        """Raises LodestarError FAILED_PRECONDITION for what the program has set since attach(), and
        the servers' steps would leave out."""
        settings = settings_by_parameter(self._optimizer)
        for tensor in self._tensors.trained:
            if not tensor.parameter.requires_grad:
                raise self._lost(f"{tensor.name} was frozen after attach()")
            given = settings.get(id(tensor.parameter))
            if given is None:
                raise self._lost(f"{tensor.name} was taken out of the optimizer after attach()")
            for key, value in given.items():
                if value != tensor.settings[key]:
                    hint = " (OneCycleLR and CyclicLR need cycle_momentum=False)"
                    raise self._lost(
                        f"{key} of {tensor.name} was changed after attach(), from "
                        f"{tensor.settings[key]} to {value}"
                        f"{hint if key in ('betas', 'momentum') else ''}")

    def _lost(self, change: str) -> LodestarError:
        return LodestarError(
            "FAILED_PRECONDITION",
            f"{change}. In --mode={self._worker.job('mode')} the servers hold the weights and make "
            "the steps, so the change would be lost. Leave the change out, or start ps_server "
            "with --mode=local_sgd or --optimizer=reduce, which use it")

    def hand_state_over(self) -> None:
        if first_state(self._optimizer) is None:
            return
        self._state.hand_over(self._optimizer.state)
        self._optimizer.state.clear()

    def keep_state(self) -> None:
        if not self.keeps_state:
            self._state.keep()
            self.keeps_state = True

    def state(self) -> Dict[Any, Dict[str, Any]]:
        return self._state.pull()

    @property
    def _state(self) -> ServerState:
        assert not isinstance(self._settings, LodestarError)  # check() was called
        return ServerState(self._worker, self._tensors, str(self._settings["optimizer"]))

    def make(self, make_step: MakeStep, closure: Closure) -> Any:
        self._check_optimizer()
        state = first_state(self._optimizer)
        if state is not None:
            raise self._lost(f"the optimizer was given state ({state}) after the first batch")

        def hand_gradient_over(_: Any, closure: Closure = None) -> Any:
            return super(ServerSteps, self).make(make_step, closure)

        # With the hooks that the optimizer's own step would call.
        step = torch.optim.Optimizer.profile_hook_step(hand_gradient_over)
        return step(self._optimizer, *([] if closure is None else [closure]))

    def check_may_go_on(self) -> None:
        raise LodestarError(
            "FAILED_PRECONDITION",
            "optimizer.step() was called a second time for one batch, but in --mode="
            f"{self._worker.job('mode')} the servers make the steps, and new weights come with the "
            "next batch. Call next() on ps.steps() before each backward(); or start ps_server with "
            "--mode=local_sgd or --optimizer=reduce, where the program makes the steps")

    def take(self, step: Optional[Step]) -> None:
        self._tensors.take_weights()
        self._tensors.take_buffers()
        self._tensors.remember_weights()

    def check_kept(self) -> None:
        changed = self._tensors.first_changed()
        if changed is not None:
            raise self._lost(f"the program has changed {changed.name}, for example by clamping, by "
                             "loading or swapping in weights, or by Embedding(max_norm=)")


class LocalSteps(Exchange):
    """Lets the program make its steps, and weights are averaged every so many batches: local_sgd."""

    has_local_steps = True

    def __init__(self, worker: Worker, tensors: TrainedTensors, optimizer: Any) -> None:
        super().__init__(worker, tensors, optimizer)
        self._has_gradient = False  # by backward, since the last step
        self._taken: Dict[int, Any] = {}  # by tensor: what it was, in f32; of those that are not f32

    def begin_anew(self, goes_on: bool) -> None:
        if self._optimizer.state and not goes_on:
            warnings.warn("the servers have started again without some of this program's last "
                          "steps, so the optimizer's state is reset")
            self._optimizer.state.clear()

    def take(self, step: Optional[Step]) -> None:
        # Between local steps they are the program's.
        if step is not None and step.step != 0 and step.is_training:
            return
        self._tensors.take_weights()
        self._tensors.take_buffers()
        self._taken = {id(tensor): self._copy_of(tensor) for tensor in self._tensors.trained
                       if tensor.parameter.dtype != torch.float32}

    @staticmethod
    def _copy_of(tensor: TrainedTensor) -> Any:
        return tensor.here(tensor.parameter.detach()).float().cpu().clone()

    def on_gradient(self, tensor: TrainedTensor) -> None:
        self._has_gradient = True

    def make(self, make_step: MakeStep, closure: Closure) -> Any:
        result = make_step(closure)
        # The optimizer may have removed those that backward has brought.
        if not self._has_gradient and not self._tensors.have_gradient:
            raise _no_gradient()
        self._has_gradient = False
        return result

    def skip(self) -> None:
        self._has_gradient = False
        self._collect()  # what the program has changed by itself
        self._worker.step_done()

    def hand_over(self) -> None:
        self._collect()
        super().hand_over()

    @torch.no_grad()
    def _collect(self) -> None:
        for tensor in self._tensors.trained:
            if id(tensor) in self._taken:
                # The change alone: rounding of the weights themselves is no part of it.
                now = self._copy_of(tensor)
                tensor.weights.add_(now - self._taken[id(tensor)])
                self._taken[id(tensor)] = now
            elif not tensor.lives_in_vector:
                tensor.weights.copy_(tensor.here(tensor.parameter))


class ReducedSteps(_GradientSteps):
    """Sends gradients. Their mean comes back, and the program makes its step with it."""

    in_vector = False
    answers_in_step = True

    def __init__(self, worker: Worker, tensors: TrainedTensors, optimizer: Any, overlap: bool,
                 keep_weights: bool, ends_backward: bool) -> None:
        """`ends_backward`: the mean is there at the end of the step's last backward, for clipping and
        the like; otherwise in the optimizer's step."""
        super().__init__(worker, tensors, optimizer, overlap)
        self.ends_backward = ends_backward
        self._keep_weights = keep_weights
        self._version: Optional[int] = None  # updates that the weights here have had
        # Whether gradients are the mean of the step at hand; None before its exchange.
        self._has_mean: Optional[bool] = None
        self._mean_marks: List[Tuple[Any, int]] = []  # the gradients then, and their versions
        self._changes_mean = False  # the program has done so
        self._has_followed = False  # a step that this program has left out was made here

    def check(self) -> None:
        if any(isinstance(each, torch.optim.LBFGS) for each in optimizers_of(self._optimizer)):
            raise LodestarError(
                "FAILED_PRECONDITION",
                "LBFGS needs several gradients in a step, but with ps_server --optimizer=reduce a "
                "step has one. Start ps_server with --mode=local_sgd, or use another optimizer")

    def take(self, step: Optional[Step]) -> None:
        """Takes the weights of the first round. From then on each worker has weights, which all
        change alike."""
        if step is None:
            return
        version = self._worker.weights_version
        if self._version is None:
            if not self._keep_weights:
                self._take_first(step, version)
        elif version != self._version:
            raise self._missed(version)
        self._version = version

    def _take_first(self, step: Step, version: int) -> None:
        if version != 0:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"the job is in round {step.round}, and only its workers have the weights "
                "(ps_server --optimizer=reduce), so this program cannot get them. Start the job "
                "again, or let all workers load the same weights and call attach(..., "
                "keep_weights=True)")
        self._tensors.take_weights()
        self._tensors.take_buffers()

    def _missed(self, version: int) -> LodestarError:
        seen = f"had {version} updates" if version >= 0 else "some tensors updated and others not"
        return LodestarError(
            "FAILED_PRECONDITION",
            f"this program's weights have had {self._version} updates, but the servers have "
            f"{seen}. With ps_server --optimizer=reduce, the gradients in between cannot be "
            "fetched again. Start the job again, and let all workers load the same weights")

    def on_gradient(self, tensor: TrainedTensor) -> None:
        if self._has_mean is not None:
            raise LodestarError(
                "FAILED_PRECONDITION",
                "backward() was called again after the gradients of the step were exchanged, and has "
                f"added to the mean gradient of {tensor.name}. Call backward() once per step, with "
                "the sum of the losses. For several batches use loader(..., accumulate=). Or use "
                "attach(..., overlap=False), which exchanges gradients in optimizer.step()")
        if self.ends_backward and not is_finite(tensor.here(tensor.parameter.grad)):
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"the gradient of {tensor.name} is not finite, and other gradients may have been sent "
                "already. If a GradScaler is to leave such steps out, use attach(..., "
                "overlap=False). For a bad batch, call skip_step() before backward()")
        super().on_gradient(tensor)

    def check_may_extend(self) -> None:
        if self._has_mean is not None:
            raise _cannot_extend()
        super().check_may_extend()

    def end_backward(self) -> None:
        self._sender.collect()

    def make(self, make_step: MakeStep, closure: Closure) -> Any:
        result = None if closure is None else closure()
        if self._has_mean is None:
            self._sender.collect()
        elif is_step_of_scaler():
            raise LodestarError(
                "FAILED_PRECONDITION",
                "a GradScaler scales each worker's losses by itself, but the gradients were "
                "exchanged before they were unscaled. Use attach(..., overlap=False), which "
                "exchanges them in optimizer.step(), or use bf16, which needs no GradScaler")
        else:
            self._look_for_changes()
        return result

    @torch.no_grad()
    def take_answer(self) -> None:
        self._has_mean = self._is_answered()
        if self._has_mean:
            self._take_mean()
        gradients = [tensor.parameter.grad for tensor in self._sender.selected
                     if tensor.parameter.grad is not None]
        if not self._has_mean:  # the round was lost, or all have skipped it
            for gradient in gradients:
                gradient.zero_()
        self._mean_marks = [(gradient, gradient._version) for gradient in gradients]

    def finish(self, make_step: MakeStep) -> None:
        if self._has_mean is None:
            self.take_answer()
        has_mean, self._has_mean = self._has_mean, None
        self._mean_marks = []
        if has_mean:
            make_step(None)

    def finish_skipped(self, make_step: MakeStep) -> None:
        """Raises LodestarError FAILED_PRECONDITION if others make it with another gradient."""
        self.take_answer()
        self._has_followed = self._has_followed or bool(self._has_mean)
        self._check_followed()
        self.finish(make_step)
        for tensor in self._tensors.trained:
            tensor.parameter.grad = None  # the program has cleared it before the mean came

    def _look_for_changes(self) -> None:
        """Notices whether the program changes the mean gradient, but not through `.data`."""
        now = [tensor.parameter.grad for tensor in self._tensors.trained]
        of_mean = {id(gradient): version for gradient, version in self._mean_marks}
        self._changes_mean = self._changes_mean or any(
            gradient is not None and of_mean.get(id(gradient)) != gradient._version
            for gradient in now)
        self._check_followed()

    def _check_followed(self) -> None:
        if self._has_followed and self._changes_mean:
            raise LodestarError(
                "FAILED_PRECONDITION",
                "this program left a step out with skip_step(), but the other workers made it. So "
                "the session made it here, too, but without what the program does between "
                "backward() and optimizer.step(), such as clipping. The weights would then differ. "
                "Clip with ps_server --clip_norm, or leave no step out")

    def _is_answered(self) -> bool:
        """Returns whether the vector of weights has the mean gradient of the step that was handed
        over."""
        version = self._worker.weights_version
        if version == self._version:
            return False
        assert self._version is not None
        if version != self._version + 1:
            raise self._missed(version)
        self._version = version
        return True

    @torch.no_grad()
    def _take_mean(self, others: Collection[int] = ()) -> None:
        """Takes the mean of what the step changes, but for tensors whose id() is in `others`."""
        for tensor in self._sender.selected:
            if id(tensor) in others:
                continue
            gradient = tensor.parameter.grad
            if gradient is None and not tensor.parameter.requires_grad:
                continue  # frozen after attach()
            if tensor.is_sparse and (gradient is None or gradient.is_sparse):
                # As the program's optimizer would have it: the rows that some worker has used.
                tensor.parameter.grad = tensor.weights.to(tensor.parameter).to_sparse(1)
                continue
            if gradient is None or gradient.is_sparse:
                tensor.parameter.grad = torch.empty_like(tensor.parameter)
            tensor.here(tensor.parameter.grad).copy_(tensor.weights)
        self._tensors.take_buffers()


class HookedSteps(ReducedSteps):
    """Does the same for DistributedDataParallel, whose buckets the mean comes back into."""

    answers_in_step = False

    def __init__(self, worker: Worker, tensors: TrainedTensors, optimizer: Any,
                 keep_weights: bool) -> None:
        super().__init__(worker, tensors, optimizer, overlap=True, keep_weights=keep_weights,
                         ends_backward=False)
        self._brought: Set[int] = set()  # tensors that this step's backward has a gradient of
        self._by_parameter = {id(tensor.parameter): tensor for tensor in tensors.trained}
        self._buckets: List[Tuple[Any, Any]] = []  # and the future that its gradients are due in

    def on_gradient(self, tensor: TrainedTensor) -> None:
        """Does nothing: the bucket that has the gradient comes."""
        self._brought.add(id(tensor))

    def make(self, make_step: MakeStep, closure: Closure) -> Any:
        # DistributedDataParallel takes for unused everywhere what is unused here. The others may
        # have been clipped.
        self._take_mean(self._brought)
        self._brought = set()
        return make_step(closure)

    def check_may_extend(self) -> None:
        raise LodestarError(
            "FAILED_PRECONDITION",
            "optimizer.step() was not called for the last batch, whose gradients comm_hook() has "
            "sent. For several batches per step, give loader() accumulate=, and call backward() "
            "inside model.no_sync() while is_last_batch is False")

    def check_may_go_on(self) -> None:
        raise LodestarError(
            "FAILED_PRECONDITION",
            "optimizer.step() was called a second time for one batch, whose gradients comm_hook() "
            "sends once. Leave the hook out, and call attach(..., overlap=False)")

    def skip(self) -> None:
        raise LodestarError(
            "FAILED_PRECONDITION",
            "a step cannot be left out with comm_hook(), which may have sent its gradients "
            "already. Use bf16, which needs no GradScaler, or leave the hook out and call "
            "attach(..., overlap=False)")

    def on_bucket(self, bucket: Any, await_answer: Callable[[], None]) -> Any:
        """Returns a future of its tensor, with mean gradients."""
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            tensor = self._by_parameter.get(id(parameter))
            if tensor is not None:
                self._sender.take(tensor, gradient)
        self._buckets.append((bucket, torch.futures.Future()))
        due = self._buckets[-1][1]
        if bucket.is_last():
            self._sender.take_zeros()
            await_answer()
            if not self._is_answered():
                raise LodestarError(
                    "ABORTED", "a connection broke, and the gradients of this step were lost with "
                               "it. DistributedDataParallel cannot repeat the step. Start the job "
                               "again, and let all workers load the same weights")
            self._answer()
        return due

    def _answer(self) -> None:
        buckets, self._buckets = self._buckets, []
        for bucket, due in buckets:
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
                tensor = self._by_parameter.get(id(parameter))
                if tensor is not None:
                    gradient.copy_(tensor.weights)
            due.set_result(bucket.buffer())


class _GradientSender:
    """Copies gradients into the worker's vector, and sends blocks as soon as they are whole."""

    def __init__(self, worker: Worker, tensors: TrainedTensors, optimizer: Any,
                 overlap: bool, rates: Optional[LearningRates]) -> None:
        self._worker = worker
        self._rates = rates
        self._told_rates: Optional[Dict[int, float]] = None  # in this step, by block
        self._tensors = tensors.trained
        self.selected = tensors.trained  # those that the next step changes
        self._optimizer = optimizer
        self._overlap = overlap
        self.clip_norm: Optional[float] = None  # of the program, in whose place the servers clip
        self._is_open = False  # gradients that come are whole
        self._copies = False  # gradients stay here, but are copied before the program clips them
        self._num_missing: List[int] = []  # of each block, in this step
        # The gradients that were taken in this step, and what tells whether they have changed, by
        # tensor.
        self._taken: "dict[int, Tuple[Any, Any]]" = {}
        # Changes of gradients after backward are refused in steps in which gradients stay here, too.
        self.watches = False
        self._is_watching = False
        self._watched: "dict[int, Tuple[Any, Any]]" = {}  # as _taken
        self._is_learning = False  # gradients of later steps will leave during backward
        self._added_to: Optional[TrainedTensor] = None  # twice, in a step that is learning

    def select(self, parameters: Set[int]) -> None:
        """Says that the next step changes the parameters with these id() alone."""
        self.selected = [tensor for tensor in self._tensors if id(tensor.parameter) in parameters]

    def begin(self, is_last: bool, may_leave: bool, is_learning: bool) -> None:
        self._num_missing = [0] * (1 + max(tensor.block for tensor in self._tensors))
        for tensor in self._tensors:
            self._num_missing[tensor.block] += 1
        self._taken, self._watched, self._added_to = {}, {}, None
        self._told_rates = None
        self._is_open = is_last and may_leave and self._overlap
        self._copies = not self._is_open and self._overlap and self.clip_norm is not None
        # A program that sums batches by hand may divide their sum.
        self._is_watching = self.watches and self._overlap and (is_learning or not is_last)
        self._is_learning = is_learning

    @torch.no_grad()
    def on_gradient(self, tensor: TrainedTensor) -> None:
        if self._copies:
            tensor.gradient.copy_(_dense(tensor.here(tensor.parameter.grad)))
        gradient = tensor.parameter.grad
        if self._is_watching:
            if self._is_learning and id(tensor) in self._watched:
                self._added_to = tensor
            self._watched[id(tensor)] = (gradient, self._mark(gradient))
        if not self._is_open:
            return
        if id(tensor) in self._taken:
            raise _added_twice(tensor)
        self.take(tensor, gradient)
        self._taken[id(tensor)] = (gradient, self._mark(gradient))

    @torch.no_grad()
    def take(self, tensor: TrainedTensor, gradient: Any) -> None:
        """Copies a gradient into the vector. The block leaves once all of it is there."""
        tensor.gradient.copy_(_dense(tensor.here(gradient)))
        self._taken[id(tensor)] = (gradient, None)
        self._num_missing[tensor.block] -= 1
        if self._num_missing[tensor.block] == 0:
            if self._told_rates is None:
                self._tell_rates()
            self._worker.block_ready(tensor.block)

    def _tell_rates(self) -> None:
        """Comes before the first block, because they leave with it, and with the step. Raises
        LodestarError FAILED_PRECONDITION if they are others by now."""
        rates = None if self._rates is None else self._rates.by_block(self._tensors)
        if rates is None or rates == self._told_rates:
            return
        if self._told_rates is not None:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"the learning rate was set to {max(rates.values()):g} after gradients may have been "
                f"sent with {max(self._told_rates.values()):g}. Set it before backward(), or "
                "use attach(..., overlap=False)")
        self._told_rates = rates
        for block, rate in rates.items():
            self._worker.set_learning_rate(rate, block)

    @staticmethod
    def _mark(gradient: Any) -> Tuple[Any, Any]:
        """Returns what tells whether a gradient has changed. The version misses changes through
        `.data`. The bits miss clipping that changes nothing, which a later step of the program may
        do otherwise."""
        values = gradient._values() if gradient.is_sparse else gradient
        return gradient._version, checksum(values)

    def begin_again(self) -> None:
        """Begins the batch at hand from its beginning."""
        if self._taken:
            raise LodestarError(
                "FAILED_PRECONDITION",
                "the program left its loop between backward() and optimizer.step(), and gradients "
                "of the batch may have been sent already. Call leave(), and join() again")

    def check_may_extend(self) -> None:
        """Raises LodestarError FAILED_PRECONDITION if gradients of the step may have left."""
        if self._taken:
            raise _cannot_extend()

    def skip(self) -> None:
        """Tells that the step has no gradient."""
        if self._taken:
            raise LodestarError(
                "FAILED_PRECONDITION",
                "the step was left out (by a GradScaler or skip_step()), but its gradients may "
                "have been sent during backward(). Use attach(..., overlap=False), or call "
                "skip_step() before backward()")
        self._worker.step_skipped()

    def take_zeros(self, others: Collection[int] = ()) -> None:
        """Takes zeros for all that were not taken: the loss does not depend on these. But not for
        tensors whose id() is in `others`."""
        self._is_open = False
        for tensor in self._tensors:
            if id(tensor) not in self._taken and id(tensor) not in others:
                tensor.gradient.zero_()

    @torch.no_grad()
    def collect(self) -> None:
        """Takes all that have not left."""
        if any(getattr(each, "grad_scale", None) is not None
               for each in optimizers_of(self._optimizer)):
            raise LodestarError(
                "FAILED_PRECONDITION",
                "a GradScaler leaves the unscaling to this optimizer, but the servers make the "
                "step. Make the optimizer with fused=False, or use bf16, which needs no GradScaler")
        if not self._taken and all(tensor.parameter.grad is None for tensor in self.selected):
            raise _no_gradient()
        if self._added_to is not None:
            raise _added_twice(self._added_to)
        copied = ({id(tensor) for tensor in self._tensors if tensor.parameter.grad is not None}
                  if self._copies and self._is_clipped() else set())
        self.take_zeros(copied)
        for tensor in self.selected:
            gradient = tensor.parameter.grad
            if gradient is not None and id(tensor) not in self._taken and id(tensor) not in copied:
                tensor.gradient.copy_(_dense(tensor.here(gradient)))
        changed = None if copied else self._first_changed()
        if changed is not None and not (self._taken and self._is_clipped()):
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"the gradient of {changed.name} was changed after backward(), but the servers take the "
                "mean of the gradients that backward() leaves. If the program clips to a norm, give "
                "attach(..., clip_norm=) that norm, and the servers clip the mean. To send gradients "
                "that each worker has changed, use attach(..., overlap=False)")
        self._tell_rates()

    def _first_changed(self) -> Optional[TrainedTensor]:
        """Returns a tensor whose gradient is not what backward() has left. None: there is none."""
        before = self._taken or self._watched
        for tensor in self.selected:
            gradient = tensor.parameter.grad
            if id(tensor) in before:
                taken, mark = before[id(tensor)]
                if gradient is not taken or self._mark(gradient) != mark:
                    return tensor
        return None

    def _is_clipped(self) -> bool:
        """Returns whether the program has clipped what was sent, or copied, to clip_norm, and no
        more."""
        gradients = [(tensor.gradient, tensor.parameter.grad) for tensor in self._tensors
                     if tensor.parameter.grad is not None]
        return self.clip_norm is not None and has_clipped(
            [sent for sent, _ in gradients], [_dense(now) for _, now in gradients], self.clip_norm)


def _added_twice(tensor: TrainedTensor) -> LodestarError:
    return LodestarError(
        "FAILED_PRECONDITION",
        f"backward() has added to the gradient of {tensor.name} a second time in one step, but the "
        "first gradient may have been sent already. Use loader(..., accumulate=), attach(..., "
        "overlap=False), or checkpoint(..., use_reentrant=False)")


def _no_gradient() -> LodestarError:
    return LodestarError("FAILED_PRECONDITION",
                         "no parameter has a gradient; call backward() before optimizer.step()")


def _cannot_extend() -> LodestarError:
    return LodestarError(
        "FAILED_PRECONDITION",
        "optimizer.step() was not called for the last batch, but its gradients may have been sent "
        "during backward(). For several batches per step use loader(..., accumulate=) or "
        "attach(..., overlap=False); for a bad batch call skip_step() before backward(), or use "
        "overlap=False")


def _dense(gradient: Any) -> Any:
    return gradient.to_dense() if gradient.is_sparse else gradient


def make_exchange(worker: Worker, tensors: TrainedTensors, optimizer: Any, *, overlap: bool,
                  ends_backward: bool, keep_weights: bool, has_hook: bool, rates: LearningRates,
                  settings: Union[Settings, LodestarError],
                  clip_norm: Optional[float]) -> Exchange:
    """Returns the exchange of the job, which the worker has registered for. Raises LodestarError
    FAILED_PRECONDITION for a comm_hook() in a job that does not reduce, and for a
    DistributedDataParallel without one."""
    if has_hook:
        if worker.job("optimizer") != "reduce":
            raise LodestarError(
                "FAILED_PRECONDITION",
                "comm_hook() needs mean gradients, but the servers of this job make the steps. "
                "Start ps_server with --optimizer=reduce, or leave the hook out")
        return HookedSteps(worker, tensors, optimizer, keep_weights)
    if worker.job("has_local_steps") == "1":
        return LocalSteps(worker, tensors, optimizer)
    if overlap and tensors.is_distributed_data_parallel:
        raise LodestarError(
            "FAILED_PRECONDITION",
            "the model is a DistributedDataParallel, which changes gradients after they may have "
            "been sent. Leave DistributedDataParallel out, because the servers already take the "
            "mean over all processes. Or use attach(..., overlap=False). Or register "
            "lodestar.comm_hook() and start ps_server with --optimizer=reduce")
    if worker.job("optimizer") == "reduce":
        # A backward for one of several optimizers brings gradients to parameters of the others.
        is_alone = len(optimizers_of(optimizer)) == 1
        return ReducedSteps(worker, tensors, optimizer, overlap and is_alone, keep_weights,
                            ends_backward and is_alone)
    return ServerSteps(worker, tensors, optimizer, overlap, rates, settings, clip_norm)
