# SPDX-License-Identifier: Apache-2.0
"""The session of a rank, of several that are one worker."""
from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple, cast

from lodestar._library import LodestarError
from lodestar._ranks import Ranks
from lodestar._sharded_tensors import ShardedTensors
from lodestar._sharded_worker import Follower, Leader, ShardedWorker
from lodestar.session import Session
from lodestar.worker_api import Worker


class ShardedSession(Session):
    """Is the session of one rank. All ranks do together what a Session does."""

    def __init__(self, group: Any, make_worker: Callable[[], Worker], *, name: Optional[str] = None,
                 state_dir: Optional[str] = None) -> None:
        ranks = Ranks(group)
        self._sharded: ShardedWorker = (
            Leader(ranks, make_worker) if ranks.rank == 0 else Follower(ranks))
        # It has the same methods.
        super().__init__(cast(Worker, self._sharded),
                         name=name and f"{name}.{ranks.rank}-of-{ranks.count}", state_dir=state_dir)

    def _make_tensors(self, model: Any, optimizer: Any) -> ShardedTensors:
        return ShardedTensors(self._worker, model, optimizer)

    def attach(self, model: Any, optimizer: Any, *, overlap: bool = True,
               keep_weights: bool = False, schedulers: Sequence[Any] = (),
               clip_norm: Optional[float] = None) -> Tuple[Any, Any]:
        """Attaches a model that went through fully_shard(), as Session.attach(). Gradients leave
        with optimizer.step(), whatever `overlap` is."""
        return super().attach(model, optimizer, overlap=False, keep_weights=keep_weights,
                              schedulers=schedulers, clip_norm=clip_norm)

    def _bring_weights(self) -> None:
        """Does nothing, because a rank may ask for its state_dict() alone."""

    def use_comm_hook(self) -> None:
        raise LodestarError("FAILED_PRECONDITION",
                            "comm_hook() is for DistributedDataParallel, where each process is a "
                            "worker; call join() without group=")

    def save_pretrained(self, folder: str, **options: Any) -> None:
        raise LodestarError(
            "FAILED_PRECONDITION",
            "no rank has the whole model. Use psctl export, or "
            "torch.distributed.checkpoint.state_dict.get_model_state_dict() with full_state_dict")

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        """Tells the other ranks of an error. An error of torch.distributed that follows from that
        of another rank ends with what that rank has said."""
        if error is None:
            return super().__exit__(kind, error, trace)
        why = self._sharded.ranks.why_ended()
        self._fail(error)
        self._sharded.ranks.end(f"{type(error).__name__}: {error}")
        self.leave()
        is_known = isinstance(error, LodestarError) or not isinstance(error, RuntimeError)
        if why is not None and not is_known:
            raise LodestarError("ABORTED", why) from error
        return None
