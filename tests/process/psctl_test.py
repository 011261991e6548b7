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

  def run_psctl(self, *arguments, code=0):
    """Without a server."""
    done = subprocess.run([BINARIES["psctl"], *arguments], capture_output=True,
                          encoding="utf-8", errors="surrogateescape",
                          timeout=cluster_processes.PATIENCE_SECONDS, check=False)
    self.assertEqual(done.returncode, code, done.stdout + done.stderr)
    return done

  def launch(self, *flags, server_flags=()):
    """One whose output has begun; self.port is its coordinator's then."""
    launch = self.start(self.launch_command(*flags, server_flags=server_flags), "launch")
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

  def test_a_folder_for_hugging_face_is_that_of_servers_and_of_their_checkpoint(self):
    launch = self.launch("--servers=2", server_flags=["--checkpoint_dir=" + self.path("runs")])
    launch.wait_for_log("the servers stay")
    online, offline = self.path("online"), self.path("offline")
    exported = self.psctl("export", "--format=huggingface", online)
    self.assertEqual(exported.returncode, 0, exported.stderr)
    self.assertEqual(self.psctl("stop").returncode, 0)
    self.assert_ends(launch)
    written = self.run_psctl("export", "--format=huggingface",
                             "--from=" + self.path("runs/round-00000003"), offline)
    self.assertIn("the weights of " + self.path("runs/round-00000003"), written.stdout)
    names = sorted(os.listdir(online))
    self.assertEqual(names, ["config.json", "generation_config.json", "model.safetensors",
                             "tokenizer.json", "tokenizer_config.json"])
    self.assertEqual(names, sorted(os.listdir(offline)))
    for name in names:
      with open(os.path.join(online, name), "rb") as a, open(os.path.join(offline, name), "rb") as b:
        self.assertEqual(a.read(), b.read(), name)
    texts = [self.run_psctl("generate", "--model=" + path, "--prompt=round ", *flags).stdout
             for path, *flags in ((online,), (offline + "/model.safetensors",),
                                  (self.path("runs/round-00000003"), "--tokenizer=" + online))]
    self.assertEqual(texts, [texts[0]] * 3)
    self.assertTrue(texts[0].startswith("round "), texts[0])
    self.assertIn("--force", self.run_psctl("export", "--format=huggingface", self.path("runs"),
                                            "--from=" + online, code=1).stderr)
    self.assertIn("which folder", self.run_psctl("export", "--format=huggingface", code=2).stderr)
    self.assertIn("neither tokenizer.json nor", self.run_psctl(
        "generate", "--model=" + online, "--tokenizer=" + self.path("runs"), code=1).stderr)

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
