# SPDX-License-Identifier: Apache-2.0
"""What libraries write of a model that is a worker's is all of it, and nothing else. Run by run.sh,
with a Python that has PyTorch.

Usage: saving_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import accelerate  # noqa: E402  (after the path is set)
import huggingface_hub  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

import cluster_processes  # noqa: E402
import program  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402

MODES = ({"mode": "sync"}, {"mode": "async"}, {"mode": "local_sgd", "local_steps": 2},
         {"mode": "sync", "optimizer": "reduce"})


class SavingTest(replay.ReplayTestCase):

  def run_alone(self, change, model_name="mlp", rounds=4, **flags):
    """The only program of a job, which calls `change` after each step."""
    server = self.start_client_server(min_workers=1, rounds=rounds, **{"optimizer": "sgd", **flags})
    run = self.start_program("a", model_name, "sgd", change, run=program.changing).outcome()
    self.assert_ends(server)
    return run

  def assert_own_storages(self, tensors):
    addresses = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    self.assertEqual(len(addresses), len(tensors))
    for tensor in tensors:
      self.assertEqual(tensor.storage_offset(), 0)
      self.assertEqual(tensor.untyped_storage().nbytes(), 4 * tensor.numel())

  def test_each_parameter_has_a_storage_of_its_own_during_the_job_and_after_it(self):
    for flags in MODES:
      with self.subTest(flags=flags):
        run = self.run_alone(lambda _, model, __: self.assert_own_storages(
            list(model.parameters())), **flags)
        self.assert_own_storages(list(run["weights"].values()))

  def test_tied_weights_stay_one_storage(self):

    def check(_, model, __):
      self.assertIs(model.head.weight, model.tokens.weight)
      self.assert_own_storages(list(model.parameters()))

    self.run_alone(check, "transformer", mode="sync")

  def test_save_of_one_tensor_writes_no_other(self):
    path = self.path("bias.pt")
    plain = self.path("plain.pt")

    def save(_, model, __):
      torch.save(model[2].bias, path)
      torch.save(torch.nn.Parameter(torch.zeros(5)), plain)
      self.assertLess(abs(os.path.getsize(path) - os.path.getsize(plain)), 256)
      self.assertTrue(torch.equal(torch.load(path), model[2].bias))

    self.run_alone(save, mode="sync")

  def test_libraries_save_all_tensors_of_a_model(self):
    accelerator = accelerate.Accelerator(cpu=True)

    def save_by_safetensors(model, folder):
      safetensors.torch.save_model(model, os.path.join(folder, "model.safetensors"))

    def save(_, model, __):
      for way in save_by_safetensors, huggingface_hub.save_torch_model, accelerator.save_model:
        with tempfile.TemporaryDirectory() as folder:
          way(model, folder)
          saved = safetensors.torch.load_file(os.path.join(folder, "model.safetensors"))
        self.assertEqual(saved.keys(), model.state_dict().keys())
        for key, weights in model.state_dict().items():
          self.assertTrue(torch.equal(saved[key], weights), key)

    for flags in MODES:
      with self.subTest(flags=flags):
        self.run_alone(save, rounds=1, **flags)

  def test_weights_that_move_to_shared_memory_are_still_the_jobs(self):

    def share(step, model, _):
      if step == 1:
        model.share_memory()

    for flags in ({"mode": "sync"}, {"mode": "local_sgd", "local_steps": 2,
                                     "outer_optimizer": "average"}):
      with self.subTest(flags=flags):
        run = self.run_alone(share, rounds=6, **flags)
        model = small_models.MODELS["mlp"]()
        optimizer = small_models.OPTIMIZERS["sgd"](model, replay.RATE)
        for batch in run["batches"]:
          program.make_step(model, optimizer, batch)
        self.assert_close(run, model, 1e-6)


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
