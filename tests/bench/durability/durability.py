# SPDX-License-Identifier: Apache-2.0
"""What a journal costs: the time of a round with --durability=checkpoint, =journal and a replica, in turns.

  durability.py --ps_server=FILE --gpu_worker=FILE --data=FILE --folder=FOLDER

Prints Markdown. One server, one worker; the first rounds are not counted. Beside them, as many bytes
as a round acknowledges are written to the same disk and synced, which no journal can do without.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from processes import Processes, spread  # noqa: E402
from training import Job, Programs, training  # noqa: E402

WARMUP = 3  # rounds that are not counted
SYNCS = 40
AVERAGE = ["--mode=local_sgd", "--outer_optimizer=average"]
# (name, flags of the coordinator, rounds)
VARIANTS = [
    ("sync", ["--mode=sync"], 150),
    ("async", ["--mode=async"], 150),
    ("local SGD H=5", [*AVERAGE, "--local_steps=5"], 50),
    ("local SGD H=20", [*AVERAGE, "--local_steps=20"], 15),
    ("local SGD H=50", [*AVERAGE, "--local_steps=50"], 9),
]


def round_ms(options, flags, rounds, durability, has_replica=False):
    """Medians of the times of rounds."""
    folder = pathlib.Path(options.folder) / "durability-bench"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with Processes() as processes:
        kept = [f"--durability={durability}"]
        if has_replica:
            _, replica = processes.start_server(
                options.ps_server, ["--replica", f"--journal_dir={folder}/replica"], name="replica")
            kept.append(f"--journal_replica={replica}")
        job = Job(workers=1, data=options.data, flags=[
            f"--model={options.model}", f"--batch_size={options.batch}", "--eval_samples=8", "--seed=1",
            f"--rounds={rounds}", f"--checkpoint_dir={folder}", "--checkpoint_interval=1h", *kept, *flags])
        programs = Programs(options.ps_server, options.gpu_worker, virtual_links=None)
        with training(processes, programs, job) as run:
            run.wait()
            seconds = [record["seconds"] for record in run.records() if record.get("train_loss") is not None]
    shutil.rmtree(folder)
    times = [1e3 * (after - before) for before, after in zip(seconds[WARMUP:], seconds[WARMUP + 1:])]
    return statistics.median(times)


def write_and_sync_ms(folder, num_bytes):
    """Of one append to a file."""
    path = pathlib.Path(folder) / "durability-bench.raw"
    block = os.urandom(num_bytes)
    times = []
    with open(path, "wb", buffering=0) as file:
        for _ in range(SYNCS):
            start = time.perf_counter()
            file.write(block)
            os.fdatasync(file.fileno())
            times.append(1e3 * (time.perf_counter() - start))
    path.unlink()
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--ps_server", required=True)
    parser.add_argument("--gpu_worker", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder", required=True, help="on the disk that is measured")
    parser.add_argument("--model", default="gpt-nano")
    parser.add_argument("--model_bytes", type=int, default=4 * 834_304, help="of one contribution of the model")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)

    results = {name: [] for name, _, _ in VARIANTS}
    raw = []
    for _ in range(options.runs):
        raw.append(write_and_sync_ms(options.folder, options.model_bytes))
        for name, flags, rounds in VARIANTS:
            without = round_ms(options, flags, rounds, "checkpoint")
            journal = round_ms(options, flags, rounds, "journal")
            replica = round_ms(options, flags, rounds, "journal", has_replica=True)
            results[name].append((without, journal, replica))
            print(f"{name}: {without:.1f} ms, with a journal {journal:.1f} ms, and a replica {replica:.1f} ms",
                  file=sys.stderr, flush=True)

    print("| mode | round, ms | with a journal, ms | with / without | and a replica, ms | with / without |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, times in results.items():
        print(f"| {name} | {spread([a for a, _, _ in times])} | {spread([b for _, b, _ in times])} | "
              f"{spread([b / a for a, b, _ in times], 2)} | {spread([c for _, _, c in times])} | "
              f"{spread([c / a for a, _, c in times], 2)} |")
    print(f"\n`{options.model}`, {options.model_bytes / 1e6:.1f} MB a contribution, one server, one worker with one thread; medians of "
          f"the rounds of a run, median (lowest..highest) of {options.runs} runs in turns. Appending as many bytes to a "
          f"file on that disk and syncing it takes {spread(raw)} ms. The replica is a process on the same machine, "
          f"and has its copies on the same disk. Target: at most 1.10 from H = 20 on.")


if __name__ == "__main__":
    main()
