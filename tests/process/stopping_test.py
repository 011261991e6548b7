#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Servers that are told to stop, together or one by one, and what of the training is on disk then.

Usage: stopping_test.py PS_SERVER GPU_WORKER PSCTL
"""
import os
import shutil
import signal

import cluster_processes
from cluster_processes import BINARIES, ClusterTestCase, wait_until

NOT_SAVED = 3


class StoppingTest(ClusterTestCase):

  def setUp(self):
    super().setUp()
    self.checkpoints = self.path("checkpoints")

  def start_two_servers(self):
    servers = [self.start_server(shard="0/2", checkpoint_dir=self.checkpoints)]
    servers.append(self.start(self.server_command(shard="1/2"), "server1"))
    return servers

  def saved(self, folder):
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

  def assert_saved(self, number):
    self.assertIn(f"round-{number:08d}", self.saved(self.checkpoints), self.logs())

  def is_awaited(self, worker):
    """Whether an open round waits for this worker's contribution."""
    missing = self.status().get("open_round", {}).get("missing", [])
    return worker in [row["worker"] for row in missing]

  def test_servers_told_to_stop_together_save_the_last_round(self):
    servers = self.start_two_servers()
    worker = self.start_worker("a")
    self.wait_for_round(5)
    for server in servers:
      server.send(signal.SIGTERM)
    for server in servers:
      self.assert_ends(server, 128 + signal.SIGTERM)
    self.assert_saved(self.metrics()[-1]["round"] + 1)
    worker.kill()

  def test_terminal_and_reader_of_the_log_that_are_gone_cost_nothing(self):
    log_reader, log_writer = os.pipe()
    server = self.start_server(checkpoint_dir=self.checkpoints, popen={"output": log_writer})
    os.close(log_writer)
    worker = self.start_worker("a")
    self.wait_for_round(5)
    os.close(log_reader)
    server.send(signal.SIGHUP)
    self.assert_ends(server, 128 + signal.SIGHUP)
    self.assert_saved(self.metrics()[-1]["round"] + 1)
    worker.kill()

  def test_second_signal_stops_at_once_and_says_what_is_not_saved(self):
    server = self.start_server(checkpoint_dir=self.checkpoints, lease="1m", stop_timeout="1h")
    worker = self.start_worker("a")
    self.wait_for_round(5)
    # It holds its round, which therefore cannot be saved.
    worker.send(signal.SIGSTOP)
    while not self.is_awaited("a"):
      worker.send(signal.SIGCONT)
      worker.send(signal.SIGSTOP)
    server.send(signal.SIGTERM)
    server.wait_for_log("signal=15")
    self.send_again(server, signal.SIGTERM)
    self.assert_ends(server, 128 + signal.SIGTERM)
    self.assertIn("are in no checkpoint", server.log())

  def test_complete_rounds_are_saved_before_a_kill_that_follows(self):
    server = self.start_server(checkpoint_dir=self.checkpoints, mode="local_sgd",
                               local_steps=20000, checkpoint_interval="0")
    worker = self.start_worker("a")
    wait_until(lambda: self.is_awaited("a") or not worker.is_running(), self.logs)
    # The first round ends early, the second one is open for long.
    worker.send(signal.SIGTERM)
    self.assert_ends(worker)
    self.assertEqual(self.saved(self.checkpoints).count("round-00000001"), 0)
    self.start_worker("b")
    wait_until(lambda: len(self.metrics()) == 1 and self.is_awaited("b"), self.logs)
    server.send(signal.SIGTERM)
    server.wait_for_log("checkpoint published")
    server.kill()
    self.assert_saved(1)

  def launch_two_servers(self):
    launch = self.start(
        [BINARIES["psctl"], "launch", "--servers=2", "--workers=2", "--device=cpu",
         "--data=" + self.path("corpus.txt"), "--", "--model=" + self.path("model.textproto"),
         "--rounds=1000000", "--batch_size=2", "--eval_samples=8",
         "--metrics_out=" + self.path("metrics.jsonl"), "--checkpoint_dir=" + self.checkpoints],
        "launch")
    wait_until(lambda: len(self.metrics()) > 5 or not launch.is_running(), self.logs)
    return launch

  def assert_launch_has_saved(self, launch, number):
    self.assert_ends(launch, 128 + number)
    self.assert_saved(self.metrics()[-1]["round"] + 1)
    self.assertNotIn("was killed by signal 9", launch.log())  # no process had to be killed

  def test_launch_that_gets_two_signals_at_once_saves_the_last_round(self):
    launch = self.launch_two_servers()
    launch.send(signal.SIGINT)
    launch.send(signal.SIGTERM)
    launch.send(signal.SIGINT)
    self.assert_launch_has_saved(launch, signal.SIGINT)

  def test_launch_whose_processes_are_all_told_at_once_saves_the_last_round(self):
    launch = self.launch_two_servers()
    with open(f"/proc/{launch.pid}/task/{launch.pid}/children", encoding="ascii") as file:
      roles = [int(pid) for pid in file.read().split()]
    self.assertEqual(len(roles), 4)
    for pid in roles:
      os.kill(pid, signal.SIGTERM)
    launch.send(signal.SIGTERM)
    self.assert_launch_has_saved(launch, signal.SIGTERM)

  def test_worker_that_gets_two_signals_at_once_hands_in(self):
    server = self.start_server(lease="1m")
    worker = self.start_worker("a")
    self.wait_for_round(5)
    worker.send(signal.SIGINT)
    worker.send(signal.SIGTERM)
    self.assert_ends(worker)
    server.kill()

  def test_save_signals_save_and_all_go_on(self):
    server = self.start_server(checkpoint_dir=self.checkpoints)
    worker = self.start_worker("a")
    self.wait_for_round(5)
    for process in (worker, server):
      process.send(signal.SIGUSR1)
    server.wait_for_log("saved the checkpoint that a signal asked for")
    saved = self.saved(self.checkpoints)
    self.assertTrue([name for name in saved if name.startswith("round-")], saved)
    self.wait_for_round(len(self.metrics()) + 5)
    self.stop_job(server, worker)

  def test_last_save_that_fails_goes_to_the_fallback_and_the_code_says_so(self):
    server = self.start_server(checkpoint_dir=self.checkpoints, rounds=1500,
                               fallback_dir=self.path("spare"))
    worker = self.start_worker("a")
    self.wait_for_round(5)
    shutil.rmtree(self.checkpoints, ignore_errors=True)
    self.write("checkpoints", "a file where the folder was")
    self.assert_ends(worker)
    self.assert_ends(server, NOT_SAVED)
    self.assertIn("round-00001500", self.saved(self.path("spare")))
    self.assertIn("it is in --fallback_dir: " + self.path("spare"), server.log())
    os.remove(self.checkpoints)
    again = self.start_server(checkpoint_dir=self.checkpoints, rounds=1500,
                              fallback_dir=self.path("spare"))
    self.assert_ends(again)
    self.assertIn("round-00001500", again.log())


if __name__ == "__main__":
  cluster_processes.main()
