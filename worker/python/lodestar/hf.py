# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer as one worker of a job."""
from __future__ import annotations

import warnings
from typing import Any, Callable, Iterator, List, Optional

from accelerate.state import GradientState
from transformers import TrainerCallback

from lodestar._library import LodestarError
from lodestar.session import Session
from lodestar.worker_api import Step


class Callback(TrainerCallback):
    """Trains the Trainer's model, with its optimizer, as one worker of a job:

        Trainer(model, arguments, train_dataset=..., callbacks=[lodestar.hf.Callback(lodestar.join())])

    The servers grant the samples of the Trainer's DataLoader, so that no two workers train on the
    same one: give all workers the same data. The Trainer counts its epochs as without the callback,
    by its own batches. If the batches that one step accumulates do not divide an epoch, the rest of
    the last step's samples is left out. A DataLoader with a sampler of its own, as with
    train_sampling_strategy="group_by_length", is refused, unless is_own. With is_own, or with an
    iterable data set, the Trainer reads its own data in its own order, so give each worker different
    data, or a different data seed.

    The Trainer's learning rates are used, unless ps_server was given a flag of the learning rate.
    The Trainer's schedule is max_steps long. The Trainer stops when the job is done, so give it at
    least as many steps as the job has. The model then has the weights of the job. Each worker needs
    one process of its own: do not start one worker with several processes (torchrun).

    If the Trainer divides losses by the number of targets that are not masked, workers are weighed
    by that number (log(weight=)).

    In sync and async the servers clip in place of the Trainer: max_grad_norm of the first worker is
    the job's norm, unless ps_server has --clip_norm. In other jobs the Trainer clips, with
    --optimizer=reduce the mean over the workers.
    """

    def __init__(self, session: Session, *, is_own: bool = False) -> None:
        self._session, self._is_own = session, is_own
        self._steps: Optional[Iterator[Step]] = None
        self._end_data: Optional[Callable[[], None]] = None
        self._losses: List[Any] = []
        self._num_items: Any = None  # predictions of the whole step, if the Trainer counts them
        self._hook: Any = None
        self._max_grad_norm: Optional[float] = None  # of the Trainer, while the servers clip

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None,
                       optimizer: Any = None, train_dataloader: Any = None,
                       lr_scheduler: Any = None, **_: Any) -> None:
        if args.world_size > 1 or args.n_gpu > 1:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"the Trainer has {args.world_size} processes with {args.n_gpu} cards each, but "
                "each worker must have one process and one card. Start the program once per card, "
                "with CUDA_VISIBLE_DEVICES set to that card")
        if getattr(optimizer, "scaler", None) is not None:
            raise LodestarError(
                "FAILED_PRECONDITION", "fp16=True uses a GradScaler, which cannot be combined "
                                       "with this callback; use bf16=True")
        self._session.ignore_schedulers()
        self._session.exchange_in_backward(self._is_last_backward)
        # accelerate wraps the optimizer.
        self._session.attach(model, getattr(optimizer, "optimizer", optimizer), overlap=False,
                             schedulers=[lr_scheduler] if hasattr(lr_scheduler, "last_epoch") and
                             not hasattr(lr_scheduler, "patience") else [],
                             clip_norm=args.max_grad_norm)
        self._hook = model.register_forward_hook(self._take_loss, with_kwargs=True)
        self._steps, self._end_data = self._session.trainer_steps(
            train_dataloader, args.gradient_accumulation_steps, is_own=self._is_own)
        if self._end_data is not None:
            # The job knows where it is, whatever a checkpoint of the Trainer says.
            args.ignore_data_skip = True
        if next(self._steps, None) is None:
            raise LodestarError("FAILED_PRECONDITION",
                                "the job is already done, so there is nothing to train; start a "
                                "new job with ps_server")
        if self._session.clips_at_servers:
            self._max_grad_norm, args.max_grad_norm = args.max_grad_norm, 0.0

    def _is_last_backward(self) -> bool:
        """Returns whether the Trainer makes a step after the backward pass that is under way. Tells
        the losses of that step then, because it is handed over at the end of the pass."""
        is_last = bool(GradientState().sync_gradients)
        if is_last:
            self._log_losses()
        return is_last

    def _take_loss(self, model: Any, _: Any, arguments: dict, output: Any) -> None:
        loss = output.get("loss") if hasattr(output, "get") else getattr(output, "loss", None)
        if model.training and loss is not None:
            # With the number of predictions of a whole step given, losses are parts of its mean.
            self._num_items = arguments.get("num_items_in_batch")
            self._losses.append(loss.detach())

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._log_losses()

    def _log_losses(self) -> None:
        if self._losses:
            total = sum(self._losses)
            if self._num_items is None:
                self._session.log(total / len(self._losses))
            else:
                # gpu_worker, which has the model of another job, gives no weights.
                count = round(float(self._num_items))
                is_weighed = all(self._session.job(setting) == "1"
                                 for setting in ("layout_is_own", "counts_weights"))
                self._session.log(total, weight=count if is_weighed else None,
                                  num_predictions=count)
        self._losses, self._num_items = [], None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        assert self._steps is not None
        if next(self._steps, None) is None:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._hook.remove()
        if self._max_grad_norm is not None:
            args.max_grad_norm, self._max_grad_norm = self._max_grad_norm, None
        if self._end_data is not None:
            self._end_data()
        if not self._session.is_over:
            warnings.warn(f"the Trainer ended after {state.global_step} steps, before the job "
                          "ended; give it a larger max_steps")
        self._session.leave()
