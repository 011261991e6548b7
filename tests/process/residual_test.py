#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed and begun again with the same --name and --state_dir go on with what error
feedback had: the job ends with the weights of one that nobody disturbed, to the bit.

Nothing else may differ: both runs have the same two workers in every round (--keep_workers, and a
lease that outlives the pause), which compute the same; no worker keeps anything but the residual
from round to round (sync; local_sgd with an inner optimizer without state).

Usage: residual_test.py PS_SERVER GPU_WORKER PSCTL
"""
import os
import random
import signal
import time

import cluster_processes
from cluster_processes import BINARIES, ClusterTestCase, worker_in

ROUNDS = 240
KILLS = 10


class ResidualTest(ClusterTestCase):

  def start_named_worker(self, name, *flags):
    return self.start([BINARIES["gpu_worker"], f"--coordinator=127.0.0.1:{self.port}",
                       f"--name={name}", f"--data={self.path('corpus.txt')}", "--device=cpu",
                       "--threads=1", *flags], "worker_" + name)

  def train(self, run, worker_flags=(), kills=0, pause=None, **flags):
    """The final weights of a job with workers a and b, of which b is killed now and then; `pause` is
    called before it begins again."""
    server = self.start_server(
        name=run, exit_when_done=None, rounds=ROUNDS, min_workers=2, keep_workers=2,
        eval_samples=None, metrics_out=None,
        **{"push_encoding": "int8", "lease": "30s", **flags})
    worker_flags = [flag.replace("STATE", self.path("state_" + run)) for flag in worker_flags]
    first = self.start_named_worker("a", *worker_flags)
    first.wait_for_log("registered with")  # has the lower id in every run
    second = self.start_named_worker("b", *worker_flags)
    second.wait_for_log("registered with")
    self.first_row = worker_in(self.status(), "b")
    chance = random.Random(run)
    self.later_logs = []  # of b, once it has been killed
    for kill in range(1, kills + 1):
      self.wait_for_status(lambda status: int(status["round"]) >= kill * ROUNDS // (2 * kills),
                           f"round of kill {kill}")
      time.sleep(chance.uniform(0.0, 0.03))
      second.send(signal.SIGKILL)  # and may still be there when the next one begins
      if pause is not None:
        pause()
      second = self.start_named_worker("b", *worker_flags)
      second.wait_for_log("registered with")
      self.later_logs.append(second)
    self.wait_for_status(lambda status: status["state"] == "done", "the end of the job")
    for worker in (first, second):
      self.assert_ends(worker)
    self.later_logs = [worker.log() for worker in self.later_logs]
    self.last_row = worker_in(self.status(), "b")
    self.last_text = self.psctl("workers").stdout
    out = self.path(run + ".safetensors")
    exported = self.psctl("export", "--out=" + out)
    self.assertEqual(exported.returncode, 0, exported.stderr)
    server.kill()
    with open(out, "rb") as file:
      return file.read()

  def expect_undisturbed(self, *worker_flags, **flags):
    calm = self.train("calm", worker_flags, **flags)
    killed = self.train("killed", worker_flags, kills=KILLS, **flags)
    self.assertTrue(killed == calm, "other weights\n" + self.logs())
    # It was killed while it had a residual, and the life went on.
    taken_up = [log for log in self.later_logs if "continues with the residual of round" in log]
    self.assertGreater(len(taken_up), KILLS // 2, self.logs())
    self.assertEqual(self.last_row["incarnation"], self.first_row["incarnation"])
    self.assertEqual(int(self.last_row.get("residuals_lost", 0)), 0)
    # Nothing is left of a job that is done.
    self.assertEqual(os.listdir(self.path("state_killed", "residuals", "b")), ["LOCK"])

  def test_sync(self):
    self.expect_undisturbed("--state_dir=STATE", "--keep_residuals=always", mode="sync")

  def test_local_sgd(self):
    self.expect_undisturbed("--state_dir=STATE", mode="local_sgd", local_steps=3, optimizer="sgd",
                            learning_rate=0.05)

  def test_local_sgd_with_topk(self):
    self.expect_undisturbed("--state_dir=STATE", mode="local_sgd", local_steps=3, optimizer="sgd",
                            learning_rate=0.05, outer_optimizer="sgd", outer_learning_rate=1,
                            push_encoding="topk", pull_encoding="int4")

  def test_without_a_folder_the_loss_is_told(self):
    calm = self.train("calm", mode="sync")
    self.assertFalse(self.train("killed", kills=1, mode="sync", lease="2s") == calm)
    self.assertIn("error feedback is reset", self.later_logs[0])
    self.assertEqual(int(self.last_row["residuals_lost"]), 1)
    self.assertIn("began without the residual of its earlier rounds", self.last_text)

  def test_after_its_lease_the_servers_tell_what_was_counted(self):
    def await_expiry():
      self.wait_for_status(lambda status: worker_in(status, "b").get("state") == "expired",
                           "the end of its lease")

    self.train("killed", ["--state_dir=STATE"], kills=2, pause=await_expiry, mode="local_sgd",
               local_steps=3, lease="1s")
    for log in self.later_logs:
      self.assertRegex(log, r"continues with the residual of round \d+; the servers have counted \d+ of \d+ buckets")
    self.assertEqual(int(self.last_row.get("residuals_lost", 0)), 0)


if __name__ == "__main__":
  cluster_processes.main()
