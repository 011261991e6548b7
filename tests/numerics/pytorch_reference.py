#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints pytorch_reference.txt: what PyTorch computes in fp64 for the models of pytorch_models.py.

Lines: "loss MODEL STEP VALUE" and "gradient MODEL INDEX NORM PROJECTION", INDEX counting the tensors in the order of
the layout, of the first step; the projection is the sum of gradient element i times cos(0.7 i), i within the tensor.
"""

import sys

import numpy
import torch
from torch.nn import functional

from pytorch_models import MODELS, make_batch, make_model, make_optimizer

SAMPLES = 3
STEPS = 4


def print_gradients(name, model):
    for index, parameter in enumerate(model.parameters()):
        gradient = parameter.grad.flatten().numpy()
        projection = float((gradient * numpy.cos(0.7 * numpy.arange(gradient.size))).sum())
        print(f"gradient {name} {index} {numpy.linalg.norm(gradient):.12e} {projection:.12e}")


def main():
    print(f"# PyTorch {torch.__version__}, fp64; written by {sys.argv[0].split('/')[-1]}")
    for name in ("mlp", "cnn", "small-gpt"):
        model = make_model(MODELS[name]).double()
        x, targets = make_batch(MODELS[name], SAMPLES)
        x = x.double() if x.is_floating_point() else x
        optimizer = make_optimizer(model, fused=False)
        for step in range(STEPS):
            loss = functional.cross_entropy(model(x), targets)
            optimizer.zero_grad()
            loss.backward()
            print(f"loss {name} {step} {loss.item():.12e}")
            if step == 0:
                print_gradients(name, model)
            optimizer.step()


if __name__ == "__main__":
    main()
