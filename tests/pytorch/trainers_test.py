# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer, Lightning's and accelerate's loader train on the samples that the servers
grant. Run by run.sh, with a Python that has PyTorch.

Usage: trainers_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import json  # noqa: E402  (after the path is set)

import torch  # noqa: E402

import cluster_processes  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402
import trainer_program  # noqa: E402

ALL_SAMPLES = list(range(96))
MOMENTUM = {"mode": "sync", **replay.MOMENTUM}


class TrainersTest(replay.ReplayTestCase):

  def run_trainers(self, kind, *, num_workers=2, is_masked=False, is_own=False, num_samples=96,
                   arguments=None, loader=None, is_meta=False, is_weighted=False, **flags):
    """Returns what each worker has stored."""
    server = self.start_client_server(**{"batch_size": None, "min_workers": num_workers,
                                         "learning_rate": None, **MOMENTUM, **flags})
    options = {"is_masked": is_masked, "is_own": is_own, "num_samples": num_samples,
               "arguments": arguments or {}, "folder": self.path("trainer"), "is_meta": is_meta,
               "is_weighted": is_weighted, "loader": {"shuffle": True, **(loader or {})}}
    processes, paths = [], []
    for name in "ab"[:num_workers]:
      paths.append(self.path(f"{name}.pt"))
      processes.append(self.start(
          [sys.executable, "-B", os.path.join(HERE, "trainer_program.py"), kind,
           f"127.0.0.1:{self.port}", name, paths[-1], json.dumps(options)], name))
      if name == "a" and num_workers > 1:
        self.wait_for_member("a", processes[0].is_running)
    for process in processes:
      self.assert_ends(process)
    outcomes = [torch.load(path) for path in paths]
    if any("error" in outcome for outcome in outcomes) or is_meta:
      server.kill()
      server.wait()
    else:
      self.assert_ends(server)
    return outcomes

  def replay_steps(self, runs, per_step=1, is_masked=False):
    """Each step of the job is one of plain PyTorch, over all targets of it."""
    model = small_models.MODELS["mlp"]()
    optimizer = torch.optim.SGD(model.parameters(), replay.RATE, momentum=0.9)
    for begin in range(0, len(runs[0]["batches"]), per_step):
      indices = torch.tensor([index for run in runs
                              for batch in run["batches"][begin:begin + per_step]
                              for index in batch])
      optimizer.zero_grad()
      torch.nn.functional.cross_entropy(
          model(small_models.TRAIN.features[indices]),
          trainer_program.labels_of(indices, is_masked)).backward()
      optimizer.step()
    for run in runs:
      self.assert_close(run, model, 1e-6)

  def assert_passes(self, runs, num_passes, samples=None):
    """No sample of a pass is trained on twice, by whichever worker."""
    samples = samples or ALL_SAMPLES
    each = len(samples) // len(runs) // 8
    for k in range(num_passes):
      of_pass = [index for run in runs for batch in run["batches"][k * each:(k + 1) * each]
                 for index in batch]
      self.assertEqual(sorted(of_pass), samples)

  def test_hugging_face_workers_with_one_seed_take_no_sample_twice(self):
    runs = self.run_trainers("hf", rounds=18, arguments={"max_steps": 100})
    self.assertEqual([len(run["batches"]) for run in runs], [18, 18])
    self.assert_passes(runs, 3)
    self.replay_steps(runs)
    # An epoch of the Trainer has 12 batches of its own.
    self.assertEqual([run["steps_of_epochs"] for run in runs], [[12, 18]] * 2)

  def test_hugging_face_weighs_workers_by_targets_and_loads_ahead(self):
    runs = self.run_trainers(
        "hf", rounds=9, is_masked=True,
        arguments={"max_steps": 100, "gradient_accumulation_steps": 2, "dataloader_num_workers": 1})
    self.assert_passes(runs, 3)
    self.replay_steps(runs, per_step=2, is_masked=True)

  def test_hugging_face_leaves_the_rest_of_an_epochs_last_step_out(self):
    run, = self.run_trainers("hf", rounds=4, num_workers=1, num_samples=40,
                             arguments={"max_steps": 100, "gradient_accumulation_steps": 2})
    # 5 batches are an epoch: 2, 2, and 1 of 2.
    self.assertEqual([len(batch) for batch in run["batches"]], [8] * 7)
    self.assertEqual(run["steps_of_epochs"], [3, 4])
    self.assertEqual(len(set(sum(run["batches"][:5], []))), 40)

  def test_hugging_face_with_own_data_reads_it_itself(self):
    runs = self.run_trainers("hf", rounds=6, is_own=True, arguments={"max_steps": 100})
    self.assertEqual(runs[0]["batches"], runs[1]["batches"], "the seed is the same")

  def test_lightning_workers_take_no_sample_twice(self):
    runs = self.run_trainers("lightning", rounds=18, arguments={"max_epochs": -1})
    self.assertEqual([len(run["batches"]) for run in runs], [18, 18])
    self.assert_passes(runs, 3)
    self.replay_steps(runs)
    self.assertTrue(all(run["is_loader_as_before"] for run in runs))

  def test_lightning_weighs_workers_by_targets(self):
    runs = self.run_trainers("lightning", rounds=6, is_masked=True, arguments={"max_epochs": -1},
                             loader={"num_workers": 1})
    self.assert_passes(runs, 1)
    self.replay_steps(runs, is_masked=True)

  def test_sampler_that_cannot_be_granted_is_refused_by_name(self):
    run, = self.run_trainers("lightning", num_workers=1, is_weighted=True,
                             arguments={"max_epochs": -1})
    code, text = run["error"]
    self.assertEqual(code, "INVALID_ARGUMENT")
    self.assertIn("WeightedRandomSampler", text)
    self.assertIn("Callback(..., is_own=True)", text)

  def test_loader_of_accelerate_is_taken_apart(self):
    runs = self.run_trainers("accelerate", rounds=12, loader={"num_workers": 1})
    self.assert_passes(runs, 2)
    self.replay_steps(runs)

  def test_batches_of_accelerates_loader_are_put_on_its_device(self):
    run, = self.run_trainers("accelerate", num_workers=1, is_meta=True)
    self.assertEqual(run["devices"], {"meta"})


if __name__ == "__main__":
  cluster_processes.main()
