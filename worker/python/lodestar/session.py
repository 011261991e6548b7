"""join() and what it returns: a PyTorch model, its optimizer and a data set as one worker of a job."""
from __future__ import annotations

import os
import types
import warnings
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

from lodestar._library import LodestarError
from lodestar.worker_api import Step, Worker

# Tensors that follow each other travel together from this size on.
_BLOCK_ELEMENTS = 1 << 20
# Of an evaluation, where the job says no batch size.
_EVALUATION_BATCH = 32


def join(address: Optional[str] = None, *, name: Optional[str] = None,
         state_dir: Optional[str] = None, tls_cert: Optional[str] = None,
         tls_key: Optional[str] = None, tls_ca: Optional[str] = None, insecure: bool = False,
         shared_memory: bool = True, threads: int = 1) -> "Session":
    """Says which cluster this program will be a worker of; connects with Session.loader().

    Args:
      address: "host:port" of the server of shard 0 (several with commas), or what `psctl token
        create` has printed ("lodestar://..."), or a file with that. None: $LODESTAR, else the
        cluster of $LODESTAR_JOIN, else this machine.
      name: of this worker, unique in the job. None: one of host and process, or of its certificate.
      state_dir: where keys and certificates are kept. None: as gpu_worker does.
      tls_cert, tls_key, tls_ca: files with a certificate of an authority of your own.
      insecure: allows plain text to other machines.
      shared_memory: whether weights and gradients go through it, where the server is here.
      threads: that encode what is sent; 0: one per core.

    Raises:
      LodestarError: INVALID_ARGUMENT for a setting that is none.
    """
    address = address or os.environ.get("LODESTAR") or None
    is_join_string = address is not None and (address.startswith("lodestar://")
                                              or os.path.isfile(address))
    worker = Worker(coordinator=None if is_join_string else address,
                    join=address if is_join_string else None, name=name, state_dir=state_dir,
                    tls_cert=tls_cert, tls_key=tls_key, tls_ca=tls_ca,
                    insecure=True if insecure else None, shared_memory=shared_memory,
                    threads=threads)
    return Session(worker)


