# SPDX-License-Identifier: Apache-2.0
"""What is too slow, or needs too much of the machine, for the tests: each fault once, step by step.

Usage: checks.py PS_SERVER GPU_WORKER PSCTL. The one of the disk needs root, for a disk of its own.
"""
import filecmp
import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../process"))
# pylint: disable=wrong-import-position
from cluster_processes import BINARIES, ClusterTestCase, ReservedPort, alarms_in, main, wait_until
from fault_proxy import FaultProxy

HOUR_SECONDS = 3600
# Abseil before 2023 waits until a time of the wall clock: by as much, such waits take longer.
BACK_SECONDS = 4
STANDS_SECONDS = 3  # some hundred rounds


class CheckCase(ClusterTestCase):
  """A synchronous job with a journal and two workers, whose weights are known to the bit."""

  rounds = 600

  def start_job(self, server="server", address=None, workers=2, popen=None, of_workers=None, **flags):
    """The server, then its workers; `address` of the server for workers."""
    process = self.start_server(self.port, server, popen, mode="sync", rounds=self.rounds,
                                keep_workers=2, min_workers=2, lease="10s", **flags)
    return process, [self.start_worker_of(address or f"127.0.0.1:{self.port}", f"worker{i}", of_workers)
                     for i in range(workers)]

  def start_worker_of(self, address, name, popen=None):
    return self.start([BINARIES["gpu_worker"], f"--coordinator={address}", f"--name={name}",
                       f"--data={self.path('corpus.txt')}", "--device=cpu", "--threads=1"], name,
                      **(popen or {}))

  def lines(self, name="metrics.jsonl"):
    if not os.path.exists(self.path(name)):
      return []
    with open(self.path(name), encoding="utf-8") as file:
      return [json.loads(line) for line in file.read().split("\n")[:-1]]

  def last_round(self, name="metrics.jsonl"):
    lines = self.lines(name)
    return lines[-1]["round"] if lines else 0

  def wait_for_rounds(self, count, name="metrics.jsonl"):
    wanted = self.last_round(name) + count
    wait_until(lambda: self.last_round(name) >= wanted, lambda: f"round {wanted}:\n{self.logs()}")

  def assert_stands(self, name="metrics.jsonl"):
    """No round is over meanwhile; returns the last one."""
    before = self.last_round(name)
    time.sleep(STANDS_SECONDS)
    self.assertEqual(self.last_round(name), before, self.logs())
    return before

  def wait_for_alarm(self, *texts):
    self.wait_for_status(lambda status: all(text in alarms_in(status) for text in texts),
                         f"alarms with {texts}")

  def assert_same_weights(self, checkpoints):
    """As those of the same job that nothing happens to."""
    self.port = 0
    server, workers = self.start_job("undisturbed", checkpoint_dir=self.path("undisturbed"),
                                     metrics_out=self.path("undisturbed.jsonl"))
    for process in (server, *workers):
      self.assert_ends(process)
    name = f"round-{self.rounds:08d}"
    folder, reference = os.path.join(checkpoints, name), self.path("undisturbed", name)
    files = [file for file in os.listdir(reference) if file.endswith(".safetensors")]
    self.assertTrue(files)
    self.assertEqual(filecmp.cmpfiles(folder, reference, files, shallow=False), (files, [], []))


