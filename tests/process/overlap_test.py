#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Workers that compute while they exchange: jobs end with every sample counted, whoever is told to
stop, killed, or restarted.

Usage: overlap_test.py PS_SERVER GPU_WORKER PSCTL
"""
import json
import signal

import cluster_processes
from cluster_processes import ClusterTestCase

STEPS = 6  # of a cycle
BATCH = 2


class OverlapTest(ClusterTestCase):

  def start_job(self, rounds, **flags):
    self.metrics = self.path("metrics.jsonl")
    return self.start_server(exit_when_done=None, rounds=rounds, min_workers=2, keep_workers=1,
                             eval_samples=None, metrics_out=self.metrics, mode="local_sgd",
                             local_steps=STEPS, batch_size=BATCH, global_batch_size=None, **flags)

  def rows(self):
    with open(self.metrics, encoding="ascii") as file:
      return [json.loads(line) for line in file]

  def expect_all_samples(self, rounds, fragments, **flags):
    """The first round takes nothing, and the last one gives nothing to compute."""
    self.start_job(rounds, **({"fragments": fragments} if fragments > 1 else {}), **flags)
    workers = [self.start_worker("a"), self.start_worker("b")]
    self.wait_for_status(lambda status: status["state"] == "done", "the end of the job")
    for worker in workers:
      self.assert_ends(worker)
    rows = [row for row in self.rows() if row["workers"] == 2]
    samples = [row["samples"] for row in rows][:rounds]
    window = 2 * BATCH * STEPS // fragments
    self.assertEqual(samples, [round * window for round in range(rounds)])
    losses = [row["train_loss"] for row in rows if row.get("train_loss") is not None]
    self.assertLess(losses[-1], 0.9 * losses[0], losses)

  def test_fragments(self):
    self.expect_all_samples(41, 2, overlap_steps=2)

  def test_fragments_that_are_mixed_in_four_bits(self):
    self.expect_all_samples(41, 2, overlap_steps=3, merge="mix", push_encoding="int4",
                            pull_encoding="int4")

  def test_overlapped_rounds(self):
    self.expect_all_samples(31, 1, overlap_rounds="true")

  def test_a_worker_that_is_told_to_stop_hands_in_what_it_has(self):
    self.start_job(100000, fragments=2, overlap_steps=1)
    first, second = self.start_worker("a"), self.start_worker("b")
    self.wait_for_status(lambda status: int(status["round"]) >= 10, "ten rounds")
    second.send(signal.SIGTERM)
    self.assert_ends(second)
    self.assertNotIn("not delivered", second.log())
    before = int(self.status()["round"])
    self.wait_for_status(lambda status: int(status["round"]) >= before + 5, "rounds of the other")
    stopped = self.psctl("stop")
    self.assertEqual(stopped.returncode, 0, stopped.stderr)
    self.assert_ends(first)
    # What the other had in hand when the job was stopped is counted, too.
    last, before = self.rows()[-1], self.rows()[-2]
    self.assertEqual(last["samples"] - before["samples"], BATCH * STEPS // 2)

  def test_a_worker_that_is_killed_and_one_that_comes_are_in_the_next_rounds(self):
    self.start_job(100000, fragments=2, overlap_steps=1, lease="1s")
    first, second = self.start_worker("a"), self.start_worker("b")
    self.wait_for_status(lambda status: int(status["round"]) >= 10, "ten rounds")
    second.send(signal.SIGKILL)
    third = self.start_worker("c")
    before = int(self.status()["round"])
    self.wait_for_status(
        lambda status: int(status["round"]) >= before + 20 and
        any(worker["name"] == "c" and int(worker.get("rounds_completed", 0)) > 5
            for worker in status["workers"]), "rounds of the one that came")
    self.psctl("stop")
    for worker in (first, third):
      self.assert_ends(worker)


if __name__ == "__main__":
  cluster_processes.main()
