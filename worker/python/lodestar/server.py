# SPDX-License-Identifier: Apache-2.0
"""python -m lodestar.server: ps_server of this wheel; --help says what it takes."""
from typing import NoReturn

from lodestar import _programs


def main() -> NoReturn:
    _programs.run("ps_server")


if __name__ == "__main__":
    main()
