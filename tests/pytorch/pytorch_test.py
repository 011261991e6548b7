# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs as workers of a job end with the weights that plain PyTorch has for the same
batches. Run by run.sh, with a Python that has PyTorch.

Usage: pytorch_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys
import tempfile
import unittest
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import torch  # noqa: E402  (after the path is set)

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import program  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402
from cluster_processes import PATIENCE_SECONDS  # noqa: E402
from program import Program  # noqa: E402
from replay import ADAMW, MOMENTUM  # noqa: E402


class PyTorchTest(replay.ReplayTestCase):

  def test_sync_adamw(self):
    runs = self.run_programs("mlp", "adamw", mode="sync", **ADAMW)
    self.assertEqual([len(run["batches"]) for run in runs], [12, 12])
    self.replay_gradients(runs, "mlp", "adamw")

  def test_sync_momentum_without_overlap(self):
    runs = self.run_programs("mlp", "momentum", "--late", mode="sync", **MOMENTUM)
    self.replay_gradients(runs, "mlp", "momentum")

  def test_transformer_with_tied_and_frozen_weights(self):
    # Not AdamW: it makes whole steps of roundings where a gradient is zero, as of biases of keys.
    runs = self.run_programs("transformer", "momentum", mode="sync", **MOMENTUM)
    self.replay_gradients(runs, "transformer", "momentum", tolerance=2e-6)

  def test_only_what_the_optimizer_has_is_trained(self):
    runs = self.run_programs("mlp", "head", "--scheduler", mode="sync", **MOMENTUM)
    self.replay_gradients(runs, "mlp", "head")

  def test_what_is_loaded_before_training_counts(self):
    runs = self.run_programs("mlp_bf16", "momentum", "--load", num_programs=1, rounds=1,
                             mode="sync", **{**MOMENTUM, "learning_rate": 1e-12})
    for name, weights in runs[0]["weights"].items():
      self.assertTrue((weights == 0.25).all(), name)

  def test_several_batches_are_one_step(self):
    for options in (), ("--late",):
      runs = self.run_programs("mlp", "adamw", *options, mode="sync", batch_size=9,
                               loader={"batch_size": 3, "accumulate": 3}, **ADAMW)
      for run in runs:
        self.assertEqual([len(batch) for batch in run["batches"]], [3] * 36)
        run["batches"] = [torch.cat(run["batches"][k:k + 3]) for k in range(0, 36, 3)]
      self.replay_gradients(runs, "mlp", "adamw")

  def test_processes_load_what_comes_next(self):
    small_models.TRAIN.num_loaded.zero_()
    runs = self.run_programs("mlp", "adamw", mode="sync", rounds=30, loader={"num_workers": 1},
                             **ADAMW)
    self.replay_gradients(runs, "mlp", "adamw")
    # Two batches are loaded ahead of each program, for nothing at the end and when it began: before
    # it has had two grants it takes itself for the only one.
    num_ahead = small_models.TRAIN.num_loaded.item() // 8 - 2 * 30
    self.assertGreater(num_ahead, 0)
    self.assertLessEqual(num_ahead, 2 * 2 * 3)

  def test_processes_load_local_steps(self):
    runs = self.run_programs("mlp", "momentum", mode="local_sgd", local_steps=4, rounds=5,
                             outer_optimizer="average",
                             loader={"batch_size": 4, "accumulate": 2, "num_workers": 1})
    for run in runs:
      run["batches"] = [torch.cat(run["batches"][k:k + 2]) for k in range(0, 40, 2)]
    self.replay_local_steps(runs, "mlp", "momentum", 4)

  def test_an_iterable_has_batches_of_its_own(self):
    runs = self.run_programs("mlp", "adamw", "--iterable", mode="sync", rounds=30,
                             loader={"is_own": True}, **ADAMW)
    for run in runs:
      # A pass has 12 batches.
      self.assertEqual([len(run["batches"])] + [len(batch) for batch in run["batches"]],
                       [30] + [8] * 30)
      self.assertEqual(sorted(torch.cat(run["batches"][:12]).tolist()), list(range(96)))
    self.assertFalse(torch.equal(runs[0]["batches"][0], runs[1]["batches"][0]))
    self.replay_gradients(runs, "mlp", "adamw")

  def test_steps_of_a_loop_of_its_own(self):
    server = self.start_client_server(mode="sync", min_workers=1, **ADAMW)
    run = self.start_program("a", "mlp", "adamw", 12, run=program.own_loop).outcome()
    self.assert_ends(server)
    self.replay_gradients([run], "mlp", "adamw")

  def test_a_data_loader_of_its_own_has_the_granted_samples(self):
    server = self.start_client_server(mode="sync", min_workers=2, rounds=12, **ADAMW)
    first = self.start_first_program("mlp", "adamw", run=program.own_loader)
    second = self.start_program("b", "mlp", "adamw", run=program.own_loader)
    runs = [first.outcome(), second.outcome()]
    self.assert_ends(server)
    self.replay_gradients(runs, "mlp", "adamw")

  def test_a_data_loader_that_asks_ahead_is_refused(self):
    server = self.start_client_server(mode="sync", min_workers=1, **ADAMW)
    one = self.start_program("a", "mlp", "adamw", run=program.own_loader, num_workers=1)
    with self.assertRaisesRegex(lodestar.LodestarError, "give num_workers= to loader"):
      one.outcome()
    self.stop_job(server)

  def test_a_step_that_a_scaler_skips_has_no_samples(self):
    runs = self.run_programs("mlp", "momentum", "--late", "--scaler", "--inf",
                             others=("--late", "--scaler"), mode="sync", **MOMENTUM)
    self.replay_gradients(runs, "mlp", "momentum", skipped={(0, 3)})

  def test_a_scaler_skips_local_steps(self):
    runs = self.run_programs("mlp", "momentum", "--late", "--scaler", "--inf",
                             others=("--late", "--scaler"), mode="local_sgd", local_steps=4,
                             rounds=5, outer_optimizer="average")
    # All four steps of round 3.
    self.replay_local_steps(runs, "mlp", "momentum", 4, skipped={(0, step) for step in range(12, 16)})

  def test_the_first_programs_optimizer_is_the_jobs(self):
    runs = self.run_programs("mlp", "adamw", mode="sync", batch_size=None)
    self.replay_gradients(runs, "mlp", "adamw")
    log = self.refusal("mlp", "adamw", mode="sync", optimizer="sgd")
    self.assertIn("Start ps_server with --optimizer=adamw", log)

  def told_metrics(self, values):
    """The metrics of each round of a job, and the texts of its program's warnings."""
    server = self.start_client_server(mode="sync", min_workers=1, rounds=3, **ADAMW)
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter("always")
      self.start_program("a", "mlp", "adamw", values, run=program.telling).outcome()
    self.assert_ends(server)
    return ([line["metrics"] for line in self.metrics()],
            [str(warning.message) for warning in caught if warning.category is UserWarning])

  def test_metric_names_that_servers_refuse_are_rewritten(self):
    rounds, texts = self.told_metrics({"loss": 1.0, "acc@1": 2.0, "précision": 3.0, "": 4.0,
                                       "m" * 70: 5.0, 5: 6.0, "train/good": 7.0})
    self.assertEqual(rounds, [{"acc_1": 2.0, "pr_cision": 3.0, "_": 4.0, "m" * 64: 5.0, "5": 6.0,
                               "train/good": 7.0}] * 3)
    self.assertEqual(len(texts), 1)
    self.assertIn("'acc@1' is renamed to 'acc_1'", texts[0])

  def test_metrics_beyond_the_limit_of_a_round_are_left_out(self):
    rounds, texts = self.told_metrics({f"m{k}": 1.0 for k in range(34)})
    self.assertEqual([len(metrics) for metrics in rounds], [32] * 3)
    self.assertEqual(len(texts), 1)
    self.assertIn("'m32'", texts[0])

  def test_buffers_are_averaged(self):
    runs = self.run_programs("normalized", "momentum", mode="sync", **MOMENTUM)
    self.replay_buffers(runs)

  def test_reduce_keeps_the_optimizer(self):
    runs = self.run_programs("mlp", "rmsprop", mode="sync", optimizer="reduce")
    self.replay_gradients(runs, "mlp", "rmsprop", tolerance=2e-6)

  def test_a_round_that_all_skip_is_no_step_with_reduce(self):
    runs = self.run_programs("mlp", "momentum", "--late", "--scaler", "--inf", mode="sync",
                             optimizer="reduce")
    self.replay_gradients(runs, "mlp", "momentum", skipped={(0, 3), (1, 3)})

  def test_a_loop_that_was_left_goes_on(self):
    server = self.start_client_server(mode="sync", min_workers=1, **ADAMW)
    run = self.start_program("a", "mlp", "adamw", run=program.interrupted).outcome()
    self.assert_ends(server)
    self.assertEqual(len(run["batches"]), 12)
    self.replay_gradients([run], "mlp", "adamw")

  def test_data_of_another_size_is_refused(self):
    server = self.start_client_server(mode="sync", **ADAMW)
    first = self.start_first_program("mlp", "adamw")
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("b", "mlp", "adamw", heldout=None).outcome()
    self.assertIn("the job has 96 training and 32 held-out samples", str(refused.exception))
    self.stop_job(server)
    first.join(PATIENCE_SECONDS)

  def test_a_hook_of_distributed_data_parallel(self):
    server = self.start_client_server(mode="sync", optimizer="reduce")
    with tempfile.TemporaryDirectory() as folder:
      first = self.start_first_program("mlp", "rmsprop", os.path.join(folder, "rendezvous"),
                                       run=program.distributed)
      second = self.start_program("b", "mlp", "rmsprop")
      runs = [started.outcome() for started in (first, second)]
    self.assert_ends(server)
    self.replay_gradients(runs, "mlp", "rmsprop", tolerance=2e-6)

  def test_who_comes_late_to_a_job_that_reduces_is_refused(self):
    server = self.start_client_server(mode="sync", optimizer="reduce", min_workers=1,
                                      rounds=100000)
    first = self.start_first_program("mlp", "rmsprop")
    self.wait_for_status(lambda status: int(status["round"]) > 2, "some rounds")
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("b", "mlp", "rmsprop").outcome()
    self.assertIn("only its workers have the weights", str(refused.exception))
    self.stop_job(server)
    first.join(PATIENCE_SECONDS)

  def test_async_with_one_worker(self):
    runs = self.run_programs("mlp", "adamw", num_programs=1, mode="async", **ADAMW)
    self.replay_gradients(runs, "mlp", "adamw")

  def test_local_sgd_keeps_the_optimizer(self):
    runs = self.run_programs("mlp", "rmsprop", mode="local_sgd", local_steps=4, rounds=5,
                             outer_optimizer="average")
    self.assertEqual([len(run["batches"]) for run in runs], [20, 20])
    self.replay_local_steps(runs, "mlp", "rmsprop", 4)

  def test_evaluation_and_bf16_parameters(self):
    server = self.start_client_server(mode="sync", eval_every=10, eval_samples=16, rounds=40,
                                      **ADAMW)
    programs = [self.start_first_program("mlp", "adamw"),
                self.start_program("b", "mlp_bf16", "adamw")]
    for started in programs:
      started.outcome()
    self.assert_ends(server)
    losses = [line["heldout_loss"] for line in self.metrics() if line["heldout_loss"] is not None]
    self.assertGreater(len(losses), 2)
    self.assertLess(losses[-1], 0.8 * losses[0])

  def test_programs_are_told_of_the_evaluations_of_the_job(self):
    # Both evaluate parts of the held-out samples.
    runs = self.run_programs("mlp", "adamw", mode="sync", eval_every=3, eval_samples=16, **ADAMW)
    of_job = {line["round"]: line for line in self.metrics() if line["heldout_loss"] is not None}
    for run in runs:
      told = dict.fromkeys(filter(None, run["evaluations"]))  # in order
      self.assertEqual([evaluation.round for evaluation in told], list(of_job)[:-1])
      self.assertIsNone(run["evaluations"][0])
      for number, loss, accuracy in [*told, run["evaluation"]]:
        self.assertAlmostEqual(loss, of_job[number]["heldout_loss"])
        self.assertAlmostEqual(accuracy, of_job[number]["heldout_accuracy"])
      self.assertEqual(run["evaluation"][0], list(of_job)[-1])

  def test_a_model_outlives_its_session(self):
    server = self.start_client_server(min_workers=1, mode="sync", **ADAMW)
    Program(program.forget, f"127.0.0.1:{self.port}").outcome()
    self.stop_job(server)

  def refusal(self, model_name, optimizer_name, *options, **flags):
    server = self.start_client_server(min_workers=1, **flags)
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("a", model_name, optimizer_name, *options).outcome()
    self.stop_job(server)
    return str(refused.exception)

  def test_another_optimizer_than_the_jobs_is_refused(self):
    log = self.refusal("mlp", "adamw", mode="sync", **{**ADAMW, "beta2": 0.95})
    self.assertIn("Start ps_server with --beta2=0.999", log)
    log = self.refusal("mlp", "rmsprop", mode="sync", **ADAMW)
    self.assertIn("have no RMSprop: use AdamW", log)

  def test_gradients_that_change_after_they_may_have_left_are_refused(self):
    log = self.refusal("mlp", "adamw", "--clip", mode="sync", **ADAMW)
    self.assertIn("was changed after backward", log)
    log = self.refusal("mlp", "adamw", "--twice", mode="sync", **ADAMW)
    self.assertIn("a second time in one step", log)

  def test_a_batch_without_a_step_is_refused(self):
    log = self.refusal("mlp", "adamw", "--skip", mode="sync", **ADAMW)
    self.assertIn("optimizer.step() was not called", log)


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
