# SPDX-License-Identifier: Apache-2.0
"""Processes of torch.distributed that are one worker together: what they tell each other."""
from __future__ import annotations

import contextlib
import itertools
import os
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist

from lodestar._library import LodestarError

_WAIT, _VALUE, _ERROR = range(3)

# Threads of a group that is destroyed (pytorch/pytorch#154976). Before, one that waits for the GIL,
# to let go of a tensor, would be waited for in vain.
_JOINS_WITHOUT_GIL = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)


class Ranks:
    """Lets the processes of a group talk. Rank 0 leads: it alone is connected to the servers.

    All ranks call the same methods in the same order. They talk on the CPU, with gloo, over a group
    of their own: what FSDP does on its group is not disturbed, and a rank that ends()
    closes it, so that no other rank waits in vain. Rank numbers are those within the group.

    At the end of the job it is closed, and its threads are joined: one of gloo that lets go of a
    tensor while the interpreter ends aborts the program, before Python 3.14.

    Attributes:
      count: of the processes.
      rank: of this one.
      members: their ranks in the whole program, in the order of the group.
    """

    def __init__(self, group: Any) -> None:
        """Waits until all ranks are here, for the timeout of torch.distributed. Raises
        LodestarError FAILED_PRECONDITION without torch.distributed, and INVALID_ARGUMENT if this
        process is not in the group."""
        if not dist.is_initialized():
            raise LodestarError("FAILED_PRECONDITION",
                                "torch.distributed has no process group yet; call "
                                "torch.distributed.init_process_group() before join(group=)")
        if dist.get_rank(group) < 0:
            raise LodestarError("INVALID_ARGUMENT",
                                "this process is not in the group= that was given to join(); call "
                                "join() only in processes of the group")
        self._process = os.getpid()
        self.members: List[int] = dist.get_process_group_ranks(group)
        self.count = len(self.members)
        self.rank = dist.get_rank(group)
        self._group = dist.new_group(self.members, backend="gloo", use_local_synchronization=True)
        # The public ways to a store make another server of one.
        self._store = dist.distributed_c10d._get_default_store()
        self._key = f"lodestar/{self._group.group_name}/end"
        self._has_ended = False
        self._was_first = False  # to end

    @property
    def is_in_fork(self) -> bool:
        """Returns whether this process was forked from that of the rank."""
        return os.getpid() != self._process

    def lead(self, call: Callable[[], Any], is_ready: Callable[[], bool] = lambda: True) -> Any:
        """Makes rank 0 call. All ranks return what the call returns, or raise its LodestarError.

        Args:
          is_ready: tells rank 0 whether `call` would not block. It waits a moment; in between the
            others hear that rank 0 is there, and handlers of signals run.
        """
        if self.rank == 0:
            return self._lead(call, is_ready)
        kind, value = self._share(None)
        while kind == _WAIT:
            kind, value = self._share(None)
        if kind == _ERROR:
            raise LodestarError(*value)
        return value

    def _lead(self, call: Callable[[], Any], is_ready: Callable[[], bool]) -> Any:
        while not is_ready():
            self._share((_WAIT, None))
        try:
            value = call()
        except LodestarError as error:
            self._share((_ERROR, (error.code, str(error))))
            raise
        self._share((_VALUE, value))
        return value

    def _share(self, message: Any) -> Tuple[int, Any]:
        with self._together() as group:
            messages = [message]
            dist.broadcast_object_list(messages, src=self.members[0], group=group)
            return messages[0]

    def meet(self, message: Any) -> List[Any]:
        """Returns the messages of all ranks, in the order of the ranks."""
        with self._together() as group:
            messages = [None] * self.count
            dist.all_gather_object(messages, message, group=group)
            return messages

    def agree(self, values: List[Any]) -> None:
        """Raises LodestarError INVALID_ARGUMENT in all ranks if the ranks have given different
        values. The error names the first value that differs."""
        of_ranks = self.meet(values)
        for rank, others in enumerate(of_ranks):
            for own, other in itertools.zip_longest(of_ranks[0], others, fillvalue="nothing"):
                if own != other:
                    raise LodestarError(
                        "INVALID_ARGUMENT", "all ranks of a worker must train the same model on "
                                            f"the same data set, but rank 0 has {own}, and rank "
                                            f"{rank} has {other}. Make model and data set alike in "
                                            "all ranks")

    def gather(self, shards: List[Tuple[int, Any]]) -> None:
        """Copies shards of f32 from the main memory of the other ranks to rank 0.

        Args:
          shards: pairs of the rank that owns the shard, and memory. In the owner it is the memory
            of the shard, in rank 0 the memory that the shard is copied to. Each rank gives the
            shards that it owns, and rank 0 gives all, in the same order.
        """
        self._move(shards, from_leader=False)

    def scatter(self, shards: List[Tuple[int, Any]]) -> None:
        """Copies the shards from rank 0 back to their owners. Arguments as for gather()."""
        self._move(shards, from_leader=True)

    def _move(self, shards: List[Tuple[int, Any]], from_leader: bool) -> None:
        is_sending = (self.rank == 0) == from_leader
        with self._together() as group:
            moves = []
            for owner, memory in shards:
                if owner == 0 or memory.numel() == 0:
                    continue
                other = self.members[owner if self.rank == 0 else 0]
                moves.append(dist.isend(memory, dst=other, group=group) if is_sending else
                             dist.irecv(memory, src=other, group=group))
            for move in moves:
                move.wait()

    def take_mean(self, values: Any) -> None:
        """Replaces `values`, f32 in main memory, in each rank by their mean over all ranks."""
        with self._together() as group:
            dist.all_reduce(values, group=group)
        values /= self.count

    def share_values(self, values: Any) -> None:
        """Copies the values of rank 0 to all ranks."""
        with self._together() as group:
            dist.broadcast(values, src=self.members[0], group=group)

    @contextlib.contextmanager
    def _together(self) -> Iterator[Any]:
        if self._group is None:
            raise LodestarError("FAILED_PRECONDITION",
                                "this rank has already left its worker; call join() again")
        try:
            yield self._group
        except RuntimeError as error:
            why = self.why_ended()
            raise LodestarError(
                "ABORTED", why or "a rank of this worker does not answer, so all its ranks end: "
                                  f"{error}") from error

    def why_ended(self) -> Optional[str]:
        """Returns why the first other rank ended. None: this rank was first, or none has ended."""
        if self._was_first:
            return None
        try:
            return self._store.get(self._key).decode() if self._store.check([self._key]) else None
        except RuntimeError:
            return None  # whose process had the store is gone

    def end(self, why: str) -> None:
        """Ends this rank. The other ranks end with LodestarError ABORTED when they next wait for
        it."""
        if self._has_ended or self.is_in_fork:
            return
        self._has_ended = True
        with contextlib.suppress(RuntimeError, ValueError, AssertionError):
            self._was_first = not self._store.check([self._key])
            if self._was_first:
                self._store.set(self._key, f"rank {self.rank} of this worker has ended: {why}")
        self._close()

    def close_at_end(self) -> None:
        """Closes the group once all ranks know that the job is over."""
        if _JOINS_WITHOUT_GIL:
            self._close()

    def _close(self) -> None:
        group, self._group = self._group, None
        # The program may have destroyed all groups before.
        with contextlib.suppress(RuntimeError, ValueError, AssertionError):
            if group is not None:
                dist.destroy_process_group(group)
