# SPDX-License-Identifier: Apache-2.0
"""The C API of liblodestar_worker.so (worker/capi/lodestar_worker.h), through ctypes."""
from __future__ import annotations

import ctypes
import os
from typing import Optional

from lodestar._python_words import in_words_of_python

_API_MAJOR = 1
_API_MINOR = 1  # at least
_NAME = "liblodestar_worker.so"

# The names of absl::StatusCode, which are those of gRPC.
_CODES = ("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
          "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
          "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
          "UNAUTHENTICATED")


class LodestarError(RuntimeError):
    """What a worker or its cluster refuses, and why.

    Attributes:
      code: the name of a status code of gRPC, such as "FAILED_PRECONDITION".
    """

    __module__ = "lodestar"  # as programs know it

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Step(ctypes.Structure):
    """lodestar_step."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("step", ctypes.c_int32),
        ("num_steps", ctypes.c_int32),
        ("round", ctypes.c_int64),
        ("learning_rate", ctypes.c_double),
        ("server_incarnation", ctypes.c_uint64),
        ("num_samples", ctypes.c_int64),
        ("samples", ctypes.POINTER(ctypes.c_int64)),
        ("epochs", ctypes.POINTER(ctypes.c_int64)),
        ("first_position", ctypes.c_int64),
    ]


_HANDLE = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_INT = ctypes.c_int
_INT64 = ctypes.c_int64
_FLOATS = ctypes.POINTER(ctypes.c_float)

# Result and arguments. Those that return int return an error that check() knows.
_FUNCTIONS = {
    "version": (_TEXT, []),
    "last_error": (_TEXT, []),
    "last_code": (_INT, []),
    "set_log_level": (_INT, [_TEXT]),
    "crc32c": (ctypes.c_uint32, [_HANDLE, ctypes.c_size_t]),
    "new": (_HANDLE, []),
    "free": (None, [_HANDLE]),
    "set": (_INT, [_HANDLE, _TEXT, _TEXT]),
    "propose": (_INT, [_HANDLE, _TEXT, _TEXT]),
    "add_tensor": (_INT, [_HANDLE, _TEXT, ctypes.POINTER(_INT64), _INT, _INT, _INT]),
    "add_embedding": (_INT, [_HANDLE, _TEXT, ctypes.POINTER(_INT64), _INT, _INT, _INT]),
    "add_averaged": (_INT, [_HANDLE, _TEXT, ctypes.POINTER(_INT64), _INT, _INT]),
    "set_data": (_INT, [_HANDLE, _TEXT, _INT64, _INT64, _INT64, _INT]),
    "allocate": (_INT, [_HANDLE]),
    "parameters": (_FLOATS, [_HANDLE]),
    "gradients": (_FLOATS, [_HANDLE]),
    "num_elements": (_INT64, [_HANDLE]),
    "offset": (_INT64, [_HANDLE, _TEXT]),
    "num_blocks": (_INT64, [_HANDLE]),
    "block": (_INT, [_HANDLE, _TEXT]),
    "start": (_INT, [_HANDLE]),
    "job": (_TEXT, [_HANDLE, _TEXT]),
    "place": (_INT, [_HANDLE, ctypes.POINTER(_INT64), ctypes.POINTER(_INT64),
                     ctypes.POINTER(_INT)]),
    "wait": (_INT, [_HANDLE, _INT, _INT]),
    "next": (_INT, [_HANDLE, ctypes.POINTER(Step)]),
    "weights_version": (_INT64, [_HANDLE]),
    "evaluation": (_INT64, [_HANDLE, ctypes.POINTER(ctypes.c_double),
                            ctypes.POINTER(ctypes.c_double)]),
    "round_pass": (_INT, [_HANDLE, ctypes.POINTER(_INT64)]),
    "set_initial_state": (_INT, [_HANDLE, _INT, _FLOATS, _INT64]),
    "pull_state": (_INT, [_HANDLE, _INT, _FLOATS, ctypes.POINTER(_INT64), ctypes.POINTER(_INT)]),
    "keep_state": (_INT, [_HANDLE, _INT]),
    "extend": (_INT, [_HANDLE, ctypes.POINTER(Step)]),
    "keep_samples": (_INT, [_HANDLE]),
    "expect": (_INT, [_HANDLE, _INT, ctypes.POINTER(Step)]),
    "set_learning_rate": (_INT, [_HANDLE, _INT, ctypes.c_double]),
    "set_weight": (_INT, [_HANDLE, _INT64]),
    "block_ready": (_INT, [_HANDLE, _INT]),
    "step_done": (_INT, [_HANDLE, ctypes.c_double, _INT64, _INT64]),
    "log": (_INT, [_HANDLE, _TEXT, ctypes.c_double]),
    "step_skipped": (_INT, [_HANDLE]),
    "step_failed": (_INT, [_HANDLE, _TEXT]),
    "state": (_TEXT, [_HANDLE]),
    "stop": (_INT, [_HANDLE]),
    "leave": (_INT, [_HANDLE]),
}


def _paths() -> list[str]:
    """Returns where the library may be. The first that is there counts."""
    told = os.environ.get("LODESTAR_LIBRARY")
    here = os.path.dirname(os.path.abspath(__file__))
    return [told] if told else [os.path.join(here, "lib", _NAME), os.path.join(here, _NAME)]


class Library:
    """Has the functions, without their prefix. Calls release the GIL."""

    def __init__(self) -> None:
        paths = _paths()
        path = next((path for path in paths if os.path.exists(path)), None)
        if path is None:
            raise LodestarError(
                "NOT_FOUND", f"the library {_NAME} is not at {' or '.join(paths)}. Install the "
                             "wheel, or set $LODESTAR_LIBRARY to the path of the library (bazel "
                             "build //worker/capi:liblodestar_worker.so)")
        self._library = ctypes.CDLL(path)
        major, minor = self._library.lodestar_api_major(), self._library.lodestar_api_minor()
        if major != _API_MAJOR or minor < _API_MINOR:
            raise LodestarError(
                "FAILED_PRECONDITION", f"the library {path} has version {major}.{minor} of the C "
                                       f"API, but this package needs {_API_MAJOR}.{_API_MINOR}; "
                                       "install both from the same release")
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._library, "lodestar_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def check(self, code: int) -> None:
        """Raises LodestarError for what a function has returned."""
        if code != 0:
            name = _CODES[code] if code < len(_CODES) else str(code)
            text = self.last_error()  # type: ignore[attr-defined]
            raise LodestarError(name, in_words_of_python(text.decode("utf-8", "replace")))


_loaded: Optional[Library] = None


def library() -> Library:
    """Loads it, the first time."""
    global _loaded
    if _loaded is None:
        _loaded = Library()
    return _loaded
