# SPDX-License-Identifier: Apache-2.0
"""Trains a few rounds on this machine, and prints where the time of one round went, and how much of
communication computing hides."""

import argparse
import copy
import os
import pathlib
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import round_stages

SKIPPED_ROUNDS = 2  # by --trace
# What the thread that computes spends on communication.
EXPOSED_STAGES = ("pull wait", "hand over", "push wait")
EXPOSED_TOLERANCE = 0.1


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")),
                    platform.machine())


class Run:
    """A ps_server and its workers with --trace; leaving the context ends all of them."""

    def __init__(self, options, folder, prints=False):
        self._options = options
        self._prints = prints
        self._folder = pathlib.Path(folder)
        self._processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()

    def _start(self, name, command):
        if self._prints:
            print(" ".join(shlex.quote(str(part)) for part in command))
        with open(self._folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=subprocess.STDOUT)
        self._processes.append(process)
        return name, process

    def _check(self, name, process):
        """Raises if the process has failed."""
        if process.poll():
            log = (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{name} ended with {process.returncode}:\n{log}")

    def _await(self, condition, running, deadline):
        while not condition():
            for name, process in running:
                self._check(name, process)
            if time.monotonic() > deadline:
                raise RuntimeError("not done in time; the logs are in the folder that --keep names")
            time.sleep(0.05)

    def run(self):
        """The paths of the traces: of the first worker, of the server."""
        options = self._options
        rounds = SKIPPED_ROUNDS + options.rounds + 2
        port_file, server_trace = self._folder / "port", self._folder / "server.json"
        port_file.unlink(missing_ok=True)
        deadline = time.monotonic() + options.timeout
        running = [self._start("server", [
            options.bin / "server" / "ps_server", "--listen=127.0.0.1:0", f"--port_file={port_file}",
            f"--model={options.model}", f"--batch_size={options.batch_size}", f"--rounds={rounds}",
            f"--min_workers={options.workers}", "--exit_when_done", "--eval_samples=1",
            f"--trace={server_trace}", f"--trace_rounds={options.rounds}",
            *shlex.split(options.server_flags)])]
        self._await(port_file.exists, running, deadline)
        port = port_file.read_text(encoding="utf-8").strip()
        for i in range(options.workers):
            running.append(self._start(f"w{i}", [
                options.bin / "worker" / "gpu_worker", f"--coordinator=127.0.0.1:{port}", f"--data={options.data}",
                f"--name=w{i}", f"--threads={options.threads}", f"--trace={self._folder / f'w{i}.json'}",
                f"--trace_rounds={options.rounds}", *shlex.split(options.worker_flags)]))
        self._await(lambda: all(process.poll() == 0 for _, process in running), running, deadline)
        return self._folder / "w0.json", server_trace


def print_table(worker_path, server_path):
    worker = round_stages.Trace(worker_path)
    server = round_stages.Trace(server_path)
    numbers, rows = round_stages.table(worker, [server])
    print(f"\nMedian (lowest..highest) of {len(numbers)} rounds. Stages of different rows overlap; time of a stage is\n"
          "that in which at least one of its spans was under way.\n")
    print("| process | thread | stage | ms per round | of the round |")
    print("| --- | --- | --- | --- | --- |")
    for process, lane, name, times, share in rows:
        print(f"| {process} | {lane} | {name} | {statistics.median(times):.2f} "
              f"({min(times):.2f}..{max(times):.2f}) | {100 * share:.0f} % |")


def measure_overlap(options, flag):
    """Milliseconds of a median round: (round, backward, exposed communication)."""
    changed = copy.copy(options)
    changed.model, changed.batch_size = options.overlap_model, options.overlap_batch_size
    changed.rounds, changed.worker_flags = options.overlap_rounds, f"{options.worker_flags} {flag}"
    with tempfile.TemporaryDirectory(prefix="lodestar-profile-") as folder, Run(changed, folder) as run:
        worker = round_stages.Trace(run.run()[0])
    numbers = worker.rounds(("training", round_stages.ROUND))

    def median(*stages):
        return statistics.median(sum(worker.busy(("training", stage), number) for stage in stages
                                     if ("training", stage) in worker.stages()) for number in numbers)

    return median(round_stages.ROUND), median("backward"), median(*EXPOSED_STAGES)


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


def print_overlap(options):
    flags = {"one after the other": "--nooverlap", "overlapping": "--overlap"}
    runs = {name: [] for name in flags}
    for _ in range(options.overlap_runs):
        for name, flag in flags.items():
            runs[name].append(measure_overlap(options, flag))
    print("\n| transfers | round, ms | backward, ms | exposed communication, ms |")
    print("| --- | --- | --- | --- |")
    for name, measured in runs.items():
        print(f"| {name} | " + " | ".join(spread(column) for column in zip(*measured)) + " |")
    _, backward, communication = (statistics.median(column) for column in zip(*runs["one after the other"]))
    exposed = statistics.median(run[2] for run in runs["overlapping"])
    limit = max(0.0, communication - backward) + EXPOSED_TOLERANCE * communication
    print(f"\nModel `{options.overlap_model}`, batch {options.overlap_batch_size}; medians of "
          f"{options.overlap_rounds} rounds, and of {options.overlap_runs} runs in turns (lowest..highest). "
          "Exposed: what the thread that computes spends on handing over and waiting. Target: overlapping, at "
          "most max(0, communication - backward) + 10 % of communication, which is what is exposed one after "
          f"the other: {exposed:.2f} of {limit:.2f} ms, {exposed / limit:.2f} of the limit.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="bazel-bin")
    parser.add_argument("--model", default="gpt-nano")
    parser.add_argument("--batch_size", type=int, default=12)
    parser.add_argument("--data", default="/usr/include/c++")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--rounds", type=int, default=30, help="that are traced")
    parser.add_argument("--server_flags", default="", help="more flags of ps_server")
    parser.add_argument("--worker_flags", default="", help="more flags of gpu_worker")
    parser.add_argument("--timeout", type=float, default=600, help="seconds")
    parser.add_argument("--overlap_model", default="gpt-mini", help="of the table of overlapping; empty: no table")
    parser.add_argument("--overlap_batch_size", type=int, default=4)
    parser.add_argument("--overlap_rounds", type=int, default=10)
    parser.add_argument("--overlap_runs", type=int, default=5)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the traces, to look at them in ui.perfetto.dev")
    options = parser.parse_args()
    print(f"Machine: {cpu_name()}, {os.cpu_count()} hardware threads, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="lodestar-profile-") as folder:
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
        with Run(options, options.keep or folder, prints=True) as run:
            print_table(*run.run())
    if options.overlap_model:
        print_overlap(options)


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError) as error:
        sys.exit(f"profile: {error}")
