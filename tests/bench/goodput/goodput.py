# SPDX-License-Identifier: Apache-2.0
"""What a job gets done whose workers are killed all the time, beside what it would without that.

  goodput.py --ps_server=FILE --paced_worker=FILE --psctl=FILE --data=FILE [--seconds=600] [--every=60]

Prints Markdown. Goodput is the samples that the job has counted over those that all of its workers would have made in
the same time, at the speed that they had in the same run before the first of them was killed. What is missing is told
by where it went: the round that was open when a worker was killed, which waits for it; the rounds without it, until it is
back; and the rest.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from processes import Processes, spread  # noqa: E402

SPEEDS = [1, 1, 1, 0.5]  # of the workers
POLL_SECONDS = 0.005
ENDLESS = 1_000_000_000
LOCAL_STEPS = 10

VARIANTS = {  # name: flags of the server
    "sync": ["--mode=sync"],
    "sync, --lease=2s": ["--mode=sync", "--lease=2s"],
    "local_sgd": ["--mode=local_sgd", f"--local_steps={LOCAL_STEPS}"],
    "local_sgd, --lease=2s": ["--mode=local_sgd", f"--local_steps={LOCAL_STEPS}", "--lease=2s"],
}


@dataclasses.dataclass(frozen=True)
class Round:
    over_at: float  # on the server's clock, seconds
    samples: int  # counted in it
    workers: int  # that contributed


@dataclasses.dataclass
class Kill:
    """And samples that were lost until the next one."""
    worker: str
    at: float
    stall_seconds: float = 0.0  # until the round that waits for it is over
    back_seconds: float = None  # until a round to which all contribute is over; None: there was none
    waiting: float = 0.0  # in the round that waits for it
    without: float = 0.0  # in those to which some contribute
    rest: float = 0.0


@dataclasses.dataclass
class Outcome:
    undisturbed: float  # samples per second of all workers
    counted: int
    seconds: float
    kills: list
    status: dict  # of the server, at the end

    @property
    def goodput(self):
        return self.counted / (self.undisturbed * self.seconds)


class Job:
    """A server and its workers."""

    def __init__(self, options, processes, flags):
        self._options = options
        self._processes = processes
        self._metrics = processes.folder / "metrics.jsonl"
        self._read = 0  # bytes of it
        self.rounds = []
        self._samples = 0  # counted in them
        self._ahead = float("inf")  # of the clock here before that of the server
        self._server, self._address = processes.start_server(options.ps_server, [
            f"--model={options.model}", f"--batch_size={options.batch}", "--balance=speed", "--seed=1",
            "--learning_rate=1e-3", "--eval_every=0", "--eval_samples=1", f"--rounds={ENDLESS}",
            f"--min_workers={len(SPEEDS)}", "--keep_workers=1", f"--metrics_out={self._metrics}", *flags])
        self._starts = 0
        self._workers = {}
        for i in range(len(SPEEDS)):
            self._start_worker(i)

    def _start_worker(self, i):
        self._starts += 1
        seconds = self._options.step_seconds / self._options.batch * statistics.mean(SPEEDS) / SPEEDS[i]
        self._workers[i] = self._processes.start(
            f"worker-{i}-{self._starts}",
            [self._options.paced_worker, f"--coordinator={self._address}", f"--name=worker-{i}",
             f"--data={self._options.data}", "--device=cpu", "--threads=1"],
            env={**os.environ, "LODESTAR_SAMPLE_SECONDS": str(seconds)})

    def kill(self, i):
        """And starts it again."""
        self._workers[i].kill()
        self._workers[i].wait()
        self._start_worker(i)

    def now(self):
        """On the server's clock, as in its rounds."""
        return time.monotonic() - self._ahead

    def watch_until(self, enough):
        """Reads what the server tells of its rounds until enough()."""
        while not enough():
            if self._server.poll() is not None or any(w.poll() is not None for w in self._workers.values()):
                self._processes.fail("a process ended by itself")
            self._read_rounds()
            time.sleep(POLL_SECONDS)

    def _read_rounds(self):
        if not self._metrics.exists() or self._metrics.stat().st_size == self._read:
            return
        with open(self._metrics, "rb") as file:
            file.seek(self._read)
            lines = file.read()
        lines = lines[:lines.rfind(b"\n") + 1]
        self._read += len(lines)
        for line in lines.splitlines():
            record = json.loads(line)
            before = self._samples
            self.rounds.append(Round(record["seconds"], record["samples"] - before, record["workers"]))
            self._samples = record["samples"]
            self._ahead = min(self._ahead, time.monotonic() - record["seconds"])

    def status(self):
        answer = subprocess.run([self._options.psctl, "status", "--json", f"--server={self._address}"],
                                capture_output=True, text=True, check=False)
        return json.loads(answer.stdout)


