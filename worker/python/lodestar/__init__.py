# SPDX-License-Identifier: Apache-2.0
"""Trains one model on machines that share no fast network: workers of a Lodestar cluster.

    import lodestar
    ps = lodestar.join("host:50051")
    model, opt = ps.attach(model, opt)
    for x, y in ps.loader(dataset, batch_size=32):
        loss = loss_fn(model(x), y); loss.backward()
        ps.log(loss)                             # for psctl status and the curves
        opt.step(); opt.zero_grad()

The server is `ps_server --model=client`; mode, schedule, encodings and number of rounds are its
flags. Without PyTorch, `lodestar.Worker` has the same with flat vectors.
"""
from lodestar._comm_hook import comm_hook
from lodestar._library import LodestarError
from lodestar.session import Session, join
from lodestar.worker_api import Evaluation, Place, Step, Worker

__version__ = "0.1.0"
__all__ = ["Evaluation", "LodestarError", "Place", "Session", "Step", "Worker", "comm_hook", "join",
           "__version__"]
