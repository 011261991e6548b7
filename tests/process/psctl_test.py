#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""psctl as people and scripts use it.

Usage: psctl_test.py PS_SERVER GPU_WORKER PSCTL
"""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios

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
    launch.wait_for_log("the servers keep running")
    model = self.path("model.safetensors")
    exported = self.psctl("export", "--out=" + model)
    self.assertEqual(exported.returncode, 0, exported.stderr)
    self.assertRegex(exported.stdout, rf"the weights of job \S+ at 127.0.0.1:{self.port} after 3 of 3 rounds$")
    launch.send(signal.SIGINT)
    self.assert_ends(launch)
    with open(model, "rb") as file:
      self.assertGreater(len(file.read()), 1000)

  def test_servers_of_a_launcher_that_is_killed_save_and_end(self):
    launch = self.launch(server_flags=["--rounds=1000000", "--checkpoint_interval=0",
                                       "--checkpoint_dir=" + self.path("runs")])
    self.addCleanup(self.psctl, "stop")
    self.wait_for_round(3)
    launch.kill(signal.SIGKILL)

    def is_saved():
      return any(re.fullmatch(r"round-\d+", name) for name in os.listdir(self.path("runs")))

    wait_until(is_saved, lambda: "the last checkpoint:\n" + launch.log())
    wait_until(lambda: self.psctl("status").returncode == 129, lambda: "the end of the server")

  def test_all_that_are_launched_log_alike_and_begin_together(self):
    launch = self.start([part for part in self.launch_command("--exit_when_done", "--workers=3",
                                                              server_flags=["--log_format=json", "--log_level=debug"])
                         if part != "--workers=1"], "launch")
    self.assert_ends(launch)
    lines = {}
    for line in launch.log().split("\n"):
      role, _, text = line.partition("] ")
      if text.startswith("{"):
        lines.setdefault(role.lstrip("["), []).append(json.loads(text))
    self.assertEqual({role.split("-")[0] for role in lines}, {"server", "worker"})
    self.assertEqual(len(lines), 4, launch.log())
    begun = [line for line in lines["server-0"] if line["message"].startswith("round opened round=0 ")]
    self.assertRegex(begun[0]["message"], r" workers=3$")
    for role in ("worker-0", "worker-1", "worker-2"):
      self.assertTrue([line for line in lines[role] if line["level"] == "debug"], role)

  def test_a_folder_for_hugging_face_is_that_of_servers_and_of_their_checkpoint(self):
    launch = self.launch("--servers=2", server_flags=["--checkpoint_dir=" + self.path("runs")])
    launch.wait_for_log("the servers keep running")
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
    for flags in ([], ["--force"], ["--format=huggingface"]):
      shard = self.path("runs/round-00000003/shard-00000-of-00002.safetensors")
      refused = self.run_psctl("export", "--from=" + online, *flags,
                               os.path.dirname(shard) if "--format=huggingface" in flags else shard, code=2)
      self.assertIn("round-00000003", refused.stderr)
    self.run_psctl("verify", self.path("runs/round-00000003"))
    texts = [self.run_psctl("generate", "--model=" + path, "--prompt=round ", *flags).stdout
             for path, *flags in ((online,), (offline + "/model.safetensors",),
                                  (self.path("runs/round-00000003"), "--tokenizer=" + online))]
    self.assertEqual(texts, [texts[0]] * 3)
    self.assertTrue(texts[0].startswith("round "), texts[0])
    self.assertIn("--force", self.run_psctl("export", "--format=huggingface", self.path("runs"),
                                            "--from=" + online, code=1).stderr)
    self.assertIn("the folder is missing", self.run_psctl("export", "--format=huggingface", code=2).stderr)
    self.assertIn("neither tokenizer.json nor", self.run_psctl(
        "generate", "--model=" + online, "--tokenizer=" + self.path("runs"), code=1).stderr)

  def test_a_long_reason_is_refused_by_name(self):
    for order in (["pause"], ["stop"], ["evict", "a"], ["rollback", "--round=1"]):
      refused = self.run_psctl(*order, "--reason=" + 257 * "x", code=2)
      self.assertIn("--reason has 257 bytes", refused.stderr)

  def test_words_behind_two_dashes_are_no_flags(self):
    self.assertIn("'-y'", self.run_psctl("rollback", "--", "-y", code=2).stderr)
    missing = self.run_psctl("verify", "--", "-missing", code=1)
    self.assertIn("-missing", missing.stdout + missing.stderr)

  def launch_on_hosts(self, *flags, server_flags=()):
    """Over what does as ssh does, on this machine; keys are in the folder of the test."""
    self.write("ssh", """#!/bin/sh
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
host="$1"
shift
echo "connected to $host" >&2
{ cat; sleep 0.3; } | sh -c "$*"
""")
    os.chmod(self.path("ssh"), 0o755)
    self.write("hosts", "a workers=2\nb\n")
    command = [part for part in self.launch_command(*flags, server_flags=server_flags) if part != "--workers=1"]
    place = command.index("--")
    command[place:place] = ["--hosts=" + self.path("hosts"), "--ssh=" + self.path("ssh"), "--address=127.0.0.1",
                            "--worker_program=" + os.path.abspath(BINARIES["gpu_worker"])]
    self.environment = {**os.environ, "XDG_STATE_HOME": self.path("home")}
    os.makedirs(self.path("home"), mode=0o700)
    launch = self.start(command, "launch", env=self.environment)
    launch.wait_for_log("psctl status --server=")
    self.port = int(re.search(r"psctl status --server=127.0.0.1:(\d+)", launch.log()).group(1))
    return launch

  def test_workers_on_hosts_join_in_tls_and_the_job_comes_to_its_end(self):
    launch = self.launch_on_hosts("--exit_when_done", server_flags=["--min_workers=3"])
    self.assert_ends(launch)
    for role in ("worker-0 a", "worker-1 a", "worker-2 b"):
      self.assertIn(f"[{role}] ", launch.log())
    self.assertIn("worker joined name=worker-2", launch.log())
    self.assertNotIn("lodestar://", launch.log())

  def test_workers_on_hosts_hand_in_when_the_launch_is_told_to_end(self):
    launch = self.launch_on_hosts(server_flags=["--min_workers=3", "--rounds=1000000",
                                                "--checkpoint_dir=" + self.path("runs")])
    launch.wait_for_log("3 workers")
    launch.send(signal.SIGINT)
    self.assert_ends(launch, code=130)
    self.assertEqual(launch.log().count("reason=left: told to stop"), 3, launch.log())
    self.assertTrue([name for name in os.listdir(self.path("runs")) if name.startswith("round-")])

  def test_a_worker_that_is_killed_is_started_again_if_asked(self):
    launch = self.launch("--restart=1", server_flags=["--rounds=1000000", "--lease=1s"])
    launch.wait_for_log("1 worker")
    killed = subprocess.run(["pkill", "-KILL", "-f", f"gpu_worker .*--coordinator=127.0.0.1:{self.port}"], check=False)
    self.assertEqual(killed.returncode, 0)
    launch.wait_for_log("[launch] worker-0 was killed by signal 9 (SIGKILL), and is started again (restart 1 of at most 1)")
    launch.wait_for_log("incarnation=")
    wait_until(lambda: launch.log().count("worker joined name=worker-0") == 2 or not launch.is_running(), launch.log)
    subprocess.run(["pkill", "-KILL", "-f", f"gpu_worker .*--coordinator=127.0.0.1:{self.port}"], check=False)
    self.assert_ends(launch, code=137)

  def test_ends_with_the_job_if_asked(self):
    launch = self.launch("--exit_when_done")
    self.assert_ends(launch)
    self.assertNotIn("the servers keep running", launch.log())

  def test_says_where_server_flags_go(self):
    refused = self.run_psctl("launch", "--push_encoding=int8", code=2)
    self.assertIn("write flags of ps_server after --: psctl launch", refused.stderr)

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
    os.symlink("checkpoints", self.path("link"))
    for own in ("checkpoints", "checkpoints/backups", "link"):
      refused = self.psctl("checkpoint", "--to=" + self.path(own))
      self.assertEqual(refused.returncode, 2, refused.stderr)
      self.assertIn(self.path("checkpoints"), refused.stderr)
    # Whatever round the next checkpoint is of, another run's is there already.
    self.assertEqual(self.psctl("pause").returncode, 0)
    self.wait_for_status(lambda status: status["state"] == "paused", "the pause")
    name = os.path.basename(self.psctl("checkpoint").stdout.strip())
    os.makedirs(self.path("foreign"))
    shutil.copytree(path, self.path("foreign", name))
    taken = self.psctl("checkpoint", "--to=" + self.path("foreign"))
    self.assertEqual(taken.returncode, 1, taken.stderr)
    self.assertIn(self.path("foreign", name), taken.stderr)
    self.assertEqual(self.psctl("resume").returncode, 0)
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


class OrdersTest(ClusterTestCase):

  def ordered(self, *arguments):
    done = self.psctl(*arguments)
    self.assertEqual(done.returncode, 0, done.stderr)
    return done.stdout

  def test_a_server_that_is_stopped_is_said_to_hang(self):
    server = self.start_server()
    server.send(signal.SIGSTOP)
    for order in ("status", "pause"):
      self.assertRegex(self.refused(order, code=129),
                       rf"ps_server at 127.0.0.1:{self.port} accepts connections, but has not answered since "
                       r"\d\d:\d\d:\d\d: its process is stopped or hangs")
    server.send(signal.SIGCONT)
    self.assertNotIn("pause", self.status())
    server.kill()
    self.assertIn("is it running, and is --server right?", self.refused("status", code=129))

  def refused(self, *arguments, code=1):
    done = self.psctl(*arguments)
    self.assertEqual(done.returncode, code, done.stdout + done.stderr)
    return done.stderr

  def test_a_job_goes_by_its_orders_behind_a_restart(self):
    flags = {"min_workers": 2, "keep_workers": 1, "checkpoint_dir": self.path("checkpoints")}
    server = self.start_server(**flags)
    port = self.port
    workers = [self.start_worker(name) for name in ("a", "b")]
    self.wait_for_round(2, workers=2)
    self.assertIn("psctl resume continues", self.ordered("pause", "--reason=cards are swapped"))
    paused = self.wait_for_status(
        lambda status: status["state"] == "paused" and
        status.get("last_checkpoint", {}).get("round") == status["round"], "a pause with its checkpoint")
    server.kill()
    server = self.start_server(port=port, **flags)
    back = self.wait_for_status(
        lambda status: [worker["state"] for worker in status.get("workers", [])] == ["member"] * 2, "the workers")
    self.assertEqual((back["state"], back["round"]), ("paused", paused["round"]))
    self.assertRegex(self.psctl("status").stdout, r"paused    for \S+: cards are swapped")
    self.assertIn("the job continues", self.ordered("resume"))
    self.wait_for_round(int(paused["round"]) + 2)
    self.assertIn("is not paused", self.refused("resume"))

    self.assertIn("the next round has learning rate 0.0001 instead of", self.ordered("set-learning-rate", "1e-4"))
    self.wait_for_status(lambda status: abs(status["learning_rate"] / 1e-4 - 1) < 0.1, "the learning rate")
    self.assertIn("more than 0", self.refused("set-learning-rate", "0", code=2))
    self.assertIn("'much' is not a number", self.refused("set-learning-rate", "much", code=2))

    self.assertEqual("b is evicted until psctl readmit\n", self.ordered("evict", "b", "--reason=its fan is loud"))
    self.assertEqual(workers[1].wait(), 1, workers[1].log())
    self.assertIn("its fan is loud; psctl readmit b lets it join again", workers[1].log())
    self.assertIn("there is no worker 'c'", self.refused("evict", "c"))
    self.ordered("readmit", "b")
    workers[1] = self.start_worker("b")
    self.wait_for_round(int(self.status()["round"]) + 2, workers=2)

    lines = [json.loads(line) for line in self.ordered("events", "--output=json").splitlines()]
    texts = "\n".join(event["text"] for event in lines)
    for words in ("paused: cards are swapped", "the job continues after a pause of", "learning rate set: 0.0001",
                  "worker ended name=b"):
      self.assertIn(words, texts)
    times = [event["time"] for event in lines]
    self.assertEqual(times, sorted(set(times)))
    self.assertIn("SHARD  ADDRESS", self.ordered("shards"))
    self.assertEqual(json.loads(self.ordered("shards", "--output=json"))["state"], "serving")
    self.assertIn("TRAIN LOSS", self.ordered("history"))
    self.assertIn("curve     ", self.ordered("top"))
    self.assertIn("did you mean 'pause'", self.refused("pauze", code=2))
    self.assertIn("allowed: table, json", self.refused("shards", "--output=xml", code=2))

    feed = self.start([BINARIES["psctl"], "events", "--follow", f"--server=127.0.0.1:{port}"], "feed")
    feed.wait_for_log("learning rate set")
    self.stop_job(server, *workers)
    self.assert_ends(feed)
    self.assertEqual(feed.log().count("learning rate set"), 1)

  def test_top_fills_a_terminal_until_somebody_types_q(self):
    server = self.start_server(min_workers=1)
    worker = self.start_worker("a")
    self.wait_for_round(3)
    for is_frozen in (False, True):
      with Terminal([BINARIES["psctl"], "top", f"--server=127.0.0.1:{self.port}"]) as top:
        top.wait_for("q: quit")
        self.assertIn("\x1b[?1049h", top.output)
        self.assertIn("training: round", top.output)
        self.assertLessEqual(max(len(line) for line in top.last_picture()), Terminal.COLUMNS)
        self.assertLessEqual(len(top.last_picture()), Terminal.ROWS)
        if is_frozen:
          server.send(signal.SIGSTOP)
        top.type("q")
        self.assertEqual(top.wait(), 0)
        self.assertTrue(top.output.endswith("\x1b[?1049l"), top.output[-40:])
    server.send(signal.SIGCONT)
    with Terminal([BINARIES["psctl"], "top", f"--server=127.0.0.1:{self.port}"]) as top:
      top.wait_for("q: quit")
      self.stop_job(server, worker)
      self.assertEqual(top.wait(), 0)
      self.assertIn("WORKER", top.output.rpartition("\x1b[?1049l")[2], "the last picture stays")


class Terminal:
  """A program in a terminal of its own."""
  COLUMNS, ROWS = 80, 24

  def __init__(self, command):
    self._pid, self._terminal = pty.fork()
    if self._pid == 0:
      os.environ["LC_ALL"] = "C"  # one byte per column
      os.execv(command[0], command)
    fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", self.ROWS, self.COLUMNS, 0, 0))
    self.output = ""

  def __enter__(self):
    return self

  def __exit__(self, *_):
    if self._pid is not None:
      os.kill(self._pid, signal.SIGKILL)
      os.waitpid(self._pid, 0)
    os.close(self._terminal)

  def _read(self):
    """Whether there may be more."""
    try:
      if not select.select([self._terminal], [], [], 0.1)[0]:
        return True
      part = os.read(self._terminal, 65536)
    except OSError:  # no process has the other side
      return False
    self.output += part.decode()
    return bool(part)

  def wait_for(self, text):
    wait_until(lambda: text in self.output or not self._read() or text in self.output, lambda: self.output)

  def last_picture(self):
    text = self.output[:self.output.rindex("\x1b[J")].rpartition("\x1b[H")[2]
    return text.replace("\x1b[K", "").split("\r\n")

  def type(self, keys):
    os.write(self._terminal, keys.encode())

  def wait(self):
    """Its exit code."""
    wait_until(lambda: not self._read(), lambda: self.output)
    code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
    self._pid = None
    return code


class RollBackTest(ClusterTestCase):

  def test_a_server_that_is_killed_right_after_the_answer_has_gone_back(self):
    flags = {"checkpoint_dir": self.path("checkpoints"), "durability": "journal",
             "checkpoint_interval": 0, "checkpoint_every": 2, "checkpoint_keep": 1000}
    server = self.start_server(**flags)
    worker = self.start_worker("a")
    self.wait_for_status(lambda status: int(status.get("last_checkpoint", {}).get("round", 0)) >= 6,
                         "three checkpoints")
    worker.kill()
    back = self.psctl("rollback", "--round=3")
    server.kill()
    self.assertEqual(back.returncode, 0, back.stderr)
    self.assertIn("the job continues from " + self.path("checkpoints/round-00000002"), back.stdout)
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
