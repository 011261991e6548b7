#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""A few attacks of tests/hostile, shortly: nobody crashes, what is refused is counted with its
reason, the server stays below the memory that it states, and training goes on.

Usage: hostile_test.py PS_SERVER GPU_WORKER PSCTL
"""
import os
import subprocess
import sys

import cluster_processes
import joining_test
from cluster_processes import PATIENCE_SECONDS

ATTACKS = os.path.abspath("tests/hostile/attacks.py")
SECONDS = 0.5  # of each attack


def refused_in(status):
  return {entry["reason"]: int(entry["count"])
          for place in ("port", "limits") for entry in status[place].get("refused", [])}


class AttackedTestCase(cluster_processes.ClusterTestCase):

  def attack(self, *names, flags=()):
    for name in names:
      done = subprocess.run([sys.executable, "-B", ATTACKS, name, *flags,
                             f"--address=127.0.0.1:{self.port}", f"--seconds={SECONDS}"],
                            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
      self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
      self.assertTrue(self._processes[0].is_running(), f"{name}: {self.logs()}")

  def assert_goes_on(self):
    """Rounds are done; returns what was refused."""
    status = self.wait_for_status(lambda status: status["round"], "a status")
    status = self.wait_for_round(int(status["round"]) + 3)
    limits = status["limits"]
    self.assertLess(int(limits["memory_bytes"]), int(limits["memory_bound_bytes"]))
    return refused_in(status)


class PlainHostileTest(AttackedTestCase):

  def test_strangers_in_plain_text(self):
    server = self.start_server(registrations_per_minute=10, message_timeout="1s")
    worker = self.start_worker("honest")
    self.wait_for_round(1)
    self.attack("random_bytes", "http1", "silent_connections", "random_frames", "wrong_lengths")
    self.attack("endless_header", "rapid_reset", "settings_flood", "header_flood",
                "unfinished_streams", "reflection_streams")
    self.attack("registrations", "large_registrations", "false_members", "far_pulls", "slow_pushes",
                "shared_memory", "status_flood", "descriptions")
    refused = self.assert_goes_on()
    for reason in ("no gRPC", "connections ended because of HTTP/2 floods", "too many registrations",
                   "pulls of too many buckets"):
      self.assertGreater(refused.get(reason, 0), 0, f"{reason}: {refused}")
    self.stop_job(server, worker)


class TlsHostileTest(AttackedTestCase, joining_test.JoiningTestCase):

  def test_strangers_where_there_is_tls(self):
    server = self.start_tls_server()
    worker = self.start_joiner("honest", join=self.new_token())
    self.wait_for_round(1)
    self.attack("random_bytes", "http1", "old_tls", "half_open_tls", "handshakes", "wrong_secrets",
                "enrolments_left", flags=["--tls"])
    refused = self.assert_goes_on()
    for reason in ("no gRPC", "TLS before 1.3", "enrolments failed",
                   "too many enrolments at a time"):
      self.assertGreater(refused.get(reason, 0), 0, f"{reason}: {refused}")
    self.assertEqual(self.operate("stop").returncode, 0)
    for process in (server, worker):
      self.assert_ends(process)


if __name__ == "__main__":
  cluster_processes.main()
