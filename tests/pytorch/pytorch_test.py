"""PyTorch programs as workers of a job end with the weights that plain PyTorch has for the same
batches. Run by run.sh, with a Python that has PyTorch.

Usage: pytorch_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARY = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), HERE]

import torch  # noqa: E402  (after the path is set)

import cluster_processes  # noqa: E402
import small_models  # noqa: E402

ADAMW = {"optimizer": "adamw", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}
MOMENTUM = {"optimizer": "momentum", "momentum": 0.9}
RATE = 0.05


class PyTorchTest(cluster_processes.ClusterTestCase):

  def start_client_server(self, **flags):
    return self.start_server(model="client", **{
        "batch_size": 8, "rounds": 12, "min_workers": 2, "learning_rate": RATE,
        "eval_samples": 0, **flags})

  def start_program(self, name, model_name, optimizer_name, *options):
    environment = {**os.environ, "LODESTAR_LIBRARY": LIBRARY, "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.pathsep.join([PACKAGE, HERE]), "PYTHONDONTWRITEBYTECODE": "1"}
    return self.start([sys.executable, os.path.join(HERE, "program.py"), f"127.0.0.1:{self.port}",
                       name, model_name, optimizer_name, self.path(name + ".pt"), *options],
                      "program_" + name, env=environment)

  def run_programs(self, model_name, optimizer_name, *options, names=("a", "b"), **flags):
    """What each has saved: the samples of its steps, and its weights at the end."""
    server = self.start_client_server(**flags)
    programs = []
    for name in names:
      programs.append(self.start_program(name, model_name, optimizer_name, *options))
      # The first one's weights are the job's.
      programs[0].wait_for_log("the job begins with this worker's weights")
    for process in (*programs, server):
      self.assert_ends(process)
    return [torch.load(self.path(name + ".pt")) for name in names]

  def assert_close(self, saved, model, tolerance):
    wanted = model.state_dict()
    self.assertEqual(saved["weights"].keys(), wanted.keys())
    for name, weights in saved["weights"].items():
      torch.testing.assert_close(weights, wanted[name], atol=tolerance, rtol=0, msg=lambda text:
                                 f"{name}: {text}")

  def replay_gradients(self, runs, model_name, optimizer_name, tolerance=1e-6):
    model = small_models.MODELS[model_name]()
    optimizer = small_models.OPTIMIZERS[optimizer_name](model, RATE)
    for batches in zip(*(run["batches"] for run in runs)):
      optimizer.zero_grad()
      for batch in batches:
        (small_models.loss_of(model, batch) / len(batches)).backward()
      optimizer.step()
    for run in runs:
      self.assert_close(run, model, tolerance)

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
    runs = self.run_programs("mlp_bf16", "momentum", "--load", names=("a",), min_workers=1, rounds=1,
                             mode="sync", **{**MOMENTUM, "learning_rate": 1e-12})
    for name, weights in runs[0]["weights"].items():
      self.assertTrue((weights == 0.25).all(), name)

  def test_async_with_one_worker(self):
    runs = self.run_programs("mlp", "adamw", names=("a",), min_workers=1, mode="async", **ADAMW)
    self.replay_gradients(runs, "mlp", "adamw")

  def replay_local_steps(self, runs, model_name, optimizer_name, local_steps):
    """Weights are averaged after so many steps; each keeps its optimizer."""
    models = [small_models.MODELS[model_name]() for _ in runs]
    optimizers = [small_models.OPTIMIZERS[optimizer_name](model, RATE) for model in models]
    num_steps = len(runs[0]["batches"])
    for begin in range(0, num_steps, local_steps):
      for run, model, optimizer in zip(runs, models, optimizers):
        for batch in run["batches"][begin:begin + local_steps]:
          optimizer.zero_grad()
          small_models.loss_of(model, batch).backward()
          optimizer.step()
      with torch.no_grad():
        for tensors in zip(*(model.parameters() for model in models)):
          mean = sum(tensors) / len(tensors)
          for tensor in tensors:
            tensor.copy_(mean)
    for run in runs:
      self.assert_close(run, models[0], 2e-6)

  def test_local_sgd_keeps_the_optimizer(self):
    runs = self.run_programs("mlp", "rmsprop", mode="local_sgd", local_steps=4, rounds=5,
                             outer_optimizer="average")
    self.assertEqual([len(run["batches"]) for run in runs], [20, 20])
    self.replay_local_steps(runs, "mlp", "rmsprop", 4)

  def test_evaluation_and_bf16_parameters(self):
    server = self.start_client_server(mode="sync", eval_every=10, eval_samples=16, rounds=40,
                                      **ADAMW)
    programs = [self.start_program("a", "mlp", "adamw")]
    programs[0].wait_for_log("the job begins with this worker's weights")
    programs.append(self.start_program("b", "mlp_bf16", "adamw"))
    for process in (*programs, server):
      self.assert_ends(process)
    losses = [line["heldout_loss"] for line in self.metrics() if line["heldout_loss"] is not None]
    self.assertGreater(len(losses), 2)
    self.assertLess(losses[-1], 0.8 * losses[0])

  def test_a_model_outlives_its_session(self):
    server = self.start_client_server(min_workers=1, mode="sync", **ADAMW)
    program = self.start_program("a", "mlp", "adamw", "--forget")
    self.assert_ends(program)
    self.stop_job(server)

  def refusal(self, model_name, optimizer_name, *options, **flags):
    server = self.start_client_server(min_workers=1, **flags)
    program = self.start_program("a", model_name, optimizer_name, *options)
    self.assertEqual(program.wait(), 1, program.log())
    self.stop_job(server)
    return program.log()

  def test_another_optimizer_than_the_jobs_is_refused(self):
    log = self.refusal("mlp", "adamw", mode="sync", **{**ADAMW, "beta2": 0.95})
    self.assertIn("start ps_server with --beta2=0.999", log)
    log = self.refusal("mlp", "rmsprop", mode="sync", **ADAMW)
    self.assertIn("have no RMSprop with these settings", log)

  def test_gradients_that_change_after_they_may_have_left_are_refused(self):
    log = self.refusal("mlp", "adamw", "--clip", mode="sync", **ADAMW)
    self.assertIn("was changed after backward", log)
    log = self.refusal("mlp", "adamw", "--twice", mode="sync", **ADAMW)
    self.assertIn("a second time in one step", log)

  def test_a_batch_without_a_step_is_refused(self):
    log = self.refusal("mlp", "adamw", "--skip", mode="sync", **ADAMW)
    self.assertIn("optimizer.step() was not called", log)


if __name__ == "__main__":
  cluster_processes.main()
