#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a multilayer perceptron on the digits of digits.py with FSDP2, as one worker of a job.

FSDP2 divides the model among the cards (or processes) of this host, which are one worker together.
Start the server, and then any number of workers:

    ps_server --model=client --rounds=300

    torchrun --nproc_per_node=2 fsdp.py --data=FOLDER [--address=HOST:PORT] [--name=NAME] [--out=FILE]

The job takes optimizer and batch size from the first worker.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

import lodestar
from digits import Digits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--address", help="HOST:PORT of the server, or a join string")
    parser.add_argument("--name")
    parser.add_argument("--out", help="file for the state dict of the whole model")
    options = parser.parse_args()
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device != "cpu" else "gloo")
    train, heldout = Digits(options.data, "train"), Digits(options.data, "t10k")

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(train.images.shape[1], 64), torch.nn.ReLU(),
                                torch.nn.Linear(64, 10)).to(device)
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    loss_of = torch.nn.functional.cross_entropy

    with lodestar.join(options.address, name=options.name, group=dist.group.WORLD) as ps:
        model, optimizer = ps.attach(model, optimizer)
        # This is the batch of each rank. That of the job is as many times as large as there are ranks.
        for images, labels in ps.loader(train, batch_size=16):
            loss = loss_of(model(images.to(device)), labels.to(device))
            loss.backward()
            ps.log(loss)
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        logits = model(heldout.images.to(device)).cpu()
    weights = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        right = (logits.argmax(1) == heldout.labels).float().mean()
        print(f"held out: loss {loss_of(logits, heldout.labels):.4f}, {100 * right:.1f} % right")
        if options.out:
            torch.save(weights, options.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
