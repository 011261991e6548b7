#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a multilayer perceptron on 8x8 digits with PyTorch, as one worker of a job.

Start the server, and then any number of workers:

    ps_server --model=client --optimizer=adamw --beta1=0.9 --beta2=0.999 --learning_rate=1e-2 --batch_size=32 --rounds=300

    python3 digits.py --data=FOLDER [--address=HOST:PORT] [--name=NAME]

FOLDER has the four files of the MNIST family (IDX, .gz or not), of any image size.
"""
import argparse
import glob
import gzip
import os
import struct

import torch

import lodestar


def read_idx(folder, pattern):
    """The tensor in an IDX file of bytes."""
    path = glob.glob(os.path.join(folder, pattern))[0]
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        data = file.read()
    sizes = struct.unpack(f">{data[3]}i", data[4:4 + 4 * data[3]])
    return torch.frombuffer(bytearray(data[4 + 4 * data[3]:]), dtype=torch.uint8).reshape(sizes)


class Digits(torch.utils.data.Dataset):

    def __init__(self, folder, part):
        images = read_idx(folder, part + "*images*").float()
        self.images = (images / images.max()).flatten(1)
        self.labels = read_idx(folder, part + "*labels*").long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--address", help="HOST:PORT of the server, or a join string")
    parser.add_argument("--name")
    options = parser.parse_args()
    train, heldout = Digits(options.data, "train"), Digits(options.data, "t10k")

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(train.images.shape[1], 64), torch.nn.ReLU(),
                                torch.nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)

    def evaluate(batch):
        images, labels = batch
        logits = model(images)
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        return loss, (logits.argmax(1) == labels).sum(), len(labels)

    with lodestar.join(options.address, name=options.name) as ps:
        model, optimizer = ps.attach(model, optimizer)
        for images, labels in ps.loader(train, heldout=heldout, evaluate=evaluate):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            ps.log(loss)
            optimizer.step()
            optimizer.zero_grad()
    loss_sum, correct, count = evaluate((heldout.images, heldout.labels))
    print(f"held out: loss {loss_sum / count:.4f}, {100 * correct / count:.1f} % right")


if __name__ == "__main__":
    main()
