# SPDX-License-Identifier: Apache-2.0
"""Real servers, workers and psctl on this machine, for tests of what happens when one fails.

The binaries come from the command line of the test: PS_SERVER GPU_WORKER PSCTL; see main().
"""
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PATIENCE_SECONDS = 180  # for anything that is not itself under test; machines are busy
POLL_SECONDS = 0.02
ENDLESS = 1_000_000  # rounds of a job that `psctl stop` or a signal ends
GPT = 'name: "tiny" gpt { num_layers: 1 num_heads: 2 width: 16 context: 16 vocabulary: 256 }'

BINARIES = {}


def main():
  """Takes the paths of the binaries off the command line and runs the tests."""
  for name in ("psctl", "gpu_worker", "ps_server"):
    BINARIES[name] = os.path.abspath(sys.argv.pop(1 + ("ps_server", "gpu_worker", "psctl")
                                                  .index(name)))
  unittest.main()


def write_words(path, seed=1):
  """A small corpus; another seed gives other data."""
  words = ["round", "version", "shard", "bucket", "chunk"]
  with open(path, "w", encoding="ascii") as file:
    file.write(" ".join(random.Random(seed).choices(words, k=4000)))


class Process:
  """One program; its output goes to a log file, or to the descriptor `output`."""

  def __init__(self, command, log_path, output=None, **popen):
    self.log_path = log_path
    self._log_start = os.path.getsize(log_path) if os.path.exists(log_path) else 0
    with open(log_path, "a", encoding="utf-8") as log:
      target = log if output is None else output
      self._popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=target,
                                     stderr=target, **popen)
    self.pid = self._popen.pid

  def send(self, number):
    self._popen.send_signal(number)

  def wait(self, seconds=PATIENCE_SECONDS):
    """The exit code; below 0: the signal that ended it."""
    try:
      return self._popen.wait(seconds)
    except subprocess.TimeoutExpired:
      raise AssertionError(f"still runs after {seconds} s:\n{self.log()}") from None

  def kill(self, number=signal.SIGKILL):
    self.send(number)
    return self.wait()

  def is_running(self):
    return self._popen.poll() is None

  def log(self):
    """What this process has written; not what others before it wrote to the same file."""
    with open(self.log_path, "rb") as file:
      file.seek(self._log_start)
      return file.read().decode(errors="replace")

  def wait_for_log(self, text, seconds=PATIENCE_SECONDS):
    wait_until(lambda: text in self.log() or not self.is_running(),
               lambda: f"'{text}' in the log:\n{self.log()}", seconds)
    if text not in self.log():
      raise AssertionError(f"ended with {self.wait()} without '{text}' in its log:\n{self.log()}")


def wait_until(condition, describe, seconds=PATIENCE_SECONDS):
  """`describe` is called only if it was in vain."""
  deadline = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > deadline:
      raise AssertionError("waited in vain for " + describe())
    time.sleep(POLL_SECONDS)


class ReservedPort:
  """A port that nobody else gets, and that a server can listen on meanwhile."""

  def __init__(self):
    self._socket = socket.socket()
    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    self._socket.bind(("127.0.0.1", 0))  # bound, but not listening: connections are refused
    self.number = self._socket.getsockname()[1]

  def close(self):
    self._socket.close()


