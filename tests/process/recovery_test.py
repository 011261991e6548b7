#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Real servers that are killed: the job goes on, and to the same bits.

Usage: recovery_test.py PS_SERVER GPU_WORKER
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SERVER = None
WORKER = None
PATIENCE_SECONDS = 100
ROUNDS = 400
CHECKPOINT_EVERY = 40
MODEL = 'name: "tiny" gpt { num_layers: 1 num_heads: 2 width: 16 context: 16 vocabulary: 256 }'


def wait_until(condition, what):
  deadline = time.monotonic() + PATIENCE_SECONDS
  while not condition():
    if time.monotonic() > deadline:
      raise AssertionError("waited in vain for " + what)
    time.sleep(0.01)


class Job:
  """The processes of one job and the folder they share."""

  def __init__(self, folder, num_shards=1, journal=False, replica=False, **flags):
    self.folder = folder
    self.num_shards = num_shards
    self.journal = journal
    self.disk = "here"  # of the server
    self.replica = None
    self.replica_port = 0
    os.makedirs(self.path("here"))
    if replica:
      self.start_replica("there")
    self.flags = {"rounds": ROUNDS, "checkpoint_interval": 0, "checkpoint_every": CHECKPOINT_EVERY, "batch_size": 2,
                  "eval_samples": 16, "lease": "2s", **flags}
    with open(self.path("model.textproto"), "w", encoding="ascii") as file:
      file.write(MODEL)
    with open(self.path("corpus.txt"), "w", encoding="ascii") as file:
      words = random.Random(1).choices(["round", "version", "shard", "bucket", "chunk"], k=9000)
      file.write(" ".join(words))
    self.servers = [None] * num_shards
    self.ports = [0] * num_shards
    for shard in range(num_shards):
      self.start_server(shard)
    self.worker = self._spawn(
        [WORKER, f"--coordinator=127.0.0.1:{self.ports[0]}", "--name=0",
         "--data=" + self.path("corpus.txt"), "--device=cpu", "--threads=1"], "worker0")

  def path(self, name):
    return os.path.join(self.folder, name)

  def start_server(self, shard, *options):
    port_file = self.path(f"port{shard}")
    if os.path.exists(port_file):
      os.remove(port_file)
    command = [SERVER, f"--listen=127.0.0.1:{self.ports[shard]}", "--port_file=" + port_file,
               f"--shard={shard}/{self.num_shards}"]
    if shard == 0:
      command += ["--model=" + self.path("model.textproto"), "--exit_when_done",
                  "--checkpoint_dir=checkpoints",
                  "--metrics_out=" + self.path("metrics.jsonl")]
      command += [f"--{name}={value}" for name, value in self.flags.items()]
    else:
      command += [f"--coordinator=127.0.0.1:{self.ports[0]}"]
    if self.journal:
      command += ["--durability=journal", "--journal_dir=journal"]
    if self.replica_port:
      command += [f"--journal_replica=127.0.0.1:{self.replica_port}"]
    command += options
    self.servers[shard] = self._spawn(command, f"server{shard}", cwd=self.path(self.disk))
    self.ports[shard] = self.wait_for_port(port_file)

  def start_replica(self, disk):
    os.makedirs(self.path(disk), exist_ok=True)
    self.replica = self._spawn(
        [SERVER, "--replica", "--listen=127.0.0.1:0", "--port_file=" + self.path("replica_port"),
         "--checkpoint_dir=checkpoints", "--journal_dir=journal"], "replica", cwd=self.path(disk))
    self.replica_port = self.wait_for_port(self.path("replica_port"))

  def wait_for_port(self, port_file):
    wait_until(lambda: os.path.exists(port_file), port_file)
    with open(port_file, encoding="ascii") as file:
      return int(file.read())

  def wait_for_rounds(self):
    begun = os.path.getsize(self.path("metrics.jsonl")) if self.metrics_exist() else 0
    wait_until(lambda: self.metrics_exist() and
               os.path.getsize(self.path("metrics.jsonl")) > begun + 2000, "rounds")

  def _spawn(self, command, name, **popen):
    with open(self.path(name + ".log"), "a", encoding="utf-8") as log:
      return subprocess.Popen(command, stdout=log, stderr=log, **popen)

  def wait_for_checkpoint(self, number):
    every = self.flags["checkpoint_every"]
    name = f"here/checkpoints/round-{number * every:08d}/MANIFEST.json"
    wait_until(lambda: os.path.exists(self.path(name)), name)

  def kill(self, process, number=signal.SIGKILL):
    process.send_signal(number)
    return process.wait(PATIENCE_SECONDS)

  def metrics(self):
    with open(self.path("metrics.jsonl"), encoding="utf-8") as file:
      return [json.loads(line) for line in file.read().splitlines()]

  def finish(self):
    """Exit codes of all that still run, servers first."""
    return [process.wait(PATIENCE_SECONDS) for process in [*self.servers, self.worker]]

  def metrics_exist(self):
    return os.path.exists(self.path("metrics.jsonl"))

  def logs(self, lines=30):
    texts = []
    for name in sorted(os.listdir(self.folder)):
      if name.endswith(".log"):
        with open(self.path(name), encoding="utf-8") as file:
          texts.append(f"--- {name}\n" + "".join(file.readlines()[-lines:]))
    return "\n".join(texts)

  def close(self):
    for process in [*self.servers, self.worker, self.replica]:
      if process is not None and process.poll() is None:
        process.kill()
        process.wait()


