#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two workers whose contributions travel as top-k, and weights as int4, train: the loss falls.

Usage: topk_test.py PS_SERVER GPU_WORKER PSCTL
"""
import json

import cluster_processes
from cluster_processes import ClusterTestCase

NUM_ROUNDS = 60


class TopKTest(ClusterTestCase):

  def losses(self, **flags):
    """Of the rounds of a job of two workers."""
    metrics = self.path("metrics.jsonl")
    self.start_server(exit_when_done=None, rounds=NUM_ROUNDS, min_workers=2, eval_samples=None,
                      metrics_out=metrics, push_encoding="topk", pull_encoding="int4", **flags)
    workers = [self.start_worker("a"), self.start_worker("b")]
    self.wait_for_status(lambda status: status["state"] == "done", "the end of the job")
    shown = self.psctl("status")
    self.assertIn("push topk (64 of 4096 in 2 bits", shown.stdout, shown.stderr)
    for worker in workers:
      self.assert_ends(worker)
    with open(metrics, encoding="ascii") as file:
      rows = [json.loads(line) for line in file]
    return [row["train_loss"] for row in rows if row.get("train_loss") is not None]

  def expect_to_learn(self, **flags):
    losses = self.losses(**flags)
    self.assertEqual(len(losses), NUM_ROUNDS)
    first = sum(losses[:5]) / 5
    last = sum(losses[-5:]) / 5
    self.assertLess(last, 0.9 * first, losses)

  def test_sync(self):
    self.expect_to_learn(mode="sync")

  def test_local_sgd(self):
    self.expect_to_learn(mode="local_sgd", local_steps=3, outer_optimizer="sgd",
                         outer_learning_rate=1)

  def test_local_sgd_by_senders(self):
    self.expect_to_learn(mode="local_sgd", local_steps=3, outer_optimizer="sgd",
                         outer_learning_rate=1, topk_divisor="senders")


if __name__ == "__main__":
  cluster_processes.main()
