#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times one training step of a preset beside PyTorch, with the same model, weights, data and optimizer, in alternating runs.

The Python that runs this script needs PyTorch 2.x; ../step.sh makes one. The output is a Markdown table with times and losses.
"""

import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import torch
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "numerics"))
from pytorch_models import MODELS, make_batch, make_model, make_optimizer  # noqa: E402


class TorchRun:
    def __init__(self, name, batch, compiled):
        self.x, self.targets = make_batch(MODELS[name], batch)
        self.model = make_model(MODELS[name])
        self.optimizer = make_optimizer(self.model, fused=True)
        self.forward = torch.compile(self.model) if compiled else self.model

    def step(self):
        loss = functional.cross_entropy(self.forward(self.x), self.targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def run_torch(name, options):
    run = TorchRun(name, options.batch, options.compile)
    losses, times = [], []
    for i in range(options.warmup + options.steps):
        if i == options.warmup:
            processor_start = time.process_time()
        start = time.perf_counter()
        losses.append(run.step())
        times.append((time.perf_counter() - start) * 1e3)
    processor_ms = (time.process_time() - processor_start) * 1e3 / options.steps
    return {"first_loss": losses[0], "last_loss": losses[-1], "processor_ms": processor_ms,
            "ms": times[options.warmup:]}


def run_lodestar(name, options):
    command = [options.binary, f"--model={name}", f"--batch={options.batch}", f"--threads={options.threads}",
               f"--steps={options.steps}", f"--warmup={options.warmup}"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return json.loads(lines[-1])


def spread(times):
    tenth = max(1, len(times) // 10)
    ordered = sorted(times)
    return f"{statistics.median(times):.2f} ({ordered[tenth - 1]:.2f}..{ordered[-tenth]:.2f})"


def compare(name, options):
    ours, theirs, ratios, processor_ratios = [], [], [], []
    for _ in range(options.rounds):
        mine = run_lodestar(name, options)
        other = run_torch(name, options)
        ours += mine["ms"]
        theirs += other["ms"]
        ratios.append(statistics.median(mine["ms"]) / statistics.median(other["ms"]))
        processor_ratios.append(mine["processor_ms"] / other["processor_ms"])
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"| {name} | {options.batch} | {options.threads} | {spread(ours)} | {spread(theirs)} | {ratio:.2f} "
          f"({min(ratios):.2f}..{max(ratios):.2f}) | {statistics.median(processor_ratios):.2f} | {mine['first_loss']:.5f} / {other['first_loss']:.5f} | "
          f"{mine['last_loss']:.4f} / {other['last_loss']:.4f} |", flush=True)
    return mine["device"]


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="path of train_step")
    parser.add_argument("--case", action="append", help="MODEL:BATCH:STEPS; may be given several times", default=[])
    parser.add_argument("--threads", type=int, action="append", default=[], help="number of threads; may be given several times")
    parser.add_argument("--rounds", type=int, default=5, help="number of alternating runs; default 5")
    parser.add_argument("--compile", action="store_true", help="compile the model with torch.compile()")
    options = parser.parse_args()
    options.warmup = 3
    cases = options.case or ["gpt-nano:12:30", "gpt-mini:8:4", "mlp-mnist:128:100", "cnn-mnist:64:40"]
    print(f"Machine: {cpu_name()}, {torch.get_num_threads()} threads; PyTorch {torch.__version__} "
          f"({'compiled' if options.compile else 'eager'}, {torch.backends.cpu.get_cpu_capability()})")
    print(f"Command: {' '.join(sys.argv[1:])}\n")
    print("| model | batch | threads | ours, ms/step | PyTorch, ms/step | ratio | processor time ratio | "
          "first loss | last loss |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    thread_counts = options.threads or [1, 2]
    for threads in thread_counts:
        options.threads = threads
        torch.set_num_threads(threads)
        for case in cases:
            name, batch, steps = case.split(":")
            options.batch, options.steps = int(batch), int(steps)
            device = compare(name, options)
    print(f"\nOurs: {device}. Median (10 %..90 %) of {options.rounds} alternating runs; ratio (lowest..highest run).")


if __name__ == "__main__":
    main()
