# SPDX-License-Identifier: Apache-2.0
"""A program's DataLoader is taken apart, so that no two workers train on one sample; what cannot be
granted is refused by name. Run by run.sh, with a Python that has PyTorch.

Usage: data_loader_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import torch  # noqa: E402  (after the path is set)
from torch.utils.data import (BatchSampler, DataLoader, IterableDataset,  # noqa: E402
                              RandomSampler, SequentialSampler, Subset, SubsetRandomSampler,
                              WeightedRandomSampler)

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import program  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402
from lodestar import session  # noqa: E402
from lodestar._data_loaders import take_apart  # noqa: E402

TRAIN = small_models.TRAIN
ALL_SAMPLES = list(range(96))


class WithOwnIterator(DataLoader):

  def __iter__(self):
    return super().__iter__()


class Shuffled(RandomSampler):
  """May do anything."""


class Stream(IterableDataset):

  def __iter__(self):
    return iter(range(3))


def mark(samples):
  """Stands for a collate_fn of the program's."""
  indices, features, labels = torch.utils.data.default_collate(samples)
  return indices.clone(), features, labels


class TakeApartTest(unittest.TestCase):

  def test_sampler_that_cannot_be_granted_is_refused_by_name(self):
    weights = [1.0] * 96
    for loader, name in (
        (DataLoader(TRAIN, 8, sampler=WeightedRandomSampler(weights, 96)), "WeightedRandomSampler"),
        (DataLoader(TRAIN, 8, sampler=SubsetRandomSampler([1, 2])), "torch.utils.data.Subset"),
        (DataLoader(TRAIN, 8, sampler=RandomSampler(TRAIN, replacement=True)), "replacement=True"),
        (DataLoader(TRAIN, 8, sampler=RandomSampler(TRAIN, num_samples=5)), "num_samples=5 of 96"),
        (DataLoader(TRAIN, 8, sampler=Shuffled(TRAIN)), "Shuffled"),
        (DataLoader(TRAIN, batch_sampler=[[1, 2], [3]]), "batch_sampler=list"),
        (DataLoader(TRAIN, batch_size=None, shuffle=True), "batch_size=None"),
        (WithOwnIterator(TRAIN, 8, shuffle=True), "WithOwnIterator"),
    ):
      with self.subTest(name=name):
        with self.assertRaisesRegex(lodestar.LodestarError, name) as raised:
          take_apart(loader)
        self.assertEqual(raised.exception.code, "INVALID_ARGUMENT")
        self.assertIn("is_own=True", str(raised.exception))

  def test_options_that_do_not_say_which_samples_come_are_kept(self):
    generator = torch.Generator()
    loader = DataLoader(TRAIN, 8, shuffle=True, collate_fn=mark, num_workers=2, drop_last=True,
                        generator=generator, prefetch_factor=3, persistent_workers=True,
                        worker_init_fn=print, timeout=5)
    dataset, batch_size, options, is_shuffled, placement = take_apart(loader)
    self.assertTrue(is_shuffled)
    self.assertIsNone(placement)
    self.assertIs(dataset, TRAIN)
    self.assertEqual(batch_size, 8)
    again = DataLoader(dataset, batch_sampler=[[0]], **options)
    for name in ("collate_fn", "num_workers", "generator", "prefetch_factor", "persistent_workers",
                 "worker_init_fn", "timeout", "pin_memory"):
      self.assertEqual(getattr(again, name), getattr(loader, name), name)

  def test_batch_sampler_around_random_sampler_is_granted(self):
    loader = DataLoader(TRAIN, batch_sampler=BatchSampler(RandomSampler(TRAIN), 6, False))
    self.assertEqual(take_apart(loader).batch_size, 6)
    self.assertEqual(take_apart(DataLoader(Subset(TRAIN, [5, 6]), shuffle=True)).batch_size, 1)

  def test_loader_that_does_not_shuffle_is_granted_in_order(self):
    for loader in (DataLoader(TRAIN, 8), DataLoader(TRAIN, 8, sampler=SequentialSampler(TRAIN))):
      self.assertFalse(take_apart(loader).is_shuffled)

  def test_iterable_data_is_never_granted(self):
    self.assertFalse(session._is_granted_loader(DataLoader(Stream())))
    self.assertFalse(session._is_granted_loader(TRAIN))
    self.assertTrue(session._is_granted_loader(DataLoader(TRAIN)))


