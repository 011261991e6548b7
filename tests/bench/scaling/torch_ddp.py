# SPDX-License-Identifier: Apache-2.0
"""One process of PyTorch DistributedDataParallel over gloo; the first prints its step times as JSON."""

import argparse
import json
import pathlib
import sys
import time

import torch
import torch.distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "numerics"))
from pytorch_models import MODELS, make_batch, make_model, make_optimizer  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--meet", required=True, help="HOST:PORT of the first process")
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{options.meet}", rank=options.rank, world_size=options.world)
    x, targets = make_batch(MODELS[options.model], options.batch)
    plain = make_model(MODELS[options.model])
    model = DistributedDataParallel(plain)
    optimizer = make_optimizer(plain, fused=True)
    seconds = []
    for _ in range(options.steps):
        start = time.perf_counter()
        loss = functional.cross_entropy(model(x), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    if options.rank == 0:
        print(json.dumps({"seconds": seconds, "torch": torch.__version__}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
