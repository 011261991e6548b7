# SPDX-License-Identifier: Apache-2.0
"""Tells join strings, which hold a secret, from addresses and paths."""
import os
import re
from typing import Optional

from lodestar._library import LodestarError

# A damaged join string counts, too: the library says what is wrong with it, without its secret. The
# same as HasJoinString() in common/runtime/join_secret.h.
_JOIN_STRING = re.compile(r"(?i:lodestar:/)|L1[0-9a-fA-F]{16}|"
                          r"(?<![0-9a-fA-F])[0-9a-fA-F]{8,}\.[0-9a-fA-F]{32}")


def is_join_setting(text: str) -> bool:
    """Returns True if `text` is for `--join`: a join string, damaged or not, or a file."""
    return _JOIN_STRING.search(text) is not None or os.path.isfile(text)


def address_of_environment() -> Optional[str]:
    """Returns the address, join string or path in $LODESTAR, or None if it is not set. Raises
    LodestarError INVALID_ARGUMENT if it is empty, or if $LODESTAR_JOIN has an address instead."""
    address = os.environ.get("LODESTAR")
    if address == "":
        raise LodestarError("INVALID_ARGUMENT",
                            "$LODESTAR is set but empty, so the command that should make the address "
                            "has failed. Set $LODESTAR to HOST:PORT, or unset LODESTAR")
    join = os.environ.get("LODESTAR_JOIN", "")
    if address is None and re.fullmatch(r"[\w.-]+:\d+", join) and not is_join_setting(join):
        raise LodestarError("INVALID_ARGUMENT",
                            f"$LODESTAR_JOIN is {join}, which is an address and no join string. Put "
                            "an address into $LODESTAR instead")
    return address