class ClusterTestCase(unittest.TestCase):
  """A folder with model and corpus, and processes that end with the test."""

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = folder.name
    self.port = 0  # of the coordinator
    self._processes = []
    self.addCleanup(self._end_processes)
    self.write("model.textproto", GPT)
    write_words(self.path("corpus.txt"))

  def _end_processes(self):
    for process in self._processes:
      if process.is_running():
        process.kill()
      process.wait()

  def path(self, *names):
    return os.path.join(self.folder, *names)

  def write(self, name, content):
    with open(self.path(name), "wb") as file:
      file.write(content.encode() if isinstance(content, str) else content)

  def start(self, command, name, **popen):
    process = Process(command, self.path(name + ".log"), **popen)
    self._processes.append(process)
    return process

  def server_command(self, port=0, shard="0/1", **flags):
    """None: that flag is not given."""
    command = [BINARIES["ps_server"], f"--listen=127.0.0.1:{port}", f"--shard={shard}"]
    if not shard.startswith("0/"):
      return command + [f"--coordinator=127.0.0.1:{self.port}"]
    settings = {"model": self.path("model.textproto"), "exit_when_done": True,
                "rounds": ENDLESS, "batch_size": 2, "eval_samples": 8, "lease": "2s",
                "metrics_out": self.path("metrics.jsonl"), **flags}
    return command + [f"--{name}={str(value)}" for name, value in settings.items()
                      if value is not None]

  def start_server(self, port=0, name="server", popen=None, **flags):
    """The server of shard 0, once it listens; self.port is its port then."""
    port_file = self.path("port")
    if os.path.exists(port_file):
      os.remove(port_file)
    command = self.server_command(port, **flags) + ["--port_file=" + port_file]
    server = self.start(command, name, **(popen or {}))
    wait_until(lambda: os.path.exists(port_file) or not server.is_running(),
               lambda: "the server's port:\n" + server.log())
    if not os.path.exists(port_file):
      raise AssertionError(f"no server: {shlex.join(command)}\n{server.log()}")
    with open(port_file, encoding="ascii") as file:
      self.port = int(file.read())
    return server

  def send_again(self, server, number):
    """Until the server takes it for a second wish: those within a second of the first are not."""

    def is_taken():
      if "stopping now" in server.log() or not server.is_running():
        return True
      server.send(number)
      return False

    wait_until(is_taken, self.logs)

  def run_server(self, **flags):
    """A server that is expected to end by itself: (exit code, log)."""
    server = self.start(self.server_command(**flags), "failing_server")
    return server.wait(), server.log()

  def start_worker(self, name, data="corpus.txt", *flags):
    return self.start([BINARIES["gpu_worker"], f"--coordinator=127.0.0.1:{self.port}",
                       f"--name={name}", f"--data={self.path(data)}", "--device=cpu",
                       "--threads=1", *flags], "worker_" + name)

  def psctl(self, command, *flags):
    return subprocess.run([BINARIES["psctl"], command, f"--server=127.0.0.1:{self.port}", *flags],
                          capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)

  def status(self):
    """What `psctl status --json` prints; {} while nobody answers."""
    answer = self.psctl("status", "--json")
    return json.loads(answer.stdout) if answer.stdout else {}  # its code tells the health

  def wait_for_status(self, condition, what):
    """The first status for which `condition` holds."""
    seen = []

    def holds():
      seen[:] = [self.status()]
      return bool(seen[0]) and condition(seen[0])

    wait_until(holds, lambda: f"{what}; status is {json.dumps(seen[0], indent=1)}\n{self.logs()}")
    return seen[0]

  def wait_for_member(self, name, is_running):
    """Until it is one, or is_running() is false: it may have done all there was to do."""

    def is_there():
      status = self.status()
      return bool(status) and name in members_of(status)

    wait_until(lambda: is_there() or not is_running(), lambda: f"{name} to join\n{self.logs()}")

  def wait_for_round(self, number, workers=1):
    return self.wait_for_status(
        lambda status: int(status["round"]) >= number and len(members_of(status)) >= workers,
        f"round {number} with {workers} workers")

  def metrics(self):
    """The rounds that were committed, oldest first."""
    if not os.path.exists(self.path("metrics.jsonl")):
      return []
    with open(self.path("metrics.jsonl"), encoding="utf-8") as file:
      return [json.loads(line) for line in file.read().split("\n")[:-1]]

  def logs(self):
    return "\n".join(f"--- {process.log_path}\n" + process.log()[-3000:]
                     for process in self._processes)

  def assert_ends(self, process, code=0):
    self.assertEqual(process.wait(), code, self.logs())

  def stop_job(self, server, *workers):
    """`psctl stop`, after which all of them are to end with 0."""
    stopped = self.psctl("stop")
    self.assertEqual(stopped.returncode, 0, stopped.stderr)
    self.assertRegex(stopped.stdout,
                     rf"^job \S+ at 127.0.0.1:{self.port}: (stopped after \d+ of|complete after all) "
                     r"\d+ rounds(, \d+ of them without a contribution)?; ")
    for process in (server, *workers):
      self.assert_ends(process)


def worker_in(status, name):
  """The row of that worker; {} if there is none."""
  return next((row for row in status["workers"] if row["name"] == name), {})


def members_of(status):
  return [row["name"] for row in status["workers"] if row["state"] == "member"]


def alarms_in(status):
  return "\n".join(alarm["text"] for alarm in status["alarms"])
