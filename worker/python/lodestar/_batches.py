# SPDX-License-Identifier: Apache-2.0
"""Where the batches of a step come from."""
from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Iterable, Iterator, List, Optional, Sequence

from lodestar._library import LodestarError

# Samples of the step that comes so many steps after the one at hand; none: that cannot be told.
Expect = Callable[[int], Sequence[int]]
# Batches of a step of so many samples.
NumParts = Callable[[int], int]


def parts_of(samples: Sequence[int], count: int) -> List[List[int]]:
    """Cuts samples into `count` parts whose sizes differ by one at most. There are fewer parts if
    there are fewer samples."""
    count = min(count, len(samples))
    ends = [len(samples) * k // count for k in range(count + 1)]
    return [list(samples[begin:end]) for begin, end in zip(ends, ends[1:])]


def make_loader(dataset: Any, options: dict) -> Any:
    """Returns a torch.utils.data.DataLoader. Raises LodestarError INVALID_ARGUMENT for options that
    it does not take."""
    import torch

    try:
        return torch.utils.data.DataLoader(dataset, **options)
    except (TypeError, ValueError, AssertionError) as error:
        raise LodestarError("INVALID_ARGUMENT",
                            "torch.utils.data.DataLoader does not take the options of loader(): "
                            f"{error}") from error


class GrantedBatches:
    """Loads the granted samples of a map-style data set. A DataLoader's processes load what is
    expected to be granted next, and wrong guesses are thrown away."""

    def __init__(self, dataset: Any, expect: Expect, num_parts: NumParts, options: dict,
                 put: Callable[[Any], Any] = lambda batch: batch) -> None:
        """Makes the DataLoader. Its processes start with the first batch.

        Args:
          num_parts: returns the number of batches of a step with so many samples.
          options: options of torch.utils.data.DataLoader.
          put: returns a batch on its device.
        """
        self._expect = expect
        self._num_parts = num_parts
        self._put = put
        self._loader = make_loader(dataset, {"batch_sampler": self._requests(), **options})
        self._iterator: Optional[Iterator[Any]] = None
        # Always whole steps, but for the first part of the one at hand.
        self._asked: Deque[List[int]] = deque()  # of the DataLoader, and not taken yet
        self._planned: Deque[List[int]] = deque()  # to be asked
        self._num_ahead = 0  # steps after the one at hand that were asked or planned
        self._num_wrong = 0  # of those asked: the first ones, which are not wanted

    def begin(self, samples: Sequence[int]) -> List[int]:
        """Begins a step with these samples. Returns the sizes of its batches."""
        parts = self._parts_of(samples)
        known = [*self._asked, *self._planned]
        if known[:len(parts)] == parts:
            self._num_ahead -= 1
        else:
            self._num_wrong = len(self._asked)
            self._planned = deque(parts)
            self._num_ahead = 0
        return [len(part) for part in parts]

    def _parts_of(self, samples: Sequence[int]) -> List[List[int]]:
        return parts_of(samples, self._num_parts(len(samples)))

    def take(self) -> Any:
        """Returns the next batch of the step."""
        if self._iterator is None:
            self._iterator = iter(self._loader)
        while self._num_wrong > 0:
            next(self._iterator)
            self._asked.popleft()
            self._num_wrong -= 1
        batch = next(self._iterator)
        self._asked.popleft()
        return self._put(batch)

    def close(self) -> None:
        """Ends the DataLoader's processes: as garbage in a cycle they would be waited for in vain."""
        self._iterator = None
        self._asked.clear()
        self._planned.clear()

    def _requests(self) -> Iterator[List[int]]:
        """Yields what the DataLoader is to load, without an end."""
        while True:
            if not self._planned:
                self._num_ahead += 1
                # Something has to be asked for where there is no guess, too.
                samples = self._expect(self._num_ahead) or self._asked[-1]
                self._planned.extend(self._parts_of(samples))
            self._asked.append(self._planned.popleft())
            yield self._asked[-1]


class OwnBatches:
    """Takes batches from an iterable data set, a DataLoader or a generator. The program decides
    which samples they have."""

    def __init__(self, batches: Iterable[Any], num_parts: NumParts,
                 prepare: Callable[[], int] = lambda: 0) -> None:
        """
        Args:
          prepare: is called before the first batch, and returns how many are to be left out.
        """
        self._batches = batches
        self._num_parts = num_parts
        self._prepare = prepare
        self._iterator: Optional[Iterator[Any]] = None

    def begin(self, samples: Sequence[int]) -> List[int]:
        """Begins a step with so many samples. Returns the sizes of its batches, as they are
        granted."""
        return [len(part) for part in parts_of(samples, self._num_parts(len(samples)))]

    def take(self) -> Any:
        """Returns the next batch, or the first one of the next pass if there are no more."""
        if self._iterator is None:
            num_left_out = self._prepare()
            self._iterator = iter(self._batches)
            for _ in range(num_left_out):
                self._next()
        return self._next()

    def _next(self) -> Any:
        assert self._iterator is not None
        for _ in range(2):
            try:
                return next(self._iterator)
            except StopIteration:
                self._iterator = iter(self._batches)
        raise LodestarError("OUT_OF_RANGE",
                            "the data ended before the job, and cannot be read a second time. "
                            "Give loader() an iterable that can begin again, such as a DataLoader")

    def close(self) -> None:
        """Does nothing, because the iterator is the program's as well."""
