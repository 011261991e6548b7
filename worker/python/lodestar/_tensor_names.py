# SPDX-License-Identifier: Apache-2.0
"""The names under which tensors of a model travel."""
from __future__ import annotations

import hashlib
import string
from typing import Any
from urllib.parse import quote

# Attributes of wrappers (DistributedDataParallel, torch.compile) that hold the model.
_WRAPPED = ("module", "_orig_mod")
# As servers limit them: printable ASCII without the space. "%" begins the code of another byte.
_ALLOWED = (string.punctuation + string.digits + string.ascii_letters).replace("%", "")
_LARGEST_NAME = 512
_HASH_DIGITS = 16


def travelling_name(name: str) -> str:
    """Returns the name of a tensor on the servers. It has no character that they refuse: each byte
    of one becomes % and two hex digits. Of a name that is too long, a hash replaces the end."""
    travelling = quote(name, safe=_ALLOWED, errors="surrogatepass")
    if len(travelling) <= _LARGEST_NAME:
        return travelling
    digits = hashlib.sha256(travelling.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{travelling[:_LARGEST_NAME - _HASH_DIGITS - 1]}~{digits}"


class TensorNames:
    """Tells the names of a model's tensors without what wrappers have put into them."""

    def __init__(self, model: Any) -> None:
        self._wrapped = set()  # paths of modules that are all that their parents have
        for path, module in model.named_modules(remove_duplicate=False):
            children = [name for name, _ in module.named_children()]
            if len(children) == 1 and children[0] in _WRAPPED and not (
                    _has_any(module.parameters(recurse=False))
                    or _has_any(module.buffers(recurse=False))):
                self._wrapped.add(f"{path}.{children[0]}" if path else children[0])

    def __call__(self, name: str) -> str:
        """Returns the name on the servers of the parameter or buffer `name` of the model."""
        kept = []
        path = ""
        for part in name.split("."):
            path = f"{path}.{part}" if path else part
            if path not in self._wrapped:
                kept.append(part)
        return travelling_name(".".join(kept))


def _has_any(items: Any) -> bool:
    return next(iter(items), None) is not None
