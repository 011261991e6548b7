# SPDX-License-Identifier: Apache-2.0
"""What Hugging Face's accelerate has prepared stays so in a worker, and accumulates as it says. Run by
run.sh, with a Python that has PyTorch.

Usage: accelerate_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys
import types

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import accelerate  # noqa: E402  (after the path is set)
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from accelerate.state import AcceleratorState, GradientState  # noqa: E402

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402
from lodestar import _accelerate  # noqa: E402

MODES = ({"mode": "sync", "optimizer": "momentum", "momentum": 0.9},
         {"mode": "sync", "optimizer": "reduce"},
         {"mode": "local_sgd", "local_steps": 2, "outer_optimizer": "average"})


def make_accelerator(num_batches=1):
  """Accelerators of a process share their state."""
  AcceleratorState._reset_state(reset_partial_state=True)
  GradientState._reset_state()
  return accelerate.Accelerator(cpu=True, gradient_accumulation_steps=num_batches)


def train(address, name, num_batches, is_prepared_first, with_scheduler=False, on_step=None,
          **loader_options):
  """Batches of 8 / num_batches samples. Returns the samples of the batches, and the weights."""
  accelerator = make_accelerator(num_batches)
  model = small_models.MODELS["mlp"]()
  optimizer = small_models.OPTIMIZERS["momentum"](model, replay.RATE)
  scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.8)
  batches = []
  with lodestar.join(address, name=name) as ps:
    if is_prepared_first:
      model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    attached = ps.attach(model, optimizer, schedulers=[scheduler] if with_scheduler else [])
    assert attached == (model, optimizer)
    if not is_prepared_first:
      model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    for indices, _, _ in ps.loader(small_models.TRAIN, 8 // num_batches, **loader_options):
      batches.append(indices)
      with accelerator.accumulate(model):
        accelerator.backward(small_models.loss_of(model, indices))
        optimizer.step()
        if with_scheduler:
          scheduler.step()
        optimizer.zero_grad()
      if on_step is not None:
        on_step(accelerator, model)
  return {"batches": batches, "weights": model.state_dict()}


class AccelerateTest(replay.ReplayTestCase):

  def run_alone(self, *arguments, **flags):
    options = flags.pop("options", {})
    server = self.start_client_server(**{"min_workers": 1, "rounds": 4, **flags})
    run = self.start_program("a", *arguments, run=train, **options).outcome()
    self.assert_ends(server)
    return run

  def assert_steps(self, run, num_batches, factor=1.0):
    """Each num_batches batches are one step of plain PyTorch."""
    model = small_models.MODELS["mlp"]()
    optimizer = small_models.OPTIMIZERS["momentum"](model, replay.RATE)
    for begin in range(0, len(run["batches"]), num_batches):
      optimizer.zero_grad()
      for indices in run["batches"][begin:begin + num_batches]:
        (small_models.loss_of(model, indices) / num_batches).backward()
      optimizer.step()
      optimizer.param_groups[0]["lr"] *= factor
    self.assert_close(run, model, 1e-6)

  def test_prepared_optimizer_accumulates_as_the_accelerator_says(self):
    for flags in MODES:
      for is_prepared_first in True, False:
        for num_batches in 1, 4:
          with self.subTest(flags=flags, first=is_prepared_first, num_batches=num_batches):
            run = self.run_alone(num_batches, is_prepared_first, **flags)
            self.assertEqual(len(run["batches"]), 4 * num_batches * flags.get("local_steps", 1))
            self.assert_steps(run, num_batches)

  def test_prepared_scheduler_moves_with_the_job(self):
    for flags in MODES:
      if "optimizer" in flags and flags["optimizer"] != "reduce":
        flags = {"mode": "sync"}  # the rates are the program's
      with self.subTest(flags=flags):
        run = self.run_alone(2, True, True, learning_rate=None, **flags)
        self.assert_steps(run, 2, 0.8)

  def test_accumulate_that_is_given_counts(self):
    server = self.start_client_server(min_workers=1, mode="sync", optimizer="momentum",
                                      momentum=0.9)
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("a", 2, True, run=train, accumulate=1).outcome()
    self.stop_job(server)
    self.assertIn("--batch_size=4", str(refused.exception))

  def test_states_and_models_are_saved_and_loaded_whole(self):

    def save(accelerator, model):
      folder = self.path("saved")
      accelerator.save_model(model, os.path.join(folder, "model"))
      accelerator.save_state(folder)
      for path in ("model/model.safetensors", "model.safetensors"):
        saved = safetensors.torch.load_file(os.path.join(folder, path))
        self.assertEqual(saved.keys(), model.state_dict().keys())
      wanted = {name: weights.clone() for name, weights in model.state_dict().items()}
      accelerator.load_state(folder)
      if flags.get("optimizer") == "momentum":  # the servers have the state
        accelerator._optimizers[0].optimizer.state.clear()
      for name, weights in model.state_dict().items():
        self.assertTrue(torch.equal(weights, wanted[name]), name)

    for flags in MODES:
      with self.subTest(flags=flags):
        self.run_alone(1, True, options={"on_step": save}, **flags)

  def test_scaler_that_holds_an_earlier_step_is_refused(self):
    prepared = types.SimpleNamespace(gradient_state=None, scaler=object(), optimizer=None)
    with self.assertRaises(lodestar.LodestarError) as refused:
      _accelerate.inner_optimizer(prepared)
    self.assertIn("accelerator.prepare()", str(refused.exception))


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
