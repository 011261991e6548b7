# SPDX-License-Identifier: Apache-2.0
"""The models of a program, whose weights a session brings."""
from __future__ import annotations

import types
from typing import Any, Callable, List

# Where wrappers have the module that they wrap: DistributedDataParallel, torch.compile.
_WRAPPED = ("module", "_orig_mod")


class AttachedModel:
    """A model of a program, with a state_dict() that the session is told of.

    The method is an attribute of the module, and not a hook: copies and pickles of the module then
    do not have the session.
    """

    def __init__(self, model: Any, on_state_dict: Callable[[], None]) -> None:
        """on_state_dict: is called before state_dict()."""

        def state_dict(module: Any, *args: Any, **kwargs: Any) -> Any:
            on_state_dict()
            return type(module).state_dict(module, *args, **kwargs)

        self._modules: List[Any] = []
        modules = list(model) if type(model).__name__ == "ModuleList" else [model]
        for module in modules:
            while module is not None:
                if "state_dict" not in vars(module):
                    module.state_dict = types.MethodType(state_dict, module)
                    self._modules.append(module)
                module = next((vars(module)["_modules"][name] for name in _WRAPPED
                               if name in vars(module)["_modules"]), None)

    def detach(self) -> None:
        """Gives the modules their own methods back."""
        for module in self._modules:
            vars(module).pop("state_dict", None)
