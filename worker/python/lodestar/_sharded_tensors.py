# SPDX-License-Identifier: Apache-2.0
"""The tensors of a model that fully_shard() has cut over the ranks of a worker."""
from __future__ import annotations

from typing import Any, Dict, List, Tuple

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard

from lodestar._library import LodestarError
from lodestar._trained_tensors import TrainedTensor, TrainedTensors


def rows_of_ranks(num_rows: int, num_ranks: int) -> List[Tuple[int, int]]:
    """Returns which rows of a tensor each rank has, as FSDP cuts it: the first row, and the row
    after the last one."""
    size = -(-num_rows // num_ranks)
    return [(min(size * rank, num_rows), min(size * (rank + 1), num_rows))
            for rank in range(num_ranks)]


class ShardedTensor(TrainedTensor):
    """Is a DTensor of which each rank has some rows. `weights` and `gradient` are those of these
    rows."""

    def __init__(self, name: str, parameter: Any, settings: Dict[str, str], members: List[int],
                 rank: int) -> None:
        """Checks how the parameter is cut.

        Args:
          members: the ranks of the worker, in the whole program.
          rank: this one's place in them.

        Raises:
          LodestarError: INVALID_ARGUMENT for a parameter that is cut in another way.
        """
        self._check(name, parameter, members, rank)
        super().__init__(name, parameter, settings)

    @staticmethod
    def _check(name: str, parameter: Any, members: List[int], rank: int) -> None:
        if not isinstance(parameter, DTensor):
            raise LodestarError(
                "INVALID_ARGUMENT", f"parameter {name} is not sharded, but with group= each rank "
                                    "must have a shard of each parameter. Call fully_shard() for "
                                    "the whole model before its optimizer is made")
        mesh = parameter.device_mesh
        if mesh.ndim != 1 or mesh.mesh.tolist() != members:
            raise LodestarError(
                "INVALID_ARGUMENT", f"parameter {name} is on the mesh {mesh.mesh.tolist()}, but "
                                    f"the ranks of this worker are {members}. Use a mesh of one "
                                    "dimension with the ranks of join(group=)")
        if tuple(parameter.placements) != (Shard(0),):
            raise LodestarError(
                "INVALID_ARGUMENT", f"parameter {name} is placed as {list(parameter.placements)}, "
                                    "but must be [Shard(dim=0)], the default of fully_shard()")
        begin, end = rows_of_ranks(parameter.shape[0], len(members))[rank]
        num_rows = parameter.to_local().shape[0]
        if num_rows != end - begin:
            raise LodestarError(
                "INVALID_ARGUMENT", f"rank {rank} has {num_rows} of the {parameter.shape[0]} rows "
                                    f"of parameter {name}, but fully_shard() gives it "
                                    f"{end - begin}; shard the model with fully_shard()")

    def here(self, values: Any) -> Any:
        return values.to_local()

    def move_into_vector(self) -> None:
        """Does nothing, because FSDP keeps its shards where they are."""

    @property
    def lives_in_vector(self) -> bool:
        return False


class ShardedTensors(TrainedTensors):
    """Holds the tensors of one rank."""

    def __init__(self, worker: Any, model: Any, optimizer: Any) -> None:
        """Adds the tensors of the model to the worker.

        Args:
          worker: a Leader or a Follower.

        Raises:
          LodestarError: as TrainedTensors; INVALID_ARGUMENT for what is not cut in dimension 0 over
            the ranks of the worker.
        """
        self._ranks = worker.ranks
        _reshard(model)
        super().__init__(worker, model, optimizer)

    def _make(self, name: str, parameter: Any, settings: Dict[str, str]) -> TrainedTensor:
        return ShardedTensor(name, parameter, settings, self._ranks.members, self._ranks.rank)

    def place(self, worker: Any, *, in_vector: bool) -> None:
        _reshard(self._model)
        super().place(worker, in_vector=in_vector)

    @torch.no_grad()
    def take_weights(self) -> None:
        # Otherwise what an evaluation has left unsharded would be used once more.
        _reshard(self._model)
        super().take_weights()


def _reshard(model: Any) -> None:
    """Makes each parameter of the model its shards."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
