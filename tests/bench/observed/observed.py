# SPDX-License-Identifier: Apache-2.0
"""What it costs a job to be looked at.

  observed.py --ps_server=FILE --gpu_worker=FILE --psctl=FILE --data=FILE [--turns=12] [--seconds=5]

Prints Markdown. Two jobs that are alike but for what looks at them take turns on this machine: one is paused while the other
trains, so that what else the machine does falls on both. Watched: --metrics_out, --tensorboard_dir, the history beside its
checkpoints, a page that is open (/api/events, read as a browser does) and /metrics, read once a second. Compared are the rounds
per second, which what else the machine does sways by several per cent, and the processor time of the server: what it needs more
of is what being looked at costs where processors are what limits, as a share of that of server and workers.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from processes import Processes, cpu_seconds, spread  # noqa: E402

WORKERS = 2
PATIENCE_SECONDS = 60
SETTLE_SECONDS = 1.0  # after a job goes on
WAITS = 131  # exit code of psctl status
SCRAPE_SECONDS = 1.0


class Job:
    def __init__(self, options, processes, name, flags):
        self._options = options
        self._processes = processes
        server, self._address = processes.start_server(options.ps_server, [
            f"--model={options.model}", "--mode=sync", "--rounds=100000000", "--eval_every=0", "--eval_samples=1",
            f"--batch_size={options.batch}", f"--min_workers={WORKERS}", *flags], name=name)
        self._server = server
        self._workers = [
            processes.start(f"{name}-worker-{i}", [
                options.gpu_worker, f"--coordinator={self._address}", f"--data={options.data}", f"--name=worker-{i}",
                "--threads=1", "--device=cpu"])
            for i in range(WORKERS)]
        self.log = processes.folder / f"{name}.log"
        self._wait(lambda status: int(status.get("round", 0)) > 3, server)

    def _wait(self, is_so, server=None):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so(self.status()):
            if time.monotonic() > deadline or (server is not None and server.poll() is not None):
                self._processes.fail("a job did not get on")
            time.sleep(0.1)

    def psctl(self, *arguments, codes=(0,)):
        done = subprocess.run([self._options.psctl, *arguments, f"--server={self._address}"], capture_output=True,
                              text=True, check=False)
        if done.returncode not in codes:
            self._processes.fail(done.stderr)
        return done.stdout

    def status(self):
        return json.loads(self.psctl("status", "--output=json", codes=(0, WAITS)))

    def pause(self):
        self.psctl("pause")
        self._wait(lambda status: status["state"] == "paused")

    def _now(self):
        """Rounds, seconds, processor seconds of the server and of the workers."""
        return (int(self.status()["round"]), time.monotonic(), cpu_seconds(self._server.pid),
                sum(cpu_seconds(worker.pid) for worker in self._workers))

    def turn(self, seconds):
        """Rounds per second; milliseconds of the processor a round, of the server and of the workers."""
        self.psctl("resume")
        time.sleep(SETTLE_SECONDS)
        before = self._now()
        time.sleep(seconds)
        rounds, elapsed, server, workers = (after - before for before, after in zip(before, self._now()))
        self.pause()
        return rounds / elapsed, 1000 * server / rounds, 1000 * workers / rounds


def look(url, is_over):
    """As a page that is open, until the job's server ends."""
    with urllib.request.urlopen(url + "api/events") as events:
        while not is_over.is_set() and events.readline():
            pass


def scrape(url, is_over):
    while not is_over.wait(SCRAPE_SECONDS):
        with urllib.request.urlopen(url + "metrics") as metrics:
            metrics.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for program in ("ps_server", "gpu_worker", "psctl", "data"):
        parser.add_argument(f"--{program}", required=True)
    parser.add_argument("--model", default="gpt-nano")
    parser.add_argument("--batch", type=int, default=2, help="samples of a step, of each worker")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5, help="of a turn")
    options = parser.parse_args()

    with Processes() as processes:
        plain = Job(options, processes, "plain", [])
        plain.pause()
        folder = processes.folder
        watched = Job(options, processes, "watched", [
            "--http=127.0.0.1:0", f"--metrics_out={folder / 'metrics.jsonl'}", f"--tensorboard_dir={folder / 'tensorboard'}",
            f"--checkpoint_dir={folder / 'run'}", "--checkpoint_interval=1h"])
        watched.pause()
        url = next(word for word in watched.log.read_text().split() if word.startswith("dashboard=")).split("=")[1]
        is_over = threading.Event()
        for watch in (look, scrape):
            threading.Thread(target=watch, args=(url, is_over), daemon=True).start()
        measured = {"plain": [], "watched": []}
        for turn in range(options.turns):
            jobs = [("plain", plain), ("watched", watched)]
            for name, job in jobs if turn % 2 == 0 else reversed(jobs):
                measured[name].append(job.turn(options.seconds))
                print(name + ": {:.2f} rounds/s; processor, ms a round: server {:.3f}, workers {:.3f}".format(*measured[name][-1]),
                      file=sys.stderr, flush=True)
        is_over.set()

    pairs = list(zip(measured["plain"], measured["watched"]))
    rows = (("rounds/s", 0, "at least 0.99", [watched[0] / plain[0] for plain, watched in pairs]),
            ("processor time of the server, ms a round", 1, "at most 1.01",
             [1 + (watched[1] - plain[1]) / (plain[1] + plain[2]) for plain, watched in pairs]))
    print("| | not looked at | looked at | of all that the job needs: looked at / not | mean, standard error | wanted |\n"
          "| --- | --- | --- | --- | --- | --- |")
    for what, index, wanted, ratios in rows:
        error = statistics.stdev(ratios) / len(ratios) ** 0.5
        plain, watched = ([turn[index] for turn in measured[name]] for name in ("plain", "watched"))
        print(f"| {what} | {spread(plain, 2)} | {spread(watched, 2)} | {spread(ratios, 4)} | {statistics.mean(ratios):.4f}, {error:.4f} "
              f"| {wanted} |")
    print(f"\n`{options.model}`, {WORKERS} workers of one thread, {options.batch} samples a step each, sync. {options.turns} turns of "
          f"{options.seconds:g} s of each job; median (lowest..highest); ratios of neighbouring turns.")


if __name__ == "__main__":
    main()
