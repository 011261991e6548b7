#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""What a server finds out before it opens its port, and what it says about where it starts.

Usage: start_checks_test.py PS_SERVER GPU_WORKER PSCTL
"""
import os
import resource
import signal
import subprocess
import time

import cluster_processes
from cluster_processes import BINARIES, ClusterTestCase, alarms_in, wait_until

FAILED = 1
BAD_FLAGS = 2
TRY_AGAIN = 129


class StartChecksTest(ClusterTestCase):

  def setUp(self):
    super().setUp()
    self.checkpoints = self.path("checkpoints")

  def assert_refused(self, *texts, expected_code=FAILED, **flags):
    """Refused before the port is open, so that nobody has connected."""
    port_file = self.path("refused_port")
    code, log = self.run_server(port_file=port_file, **flags)
    self.assertEqual(code, expected_code, log)
    self.assertFalse(os.path.exists(port_file), log)
    for text in texts:
      self.assertIn(text, log)

  def train(self, **flags):
    server = self.start_server(checkpoint_dir=self.checkpoints, **flags)
    self.assert_ends(self.start_worker("a"))
    self.assert_ends(server)

  def status_of(self, server):
    status = self.wait_for_status(lambda status: status["state"] == "waiting_for_workers", "state")
    server.kill(signal.SIGKILL)
    return status

  def test_folder_that_cannot_be_written_is_refused(self):
    self.assert_refused("--checkpoint_dir=/proc/foo/ck", "cannot create directory",
                        checkpoint_dir="/proc/foo/ck")
    self.assert_refused("--fallback_dir=" + self.path("corpus.txt"),
                        checkpoint_dir=self.checkpoints, fallback_dir=self.path("corpus.txt"))

  def test_port_of_an_earlier_run_is_gone_before_the_server_waits(self):
    self.write("old_port", "50051\n")
    replica = cluster_processes.ReservedPort()  # nothing answers there
    self.addCleanup(replica.close)
    waiting = self.start(self.server_command(
        port_file=self.path("old_port"), checkpoint_dir=self.checkpoints, durability="journal",
        journal_replica=f"127.0.0.1:{replica.number}"), "waiting")
    wait_until(lambda: not os.path.exists(self.path("old_port")) or not waiting.is_running(),
               lambda: "the end of the old port:\n" + waiting.log())
    self.assertTrue(waiting.is_running(), waiting.log())
    waiting.send(signal.SIGTERM)
    waiting.wait()
    server = self.start_server(metrics_out=None)
    server.send(signal.SIGTERM)
    self.assert_ends(server, 128 + signal.SIGTERM)
    self.assertFalse(os.path.exists(self.path("port")), server.log())

  def test_files_of_another_kind_are_not_replaced(self):
    corpus = self.path("corpus.txt")
    with open(corpus, "rb") as file:
      before = file.read()
    os.makedirs(self.path("round-00000039"))
    self.write("round-00000039/MANIFEST.json", "{}")
    for flag in ("trace", "port_file", "metrics_out", "tensorboard_dir"):
      for path in (corpus, self.path("round-00000039", "new")):
        code, log = self.run_server(**{flag: path})
        self.assertEqual(code, FAILED, log)
        self.assertIn(f"--{flag}={path}", log)
    self.assertEqual(os.listdir(self.path("round-00000039")), ["MANIFEST.json"])
    self.port = cluster_processes.ReservedPort().number
    for path in (corpus, self.path("round-00000039", "new")):
      worker = self.start_worker("a", "corpus.txt", "--trace=" + path)
      self.assertEqual(worker.wait(), BAD_FLAGS, worker.log())
      self.assertIn("--trace=" + path, worker.log())
    with open(corpus, "rb") as file:
      self.assertEqual(file.read(), before)

  def test_worker_that_reaches_no_server_gives_up_and_names_the_address(self):
    port = cluster_processes.ReservedPort()
    self.addCleanup(port.close)
    self.port = port.number
    worker = self.start_worker("late", "corpus.txt", "--connect_timeout=1s")
    self.assert_ends(worker, TRY_AGAIN)
    self.assertIn(f"127.0.0.1:{port.number} for up to 1s more", worker.log())
    self.assertIn("--connect_timeout", worker.log())

  def test_job_that_needs_more_memory_than_there_is_is_refused(self):
    self.assert_refused("this server needs", "weights", "--memory_limit has", "--shard=I/K",
                        model="gpt-mini", memory_limit=50_000_000)

  def test_checkpoints_beyond_the_limit_of_file_sizes_are_refused_and_later_an_alarm(self):
    limit = 20_000  # bytes; the weights have more
    hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def limit_files():
      resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard_limit))

    port_file = self.path("refused_port")
    refused = self.start(self.server_command(checkpoint_dir=self.checkpoints, port_file=port_file),
                         "limited", preexec_fn=limit_files)
    self.assertEqual(refused.wait(), FAILED)
    self.assertIn(f"{limit} bytes; raise that limit (ulimit -f", refused.log())
    self.assertFalse(os.path.exists(port_file))

    server = self.start_server(checkpoint_dir=self.checkpoints, metrics_out=None)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, hard_limit))
    self.assertEqual(self.psctl("checkpoint").returncode, TRY_AGAIN)
    self.assertIn(f"files of this process is {limit} bytes", alarms_in(self.status()))
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
    self.assertEqual(self.psctl("checkpoint").returncode, 0)

    for flags in (["--out=" + self.path("m.safetensors")],
                  ["--format=huggingface", "--out=" + self.path("m")]):
      export = subprocess.run(
          [BINARIES["psctl"], "export", f"--server=127.0.0.1:{self.port}", *flags],
          capture_output=True, text=True, check=False, preexec_fn=limit_files)
      self.assertEqual(export.returncode, FAILED, export.stderr)
      self.assertIn(f"files of this process is {limit} bytes", export.stderr)
    self.assertFalse([name for name in os.listdir(self.folder)
                      if name == "m" or name.startswith("m.")], "psctl export leaves nothing")

  def test_second_server_on_a_folder_is_refused_until_the_first_is_gone(self):
    first = self.start_server(checkpoint_dir=self.checkpoints)
    self.assert_refused("--checkpoint_dir=" + self.checkpoints, f"process {first.pid}",
                        "Stop that server", expected_code=TRY_AGAIN,
                        checkpoint_dir=self.checkpoints)
    first.kill(signal.SIGKILL)
    restarted_at = time.monotonic()
    again = self.start_server(name="again", checkpoint_dir=self.checkpoints)
    print(f"after kill -9 of the holder: listens {time.monotonic() - restarted_at:.2f} s later")
    self.assertIn(f"process {first.pid}", again.log())
    # Nothing was saved: the operator hears that the rounds of the first are gone.
    self.assertIn("begins at round 0", alarms_in(self.status_of(again)))

  def test_server_of_another_shard_touches_the_folder_that_it_was_given_and_no_other(self):
    coordinator = self.start_server(shard="0/2", checkpoint_dir="checkpoints",
                                    popen={"cwd": self.folder})
    self.start(self.server_command(shard="1/2") + ["--checkpoint_dir=elsewhere"], "shard1",
               cwd=self.folder)
    self.assert_ends(coordinator, FAILED)
    self.assertIn(f"this server refuses the coordinator's order to use {self.checkpoints}: this server's flags "
                  "give only elsewhere", coordinator.log())

  def test_without_a_folder_an_alarm_says_that_nothing_is_saved(self):
    self.assertIn("NOTHING IS SAVED", alarms_in(self.status_of(self.start_server())))

  def test_changed_settings_are_told_and_contradictions_refused(self):
    self.train(rounds=10)
    self.assert_refused("--seed=7 contradicts --seed=1", "--mode=async contradicts --mode=sync",
                        "--init_from=" + self.checkpoints, checkpoint_dir=self.checkpoints, seed=7,
                        mode="async")
    server = self.start_server(checkpoint_dir=self.checkpoints, rounds=20, batch_size=4)
    status = self.status_of(server)
    changes = {change["flag"]: (change["saved"], change["asked"])
               for change in status["resumed"]["changes"]}
    self.assertEqual(changes, {"rounds": ("10", "20"), "batch_size": ("2", "4")})
    self.assertIn("setting     checkpoint  asked  what happens", server.log())
    # The same weights for another job.
    other = self.start_server(checkpoint_dir=self.path("other"), seed=7, mode="async",
                              init_from=os.path.join(self.checkpoints, "round-00000010"))
    self.assertNotIn("resumed", [key for key, value in self.status_of(other).items() if value])

  def test_rate_that_leaps_where_a_cosine_run_is_extended_asks_for_a_flag(self):
    cosine = {"lr_schedule": "cosine", "learning_rate": "1e-2", "min_learning_rate": "1e-4"}
    self.train(rounds=10, **cosine)
    extended = {"checkpoint_dir": self.checkpoints, "rounds": 20, **cosine}
    self.assert_refused("0.0001", "0.00505", "--accept_higher_rate", "--rounds=10", **extended)
    status = self.status_of(self.start_server(accept_higher_rate=True, **extended))
    changes = {change["flag"]: (change["saved"], change["asked"])
               for change in status["resumed"]["changes"]}
    self.assertEqual(changes, {"rounds": ("10", "20"), "rate": ("0.0001", "0.00505")})

  def test_buckets_and_what_a_shell_has_left_are_no_folders(self):
    for folder in ("s3://bucket/run", "$HOME/run", '"run"', "run "):
      for flag in ("checkpoint_dir", "fallback_dir", "journal_dir", "metrics_out"):
        self.assert_refused("--" + flag, folder, expected_code=BAD_FLAGS, **{flag: folder})

  def test_starting_anew_beside_checkpoints_is_an_alarm(self):
    self.train(rounds=10)
    status = self.status_of(self.start_server(checkpoint_dir=self.checkpoints, resume="never"))
    self.assertIn("although there are checkpoints of an earlier run", alarms_in(status))
    self.assertIn("round-00000010", alarms_in(status))


if __name__ == "__main__":
  cluster_processes.main()
