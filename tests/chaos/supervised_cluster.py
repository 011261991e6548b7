# SPDX-License-Identifier: Apache-2.0
"""Servers, their replicas and workers of one job, behind the proxy, and a supervisor that restarts them.

It restarts by exit code, as a unit of systemd would with Restart=on-failure and
RestartPreventExitStatus of 1 to 127: docs/reference/exit_codes.md. Nothing
else is started again. Each server and each replica has a machine: the folder that it runs in, with all
that it keeps by relative paths.
"""
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time

from certificates import Certificates
from cluster_processes import Process, ReservedPort

RESTART_SECONDS = 0.1  # systemd's RestartSec
POLL_SECONDS = 0.01


class Unit:
  """A program that is to run until it has succeeded."""

  def __init__(self, name, command, log_path, machine):
    self.name = name
    self.machine = machine
    self.once = []  # flags of its next start only
    self.state = "running"  # "waiting" to be restarted, "finished", "failed"
    self.starts = []  # times
    self.codes = []  # of the processes that have ended
    self._command = command
    self._log_path = log_path
    self._is_restart = False
    self._ended_at = 0.0
    self._start()

  def _start(self):
    command = self._command + self.once
    self.once = []
    with open(self._log_path, "a", encoding="utf-8") as log:
      log.write(f"$ cd {shlex.quote(self.machine)} && {shlex.join(command)}\n")
    self.process = Process(command, self._log_path, cwd=self.machine)
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

  def kill(self):
    """Returns when it is gone; it is started again."""
    if self.state == "running" and self.process.is_running():
      self.process.kill()

  def end(self):
    self.state = "finished"
    if self.process.is_running():
      self.process.kill()


