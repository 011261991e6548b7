# SPDX-License-Identifier: Apache-2.0
"""What the servers have to be told, in the words of ps_server's flags, to make a program's steps."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Union

from lodestar._attached_optimizers import JointOptimizer, optimizers_of
from lodestar._library import LodestarError

Settings = Dict[str, Union[str, float]]

# What a group of parameters has that is the job's, or makes no difference to a step.
_OTHER_KEYS = ("lr", "foreach", "fused", "capturable", "differentiable")


def settings_by_parameter(optimizer: Any) -> Dict[int, Dict[str, str]]:
    """Returns the settings that decide the steps of each parameter, as text, by its id()."""
    found: Dict[int, Dict[str, str]] = {}
    for each in optimizers_of(optimizer):
        keys = [key for key in getattr(each, "defaults", {}) if key not in _OTHER_KEYS]
        for group in each.param_groups:
            settings = {key: repr(group.get(key)) for key in keys}
            found.update((id(parameter), settings) for parameter in group["params"])
    return found


def first_rate(group: Dict[str, Any]) -> float:
    """Returns the learning rate that a group of parameters began with, before any scheduler, or 0
    if it has none."""
    rate = group.get("initial_lr", group.get("lr"))
    return 0.0 if rate is None else float(rate)


def first_state(optimizer: Any) -> Optional[str]:
    """Returns the name of something that the optimizer keeps from step to step, None without."""
    return next((key for state in optimizer.state.values() for key, value in state.items()
                 if value is not None), None)


def settings_of(optimizer: Any) -> Settings:
    """Returns the flags of ps_server that make its optimizer this torch.optim.Optimizer, but for
    the learning rates. Raises LodestarError if none do."""
    if isinstance(optimizer, JointOptimizer):
        raise LodestarError(
            "INVALID_ARGUMENT",
            "the servers make the steps of sync and async jobs with one optimizer, but "
            f"{len(optimizer.optimizers)} were attached. Let the program make its steps: start "
            "ps_server with --mode=local_sgd, or --optimizer=reduce")
    kind = type(optimizer).__name__
    groups: Sequence[dict] = optimizer.param_groups

    def of_all(key: str) -> Any:
        values = {repr(group.get(key)): group.get(key) for group in groups}
        if len(values) > 1:
            raise LodestarError(
                "INVALID_ARGUMENT",
                f"the optimizer's groups of parameters differ in {key} ({', '.join(values)}), but "
                "the servers have one value for all groups. Use one value, or start ps_server "
                "with --mode=local_sgd or --optimizer=reduce, which use the program's optimizer")
        return next(iter(values.values()))

    decays = {group.get("weight_decay", 0.0) for group in groups} - {0, 0.0}
    if len(decays) > 1:
        of_all("weight_decay")
    decay = next(iter(decays), 0.0)
    # The names that PyTorch has for what the servers do not do.
    others = [key for key in ("amsgrad", "maximize", "dampening") if of_all(key)]
    if kind != "AdamW" and decay:
        others.append("weight_decay")  # it is not decoupled there
    is_plain = type(optimizer).__module__.startswith("torch.optim") and not others
    if is_plain and kind in ("AdamW", "Adam"):
        beta1, beta2 = of_all("betas")
        return {"optimizer": "adamw", "beta1": float(beta1), "beta2": float(beta2),
                "epsilon": float(of_all("eps")), "weight_decay": float(decay)}
    if is_plain and kind == "SGD":
        momentum = float(of_all("momentum"))
        if momentum == 0:
            return {"optimizer": "sgd"}
        return {"optimizer": "nesterov" if of_all("nesterov") else "momentum",
                "momentum": momentum}
    raise LodestarError(
        "INVALID_ARGUMENT",
        "the servers make the steps of sync and async jobs, and have no "
        f"{' with '.join([kind, *others[:1]])}: use AdamW, Adam without weight decay, or SGD (momentum, nesterov) without weight decay and "
        "dampening; or let the program make its steps: ps_server --mode=local_sgd, or --optimizer=reduce")


def differing(wanted: Settings, of_job: Dict[str, str]) -> List[str]:
    """Returns the settings, as flags, in which the job is another one."""
    return [f"--{name}={value}" for name, value in wanted.items()
            if not _is_same(value, of_job[name])]


def _is_same(value: Union[str, float], of_job: str) -> bool:
    if isinstance(value, str):
        return value == of_job
    return abs(value - float(of_job)) <= 1e-9 * max(1e-3, abs(float(of_job)))
