# SPDX-License-Identifier: Apache-2.0
"""Checks of what a program gives to its session: an error names the argument, and what it must be."""
from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

from lodestar._library import LodestarError


def described(value: Any) -> str:
    """Returns what a value is, as part of a sentence."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, (int, float, str)):
        return repr(value)[:80]
    shape = f" of shape {list(value.shape)}" if hasattr(value, "shape") else ""
    return f"a {type(value).__name__}{shape}"


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """Returns the value of an argument that counts something. Raises LodestarError
    INVALID_ARGUMENT if it is no whole number of at least `least`."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise LodestarError("INVALID_ARGUMENT",
                            f"{name}= is {described(value)}, but must be a whole number of at "
                            f"least {least}")
    return number


def number(name: str, value: Any) -> float:
    """Returns a number, or that of a tensor of one element. Raises LodestarError INVALID_ARGUMENT
    for anything else."""
    try:
        if isinstance(value, str) or math.prod(getattr(value, "shape", ())) != 1:
            raise TypeError
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError):
        raise LodestarError("INVALID_ARGUMENT",
                            f"{name} is {described(value)}, but must be a number, or a tensor with "
                            "one element, such as loss.mean()") from None


def check_function(name: str, value: Any) -> None:
    """Raises LodestarError INVALID_ARGUMENT for an argument that cannot be called. None passes."""
    if value is not None and not callable(value):
        raise LodestarError("INVALID_ARGUMENT",
                            f"{name}= is {described(value)}, but must be a function")


def is_map_style(data: Any) -> bool:
    """Returns whether samples can be taken by their numbers."""
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def check_data(data: Any) -> None:
    """Raises LodestarError INVALID_ARGUMENT for what has neither samples nor batches."""
    if isinstance(data, (Mapping, str, bytes)) or not (hasattr(data, "__iter__")
                                                       or hasattr(data, "__getitem__")):
        raise LodestarError(
            "INVALID_ARGUMENT",
            f"the data is {described(data)}, which has no numbered samples and no batches. Give a "
            "data set with len() and data[0], a DataLoader, or an iterable of batches")
    if is_map_style(data) and len(data) == 0:
        raise LodestarError("INVALID_ARGUMENT",
                            f"the data is {described(data)} without samples; give data with at least "
                            "one sample")


def check_heldout(heldout: Any, evaluate: Any) -> None:
    """Raises LodestarError INVALID_ARGUMENT for data that cannot be evaluated."""
    if heldout is None:
        return
    if evaluate is None:
        raise LodestarError("INVALID_ARGUMENT",
                            "heldout= is given without evaluate=; give evaluate= a function that "
                            "computes the loss of a batch")
    if isinstance(heldout, Mapping) or not is_map_style(heldout):
        raise LodestarError("INVALID_ARGUMENT",
                            f"heldout= is {described(heldout)}, but must be a data set with len() "
                            "and heldout[0]")
