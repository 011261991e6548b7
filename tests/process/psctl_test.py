#!/usr/bin/python3 -B
"""`psctl launch` and `psctl status` as people and scripts use them.

Usage: psctl_test.py PS_SERVER GPU_WORKER PSCTL
"""
import json
import os
import re
import signal
import subprocess

import cluster_processes
from cluster_processes import BINARIES, ClusterTestCase, wait_until

WAITS = 131  # exit code of psctl status


class LaunchTest(ClusterTestCase):

  def launch_command(self, *flags, server_flags=()):
    return [BINARIES["psctl"], "launch", "--workers=1", "--device=cpu",
            "--data=" + self.path("corpus.txt"), *flags, "--",
            "--model=" + self.path("model.textproto"), "--rounds=3", "--batch_size=2",
            "--eval_samples=8", *server_flags]

  def launch(self, *flags):
    """One whose output has begun; self.port is its coordinator's then."""
    launch = self.start(self.launch_command(*flags), "launch")
    launch.wait_for_log("psctl status --server=")
    self.port = int(re.search(r"psctl status --server=127.0.0.1:(\d+)", launch.log()).group(1))
    return launch

  def test_servers_stay_for_an_export_until_they_are_told_to_stop(self):
    launch = self.launch("--servers=2")
    launch.wait_for_log("the servers stay")
    model = self.path("model.safetensors")
    exported = self.psctl("export", "--out=" + model)
    self.assertEqual(exported.returncode, 0, exported.stderr)
    self.assertRegex(exported.stdout, rf"the weights of job \S+ at 127.0.0.1:{self.port} after 3 of 3 rounds$")
    launch.send(signal.SIGINT)
    self.assert_ends(launch)
    with open(model, "rb") as file:
      self.assertGreater(len(file.read()), 1000)

  def test_ends_with_the_job_if_asked(self):
    launch = self.launch("--exit_when_done")
    self.assert_ends(launch)
    self.assertNotIn("the servers stay", launch.log())

  def test_refuses_server_flags_that_it_decides_itself(self):
    for flag in ("--listen=127.0.0.1:0", "--shard=0/2"):
      refused = subprocess.run(self.launch_command(server_flags=[flag]), capture_output=True,
                               text=True, timeout=cluster_processes.PATIENCE_SECONDS, check=False)
      self.assertEqual(refused.returncode, 2, refused.stdout)
      self.assertIn(flag.partition("=")[0] + " (behind --)", refused.stderr)
      self.assertEqual(refused.stdout, "")


class StatusTest(ClusterTestCase):

  def test_the_code_tells_the_health_and_json_is_json(self):
    self.start_server(min_workers=1)
    self.assertEqual(self.psctl("status").returncode, WAITS)
    self.start_worker("a")
    self.wait_for_round(3)
    self.assertEqual(self.psctl("status").returncode, 0)
    rows = [json.loads(row) for row in self.psctl("workers", "--json").stdout.split("\n")[:-1]]
    self.assertEqual([row["name"] for row in rows], ["a"])

  def test_watching_goes_on_behind_a_restart_and_ends_with_the_job(self):
    server = self.start_server(checkpoint_dir=self.path("checkpoints"))
    port = self.port
    worker = self.start_worker("a")
    self.wait_for_round(1)
    path = self.psctl("checkpoint", "--to=" + self.path("backups")).stdout.strip()
    self.assertTrue(path.startswith(self.path("backups/round-")), path)
    verified = subprocess.run([BINARIES["psctl"], "verify", path], capture_output=True, text=True,
                              timeout=cluster_processes.PATIENCE_SECONDS, check=True)
    self.assertIn(path + "  whole: round ", verified.stdout)
    watch = self.start([BINARIES["psctl"], "status", "--watch", "--json",
                        f"--server=127.0.0.1:{port}"], "watch")
    watch.wait_for_log("server_incarnation")
    server.kill()
    watch.wait_for_log("no answer for 1s")
    server = self.start_server(port=port, checkpoint_dir=self.path("checkpoints"))

    def lives_seen():
      return len(set(re.findall(r'"server_incarnation":"(\d+)"', watch.log())))

    wait_until(lambda: lives_seen() == 2 or not watch.is_running(), watch.log)
    self.wait_for_round(1)  # and for the worker, which the restarted server does not know at first
    self.stop_job(server, worker)
    self.assert_ends(watch)
    self.assertEqual(lives_seen(), 2)


class RollBackTest(ClusterTestCase):

  def test_a_server_that_is_killed_right_after_the_answer_has_gone_back(self):
    flags = {"checkpoint_dir": self.path("checkpoints"), "durability": "journal",
             "checkpoint_every": 2, "checkpoint_keep": 1000}
    server = self.start_server(**flags)
    worker = self.start_worker("a")
    self.wait_for_status(lambda status: int(status.get("last_checkpoint", {}).get("round", 0)) >= 6,
                         "three checkpoints")
    worker.kill()
    back = self.psctl("rollback", "--round=3")
    server.kill()
    self.assertEqual(back.returncode, 0, back.stderr)
    self.assertIn("the job goes on from " + self.path("checkpoints/round-00000002"), back.stdout)
    names = [name for name in os.listdir(self.path("checkpoints"))
             if re.fullmatch(r"round-\d+", name)]
    self.assertEqual(names, ["round-00000002"])
    server = self.start_server(**flags)
    self.assertEqual(self.wait_for_status(lambda status: status["state"] == "waiting_for_workers",
                                          "the server")["round"], "2")
    back = self.psctl("rollback", "--round=1")
    self.assertEqual(back.returncode, 1)
    self.assertIn("the oldest is of round 2", back.stderr)


if __name__ == "__main__":
  cluster_processes.main()
