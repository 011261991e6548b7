#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""What a seed chooses can be recovered from without anybody's word.

Usage: faults_test.py
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
from faults import DISK_KINDS, Fault, draw_faults, may_come_together


def fault(kind, target):
  return Fault(round=0, kind=kind, target=target)


class FaultsTest(unittest.TestCase):

  def test_one_copy_of_a_journal_stays(self):
    server_gone, replica_gone = fault("lose disk", "server0"), fault("lose disk", "replica0")
    swap, killed = fault("swap", "server0"), fault("kill", "server0")
    for together in ([killed, killed], [server_gone, killed], [server_gone, fault("kill", "replica0")],
                     [replica_gone, fault("kill", "worker0")], [swap, fault("cut", "server0:replica0")]):
      self.assertTrue(may_come_together(together), together)
    for together in ([server_gone, replica_gone], [replica_gone, killed], [killed, replica_gone],
                     [fault("kill all servers", "servers"), replica_gone], [swap, killed], [swap, server_gone]):
      self.assertFalse(may_come_together(together), together)

  def test_chosen_by_the_seed_alone(self):
    drawn = [draw_faults("1", 400, 30, 2, 2, has_replicas=True) for _ in range(2)]
    self.assertEqual(*drawn)
    together = []
    for one in drawn[0]:
      together = together + [one] if one.is_at_once else [one]
      self.assertTrue(may_come_together(together), together)
    self.assertTrue(any(one.is_at_once for one in drawn[0]))
    self.assertGreater(sum(one.kind in DISK_KINDS for one in drawn[0]), 40)

  def test_spares_lives_and_kinds_if_asked(self):
    for one in draw_faults("1", 400, 30, 2, 2, spare_lives=True):
      self.assertFalse(one.kind.startswith("kill") and one.target.startswith("worker"), one)
      self.assertFalse(one.kind in DISK_KINDS or "replica" in one.target, one)
    kinds = {one.kind for one in draw_faults("1", 400, 30, 1, 2, has_replicas=True, kinds=["disks"])}
    self.assertEqual(kinds, set(DISK_KINDS))


if __name__ == "__main__":
  unittest.main()
