"""Servers and workers of one job, behind the proxy, and a supervisor that restarts them.

It restarts by exit code, as a unit of systemd would with Restart=on-failure and
RestartPreventExitStatus of 1 to 127: README.md, "Exit codes" of deploy/docs/keeping_a_run.md. Nothing
else is started again.
"""
import json
import os
import shlex
import signal
import subprocess
import threading
import time

from cluster_processes import Process, ReservedPort

RESTART_SECONDS = 0.1  # systemd's RestartSec
POLL_SECONDS = 0.01


class Unit:
  """A program that is to run until it has succeeded."""

  def __init__(self, name, command, log_path):
    self.name = name
    self.state = "running"  # "waiting" to be restarted, "finished", "failed"
    self.starts = []  # times
    self.codes = []  # of the processes that have ended
    self._command = command
    self._log_path = log_path
    self._is_restart = False
    self._ended_at = 0.0
    self._start()

  def _start(self):
    with open(self._log_path, "a", encoding="utf-8") as log:
      log.write(f"$ {shlex.join(self._command)}\n")
    self.process = Process(self._command, self._log_path)
    self.starts.append(time.monotonic())
    self.state = "running"

  def send(self, number):
    """To the process that runs; returns it, or None if there is none."""
    if self.state != "running" or not self.process.is_running():
      return None
    self.process.send(number)
    return self.process

  def restart(self):
    """As `systemctl restart` does: SIGTERM, and a start whatever the exit code says."""
    self._is_restart = True
    return self.send(signal.SIGTERM)

  def attend(self):
    """Called every now and then."""
    if self.state == "running" and not self.process.is_running():
      code = self.process.wait()
      self.codes.append(code)
      self._ended_at = time.monotonic()
      if code < 0 or code >= 128 or self._is_restart:
        self.state = "waiting"
      else:
        self.state = "finished" if code == 0 else "failed"
      self._is_restart = False
    elif self.state == "waiting" and time.monotonic() - self._ended_at >= RESTART_SECONDS:
      self._start()

  def end(self):
    self.state = "finished"
    if self.process.is_running():
      self.process.kill()


