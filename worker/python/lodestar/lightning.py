# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer as one worker of a job."""
from __future__ import annotations

import warnings
from typing import Any, Callable, Iterator, Optional

try:
    from lightning.pytorch import LightningModule
    from lightning.pytorch.callbacks import Callback as _LightningCallback
except ImportError:
    from pytorch_lightning import LightningModule
    from pytorch_lightning.callbacks import Callback as _LightningCallback

from lodestar._library import LodestarError
from lodestar.session import Session
from lodestar.worker_api import Step


class Callback(_LightningCallback):
    """Trains a LightningModule, with its one optimizer, as one worker of a job:

        Trainer(callbacks=[lodestar.lightning.Callback(lodestar.join())], max_epochs=-1)

    The servers grant the samples of the Trainer's DataLoader, so that no two workers train on the
    same one: give all workers the same data. The Trainer counts its epochs as without the callback,
    by its own batches. If accumulate_grad_batches does not divide an epoch, the rest of the last
    step's samples is left out. Several DataLoaders, and one with a sampler of its own, are refused,
    unless is_own. With is_own, or with an iterable data set, the Trainer reads its own data in its
    own order, so give each worker different data.

    The module's learning rates are used, unless ps_server was given a flag of the learning rate. The
    Trainer stops when the job is done. Each worker needs one process with one device, and automatic
    optimization. If targets are masked, training_step() calls log(weight=) of the session.

    In sync and async the servers clip in place of the Trainer: gradient_clip_val of the first worker
    is the job's norm, unless ps_server has --clip_norm. In other jobs the Trainer clips, with
    --optimizer=reduce the mean over the workers. It also does if it clips by value, or the module
    configures its clipping.
    """

    def __init__(self, session: Session, *, is_own: bool = False) -> None:
        self._session, self._is_own = session, is_own
        self._steps: Optional[Iterator[Step]] = None
        self._clip_norm: Optional[float] = None  # of the Trainer, while the servers clip
        self._end_data: Optional[Callable[[], None]] = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.world_size > 1:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"the Trainer has {trainer.world_size} processes, but each worker must have one; "
                "start one Trainer with devices=1 for each worker")
        if len(trainer.optimizers) != 1 or not pl_module.automatic_optimization:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"the module has {len(trainer.optimizers)} optimizers and "
                f"automatic_optimization={pl_module.automatic_optimization}; it must have one "
                "optimizer and automatic_optimization=True")
        self._session.ignore_schedulers()
        if getattr(trainer.precision_plugin, "scaler", None) is None:
            self._session.exchange_in_backward(
                lambda: not trainer.fit_loop._should_accumulate())
        self._session.attach(pl_module, trainer.optimizers[0], overlap=False,
                             schedulers=[config.scheduler for config in trainer.lr_scheduler_configs
                                         if config.interval == "step" and config.frequency == 1 and
                                         not config.reduce_on_plateau],
                             clip_norm=_clip_norm(trainer, pl_module))
        data = trainer.train_dataloader
        if isinstance(data, (dict, list, tuple)) and not self._is_own:
            raise LodestarError(
                "INVALID_ARGUMENT",
                f"Callback() cannot use {len(data)} DataLoaders, because the servers grant the "
                "samples of one. Give the Trainer one DataLoader, or use Callback(..., is_own=True) "
                "with different data for each worker")
        self._steps, self._end_data = self._session.trainer_steps(
            data, trainer.accumulate_grad_batches, is_own=self._is_own)
        if self._end_data is not None:
            iter(trainer.fit_loop._data_fetcher)  # the Trainer has begun to iterate already
        self._begin_step(trainer)
        if self._session.clips_at_servers:
            self._clip_norm, trainer.gradient_clip_val = trainer.gradient_clip_val, None

    def _begin_step(self, trainer: Any) -> None:
        assert self._steps is not None
        if next(self._steps, None) is None:
            trainer.should_stop = True

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        self._session.log(loss * trainer.accumulate_grad_batches)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any,
                           batch_idx: int) -> None:
        if self._session.is_step_made:
            self._begin_step(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._clip_norm is not None:
            trainer.gradient_clip_val, self._clip_norm = self._clip_norm, None
        if self._end_data is not None:
            self._end_data()
        if not self._session.is_over:
            warnings.warn(f"the Trainer ended after {trainer.global_step} steps, before the job "
                          "ended; give it max_epochs=-1")
        self._session.leave()


def _clip_norm(trainer: Any, pl_module: Any) -> Optional[float]:
    """Returns the norm to which the Trainer clips; None if it does not, or in another way."""
    is_own = (type(pl_module).configure_gradient_clipping
              is not LightningModule.configure_gradient_clipping)
    is_by_norm = trainer.gradient_clip_algorithm in (None, "norm")
    return trainer.gradient_clip_val if is_by_norm and not is_own else None
