#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker in plain Python with a model of its own: which of three clouds is a point from?

    PYTHONPATH=STUBS deploy/examples/python_worker.py --coordinator=127.0.0.1:50051 --name=a

against `ps_server --model=client --optimizer=sgd`. lodestar_client.py says how to make STUBS;
python_worker.sh beside this file does it all. For a model of your own, write another Task.
Ctrl-C or SIGTERM: finish the round, report it, leave; once more: end at once.
"""

import argparse
import array
import math
import random
import signal
import sys
import threading

from lodestar_client import Refused, Task, Worker

CENTRES = [(0.0, 0.0), (2.0, 0.5), (0.5, 2.0)]
SPREAD = 0.6
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
EXIT_REFUSED, EXIT_RETRY = 1, 129  # 128 and above: the same command may work later


class Clouds(Task):
    """Softmax regression by hand: weights [3, 2], biases [3]."""

    tensors = [("weight", [3, 2]), ("bias", [3])]
    fingerprint = "c10d5c10d5c10d50"
    num_train_samples = 6000
    num_heldout_samples = 600

    def initial_weights(self):
        return array.array("f", bytes(4 * 9))

    def _point(self, part, index):
        """Every worker makes the same points: ((x, y), cloud)."""
        cloud = index % len(CENTRES)
        noise = random.Random(f"{part} {index}")
        return [noise.gauss(centre, SPREAD) for centre in CENTRES[cloud]], cloud

    def _probabilities(self, weights, point):
        logits = [
            weights[2 * k] * point[0] + weights[2 * k + 1] * point[1] + weights[6 + k]
            for k in range(3)
        ]
        largest = max(logits)
        exponentials = [math.exp(logit - largest) for logit in logits]
        total = sum(exponentials)
        return [value / total for value in exponentials]

    def gradient(self, weights, samples):
        gradient = array.array("f", bytes(4 * 9))
        loss_sum = 0.0
        for _, index in samples:
            point, cloud = self._point("train", index)
            probabilities = self._probabilities(weights, point)
            loss_sum -= math.log(probabilities[cloud])
            for k in range(3):
                error = (probabilities[k] - (k == cloud)) / len(samples)
                gradient[2 * k] += error * point[0]
                gradient[2 * k + 1] += error * point[1]
                gradient[6 + k] += error
        return gradient, loss_sum

    def evaluate(self, weights, samples):
        loss_sum, correct = 0.0, 0
        for index in samples:
            point, cloud = self._point("heldout", index)
            probabilities = self._probabilities(weights, point)
            loss_sum -= math.log(probabilities[cloud])
            correct += probabilities[cloud] == max(probabilities)
        return loss_sum, correct


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coordinator", default="127.0.0.1:50051", help="HOST:PORT of the server of shard 0")
    parser.add_argument("--name", default="python", help="name of this worker, unique within the job")
    parser.add_argument("--credentials",
                        help="folder with the key and the certificates that `gpu_worker --join "
                             "--name=NAME` has got for this name. Without this flag, the "
                             "connection is plain text")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Before there are other threads, which inherit it: only await_stop() takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    worker = Worker(options.coordinator, options.name, Clouds(), options.credentials)

    def await_stop():
        signal.sigwait(STOP_SIGNALS)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        worker.stop()

    threading.Thread(target=await_stop, daemon=True).start()
    try:
        return 0 if worker.run() else EXIT_RETRY
    except Refused as refusal:
        print(f"{options.name}: refused: {refusal}", file=sys.stderr)
        return EXIT_REFUSED


if __name__ == "__main__":
    sys.exit(main())
