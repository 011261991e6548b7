#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What people look for in the logs of real processes: one refused call and one round, from the worker to the server."""
import json
import os
import subprocess

from cluster_processes import BINARIES, ClusterTestCase, main, wait_until, write_words


def lines_of(process):
  """The objects of a log of JSON lines; what else stands there (of the loader, say) is none."""
  found = []
  for line in process.log().split("\n"):
    if line.startswith("{") and line.endswith("}"):
      found.append(json.loads(line))
  return found


def select(lines, **fields):
  return [line for line in lines if all(line.get(key) == value for key, value in fields.items())]


class LogsTest(ClusterTestCase):

  def worker(self, name, *flags):
    return self.start([BINARIES["gpu_worker"], f"--coordinator=127.0.0.1:{self.port}",
                       f"--name={name}", "--device=cpu", "--threads=1", "--log_format=json",
                       *flags], "worker_" + name)

  def assert_types_are_the_same(self, lines):
    types = {}
    for line in lines:
      for key, value in line.items():
        types.setdefault(key, type(value))
        self.assertIs(type(value), types[key], f"{key} in {line}")
    self.assertEqual((types["incarnation"], types["shard"]), (str, int))

  def test_a_refused_call_has_one_id_in_both_logs(self):
    server = self.start_server(log_format="json")
    member = self.worker("a", f"--data={self.path('corpus.txt')}")
    self.wait_for_round(1)
    write_words(self.path("other.txt"), seed=2)
    stranger = self.worker("b", f"--data={self.path('other.txt')}")
    self.assertEqual(stranger.wait(), 1, self.logs())

    refusals = select(lines_of(stranger), call="Join")
    self.assertEqual(len(refusals), 1, self.logs())
    refusal = refusals[0]
    self.assertRegex(refusal["request"], r"^[0-9a-f]{8}-\d+$")
    self.assert_types_are_the_same(lines_of(server) + lines_of(member) + lines_of(stranger))
    self.assertIn("reason=FAILED_PRECONDITION", refusal["message"])
    answered = select(lines_of(server), request=refusal["request"])
    self.assertEqual(len(answered), 1, self.logs())
    for key in ("call", "name", "worker", "incarnation"):
      self.assertEqual(answered[0][key], refusal[key], key)
    self.assertIn("peer", answered[0])
    reason = refusal["message"].partition("reason=")[2]
    self.assertEqual(answered[0]["message"].partition("reason=")[2], reason)

    found = self.psctl("logs", "--worker=b", "--output=json")
    self.assertEqual(found.returncode, 0, found.stderr)
    shown = [json.loads(line) for line in found.stdout.splitlines()]
    self.assertEqual(select(shown, request=refusal["request"]), answered)
    self.assertFalse(select(shown, name="a"))
    self.stop_job(server, member)

  def test_a_round_is_followed_from_worker_to_server(self):
    server = self.start_server(log_format="json", log_level="debug")
    feed = self.start([BINARIES["psctl"], "logs", "--follow", "--lines=1000",
                       f"--server=127.0.0.1:{self.port}"], "feed")
    wait_until(lambda: "ps_server: " in feed.log(), feed.log)
    worker = self.worker("a", f"--data={self.path('corpus.txt')}", "--log_level=debug")
    wait_until(lambda: "debug ps_server: round over round=7 " in feed.log(), feed.log)
    self.stop_job(server, worker)
    self.assert_ends(feed)

    mine = select(lines_of(worker), round=7)
    theirs = select(lines_of(server), round=7)
    begun = [line for line in mine if line["message"].startswith("round begun")]
    self.assertEqual(len(begun), 1, self.logs())
    grants = [line for line in select(mine, call="NextGrant") if "answered" in line["message"]]
    self.assertTrue(grants, self.logs())
    self.assertTrue(any(select(theirs, request=grant["request"], call="NextGrant")
                        for grant in grants), self.logs())
    for words in ("round opened", "contribution received", "round reported", "round over"):
      found = [line for line in theirs if line["message"].startswith(words)]
      self.assertEqual(len(found), 1, f"'{words}' in {json.dumps(theirs, indent=1)}")
    received = next(line for line in theirs if line["message"].startswith("contribution received"))
    for key in ("worker", "incarnation"):
      self.assertEqual(received[key], begun[0][key], key)
    # Nothing of one chunk or bucket.
    self.assertLess(len(theirs), 20, json.dumps(theirs, indent=1))

  def test_lines_are_chosen_by_level_and_round_and_bad_ones_are_refused(self):
    server = self.start_server(log_level="debug", checkpoint_dir=None)
    worker = self.start_worker("a")
    self.wait_for_round(3)
    ofround = self.psctl("logs", "--round=1")
    self.assertEqual(ofround.returncode, 0, ofround.stderr)
    self.assertIn("round opened round=1 ", ofround.stdout)
    self.assertNotIn("round=2 ", ofround.stdout)
    errors = self.psctl("logs", "--level=error")
    self.assertEqual(errors.returncode, 0, errors.stderr)
    self.assertNotIn(" info ", errors.stdout)
    self.assertEqual(len(self.psctl("logs", "--lines=2").stdout.splitlines()), 2)
    for flag, reason in (("--level=loud", "--level=loud is unknown"), ("--lines=0", "--lines"),
                         ("--round=-1", "--round must be the number of a round")):
      refused = self.psctl("logs", flag)
      self.assertEqual(refused.returncode, 2, flag)
      self.assertIn(reason, refused.stderr)
    self.stop_job(server, worker)

  def test_programs_without_standard_streams_log_into_no_other_file(self):
    without_streams = {"preexec_fn": lambda: os.closerange(0, 3)}
    checkpoints = self.path("checkpoints")
    server = self.start_server(checkpoint_dir=checkpoints, rounds=20, exit_when_done=False,
                               log_level="debug", popen=without_streams)
    for stream in range(3):
      self.assertEqual(os.readlink(f"/proc/{server.pid}/fd/{stream}"), "/dev/null")
    worker = self.start([BINARIES["gpu_worker"], f"--coordinator=127.0.0.1:{self.port}",
                         "--name=a", f"--data={self.path('corpus.txt')}", "--device=cpu",
                         "--threads=1", "--trace=" + self.path("trace.json")],
                        "worker_a", **without_streams)
    self.wait_for_status(lambda status: status["state"] == "done", "the end of the job")
    self.assertEqual(worker.wait(), 0)
    model = self.path("model.safetensors")
    for command in (["export", "--out=" + model], ["checkpoint", "--to=" + self.path("copy")],
                    ["stop"]):
      done = subprocess.run([BINARIES["psctl"], *command, f"--server=127.0.0.1:{self.port}"],
                            check=False, **without_streams)
      self.assertEqual(done.returncode, 0, command)
    self.assertEqual(server.wait(), 0)
    with open(self.path("trace.json"), encoding="utf-8") as file:
      json.load(file)
    for folder, _, names in os.walk(self.folder):
      for name in names:
        with open(os.path.join(folder, name), "rb") as file:
          self.assertNotIn(b"ps_server: ", file.read(), name)


if __name__ == "__main__":
  main()
