#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Servers that die, full disks, damaged checkpoints, and what --resume does then.

Usage: checkpoint_faults_test.py PS_SERVER GPU_WORKER PSCTL
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import cluster_processes
from cluster_processes import GPT, ClusterTestCase, alarms_in, wait_until

# The promise is 10 s from the restart on.
SERVING_WITHIN_SECONDS = 10
DISK_BYTES = 512 << 10
NOT_SAVED = 3  # exit code
MANIFEST = "MANIFEST.json"


class CheckpointTestCase(ClusterTestCase):

  def checkpoint(self, number):
    return self.path("checkpoints", f"round-{number:08d}")

  def start_server(self, port=0, name="server", popen=None, **flags):
    return super().start_server(port, name, popen, checkpoint_dir=self.path("checkpoints"),
                                **flags)

  def run_server(self, **flags):
    return super().run_server(checkpoint_dir=self.path("checkpoints"), **flags)

  def saved(self):
    return sorted(name for name in os.listdir(self.path("checkpoints")) if "round-" in name)

  def published_rounds(self):
    names = self.saved() if os.path.isdir(self.path("checkpoints")) else []
    return [int(name.split("-")[1]) for name in names if not name.endswith(".tmp")]

  def newest_round(self):
    return self.published_rounds()[-1]

  def round_after_start(self, **flags):
    """Of a server without workers: (round it goes on from, alarms, its log)."""
    server = self.start_server(**flags)
    status = self.wait_for_status(lambda status: status["state"] == "waiting_for_workers", "state")
    server.kill()
    return int(status["round"]), alarms_in(status), server.log()


class LostServerTest(CheckpointTestCase):

  def test_killed_server_goes_on_from_the_newest_checkpoint_and_so_do_its_workers(self):
    flags = {"rounds": 1000, "checkpoint_interval": 0, "checkpoint_every": 50, "min_workers": 2}
    killed = self.start_server(**flags)
    workers = [self.start_worker(name) for name in ("a", "b")]
    # The second one may have been left out, where the disk is slow.
    wait_until(lambda: self.published_rounds()[-1:] >= [100], self.logs)
    # Some rounds are to be lost.
    wait_until(lambda: self.metrics()[-1]["round"] >= self.newest_round() + 5, self.logs)
    killed.kill()
    newest = self.newest_round()
    restarted = self.start_server(port=self.port, name="restarted", **flags)
    restarted_at = time.monotonic()
    # The lines of the rounds that were lost are cut while the weights are loaded.
    wait_until(lambda: "lines less, because rounds from" in restarted.log(), self.logs)
    num_lines = len(self.metrics())
    wait_until(lambda: len(self.metrics()) > num_lines, self.logs)
    seconds = time.monotonic() - restarted_at
    print(f"kill -9 of the server: the next round was committed {seconds:.2f} s after the restart")
    self.assertLessEqual(seconds, SERVING_WITHIN_SECONDS)
    self.assertIn(f"resumes from path={self.checkpoint(newest)} ", restarted.log())
    for process in (restarted, *workers):
      self.assert_ends(process)
    self.assertEqual([line["round"] for line in self.metrics()], list(range(1001)))

  def test_terminated_server_saves_its_last_round(self):
    server = self.start_server(checkpoint_interval=0)
    worker = self.start_worker("a")
    self.wait_for_round(5)
    # Not 0: the job is not done, and the same command goes on with it.
    self.assertEqual(server.kill(signal.SIGTERM), 128 + signal.SIGTERM, server.log())
    last = self.metrics()[-1]["round"]
    # The complete rounds are saved at once, and the open one once it has come.
    self.assertEqual(self.saved()[-1], os.path.basename(self.checkpoint(last + 1)))
    restarted = self.start_server(port=self.port, name="restarted", checkpoint_interval=0)
    self.wait_for_round(last + 5)
    self.assertEqual([line["round"] for line in self.metrics()][:last + 3], list(range(last + 3)))
    self.stop_job(restarted, worker)


