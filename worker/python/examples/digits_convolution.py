#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a convolutional network with BatchNorm on the digits of digits.py, as one worker of a job.

Processes of a DataLoader read samples before they are granted, and a step has several batches. Start
the server, and then any number of workers:

    ps_server --model=client --rounds=300

    python3 digits_convolution.py --data=FOLDER [--address=HOST:PORT] [--name=NAME] [--compile=BACKEND]

The job takes optimizer and batch size from the first worker.
"""
import argparse

import torch

import lodestar
from digits import Digits


def make_model(num_pixels):
    side = int(num_pixels ** 0.5)
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, side, side)),
        torch.nn.Conv2d(1, 16, 3, padding=1, bias=False), torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1, bias=False), torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(32 * (side // 2) ** 2, 10))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--address", help="HOST:PORT of the server, or a join string")
    parser.add_argument("--name")
    parser.add_argument("--compile", help="backend of torch.compile, such as inductor")
    options = parser.parse_args()
    train, heldout = Digits(options.data, "train"), Digits(options.data, "t10k")

    torch.manual_seed(1)
    model = make_model(train.images.shape[1])
    if options.compile:
        model = torch.compile(model, backend=options.compile)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_of = torch.nn.functional.cross_entropy

    with lodestar.join(options.address, name=options.name) as ps:
        model, optimizer = ps.attach(model, optimizer)
        for images, labels in ps.loader(train, batch_size=32, accumulate=2, num_workers=2):
            loss = loss_of(model(images), labels)
            (loss * ps.share).backward()
            ps.log({"loss": loss, "margin": loss.exp()})
            if ps.is_last_batch:
                optimizer.step()
                optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        logits = model(heldout.images)
    right = (logits.argmax(1) == heldout.labels).float().mean()
    print(f"held out: loss {loss_of(logits, heldout.labels):.4f}, {100 * right:.1f} % right")


if __name__ == "__main__":
    main()
