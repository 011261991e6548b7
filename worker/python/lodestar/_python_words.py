# SPDX-License-Identifier: Apache-2.0
"""Messages of the library and the servers, in the words of a Python program."""
from __future__ import annotations

import re

# Flags of gpu_worker that are arguments of join() or loader() here, and how those are written.
_ARGUMENTS = {
    "coordinator": "address=", "join": "address= (a join string)", "insecure": "insecure=True",
    "data": "dataset=", "data_partition": "is_own=",
    **{name: name + "=" for name in ("name", "state_dir", "keep_residuals", "tls_cert", "tls_key",
                                     "tls_ca", "shared_memory", "leave_timeout", "connect_timeout",
                                     "threads")}}
# Values that are written in another way here.
_VALUES = {"own": "True", "true": "True", "false": "False"}
# A flag, or a setting of the C API, with what tells whether it is named or given.
_SETTING = re.compile(r"(?:--|\bsetting )(" + "|".join(_ARGUMENTS) + r")\b(?:=(\w*))?(:?)")


def in_words_of_python(text: str) -> str:
    """Returns a message of the library with arguments in place of flags of gpu_worker. What stands in
    backquotes is a command of a shell, and stays."""

    def argument_for(setting: "re.Match[str]") -> str:
        name, value, colon = setting.groups()
        if value is None and not colon:
            return _ARGUMENTS[name]
        return f"{_ARGUMENTS[name].partition('=')[0]}={_VALUES.get(value, value or '')}{colon}"

    parts = text.split("`")
    parts[::2] = [_SETTING.sub(argument_for, part) for part in parts[::2]]
    return "`".join(parts)
