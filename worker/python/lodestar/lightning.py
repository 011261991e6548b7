# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer as one worker of a job."""
from __future__ import annotations

import warnings
from typing import Any, Iterator, Optional

try:
    from lightning.pytorch.callbacks import Callback as _LightningCallback
except ImportError:
    from pytorch_lightning.callbacks import Callback as _LightningCallback

from lodestar._library import LodestarError
from lodestar.session import Session
from lodestar.worker_api import Step


class Callback(_LightningCallback):
    """Trains a LightningModule, with its one optimizer, as one worker of a job:

        Trainer(callbacks=[lodestar.lightning.Callback(lodestar.join())], max_epochs=-1)

    The Trainer reads its own data in its own order. The servers know only the number of samples, so
    give each worker different data, or another order. The module's learning rates are used, unless
    ps_server was given a flag of the learning rate. The Trainer stops when the job is done. Each
    worker needs one process with one device, and automatic optimization.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._steps: Optional[Iterator[Step]] = None

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
        self._session.attach(pl_module, trainer.optimizers[0], overlap=False,
                             schedulers=[config.scheduler for config in trainer.lr_scheduler_configs
                                         if config.interval == "step" and config.frequency == 1 and
                                         not config.reduce_on_plateau])
        of_batch = getattr(trainer.train_dataloader, "batch_size", None)
        self._steps = self._session.steps(
            batch_size=of_batch and of_batch * trainer.accumulate_grad_batches)
        self._begin_step(trainer)

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
        if not self._session.is_over:
            warnings.warn(f"the Trainer ended after {trainer.global_step} steps, before the job "
                          "ended; give it max_epochs=-1")
        self._session.leave()
