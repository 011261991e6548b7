#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on the digits of digits.py with Lightning's Trainer, as one worker of a job.

Start the server, and then any number of workers:

    ps_server --model=client --rounds=300 --batch_size=32

    python3 digits_lightning.py --data=FOLDER [--address=HOST:PORT] [--name=NAME]
"""
import argparse

import pytorch_lightning
import torch

import lodestar
import lodestar.lightning
from digits import Digits


class Classifier(pytorch_lightning.LightningModule):

    def __init__(self, num_pixels):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(num_pixels, 64), torch.nn.ReLU(),
                                          torch.nn.Linear(64, 10))

    def training_step(self, batch, _):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(images), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2, weight_decay=0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--address", help="HOST:PORT of the server, or a join string")
    parser.add_argument("--name")
    options = parser.parse_args()
    train, heldout = Digits(options.data, "train"), Digits(options.data, "t10k")

    torch.manual_seed(1)
    model = Classifier(train.images.shape[1])
    batches = torch.utils.data.DataLoader(train, batch_size=32, shuffle=True)
    ps = lodestar.join(options.address, name=options.name)
    trainer = pytorch_lightning.Trainer(
        max_epochs=-1, callbacks=[lodestar.lightning.Callback(ps)], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, batches)
    with torch.no_grad():
        right = (model.layers(heldout.images).argmax(1) == heldout.labels).float().mean()
    print(f"held out: {100 * right:.1f} % right")


if __name__ == "__main__":
    main()
