# SPDX-License-Identifier: Apache-2.0
"""Tells join strings, which hold a secret, from addresses and paths."""
import os
import re

# A damaged join string counts, too: the library says what is wrong with it, without its secret. The
# same as HasJoinString() in common/runtime/join_secret.h.
_JOIN_STRING = re.compile(r"(?i:lodestar:/)|L1[0-9a-fA-F]{16}|"
                          r"(?<![0-9a-fA-F])[0-9a-fA-F]{8,}\.[0-9a-fA-F]{32}")


def is_join_setting(text: str) -> bool:
    """Returns True if `text` is for `--join`: a join string, damaged or not, or a file."""
    return _JOIN_STRING.search(text) is not None or os.path.isfile(text)
