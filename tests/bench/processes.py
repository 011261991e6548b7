# SPDX-License-Identifier: Apache-2.0
"""Programs that a benchmark starts and ends, and how it sums up what it measured."""

import os
import pathlib
import statistics
import subprocess
import tempfile
import time

START_SECONDS = 60


class Processes:
    """A folder of logs and the programs that write them; leaving the context ends all of them."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="lodestar-bench-")
        self.folder = pathlib.Path(self._folder.name)
        self._processes = []
        return self

    def __exit__(self, *_):
        for process in reversed(self._processes):
            if process.poll() is None:
                process.kill()
            process.wait()
        self._folder.cleanup()

    def start(self, name, command, piped=False, **popen):
        """Output goes to NAME.log, or stdout to the caller if piped."""
        log = open(self.folder / f"{name}.log", "wb")
        process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else log, stderr=log, text=piped or None, **popen)
        self._processes.append(process)
        return process

    def fail(self, reason):
        tails = [f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-8:])
                 for path in sorted(self.folder.glob("*.log"))]
        raise RuntimeError(reason + "\n" + "\n".join(tails))

    def start_server(self, ps_server, flags, name="server", host="127.0.0.1", prefix=()):
        """A ps_server on a port that the system chooses; returns the process and HOST:PORT."""
        port_file = self.folder / f"{name}.port"
        server = self.start(name, [*prefix, ps_server, f"--listen={host}:0",
                                   f"--port_file={port_file}", *flags])
        deadline = time.monotonic() + START_SECONDS
        while not (port_file.exists() and port_file.read_text().strip()):
            if server.poll() is not None or time.monotonic() > deadline:
                self.fail(f"{name} did not start")
            time.sleep(0.02)
        return server, f"{host}:{port_file.read_text().strip()}"


def resident_bytes(pid):
    """Of a process that runs."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmRSS for process {pid}")


def cpu_seconds(pid):
    """Of all threads of a process that runs, in the kernel and outside."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values, share):
    """The value that `share` of all are at most."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values, digits=1):
    """Median (lowest..highest)."""
    return (f"{statistics.median(values):.{digits}f} "
            f"({min(values):.{digits}f}..{max(values):.{digits}f})")
