# SPDX-License-Identifier: Apache-2.0
"""The programs that a wheel brings."""
import os
import sys
from typing import NoReturn, Optional


def find(name: str) -> Optional[str]:
    """Its path; None: this is no installed wheel."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    return path if os.path.exists(path) else None


def run(name: str) -> NoReturn:
    """Becomes that program, with this process's arguments, signals and exit code."""
    path = find(name)
    if path is None:
        sys.exit(f"{name} is missing, because this package was not installed from a wheel. See "
                 "docs/howto/python_wheel.md for how to build a wheel")
    os.execv(path, [path, *sys.argv[1:]])  # psctl looks for the others beside it