class Session:
    """One worker. Of one thread. As a context manager it leaves the job at the end."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._model: Optional[_AttachedModel] = None
        self._step: Optional[Step] = None  # at hand: the optimizer has not been called
        self._is_step_made = False  # it has been called, and the worker not told yet
        self._loss: Tuple[float, int, int] = (0.0, 0, 0)
        self._dataset: Any = None  # once it has started
        self._batch_size: Optional[int] = None
        self._incarnation = 0

    def attach(self, model: Any, optimizer: Any, *, overlap: bool = True) -> Tuple[Any, Any]:
        """Makes a model and its optimizer those of the job; returns both.

        The weights of the first worker of a job are those that it begins with. Parameters that the
        optimizer has and that need a gradient travel, under their names in the model, without
        `module.` and `_orig_mod.`; tied ones once, and all others stay as they are. In sync and async optimizer.step() hands
        the gradient over, and the servers make the step; in local_sgd it makes the step as ever,
        with the learning rate of the job's schedule.

        Args:
          model: torch.nn.Module, with f32, bf16 or f16 parameters on any device.
          optimizer: torch.optim.Optimizer of its parameters.
          overlap: gradients leave while backward computes the others. False: at optimizer.step(),
            for whoever changes gradients in between (clipping, scaling) or calls backward several
            times.

        Raises:
          LodestarError: FAILED_PRECONDITION if something was attached before; INVALID_ARGUMENT
            without a parameter to train, or for one of the optimizer that is not the model's.
        """
        if self._model is not None:
            raise LodestarError("FAILED_PRECONDITION", "a model is attached already")
        attached = _AttachedModel(self._worker, model, optimizer, overlap)
        self._inner_step = optimizer.step

        def step(_: Any, closure: Optional[Callable[[], Any]] = None, *args: Any,
                 **kwargs: Any) -> Any:
            return self._make_step(closure, *args, **kwargs)

        # A method, because schedulers of learning rates wrap it as one.
        optimizer.step = types.MethodType(step, optimizer)
        self._model = attached
        return model, optimizer

    def loader(self, dataset: Any, batch_size: Optional[int] = None, *,
               heldout: Any = None,
               evaluate: Optional[Callable[[Any], Tuple[float, int, int]]] = None,
               collate_fn: Optional[Callable[[List[Any]], Any]] = None, fingerprint: str = "",
               is_own: bool = False, predictions_per_sample: int = 1) -> Iterator[Any]:
        """The batches that this worker is to train on, until the job is done.

        Which samples, and in which order, the servers say, so that none is taken twice in a pass,
        whoever joins or leaves. When the loop is over the model has the weights of the whole job.

        Args:
          dataset: map-style: len() and [index]; the same for all workers.
          batch_size: that is checked against the job's (--batch_size); None: whatever that is.
          heldout: a data set for evaluations, which the job asks for (--eval_every).
          evaluate: called with a batch of it, without gradients and with the model in eval mode;
            returns the sum of the losses in nats, how many predictions were right, and how many
            there are.
          collate_fn: makes a batch of a list of samples. None: as torch.utils.data.DataLoader.
          fingerprint: 16 hex digits that are equal for workers with the same data; compared.
          is_own: the data is this worker's alone (--data_partition=own of gpu_worker).
          predictions_per_sample: tokens of a sequence, for the rate in the log.

        Raises:
          LodestarError: what the cluster refuses, or the job ended with; FAILED_PRECONDITION before
            attach(), for a batch that optimizer.step() was not called for, and for an optimizer
            that is not the job's.
        """
        if self._model is None:
            raise LodestarError("FAILED_PRECONDITION", "attach() a model before its data")
        if heldout is not None and evaluate is None:
            raise LodestarError("INVALID_ARGUMENT",
                                "heldout= needs evaluate=, which computes the loss of a batch")
        if self._dataset is not None and self._dataset is not dataset:
            raise LodestarError("FAILED_PRECONDITION",
                                "this session trains on another data set; join() once more")
        if collate_fn is None:
            from torch.utils.data import default_collate
            collate_fn = default_collate
        if self._dataset is None:
            self._model.take_initial_weights()
            self._worker.set_data(len(dataset), 0 if heldout is None else len(heldout),
                                  predictions_per_sample, fingerprint, is_own)
            self._worker.start()
            self._dataset, self._batch_size = dataset, batch_size
            self._check_job()
        return self._batches(dataset, heldout, evaluate, collate_fn)

    def _check_job(self) -> None:
        """That program and job fit together. A worker that does not fit holds up nobody."""
        assert self._model is not None
        try:
            of_job = int(self._worker.job("batch_size"))
            if self._batch_size is not None and of_job not in (0, self._batch_size):
                raise LodestarError(
                    "FAILED_PRECONDITION",
                    f"batch_size={self._batch_size}, and the job has {of_job}: start ps_server with "
                    f"--batch_size={self._batch_size}, or leave it out here")
            self._model.check_optimizer()
        except BaseException:
            self._worker.close()
            raise

    def _batches(self, dataset: Any, heldout: Any, evaluate: Any,
                 collate_fn: Callable[[List[Any]], Any]) -> Iterator[Any]:
        model = self._model
        assert model is not None
        while True:
            if self._step is not None and not self._is_step_made:
                raise LodestarError(
                    "FAILED_PRECONDITION",
                    "optimizer.step() was not called for the last batch: each batch is one step "
                    "(with a GradScaler, take the step also where it finds Inf)")
            self._hand_over()
            try:
                step = self._worker.next()
                if step is None:
                    model.take_weights()
                    return
                if step.server_incarnation != self._incarnation:
                    if self._incarnation != 0:
                        self._check_job()
                        model.forget_optimizer()
                    self._incarnation = step.server_incarnation
                if not step.is_training:
                    model.take_weights()
                    self._worker.step_done(*model.evaluate(evaluate, heldout, step.samples,
                                                           collate_fn))
                    continue
                # Between local steps they are the program's.
                if step.step == 0:
                    model.take_weights()
                batch = collate_fn([dataset[sample] for sample in step.samples])
                model.begin_step(step)
            except BaseException as error:
                self._fail(error)
                raise
            self._step = step
            self._loss = (0.0, 0, 0)
            yield batch

    def _fail(self, error: BaseException) -> None:
        self._step = None
        if self._worker.has_step:
            self._worker.step_failed(f"{type(error).__name__}: {error}")

    def _hand_over(self) -> None:
        """The step that was made. Only now: until then weights may be looked at."""
        if self._step is None:
            return
        self._step, self._is_step_made = None, False
        self._worker.step_done(*self._loss)

    def log(self, loss: Any = None, *, num_correct: int = 0,
            num_predictions: Optional[int] = None) -> None:
        """Tells the cluster the mean loss of the batch at hand, in nats: for its status, its curves,
        and to notice a run that diverges. Before optimizer.step().

        Args:
          loss: a number, or a tensor of one; a tensor is waited for.
          num_correct: how many predictions were right.
          num_predictions: over how many the loss is a mean. None: one for each sample.
        """
        if self._step is None or self._is_step_made:
            raise LodestarError("FAILED_PRECONDITION",
                                "log() comes between a batch and its optimizer.step()")
        if loss is None:
            return
        count = len(self._step.samples) if num_predictions is None else num_predictions
        mean = loss.detach() if hasattr(loss, "detach") else loss
        self._loss = (float(mean) * count, int(num_correct), count)

    @property
    def round(self) -> int:
        """Of the batch at hand; -1: there is none."""
        return -1 if self._step is None else self._step.round

    @property
    def learning_rate(self) -> float:
        """Of the job's schedule, for the batch at hand."""
        return 0.0 if self._step is None else self._step.learning_rate

    @property
    def state(self) -> str:
        """What the worker does now: "wait", "pull", "compute", "push", ..."""
        return self._worker.state

    def job(self, setting: str) -> str:
        """A setting of the job, as text, once loader() was called; see Worker.job()."""
        return self._worker.job(setting)

    def stop(self) -> None:
        """The loader ends when the round at hand is over, as gpu_worker does for SIGTERM. Also from
        a signal handler or another thread."""
        self._worker.stop()

    def leave(self) -> None:
        """Leaves the job now. Steps that were made are handed in. Model and optimizer stay usable."""
        if self._step is not None and self._is_step_made:
            self._hand_over()
        if self._model is not None:
            self._model.detach()
        self._worker.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *unused: object) -> None:
        self.leave()

    def _make_step(self, closure: Optional[Callable[[], Any]], *args: Any, **kwargs: Any) -> Any:
        model = self._model
        assert model is not None
        if self._step is None or self._is_step_made:
            raise LodestarError("FAILED_PRECONDITION",
                                "optimizer.step() without a batch of the session's loader()")
        try:
            if model.has_local_steps:
                result = (self._inner_step(*args, **kwargs) if closure is None else
                          self._inner_step(closure, *args, **kwargs))
            else:
                result = None if closure is None else closure()
            model.end_step()
        except BaseException as error:
            self._fail(error)
            raise
        self._is_step_made = True
        return result


