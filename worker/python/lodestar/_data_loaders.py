# SPDX-License-Identifier: Apache-2.0
"""A program's DataLoader whose samples the servers grant."""
from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional

from torch.utils.data import (BatchSampler, DataLoader, RandomSampler, SequentialSampler,
                              SubsetRandomSampler)

from lodestar._library import LodestarError

# Options of a DataLoader that its batches keep. The others say which samples come, and in which
# order.
_KEPT_OPTIONS = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn",
                 "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
                 "pin_memory_device", "in_order")


class Placement(NamedTuple):
    """Where accelerate's DataLoader puts its batches."""

    device: Any
    non_blocking: bool

    def put(self, batch: Any) -> Any:
        """Returns the batch on the device."""
        from accelerate.utils import send_to_device

        return send_to_device(batch, self.device, non_blocking=self.non_blocking)


class LoaderParts(NamedTuple):
    """What a DataLoader over a map-style data set is made of.

    Attributes:
      options: of a DataLoader with the same batches in another order.
      is_shuffled: whether each pass has another order of samples, and not that of their numbers.
      placement: None means that batches stay where they are.
    """

    dataset: Any
    batch_size: int
    options: Dict[str, Any]
    is_shuffled: bool
    placement: Optional[Placement]


def take_apart(loader: Any, method: str = "loader") -> LoaderParts:
    """Takes apart a torch.utils.data.DataLoader over a map-style data set, also one that accelerate
    has prepared.

    Args:
      method: which the program has called, for messages.

    Raises:
      LodestarError: INVALID_ARGUMENT naming what would say which samples come, if that is not the
        shuffling that the servers do.
    """
    placement = None
    if type(loader) is getattr(sys.modules.get("accelerate.data_loader"), "DataLoaderShard", None):
        if loader.device is not None:
            placement = Placement(loader.device, loader._non_blocking)
        loader = loader.base_dataloader
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise _not_granted(f"a {type(loader).__name__}, which makes its batches itself", method)
    batches = loader.batch_sampler
    if batches is None:
        raise _not_granted("batch_size=None", method)
    if type(batches) is not BatchSampler:
        raise _not_granted(f"batch_sampler={type(batches).__name__}", method)
    _check_sampler(batches.sampler, len(loader.dataset), method)
    options = {name: getattr(loader, name) for name in _KEPT_OPTIONS if hasattr(loader, name)}
    return LoaderParts(loader.dataset, batches.batch_size, options,
                       type(batches.sampler) is not SequentialSampler, placement)


def _check_sampler(sampler: Any, num_samples: int, method: str) -> None:
    name = type(sampler).__name__
    if type(sampler) is SubsetRandomSampler:
        raise _not_granted(name, method, "over torch.utils.data.Subset(dataset, indices) ")
    if type(sampler) is SequentialSampler:
        return
    seedable = getattr(sys.modules.get("accelerate.data_loader"), "SeedableRandomSampler", None)
    if type(sampler) not in (RandomSampler, seedable):
        raise _not_granted(name, method)
    if sampler.replacement:
        raise _not_granted(f"{name} with replacement=True", method)
    if sampler.num_samples != num_samples:
        raise _not_granted(f"{name} with num_samples={sampler.num_samples} of {num_samples}",
                           method)


def _not_granted(what: str, method: str, over: str = "") -> LodestarError:
    return LodestarError(
        "INVALID_ARGUMENT",
        f"{method}() cannot use {what}: the servers grant each sample once per pass, shuffled or "
        f"in order, so that no two workers train on the same sample. Make the DataLoader {over}with "
        "batch_size= and shuffle=. If only this worker has these samples, or the "
        f"program must choose the samples itself, call {method}(..., is_own=True)")


class GrantedLoader:
    """The batches of a program's DataLoader, as the servers grant their samples. One loop is one
    pass.

    Attributes:
      dataset: of the DataLoader.
    """

    def __init__(self, dataset: Any, begin_pass: Callable[[], Iterator[Any]],
                 count_batches: Callable[[], int]) -> None:
        self.dataset = dataset
        self._begin_pass = begin_pass
        self._count_batches = count_batches

    def __iter__(self) -> Iterator[Any]:
        return self._begin_pass()

    def __len__(self) -> int:
        """Returns how many batches of a pass come to this worker, if as many workers as now stay in
        the job, and get as many samples each."""
        return self._count_batches()
