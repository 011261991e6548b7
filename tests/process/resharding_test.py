#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Servers with a journal that are killed, and started again as another number of servers.

Usage: resharding_test.py PS_SERVER GPU_WORKER PSCTL
"""
import re

import cluster_processes
from cluster_processes import ClusterTestCase, ReservedPort, alarms_in


class ReshardingTest(ClusterTestCase):

  def setUp(self):
    super().setUp()
    reserved = ReservedPort()
    self.addCleanup(reserved.close)
    self.port = reserved.number
    self.run_folder = self.path("run")
    self.num_started = 0

  def start_shard(self, shard, num_shards):
    journal = {"durability": "journal", "checkpoint_dir": self.run_folder}
    command = self.server_command(self.port if shard == 0 else 0, f"{shard}/{num_shards}",
                                  exit_when_done=None, checkpoint_interval=0, **journal)
    if shard > 0:
      command += [f"--{name}={value}" for name, value in journal.items()]
    self.num_started += 1
    return self.start(command, f"server{self.num_started}")

  def test_killed_servers_go_on_as_another_number_without_losing_a_round(self):
    num_rounds = 0
    worker = self.start_worker("a")
    for num_shards in (2, 3, 1, 2):
      # Servers that are started before that of shard 0 do not keep it from their journals.
      others = [self.start_shard(shard, num_shards) for shard in range(1, num_shards)]
      for other in others:
        other.wait_for_log("no journal of shard" if num_rounds == 0 else "before it changes the journal of shard")
      if num_rounds > 0:
        # One that is killed while it saves what the journals have leaves it to the next one.
        killed = self.start_shard(0, num_shards)
        killed.wait_for_log("checkpoint begun")
        killed.kill()
      first = self.start_shard(0, num_shards)
      status = self.wait_for_round(num_rounds + 20)
      self.assertEqual(alarms_in(status), "", self.logs())
      if num_rounds > 0:
        resumed = re.search(r" resumes from .* round=(\d+) ", first.log())
        self.assertIsNotNone(resumed, first.log())
        self.assertGreaterEqual(int(resumed[1]), num_rounds, self.logs())
      for server in [first, *others]:
        server.kill()
      # A round whose line is in the file is over for good.
      num_rounds = self.metrics()[-1]["round"] + 1
    self.assertTrue(worker.is_running(), worker.log())


if __name__ == "__main__":
  cluster_processes.main()
