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
import warnings  # noqa: E402
from unittest import mock  # noqa: E402

import accelerate  # noqa: E402
import pytorch_lightning  # noqa: E402
import transformers  # noqa: E402

import torch  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import lodestar.hf  # noqa: E402
import lodestar.lightning  # noqa: E402
import program  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402
from lodestar import _exchange  # noqa: E402
from program import Program  # noqa: E402

REDUCE = {"mode": "sync", "optimizer": "reduce"}
SYNC = {"mode": "sync", **replay.MOMENTUM}
LOCAL = {"mode": "local_sgd", "local_steps": 3, "outer_optimizer": "average", "rounds": 4}
# Shorter than the gradients of all steps.
LIMIT = 0.1


def clip_to(limit):
  """Returns what clips a model's gradients, and returns their norm before."""
  return lambda model: float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))


clip = clip_to(LIMIT)


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
    clip_norm = ps.job("clip_norm")
  return {"batches": batches, "weights": model.state_dict(), "changes": changes, "norms": norms,
          "clip_norm": float(clip_norm)}


def without_bias(model, indices, run=lambda layers, values: layers(values)):
  """Returns a loss that does not depend on the last bias."""
  hidden = run(model[:2], small_models.TRAIN.features[indices].requires_grad_())
  logits = torch.nn.functional.linear(hidden, model[2].weight)
  return torch.nn.functional.cross_entropy(logits, small_models.TRAIN.labels[indices])


def twice(model, indices):
  for half in indices.chunk(2):
    (small_models.loss_of(model, half) / 2).backward()


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


class Recorded(torch.nn.Module):
  """A model for Trainers, which records its batches, and under the names of the model in it."""

  def __init__(self, model):
    super().__init__()
    self.module = model
    self.batches = []

  def forward(self, index):
    self.batches.append(index)
    return {"loss": small_models.loss_of(self.module, index)}


class Numbers(torch.utils.data.Dataset):

  def __len__(self):
    return small_models.NUM_SAMPLES

  def __getitem__(self, index):
    return {"index": index}


def in_hugging_face(address, name, model_name, optimizer_name, folder, norm=LIMIT):
  model, _ = program.make_worker(name, model_name, optimizer_name)
  model = Recorded(model)
  arguments = transformers.TrainingArguments(
      output_dir=folder, per_device_train_batch_size=4, gradient_accumulation_steps=2,
      max_steps=100, max_grad_norm=norm, use_cpu=True, report_to=[], save_strategy="no",
      lr_scheduler_type="constant", disable_tqdm=True)
  callback = lodestar.hf.Callback(lodestar.join(address, name=name))
  optimizer = small_models.OPTIMIZERS[optimizer_name](model, replay.RATE)
  trainer = transformers.Trainer(model, arguments, train_dataset=Numbers(), callbacks=[callback],
                                 optimizers=(optimizer, None))
  trainer.train()
  return {"batches": model.batches, "weights": model.module.state_dict(),
          "norm": arguments.max_grad_norm}


class Lit(pytorch_lightning.LightningModule):

  def __init__(self, model, optimizer_name):
    super().__init__()
    self.module = Recorded(model)
    self._optimizer_name = optimizer_name

  def training_step(self, batch, _):
    return self.module(batch["index"])["loss"]

  def configure_optimizers(self):
    return small_models.OPTIMIZERS[self._optimizer_name](self, replay.RATE)


def in_lightning(address, name, model_name, optimizer_name, folder, norm=LIMIT, algorithm=None):
  model, _ = program.make_worker(name, model_name, optimizer_name)
  module = Lit(model, optimizer_name)
  trainer = pytorch_lightning.Trainer(
      max_epochs=-1, callbacks=[lodestar.lightning.Callback(lodestar.join(address, name=name))],
      logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
      enable_model_summary=False, accumulate_grad_batches=2, gradient_clip_val=norm,
      gradient_clip_algorithm=algorithm, default_root_dir=folder)
  trainer.fit(module, torch.utils.data.DataLoader(Numbers(), batch_size=4, shuffle=True))
  return {"batches": module.module.batches, "weights": module.module.module.state_dict(),
          "norm": trainer.gradient_clip_val}


class ClippingTestCase(replay.ReplayTestCase):

  def run_loops(self, model_name, optimizer_name, *arguments, flags=None, named=None, **options):
    """`named` are further options, by the name of the program."""
    server = self.start_client_server(**(flags or REDUCE))
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

  def refusal(self, *arguments, flags=None, **options):
    """Of the only program of a job."""
    server = self.start_client_server(min_workers=1, **(flags or REDUCE))
    run = Program(looping, f"127.0.0.1:{self.port}", "a", "mlp", "momentum", *arguments, **options)
    with self.assertRaises(lodestar.LodestarError) as refused:
      run.outcome()
    self.stop_job(server)
    self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
    return str(refused.exception)


