# SPDX-License-Identifier: Apache-2.0
"""Losses over uneven numbers of targets: two workers that give them as weights equal one. Run by
run.sh, with a Python that has PyTorch.

Usage: step_weights_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys

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
from lodestar import _step_weights  # noqa: E402

SYNC = {"mode": "sync", **replay.ADAMW}
REDUCE = {"mode": "sync", "optimizer": "reduce"}
LOCAL = {"mode": "local_sgd", "local_steps": 3, "outer_optimizer": "average", "rounds": 4}
IGNORED = -100
# Samples whose number is no multiple of 3 have no target; each other one has one.
LABELS = torch.where(torch.arange(small_models.NUM_SAMPLES) % 3 == 0, small_models.TRAIN.labels,
                     IGNORED)


class Masked(torch.utils.data.Dataset):

  def __len__(self):
    return len(LABELS)

  def __getitem__(self, index):
    return {"index": index, "labels": LABELS[index]}


def sum_of_losses(model, indices):
  return torch.nn.functional.cross_entropy(model(small_models.TRAIN.features[indices]),
                                           LABELS[indices], ignore_index=IGNORED, reduction="sum")


def num_targets(indices):
  return int(LABELS[indices].ne(IGNORED).sum())


def masked(address, name, model_name, optimizer_name, *, is_weighed=lambda step: True,
           is_late=False, accumulate=1, overlap=True, batch_size=8):
  """Trains with the mean over targets. Returns the batches of each step, and what it was warned of."""
  model, optimizer = program.make_worker(name, model_name, optimizer_name, replay.RATE)
  steps = []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer, overlap=overlap)
    sums = []
    for batch in ps.loader(Masked(), batch_size=batch_size, accumulate=accumulate):
      sums.append(batch["index"])
      weight = num_targets(batch["index"]) if is_weighed(len(steps)) else None
      loss = sum_of_losses(model, batch["index"])
      if not is_late:
        ps.log(loss / max(weight or 1, 1), weight=weight)
      if ps.is_last_batch:
        # The mean over all targets of the step: gradients so far are of sums.
        total = max(sum(num_targets(indices) for indices in sums), 1)
        for parameter in model.parameters():
          if parameter.grad is not None:
            parameter.grad /= total
        loss = loss / total
      loss.backward()
      if is_late:
        ps.log(loss, weight=weight)
      if ps.is_last_batch:
        steps.append(sums)
        sums = []
        optimizer.step()
        optimizer.zero_grad()
  return {"steps": steps, "weights": model.state_dict(),
          "warned_of": ps._warned_of}


class StepWeightsTest(replay.ReplayTestCase):

  def run_masked(self, optimizer_name, *, programs=({}, {}), flags):
    server = self.start_client_server(**{"min_workers": len(programs), **flags})
    started = [self.start_first_program("mlp", optimizer_name, run=masked, **programs[0])]
    for name, options in zip("bc", programs[1:]):
      started.append(self.start_program(name, "mlp", optimizer_name, run=masked, **options))
    outcomes = [worker.outcome() for worker in started]
    self.assert_ends(server)
    return outcomes

  def replay_as_one_worker(self, runs, optimizer_name):
    """Each step of the job is one of plain PyTorch, over the targets of all workers together."""
    model = small_models.MODELS["mlp"]()
    optimizer = small_models.OPTIMIZERS[optimizer_name](model, replay.RATE)
    for of_workers in zip(*(run["steps"] for run in runs)):
      indices = torch.cat([batch for batches in of_workers for batch in batches])
      optimizer.zero_grad()
      (sum_of_losses(model, indices) / num_targets(indices)).backward()
      optimizer.step()
    for run in runs:
      self.assert_close(run, model, 1e-6)

  def test_two_workers_with_masked_targets_equal_one(self):
    for flags in (SYNC, REDUCE):
      with self.subTest(flags=flags):
        runs = self.run_masked("adamw", flags=flags)
        self.assertNotEqual([num_targets(batches[0]) for batches in runs[0]["steps"]],
                            [num_targets(batches[0]) for batches in runs[1]["steps"]])
        self.replay_as_one_worker(runs, "adamw")
        self.assertEqual([run["warned_of"] for run in runs], [set(), set()])

  def test_weights_of_the_batches_of_a_step_add_up(self):
    options = {"accumulate": 2, "batch_size": 4, "overlap": False}
    runs = self.run_masked("adamw", programs=[options] * 2, flags=SYNC)
    self.assertEqual({len(batches) for batches in runs[0]["steps"]}, {2})
    self.replay_as_one_worker(runs, "adamw")

  def test_local_steps_are_averaged_by_the_sum_of_their_weights(self):
    runs = self.run_masked("momentum", programs=[{"is_late": True}] * 2, flags=LOCAL)
    models = [small_models.MODELS["mlp"]() for _ in runs]
    optimizers = [small_models.OPTIMIZERS["momentum"](model, replay.RATE) for model in models]
    for begin in range(0, 12, 3):
      totals = [0, 0]
      for k, (run, model, optimizer) in enumerate(zip(runs, models, optimizers)):
        for indices, in run["steps"][begin:begin + 3]:
          optimizer.zero_grad()
          totals[k] += num_targets(indices)
          (sum_of_losses(model, indices) / max(num_targets(indices), 1)).backward()
          optimizer.step()
      with torch.no_grad():
        for ours, theirs in zip(*(model.parameters() for model in models)):
          mean = (ours * totals[0] + theirs * totals[1]) / sum(totals)
          ours.copy_(mean)
          theirs.copy_(mean)
    for run in runs:
      self.assert_close(run, models[0], 2e-6)

  def test_uneven_targets_without_a_weight_are_warned_of(self):
    runs = self.run_masked("adamw", programs=[{"is_weighed": lambda _: False}] * 2, flags=SYNC)
    self.assertEqual([run["warned_of"] for run in runs], [{"uneven"}] * 2)

  def test_weight_after_gradients_have_left_is_refused(self):
    for options, flags in (({"is_late": True}, SYNC), ({"is_late": True}, REDUCE)):
      with self.subTest(flags=flags):
        with self.assertRaisesRegex(lodestar.LodestarError, "weight=") as raised:
          self.run_masked("adamw", programs=[options], flags=flags)
        self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")
        self.assertIn("overlap=False", str(raised.exception))
        self._end_processes()
    self.run_masked("adamw", programs=[{"is_late": True, "overlap": False}], flags=SYNC)

  def test_step_without_a_weight_among_others_with_one_is_refused(self):
    with self.assertRaisesRegex(lodestar.LodestarError, "in each step, or in none") as raised:
      self.run_masked("adamw", programs=[{"is_weighed": lambda step: step != 2}], flags=SYNC)
    self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")

  def test_worker_without_weights_among_others_with_them_is_refused(self):
    server = self.start_client_server(rounds=1000, **SYNC)
    first = self.start_first_program("mlp", "adamw", run=masked)
    second = self.start_program("b", "mlp", "adamw", run=masked, is_weighed=lambda _: False)
    with self.assertRaisesRegex(lodestar.LodestarError, "weight") as raised:
      second.outcome()
    self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")
    self.assertTrue(first.is_alive())
    del server

  def test_weight_that_is_no_count_is_refused(self):
    weights = _step_weights.StepWeights(None, None)
    for bad in (-1, 2.5, float("nan"), float("inf"), (1 << 40) + 1, "4", torch.ones(2)):
      with self.subTest(weight=bad):
        with self.assertRaisesRegex(lodestar.LodestarError, "weight=") as raised:
          weights.add(bad)
        self.assertEqual(raised.exception.code, "INVALID_ARGUMENT")
    for good in (0, 7, 7.0, torch.tensor(7), 1 << 40):
      self.assertEqual(_step_weights.checked_weight(good), int(good))

  def test_weight_without_effect_is_warned_of_once(self):
    for flags, options in (({**SYNC, "mode": "async"}, {}),
                           ({"mode": "async_local_sgd", "local_steps": 3, "rounds": 4},
                            {"is_late": True})):
      with self.subTest(flags=flags):
        run, = self.run_masked("adamw", programs=[options], flags=flags)
        self.assertEqual(run["warned_of"], {"weightless"})
        self._end_processes()

  def test_uneven_targets_are_found_in_integers_alone(self):
    targets = torch.tensor([[1, IGNORED], [2, 3]])
    even = torch.tensor([[1, IGNORED], [IGNORED, 3]])
    for batch, is_uneven in ((targets, True), ([even, {"labels": targets}], True), (even, False),
                             (targets.float(), False), (targets.to(torch.uint8), False),
                             (torch.tensor(IGNORED), False), (torch.empty(0, 3).long(), False),
                             (["text", None, 3], False)):
      with self.subTest(batch=batch):
        looked = [_step_weights._has_uneven_targets(tensor)
                  for tensor in _step_weights._tensors_in(batch)]
        self.assertEqual(any(looked), is_uneven)


if __name__ == "__main__":
  cluster_processes.main()