class FullDiskTest(CheckpointTestCase):

  def train_through_a_full_disk(self, server, fill):
    worker = self.start_worker("a")
    self.wait_for_round(5)
    good = self.psctl("checkpoint")
    self.assertEqual(good.returncode, 0, good.stderr)
    kept = self.saved()
    self.assertEqual(len(kept), 1)
    fill()
    failed = self.psctl("checkpoint")
    self.assertEqual(failed.returncode, 129, failed.stdout)  # may succeed once there is room
    status = self.status()
    self.assertIn(self.path("checkpoints"), alarms_in(status))
    self.wait_for_round(int(status["round"]) + 5)
    self.assertEqual(self.saved(), kept)  # nor is anything half-written left
    stopped = self.psctl("stop")
    self.assertEqual(stopped.returncode, NOT_SAVED, stopped.stderr)
    self.assertIn("NOT SAVED: rounds ", stopped.stdout)
    self.assert_ends(worker)
    self.assert_ends(server, NOT_SAVED)  # its last checkpoint fails as well
    self.assertIn("NOT SAVED: rounds ", server.log())
    self.assertEqual(self.saved(), kept)
    return failed.stderr + alarms_in(status), int(kept[0].split("-")[1])

  def mount_small_disk(self, num_bytes):
    os.mkdir(self.path("checkpoints"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs",
                              self.path("checkpoints")], capture_output=True, check=False)
    if mounted.returncode != 0:
      self.skipTest("a small disk cannot be mounted here: " + mounted.stderr.decode().strip())
    self.addCleanup(subprocess.run, ["umount", "--lazy", self.path("checkpoints")], check=True)

  def fill_small_disk(self):
    with open(self.path("checkpoints", "filler"), "wb", buffering=0) as file:
      try:
        while file.write(bytes(4096)) > 0:
          pass
      except OSError:
        pass

  def test_nothing_is_ordered_while_the_journal_cannot_be_written(self):
    self.mount_small_disk(64 << 20)
    server = self.start_server(durability="journal", min_workers=1)
    worker = self.start_worker("a")
    self.wait_for_round(2)
    self.fill_small_disk()
    self.wait_for_status(lambda status: status["state"] == "waiting_for_journal", "a full disk")
    rate = self.status()["learning_rate"]

    def reason_in(answer):
      self.assertEqual(answer.returncode, 129, answer)
      self.assertIn(self.path("checkpoints/journal/coordinator"), answer.stderr)
      self.assertIn("No space left on device. Make room there", answer.stderr)
      return answer.stderr

    # Records of the coordinator's own journal are small: some may still fit into its last block.
    taken = rate
    for divisor in range(2, 1000):
      answer = self.psctl("set-learning-rate", str(rate / divisor))
      if answer.returncode != 0:
        break
      taken = rate / divisor
    reason = reason_in(answer)
    is_taken = "the order is accepted, but not on disk yet" in reason
    self.assertNotEqual(is_taken, "the order was not accepted" in reason, reason)
    for order in (["pause"], ["resume"], ["evict", "a"], ["readmit", "a"]):
      self.assertIn("the order was not accepted", reason_in(self.psctl(*order)))
    os.remove(self.path("checkpoints", "filler"))
    self.wait_for_round(int(self.status()["round"]) + 2)
    status = self.status()
    self.assertNotIn("pause", status)
    self.assertAlmostEqual(status["learning_rate"], rate / divisor if is_taken else taken, places=9)
    self.assertEqual(self.psctl("pause").returncode, 0)
    self.wait_for_status(lambda status: status["state"] == "paused", "a pause")
    self.assertEqual(self.psctl("stop").returncode, 0)
    self.assert_ends(worker)
    self.assert_ends(server)

  def test_full_disk_is_an_alarm_and_costs_no_checkpoint(self):
    self.mount_small_disk(DISK_BYTES)
    fill = self.fill_small_disk
    server = self.start_server(metrics_out=self.path("checkpoints", "metrics.jsonl"),
                               checkpoint_interval=0)
    # Metrics are on the full disk as well, and no reason to stop either.
    text, saved_round = self.train_through_a_full_disk(server, fill)
    self.assertIn("No space left on device", text)
    code, log = self.run_server()
    self.assertEqual(code, 129, log)  # a server is not started onto a full disk; later it may be
    self.assertIn("No space left on device", log)
    os.remove(self.path("checkpoints", "filler"))
    self.assertEqual(self.round_after_start()[0], saved_round)

  def test_file_size_limit_is_an_alarm_and_costs_no_checkpoint(self):
    # Without the handler that Python sets, the limit's signal would end the server.
    server = self.start_server(popen={"restore_signals": False}, metrics_out="",
                               checkpoint_interval=0)

    def fill():
      resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))

    text, saved_round = self.train_through_a_full_disk(server, fill)
    self.assertIn("File too large", text)
    self.assertEqual(self.round_after_start()[0], saved_round)


