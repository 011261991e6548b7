# SPDX-License-Identifier: Apache-2.0
"""Fleets of light-weight workers against one ps_server: round times, answers to status calls, memory.

  fleet.py --ps_server=FILE --fleet_workers=FILE --status_probe=FILE [--flat]

Prints Markdown: a small model, whose server is little more than its connections, and one of the size
that people train. Every run is a fresh server and a fresh fleet; the fleets take turns.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from processes import Processes, percentile, resident_bytes, spread  # noqa: E402

SAMPLE_SECONDS = 0.1
MEBI = 2 ** 20
MEMORY_TOLERANCE = 0.05
STATUS_LIMIT_MS = 50
ENDLESS = 1_000_000
FLAT_RUNS = 5


@dataclasses.dataclass(frozen=True)
class Table:
    """Fleets that are compared with each other."""
    model: str
    workers: list[int]
    runs: int
    seconds: float  # per run
    warmup: int  # rounds


TABLES = [Table("mlp-mnist", [2, 8, 32, 64], runs=5, seconds=6, warmup=10),
          Table("gpt-mini", [2, 64], runs=3, seconds=20, warmup=2)]


class MemoryWatch:
    """Samples the resident memory of a process until the context is left."""

    def __init__(self, pid):
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.samples = []

    def _sample(self):
        while not self._over.wait(SAMPLE_SECONDS):
            self.samples.append(resident_bytes(self._pid))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def start_fleet(options, processes, model, workers, flags):
    server, address = processes.start_server(options.ps_server, [
        f"--model={model}", "--mode=sync", f"--rounds={ENDLESS}", "--batch_size=1",
        f"--min_workers={workers}", "--optimizer=adamw", "--lease=60s", "--log_level=warning"])
    fleet = processes.start("fleet", [options.fleet_workers, f"--coordinator={address}",
                                      f"--workers={workers}", *flags], piped=True)
    return server, address, fleet


def last_line(processes, process, what):
    output, _ = process.communicate()
    lines = output.splitlines()
    if process.returncode != 0 or not lines:
        processes.fail(f"{what} ended with {process.returncode}")
    return json.loads(lines[-1])


def measure(options, table, workers):
    with Processes() as processes:
        server, address, fleet = start_fleet(
            options, processes, table.model, workers,
            [f"--seconds={table.seconds}", f"--warmup={table.warmup}", "--report_every=1"])
        for line in fleet.stdout:  # the rounds have begun
            if json.loads(line).get("round", 0) + 1 >= table.warmup:
                break
        with MemoryWatch(server.pid) as memory:
            probe = processes.start("probe", [options.status_probe, f"--server={address}",
                                              f"--seconds={table.seconds}"], piped=True)
            rounds = last_line(processes, fleet, "the fleet")
        status = last_line(processes, probe, "the status probe")["status_ms"]
        return {"rounds_per_second": len(rounds["round_ms"]) / rounds["seconds"],
                "p50": percentile(rounds["round_ms"], 0.5),
                "p99": percentile(rounds["round_ms"], 0.99),
                "status_p99": percentile(status, 0.99),
                "memory": statistics.median(memory.samples) / MEBI,
                "memory_peak": max(memory.samples) / MEBI}


def print_fleets(options, table):
    runs = {workers: [] for workers in table.workers}
    for _ in range(table.runs):
        for workers in table.workers:
            runs[workers].append(measure(options, table, workers))
            print(f"{workers} workers: {runs[workers][-1]}", file=sys.stderr, flush=True)
    base = statistics.median(run["memory"] for run in runs[table.workers[0]])
    print("| workers | rounds/s | round p50, ms | round p99, ms | status p99, ms "
          f"| of {STATUS_LIMIT_MS} ms | server resident, MiB | highest, MiB "
          f"| against {table.workers[0]} workers |")
    print("| --- " * 9 + "|")
    for workers, measured in runs.items():
        column = {key: [run[key] for run in measured] for key in measured[0]}
        ratio = statistics.median(column["memory"]) / base
        status = statistics.median(column["status_p99"]) / STATUS_LIMIT_MS
        print(f"| {workers} | {spread(column['rounds_per_second'])} | {spread(column['p50'])} "
              f"| {spread(column['p99'])} | {spread(column['status_p99'])} | {status:.2f} "
              f"| {spread(column['memory'])} | {max(column['memory_peak']):.1f} | {ratio:.3f} |")
    print(f"\nModel `{table.model}`, sync, AdamW, every worker pulls and pushes the whole model "
          f"every round. Median (lowest..highest) of {table.runs} runs of {table.seconds:g} s "
          f"each, the fleets in turns. Targets: status at most 1.00 of its limit, memory within "
          f"{MEMORY_TOLERANCE:.0%} of that with {table.workers[0]} workers.\n", flush=True)


def flat_run(options):
    """Resident bytes at each report of progress."""
    memory = []
    with Processes() as processes:
        server, _, fleet = start_fleet(
            options, processes, options.model or TABLES[0].model, options.flat_workers,
            [f"--rounds={options.rounds}", "--warmup=0", "--report_every=10"])
        start = time.monotonic()
        for line in fleet.stdout:
            if "round" in json.loads(line):
                memory.append(resident_bytes(server.pid))
        if fleet.wait() != 0:
            processes.fail(f"the fleet ended with {fleet.returncode}")
        return memory, time.monotonic() - start


def print_flat(options):
    tenth = options.rounds // 10 // 10  # reports in a tenth of the rounds
    print("| run | rounds | seconds | first tenth, MiB | last tenth, MiB | last / first | highest, MiB |")
    print("| --- " * 7 + "|")
    ratios = []
    for run in range(options.runs or FLAT_RUNS):
        memory, seconds = flat_run(options)
        first = statistics.median(memory[:tenth])
        last = statistics.median(memory[-tenth:])
        ratios.append(last / first)
        print(f"| {run + 1} | {options.rounds} | {seconds:.0f} | {first / MEBI:.1f} | {last / MEBI:.1f} "
              f"| {last / first:.3f} | {max(memory) / MEBI:.1f} |", flush=True)
    print(f"\nLast / first: {spread(ratios, 3)}; target: at most {1 + MEMORY_TOLERANCE}. "
          f"Model `{options.model or TABLES[0].model}`, sync, AdamW, {options.flat_workers} workers; "
          "median resident memory of the server over the first and the last tenth of the rounds.")


def tables_of(model):
    """Those of one model, which may be any; None: all."""
    if model is None:
        return TABLES
    known = [table for table in TABLES if table.model == model]
    return known or [dataclasses.replace(TABLES[0], model=model)]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ps_server", required=True)
    parser.add_argument("--fleet_workers", required=True)
    parser.add_argument("--status_probe", required=True)
    parser.add_argument("--model", help="one table only; default: mlp-mnist (2.1 MB), gpt-mini (43 MB)")
    parser.add_argument("--workers", type=int, nargs="+")
    parser.add_argument("--runs", type=int, )
    parser.add_argument("--seconds", type=float, help="per run")
    parser.add_argument("--warmup", type=int, help="rounds before the measurement")
    parser.add_argument("--flat", action="store_true", help="memory over many rounds instead")
    parser.add_argument("--rounds", type=int, default=10000, help="of --flat")
    parser.add_argument("--flat_workers", type=int, default=4)
    options = parser.parse_args()
    if options.flat:
        print_flat(options)
        return
    given = {name: getattr(options, name) for name in ("workers", "runs", "seconds", "warmup")
             if getattr(options, name) is not None}
    for table in tables_of(options.model):
        print_fleets(options, dataclasses.replace(table, **given))


if __name__ == "__main__":
    main()