class DataLoaderTest(replay.ReplayTestCase):

  def run_in_passes(self, *arguments, rounds, batch_size, num_programs=2, **loader_options):
    server = self.start_client_server(mode="sync", rounds=rounds, min_workers=num_programs,
                                      batch_size=batch_size, **replay.ADAMW)
    loader_options["batch_size"] = batch_size
    programs = [self.start_first_program("mlp", "adamw", *arguments, run=program.in_passes,
                                         **loader_options)]
    for name in ("b", "c")[:num_programs - 1]:
      programs.append(self.start_program(name, "mlp", "adamw", *arguments, run=program.in_passes,
                                         **loader_options))
    outcomes = [started.outcome() for started in programs]
    self.assert_ends(server)
    return outcomes

  def test_no_sample_of_a_pass_is_trained_on_twice(self):
    # A pass has 96 samples: six rounds of two batches of 8.
    runs = self.run_in_passes(3, rounds=18, batch_size=8, collate_fn=mark)
    for k in range(3):
      of_pass = [torch.cat(run["passes"][k]) for run in runs]
      self.assertEqual(sorted(torch.cat(of_pass).tolist()), ALL_SAMPLES)
      self.assertEqual([len(samples) for samples in of_pass], [48, 48])
    self.assertEqual([run["epochs"] for run in runs], [[0, 1, 1, 2, 2, 2]] * 2)
    self.assertEqual([run["begun"] for run in runs], [0, 0])
    self.assertEqual([run["lengths"] for run in runs], [[6, 6, 6]] * 2)
    self.assertEqual([run["is_over"] for run in runs], [True, True])
    self.assertEqual(sorted(run["place"][0] for run in runs), [0, 1])
    self.assertTrue(all(run["has_dataset"] for run in runs))
    self.replay_gradients(runs, "mlp", "adamw")

  def test_all_workers_end_a_pass_with_the_same_round(self):
    # Rounds of 18 samples: in the round of samples 90 to 107 the second worker has none of this pass.
    runs = self.run_in_passes(3, rounds=16, batch_size=9)
    self.assertEqual([[len(batches) for batches in run["passes"]] for run in runs], [[6, 5, 5]] * 2)
    self.replay_gradients(runs, "mlp", "adamw")

  def test_samples_come_in_order_without_shuffling(self):
    runs = self.run_in_passes(2, rounds=12, batch_size=8, shuffle=False, num_workers=1)
    for k in range(2):
      rounds = [torch.cat(batches) for batches in zip(*(run["passes"][k] for run in runs))]
      self.assertEqual([sorted(samples.tolist()) for samples in rounds],
                       [list(range(begin, begin + 16)) for begin in range(0, 96, 16)])
    self.replay_gradients(runs, "mlp", "adamw")

  def test_second_loader_in_another_order_is_refused(self):
    self.start_client_server(mode="sync", rounds=1, min_workers=1, **replay.ADAMW)
    model, optimizer = program.make_worker("a", "mlp", "adamw")
    with lodestar.join(f"127.0.0.1:{self.port}", name="a") as ps:
      ps.attach(model, optimizer)
      ps.index  # pylint: disable=pointless-statement
      ps.loader(DataLoader(TRAIN, 8, shuffle=False))
      with self.assertRaisesRegex(lodestar.LodestarError, "order") as raised:
        ps.loader(DataLoader(TRAIN, 8, shuffle=True))
      self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")

  def test_length_counts_a_batch_that_reaches_into_the_next_pass(self):
    run, = self.run_in_passes(1, rounds=14, num_programs=1, batch_size=7, num_workers=1)
    self.assertEqual(run["place"], (0, 1, True))
    self.assertEqual(run["lengths"], [14])
    self.assertEqual(len(run["passes"][0]), 14)

  def test_batch_that_reaches_into_the_next_pass_belongs_to_its_first_sample(self):
    run, = self.run_in_passes(2, rounds=4, num_programs=1, batch_size=60)
    self.assertEqual([len(batches) for batches in run["passes"]], [2, 2])
    self.assertEqual(run["epochs"], [0, 1, 1, 1])
    self.assertEqual({len(batch) for batch in run["batches"]}, {60})

  def test_index_is_known_before_the_data_and_loaded_weights_count(self):
    server = self.start_client_server(mode="sync", rounds=1, min_workers=1,
                                      **{**replay.MOMENTUM, "learning_rate": 1e-12})
    model = small_models.MODELS["mlp_bf16"]()
    optimizer = small_models.OPTIMIZERS["momentum"](model, 1.0)
    with lodestar.join(f"127.0.0.1:{self.port}", name="a") as ps:
      with self.assertRaisesRegex(lodestar.LodestarError, "attach") as raised:
        print(ps.index)
      self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")
      ps.attach(model, optimizer)
      self.assertEqual((ps.index, ps.count, ps.is_first, ps.epoch), (0, 1, True, 0))
      model.load_state_dict({key: torch.full_like(weights, 0.25)
                             for key, weights in model.state_dict().items()})
      for indices, _, _ in ps.loader(TRAIN, batch_size=8):
        program.make_step(model, optimizer, indices)
    self.assert_ends(server)
    for name, weights in model.state_dict().items():
      self.assertTrue((weights == 0.25).all(), name)

  def test_loader_after_index_has_the_batch_size_of_the_server(self):
    server = self.start_client_server(mode="sync", min_workers=1, **replay.ADAMW)
    model, optimizer = program.make_worker("a", "mlp", "adamw")
    with lodestar.join(f"127.0.0.1:{self.port}", name="a") as ps:
      ps.attach(model, optimizer)
      self.assertEqual(ps.index, 0)
      with self.assertRaisesRegex(lodestar.LodestarError, "--batch_size=9") as raised:
        ps.loader(TRAIN, batch_size=9)
      self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")
    self.stop_job(server)

  def test_options_beside_those_of_a_data_loader_are_refused(self):
    model = torch.nn.Linear(2, 2)
    with lodestar.join("127.0.0.1:1", name="a") as ps:
      ps.attach(model, torch.optim.SGD(model.parameters(), lr=1.0))
      loader = DataLoader(TRAIN, 8, shuffle=True)
      for refused, options in (("num_workers", {"num_workers": 1}),
                               ("batch_size=9", {"batch_size": 9})):
        with self.assertRaisesRegex(lodestar.LodestarError, refused) as raised:
          ps.loader(loader, **options)
        self.assertEqual(raised.exception.code, "INVALID_ARGUMENT")


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
