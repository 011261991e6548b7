# SPDX-License-Identifier: Apache-2.0
"""One training run of real binaries on this machine, and what its metrics file says at the end."""

import dataclasses
import json
import pathlib
import shlex
import signal
import subprocess
import tempfile
import threading
import time

# A worker of speed 1/3 runs for a third of each of these, and is suspended for the rest.
PERIOD_SECONDS = 0.12


@dataclasses.dataclass
class Trial:
    name: str
    workers: int
    server_flags: list
    speeds: list = None  # of the workers, at most 1: the share of the time that each may run; None: all of it


@dataclasses.dataclass
class Outcome:
    trial: Trial
    heldout_loss: float
    heldout_accuracy: float  # None for language models
    samples: int
    seconds: float
    server_command: str


class Cluster:
    """A ps_server and its workers; leaving the context ends all of them."""

    def __init__(self, bin_dir, data, trial, timeout_s):
        self._server = bin_dir / "server" / "ps_server"
        self._worker = bin_dir / "worker" / "gpu_worker"
        self._data = data
        self._trial = trial
        self._timeout_s = timeout_s
        self._processes = []
        self._is_over = threading.Event()
        self._brakes = []

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="lodestar-trial-")
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for brake in self._brakes:
            brake.join()
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self._folder.cleanup()

    def _start(self, name, command):
        log = open(pathlib.Path(self._folder.name) / f"{name}.log", "wb")
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=log, stderr=subprocess.STDOUT,
        )
        self._processes.append(process)
        return process

    def _slow_down(self, process, speed):
        def brake():
            while process.poll() is None and not self._is_over.wait(PERIOD_SECONDS * speed):
                process.send_signal(signal.SIGSTOP)
                self._is_over.wait(PERIOD_SECONDS * (1 - speed))
                process.send_signal(signal.SIGCONT)

        self._brakes.append(threading.Thread(target=brake))
        self._brakes[-1].start()

    def _log_tail(self):
        tails = []
        for path in sorted(pathlib.Path(self._folder.name).glob("*.log")):
            tails.append(f"--- {path.name}\n" + "\n".join(path.read_text().splitlines()[-8:]))
        return "\n".join(tails)

    def _wait_for_port(self, path, server):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and server.poll() is None:
            if path.exists() and path.read_text().strip():
                return path.read_text().strip()
            time.sleep(0.05)
        raise RuntimeError("ps_server did not start\n" + self._log_tail())

    def run(self):
        folder = pathlib.Path(self._folder.name)
        metrics = folder / "metrics.jsonl"
        port_file = folder / "port"
        flags = [*self._trial.server_flags, f"--min_workers={self._trial.workers}"]
        server = self._start(
            "server",
            [self._server, "--listen=127.0.0.1:0", f"--port_file={port_file}",
             f"--metrics_out={metrics}", "--exit_when_done", *flags],
        )
        port = self._wait_for_port(port_file, server)
        for i in range(self._trial.workers):
            worker = self._start(
                f"worker-{i}",
                [self._worker, f"--coordinator=127.0.0.1:{port}", f"--data={self._data}",
                 f"--name=w{i}", "--threads=1", "--device=cpu"],
            )
            if self._trial.speeds and self._trial.speeds[i] < 1:
                self._slow_down(worker, self._trial.speeds[i])
        try:
            code = server.wait(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self._trial.name}: not done in time\n" + self._log_tail())
        if code != 0:
            raise RuntimeError(f"{self._trial.name}: ps_server ended with {code}\n" + self._log_tail())
        return self._outcome(metrics, flags)

    def _outcome(self, metrics, flags):
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        evaluated = [r for r in records if r.get("heldout_loss") is not None]
        if not evaluated:
            raise RuntimeError(f"{self._trial.name}: nothing was evaluated\n" + self._log_tail())
        last = evaluated[-1]
        return Outcome(
            trial=self._trial,
            heldout_loss=last["heldout_loss"],
            heldout_accuracy=last.get("heldout_accuracy"),
            samples=max(r["samples"] for r in records),
            seconds=max(r["seconds"] for r in records),
            server_command="ps_server " + " ".join(shlex.quote(flag) for flag in flags),
        )
