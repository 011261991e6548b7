# SPDX-License-Identifier: Apache-2.0
"""One training run of real servers and workers, here or on virtual hosts."""

import contextlib
import dataclasses
import json
import time

POLL_SECONDS = 0.02


@dataclasses.dataclass
class Programs:
    ps_server: str
    gpu_worker: str
    virtual_links: str
    psctl: str = ""


@dataclasses.dataclass
class Job:
    flags: list  # of the coordinator
    workers: int
    data: str
    servers: int = 1
    hosts: object = None  # Hosts, or None: everything on this machine's loopback
    # With hosts: host of server i and of worker i.
    server_hosts: list = dataclasses.field(default_factory=list)
    worker_hosts: list = dataclasses.field(default_factory=list)
    common_flags: list = dataclasses.field(default_factory=list)  # of every server


class Training:
    """The processes of a job. Records are the lines of --metrics_out."""

    def __init__(self, processes, programs, job):
        self._processes = processes
        self._metrics = processes.folder / f"metrics-{time.monotonic_ns()}.jsonl"
        self._running = []
        coordinator = None
        for i in range(job.servers):
            host = job.server_hosts[i] if job.hosts else None
            flags = [f"--shard={i}/{job.servers}", "--log_level=warning", *job.common_flags]
            if i == 0:
                flags += ["--exit_when_done", f"--min_workers={job.workers}",
                          f"--metrics_out={self._metrics}", *job.flags]
            else:
                flags += ["--exit_when_done", f"--coordinator={coordinator}"]
            if job.hosts:
                flags += ["--insecure", "--shared_memory=false"]
            server, address = processes.start_server(
                programs.ps_server, flags, name=f"server-{i}",
                host=job.hosts.address(host) if job.hosts else "127.0.0.1",
                prefix=job.hosts.prefix(host) if job.hosts else ())
            self._running.append(server)
            coordinator = coordinator or address
        self.started = time.monotonic()
        for i in range(job.workers):
            prefix = job.hosts.prefix(job.worker_hosts[i]) if job.hosts else []
            self._running.append(processes.start(
                f"worker-{i}", [*prefix, programs.gpu_worker, f"--coordinator={coordinator}",
                                f"--name=worker-{i}", f"--data={job.data}", "--device=cpu", "--threads=1",
                                *(["--insecure", "--shared_memory=false"] if job.hosts else [])]))

    def records(self):
        if not self._metrics.exists():
            return []
        lines = self._metrics.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]  # the last one may be half written

    def wait_until(self, enough, limit_s):
        """enough(records) -> bool. Returns the seconds since the workers were started, or None if time is up."""
        while True:
            if enough(self.records()):
                return time.monotonic() - self.started
            if self._has_ended():
                self._processes.fail("the job ended early")
            if time.monotonic() - self.started > limit_s:
                return None
            time.sleep(POLL_SECONDS)

    def wait(self, limit_s=600):
        """Until the job has ended by itself."""
        while not self._has_ended():
            if time.monotonic() - self.started > limit_s:
                self._processes.fail("the job did not end")
            time.sleep(POLL_SECONDS)

    def _has_ended(self):
        codes = [process.poll() for process in self._running]
        if any(codes):
            self._processes.fail(f"a process ended with {next(code for code in codes if code)}")
        return all(code == 0 for code in codes)

    def stop(self):
        for process in self._running:
            process.kill()
            process.wait()


@contextlib.contextmanager
def training(processes, programs, job):
    run = Training(processes, programs, job)
    try:
        yield run
    finally:
        run.stop()