def _plain_name(name: str) -> str:
    """Without what wrappers (DistributedDataParallel, torch.compile) put into names."""
    return ".".join(part for part in name.split(".") if part not in ("module", "_orig_mod"))


class _Tensor:
    """A parameter, and where its weights and its gradient are in the vectors of the worker."""

    def __init__(self, name: str, parameter: Any, block: int) -> None:
        self.name = name
        self.parameter = parameter
        self.block = block
        self.weights: Any = None
        self.address = 0  # of `weights`, which may be moved to memory that is shared
        self.gradient: Any = None
        self.sent: Optional[Tuple[Any, int]] = None  # the gradient in this step, and its version
        self.taken: Any = None  # what the parameter was at the start of a round, where it is copied


class _AttachedModel:
    """What moves between the tensors of a model and the vectors of a worker."""

    def __init__(self, worker: Worker, model: Any, optimizer: Any, overlap: bool) -> None:
        import torch

        self._torch = torch
        self._worker = worker
        self._model = model
        self._optimizer = optimizer
        self._overlap = overlap
        self._is_training = False
        self.has_local_steps = False
        self._tensors = self._collect()
        self._num_missing: List[int] = []  # of each block, in this step
        rates = [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]
        largest = max(rates) or 1.0
        self._shares = [rate / largest for rate in rates]  # of the job's learning rate
        self._place()
        self._hooks = [
            tensor.parameter.register_post_accumulate_grad_hook(
                lambda _, tensor=tensor: self._on_gradient(tensor)) for tensor in self._tensors
        ]

    def _collect(self) -> List[_Tensor]:
        """In the order of the model, which is about that of forward; each tied tensor once."""
        of_model = {id(parameter) for parameter in self._model.parameters()}
        decays = {}  # by what the optimizer trains
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in of_model:
                    raise LodestarError(
                        "INVALID_ARGUMENT", f"the optimizer has a parameter {list(parameter.shape)} "
                        "that is not the model's: attach() a module that has all of them")
                decays[id(parameter)] = group.get("weight_decay", 0.0) != 0.0
        tensors: List[_Tensor] = []
        block, elements = 0, 0
        for name, parameter in self._model.named_parameters():
            if not parameter.requires_grad or id(parameter) not in decays:
                continue
            if elements >= _BLOCK_ELEMENTS:
                block, elements = block + 1, 0
            elements += parameter.numel()
            tensors.append(_Tensor(_plain_name(name), parameter, block))
            self._worker.add_tensor(tensors[-1].name, list(parameter.shape), block,
                                    decays[id(parameter)])
        if not tensors:
            raise LodestarError("INVALID_ARGUMENT", "the model has no parameter to train")
        return tensors

    def _place(self) -> None:
        torch = self._torch
        self._worker.allocate()
        weights = torch.frombuffer(self._worker.parameters, dtype=torch.float32)
        gradients = torch.frombuffer(self._worker.gradients, dtype=torch.float32)
        for tensor in self._tensors:
            parameter = tensor.parameter
            begin = self._worker.offset(tensor.name)
            end = begin + parameter.numel()
            tensor.weights = weights[begin:end].view(parameter.shape)
            tensor.gradient = gradients[begin:end].view(parameter.shape)
            tensor.address = tensor.weights.data_ptr()
            tensor.weights.copy_(parameter.detach())
            # Then nothing has to be copied.
            if parameter.device.type == "cpu" and parameter.dtype == torch.float32:
                parameter.data = tensor.weights.view(parameter.shape)

    def _lives_in_vector(self, tensor: _Tensor) -> bool:
        return tensor.parameter.data_ptr() == tensor.address

    def take_initial_weights(self) -> None:
        """Into the worker's vector, whatever has become of the parameters since."""
        present = {id(parameter) for parameter in self._model.parameters()}
        with self._torch.no_grad():
            for tensor in self._tensors:
                if id(tensor.parameter) not in present:
                    raise LodestarError(
                        "FAILED_PRECONDITION",
                        f"{tensor.name} is another parameter now than with attach(): load weights "
                        "with assign=False, or before")
                if not self._lives_in_vector(tensor):
                    tensor.weights.copy_(tensor.parameter)

    def take_weights(self) -> None:
        """From the worker's vector."""
        with self._torch.no_grad():
            for tensor in self._tensors:
                if self._lives_in_vector(tensor):
                    continue
                tensor.parameter.copy_(tensor.weights)
                if self.has_local_steps:
                    tensor.taken = tensor.parameter.detach().float().cpu()

    def forget_optimizer(self) -> None:
        """The weights may be others than those that its state belongs to."""
        if self.has_local_steps and self._optimizer.state:
            warnings.warn("the servers have begun anew: the optimizer's state does, too")
            self._optimizer.state.clear()

    def check_optimizer(self) -> None:
        """That the step which the servers make is that of the program's optimizer."""
        self.has_local_steps = self._worker.job("has_local_steps") == "1"
        if self.has_local_steps:
            return
        wanted = _flags_of(self._optimizer)
        differing = [
            f"--{flag}={value}" for flag, value in wanted.items()
            if not _is_same(value, self._worker.job(flag))
        ]
        if differing:
            given = " ".join(f"--{flag}={self._worker.job(flag)}" for flag in wanted)
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"the servers make the steps of this job, with {given}; for those of "
                f"{type(self._optimizer).__name__} as it is here start ps_server with "
                f"{' '.join(differing)}")

    def begin_step(self, step: Step) -> None:
        blocks = self._tensors[-1].block + 1
        self._num_missing = [0] * blocks
        for tensor in self._tensors:
            self._num_missing[tensor.block] += 1
            tensor.sent = None
        self._is_training = not self.has_local_steps
        groups = self._optimizer.param_groups
        if len(groups) != len(self._shares):
            raise LodestarError("FAILED_PRECONDITION",
                                "the optimizer has other groups of parameters than with attach()")
        for group, share in zip(groups, self._shares):
            group["lr"] = step.learning_rate * share

    def _on_gradient(self, tensor: _Tensor) -> None:
        if not self._is_training or not self._overlap:
            return
        if tensor.sent is not None:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"backward has added to the gradient of {tensor.name} a second time in one step, "
                "and the first one may have been sent: attach(..., overlap=False)")
        gradient = tensor.parameter.grad
        tensor.gradient.copy_(gradient)
        tensor.sent = (gradient, gradient._version)
        self._num_missing[tensor.block] -= 1
        if self._num_missing[tensor.block] == 0:
            self._worker.block_ready(tensor.block)

    def end_step(self) -> None:
        """The vectors have what this step hands over."""
        if not self.has_local_steps and getattr(self._optimizer, "grad_scale", None) is not None:
            raise LodestarError(
                "FAILED_PRECONDITION",
                "a GradScaler leaves unscaling to this optimizer, and the servers make the step: "
                "make the optimizer with fused=False, or scale nothing (bf16 needs no scaler)")
        with self._torch.no_grad():
            for tensor in self._tensors:
                if self.has_local_steps:
                    if not self._lives_in_vector(tensor):
                        # The change alone: rounding of the weights themselves is no part of it.
                        now = tensor.parameter.detach().float().cpu()
                        tensor.weights.add_(now - tensor.taken)
                        tensor.taken = now
                    continue
                gradient = tensor.parameter.grad
                if tensor.sent is None:
                    # Of what the loss does not depend on.
                    tensor.gradient.zero_() if gradient is None else tensor.gradient.copy_(gradient)
                elif gradient is not tensor.sent[0] or gradient._version != tensor.sent[1]:
                    raise LodestarError(
                        "FAILED_PRECONDITION",
                        f"the gradient of {tensor.name} was changed after backward, and may have "
                        "been sent before: clip with ps_server --clip_norm, or attach(..., "
                        "overlap=False)")
        self._is_training = False

    def evaluate(self, function: Callable[[Any], Tuple[float, int, int]], heldout: Any,
                 samples: List[int],
                 collate_fn: Callable[[List[Any]], Any]) -> Tuple[float, int, int]:
        """The three sums, in batches of the size of the job's, which fit."""
        size = int(self._worker.job("batch_size")) or _EVALUATION_BATCH
        modes = [(module, module.training) for module in self._model.modules()]
        loss_sum, num_correct, num_predictions = 0.0, 0, 0
        self._model.eval()
        try:
            with self._torch.no_grad():
                for begin in range(0, len(samples), size):
                    batch = collate_fn([heldout[k] for k in samples[begin:begin + size]])
                    loss, correct, predictions = function(batch)
                    loss_sum += float(loss)
                    num_correct += int(correct)
                    num_predictions += int(predictions)
        finally:
            for module, was_training in modes:
                module.training = was_training
        return loss_sum, num_correct, num_predictions

    def detach(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._optimizer.__dict__.pop("step", None)


def _flags_of(optimizer: Any) -> dict:
    """The flags of ps_server that make its optimizer this one. Raises LodestarError if none do."""
    kind = type(optimizer).__name__
    groups: Sequence[dict] = optimizer.param_groups

    def of_all(key: str) -> Any:
        values = {repr(group.get(key)): group.get(key) for group in groups}
        if len(values) > 1:
            raise LodestarError(
                "INVALID_ARGUMENT",
                f"groups of parameters differ in {key} ({', '.join(values)}), and the servers have "
                "one for all; --mode=local_sgd keeps the program's optimizer")
        return next(iter(values.values()))

    of_all("lr")
    decays = {group.get("weight_decay", 0.0) for group in groups} - {0, 0.0}
    if len(decays) > 1:
        of_all("weight_decay")
    decay = decays.pop() if decays else 0.0
    is_torchs = type(optimizer).__module__.startswith("torch.optim")
    if (is_torchs and kind in ("AdamW", "Adam") and not of_all("amsgrad")
            and not of_all("maximize")):
        if kind == "AdamW" or decay == 0.0:
            beta1, beta2 = of_all("betas")
            return {"optimizer": "adamw", "beta1": beta1, "beta2": beta2,
                    "epsilon": of_all("eps"), "weight_decay": decay}
    if is_torchs and kind == "SGD" and decay == 0.0 and of_all("dampening") == 0 and not of_all("maximize"):
        momentum = of_all("momentum")
        if momentum == 0:
            return {"optimizer": "sgd"}
        return {"optimizer": "nesterov" if of_all("nesterov") else "momentum",
                "momentum": momentum}
    raise LodestarError(
        "INVALID_ARGUMENT",
        f"the servers make the steps of sync and async jobs, and have no {kind} with these settings: "
        "use AdamW, Adam without weight decay, or SGD (momentum, nesterov) without weight decay and "
        "dampening; or --mode=local_sgd, which keeps the program's optimizer")


def _is_same(value: object, of_job: str) -> bool:
    if isinstance(value, str):
        return value == of_job
    return abs(float(value) - float(of_job)) <= 1e-9 * max(1e-3, abs(float(of_job)))  # type: ignore