class ClippingTest(ClippingTestCase):

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
      server = self.start_client_server(rounds=100000, **REDUCE)
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

  def test_sync_clips_the_mean_as_the_program_says(self):
    by_accelerate = accelerate.Accelerator(cpu=True).clip_grad_norm_
    for change in (clip, lambda model: by_accelerate(model.parameters(), LIMIT), lambda _: None):
      runs = self.run_loops("mlp", "momentum", change, flags=SYNC, attach={"clip_norm": LIMIT})
      self.replay_changed(runs, "mlp", "momentum")
      self.assertEqual([run["clip_norm"] for run in runs], [LIMIT] * 2)

  def test_clipping_that_changes_nothing_is_no_change(self):
    runs = self.run_loops("mlp", "momentum", clip_to(1e6), flags=SYNC, attach={"clip_norm": 1e6})
    self.replay_changed(runs, "mlp", "momentum", lambda _: None)

  def test_sync_clips_the_mean_of_steps_with_batches_of_ones_own(self):
    runs = self.run_loops("mlp", "momentum", flags=SYNC, attach={"clip_norm": LIMIT}, steps=True)
    self.replay_changed(runs, "mlp", "momentum")

  def test_sync_refuses_a_change_of_a_gradient_in_the_first_step(self):
    for steps in (False, True):
      changes = []
      text = self.refusal(lambda model: changes.append(clip(model)), flags=SYNC, steps=steps)
      self.assertEqual(len(changes), 1)
      for part in ("was changed after backward()", "clip_norm=", "overlap=False"):
        self.assertIn(part, text)

  def test_sync_refuses_a_second_backward_in_the_first_step(self):
    changes = []
    text = self.refusal(lambda model: changes.append(norm_of(model)), flags=SYNC, backward=twice)
    self.assertEqual(len(changes), 1)
    self.assertIn("a second time", text)

  def test_steps_with_batches_of_ones_own_take_several_backwards_in_sync(self):
    runs = self.run_loops("mlp", "momentum", lambda _: None, flags=SYNC, backward=twice, steps=True)
    self.replay_changed(runs, "mlp", "momentum", lambda _: None)

  def test_sync_knows_clipping_in_half_precision(self):
    server = self.start_client_server(min_workers=1, **SYNC)
    run = self.start_program("a", "mlp_bf16", "momentum", run=looping, attach={"clip_norm": LIMIT})
    self.assertEqual(run.outcome()["clip_norm"], LIMIT)
    self.assert_ends(server)

  def test_another_change_than_the_clipping_that_was_said_is_refused(self):
    for change in (clip_to(LIMIT / 2), clamp_data, lambda model: model[0].weight.grad.zero_()):
      text = self.refusal(change, flags=SYNC, attach={"clip_norm": LIMIT})
      for part in ("was changed after backward()", "clip_norm=", "overlap=False"):
        self.assertIn(part, text)

  def test_a_norm_that_is_none_is_refused(self):
    for norm in (-1, float("nan")):
      model, optimizer = program.make_worker("a", "mlp", "momentum")
      with self.assertRaises(lodestar.LodestarError) as refused:
        lodestar.join("127.0.0.1:1", name="a").attach(model, optimizer, clip_norm=norm)
      self.assertEqual(refused.exception.code, "INVALID_ARGUMENT")

  def warned_of_norms(self, **flags):
    """Returns the run of a program that clips, and the texts of its warnings."""
    server = self.start_client_server(min_workers=1, **{**SYNC, **flags})
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter("always")
      run = self.start_program("a", "mlp", "momentum", run=looping,
                               attach={"clip_norm": LIMIT}).outcome()
    self.assert_ends(server)
    return run, [str(warning.message) for warning in caught if "norm" in str(warning.message)]

  def test_a_flag_of_the_server_holds_with_one_warning(self):
    for norm in (0.05, 0):
      run, texts = self.warned_of_norms(clip_norm=norm)
      self.replay_changed([run], "mlp", "momentum", clip_to(norm) if norm else lambda _: None)
      self.assertEqual(len(texts), 1)
      for part in ("0.1", str(norm), "--clip_norm=0.1"):
        self.assertIn(part, texts[0])
    run, texts = self.warned_of_norms(clip_norm=LIMIT)
    self.assertEqual(texts, [])

  def test_async_clips_as_the_program_says(self):
    run, texts = self.warned_of_norms(mode="async")
    self.replay_changed([run], "mlp", "momentum")
    self.assertEqual(texts, [])

  def test_programs_that_make_their_steps_clip_themselves(self):
    for flags in (REDUCE, LOCAL):
      runs = self.run_loops("mlp", "momentum", flags=flags, attach={"clip_norm": LIMIT})
      self.assertEqual([run["clip_norm"] for run in runs], [0, 0])
      if flags == REDUCE:
        self.replay_changed(runs, "mlp", "momentum")
      for norm in runs[0]["norms"]:
        self.assertAlmostEqual(norm, LIMIT, places=5)


class TrainersTest(ClippingTestCase):

  def run_trainer(self, trainer, change=clip, **flags):
    """Beside a loop that clips itself, where the program makes the steps. Returns both runs."""
    server = self.start_client_server(**flags)
    named = {"attach": {"clip_norm": LIMIT}, "batch_size": 4, "accumulate": 2}
    with tempfile.TemporaryDirectory() as folder:
      first = self.start_first_program("mlp", "momentum", folder, run=trainer)
      second = self.start_program("b", "mlp", "momentum", change, run=looping, **named)
      runs = [first.outcome(), second.outcome()]
    self.assert_ends(server)
    self.assertEqual(runs[0]["norm"], LIMIT)
    # A Trainer may have begun a step more.
    runs[0]["batches"] = runs[0]["batches"][:len(runs[1]["batches"])]
    return runs

  def test_trainers_clip_the_mean_with_reduce(self):
    for trainer in (in_hugging_face, in_lightning):
      with self.subTest(trainer.__name__):
        runs = self.run_trainer(trainer, **REDUCE)
        self.replay_changed(runs, "mlp", "momentum", parts=2)

  def test_servers_clip_in_place_of_trainers_in_sync(self):
    for trainer in (in_hugging_face, in_lightning):
      with self.subTest(trainer.__name__):
        runs = self.run_trainer(trainer, **SYNC)
        self.replay_changed(runs, "mlp", "momentum", parts=2)
        self.assertEqual(runs[1]["clip_norm"], LIMIT)


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
