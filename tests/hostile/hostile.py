# SPDX-License-Identifier: Apache-2.0
"""A server with two honest workers under each attack of attacks.py, as a table: what is left of
the workers' throughput, the server's memory beside the bound that it states, what it has refused,
and whether psctl status answers.

  hostile.py --binaries=FOLDER [--tls] [--seconds=N] [--seed=N] [--only=NAME,...]
  hostile.py --binaries=FOLDER --attempts   (to get into a cluster with TLS: see attempts.py)

Attackers run with `nice -n 19`, on the same machine, from an address of it that is not loopback.
Beside the undisturbed throughput there is that with as hungry a process (nice -n 19) that does
nothing to the server: on a machine with few cores the attacker itself takes some of the time.
Exit code 1: the server has crashed, took more memory than it says, or psctl status did not answer.
"""
import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import attacks
import attempts

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 60
BUSY = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"
MODEL = ('name: "small" gpt { num_layers: 2 num_heads: 2 width: 64 context: 64 vocabulary: 256 }')


def other_address():
  """Of this machine, and not loopback; else loopback."""
  listed = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout
  own = [address for address in listed.split() if ":" not in address]
  return own[0] if own else "127.0.0.1"


def wait_for(condition, what, seconds=PATIENCE):
  end = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > end:
      raise TimeoutError("waited in vain for " + what)
    time.sleep(0.02)


