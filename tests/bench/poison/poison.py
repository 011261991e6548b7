# SPDX-License-Identifier: Apache-2.0
"""Trains with four workers of which one is poisoned, and prints beside the run without it what comes of it.

  poison.py --bin=bazel-bin --task=digits --data=DIR          (8x8 digits as IDX files: mlp)
  poison.py --bin=bazel-bin --task=gpt --data=FILE [--rounds=N]   (gpt-nano)

The run without it has the three honest workers and the same samples per worker. --only=NAME[;NAME] chooses runs;
--from=R lets the poison begin with round R.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HONEST_WORKERS = 3
TASKS = {
    "digits": (1500, [
        "--model=mlp", "--optimizer=momentum", "--learning_rate=0.2", "--weight_decay=0.005",
        "--lr_schedule=cosine", "--batch_size=8", "--warmup_rounds=20", "--seed=7"]),
    "gpt": (600, [
        "--model=gpt-nano", "--optimizer=adamw", "--learning_rate=1e-3", "--beta1=0.9", "--beta2=0.99",
        "--weight_decay=0.1", "--clip_norm=1", "--lr_schedule=cosine", "--min_learning_rate=1e-4",
        "--batch_size=4", "--warmup_rounds=50", "--seed=1337"]),
}
LOCAL = ["--mode=local_sgd", "--local_steps=10", "--outer_optimizer=average"]
DEFENCES = {
    "defaults": [],
    "trimmed:1": ["--robust_mean=trimmed:1"],
    "median": ["--robust_mean=median"],
    "nothing": ["--norm_limit=0"],
}

ALARMS = ("are far longer than those", "point against those", "have nothing in common", "has sent numbers that are NaN")


@dataclasses.dataclass
class Run:
    name: str
    poison: str  # empty means that no worker is poisoned
    flags: list


def runs():
    yield Run("three honest workers, nothing", "", DEFENCES["nothing"])
    yield Run("three honest workers", "", [])
    for poison in ("long", "nan", "flip", "random"):
        for defence, flags in DEFENCES.items():
            yield Run(f"{poison}, {defence}", poison, flags)


def outcome(options, run, rounds, task_flags):
    processes = []
    with tempfile.TemporaryDirectory(prefix="lodestar-poison-") as folder:
        folder = pathlib.Path(folder)

        def start(name, command, **environment):
            with open(folder / f"{name}.log", "wb") as log:
                processes.append(subprocess.Popen([str(part) for part in command], stdout=log,
                                                  stderr=log, env={**os.environ, **environment}))
            return processes[-1]

        def worker(program, name, port, **environment):
            return start(name, [program, f"--coordinator=127.0.0.1:{port}", f"--data={options.data}",
                                f"--name={name}", "--threads=1", "--device=cpu"], **environment)

        try:
            workers = HONEST_WORKERS + (1 if run.poison else 0)
            metrics, port_file = folder / "metrics.jsonl", folder / "port"
            server = start("server", [
                options.bin / "server/ps_server", "--listen=127.0.0.1:0", f"--port_file={port_file}",
                f"--metrics_out={metrics}", "--exit_when_done", f"--min_workers={workers}",
                f"--rounds={rounds}", *task_flags, *run.flags])
            deadline = time.monotonic() + 30
            while not (port_file.exists() and port_file.read_text().strip()):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((folder / "server.log").read_text()[-2000:])
                time.sleep(0.05)
            port = port_file.read_text().strip()
            for i in range(HONEST_WORKERS):
                worker(options.bin / "worker/gpu_worker", f"w{i}", port)
            if run.poison:
                worker(options.bin / "tests/bench/poison/poisoned_worker", "wild", port,
                       LODESTAR_POISON=run.poison, LODESTAR_POISON_FROM=str(options.first))
            code = server.wait(timeout=options.timeout)
            log = (folder / "server.log").read_text()
            alarms = sum("alarm: " in line and any(text in line for text in ALARMS)
                         for line in log.splitlines())
            shut_out = any("'wild' is shut out" in line or "is refused until" in line
                           for line in log.splitlines())
            if code != 0:
                return None, None, alarms, f"ended with {code}"
            records = [json.loads(line) for line in metrics.read_text().splitlines()]
            last = [r for r in records if r.get("heldout_loss") is not None][-1]
            return last["heldout_loss"], last.get("heldout_accuracy"), alarms, \
                "shut out" if shut_out else ""
        except subprocess.TimeoutExpired:
            return None, None, 0, f"not done after {options.timeout} s"
        finally:
            for process in processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, default="bazel-bin")
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--local", action="store_true", help="local_sgd with weights")
    parser.add_argument("--batch", type=int, help="samples per worker and step")
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=float, default=600)
    options = parser.parse_args()
    rounds, flags = TASKS[options.task]
    rounds = options.rounds or rounds
    if options.batch:
        flags = [flag for flag in flags if not flag.startswith("--batch_size=")]
        flags.append(f"--batch_size={options.batch}")
    if options.local:
        flags = [*flags, *LOCAL]
    print(f"`ps_server --rounds={rounds} {' '.join(flags)}`, poison from round {options.first}\n")
    print("| run | held-out loss (nats) | against the honest | accuracy | alarms | the wild one |")
    print("| --- | --- | --- | --- | --- | --- |")
    honest = None
    for run in runs():
        if run.poison and options.only and run.name not in options.only.split(";"):
            continue
        loss, accuracy, alarms, note = outcome(options, run, rounds, flags)
        if not run.poison:
            honest = loss
        beside = f"{100 * (loss / honest - 1):+.2f} %" if loss is not None and honest else ""
        print(f"| {run.name} | {'' if loss is None else f'{loss:.4f}'} | {beside} | "
              f"{'' if accuracy is None else f'{100 * accuracy:.2f} %'} | {alarms} | {note} |",
              flush=True)


if __name__ == "__main__":
    sys.exit(main())