class PartitionCheck(CheckCase):

  def start_replica(self, port, machine):
    os.makedirs(self.path(machine))
    return self.start([BINARIES["ps_server"], "--replica", f"--listen=127.0.0.1:{port}",
                       "--checkpoint_dir=checkpoints", "--journal_dir=journal"], "replica of " + machine,
                      cwd=self.path(machine))

  def test_one_side_of_a_partition_goes_on(self):
    replica_port, server_port, new_port = (ReservedPort() for _ in range(3))
    for reserved in (replica_port, server_port, new_port):
      self.addCleanup(reserved.close)
    folders = {"checkpoint_dir": "checkpoints", "journal_dir": "journal", "durability": "journal"}
    with FaultProxy() as proxy:
      link = proxy.add_route("link", replica_port.number)
      workers_port = proxy.add_route("workers", server_port.number)
      replica = self.start_replica(replica_port.number, "there")
      os.makedirs(self.path("here"))
      self.port = server_port.number
      old, workers = self.start_job(
          "old", f"127.0.0.1:{workers_port}", popen={"cwd": self.path("here")},
          advertise=f"127.0.0.1:{workers_port}", journal_replica=f"127.0.0.1:{link}",
          metrics_out=self.path("old.jsonl"), **folders)
      self.wait_for_rounds(20, "old.jsonl")

      proxy.refuse("link")
      self.wait_for_alarm("no contribution is acknowledged until the replica has everything again")
      newcomer = self.start_worker_of(f"127.0.0.1:{self.port}", "newcomer")
      last = self.assert_stands("old.jsonl")
      self.assertLess(last, self.rounds // 2)

      # The other end becomes a server only if an operator says so.
      replica.kill()
      there = {"popen": {"cwd": self.path("there")}, "mode": "sync", "rounds": self.rounds,
               "keep_workers": 2, "min_workers": 2, "lease": "10s",
               "advertise": f"127.0.0.1:{workers_port}",
               "journal_replica": f"127.0.0.1:{replica_port.number}",
               "metrics_out": self.path("new.jsonl"), **folders}
      command = self.server_command(new_port.number, **{key: value for key, value in there.items()
                                                        if key != "popen"})
      refused = self.start(command, "refused", cwd=self.path("there"))
      self.assertEqual(refused.wait(), 1, refused.log())
      self.assertIn("has been a replica of the server on", refused.log())

      self.start_replica(replica_port.number, "fresh")
      new = self.start_server(new_port.number, "new", **there, promote=True)
      proxy.move("workers", new_port.number)
      self.wait_for_rounds(30, "new.jsonl")
      proxy.listen("link")
      self.assert_ends(old, 1)
      self.assertIn("has continued without this server", old.log())
      self.assertTrue(newcomer.is_running(), newcomer.log())
      for more in ([], ["--promote"]):
        again = self.start(
            self.server_command(
                server_port.number, mode="sync", rounds=self.rounds, keep_workers=2, min_workers=2,
                lease="10s", advertise=f"127.0.0.1:{workers_port}", journal_replica=f"127.0.0.1:{link}",
                metrics_out=self.path("old.jsonl"), **folders) + more, "again", cwd=self.path("here"))
        self.assertEqual(again.wait(), 1, again.log())
        self.assertIn("has continued without this server", again.log())
      for process in (new, *workers):
        self.assert_ends(process)
    rounds = [line["round"] for line in self.lines("new.jsonl")]
    self.assertLessEqual(rounds[0], last + 1)
    self.assertEqual(rounds, list(range(rounds[0], self.rounds + 1)))
    self.assertEqual(self.last_round("old.jsonl"), last)
    self.assertNotIn("registered with", newcomer.log())
    self.assert_same_weights(self.path("there", "checkpoints"))


@unittest.skipIf(os.getuid() != 0, "mounts a disk")
class ReadOnlyDiskCheck(CheckCase):

  def run_as_root(self, command):
    ran = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    self.assertIn(ran.returncode, (0, 1), f"{command}: {ran.stdout}{ran.stderr}")  # e2fsck: 1, mended

  def mount(self, image):
    self.run_as_root(f"mount -o loop {self.path(image)} {self.path('disk')}")

  def test_disk_that_becomes_read_only(self):
    os.makedirs(self.path("disk"))
    with open(self.path("image"), "wb") as image:
      image.truncate(64 << 20)
    self.run_as_root(f"mkfs.ext4 -q {self.path('image')}")
    self.mount("image")
    self.addCleanup(subprocess.run, ["umount", "-l", self.path("disk")], check=False)
    self.addCleanup(self._end_processes)
    flags = {"checkpoint_dir": self.path("disk", "run"), "durability": "journal", "checkpoint_interval": 0,
             "checkpoint_every": 100}
    server, workers = self.start_job(**flags)
    self.wait_for_rounds(20)

    self.run_as_root(f"chattr -R +i {self.path('disk', 'run')}")
    self.wait_for_alarm("cannot be written", "Operation not permitted")
    self.assert_stands()
    self.run_as_root(f"chattr -R -i {self.path('disk', 'run')}")
    self.wait_for_rounds(20)

    # The disk takes no writes any more, as after an error, whatever is open. This is done while nothing is being
    # written: Linux 6.18 may tell one of two writers then that data are synced which are lost.
    for worker in workers:
      worker.send(signal.SIGSTOP)
    self.assert_stands()
    self.run_as_root(f"mount -o remount,abort {self.path('disk')}")
    for worker in workers:
      worker.send(signal.SIGCONT)
    self.wait_for_alarm("cannot be written", "Read-only file system")
    self.assertLess(self.assert_stands(), self.rounds - 50)
    refused = self.run_server(**flags, mode="sync")
    self.assertEqual(refused[0], 1, refused[1])
    self.assertIn("Read-only file system", refused[1])
    server.kill()
    self.run_as_root(f"umount {self.path('disk')}")
    # The same disk to a kernel that may know it in other mount namespaces, as sandboxes have them.
    shutil.copy(self.path("image"), self.path("mended"))
    self.run_as_root(f"e2fsck -fp {self.path('mended')}")
    self.mount("mended")
    server, _ = self.start_job(workers=0, **flags)
    for process in (server, *workers):
      self.assert_ends(process)
    self.assertIn("continues from its journal: records=", server.log())
    self.assert_same_weights(self.path("disk", "run"))


class ClockCheck(CheckCase):

  rounds = 1500

  def test_wall_clock_that_is_set(self):
    library = self.path("shifted_clock.so")
    subprocess.run(["gcc", "-std=c11", "-O2", "-shared", "-fPIC", "-o", library,
                    os.path.join(HERE, "shifted_clock.c")], check=True)
    machines = {name: {"env": {**os.environ, "LD_PRELOAD": library, "SHIFTED_CLOCK": self.path(name)}}
                for name in ("clock of the server", "clock of the workers")}
    of_server, of_workers = machines.values()

    def shift(seconds, *clocks):
      for name in clocks:
        with open(self.path(name), "r+b" if os.path.exists(self.path(name)) else "wb") as file:
          file.write(struct.pack("q", seconds))

    shift(0, *machines)
    flags = {"durability": "journal", "checkpoint_interval": "1m", "checkpoint_dir": self.path("run")}
    server, workers = self.start_job(popen=of_server, of_workers=of_workers, **flags)
    self.wait_for_rounds(100)
    for seconds, clocks in ((HOUR_SECONDS, ["clock of the server"]), (HOUR_SECONDS, ["clock of the workers"]),
                            (HOUR_SECONDS - BACK_SECONDS, list(machines)), (24 * HOUR_SECONDS, list(machines))):
      shift(seconds, *clocks)
      since = time.monotonic()
      self.wait_for_rounds(100)
      print(f"{' and '.join(clocks)}: {seconds:+} s; 100 rounds after {time.monotonic() - since:.1f} s",
            flush=True)
    server.kill()
    # Its files are of a day in the future.
    shift(-HOUR_SECONDS, "clock of the server")
    server, _ = self.start_job(workers=0, popen=of_server, **flags)
    for process in (server, *workers):
      self.assert_ends(process)
    self.assertIn("continues from its journal: records=", server.log())
    self.assertNotIn("reason=lease expired", "".join(process.log() for process in self._processes))
    self.assert_same_weights(self.path("run"))


if __name__ == "__main__":
  main()
