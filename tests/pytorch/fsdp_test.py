# SPDX-License-Identifier: Apache-2.0
"""Two ranks with a model that fully_shard() has cut are one worker, and end with the weights that
plain PyTorch has for the same batches.

Usage: fsdp_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PATHS = [os.path.join(ROOT, "tests", "process"), os.path.join(ROOT, "worker", "python"),
         os.path.dirname(os.path.abspath(__file__))]
sys.path[:0] = PATHS

import torch  # noqa: E402  (after the path is set)

import cluster_processes  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402
from cluster_processes import members_of  # noqa: E402
from replay import ADAMW, MOMENTUM  # noqa: E402

RANK = os.path.join(PATHS[-1], "rank.py")
# Exit code of a rank that ends with an error.
FAILED = 1


class FsdpTest(replay.ReplayTestCase):

  def start_ranks(self, *arguments):
    """A worker `a` of two."""
    rendezvous = self.path("rendezvous")
    for path in (rendezvous, self.path("rank0.pt"), self.path("rank1.pt")):
      if os.path.exists(path):
        os.remove(path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "OMP_NUM_THREADS": "1",
                   "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}
    model_name, optimizer_name, *options = arguments
    return [self.start([sys.executable, RANK, f"127.0.0.1:{self.port}", "a", model_name,
                        optimizer_name, rendezvous, str(rank), self.path(f"rank{rank}.pt"),
                        *options], f"rank{rank}", env=environment) for rank in range(2)]

  def outcomes(self, ranks):
    """What each rank has saved; they have the same weights."""
    for rank in ranks:
      self.assert_ends(rank)
      self.assert_session_left_no_threads(rank)
      self.assert_no_threads_at_end(rank)
    saved = [torch.load(self.path(f"rank{rank}.pt")) for rank in range(2)]
    for name, weights in saved[0]["weights"].items():
      self.assertTrue(torch.equal(weights, saved[1]["weights"][name]), name)
    return saved

  def assert_session_left_no_threads(self, rank):
    """Of gloo, which may abort the program when the interpreter ends; see rank.py."""
    before, after = map(int, re.search(r"gloo threads: (\d+) before, (\d+) after",
                                       rank.log()).groups())
    self.assertGreater(before, 0)
    self.assertEqual(after, before)

  def assert_no_threads_at_end(self, rank):
    self.assertIn("gloo threads at the end: 0\n", rank.log())

  def run_with_another(self, model_name, optimizer_name, *options, **flags):
    """What the worker of two ranks, whose weights are the job's, and a plain one return."""
    server = self.start_client_server(**flags)
    ranks = self.start_ranks(model_name, optimizer_name, *options)
    self.wait_for_member("a", ranks[0].is_running)
    plain = self.start_program("b", model_name, optimizer_name)
    saved = self.outcomes(ranks)
    runs = [{"batches": [torch.cat(parts) for parts in zip(*(rank["batches"] for rank in saved))],
             "weights": saved[0]["weights"]}, plain.outcome()]
    self.assertEqual([rank["evaluation"] for rank in saved], [runs[1]["evaluation"]] * len(saved))
    self.assert_ends(server)
    return runs

  def test_sync_with_evaluations(self):
    # 15 held-out samples cannot be cut; then all ranks have them, and they count once.
    runs = self.run_with_another("mlp", "momentum", mode="sync", eval_every=4, eval_samples=15,
                                 **MOMENTUM)
    self.assertEqual([[len(batch) for batch in run["batches"]] for run in runs], [[8] * 12] * 2)
    self.replay_gradients(runs, "mlp", "momentum")
    lines = self.metrics()
    self.assertEqual({line["metrics"]["rank"] for line in lines if "metrics" in line}, {0.5})
    losses = [line["heldout_loss"] for line in lines if line["heldout_loss"] is not None]
    self.assertGreater(len(losses), 1)
    self.assertLess(losses[-1], losses[0])

  def test_groups_of_parameters_have_rates_of_their_own(self):
    runs = self.run_with_another("mlp", "own_rates", mode="sync", learning_rate=None)
    self.replay_gradients(runs, "mlp", "own_rates")

  def run_alone(self, model_name, optimizer_name, *options, **flags):
    """What each rank of the only worker has saved."""
    server = self.start_client_server(**{"min_workers": 1, **flags})
    saved = self.outcomes(self.start_ranks(model_name, optimizer_name, *options))
    self.assert_ends(server)
    return saved

  def test_several_batches_and_processes_that_load(self):
    runs = self.run_alone("mlp", "adamw", "--accumulate", mode="sync", **ADAMW)
    for run in runs:
      self.assertEqual([len(batch) for batch in run["batches"]], [2] * 24)
      run["batches"] = [torch.cat(run["batches"][k:k + 2]) for k in range(0, 24, 2)]
    self.replay_gradients(runs, "mlp", "adamw")

  def test_a_pass_ends_in_the_same_step_for_all_ranks(self):
    # The step that begins with sample 90 of 96 begins in the next pass for rank 1.
    runs = self.run_alone("mlp", "adamw", "--passes", mode="sync", batch_size=18, **ADAMW)
    self.assertEqual([run["passes"] for run in runs], [[6, 5, 1]] * 2)
    self.assertEqual([run["place"] for run in runs], [(0, 1, True)] * 2)
    self.replay_gradients(runs, "mlp", "adamw")

  def test_metrics_that_a_round_has_no_room_for_are_left_out_with_one_warning(self):
    server = self.start_client_server(min_workers=1, mode="sync", **ADAMW)
    ranks = self.start_ranks("mlp", "adamw", "--metrics")
    self.outcomes(ranks)
    self.assert_ends(server)
    self.assertEqual([rank.log().count("this metric is left out\n") for rank in ranks], [1, 0])
    self.assertEqual({len(line["metrics"]) for line in self.metrics() if "metrics" in line}, {32})

  def test_tied_and_frozen_weights_in_async(self):
    runs = self.run_alone("transformer", "momentum", mode="async", **MOMENTUM)
    self.replay_gradients(runs, "transformer", "momentum", tolerance=2e-6)

  def test_local_sgd(self):
    runs = self.run_with_another("mlp", "dampened", mode="local_sgd", local_steps=4, rounds=5,
                                 outer_optimizer="average", eval_every=2, eval_samples=16)
    self.assertEqual([len(run["batches"]) for run in runs], [20, 20])
    self.replay_local_steps(runs, "mlp", "dampened", 4)

  def test_reduce_keeps_the_optimizer(self):
    runs = self.run_with_another("mlp", "dampened", mode="sync", optimizer="reduce")
    self.replay_gradients(runs, "mlp", "dampened")

  def test_buffers_are_averaged_over_ranks(self):
    runs = self.run_alone("normalized", "momentum", mode="sync", **MOMENTUM)
    self.replay_buffers(runs)

  def test_a_step_that_a_scaler_skips_has_no_samples(self):
    runs = self.run_with_another("mlp", "momentum", "--inf", mode="sync", **MOMENTUM)
    self.replay_gradients(runs, "mlp", "momentum", skipped={(0, 3)})

  def start_endless_server(self, **flags):
    return self.start_client_server(**{"min_workers": 1, "rounds": 100000, "mode": "sync",
                                       **MOMENTUM, **flags})

  def assert_has_left(self, server):
    self.wait_for_status(lambda status: not members_of(status), "the worker to leave")
    self.stop_job(server)

  def failure(self, *options, **flags):
    """What rank 0 and rank 1 say when both end with an error, and the worker leaves."""
    server = self.start_endless_server(**flags)
    ranks = self.start_ranks("mlp", "momentum", *options)
    for rank in ranks:
      self.assert_ends(rank, FAILED)
      self.assert_no_threads_at_end(rank)
    self.assert_has_left(server)
    return [rank.log() for rank in ranks]

  def test_an_error_in_one_rank_ends_both(self):
    for rank in range(2):
      logs = self.failure(f"--raise={rank}")
      self.assertIn("ValueError: the third round is bad", logs[rank])
      self.assertIn(f"LodestarError: rank {rank} of this worker has ended: ValueError: the third "
                    "round is bad", logs[1 - rank])

  def test_a_rank_that_is_killed_ends_the_other(self):
    for killed in range(2):
      server = self.start_endless_server()
      ranks = self.start_ranks("mlp", "momentum", "--sleep")
      ranks[1].wait_for_log("sleeps")
      ranks[killed].kill()
      self.assert_ends(ranks[1 - killed], FAILED)
      self.assert_no_threads_at_end(ranks[1 - killed])
      self.assert_has_left(server)

  def test_a_rank_that_is_killed_ends_the_wait_for_others(self):
    server = self.start_endless_server(min_workers=2)
    ranks = self.start_ranks("mlp", "momentum")
    self.wait_for_status(lambda status: members_of(status) == ["a"], "the ranks")
    ranks[1].kill()
    self.assert_ends(ranks[0], FAILED)
    self.assert_no_threads_at_end(ranks[0])
    self.assertIn("a rank of this worker does not answer", ranks[0].log())
    self.assert_has_left(server)

  def test_what_the_servers_refuse_ends_all_ranks(self):
    for log in self.failure(optimizer="sgd", momentum=None):
      self.assertIn("Start ps_server with --optimizer=momentum", log)

  def test_servers_that_begin_anew(self):
    flags = {"rounds": 300, "checkpoint_dir": self.path("checkpoints"), "checkpoint_interval": 0, "checkpoint_every": 10}
    server = self.start_endless_server(**flags)
    ranks = self.start_ranks("mlp", "momentum")
    self.wait_for_round(30)
    server.kill()
    server = self.start_endless_server(port=self.port, name="server_anew", **flags)
    saved = self.outcomes(ranks)
    self.assertGreaterEqual(len(saved[0]["batches"]), 300)
    self.assert_ends(server)

  def test_one_rank_stops_all(self):
    server = self.start_endless_server()
    saved = self.outcomes(self.start_ranks("mlp", "momentum", "--stop"))
    self.assertEqual([len(rank["batches"]) for rank in saved], [4, 4])
    self.assert_has_left(server)

  def test_samples_that_cannot_be_cut_are_refused(self):
    for log in self.failure("--any-size", batch_size=7):
      self.assertIn("Start ps_server with a --batch_size that is a multiple of 2", log)
    for log in self.failure("--any-size", batch_size=None, global_batch_size=8):
      self.assertIn("ps_server has --global_batch_size", log)

  def test_models_that_are_not_cut_over_the_ranks_are_refused(self):
    for log in self.failure("--plain"):
      self.assertIn("0.weight is not sharded", log)
    for log in self.failure("--columns"):
      self.assertIn("0.weight is placed as [Shard(dim=1)], but must be", log)
    for log in self.failure("--replicas"):
      self.assertIn("0.weight is on the mesh [[0], [1]], but the ranks of this worker are [0, 1]",
                    log)
    for log in self.failure("--alone"):
      self.assertIn("lodestar.join(..., group=torch.distributed.group.WORLD)", log)
    for log in self.failure("--other-model"):
      self.assertIn("all ranks of a worker must train the same model on the same data set, but rank 0 has "
                    "('add_tensor', '0.weight', [16, 12], 0, False), and rank 1 has "
                    "('add_tensor', 'layers.0.weight'", log)


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
