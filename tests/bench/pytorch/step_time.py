#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds of a training step of two PyTorch processes on this machine: with DistributedDataParallel over
gloo, and as workers of a ps_server, in turns. Run by tests/bench/pytorch.sh.

Usage: step_time.py PS_SERVER LIBRARY [--width=N] [--layers=N] [--steps=N] [--turns=N]
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
PACKAGE = os.path.join(ROOT, "worker", "python")
NUM_WORKERS = 2
WARM_UP = 5
BATCH, CONTEXT = 8, 64


def make_model(options):
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(options.width, 4, 4 * options.width, dropout=0.0,
                                             batch_first=True)
    return torch.nn.Sequential(torch.nn.Embedding(256, options.width),
                               torch.nn.TransformerEncoder(layer, options.layers),
                               torch.nn.Linear(options.width, 256))


def loss_of(model, tokens):
    import torch
    logits = model(tokens[:, :-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Watch:
    """Tells how long steps take, and what of it is this process's processor time."""

    def __init__(self):
        self._count = 0

    def step(self, steps):
        self._count += 1
        if self._count == WARM_UP:
            self._begin, self._processor = time.monotonic(), time.process_time()
        if self._count == steps:
            number = steps - WARM_UP
            print(f"step {(time.monotonic() - self._begin) / number} "
                  f"{(time.process_time() - self._processor) / number}", flush=True)


def run_ddp(options):
    import torch
    torch.distributed.init_process_group("gloo", init_method="file://" + options.place,
                                         rank=options.rank, world_size=NUM_WORKERS)
    model = torch.nn.parallel.DistributedDataParallel(make_model(options))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = Watch()
    for step in range(options.steps):
        loss = loss_of(model, torch.randint(256, (BATCH, CONTEXT + 1)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(options.steps)
    torch.distributed.destroy_process_group()


def run_lodestar(options):
    import torch

    import lodestar
    model = make_model(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = Watch()
    with lodestar.join(options.place, name=f"worker-{options.rank}",
                       shared_memory=not options.tcp) as ps:
        ps.attach(model, optimizer)
        for _ in ps.steps(batch_size=BATCH):
            loss = loss_of(model, torch.randint(256, (BATCH, CONTEXT + 1)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step(options.steps)


RUNS = {"ddp": run_ddp, "lodestar": run_lodestar}


def start_workers(kind, place, options, *more):
    command = [sys.executable, os.path.abspath(__file__), "", options.library, f"--run={kind}",
               f"--place={place}", f"--width={options.width}", f"--layers={options.layers}",
               f"--steps={options.steps}", *more]
    environment = {**os.environ, "PYTHONPATH": PACKAGE, "LODESTAR_LIBRARY": options.library,
                   "OMP_NUM_THREADS": "1"}
    return [subprocess.Popen([*command, f"--rank={rank}"], env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for rank in range(NUM_WORKERS)]


def times_of(workers):
    """Seconds of a step, and processor seconds of a step, of all workers together."""
    outputs = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        raise RuntimeError(f"a worker has failed: {[worker.args for worker in workers]}")
    found = [re.search(r"step (\S+) (\S+)", output).groups() for output in outputs]
    return max(float(seconds) for seconds, _ in found), sum(float(used) for _, used in found)


def measure_ddp(options):
    with tempfile.TemporaryDirectory() as folder:
        return times_of(start_workers("ddp", os.path.join(folder, "rendezvous"), options))


def measure_lodestar(options, *more):
    with tempfile.TemporaryDirectory() as folder:
        port_file = os.path.join(folder, "port")
        server = subprocess.Popen(
            [options.server, "--model=client", "--listen=127.0.0.1:0", "--port_file=" + port_file,
             f"--rounds={options.steps}", f"--min_workers={NUM_WORKERS}", "--exit_when_done"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(port_file):
            time.sleep(0.05)
        with open(port_file, encoding="ascii") as file:
            address = "127.0.0.1:" + file.read().strip()
        seconds, used = times_of(start_workers("lodestar", address, options, *more))
        usage = os.wait4(server.pid, 0)[2]
        return seconds, used + (usage.ru_utime + usage.ru_stime) / options.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server")
    parser.add_argument("library")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tcp", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.server, options.library = map(os.path.abspath, (options.server, options.library))
    if options.run:
        RUNS[options.run](options)
        return
    count = sum(parameter.numel() for parameter in make_model(options).parameters())
    kinds = {"DDP, gloo": measure_ddp, "lodestar, shared memory": measure_lodestar,
             "lodestar, TCP": lambda options: measure_lodestar(options, "--tcp")}
    measured = {name: [] for name in kinds}
    for _ in range(options.turns):
        for name, measure in kinds.items():
            measured[name].append(measure(options))
    first = statistics.median(seconds for seconds, _ in measured["DDP, gloo"])
    print(f"| {NUM_WORKERS} workers, one thread each, {count / 1e6:.1f} M parameters | ms per step, "
          "median (all) | × DDP | processor ms per step, all processes |")
    print("|---|---|---|---|")
    for name, runs in measured.items():
        median = statistics.median(seconds for seconds, _ in runs)
        all_runs = ", ".join(f"{1000 * seconds:.1f}" for seconds, _ in sorted(runs))
        used = statistics.median(used for _, used in runs)
        print(f"| {name} | {1000 * median:.1f} ({all_runs}) | {median / first:.2f} | "
              f"{1000 * used:.1f} |")


if __name__ == "__main__":
    main()