class SupervisedCluster:
  """Leaving the context ends all processes. `settings`: flags of the server of shard 0."""

  def __init__(self, folder, binaries, settings, num_servers, num_workers=2, proxy=None):
    self.folder = folder
    self._binaries = binaries
    self._settings = settings
    self._num_servers = num_servers
    self._num_workers = num_workers
    self._proxy = proxy
    self.units = {}
    self.rounds = []  # (time, line of --metrics_out)
    self.setbacks = []  # sentences
    self._metrics_end = 0
    self._last_round = -1
    self._seen = set()  # rounds
    self._lock = threading.Lock()
    self._is_over = threading.Event()
    self._thread = threading.Thread(target=self._supervise)

  def __enter__(self):
    self._reserved = [ReservedPort() for _ in range(self._num_servers)]
    self._ports = [port.number for port in self._reserved]
    for i in range(self._num_servers):
      self._add(f"server{i}", self._server_command(i))
    for i in range(self._num_workers):
      # One with shared memory, the others with all they send on the wire.
      self._add(f"worker{i}", [
          self._binaries["gpu_worker"], f"--coordinator=127.0.0.1:{self._port('workers', 0)}",
          f"--name=worker{i}", f"--data={self.path('corpus.txt')}", "--device=cpu", "--threads=1",
          f"--shared_memory={'true' if i == 0 else 'false'}"])
    self._thread.start()
    return self

  def __exit__(self, *_):
    self._is_over.set()
    self._thread.join()
    for unit in self.units.values():
      unit.end()
    for port in self._reserved:
      port.close()

  def path(self, *names):
    return os.path.join(self.folder, *names)

  def send(self, name, number):
    """Returns the process that got the signal, or None."""
    with self._lock:
      return self.units[name].send(number)

  def restart(self, name):
    """The same; it is SIGTERM."""
    with self._lock:
      return self.units[name].restart()

  def num_starts(self, name):
    with self._lock:
      return len(self.units[name].starts)

  def failed(self):
    """Units that the supervisor does not start again, and have not succeeded."""
    with self._lock:
      return [f"{unit.name} has ended with {unit.codes[-1]}" for unit in self.units.values()
              if unit.state == "failed"]

  def is_finished(self):
    with self._lock:
      return all(unit.state == "finished" for unit in self.units.values())

  def last_round(self):
    """(when it was over, which)."""
    with self._lock:
      return (self.rounds[-1][0], self._last_round) if self.rounds else (0.0, -1)

  def status(self):
    """What `psctl status --json` prints; {} while nobody answers."""
    answer = subprocess.run(
        [self._binaries["psctl"], "status", "--json", f"--server=127.0.0.1:{self._ports[0]}"],
        capture_output=True, text=True, timeout=60, check=False)
    return json.loads(answer.stdout) if answer.stdout else {}

  def log(self, name):
    with open(self.path(name + ".log"), encoding="utf-8", errors="replace") as file:
      return file.read()

  def manifest(self):
    """(folder of the newest checkpoint, its manifest)."""
    saved = sorted(name for name in os.listdir(self.path("checkpoints"))
                   if name.startswith("round-") and "." not in name)
    folder = self.path("checkpoints", saved[-1])
    with open(os.path.join(folder, "MANIFEST.json"), encoding="utf-8") as file:
      return folder, json.load(file)

  def _add(self, name, command):
    self.units[name] = Unit(name, command, self.path(name + ".log"))

  def _port(self, source, server):
    """Where `source` reaches that server."""
    if self._proxy is None:
      return self._ports[server]
    name = f"{source}:server{server}"
    if name not in self._proxy.routes:
      self._proxy.add_route(name, self._ports[server])
    return self._proxy.routes[name].port

  def _server_command(self, shard):
    command = [self._binaries["ps_server"], f"--listen=127.0.0.1:{self._ports[shard]}",
               f"--advertise=127.0.0.1:{self._port('workers', shard)}",
               f"--shard={shard}/{self._num_servers}"]
    flags = {"durability": self._settings["durability"]}
    if flags["durability"] == "journal":
      flags["journal_dir"] = self.path("journal")
    if shard == 0:
      flags.update(self._settings)
      flags.update({"model": self.path("model.textproto"), "exit_when_done": True,
                    "checkpoint_dir": self.path("checkpoints"),
                    "metrics_out": self.path("metrics.jsonl")})
    else:
      flags["coordinator"] = f"127.0.0.1:{self._port(f'server{shard}', 0)}"
    return command + [f"--{name}={value}" for name, value in flags.items()]

  def _supervise(self):
    while not self._is_over.wait(POLL_SECONDS):
      with self._lock:
        for unit in self.units.values():
          unit.attend()
        self._read_metrics()

  def _read_metrics(self):
    path = self.path("metrics.jsonl")
    size = os.path.getsize(path) if os.path.exists(path) else 0
    if size < self._metrics_end:
      self.setbacks.append(f"--metrics_out was cut from {self._metrics_end} to {size} bytes")
      self._metrics_end = size
    if size == self._metrics_end:
      return
    with open(path, "rb") as file:
      file.seek(self._metrics_end)
      lines = file.read()
    lines = lines[:lines.rfind(b"\n") + 1]
    self._metrics_end += len(lines)
    for text in lines.splitlines():
      line = json.loads(text)
      number = line["round"]
      # Asynchronous workers have rounds of their own, which end in any order.
      if number <= self._last_round and (self._settings["mode"] != "async" or number in self._seen):
        self.setbacks.append(f"round {number} follows round {self._last_round} in --metrics_out")
      self._seen.add(number)
      self._last_round = max(self._last_round, number)
      self.rounds.append((time.monotonic(), line))