class SupervisedCluster:
  """Leaving the context ends all processes. `settings`: flags of the server of shard 0; has_tls: with a
  certificate for each program, instead of plain text."""

  def __init__(self, folder, binaries, settings, num_servers, num_workers=2, proxy=None,
               has_replicas=False, has_tls=False):
    self.folder = folder
    self._certificates = Certificates(self.path("certificates")) if has_tls else None
    self._binaries = binaries
    self._settings = settings
    self._num_servers = num_servers
    self._num_workers = num_workers
    self._proxy = proxy
    self._has_replicas = has_replicas
    # Checkpoints of several servers are in one folder, which outlives their machines.
    self._checkpoint_dir = "checkpoints" if num_servers == 1 else self.path("checkpoints")
    self._num_machines = 0
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
    self._reserved = {}
    for i in range(self._num_servers):
      self._reserved[f"server{i}"] = ReservedPort()
      if self._has_replicas:
        self._reserved[f"replica{i}"] = ReservedPort()
        self._add(f"replica{i}", self._replica_command(i))
    for i in range(self._num_servers):
      self._add(f"server{i}", self._server_command(i))
    for i in range(self._num_workers):
      # One with shared memory, the others with all they send on the wire.
      self._add(f"worker{i}", [
          self._binaries["gpu_worker"], f"--coordinator={self._address('workers', 'server0')}",
          f"--name=worker{i}", f"--data={self.path('corpus.txt')}", "--device=cpu", "--threads=1",
          f"--shared_memory={'true' if i == 0 else 'false'}", *self._security("worker", f"worker{i}")])
    self._thread.start()
    return self

  def __exit__(self, *_):
    self._is_over.set()
    self._thread.join()
    for unit in self.units.values():
      unit.end()
    for port in self._reserved.values():
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

  def lose_disk(self, name):
    """Its machine goes, with all that it has; an empty one takes its place."""
    with self._lock:
      unit = self.units[name]
      unit.kill()
      shutil.rmtree(unit.machine)
      os.makedirs(unit.machine)

  def swap(self, shard):
    """The server's machine goes; that of its replica takes its place, and has an empty one."""
    with self._lock:
      server, replica = self.units[f"server{shard}"], self.units[f"replica{shard}"]
      server.kill()
      replica.kill()
      shutil.rmtree(server.machine)
      server.machine, replica.machine = replica.machine, self._new_machine()
      server.once = ["--promote"]

  def num_starts(self, name):
    with self._lock:
      return len(self.units[name].starts)

  def failed(self):
    """Units that the supervisor does not start again, and have not succeeded."""
    with self._lock:
      return [f"{unit.name} has ended with {unit.codes[-1]}" for unit in self.units.values()
              if unit.state == "failed"]

  def is_finished(self):
    """Replicas run until they are told to stop."""
    with self._lock:
      return all(unit.state == "finished" for unit in self.units.values()
                 if not unit.name.startswith("replica"))

  def last_round(self):
    """(when it was over, which)."""
    with self._lock:
      return (self.rounds[-1][0], self._last_round) if self.rounds else (0.0, -1)

  def status(self):
    """What `psctl status --json` prints; {} while nobody answers."""
    answer = subprocess.run(
        [self._binaries["psctl"], "status", "--json", f"--server=127.0.0.1:{self.port('server0')}",
         *self._security("operator", "chaos")],
        capture_output=True, text=True, timeout=60, check=False)
    return json.loads(answer.stdout) if answer.stdout else {}

  def log(self, name):
    with open(self.path(name + ".log"), encoding="utf-8", errors="replace") as file:
      return file.read()

  def manifest(self):
    """(folder of the newest checkpoint, its manifest)."""
    checkpoints = os.path.join(self.units["server0"].machine, self._checkpoint_dir)
    saved = sorted(name for name in os.listdir(checkpoints)
                   if name.startswith("round-") and "." not in name)
    folder = os.path.join(checkpoints, saved[-1])
    with open(os.path.join(folder, "MANIFEST.json"), encoding="utf-8") as file:
      return folder, json.load(file)

  def port(self, name):
    return self._reserved[name].number

  def _new_machine(self):
    self._num_machines += 1
    machine = self.path(f"machine{self._num_machines}")
    os.makedirs(machine)
    return machine

  def _add(self, name, command):
    self.units[name] = Unit(name, command, self.path(name + ".log"), self._new_machine())

  def _address(self, source, target):
    """Where `source` reaches that server or replica."""
    if self._proxy is None:
      return f"127.0.0.1:{self.port(target)}"
    name = f"{source}:{target}"
    if name not in self._proxy.routes:
      self._proxy.add_route(name, self.port(target))
    return f"127.0.0.1:{self._proxy.routes[name].port}"

  def _security(self, role, name):
    return self._certificates.flags(role, name) if self._certificates is not None else []

  def _server_command(self, shard):
    name = f"server{shard}"
    flags = {"listen": f"127.0.0.1:{self.port(name)}", "advertise": self._address("workers", name),
             "shard": f"{shard}/{self._num_servers}", "durability": self._settings["durability"]}
    if flags["durability"] == "journal":
      flags["journal_dir"] = "journal"
    if self._has_replicas:
      flags["journal_replica"] = self._address(name, f"replica{shard}")
    if shard == 0:
      flags.update(self._settings)
      flags.update({"model": self.path("model.textproto"), "exit_when_done": True,
                    "checkpoint_dir": self._checkpoint_dir,
                    "metrics_out": self.path("metrics.jsonl")})
    else:
      flags["coordinator"] = self._address(name, "server0")
    return [self._binaries["ps_server"], *(f"--{flag}={value}" for flag, value in flags.items()),
            *self._security("server", name)]

  def _replica_command(self, shard):
    command = [self._binaries["ps_server"], "--replica", "--journal_dir=journal",
               f"--listen=127.0.0.1:{self.port(f'replica{shard}')}",
               *self._security("server", f"replica{shard}")]
    return command + (["--checkpoint_dir=checkpoints"] if self._num_servers == 1 else [])

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
