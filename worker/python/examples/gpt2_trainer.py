#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the model of gpt2.py with Hugging Face's Trainer, as one worker of a job.

Start the server, and then any number of workers:

    ps_server --model=client --mode=local_sgd --local_steps=20 --rounds=50

    python3 gpt2_trainer.py --data=FILE --out=FOLDER [--address=HOST:PORT] [--name=NAME]
"""
import argparse

import torch
import transformers

import lodestar
import lodestar.hf
from gpt2 import Text, make_model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--address", help="HOST:PORT of the server, or a join string")
    parser.add_argument("--name")
    options = parser.parse_args()

    def batch_of(samples):
        tokens = torch.stack(samples)
        return {"input_ids": tokens, "labels": tokens}

    arguments = transformers.TrainingArguments(
        output_dir=options.out, per_device_train_batch_size=8, learning_rate=1e-3, max_steps=10**6,
        use_cpu=not torch.cuda.is_available(), save_strategy="no",
        logging_steps=20, report_to=[], remove_unused_columns=False)
    ps = lodestar.join(options.address, name=options.name)
    trainer = transformers.Trainer(
        make_model(), arguments, train_dataset=Text(options.data), data_collator=batch_of,
        callbacks=[lodestar.hf.Callback(ps)])
    trainer.train()
    trainer.save_model(options.out)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
