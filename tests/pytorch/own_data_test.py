# SPDX-License-Identifier: Apache-2.0
"""A worker that is started again goes on in data of its own, or is told that they begin again. Run by
run.sh, with a Python that has PyTorch.

Usage: own_data_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import itertools  # noqa: E402  (after the path is set)
import unittest  # noqa: E402
import warnings  # noqa: E402

import torch  # noqa: E402

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import program  # noqa: E402
import replay  # noqa: E402
from lodestar._own_data import OwnData  # noqa: E402

MOMENTUM = {"mode": "sync", "min_workers": 1, **replay.MOMENTUM}
LOCAL = {"mode": "local_sgd", "local_steps": 2, "min_workers": 1, "outer_optimizer": "average"}
BEGINS_AGAIN = "begin again at the first sample"


class Stream(torch.utils.data.IterableDataset):

  def __iter__(self):
    return iter(range(96))


class StatefulStream(Stream):
  """As data sets of `datasets` have it."""

  def __init__(self):
    self.position = 0

  def __iter__(self):
    while self.position < 96:
      self.position += 1
      yield self.position - 1

  def state_dict(self):
    return {"position": self.position}

  def load_state_dict(self, state):
    self.position = state["position"]


class StatefulBatches:
  """As a loader of torchdata."""

  def __init__(self):
    self.stream = StatefulStream()

  def __iter__(self):
    samples = iter(self.stream)
    while batch := list(itertools.islice(samples, 4)):
      yield torch.tensor(batch)

  def state_dict(self):
    return self.stream.state_dict()

  def load_state_dict(self, state):
    self.stream.load_state_dict(state)


class FakeWorker:

  def __init__(self, rounds_done, local_steps=0):
    self._settings = {"rounds_done": str(rounds_done), "local_steps": str(local_steps),
                      "has_local_steps": str(int(local_steps > 0))}

  def job(self, setting):
    return self._settings[setting]


class OwnDataTest(replay.ReplayTestCase):

  def live(self, data, num_steps, *, name="a", asks=False, accumulate=1, is_killed=False,
           state_dir=True, **loader_options):
    """One life of a worker. Returns the samples of its batches, what it was told was done before,
    and whether it was warned."""
    model, optimizer = program.make_worker("a", "mlp", "momentum")
    batches = []
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter("always")
      ps = lodestar.join(f"127.0.0.1:{self.port}", name=name,
                         state_dir=self.path("state") if state_dir else None)
      ps.attach(model, optimizer, overlap=False)
      done = ps.batches_done if asks else None
      for batch in ps.loader(data, accumulate=accumulate, **loader_options):
        batches.append(batch.tolist())
        program.small_models.loss_of(model, batch).backward()
        if ps.is_last_batch:
          optimizer.step()
          optimizer.zero_grad()
          if len(batches) == num_steps * accumulate:
            break
      ps.leave()
    return sum(batches, []), done, any(BEGINS_AGAIN in str(warning.message) for warning in caught)

  def test_batches_done_are_those_of_all_lives_of_a_name(self):
    for flags, steps in ((MOMENTUM, 5), (LOCAL, 6)):
      with self.subTest(flags=flags):
        self.start_client_server(rounds=1000, batch_size=4, **flags)
        loader = torch.utils.data.DataLoader(Stream(), 4)
        self.assertEqual(self.live(loader, steps, asks=True), (list(range(4 * steps)), 0, False))
        samples, done, is_warned = self.live(loader, steps, asks=True)
        self.assertEqual((done, is_warned), (steps, False))
        self.assertEqual(samples, list(range(4 * steps)), "the program does not skip them")
        self.assertEqual(self.live(loader, 1, name="b", asks=True)[1], 0)
        self._end_processes()

  def test_data_that_begin_again_are_warned_of(self):
    self.start_client_server(rounds=1000, batch_size=4, **MOMENTUM)
    loader = torch.utils.data.DataLoader(Stream(), 4)
    self.assertFalse(self.live(loader, 3, state_dir=False)[2])
    self.assertTrue(self.live(loader, 3)[2])
    self.assertFalse(self.live(loader, 3, name="b")[2], "it is a new worker")
    self.assertTrue(self.live(loader, 3, name=None)[2], "it may have been there")

  def test_loader_with_a_state_goes_on_where_the_last_process_ended(self):
    self.start_client_server(rounds=1000, batch_size=4, **MOMENTUM)
    for name, data in (("a", StatefulBatches), ("b", StatefulStream),
                       ("c", lambda: torch.utils.data.DataLoader(StatefulStream(), 4))):
      with self.subTest(data=data):
        options = {"batch_size": 4} if data is StatefulStream else {}
        first, _, _ = self.live(data(), 3, name=name, **options)
        second, _, is_warned = self.live(data(), 4, name=name, **options)
        third, _, _ = self.live(data(), 2, name=name, **options)
        self.assertEqual(first + second + third, list(range(4 * 9)))
        self.assertFalse(is_warned)

  def test_batches_of_a_step_are_counted(self):
    self.start_client_server(rounds=1000, batch_size=8, **MOMENTUM)
    first, _, _ = self.live(StatefulBatches(), 2, accumulate=2)
    second, _, _ = self.live(StatefulBatches(), 2, accumulate=2)
    self.assertEqual(first + second, list(range(32)))

  def test_state_without_state_dir_is_not_kept(self):
    self.start_client_server(rounds=1000, batch_size=4, **MOMENTUM)
    self.live(StatefulBatches(), 3, state_dir=False)
    samples, _, is_warned = self.live(StatefulBatches(), 1, state_dir=False)
    self.assertEqual((samples, is_warned), ([0, 1, 2, 3], True))


class KeepingTest(unittest.TestCase):

  def setUp(self):
    self.now = 0.0
    folder = cluster_processes.tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = folder.name

  def make(self, rounds_done, **options):
    data = OwnData(FakeWorker(rounds_done, **options), "a", self.folder, lambda: self.now)
    loader = StatefulBatches()
    return data, loader, data.follow(loader)

  def keep(self, position, rounds_done=0, num_steps=1):
    data, loader, _ = self.make(rounds_done)
    loader.stream.position = position
    for _ in range(num_steps):
      data.end_step()

  def test_batches_that_servers_have_and_the_state_has_not_are_left_out(self):
    self.keep(position=12, num_steps=3)
    data, loader, restore = self.make(rounds_done=7)
    self.assertEqual(restore(), 7 - 3)
    self.assertEqual(loader.stream.position, 12)
    self.assertEqual(data.batches_done, 7)

  def test_state_that_is_ahead_of_the_servers_is_used(self):
    self.keep(position=12, num_steps=3)
    _, loader, restore = self.make(rounds_done=1)
    self.assertEqual((restore(), loader.stream.position), (0, 12))

  def test_state_of_another_job_is_not_used(self):
    self.keep(position=12, num_steps=3)
    _, loader, restore = self.make(rounds_done=0)
    with self.assertWarnsRegex(UserWarning, "another job"):
      self.assertEqual(restore(), 0)
    self.assertEqual(loader.stream.position, 0)

  def test_program_that_counts_batches_is_warned_once_of_uneven_steps(self):
    data, _, _ = self.make(rounds_done=0)
    with warnings.catch_warnings():
      warnings.simplefilter("error")
      data.begin_uneven_step()
    self.assertEqual(data.batches_done, 0)
    with self.assertWarnsRegex(UserWarning, "accumulate="):
      data.begin_uneven_step()

  def test_keeping_takes_a_small_part_of_the_time(self):
    data, loader, _ = self.make(rounds_done=0)
    num_kept = 0

    def state_dict():
      nonlocal num_kept
      num_kept += 1
      self.now += 0.1
      return {}

    loader.state_dict = state_dict
    for _ in range(1000):
      self.now += 0.01
      data.end_step()
    self.assertLessEqual(num_kept * 0.1, 0.06 * self.now)
    self.assertGreater(num_kept, 3)
    before = num_kept
    data.close()
    self.assertEqual(num_kept, before + 1)

  def test_folder_that_cannot_be_written_is_warned_of_once(self):
    with open(os.path.join(self.folder, "loaders"), "w", encoding="ascii"):
      pass  # where the folder should be
    data, _, _ = self.make(rounds_done=0)
    with self.assertWarnsRegex(UserWarning, "cannot be kept"):
      data.end_step()
    with warnings.catch_warnings():
      warnings.simplefilter("error")
      data.end_step()


if __name__ == "__main__":
  cluster_processes.main()
