# SPDX-License-Identifier: Apache-2.0
"""The optimizers of a program, whose steps a session makes."""
from __future__ import annotations

import types
from collections import ChainMap
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from lodestar._accelerate import inner_optimizer
from lodestar._arguments import described
from lodestar._library import LodestarError

Closure = Optional[Callable[[], Any]]


class AttachedOptimizer:
    """An optimizer of a program, with step() and zero_grad() that the session is told of.

    Attributes:
      optimizer: the program's object, which stays usable after detach().
    """

    def __init__(self, optimizer: Any, on_step: Callable[..., Any],
                 on_zero_grad: Callable[[], None],
                 state_of_servers: Callable[[], Dict[Any, Dict[str, Any]]]) -> None:
        """on_step: is called with this object and the arguments of step(), in place of step().
        on_zero_grad: is called before zero_grad(). state_of_servers: returns the state that
        state_dict() has besides that of the program, by parameter."""
        self.optimizer = optimizer
        self._step, self._zero_grad = optimizer.step, optimizer.zero_grad
        self._state_dict = optimizer.state_dict

        def step(_: Any, closure: Closure = None, *args: Any, **kwargs: Any) -> Any:
            return on_step(self, closure, *args, **kwargs)

        def zero_grad(_: Any, *args: Any, **kwargs: Any) -> Any:
            on_zero_grad()
            return self._zero_grad(*args, **kwargs)

        def state_dict(_: Any) -> Dict[str, Any]:
            of_servers = state_of_servers()
            optimizer.state.update(of_servers)
            try:
                return self._state_dict()
            finally:
                for parameter in of_servers:
                    optimizer.state.pop(parameter, None)

        # Schedulers of learning rates ask whether they have wrapped step(), and whether it was called.
        setattr(step, "_wrapped_by_lr_sched", True)
        optimizer.step = types.MethodType(step, optimizer)
        optimizer.zero_grad = types.MethodType(zero_grad, optimizer)
        optimizer.state_dict = types.MethodType(state_dict, optimizer)

    def make_step(self, closure: Closure, *args: Any, **kwargs: Any) -> Any:
        """Makes the step that the optimizer itself makes."""
        return (self._step(*args, **kwargs) if closure is None else
                self._step(closure, *args, **kwargs))

    def detach(self) -> None:
        """Gives the optimizer its own methods back."""
        self.optimizer.__dict__.pop("step", None)
        self.optimizer.__dict__.pop("zero_grad", None)
        self.optimizer.__dict__.pop("state_dict", None)


class _States(ChainMap):
    """The states of several optimizers, by parameter."""

    def clear(self) -> None:
        for state in self.maps:
            state.clear()


class JointOptimizer:
    """Stands for several optimizers where the state or the groups of one are looked at.

    Attributes:
      optimizers: the optimizers of the program.
    """

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self.optimizers = list(optimizers)

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def state(self) -> _States:
        return _States(*(optimizer.state for optimizer in self.optimizers))


def take_together(model: Any, optimizer: Any) -> Tuple[Any, Any]:
    """Returns one model and one optimizer that stand for those that a program gives to attach(), of
    which either may be a list. Optimizers may be what accelerate has prepared.

    Raises:
      LodestarError: INVALID_ARGUMENT if they are something else, or if two optimizers have one
        parameter.
    """
    import torch

    for kind, given in (("models", model), ("optimizers", optimizer)):
        if isinstance(given, (list, tuple)) and not given:
            raise LodestarError("INVALID_ARGUMENT",
                                f"attach() is given an empty list of {kind}; give at least one")
    models, optimizers = _listed(model), _listed(optimizer)
    if isinstance(models[0], torch.optim.Optimizer):
        raise LodestarError("INVALID_ARGUMENT",
                            f"the first argument of attach() is a {type(models[0]).__name__} and "
                            "not a model; call attach(model, optimizer), in this order")
    for each in models:
        if not isinstance(each, torch.nn.Module):
            raise LodestarError("INVALID_ARGUMENT",
                                "attach() needs a torch.nn.Module, or a list of several, not "
                                f"{described(each)}")
    for each in optimizers:
        if not hasattr(each, "param_groups"):
            raise LodestarError("INVALID_ARGUMENT",
                                "attach() needs a torch.optim.Optimizer, or a list of several, "
                                f"not {described(each)}")
    optimizers = [inner_optimizer(each) for each in optimizers]
    seen: set = set()
    for each in optimizers:
        own = {id(parameter) for group in each.param_groups for parameter in group["params"]}
        if own & seen:
            raise LodestarError("INVALID_ARGUMENT",
                                f"a parameter of the {type(each).__name__} is in an earlier "
                                "optimizer of the list, too; give each parameter to one optimizer")
        seen |= own
    return (torch.nn.ModuleList(models) if isinstance(model, (list, tuple)) else model,
            JointOptimizer(optimizers) if len(optimizers) > 1 else optimizers[0])


def optimizers_of(optimizer: Union[JointOptimizer, Any]) -> List[Any]:
    """Returns the optimizers that it stands for, or the optimizer itself."""
    return optimizer.optimizers if isinstance(optimizer, JointOptimizer) else [optimizer]


def _listed(given: Any) -> List[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]