class DamagedCheckpointTest(CheckpointTestCase):

  trained = None  # a folder after three runs, for all tests to copy

  def setUp(self):
    super().setUp()
    if self.trained is None:
      for rounds in (10, 20, 30):  # each goes on where the one before has ended
        self.train(rounds=rounds)
      folder = tempfile.TemporaryDirectory()
      self.addClassCleanup(folder.cleanup)
      DamagedCheckpointTest.trained = shutil.copytree(self.folder, folder.name, dirs_exist_ok=True)
    else:
      shutil.copytree(self.trained, self.folder, dirs_exist_ok=True)
    self.assertEqual(self.saved(), [os.path.basename(self.checkpoint(r)) for r in (10, 20, 30)])

  def train(self, **flags):
    server = self.start_server(checkpoint_interval=0, **flags)
    worker = self.start_worker("a")
    self.assert_ends(worker)
    self.assert_ends(server)

  def cut_weights_of(self, number):
    with open(os.path.join(self.checkpoint(number), MANIFEST), encoding="utf-8") as file:
      name = json.load(file)["shards"][0]["weights"]["name"]
    os.truncate(os.path.join(self.checkpoint(number), name), 1000)

  def test_the_one_before_a_damaged_checkpoint_is_taken_with_an_alarm(self):
    self.cut_weights_of(30)
    number, alarms, log = self.round_after_start()
    self.assertEqual(number, 20)
    self.assertIn(f"CHECKPOINT {self.checkpoint(30)} IS DAMAGED", alarms)
    self.assertIn("has 1000 bytes", alarms)
    self.assertIn("IS DAMAGED", log)
    os.remove(os.path.join(self.checkpoint(20), MANIFEST))
    number, alarms, _ = self.round_after_start()
    self.assertEqual(number, 10)
    self.assertIn(f"CHECKPOINT {self.checkpoint(20)} IS DAMAGED", alarms)
    self.assertIn(MANIFEST, alarms)

  def test_job_goes_on_after_a_damaged_checkpoint(self):
    self.cut_weights_of(30)
    self.train(rounds=30)
    # Each run has ended with an evaluation, whose line has the number of the round after it.
    trained = [line["round"] for line in self.metrics() if line["train_loss"] is not None]
    self.assertEqual(trained, list(range(30)))
    shutil.rmtree(self.checkpoint(20))
    self.assertEqual(self.round_after_start(rounds=40)[:2], (30, ""))

  def test_nothing_is_overwritten_if_no_checkpoint_is_whole(self):
    for number in (10, 20, 30):
      self.cut_weights_of(number)
    code, log = self.run_server()
    self.assertTrue(1 <= code <= 127, f"exit code {code}\n{log}")
    for number in (10, 20, 30):
      self.assertIn(f"CHECKPOINT {self.checkpoint(number)} IS DAMAGED", log)
    self.assertEqual(len(self.saved()), 3)

  def test_resume_never_starts_anew_and_deletes_nothing(self):
    self.assertEqual(self.round_after_start(resume="never")[0], 0)
    self.train(resume="never", rounds=10)
    self.assertEqual([name[:len("round-00000010")] for name in self.saved()],
                     [os.path.basename(self.checkpoint(r)) for r in (10, 20, 30)])

  def test_resume_takes_the_checkpoint_it_is_given(self):
    number, alarms, log = self.round_after_start(resume=self.checkpoint(10))
    self.assertEqual(number, 10)
    self.assertIn(f"although later checkpoints exist. The newest is {self.checkpoint(30)}", alarms)
    self.assertIn(f"resumes from path={self.checkpoint(10)} round=10", log)

  def test_resume_from_what_is_no_checkpoint_is_a_clear_error(self):
    self.cut_weights_of(20)
    for path, reason in [(self.path("nowhere"), "No such file or directory"),
                         (self.path("corpus.txt"), "Not a directory"),
                         (self.checkpoint(20), "has 1000 bytes")]:
      with self.subTest(path=path):
        code, log = self.run_server(resume=path)
        self.assertTrue(1 <= code <= 127, f"exit code {code}\n{log}")
        self.assertIn(path, log)
        self.assertIn(reason, log)

  def test_checkpoint_of_another_model_or_optimizer_is_refused(self):
    self.write("wide.textproto", GPT.replace("width: 16", "width: 32"))
    for flags, reason in [({"model": self.path("wide.textproto")}, r"\b32\b.*\b16\b"),
                          ({"optimizer": "sgd"}, "optimizer")]:
      with self.subTest(**flags):
        code, log = self.run_server(**flags)
        self.assertTrue(1 <= code <= 127, f"exit code {code}\n{log}")
        self.assertRegex(log.split("error")[-1], reason)
    self.assertEqual(self.round_after_start()[0], 30)


