# SPDX-License-Identifier: Apache-2.0
"""The mean of gradients, for DistributedDataParallel."""
from __future__ import annotations

from typing import Any, Callable

from lodestar.session import Session


def comm_hook(session: Session) -> Callable[[Any, Any], Any]:
    """Returns a communication hook for DistributedDataParallel in a job with --optimizer=reduce,
    for programs that are built on it, and whose optimizers the servers do not have:

        model, opt = ps.attach(model, opt)               # model is a DistributedDataParallel
        model.register_comm_hook(None, lodestar.comm_hook(ps))

    Each of its processes is a worker; gradients go to the servers instead of to the other
    processes, and come back as the mean over all. Every process takes the batches of its
    ps.loader(). A step whose answer is lost with a connection raises LodestarError ABORTED.

    Raises:
      LodestarError: FAILED_PRECONDITION after loader().
    """
    session.use_comm_hook()

    # DistributedDataParallel wants its own types in annotations, or none.
    def hook(_, bucket):  # type: ignore[no-untyped-def]
        return session.on_bucket(bucket)

    return hook
