# SPDX-License-Identifier: Apache-2.0
"""Clipping and scaling of gradients by a PyTorch program give what they give with one worker, or are
refused by name. Run by run.sh, with a Python that has PyTorch.

Usage: clipping_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import tempfile  # noqa: E402  (after the path is set)
from unittest import mock  # noqa: E402

import torch  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import program  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402
from lodestar import _exchange  # noqa: E402
from program import Program  # noqa: E402

REDUCE = {"mode": "sync", "optimizer": "reduce"}
# Shorter than the gradients of all steps.
LIMIT = 0.1


def clip(model):
  """Returns the norm before clipping."""
  return float(torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT))


def clamp_data(model):
  for parameter in model.parameters():
    parameter.grad.data.clamp_(-0.01, 0.01)


def norm_of(model):
  gradients = [parameter.grad.flatten() for parameter in model.parameters()]
  return float(torch.cat(gradients).norm())


def looping(address, name, model_name, optimizer_name, change=clip, *, backward=None, on_batch=None,
            steps=False, attach=None, **loader_options):
  """Calls `change` with the model between backward and the optimizer's step.

  backward: of a model and samples, in place of that of their mean loss. on_batch: is called with
  the session and the number of each batch, and says whether to leave it out. steps: the batches are
  the program's own. attach: options of attach(). Returns what `change` has returned, and the norms
  of the gradients after it."""
  model, optimizer = program.make_worker(name, model_name, optimizer_name)
  batches, changes, norms = [], [], []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer, **(attach or {}))
    if steps:
      offset = ord(name) - ord("a")
      loader = ((torch.arange(8) + 8 * offset + step.round, None, None)
                for step in ps.steps(96, batch_size=8))
    else:
      loader = ps.loader(small_models.TRAIN, **{"batch_size": 8, **loader_options})
    for number, (indices, _, _) in enumerate(loader):
      if on_batch is not None and on_batch(ps, number):
        continue
      batches.append(indices)
      if backward is not None:
        backward(model, indices)
      else:
        (small_models.loss_of(model, indices) * ps.share).backward()
      if not ps.is_last_batch:
        continue
      changes.append(change(model))
      norms.append(norm_of(model))
      optimizer.step()
      optimizer.zero_grad()
  return {"batches": batches, "weights": model.state_dict(), "changes": changes, "norms": norms}


def without_bias(model, indices, run=lambda layers, values: layers(values)):
  """Returns a loss that does not depend on the last bias."""
  hidden = run(model[:2], small_models.TRAIN.features[indices].requires_grad_())
  logits = torch.nn.functional.linear(hidden, model[2].weight)
  return torch.nn.functional.cross_entropy(logits, small_models.TRAIN.labels[indices])


def twice(model, indices):
  for half in indices.chunk(2):
    (small_models.loss_of(model, half) / 2).backward()


class ClippingTest(replay.ReplayTestCase):

  def run_loops(self, model_name, optimizer_name, *arguments, rounds=12, named=None, **options):
    """`named` are further options, by the name of the program."""
    server = self.start_client_server(rounds=rounds, **REDUCE)
    named = named or {}
    first = self.start_first_program(model_name, optimizer_name, *arguments, run=looping,
                                     **{**options, **named.get("a", {})})
    second = self.start_program("b", model_name, optimizer_name, *arguments, run=looping,
                                **{**options, **named.get("b", {})})
    runs = [first.outcome(), second.outcome()]
    self.assert_ends(server)
    return runs

  def replay_changed(self, runs, model_name, optimizer_name, change=clip, parts=1, of_each=False,
                     loss_of=small_models.loss_of):
    """Steps with the mean gradient, which `change` has changed, or with the mean of gradients that
    it has changed. `parts` are batches of a step of one program."""
    model = small_models.MODELS[model_name]()
    optimizer = small_models.OPTIMIZERS[optimizer_name](model, replay.RATE)
    for begin in range(0, len(runs[0]["batches"]), parts):
      optimizer.zero_grad()
      means = [torch.zeros_like(parameter) for parameter in model.parameters()]
      for run in runs:
        model.zero_grad()
        for batch in run["batches"][begin:begin + parts]:
          (loss_of(model, batch) / parts).backward()
        if of_each:
          change(model)
        for mean, parameter in zip(means, model.parameters()):
          if parameter.grad is not None:
            mean += parameter.grad / len(runs)
      for mean, parameter in zip(means, model.parameters()):
        parameter.grad = mean
      if not of_each:
        change(model)
      optimizer.step()
    for run in runs:
      self.assert_close(run, model, 1e-6)

  def refusal(self, *arguments, **options):
    """Of the only program of a job that reduces."""
    server = self.start_client_server(min_workers=1, **REDUCE)
    run = Program(looping, f"127.0.0.1:{self.port}", "a", "mlp", "momentum", *arguments, **options)
    with self.assertRaises(lodestar.LodestarError) as refused:
      run.outcome()
    self.stop_job(server)
    self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
    return str(refused.exception)

  def test_reduce_clips_the_mean(self):
    runs = self.run_loops("mlp", "momentum")
    self.replay_changed(runs, "mlp", "momentum")
    self.assertEqual(runs[0]["changes"], runs[1]["changes"])
    for norms in (runs[0]["norms"], runs[1]["norms"]):
      for norm in norms:
        self.assertAlmostEqual(norm, LIMIT, places=5)

  def test_reduce_clips_the_mean_of_several_batches(self):
    runs = self.run_loops("mlp", "momentum", batch_size=4, accumulate=2)
    self.replay_changed(runs, "mlp", "momentum", parts=2)

  def test_reduce_clips_the_mean_of_steps_with_batches_of_ones_own(self):
    runs = self.run_loops("mlp", "momentum", steps=True)
    self.replay_changed(runs, "mlp", "momentum")

  def test_reduce_honours_what_is_changed_through_data(self):
    runs = self.run_loops("mlp", "momentum", clamp_data)
    self.replay_changed(runs, "mlp", "momentum", clamp_data)

  def test_reduce_without_overlap_takes_the_mean_of_clipped_gradients(self):
    runs = self.run_loops("mlp", "momentum", attach={"overlap": False})
    self.replay_changed(runs, "mlp", "momentum", of_each=True)

  def test_several_losses_are_summed_without_overlap(self):
    runs = self.run_loops("mlp", "momentum", backward=twice, attach={"overlap": False})
    self.replay_changed(runs, "mlp", "momentum", of_each=True)

  def test_a_second_backward_after_the_exchange_is_refused(self):
    for steps in (False, True):
      text = self.refusal(backward=twice, steps=steps)
      for part in ("backward() was called again", "2.bias", "overlap=False", "accumulate="):
        self.assertIn(part, text)

  def test_a_gradient_that_is_not_finite_is_refused(self):
    text = self.refusal(
        backward=lambda model, indices: (small_models.loss_of(model, indices) * torch.inf).backward())
    for part in ("2.bias is not finite", "overlap=False", "skip_step()"):
      self.assertIn(part, text)

  def test_a_scaler_is_refused_with_overlap(self):
    server = self.start_client_server(min_workers=1, **REDUCE)
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("a", "mlp", "momentum", "--scaler").outcome()
    self.stop_job(server)
    for part in ("GradScaler", "overlap=False", "bf16"):
      self.assertIn(part, str(refused.exception))

  def test_reduce_forgets_the_gradient_of_a_step_that_a_scaler_skips(self):
    runs = self.run_programs("mlp", "momentum", "--late", "--scaler", "--inf",
                             others=("--late", "--scaler"), **REDUCE)
    self.replay_gradients(runs, "mlp", "momentum", skipped={(0, 3)})

  def skipping(self, number):
    """Leaves out the batch with this number."""

    def on_batch(ps, batch):
      if batch == number:
        ps.skip_step()
      return batch == number

    return {"on_batch": on_batch}

  def test_a_program_that_leaves_a_step_out_follows_the_others(self):
    runs = self.run_loops("mlp", "momentum", lambda _: None, named={"a": self.skipping(3)})
    runs[0]["batches"].insert(3, runs[1]["batches"][3])
    self.replay_changed(runs, "mlp", "momentum", lambda _: None)

  def test_a_program_that_leaves_a_step_out_and_clips_is_refused(self):
    for number in (0, 3):
      server = self.start_client_server(**REDUCE)
      first = self.start_first_program("mlp", "momentum", run=looping, **self.skipping(number))
      second = self.start_program("b", "mlp", "momentum", run=looping)
      with self.assertRaises(lodestar.LodestarError) as refused:
        first.outcome()
      self.stop_job(server)
      second.join(cluster_processes.PATIENCE_SECONDS)
      for part in ("skip_step()", "--clip_norm"):
        self.assertIn(part, str(refused.exception))

  def test_a_step_is_not_left_out_after_its_exchange(self):
    kept = []

    def backward(model, indices):
      small_models.loss_of(model, indices).backward()
      kept[0].skip_step()

    text = self.refusal(backward=backward, on_batch=lambda ps, _: kept.append(ps))
    self.assertIn("after backward()", text)

  def test_a_step_whose_mean_does_not_come_is_not_made(self):
    weights = []

    def change(model):
      weights.append({name: value.clone() for name, value in model.state_dict().items()})

    server = self.start_client_server(min_workers=1, rounds=4, **REDUCE)
    is_answered = _exchange.ReducedSteps._is_answered
    with mock.patch.object(_exchange.ReducedSteps, "_is_answered",
                           lambda exchange: is_answered(exchange) and len(weights) < 3):
      run = self.start_program("a", "mlp", "momentum", change, run=looping).outcome()
    self.assert_ends(server)
    self.assertEqual(len(weights), 4)
    self.assertEqual(run["norms"][-1], 0)
    for name, value in run["weights"].items():
      torch.testing.assert_close(value, weights[-1][name], atol=0, rtol=0)

  def told(self, is_before):
    """Returns the losses that the server has for each round, and those of the batches."""
    losses = []
    kept = []

    def backward(model, indices):
      loss = small_models.loss_of(model, indices)
      losses.append(float(loss))
      if is_before:
        kept[0].log({"loss": loss, "own": losses[-1]})
      loss.backward()
      if not is_before:
        kept[0].log({"loss": loss, "own": losses[-1]})

    server = self.start_client_server(min_workers=1, **REDUCE)
    self.start_program("a", "mlp", "momentum", run=looping, backward=backward,
                       on_batch=lambda ps, _: kept.append(ps)).outcome()
    self.assert_ends(server)
    return [(line["train_loss"], line.get("metrics", {}).get("own")) for line in self.metrics()
            ], losses

  def test_a_loss_that_is_told_before_backward_counts_to_its_round(self):
    lines, losses = self.told(is_before=True)
    for (loss, own), wanted in zip(lines, losses, strict=True):
      self.assertAlmostEqual(loss, wanted, places=5)
      self.assertAlmostEqual(own, wanted, places=5)

  def test_a_loss_that_is_told_after_the_exchange_counts_to_the_next_round(self):
    lines, losses = self.told(is_before=False)
    self.assertEqual(len(lines), len(losses))
    self.assertIsNone(lines[0][1])
    for (loss, own), wanted in zip(lines[1:], losses):
      self.assertAlmostEqual(loss, wanted, places=5)
      self.assertAlmostEqual(own, wanted, places=5)

  def test_reduce_clips_the_mean_of_a_loss_that_does_not_depend_on_all(self):
    runs = self.run_loops("mlp", "momentum",
                          backward=lambda model, indices: without_bias(model, indices).backward())
    self.replay_changed(runs, "mlp", "momentum", loss_of=without_bias)

  def test_reduce_clips_the_mean_behind_reentrant_checkpointing(self):

    def recompute(layers, values):
      return checkpoint(layers, values, use_reentrant=True)

    def with_all(model, indices):
      features = small_models.TRAIN.features[indices].requires_grad_()
      logits = recompute(model[2:], recompute(model[:2], features))
      return torch.nn.functional.cross_entropy(logits, small_models.TRAIN.labels[indices])

    def with_some(model, indices):
      return without_bias(model, indices, recompute)

    for checkpointed, plain in ((with_all, small_models.loss_of), (with_some, without_bias)):
      runs = self.run_loops("mlp", "momentum",
                            backward=lambda model, batch, of=checkpointed: of(model, batch).backward())
      self.replay_changed(runs, "mlp", "momentum", loss_of=plain)

  def test_reduce_clips_the_mean_of_a_closure(self):
    server = self.start_client_server(**REDUCE)
    first = self.start_first_program("mlp", "momentum", run=with_closure)
    second = self.start_program("b", "mlp", "momentum", run=with_closure)
    runs = [first.outcome(), second.outcome()]
    self.assert_ends(server)
    self.replay_changed(runs, "mlp", "momentum")

  def test_a_hook_of_distributed_data_parallel_leaves_the_mean_to_be_clipped(self):
    server = self.start_client_server(**REDUCE)
    with tempfile.TemporaryDirectory() as folder:
      first = self.start_first_program("mlp", "momentum", os.path.join(folder, "rendezvous"),
                                       run=distributed)
      second = self.start_program("b", "mlp", "momentum", run=looping)
      runs = [first.outcome(), second.outcome()]
    self.assert_ends(server)
    self.replay_changed(runs, "mlp", "momentum")


def distributed(address, name, model_name, optimizer_name, rendezvous):
  model, optimizer = program.make_worker(name, model_name, optimizer_name)
  torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=0,
                                       world_size=1)
  batches = []
  try:
    model = torch.nn.parallel.DistributedDataParallel(model)
    with lodestar.join(address, name=name) as ps:
      ps.attach(model, optimizer)
      model.register_comm_hook(None, lodestar.comm_hook(ps))
      for indices, _, _ in ps.loader(small_models.TRAIN, batch_size=8):
        batches.append(indices)
        small_models.loss_of(model, indices).backward()
        clip(model)
        optimizer.step()
        optimizer.zero_grad()
    return {"batches": batches, "weights": model.module.state_dict()}
  finally:
    torch.distributed.destroy_process_group()


def with_closure(address, name, model_name, optimizer_name):
  model, optimizer = program.make_worker(name, model_name, optimizer_name)
  batches = []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    for indices, _, _ in ps.loader(small_models.TRAIN, batch_size=8):
      batches.append(indices)

      def closure():
        optimizer.zero_grad()
        loss = small_models.loss_of(model, indices)
        loss.backward()
        clip(model)
        return loss

      optimizer.step(closure)
  return {"batches": batches, "weights": model.state_dict()}


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
