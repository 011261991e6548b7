#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a pytree of JAX as one worker of a job, with the flat vectors of lodestar.Worker.

Start the server, and then any number of workers:

    ps_server --model=client --optimizer=momentum --learning_rate=0.1 --batch_size=16 --rounds=200

    python3 jax_pytree.py [--address=HOST:PORT] [--name=NAME]
"""
import argparse

import jax
import jax.numpy as jnp
import numpy

import lodestar

NUM_SAMPLES = 1024
FEATURES, HIDDEN = 8, 16


def make_data():
    """The same in every process."""
    features = jax.random.normal(jax.random.key(1), (NUM_SAMPLES, FEATURES))
    return features, jnp.sin(features.sum(1))


def make_parameters():
    first, second = jax.random.split(jax.random.key(2))
    return {"hidden": {"kernel": jax.random.normal(first, (FEATURES, HIDDEN)) / FEATURES ** 0.5,
                       "bias": jnp.zeros(HIDDEN)},
            "out": {"kernel": jax.random.normal(second, (HIDDEN,)) / HIDDEN ** 0.5}}


def loss_of(parameters, features, targets):
    hidden = jnp.tanh(features @ parameters["hidden"]["kernel"] + parameters["hidden"]["bias"])
    return ((hidden @ parameters["out"]["kernel"] - targets) ** 2).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", default="127.0.0.1:50051", help="HOST:PORT of the server")
    parser.add_argument("--name")
    options = parser.parse_args()
    features, targets = make_data()
    leaves, tree = jax.tree.flatten(make_parameters())
    names = [jax.tree_util.keystr(path) for path, _ in
             jax.tree_util.tree_flatten_with_path(make_parameters())[0]]
    step_of = jax.jit(jax.value_and_grad(loss_of))

    with lodestar.Worker(coordinator=options.address, name=options.name) as worker:
        for name, leaf in zip(names, leaves):
            worker.add_tensor(name, leaf.shape)
        worker.set_data(NUM_SAMPLES)
        worker.allocate()

        def views_of(vector):
            """Returns views of the leaves, in their shapes: what is written there is in the vector."""
            flat = numpy.frombuffer(vector, dtype=numpy.float32)
            return [flat[worker.offset(name):][:leaf.size].reshape(leaf.shape)
                    for name, leaf in zip(names, leaves)]

        weights, gradients = views_of(worker.parameters), views_of(worker.gradients)
        for view, leaf in zip(weights, leaves):
            view[...] = leaf
        worker.start()
        for step in worker.steps():
            # Copies: JAX may still read what it was given when the servers write the next weights.
            parameters = jax.tree.unflatten(tree, [jnp.array(view) for view in weights])
            samples = numpy.array(step.samples)
            loss, gradient = step_of(parameters, features[samples], targets[samples])
            for view, leaf in zip(gradients, jax.tree.leaves(gradient)):
                view[...] = leaf
            worker.step_done(float(loss) * len(samples), num_predictions=len(samples))
        parameters = jax.tree.unflatten(tree, [jnp.array(view) for view in weights])
        print(f"mean square error: {loss_of(parameters, features, targets):.4f}")


if __name__ == "__main__":
    main()