class Cluster:
  """A server, two workers, and psctl."""

  def __init__(self, binaries, tls, folder):
    self.binaries = binaries
    self.tls = tls
    self.folder = folder
    self.workers = []
    self.credentials = None  # of the attacker
    self._write("model.textproto", MODEL)
    words = random.Random(1).choices(["round", "version", "shard", "bucket", "chunk"], k=20000)
    self._write("corpus.txt", " ".join(words))
    self.environment = {name: value for name, value in os.environ.items()
                        if name not in ("XDG_STATE_HOME", "STATE_DIRECTORY", "LODESTAR_JOIN")}
    self.environment["HOME"] = self.path("home")
    os.mkdir(self.path("home"))
    security = (["--tls", "--state_dir=" + self.path("state")] if tls else ["--insecure"])
    self.server = self._start(
        "ps_server", "--listen=0.0.0.0:0", "--advertise=127.0.0.1:0",
        "--port_file=" + self.path("port"), *security, "--model=" + self.path("model.textproto"),
        "--rounds=100000000", "--batch_size=4",
        "--min_workers=2", "--metrics_out=" + self.path("metrics.jsonl"), log="server")
    wait_for(lambda: os.path.exists(self.path("port")), "the server's port")
    with open(self.path("port"), encoding="ascii") as file:
      self.port = int(file.read())
    join = self._join()
    for name in ("a", "b"):
      self.workers.append(self._start("gpu_worker", "--name=" + name, *join,
                                      "--data=" + self.path("corpus.txt"), "--device=cpu",
                                      "--threads=1", log=name))
    if tls:
      self.credentials = self._attackers_certificate(join)
    wait_for(lambda: self.rounds() > 20, "the first rounds")

  def path(self, *names):
    return os.path.join(self.folder, *names)

  def _write(self, name, content):
    with open(self.path(name), "w", encoding="ascii") as file:
      file.write(content)

  def _start(self, program, *flags, log):
    with open(self.path(log + ".log"), "ab") as file:
      return subprocess.Popen([os.path.join(self.binaries, program), *flags], stdout=file,
                              stderr=file, env=self.environment)

  def _join(self):
    if not self.tls:
      return [f"--coordinator=127.0.0.1:{self.port}"]
    token = self.psctl("token", "create")
    self._write("join", token.stdout)
    os.chmod(self.path("join"), 0o600)
    return ["--join=" + self.path("join")]

  def _attackers_certificate(self, join):
    """As of a worker that has joined, and has become an attacker since."""
    worker = self._start("gpu_worker", "--name=attacker", *join, "--data=" + self.path("corpus.txt"),
                         "--device=cpu", "--threads=1", log="attacker")

    def folder():
      return next((folder for folder, _, names in os.walk(self.path("home"))
                   if folder.endswith("/worker-attacker") and "certificate.pem" in names), None)

    try:
      wait_for(folder, "the attacker's certificate")
    finally:
      worker.terminate()
      worker.wait()
    return folder()

  def psctl(self, *words, seconds=30):
    own = [f"--state_dir={self.path('state')}"] if self.tls else []
    return subprocess.run(
        [os.path.join(self.binaries, "psctl"), *words, f"--server=127.0.0.1:{self.port}", *own],
        capture_output=True, text=True, timeout=seconds, check=False, env=self.environment)

  def status(self, seconds=30):
    """{}: no answer."""
    try:
      answer = self.psctl("status", "--json", seconds=seconds)
    except subprocess.TimeoutExpired:
      return {}
    return json.loads(answer.stdout) if answer.stdout else {}

  def rounds(self):
    """That were committed."""
    try:
      with open(self.path("metrics.jsonl"), "rb") as file:
        file.seek(max(0, os.path.getsize(file.name) - 4096))
        lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"{")]
      return json.loads(lines[-1])["round"] if lines else 0
    except OSError:
      return 0

  def memory(self):
    """Bytes, without what is shared."""
    try:
      with open(f"/proc/{self.server.pid}/status", encoding="ascii") as file:
        return next((int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon")), 0)
    except OSError:
      return 0

  def cpu_seconds(self):
    try:
      with open(f"/proc/{self.server.pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
      return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
      return 0.0

  def end(self):
    for process in [*self.workers, self.server]:
      if process.poll() is None:
        process.send_signal(signal.SIGKILL)
      process.wait()


class Window:
  """What is seen of the cluster while something else runs."""

  def __init__(self, cluster, command, seconds, asks_status):
    rounds, cpu, start = cluster.rounds(), cluster.cpu_seconds(), time.monotonic()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    attacker = subprocess.Popen(["nice", "-n", "19", *command], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) if command else None
    self.answer_seconds = None
    asker = threading.Thread(target=self._ask, args=(cluster, seconds / 2))
    if asks_status:
      asker.start()
    self.peak = 0
    while time.monotonic() < start + seconds:
      self.peak = max(self.peak, cluster.memory())
      time.sleep(0.05)
    self.seconds = time.monotonic() - start
    self.rate = (cluster.rounds() - rounds) / self.seconds
    self.server_cpu = (cluster.cpu_seconds() - cpu) / self.seconds
    self.done, self.failure, self.attacker_cpu = "", "", 0.0
    if asks_status:
      asker.join()
    if attacker is not None:
      try:
        out, self.failure = attacker.communicate(timeout=30)
      except subprocess.TimeoutExpired:
        attacker.kill()
        out, self.failure = attacker.communicate()
      self.done = out.strip()
      now = resource.getrusage(resource.RUSAGE_CHILDREN)
      self.attacker_cpu = (now.ru_utime + now.ru_stime - used.ru_utime -
                           used.ru_stime) / self.seconds

  def _ask(self, cluster, after):
    time.sleep(after)
    start = time.monotonic()
    if cluster.status(seconds=20):
      self.answer_seconds = time.monotonic() - start


def refusals_in(status):
  counted = {}
  for place in ("port", "limits"):
    for entry in status.get(place, {}).get("refused", []):
      counted[entry["reason"]] = counted.get(entry["reason"], 0) + int(entry["count"])
  return counted


class Suite:

  def __init__(self, args):
    self.args = args
    self.cluster = None
    self.failures = []
    self.last = None  # undisturbed, and beside a busy loop

  def fresh(self):
    self.end()
    self.cluster = Cluster(self.args.binaries, self.args.tls, tempfile.mkdtemp(prefix="hostile-"))
    status = self.cluster.status()
    self.bound = int(status["limits"]["memory_bound_bytes"])
    return status["limits"]["memory_bound_text"]

  def end(self):
    if self.cluster is not None:
      self.cluster.end()
      shutil.rmtree(self.cluster.folder)

  def command_of(self, name):
    if name == "busy":
      return [sys.executable, "-c", BUSY, str(self.args.seconds)]
    command = [sys.executable, "-B", os.path.join(HERE, "attacks.py"), name,
               f"--address={other_address()}:{self.cluster.port}",
               f"--seconds={self.args.seconds}", f"--seed={self.args.seed}"]
    if self.args.tls:
      command.append("--tls")
    if self.args.tls and attacks.ATTACKS[name].needs == "http2":
      command.append("--credentials=" + self.cluster.credentials)
    return command

  def window(self, name):
    command = self.command_of(name) if name else None
    return Window(self.cluster, command, self.args.seconds, name not in ("", "busy"))

  def measure(self, name):
    """Beside the attack, what comes before and after it: the machine may have other work, too."""
    before = refusals_in(self.cluster.status())
    idle, busy = self.last or (self.window(""), self.window("busy"))
    seen = self.window(name)
    idle_after, busy_after = self.last = (self.window(""), self.window("busy"))
    undisturbed = (idle.rate + idle_after.rate) / 2
    beside_busy = (busy.rate + busy_after.rate) / 2
    crashed = self.cluster.server.poll() is not None
    after = {} if crashed else self.cluster.status()
    refused = {reason: count - before.get(reason, 0)
               for reason, count in refusals_in(after).items() if count > before.get(reason, 0)}
    problems = []
    if crashed:
      problems.append(f"the server ended with {self.cluster.server.poll()}")
    if seen.peak > self.bound:
      problems.append(f"{seen.peak >> 20} MiB of memory")
    if seen.answer_seconds is None:
      problems.append("psctl status did not answer")
    if not crashed and after and idle_after.rate == 0:
      problems.append("no rounds any more")
    if seen.failure.strip():
      problems.append("attacker: " + seen.failure.strip().splitlines()[-1])
    self.failures += [f"{name}: {problem}" for problem in problems]
    answered = "no" if seen.answer_seconds is None else f"{seen.answer_seconds:.1f} s"
    print(f"| {name} | {seen.done} | {100 * seen.rate / max(undisturbed, 1e-9):.0f} % | "
          f"{100 * seen.rate / max(beside_busy, 1e-9):.0f} % | {100 * seen.attacker_cpu:.0f} % | "
          f"{100 * seen.server_cpu:.0f} % ({100 * idle.server_cpu:.0f} %) | {seen.peak >> 20} | "
          f"{answered} | {', '.join(f'{n} {r}' for r, n in refused.items()) or '-'}"
          f"{' **' + '; '.join(problems) + '**' if problems else ''} |", flush=True)
    if problems:
      self.fresh()
      self.last = None

  def run_attempts(self):
    self.args.tls = True
    self.fresh()
    try:
      self.failures = attempts.run(self.cluster, refusals_in)
    finally:
      self.end()
    return self._report()

  def run(self):
    bound_text = self.fresh()
    names = self.args.only.split(",") if self.args.only else list(attacks.ATTACKS)
    names = [name for name in names if self.args.tls or attacks.ATTACKS[name].needs != "tls"]
    start = self.window("")
    print(f"{'TLS' if self.args.tls else 'Plain text'}; windows of {self.args.seconds} s; undisturbed "
          f"{start.rate:.1f} rounds/s, {start.peak >> 20} MiB; stated bound {bound_text}.\n")
    print("| attack | done | of undisturbed | of that beside a busy loop | attacker's CPU | "
          "server's CPU (before) | peak MiB | status | refused |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
      self.measure(name)
    self.end()
    return self._report()

  def _report(self):
    for failure in self.failures:
      print("\nFAILED " + failure)
    return 1 if self.failures else 0


def main():
  parser = argparse.ArgumentParser(description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--binaries", required=True)
  parser.add_argument("--tls", action="store_true")
  parser.add_argument("--seconds", type=float, default=6)
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--only", default="")
  parser.add_argument("--attempts", action="store_true")
  args = parser.parse_args()
  suite = Suite(args)
  sys.exit(suite.run_attempts() if args.attempts else suite.run())


if __name__ == "__main__":
  main()