class RecoveryTest(unittest.TestCase):

  undisturbed = {}  # held-out loss at the end, by number of shards

  def start(self, **settings):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    job = Job(folder.name, **settings)
    self.addCleanup(job.close)
    return job

  def expect_done(self, job, codes):
    self.assertEqual(job.finish(), codes, job.logs())
    last = job.metrics()[-1]
    self.assertEqual(last["round"], ROUNDS, job.logs())
    return last["heldout_loss"]

  def undisturbed_loss(self, num_shards=1):
    if num_shards not in self.undisturbed:
      job = self.start(num_shards=num_shards)
      self.undisturbed[num_shards] = self.expect_done(job, [0] * (num_shards + 1))
    return self.undisturbed[num_shards]

  def test_killed_coordinator_goes_on_to_the_same_bits(self):
    job = self.start()
    job.wait_for_checkpoint(1)
    self.assertEqual(job.kill(job.servers[0]), -signal.SIGKILL)
    job.start_server(0)
    self.assertEqual(self.expect_done(job, [0, 0]), self.undisturbed_loss())

  def test_killed_shard_server_goes_on_to_the_same_bits(self):
    job = self.start(num_shards=2)
    job.wait_for_checkpoint(1)
    self.assertEqual(job.kill(job.servers[1]), -signal.SIGKILL)
    job.start_server(1)
    self.assertEqual(self.expect_done(job, [0, 0, 0]), self.undisturbed_loss(num_shards=2))

  def test_servers_with_a_journal_are_killed_and_nobody_goes_back(self):
    job = self.start(num_shards=2, journal=True, checkpoint_every=0, checkpoint_interval=0)
    # Each pair: what is killed, and what then comes back at another address.
    for killed, moved in (([1], [1]), ([0], []), ([0, 1], [1])):
      job.wait_for_rounds()
      for shard in killed:
        self.assertEqual(job.kill(job.servers[shard]), -signal.SIGKILL)
      for shard in killed:
        if shard in moved:
          job.ports[shard] = 0
        job.start_server(shard)
    self.assertEqual(self.expect_done(job, [0, 0, 0]), self.undisturbed_loss(num_shards=2))
    logs = job.logs(lines=1000)
    self.assertEqual(logs.count("continues from its journal: records="), 4, logs)
    self.assertNotIn("go back to", logs)
    self.assertEqual(logs.count("worker registered"), 1, logs)

  def test_journal_that_is_removed_under_a_server_is_written_again(self):
    job = self.start(journal=True, checkpoint_every=0, checkpoint_interval=0)
    journal = job.path("here/journal")
    job.wait_for_rounds()
    for folder, _, names in os.walk(journal):
      for name in names:
        if name.endswith(".journal"):
          os.remove(os.path.join(folder, name))
    job.wait_for_rounds()
    # The server may write files again before all are removed.
    shutil.rmtree(journal, ignore_errors=True)
    job.wait_for_rounds()
    self.assertEqual(job.kill(job.servers[0]), -signal.SIGKILL)
    job.start_server(0)
    self.assertEqual(self.expect_done(job, [0, 0]), self.undisturbed_loss())
    logs = job.logs(lines=1000)
    self.assertIn("was removed or replaced", logs)
    self.assertEqual(logs.count("continues from its journal: records="), 1, logs)
    self.assertEqual(logs.count("worker registered"), 1, logs)

  def test_journal_of_another_run_is_refused_and_stays_as_it_is(self):
    job = self.start(journal=True)
    job.wait_for_checkpoint(1)
    self.assertEqual(job.kill(job.servers[0]), -signal.SIGKILL)
    other = [SERVER, "--listen=127.0.0.1:0", "--model=" + job.path("model.textproto"), "--checkpoint_dir=other",
             "--durability=journal", "--journal_dir=journal"]
    for options in ([], ["--resume=never"]):
      refused = subprocess.run(other + options, cwd=job.path("here"), capture_output=True, text=True, check=False,
                               timeout=PATIENCE_SECONDS)
      self.assertEqual(refused.returncode, 1, refused.stderr)
      for named in ("--journal_dir=", "here/checkpoints", "here/other"):
        self.assertIn(named, refused.stderr + refused.stdout)
    job.start_server(0)
    self.assertEqual(self.expect_done(job, [0, 0]), self.undisturbed_loss())
    self.assertEqual(job.logs(lines=1000).count("continues from its journal: records="), 1)

  def kill_in_order(self, job):
    self.assertEqual(job.kill(job.servers[0], signal.SIGTERM), 128 + signal.SIGTERM, job.logs())

  def waits_for_newer_journal(self, job, num_rounds):
    """The round that the alarm names. `num_rounds`: lines of metrics that were there before."""
    log = job.path("server0.log")

    def rounds():
      with open(log, encoding="utf-8") as file:
        return re.findall(r"start this server with --accept_loss=(\d+)", file.read())
    wait_until(rounds, "the alarm of a journal that has gone back")
    self.assertEqual(len(job.metrics()), num_rounds, job.logs())
    self.assertIsNone(job.worker.poll(), job.logs())
    return int(rounds()[-1])

  def test_coordinator_whose_journal_has_gone_back_waits(self):
    job = self.start(num_shards=2, journal=True, checkpoint_every=50)
    journal = job.path("here/journal/coordinator")
    job.wait_for_rounds()
    self.assertEqual(job.kill(job.servers[0]), -signal.SIGKILL)
    shutil.copytree(journal, job.path("older"))
    job.start_server(0)
    job.wait_for_rounds()
    self.assertEqual(job.kill(job.servers[0]), -signal.SIGKILL)
    newer = job.path("newer")
    os.rename(journal, newer)
    for older in (lambda: shutil.copytree(job.path("older"), journal), lambda: None):
      older()
      num_rounds = len(job.metrics())
      job.start_server(0)
      lost = self.waits_for_newer_journal(job, num_rounds)
      # The round after the last one with a line may not have been opened at the other server.
      self.assertGreaterEqual(lost, num_rounds - 1)
      self.kill_in_order(job)
      job.start_server(0, f"--accept_loss={lost + 1}")
      self.assertEqual(job.servers[0].wait(PATIENCE_SECONDS), 1, job.logs())
      shutil.rmtree(journal)
    # The journal is back, and nothing is lost.
    os.rename(newer, journal)
    job.start_server(0, f"--accept_loss={lost}")
    self.assertEqual(self.expect_done(job, [0, 0, 0]), self.undisturbed_loss(num_shards=2))
    logs = job.logs(lines=10000)
    self.assertEqual(logs.count("worker registered"), 1, logs)

  def test_damaged_journal_of_the_coordinator_waits_and_stays_as_it_is(self):
    job = self.start(num_shards=2, journal=True, checkpoint_every=50)
    job.wait_for_rounds()
    for shard in (0, 1):
      self.assertEqual(job.kill(job.servers[shard]), -signal.SIGKILL)
    journal = job.path("here/journal/coordinator")
    shutil.copytree(journal, job.path("sound"))
    newest = max(name for name in os.listdir(journal) if name.endswith(".journal"))
    with open(os.path.join(journal, newest), "r+b") as file:
      file.seek(os.path.getsize(file.name) // 2)
      byte = file.read(1)[0]
      file.seek(-1, os.SEEK_CUR)
      file.write(bytes([byte ^ 16]))

    def journals():
      return {path: os.path.getsize(path) for folder, _, names in os.walk(job.path("here/journal"))
              for path in [os.path.join(folder, name) for name in names] if ".journal" in path}
    before = journals()
    num_rounds = len(job.metrics())
    for shard in (0, 1):
      job.start_server(shard)
    lost = self.waits_for_newer_journal(job, num_rounds)
    after = journals()
    self.assertEqual({path: after.get(path) for path in before}, before, job.logs())
    for shard in (0, 1):
      self.assertEqual(job.kill(job.servers[shard]), -signal.SIGKILL)
    # The sound copy is back, and nothing is lost.
    shutil.rmtree(journal)
    os.rename(job.path("sound"), journal)
    for shard in (0, 1):
      job.start_server(shard, *([f"--accept_loss={lost}"] if shard == 0 else []))
    self.assertEqual(self.expect_done(job, [0, 0, 0]), self.undisturbed_loss(num_shards=2))

  def go_back(self, job, folder, train):
    """Starts the lone server on what the folder had before train() went on from there."""
    job.wait_for_rounds()
    self.assertEqual(job.kill(job.servers[0]), -signal.SIGKILL)
    shutil.copytree(job.path(folder), job.path("older"))
    job.start_server(0)
    train()
    self.assertEqual(job.kill(job.servers[0]), -signal.SIGKILL)
    shutil.rmtree(job.path(folder))
    os.rename(job.path("older"), job.path(folder))
    job.start_server(0)

  def test_lone_server_whose_journals_have_gone_back_behind_a_checkpoint_waits(self):
    job = self.start(journal=True, checkpoint_every=50)
    self.go_back(job, "here/journal", lambda: job.wait_for_checkpoint(3))
    lost = self.waits_for_newer_journal(job, len(job.metrics()))
    self.kill_in_order(job)
    job.start_server(0, f"--accept_loss={lost}")
    job.wait_for_rounds()
    # A forgotten flag has no effect.
    self.kill_in_order(job)
    job.start_server(0, f"--accept_loss={lost}")
    self.expect_done(job, [0, 0])
    self.assertIn("has no effect, because nothing is lost", job.logs(lines=10000))

  def test_worker_tells_what_all_disks_have_lost(self):
    job = self.start(journal=True, checkpoint_every=1000)
    self.go_back(job, "here", job.wait_for_rounds)
    self.assertEqual(job.finish(), [0, 0], job.logs())
    logs = job.logs(lines=10000)
    self.assertRegex(logs, r"alarm: worker '\w+' reports that its round \d+ was acknowledged")
    self.assertIn("drops its residual", logs)

  def assert_journals_are_closed(self, job, *disks):
    """To other users: they hold keys."""
    for disk in disks:
      journals = [os.path.join(folder, name) for folder, _, names in os.walk(job.path(disk))
                  for name in names if ".journal" in name]
      self.assertGreater(len(journals), 1, disk)
      for journal in journals:
        self.assertEqual(os.stat(journal).st_mode & 0o777, 0o600, journal)

  def test_machine_that_goes_with_its_disk_is_replaced_from_the_replica(self):
    job = self.start(journal=True, replica=True, checkpoint_every=30)
    job.wait_for_rounds()
    self.assert_journals_are_closed(job, "here", "there")
    job.kill(job.servers[0])
    shutil.rmtree(job.path("here"))
    os.makedirs(job.path("here"))
    job.start_server(0)
    job.wait_for_rounds()
    job.kill(job.servers[0])
    job.kill(job.replica)
    shutil.rmtree(job.path("here"))
    # What was the replica is the server, and has none.
    job.disk, job.replica_port = "there", 0
    job.start_server(0, "--promote")
    self.assertEqual(self.expect_done(job, [0, 0]), self.undisturbed_loss())
    logs = job.logs(lines=1000)
    self.assertIn("copies the journal of the replica", logs)
    self.assertEqual(logs.count("continues from its journal: records="), 2, logs)
    self.assertEqual(logs.count("worker registered"), 1, logs)

  def test_terminated_coordinator_loses_no_round(self):
    job = self.start(checkpoint_every=0, checkpoint_interval=0)
    job.wait_for_rounds()
    self.assertEqual(job.kill(job.servers[0], signal.SIGTERM), 128 + signal.SIGTERM, job.logs())
    # The complete rounds are saved at once, and the open one once it has come.
    saved = [name for name in os.listdir(job.path("here/checkpoints")) if name.startswith("round-") and
             not name.endswith(".tmp")]
    self.assertTrue(saved, job.logs())
    self.assertGreater(int(max(saved).rsplit("-", maxsplit=1)[1]), 0)
    job.start_server(0)
    self.assertEqual(self.expect_done(job, [0, 0]), self.undisturbed_loss())


if __name__ == "__main__":
  WORKER = os.path.abspath(sys.argv.pop(2))
  SERVER = os.path.abspath(sys.argv.pop(1))
  unittest.main()