class ImmutableFilesTest(CheckpointTestCase):

  def set_immutable(self, path, is_immutable=True):
    changed = subprocess.run(["chattr", "+i" if is_immutable else "-i", path], capture_output=True,
                             check=False)
    if changed.returncode != 0:
      self.skipTest(f"chattr: {changed.stderr.decode()}")
    if is_immutable:
      self.addCleanup(subprocess.run, ["chattr", "-i", path], stderr=subprocess.DEVNULL, check=False)

  def test_rollback_over_a_checkpoint_that_cannot_be_renamed_changes_nothing(self):
    server = self.start_server(rounds=1000000, checkpoint_interval=0, checkpoint_every=5,
                               checkpoint_keep=1000)
    worker = self.start_worker("a")
    wait_until(lambda: len(self.published_rounds()) >= 4, self.logs)
    first, *_, last = self.published_rounds()
    self.set_immutable(self.checkpoint(last))
    back = self.psctl("rollback", f"--round={first}")
    self.assertEqual(back.returncode, 1, back.stdout)
    self.assertIn(self.checkpoint(last), back.stderr)
    self.assertIn("Operation not permitted", back.stderr)
    self.assertEqual([name for name in self.saved() if name.endswith((".old", ".abandoned"))], [])
    wait_until(lambda: self.newest_round() > last, self.logs)
    self.set_immutable(self.checkpoint(last), is_immutable=False)
    back = self.psctl("rollback", f"--round={first}")
    self.assertEqual(back.returncode, 0, back.stderr)
    self.assertIn(f"round-{last:08d}.abandoned", self.saved())
    self.assertTrue(server.is_running())
    worker.kill()

  def test_old_checkpoint_that_cannot_be_removed_is_an_alarm_until_it_can(self):
    self.start_server(rounds=1000000, checkpoint_interval=0, checkpoint_every=5, checkpoint_keep=1)
    self.start_worker("a")
    wait_until(lambda: os.path.isdir(self.path("checkpoints")) and self.published_rounds(), self.logs)
    fixed = self.checkpoint(self.newest_round())
    self.set_immutable(fixed)

    def alarm(status):
      return next((alarm for alarm in status.get("alarms", []) if fixed in alarm["text"]), None)

    self.wait_for_status(alarm, "the alarm")
    self.set_immutable(fixed, is_immutable=False)
    self.wait_for_status(lambda status: "over_age" in str(alarm(status)), "the end of the alarm")
    self.assertFalse(os.path.exists(fixed))


