#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains Hugging Face's GPT-2 on the bytes of a text, as one worker of a job.

Start the server, and then any number of workers:

    ps_server --model=client --mode=local_sgd --local_steps=20 --rounds=50

    python3 gpt2.py --data=FILE --out=FOLDER [--address=HOST:PORT] [--name=NAME] [--lora]

The head is tied to the embedding, so it is sent only once. With --lora, only the adapters of peft
are trained and sent. from_pretrained() reads FOLDER.
"""
import argparse

import torch
import transformers

import lodestar

CONTEXT = 64


class Text(torch.utils.data.Dataset):
    """Windows of bytes, one after the other."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)

    def __len__(self):
        return len(self.tokens) // CONTEXT

    def __getitem__(self, index):
        return self.tokens[index * CONTEXT:(index + 1) * CONTEXT].long()


def make_model(width=64, num_layers=2, num_heads=4):
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=256, n_positions=CONTEXT, n_embd=width, n_layer=num_layers, n_head=num_heads,
        bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--address", help="HOST:PORT of the server, or a join string")
    parser.add_argument("--name")
    parser.add_argument("--lora", action="store_true")
    options = parser.parse_args()

    model = make_model()
    if options.lora:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["c_attn"]))
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    print(f"{sum(weights.numel() for weights in trained)} parameters are sent")
    optimizer = torch.optim.AdamW(trained, lr=1e-3)

    with lodestar.join(options.address, name=options.name) as ps:
        model, optimizer = ps.attach(model, optimizer)
        for tokens in ps.loader(Text(options.data), batch_size=8, predictions_per_sample=CONTEXT - 1):
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            ps.log(loss, num_predictions=len(tokens) * (CONTEXT - 1))
            optimizer.step()
            optimizer.zero_grad()
        ps.save_pretrained(options.out)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
