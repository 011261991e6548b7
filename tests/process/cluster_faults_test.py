#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Workers that die, leave, are refused or come first; ports that are taken or closed.

Usage: cluster_faults_test.py PS_SERVER GPU_WORKER PSCTL
"""
import re
import signal
import socket
import time

import cluster_processes
from cluster_processes import ClusterTestCase, ReservedPort, members_of, wait_until, worker_in

LEASE_SECONDS = 2
# The promise is lease + 1 s; the rest is for machines on which everything takes longer.
COMMIT_WITHIN_SECONDS = LEASE_SECONDS + 3
# "Named error within 5 s" and "ends at once": for processes that start on busy machines.
REFUSED_WITHIN_SECONDS = 5
AT_ONCE_SECONDS = 5
# A worker looks for its server once a second at the least.
FOUND_WITHIN_SECONDS = 5


class LostWorkerTest(ClusterTestCase):

  def test_killed_worker_costs_at_most_its_lease(self):
    # A server that shares no memory does not know the worker's process.
    server = self.start_server(rounds=1500, lease=f"{LEASE_SECONDS}s", shared_memory="false")
    survivor, victim = self.start_worker("survivor"), self.start_worker("victim")
    wait_until(lambda: any(line["workers"] == 2 for line in self.metrics()), self.logs)
    victim.kill()
    killed_at = time.monotonic()
    rounds = len(self.metrics())
    wait_until(lambda: any(line["workers"] == 1 for line in self.metrics()[rounds:]), self.logs)
    seconds = time.monotonic() - killed_at
    print(f"kill -9 of a worker: the next round was committed after {seconds:.2f} s, "
          f"the lease is {LEASE_SECONDS} s")
    self.assertLessEqual(seconds, COMMIT_WITHIN_SECONDS)
    status = self.status()
    self.assertGreaterEqual(int(status["rounds_committed_short"]), 1)
    self.assertEqual(worker_in(status, "victim")["state"], "expired")
    self.assertRegex(server.log(), r"round \d+ was completed with 1 of 2 workers")
    self.assert_ends(survivor)
    self.assert_ends(server)
    self.assertEqual(self.metrics()[-1]["round"], 1500)

  def test_killed_worker_that_shares_memory_costs_no_lease(self):
    self.start_server(rounds=1_000_000, lease="1m")
    self.start_worker("survivor")
    victim = self.start_worker("victim")
    wait_until(lambda: any(line["workers"] == 2 for line in self.metrics()), self.logs)
    victim.kill()
    killed_at = time.monotonic()
    rounds = len(self.metrics())
    wait_until(lambda: any(line["workers"] == 1 for line in self.metrics()[rounds:]), self.logs)
    print(f"kill -9 of a worker that shares memory: the next round was committed after "
          f"{time.monotonic() - killed_at:.2f} s, the lease is 60 s")
    self.assertIn("process", worker_in(self.status(), "victim")["reason"])

  def reason_of_the_end_of_killed(self, name):
    rounds = len(self.metrics())
    victim = self.start_worker(name)
    wait_until(lambda: any(line["workers"] == 2 for line in self.metrics()[rounds:]), self.logs)
    wait_until(lambda: worker_in(self.status(), name).get("rounds_completed", "0") != "0",
               self.logs)
    victim.kill()
    killed_at = time.monotonic()
    rounds = len(self.metrics())
    wait_until(lambda: any(line["workers"] == 1 for line in self.metrics()[rounds:]), self.logs)
    print(f"kill -9 of a worker whose connections count: the next round was committed after "
          f"{time.monotonic() - killed_at:.2f} s, the lease is 15 s")
    return worker_in(self.status(), name)["reason"]

  def test_killed_worker_costs_no_lease_if_closed_connections_count(self):
    self.start_server(rounds=1_000_000, lease="15s", shared_memory="false",
                      end_lost_workers="connection")
    self.start_worker("survivor")
    # A server that takes a connection for open when it is asked leaves the end to the lease.
    reasons = []
    while not reasons or ("connections" not in reasons[-1] and len(reasons) < 3):
      reasons.append(self.reason_of_the_end_of_killed(f"victim{len(reasons)}"))
    self.assertIn("connections", reasons[-1], reasons)

  def test_silent_worker_is_named_and_rejoins_after_its_lease(self):
    server = self.start_server(lease="3s", shared_memory="false")
    survivor = self.start_worker("survivor")
    survivor.wait_for_log("registered with")  # sums are in this order: it waits behind no other
    victim = self.start_worker("victim")
    before = worker_in(self.wait_for_round(5, workers=2), "victim")
    victim.kill()
    self.wait_for_status(
        lambda status: [row["worker"] for row in status.get("open_round", {}).get("missing", [])]
        == ["victim"] and "waits for victim" in status["open_round"]["waiting_for"],
        "the name of the one who is waited for")
    self.wait_for_status(lambda status: worker_in(status, "victim")["state"] == "expired",
                         "the end of the lease")
    rounds = len(self.metrics())
    successor = self.start_worker("victim")
    wait_until(lambda: any(line["workers"] == 2 for line in self.metrics()[rounds:]), self.logs)
    after = worker_in(self.status(), "victim")
    self.assertEqual(after["state"], "member")
    self.assertEqual(after["worker_id"], before["worker_id"])
    self.assertGreater(int(after["incarnation"]), int(before["incarnation"]))
    self.stop_job(server, survivor, successor)

  def test_worker_killed_while_it_waits_for_work_is_not_kept_alive_by_its_call(self):
    server = self.start_server(lease="1s", global_batch_size=1, batch_size=0, shared_memory="false")
    busy = self.start_worker("busy")
    self.wait_for_round(5)
    idle = self.start_worker("idle")
    self.wait_for_status(lambda status: worker_in(status, "idle").get("state") == "member", "idle")
    idle.kill()
    killed_at = time.monotonic()
    self.wait_for_status(lambda status: worker_in(status, "idle")["state"] == "expired", "expiry")
    # The coordinator holds the call of a worker that waits for up to 5 s.
    self.assertLessEqual(time.monotonic() - killed_at, 1 + 3)
    self.stop_job(server, busy)

  def test_terminated_worker_leaves_at_once(self):
    server = self.start_server(lease="1m")  # a round that waited for the lease would wait too long
    survivor, leaver = self.start_worker("survivor"), self.start_worker("leaver")
    self.wait_for_round(5, workers=2)
    leaver.send(signal.SIGTERM)
    self.assertEqual(leaver.wait(AT_ONCE_SECONDS), 0, leaver.log())
    status = self.status()
    self.assertEqual(worker_in(status, "leaver")["state"], "left")
    self.assertIn("reason=left: told to stop", server.log())
    self.wait_for_round(int(status["round"]) + 5)
    self.stop_job(server, survivor)


class RefusedWorkerTest(ClusterTestCase):

  def refused(self, name, after_seconds=0, **settings):
    """Starts one more worker: its exit code and its log."""
    worker = self.start_worker(name, **settings)
    return worker.wait(after_seconds + REFUSED_WITHIN_SECONDS), worker.log()

  def expect_unharmed(self, server, *workers):
    status = self.status()
    self.assertEqual(sorted(members_of(status)), ["first"])
    self.wait_for_round(int(status["round"]) + 5)
    self.assertEqual(int(self.status()["rounds_committed_short"]), 0)
    self.stop_job(server, *workers)

  def test_other_data_is_refused_with_both_fingerprints(self):
    cluster_processes.write_words(self.path("other.txt"), seed=2)
    server = self.start_server()
    first = self.start_worker("first")
    self.wait_for_round(5)
    code, log = self.refused("second", data="other.txt")
    self.assertTrue(1 <= code <= 127, f"exit code {code}\n{log}")
    self.assertRegex(log, r"this worker has fingerprint ([0-9a-f]{16}).*the job has fingerprint "
                          r"(?!\1)[0-9a-f]{16}")
    self.expect_unharmed(server, first)

  def test_name_of_a_live_worker_is_refused_after_a_lease(self):
    server = self.start_server(lease=f"{LEASE_SECONDS}s")
    first = self.start_worker("first")
    self.wait_for_round(5)
    code, log = self.refused("first", after_seconds=LEASE_SECONDS)
    self.assertGreaterEqual(code, 128, log)
    self.assertIn("the name 'first' is held by another live process", log)
    self.expect_unharmed(server, first)


class ConnectionTest(ClusterTestCase):

  def test_any_start_order(self):
    ports = [ReservedPort(), ReservedPort()]
    for port in ports:
      self.addCleanup(port.close)
    self.port = ports[0].number
    workers = [self.start_worker(name) for name in ("a", "b")]
    for worker in workers:
      worker.wait_for_log("not connected")
    shard = self.start(self.server_command(port=ports[1].number, shard="1/2"), "shard1")
    shard.wait_for_log("shard=1/2")
    coordinator = self.start_server(port=ports[0].number, shard="0/2", rounds=20, min_workers=2)
    for process in (*workers, coordinator, shard):
      self.assert_ends(process)
    self.assertEqual({line["workers"] for line in self.metrics()}, {2})

  def test_port_of_a_stranger_is_a_clear_error(self):
    with socket.socket() as stranger:
      stranger.bind(("127.0.0.1", 0))
      stranger.listen()
      port = stranger.getsockname()[1]
      code, log = self.run_server(port=port)
    self.assertEqual(code, 129, log)  # the stranger may go
    self.assertRegex(log, f"127.0.0.1:{port}.*in use")

  def test_closed_port_is_tried_again_and_said_once(self):
    closed = ReservedPort()
    self.addCleanup(closed.close)
    self.port = closed.number
    worker = self.start_worker("early")
    worker.wait_for_log("not connected")
    server = self.start_server(port=closed.number)
    worker.wait_for_log("registered with", FOUND_WITHIN_SECONDS)
    self.assertEqual(len(re.findall("not connected", worker.log())), 1, worker.log())
    self.stop_job(server, worker)

  def test_worker_without_server_ends_with_0_on_sigterm(self):
    closed = ReservedPort()
    self.addCleanup(closed.close)
    self.port = closed.number
    worker = self.start_worker("lonely")
    worker.wait_for_log("not connected")
    worker.send(signal.SIGTERM)
    self.assertEqual(worker.wait(AT_ONCE_SECONDS), 0, worker.log())


class SecondSignalTest(ClusterTestCase):

  def test_second_interrupt_ends_a_worker_whose_server_is_stuck(self):
    server = self.start_server()
    worker = self.start_worker("patient")
    self.wait_for_round(5)
    server.send(signal.SIGSTOP)  # no process takes the worker's farewell
    worker.send(signal.SIGINT)
    worker.wait_for_log("send the signal again to stop at once")
    self.send_again(worker, signal.SIGINT)
    self.assertEqual(worker.wait(AT_ONCE_SECONDS), 128 + signal.SIGINT, worker.log())

  def test_second_interrupt_ends_a_server_whose_worker_is_stuck(self):
    server = self.start_server(lease="1m", checkpoint_dir=self.path("checkpoints"))
    worker = self.start_worker("stuck")
    self.wait_for_round(5)
    worker.send(signal.SIGSTOP)  # the last checkpoint waits for the end of its round
    server.send(signal.SIGINT)
    server.wait_for_log("send the signal again to stop at once")
    self.send_again(server, signal.SIGINT)
    self.assertEqual(server.wait(AT_ONCE_SECONDS), 128 + signal.SIGINT, server.log())


if __name__ == "__main__":
  cluster_processes.main()
