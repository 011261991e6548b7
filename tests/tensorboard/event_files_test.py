#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""What TensorBoard reads of a job: see run.sh."""
import os

from tensorboard.backend.event_processing import event_accumulator, event_multiplexer

import cluster_processes


class EventFilesTest(cluster_processes.ClusterTestCase):

  def start_writing(self, **flags):
    return self.start_server(rounds=120, min_workers=1, eval_every=10, tensorboard_dir=self.path("board/run1"),
                             checkpoint_dir=self.path("kept"), checkpoint_every=10, **flags)

  def test_rounds_that_come_again_are_there_once(self):
    server = self.start_writing()
    port = self.port
    worker = self.start_worker("a")
    self.wait_for_status(lambda status: int(status.get("last_checkpoint", {}).get("round", 0)) >= 20, "checkpoints")
    server.kill()  # rounds since the checkpoint are lost, and come again
    server = self.start_writing(port=port)
    self.assert_ends(server)
    self.assert_ends(worker)
    self.assertEqual(len(os.listdir(self.path("board/run1"))), 2)

    board = event_multiplexer.EventMultiplexer(size_guidance={event_accumulator.SCALARS: 0})
    board.AddRunsFromDirectory(self.path("board"))
    board.Reload()
    self.assertEqual(set(board.Runs()), {"run1"})
    tags = set(board.Runs()["run1"]["scalars"])
    self.assertLessEqual({"loss/train", "loss/heldout", "progress/learning_rate", "progress/workers", "progress/samples",
                          "progress/seconds_of_round"}, tags)
    lines = self.metrics()
    losses = {line["round"]: line["train_loss"] for line in lines if line["train_loss"] is not None}
    events = board.Scalars("run1", "loss/train")
    self.assertEqual([event.step for event in events], sorted(losses))
    for event in events:
      self.assertAlmostEqual(event.value, losses[event.step], places=5)
    heldout = {line["round"]: line["heldout_loss"] for line in lines if line["heldout_loss"] is not None}
    self.assertEqual({event.step for event in board.Scalars("run1", "loss/heldout")}, set(heldout))


if __name__ == "__main__":
  cluster_processes.main()
