# SPDX-License-Identifier: Apache-2.0
"""Refuses a second thread that uses a session while another one is in a call of it."""
from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any, Callable, Generic, Iterator, TypeVar

from lodestar._library import LodestarError

_Item = TypeVar("_Item")


class OneThread:
    """Lets one thread at a time into a session."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Raises LodestarError FAILED_PRECONDITION if another thread is inside."""
        if not self._lock.acquire(blocking=False):
            raise LodestarError(
                "FAILED_PRECONDITION",
                "another thread is inside a call of this session, which belongs to one thread at a "
                "time. Take batches and call optimizer.step() in one thread")
        try:
            yield
        finally:
            self._lock.release()


class _Guarded(Generic[_Item]):
    """An iterator whose items one thread at a time asks for."""

    def __init__(self, thread: OneThread, items: Iterator[_Item]) -> None:
        self._thread, self._items = thread, items

    def __iter__(self) -> Iterator[_Item]:
        return self

    def __next__(self) -> _Item:
        with self._thread.entered():
            return next(self._items)


def call_of_one_thread(method: Callable[..., _Item]) -> Callable[..., _Item]:
    """Makes a method run inside the OneThread `self.thread`."""

    @functools.wraps(method)
    def guarded(self: Any, *arguments: Any, **named: Any) -> _Item:
        with self.thread.entered():
            return method(self, *arguments, **named)

    return guarded


def items_of_one_thread(method: Callable[..., Iterator[_Item]]) -> Callable[..., Iterator[_Item]]:
    """Makes the iterator that a method returns run inside the OneThread `self.thread`."""

    @functools.wraps(method)
    def guarded(self: Any, *arguments: Any, **named: Any) -> Iterator[_Item]:
        return _Guarded(self.thread, method(self, *arguments, **named))

    return guarded