def account(kill, rounds, began, rate):
    """Finds where the time from a kill to the next went. `rounds`: that were over in it; `began`: the first of them."""
    was_short = False
    for round in rounds:
        missing = rate * (round.over_at - began) - round.samples
        began = round.over_at
        is_short = round.workers < len(SPEEDS)
        if not was_short and (is_short or kill.back_seconds is None):
            # What it had handed in when it was killed may have made this round complete.
            kill.waiting += missing
            kill.stall_seconds = round.over_at - kill.at
        elif is_short:
            kill.without += missing
        else:
            kill.rest += missing
            kill.back_seconds = kill.back_seconds or round.over_at - kill.at
        was_short = was_short or is_short


def measure(options, flags):
    with Processes() as processes:
        job = Job(options, processes, flags)
        # Speeds are known after the first rounds.
        job.watch_until(lambda: len(job.rounds) > options.warmup)
        first = len(job.rounds)
        job.watch_until(lambda: job.now() > job.rounds[first - 1].over_at + options.undisturbed_seconds)
        undisturbed = job.rounds[first:]
        rate = samples_of(undisturbed) / (undisturbed[-1].over_at - job.rounds[first - 1].over_at)
        print(f"undisturbed: {rate:.1f} samples/s", file=sys.stderr, flush=True)

        begin = len(job.rounds)
        start = job.rounds[-1].over_at
        kills = []
        for k in range(int(options.seconds / options.every)):
            job.watch_until(lambda: job.now() > start + (k + 0.5) * options.every)
            worker = k % len(SPEEDS)
            kills.append(Kill(f"worker-{worker}", job.now()))
            job.kill(worker)
        job.watch_until(lambda: job.now() > start + options.seconds)
        status = job.status()
        rounds = job.rounds[begin:]
        ends = [kill.at for kill in kills[1:]] + [float("inf")]
        for kill, end in zip(kills, ends):
            of_kill = [i for i, round in enumerate(rounds) if kill.at < round.over_at <= end]
            began = rounds[of_kill[0] - 1].over_at
            account(kill, [rounds[i] for i in of_kill], began, rate)
        return Outcome(undisturbed=rate, counted=samples_of(rounds), seconds=rounds[-1].over_at - start, kills=kills,
                       status=status)


def samples_of(rounds):
    return sum(round.samples for round in rounds)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for program in ("ps_server", "paced_worker", "psctl", "data"):
        parser.add_argument(f"--{program}", required=True)
    parser.add_argument("--model", default="gpt-nano")
    parser.add_argument("--batch", type=int, default=70, help="samples of a step, of the average worker")
    parser.add_argument("--step_seconds", type=float, default=0.2, help="that they take")
    parser.add_argument("--seconds", type=float, default=600, help="with kills")
    parser.add_argument("--every", type=float, default=60, help="seconds from kill to kill")
    parser.add_argument("--undisturbed_seconds", type=float, default=60, help="before the first one")
    parser.add_argument("--warmup", type=int, default=10, help="rounds before that")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    options = parser.parse_args()

    row("job", "undisturbed, samples/s", "of what the steps alone take", "counted", "goodput", "lost waiting for the killed",
        "lost without it", "else", "round open at a kill over after, s", "all contribute again after, s", "handed out = counted "
        "+ told as lost + in hand")
    row(*["---"] * 11)
    nominal = len(SPEEDS) * options.batch / options.step_seconds
    for name in options.variants:
        outcome = measure(options, VARIANTS[name])
        made = outcome.undisturbed * outcome.seconds
        for kill in outcome.kills:
            print(f"{name}: {kill}", file=sys.stderr, flush=True)
        handed_out, counted, lost = (int(outcome.status[field]) for field in
                                     ("samples", "trained_samples", "untrained_samples"))
        back = [kill.back_seconds for kill in outcome.kills if kill.back_seconds is not None]
        row(name, f"{outcome.undisturbed:.1f}", f"{outcome.undisturbed / nominal:.3f}", outcome.counted,
            f"**{outcome.goodput:.1%}**",
            *(f"{sum(getattr(kill, where) for kill in outcome.kills) / made:.1%}" for where in ("waiting", "without", "rest")),
            spread([kill.stall_seconds for kill in outcome.kills]),
            spread(back) if len(back) == len(outcome.kills) else f"{len(outcome.kills) - len(back)} never",
            f"{handed_out} = {counted} + {lost} + {handed_out - counted - lost}")
    print(f"\n`{options.model}`, four workers of speeds {', '.join(f'{speed:g}' for speed in SPEEDS)}, `--balance=speed`. "
          f"**Synthetic**: workers compute nothing; {len(SPEEDS) * options.batch} samples of a step take "
          f"{options.step_seconds:g} s where all share them by speed. For {options.seconds:g} s one of them, in turn, is killed "
          f"every {options.every:g} s (SIGKILL) and started again at once under its name; before that, "
          f"{options.undisturbed_seconds:g} s without. Goodput: samples counted over those at the undisturbed rate in the same "
          f"time. local_sgd: {LOCAL_STEPS} local steps. Where nothing is said the lease is 10 s. Wanted: 90 %.")


if __name__ == "__main__":
    main()
