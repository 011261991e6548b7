#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Workers whose machines are taken away: told by a signal, a file or an HTTP service in the middle of a long window of
local steps, they hand in what they have computed, and every sample is accounted for.

Usage: spot_test.py PS_SERVER GPU_WORKER PSCTL
"""
import http.server
import re
import signal
import threading

import cluster_processes
from cluster_processes import BINARIES, ClusterTestCase, wait_until, worker_in

# No machine makes so many steps of so many samples within LITTLE_TIME.
STEPS = 20000
BATCH = 64
LITTLE_TIME = "10s"
CUT = re.compile(r"stopping: round (\d+) ends after (\d+) of its (\d+) local steps \(.*\); (\d+) of its (\d+) samples "
                 r"are not used for training")
FIRST = re.compile(r"first contribution is delivered: round (\d+), (\d+) samples, .* weights were pulled (.*)")


class NoticeService:
  """Answers 404 until there is a notice."""

  def __init__(self):
    service = self
    self.status = 404
    self.requests = 0

    class Handler(http.server.BaseHTTPRequestHandler):

      def do_GET(self):
        service.requests += 1
        self.send_response(service.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

      def log_message(self, *_):
        pass

    self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    self.url = f"http://127.0.0.1:{self._server.server_port}/spot/instance-action"
    threading.Thread(target=self._server.serve_forever, daemon=True).start()

  def close(self):
    self._server.shutdown()
    self._server.server_close()


class SpotTest(ClusterTestCase):

  def start_job(self, steps, **flags):
    self.window = steps * BATCH
    return self.start_server(mode="local_sgd", local_steps=steps, batch_size=BATCH,
                             learning_rate="0.0001", keep_workers=1, eval_samples=None,
                             lease="9s", **flags)

  def start_worker(self, name, *flags, data="corpus.txt"):
    return self.start([BINARIES["gpu_worker"], f"--coordinator=127.0.0.1:{self.port}",
                       f"--name={name}", f"--data={self.path(data)}", "--device=cpu",
                       "--threads=1", *flags], "worker_" + name)

  def wait_until_computing(self, *names):
    self.wait_for_status(
        lambda status: all(worker_in(status, name).get("activity") == "compute" for name in names),
        f"steps of {names}")

  def expect_cut(self, worker):
    """It ends with 0 and says what it has left out; returns (round, samples that it has computed)."""
    self.assert_ends(worker)
    cut = CUT.search(worker.log())
    self.assertTrue(cut, self.logs())
    number, steps, of_steps, untrained, samples = (int(group) for group in cut.groups())
    self.assertEqual((of_steps * BATCH, samples), (self.window, self.window))
    self.assertEqual(untrained, (of_steps - steps) * BATCH)
    self.assertGreater(steps, 0)
    self.assertLess(steps, of_steps)
    self.assertIn("everything that was computed is delivered", worker.log())
    return number, steps * BATCH

  def samples(self):
    """Of the job: (handed out, trained on, not trained on)."""
    status = self.status()
    return tuple(int(status.get(name, 0)) for name in ("samples", "trained_samples", "untrained_samples"))

  def test_a_stop_with_little_time_hands_in_the_steps_that_were_made_and_the_rest_is_accounted_for(self):
    self.start_job(STEPS, min_workers=2)
    stays = self.start_worker("stays", "--leave_timeout=" + LITTLE_TIME)
    # Sums are formed in order of registration: the worker that goes is not the first.
    self.wait_for_member("stays", stays.is_running)
    gone = self.start_worker("gone", "--leave_timeout=" + LITTLE_TIME)
    self.wait_until_computing("gone", "stays")
    gone.send(signal.SIGTERM)
    number, samples = self.expect_cut(gone)
    self.assertEqual(number, 0)
    status = self.wait_for_status(lambda status: worker_in(status, "gone")["state"] == "left", "its good-bye")
    self.assertEqual(self.samples(), (2 * self.window, 0, self.window - samples))
    self.assertIn(f"({self.window - samples} of them were not trained on)", self.psctl("status").stdout)
    # The other computes on, and its contribution makes the round complete.
    self.assertEqual(worker_in(status, "stays")["activity"], "compute")
    self.assertEqual(self.metrics(), [])
    stays.send(signal.SIGTERM)
    _, others = self.expect_cut(stays)
    self.wait_for_status(lambda _: len(self.metrics()) == 1, "the end of the round")
    self.assertEqual(self.samples(), (2 * self.window, samples + others, 2 * self.window - samples - others))
    self.assertEqual((self.metrics()[0]["samples"], self.metrics()[0]["workers"]), (samples + others, 2))
    shard = self.wait_for_status(
        lambda status: int(status["shards"][0].get("contributions_counted", 0)) > 0, "counts of the shard")["shards"][0]
    self.assertEqual((int(shard.get("contributions_late", 0)), int(shard.get("contributions_rejected", 0))), (0, 0))

  def test_a_stop_with_much_time_hands_in_the_whole_window(self):
    self.start_job(300, min_workers=1)
    worker = self.start_worker("a", "--leave_timeout=24h")
    self.wait_until_computing("a")
    worker.send(signal.SIGTERM)
    self.assert_ends(worker)
    self.assertIsNone(CUT.search(worker.log()))
    handed_out, trained, untrained = self.samples()
    self.assertEqual((trained, untrained), (handed_out, 0))
    self.assertGreater(trained, 0)

  def test_a_file_is_a_notice(self):
    self.start_job(STEPS, min_workers=1)
    worker = self.start_worker("a", "--notice=file:" + self.path("going"), "--notice_grace=" + LITTLE_TIME)
    self.wait_until_computing("a")
    self.write("going", "")
    _, samples = self.expect_cut(worker)
    self.assertRegex(worker.log(), r"notice: \S*going exists: the worker delivers its work and leaves within [0-9.]+s")
    self.assertEqual(self.samples(), (self.window, samples, self.window - samples))
    # Where the machine goes, another one would begin in vain.
    again = self.start_worker("b", "--notice=file:" + self.path("going"))
    self.assert_ends(again)

  def test_an_http_service_gives_notice(self):
    service = NoticeService()
    self.addCleanup(service.close)
    self.start_job(STEPS, min_workers=1)
    worker = self.start_worker("a", "--notice=" + service.url, "--notice_grace=" + LITTLE_TIME)
    self.wait_until_computing("a")
    wait_until(lambda: service.requests > 1, self.logs)
    self.assertTrue(worker.is_running())
    service.status = 200
    _, samples = self.expect_cut(worker)
    self.assertEqual(self.samples(), (self.window, samples, self.window - samples))

  def test_a_service_that_is_not_there_is_a_warning(self):
    self.start_job(2, rounds=50, min_workers=1)
    worker = self.start_worker("a", "--notice=http://127.0.0.1:1/")
    self.assert_ends(worker)
    self.assertEqual(worker.log().count("the source of notices cannot be read"), 1)

  def test_windows_that_overlap_are_handed_in_as_far_as_they_are_computed(self):
    self.start_job(STEPS, min_workers=1, overlap_rounds="true")
    worker = self.start_worker("a", "--leave_timeout=" + LITTLE_TIME)
    self.wait_until_computing("a")
    worker.send(signal.SIGTERM)
    number, samples = self.expect_cut(worker)
    self.assertEqual(number, 0)
    handed_out, trained, untrained = self.samples()
    self.assertEqual((trained, untrained), (samples, handed_out - samples))

  def test_who_joins_is_of_use_after_one_pull_and_the_status_says_how_long_it_took(self):
    self.start_job(2, min_workers=1)
    self.start_worker("a")
    self.wait_for_round(5)
    joiner = self.start_worker("b")
    status = self.wait_for_status(lambda status: "start_to_contribution_seconds" in worker_in(status, "b"),
                                  "the first contribution of b")
    row = worker_in(status, "b")
    self.assertGreater(row["start_to_contribution_seconds"], row["registration_to_contribution_seconds"])
    self.assertGreater(row["registration_to_contribution_seconds"], 0)
    joiner.wait_for_log("first contribution is delivered")
    _, samples, pulls = FIRST.search(joiner.log()).groups()
    self.assertEqual((int(samples), pulls), (2 * BATCH, "once"))
    self.assertIn(f" {row['start_to_contribution_seconds']:.1f}s ", self.psctl("workers").stdout)


if __name__ == "__main__":
  cluster_processes.main()
