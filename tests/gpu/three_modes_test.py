#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the loss curves of the three modes on one GPU, which two workers share, with those on the CPU.

usage: three_modes_test.py PS_SERVER GPU_WORKER PSCTL
"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "process"))
import cluster_processes  # noqa: E402

ROUNDS = 30
# Sums in another order differ by 1e-7 per step, which training amplifies.
FP32_TOLERANCE = 1e-3
# Weights and activations have 8 bits of mantissa; their errors average over the batch.
BF16_TOLERANCE = 2e-2
# In async the order of arrival decides which gradients are stale, so curves agree only roughly.
ASYNC_TOLERANCE = 5e-2


class ThreeModesTest(cluster_processes.ClusterTestCase):

  def losses(self, device, dtype, worker_flags=(), **flags):
    """Runs a job on `device`. Returns the training losses of all rounds."""
    metrics = self.path("metrics.jsonl")
    pathlib.Path(metrics).unlink(missing_ok=True)
    server = self.start_server(rounds=ROUNDS, min_workers=2, batch_size=4, learning_rate=1e-3, clip_norm=1, **flags)
    workers = [self.start([cluster_processes.BINARIES["gpu_worker"], f"--coordinator=127.0.0.1:{self.port}",
                           f"--name={name}", f"--data={self.path('corpus.txt')}", f"--device={device}",
                           f"--dtype={dtype}", "--threads=1", *worker_flags], f"worker_{device}_{name}")
               for name in ("a", "b")]
    for process in (server, *workers):
      self.assert_ends(process)
    return [row["train_loss"] for row in self.metrics()]

  def compare(self, dtype, tolerance, **flags):
    cpu = self.losses("cpu", "fp32", **flags)
    gpu = self.losses("cuda", dtype, **flags)
    self.assertEqual(len(gpu), ROUNDS)
    self.assertLess(gpu[-1], gpu[0], "nothing was learned")
    for number, (want, seen) in enumerate(zip(cpu, gpu)):
      self.assertLess(abs(seen - want), tolerance * want, f"round {number}: {seen} on the GPU, {want} on the CPU")

  def test_sync(self):
    self.compare("fp32", FP32_TOLERANCE, mode="sync")

  def test_sync_in_bf16(self):
    self.compare("bf16", BF16_TOLERANCE, mode="sync")

  def test_local_sgd_averaging(self):
    self.compare("fp32", FP32_TOLERANCE, mode="local_sgd", local_steps=4, outer_optimizer="average")

  def test_local_sgd_nesterov_in_bf16(self):
    self.compare("bf16", BF16_TOLERANCE, mode="local_sgd", local_steps=4, outer_optimizer="nesterov")

  def test_async(self):
    self.compare("fp32", ASYNC_TOLERANCE, mode="async")

  def test_what_two_workers_measure_is_kept_in_one_file(self):
    tuning = pathlib.Path(self.path("tuning"))
    for run in range(2):
      kept = tuning.read_text().splitlines() if run > 0 else []
      self.losses("cuda", "fp32", worker_flags=[f"--tuning_file={tuning}"], mode="sync")
      lines = tuning.read_text().splitlines()
      self.assertTrue(any(" product fp32 to fp32 " in line for line in lines), lines)
      self.assertEqual(sorted(set(kept) - set(lines)), [], "a later run has other choices")


if __name__ == "__main__":
  cluster_processes.main()
