"""The programs that a wheel brings."""
import os
import sys
from typing import NoReturn


def run(name: str) -> NoReturn:
    """Becomes that program, with this process's arguments, signals and exit code."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    if not os.path.exists(path):
        sys.exit(f"{path} is missing: this is no installed wheel; deploy/docs/python_wheel.md says "
                 "how one is built")
    os.execv(path, [path, *sys.argv[1:]])  # psctl looks for the others beside it
