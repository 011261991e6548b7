# SPDX-License-Identifier: Apache-2.0
"""python -m lodestar.psctl: psctl of this wheel; --help says what it takes."""
from typing import NoReturn

from lodestar import _programs


def main() -> NoReturn:
    _programs.run("psctl")


if __name__ == "__main__":
    main()
