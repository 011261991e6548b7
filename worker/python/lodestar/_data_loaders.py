# SPDX-License-Identifier: Apache-2.0
"""A program's DataLoader whose samples the servers grant."""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, NamedTuple

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler

from lodestar._library import LodestarError

# Options of a DataLoader that its batches keep. The others say which samples come, and in which
# order.
_KEPT_OPTIONS = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn",
                 "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
                 "pin_memory_device", "in_order")


class LoaderParts(NamedTuple):
    """What a DataLoader over a map-style data set is made of.

    Attributes:
      options: of a DataLoader with the same batches in another order.
    """

    dataset: Any
    batch_size: int
    options: Dict[str, Any]


def take_apart(loader: Any) -> LoaderParts:
    """Takes apart a torch.utils.data.DataLoader over a map-style data set.

    Raises:
      LodestarError: INVALID_ARGUMENT naming what would say which samples come, if that is not the
        shuffling that the servers do.
    """
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise _not_granted(f"a {type(loader).__name__}, which makes its batches itself")
    batches = loader.batch_sampler
    if batches is None:
        raise _not_granted("batch_size=None")
    if type(batches) is not BatchSampler:
        raise _not_granted(f"batch_sampler={type(batches).__name__}")
    _check_sampler(batches.sampler, len(loader.dataset))
    options = {name: getattr(loader, name) for name in _KEPT_OPTIONS if hasattr(loader, name)}
    return LoaderParts(loader.dataset, batches.batch_size, options)


def _check_sampler(sampler: Any, num_samples: int) -> None:
    name = type(sampler).__name__
    if type(sampler) is SubsetRandomSampler:
        raise _not_granted(name, "over torch.utils.data.Subset(dataset, indices) ")
    if type(sampler) is not RandomSampler:
        raise _not_granted(name)
    if sampler.replacement:
        raise _not_granted(f"{name} with replacement=True")
    if sampler.num_samples != num_samples:
        raise _not_granted(f"{name} with num_samples={sampler.num_samples} of {num_samples}")


def _not_granted(what: str, over: str = "") -> LodestarError:
    return LodestarError(
        "INVALID_ARGUMENT",
        f"loader() cannot use {what}: the servers shuffle the samples and grant each one once per "
        f"pass, so that no two workers train on the same sample. Make the DataLoader {over}with "
        "batch_size= and shuffle=True. If the samples are only this worker's, or it must choose "
        "them itself, call loader(..., is_own=True)")


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
