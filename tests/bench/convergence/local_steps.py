#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what local steps cost in held-out loss, over lengths, schedules, workers, first weights and outer steps.

  local_steps.py --bin=bazel-bin --data=FILE --out=tests/bench/results/local_steps.csv [--minutes=N] [--cells=A,B] [--seeds=1,2]
  local_steps.py --out=FILE --summary
  local_steps.py --out=FILE --forecast --psctl=FILE    (what `psctl plan` says of each row, beside what was measured)

Each row is one run of the real binaries. A row that --out already has is not measured again, so that the grid can be
continued after a stop. --minutes ends the program before the next run. results/local_steps.md describes the columns."""

import argparse
import collections
import csv
import dataclasses
import datetime
import itertools
import json
import pathlib
import subprocess
import tempfile
import time

from cluster_trial import Cluster, Trial

SAMPLES_PER_WORKER = 4
LAST_RATE = 0.1  # of a cosine, as a share of the peak
WARM_UP = 0.05  # as a share of the steps
TOLERATED_PERCENT = 1.0  # of what was measured beyond the forecast
COLUMNS = ["cell", "seed", "outer", "local_steps", "loss", "samples", "seconds", "date"]
LARGE_MODEL = """name: "gpt-8m"
gpt { num_layers: 6 num_heads: 5 width: 320 context: 64 vocabulary: 256 }
"""
# Weights that fine-tuning begins with: what `sync` makes of the same text in these steps with a cosine.
FIRST_WEIGHTS_STEPS = 3000
FIRST_WEIGHTS_SEED = 99


@dataclasses.dataclass(frozen=True)
class Cell:
    steps: int
    workers: int = 2
    schedule: str = "constant"
    warm_up: bool = False
    fine_tunes: bool = False
    model: str = "gpt-nano"

    def name(self):
        return "-".join([self.model, "tuned" if self.fine_tunes else "scratch", str(self.steps), self.schedule,
                         "warm" if self.warm_up else "cold", f"{self.workers}w"])


# In the order in which they are measured.
CELLS = [
    Cell(1000), Cell(1000, schedule="cosine", warm_up=True),
    Cell(500), Cell(1000, workers=4),
    Cell(500, schedule="cosine", warm_up=True), Cell(2000),
    Cell(2000, schedule="cosine", warm_up=True), Cell(500, workers=4),
    Cell(1000, workers=4, schedule="cosine", warm_up=True), Cell(500, workers=4, schedule="cosine", warm_up=True),
    Cell(500, fine_tunes=True), Cell(1000, fine_tunes=True, schedule="cosine", warm_up=True),
    Cell(2000, workers=4), Cell(2000, workers=4, schedule="cosine", warm_up=True),
    Cell(1000, warm_up=True), Cell(1000, schedule="cosine"),
    Cell(1000, workers=4, fine_tunes=True), Cell(2000, fine_tunes=True, schedule="cosine", warm_up=True),
    Cell(4000), Cell(4000, schedule="cosine", warm_up=True),
    Cell(1000, model="gpt-8m"), Cell(1000, model="gpt-8m", workers=4, schedule="cosine", warm_up=True),
    Cell(8000, schedule="cosine", warm_up=True), Cell(8000, workers=4),
]
# common/plan/loss_estimate.cc was fitted on rows of these seeds and cells. All others are for its check.
FITTED_SEEDS = ["1", "2"]
NOT_FITTED = [Cell(1000, model="gpt-8m"), Cell(1000, model="gpt-8m", workers=4, schedule="cosine", warm_up=True),
              Cell(8000, schedule="cosine", warm_up=True), Cell(8000, workers=4)]
SYNC = ("sync", 1)
# (outer optimizer, local steps); (rate, momentum) means nesterov. All cells get the first group before any gets the next.
SETTINGS = [
    [SYNC, ((0.7, 0.5), 20), ("average", 20), ((0.6, 0.9), 8)],
    [((0.7, 0.5), 8), ((0.7, 0.9), 20), ("average", 8), ((0.7, 0.5), 50)],
    [("average", 50), ((0.15, 0.9), 20)],
]


def outer_name(outer):
    return outer if isinstance(outer, str) else f"{outer[0]}/{outer[1]}"


def key(row):
    return row["cell"], int(row["seed"]), row["outer"], int(row["local_steps"])


def read_rows(path):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        # Two programs may have measured the same row at once.
        return list({key(row): row for row in csv.DictReader(file)}.values())


class Grid:
    def __init__(self, bin_dir, data, out, folder):
        self._bin, self._data, self._out, self._folder = bin_dir, data, out, pathlib.Path(folder)
        self._first_weights = {}

    def measure(self, cell, seed, outer, local_steps):
        """Returns the new row, or None if it is known."""
        row_key = (cell.name(), seed, outer_name(outer), local_steps)
        # Read anew, so that several of these programs may share the file.
        if row_key in {key(row) for row in read_rows(self._out)}:
            return None
        rounds = cell.steps // local_steps
        flags = self._flags(cell, rounds, seed)
        workers, samples = cell.workers, SAMPLES_PER_WORKER
        if outer == "sync":
            # One worker with the batch of all makes the steps of `sync` (DESIGN.md, section 4).
            workers, samples = 1, samples * cell.workers
            flags.append("--mode=sync")
        else:
            flags += ["--mode=local_sgd", f"--local_steps={local_steps}"]
            if outer == "average":
                flags.append("--outer_optimizer=average")
            else:
                flags += [f"--outer_learning_rate={outer[0]}", f"--outer_momentum={outer[1]}"]
        flags.append(f"--batch_size={samples}")
        outcome = self._run(Trial("/".join(map(str, row_key)), workers, flags))
        row = dict(zip(COLUMNS, [*row_key, f"{outcome.heldout_loss:.5f}", outcome.samples, f"{outcome.seconds:.1f}",
                                 datetime.date.today()]))
        self._append(row)
        return row

    def _flags(self, cell, rounds, seed):
        peak = 3e-4 if cell.fine_tunes else 1e-3
        flags = [f"--model={self._model(cell)}", f"--rounds={rounds}", f"--seed={seed}", f"--learning_rate={peak}",
                 f"--lr_schedule={cell.schedule}", f"--warmup_rounds={round(WARM_UP * rounds) if cell.warm_up else 0}"]
        if cell.schedule != "constant":
            flags.append(f"--min_learning_rate={LAST_RATE * peak}")
        if cell.fine_tunes:
            flags.append(f"--init_from={self._weights_for(cell)}")
        return flags

    def _model(self, cell):
        if cell.model != "gpt-8m":
            return cell.model
        path = self._folder / "gpt-8m.textproto"
        path.write_text(LARGE_MODEL)
        return path

    def _weights_for(self, cell):
        if cell.model not in self._first_weights:
            folder = self._folder / f"first-{cell.model}"
            begun = Cell(FIRST_WEIGHTS_STEPS, schedule="cosine", warm_up=True, model=cell.model)
            self._run(Trial("first weights", 1, [
                *self._flags(begun, FIRST_WEIGHTS_STEPS, FIRST_WEIGHTS_SEED), "--mode=sync",
                f"--batch_size={2 * SAMPLES_PER_WORKER}", f"--checkpoint_dir={folder}"]))
            self._first_weights[cell.model] = folder / f"round-{FIRST_WEIGHTS_STEPS:08}"
        return self._first_weights[cell.model]

    def _run(self, trial):
        with Cluster(self._bin, self._data, trial, timeout_s=3600) as cluster:
            return cluster.run()

    def _append(self, row):
        is_new = not self._out.exists()
        with self._out.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow(row)


def differences(rows):
    """Percent of the loss of `sync` with the same seed, by (cell, outer, local steps): a dict by seed."""
    sync = {(row["cell"], row["seed"]): float(row["loss"]) for row in rows if row["outer"] == "sync"}
    percents = collections.defaultdict(dict)
    for row in rows:
        base = sync.get((row["cell"], row["seed"]))
        if row["outer"] != "sync" and base is not None:
            percents[row["cell"], row["outer"], row["local_steps"]][row["seed"]] = 100 * (float(row["loss"]) / base - 1)
    return percents


def texts(percents):
    return ", ".join(f"{percent:+.1f} %" for _, percent in sorted(percents.items()))


def print_summary(rows):
    print("| cell | outer rate/momentum | local steps | to sync, each seed |\n| --- | --- | --- | --- |")
    for (cell, outer, local_steps), percents in sorted(differences(rows).items()):
        print(f"| {cell} | {outer} | {local_steps} | {texts(percents)} |")


def forecast(psctl, folder, cell, outer, local_steps):
    """Returns the percent that `psctl plan` expects; None if it knows nothing like it."""
    model = pathlib.Path(folder) / "gpt-8m.textproto"
    model.write_text(LARGE_MODEL)
    flags = ["--mode=local_sgd", f"--local_steps={local_steps}", f"--lr_schedule={cell.schedule}", "--learning_rate=1e-3"]
    if cell.schedule != "constant":
        flags.append(f"--min_learning_rate={LAST_RATE * 1e-3}")
    if cell.fine_tunes:
        flags.append("--init_from=weights")
    if outer == "average":
        flags.append("--outer_optimizer=average")
    else:
        rate, momentum = outer.split("/")
        flags += [f"--outer_learning_rate={rate}", f"--outer_momentum={momentum}"]
    answer = subprocess.run(
        [psctl, "plan", f"--model={model if cell.model == 'gpt-8m' else cell.model}", f"--workers={cell.workers}", "--up=100",
         "--down=100", "--rtt=50", "--step_ms=50", f"--steps={cell.steps}", "--output=json", "--", *flags],
        stdout=subprocess.PIPE, check=False)  # Exit code 1 is a network that is too slow.
    return json.loads(answer.stdout)["given"]["loss_percent"]


def print_forecasts(rows, psctl):
    cells = {cell.name(): cell for cell in CELLS}
    within = collections.defaultdict(list)
    print("| cell | outer rate/momentum | local steps | forecast | measured, each seed |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="lodestar-grid-") as folder:
        for (name, outer, local_steps), percents in sorted(differences(rows).items()):
            cell = cells[name]
            expected = forecast(psctl, folder, cell, outer, local_steps)
            for seed, percent in percents.items():
                half = "fit" if cell not in NOT_FITTED and seed in FITTED_SEEDS else "check"
                within[half].append(expected is not None and percent <= expected + TOLERATED_PERCENT)
            print(f"| {name} | {outer} | {local_steps} | {'none' if expected is None else f'{expected:+.1f} %'} "
                  f"| {texts(percents)} |")
    for half, hits in sorted(within.items()):
        print(f"\n{half}: measured is at most the forecast and {TOLERATED_PERCENT:g} point in {sum(hits)} of {len(hits)} rows")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", default="1,2,3", help="separated by commas")
    parser.add_argument("--cells", default="", help="names of cells, separated by commas; empty means all")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no run is begun after that long")
    parser.add_argument("--summary", action="store_true", help="prints what --out has and measures nothing")
    parser.add_argument("--forecast", action="store_true", help="compares what --out has with forecasts and measures nothing")
    parser.add_argument("--psctl", help="the program that makes the forecasts")
    arguments = parser.parse_args()
    if arguments.forecast:
        if not arguments.psctl:
            parser.error("--forecast needs --psctl")
        print_forecasts(read_rows(arguments.out), arguments.psctl)
        return
    if arguments.summary:
        print_summary(read_rows(arguments.out))
        return
    if not arguments.bin or not arguments.data:
        parser.error("--bin and --data are needed to measure")
    names = [name for name in arguments.cells.split(",") if name]
    unknown = set(names) - {cell.name() for cell in CELLS}
    if unknown:
        parser.error(f"--cells={','.join(sorted(unknown))}: there are {', '.join(cell.name() for cell in CELLS)}")
    end = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory(prefix="lodestar-grid-") as folder:
        grid = Grid(arguments.bin, arguments.data, arguments.out, folder)
        cells = [cell for cell in CELLS if not names or cell.name() in names]
        seeds = map(int, arguments.seeds.split(","))
        for seed, group, cell in itertools.product(seeds, SETTINGS, cells):
            for outer, local_steps in group:
                if time.monotonic() > end:
                    return
                row = grid.measure(cell, seed, outer, local_steps)
                if row:
                    print(",".join(str(row[column]) for column in COLUMNS), flush=True)


if __name__ == "__main__":
    main()