class CheckpointCommandTest(CheckpointTestCase):

  def test_command_gets_each_finished_checkpoint_and_its_failure_is_an_alarm(self):
    self.write("copy.sh", f"""
      echo "$LODESTAR_CHECKPOINT" >>{self.path("copied")}
      test -f "$LODESTAR_CHECKPOINT/{MANIFEST}" || exit 4
      echo no such bucket >&2; exit 3
      """)
    server = self.start_server(rounds=20, checkpoint_interval=0, checkpoint_every=5, checkpoint_keep=9,
                               exit_when_done=None, on_checkpoint="sh " + self.path("copy.sh"))
    self.assert_ends(self.start_worker("a"))
    status = self.wait_for_status(lambda status: "exit code 3" in alarms_in(status), "the alarm")
    self.assertIn("no such bucket", alarms_in(status))
    # It has as long to end as the last checkpoint has.
    server.send(signal.SIGTERM)
    self.assertEqual(server.wait(), 3)
    with open(self.path("copied"), encoding="utf-8") as file:
      copied = file.read().split()
    self.assertEqual(sorted(set(copied)), [self.path("checkpoints", name) for name in self.saved()])
    self.assertEqual(copied[-1], self.checkpoint(20))

  def test_command_is_told_of_checkpoints_that_a_rollback_has_set_aside(self):
    self.write("copy.sh", f"""
      echo "${{LODESTAR_CHECKPOINT##*/}}" $LODESTAR_SET_ASIDE >>{self.path("told")}
      """)
    server = self.start_server(rounds=1000000, checkpoint_interval=0, checkpoint_every=5, checkpoint_keep=1000,
                               on_checkpoint="sh " + self.path("copy.sh"))
    worker = self.start_worker("a")
    self.wait_for_status(lambda status: int(status.get("last_checkpoint", {}).get("round", 0)) >= 10, "two checkpoints")
    worker.kill()
    back = self.psctl("rollback", "--round=7")
    self.assertEqual(back.returncode, 0, back.stderr)

    def told():
      with open(self.path("told"), encoding="utf-8") as file:
        return [line.split() for line in file]

    wait_until(lambda: len(told()[-1]) > 1, self.logs)
    back_at, *set_aside = told()[-1]
    self.assertLessEqual(back_at, "round-00000007")
    self.assertEqual([name for name in set_aside if name <= "round-00000007"], [])
    self.assertEqual([line for line in told()[:-1] if len(line) > 1], [])
    server.kill()

  def test_stop_waits_until_the_command_has_handled_the_last_checkpoint(self):
    self.write("copy.sh", f"""
      touch {self.path("begun")}
      until test -e {self.path("may_end")}; do sleep 0.1; done
      touch {self.path("copied")}
      """)
    server = self.start_server(checkpoint_interval=0, on_checkpoint="sh " + self.path("copy.sh"))
    self.start_worker("a")
    self.wait_for_status(lambda status: int(status["round"]) > 0, "a round")
    stop = self.start([cluster_processes.BINARIES["psctl"], "stop", f"--server=127.0.0.1:{self.port}"], "stop")
    wait_until(lambda: os.path.exists(self.path("begun")) or not stop.is_running(), self.logs)
    self.assertTrue(stop.is_running(), stop.log())
    self.write("may_end", "")
    self.assertEqual(stop.wait(), 0, stop.log())
    self.assertTrue(os.path.exists(self.path("copied")))
    self.assertEqual(server.wait(), 0, server.log())

  def test_command_that_asks_its_server_for_a_checkpoint_is_refused(self):
    self.write("copy.sh", f"""
      until test -s {self.path("port")}; do sleep 0.1; done
      exec {cluster_processes.BINARIES["psctl"]} checkpoint --server=127.0.0.1:$(cat {self.path("port")})
      """)
    server = self.start_server(rounds=20, checkpoint_interval=0, checkpoint_every=10,
                               on_checkpoint="sh " + self.path("copy.sh"))
    self.assert_ends(self.start_worker("a"))
    status = self.wait_for_status(lambda status: "psctl restore" in alarms_in(status), "the alarm")
    self.assertIn("on_checkpoint", alarms_in(status))
    self.assertEqual(self.published_rounds(), [10, 20])
    server.kill()


if __name__ == "__main__":
  cluster_processes.main()
