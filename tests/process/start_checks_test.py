#!/usr/bin/python3 -B
"""What a server finds out before it opens its port.

Usage: start_checks_test.py PS_SERVER GPU_WORKER PSCTL
"""
import os

import cluster_processes
from cluster_processes import ClusterTestCase

FAILED = 1


class StartChecksTest(ClusterTestCase):

  def assert_refused(self, *texts, **flags):
    """Refused before the port is open, so that nobody has connected."""
    port_file = self.path("refused_port")
    code, log = self.run_server(port_file=port_file, **flags)
    self.assertEqual(code, FAILED, log)
    self.assertFalse(os.path.exists(port_file), log)
    for text in texts:
      self.assertIn(text, log)

  def test_job_that_needs_more_memory_than_there_is_is_refused(self):
    self.assert_refused("this server needs", "weights", "--memory_limit has", "--shard=I/K",
                        model="gpt-mini", memory_limit=50_000_000)


if __name__ == "__main__":
  cluster_processes.main()
