# SPDX-License-Identifier: Apache-2.0
"""Models and optimizers of unusual kinds train as in plain PyTorch, or are refused by name. Run by
run.sh, with a Python that has PyTorch.

Usage: unusual_models_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import torch  # noqa: E402  (after the path is set)
from torch.utils.checkpoint import checkpoint  # noqa: E402

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402
from lodestar import _tensor_names  # noqa: E402

MODES = ({"mode": "sync"}, {"mode": "sync", "optimizer": "reduce"},
         {"mode": "local_sgd", "local_steps": 2, "outer_optimizer": "average"})
REDUCE, LOCAL = MODES[1:]
FEATURES = 12


def linear(num_inputs=FEATURES):
  return torch.nn.Linear(num_inputs, small_models.CLASSES)


class WithSiblingOfModule(torch.nn.Module):
  """Without the part `module`, two parameters would have one name."""

  def __init__(self):
    super().__init__()
    self.module = linear()
    self.weight = torch.nn.Parameter(torch.ones(FEATURES))

  def forward(self, features):
    return self.module(features * self.weight)


class WithoutElements(torch.nn.Module):

  def __init__(self):
    super().__init__()
    self.empty = torch.nn.Parameter(torch.zeros(0, FEATURES))
    self.head = linear()

  def forward(self, features):
    return self.head(features) + (features @ self.empty.T).sum()


class WithNames(torch.nn.Module):
  NAMES = ("größe", "a b", "a%20b", "tab\t", "😀", "a\0b", "a", "\udc80", "x/y", "q" * 600,
           "q" * 600 + "r")

  def __init__(self):
    super().__init__()
    self.head = linear()
    for name in self.NAMES:
      self.register_parameter(name, torch.nn.Parameter(torch.ones(small_models.CLASSES)))
    self.register_buffer("mean ö", torch.zeros(3))

  def forward(self, features):
    return self.head(features) * sum(getattr(self, name) for name in self.NAMES)


class Checkpointed(torch.nn.Module):

  def __init__(self):
    super().__init__()
    self.first, self.second, self.head = linear(), linear(5), linear(5)

  def forward(self, features):
    return self.head(checkpoint(self.second, self.first(features), use_reentrant=True))


class CheckpointedTwice(Checkpointed):

  def forward(self, features):
    hidden = self.first(features)
    for _ in range(2):
      hidden = checkpoint(self.second, hidden, use_reentrant=True)
    return self.head(hidden)


class Table(torch.nn.Module):
  """Of which a batch uses few rows."""

  def __init__(self):
    super().__init__()
    self.table = torch.nn.Embedding(40, small_models.CLASSES, sparse=True)

  def forward(self, features):
    return self.table((features.abs() * 20).long() % 40).mean(1)


class WithBuffers(torch.nn.Module):
  """Buffers that no mean makes sense of."""

  def __init__(self):
    super().__init__()
    self.head = linear()
    self.register_buffer("sparse", torch.eye(3).to_sparse())
    self.register_buffer("meta", torch.zeros(3, device="meta"))
    self.register_buffer("complex", torch.zeros(3, dtype=torch.complex64))

  def forward(self, features):
    return self.head(features)


class OwnSteps(torch.optim.Optimizer):
  """An optimizer whose groups have no learning rate."""

  def __init__(self, parameters):
    super().__init__(parameters, {})

  @torch.no_grad()
  def step(self, closure=None):
    for group in self.param_groups:
      for parameter in group["params"]:
        parameter -= replay.RATE * parameter.grad


def sgd(model):
  return torch.optim.SGD(model.parameters(), lr=replay.RATE)


def double(model):
  model.double()
  model.register_forward_pre_hook(lambda _, inputs: inputs[0].double())
  return model


def loss_of(model, indices):
  return torch.nn.functional.cross_entropy(
      model(small_models.TRAIN.features[indices]).float(), small_models.TRAIN.labels[indices])


def train(address, name, model, make_optimizer, on_step=None, **attach_options):
  optimizer = make_optimizer(model)
  batches = []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer, **attach_options)
    for indices, _, _ in ps.loader(small_models.TRAIN, batch_size=8):
      batches.append(indices)
      optimizer.zero_grad()
      loss_of(model, indices).backward()
      optimizer.step()
      if on_step is not None:
        on_step(model, optimizer)
  return {"batches": batches, "weights": model.state_dict()}


def seeded(make_model):
  """The model, of the main thread alone: all threads draw from one generator."""
  torch.manual_seed(7)
  return make_model()


class UnusualModelsTest(replay.ReplayTestCase):

  def run_two(self, make_model, make_optimizer, **flags):
    server = self.start_client_server(rounds=6, **flags)
    models = [seeded(make_model) for _ in range(2)]
    programs = [self.start_program(name, model, make_optimizer, run=train)
                for name, model in zip("ab", models)]
    runs = [program.outcome() for program in programs]
    self.assert_ends(server)
    return runs

  def assert_trains_as_plain(self, make_model, make_optimizer=sgd, modes=MODES):
    """Two workers, whose gradients, or weights after two steps each, become their mean."""
    for flags in modes:
      with self.subTest(flags=flags):
        runs = self.run_two(make_model, make_optimizer, **flags)
        models = [seeded(make_model) for _ in runs]
        optimizers = [make_optimizer(model) for model in models]
        num_local = flags.get("local_steps", 1)
        for step, batches in enumerate(zip(*(run["batches"] for run in runs))):
          for model, optimizer, indices in zip(models, optimizers, batches):
            optimizer.zero_grad()
            loss_of(model, indices).backward()
          parts = list(zip(*(model.parameters() for model in models)))
          if num_local == 1:
            gradients = [(first.grad + second.grad) / 2 for first, second in parts]
            for part, gradient in zip(parts, gradients):
              for parameter in part:
                parameter.grad = gradient.clone()
          for optimizer in optimizers:
            optimizer.step()
          if num_local > 1 and step % num_local == num_local - 1:
            with torch.no_grad():
              for first, second in parts:
                mean = (first + second) / 2
                first.copy_(mean)
                second.copy_(mean)
        for run in runs:
          self.assert_close(run, models[0], 1e-6)

  def refusal(self, make_model, make_optimizer=sgd, **attach_options):
    model = seeded(make_model)
    with self.assertRaises(lodestar.LodestarError) as refused:
      lodestar.join("127.0.0.1:1", name="a").attach(model, make_optimizer(model), **attach_options)
    self.assertEqual(refused.exception.code, "INVALID_ARGUMENT")
    return str(refused.exception)

  def test_sibling_of_an_attribute_named_module_trains(self):
    self.assert_trains_as_plain(WithSiblingOfModule)

  def test_parameter_without_elements_trains(self):
    self.assert_trains_as_plain(WithoutElements)

  def test_parameters_of_any_name_train(self):
    self.assert_trains_as_plain(WithNames)

  def test_f64_parameters_train_with_one_warning(self):
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter("always")
      self.assert_trains_as_plain(lambda: double(linear()))
    texts = [str(warning.message) for warning in caught if "float64" in str(warning.message)]
    self.assertEqual(len(texts), 2 * len(MODES))
    self.assertIn("such as weight", texts[0])

  def test_reentrant_checkpoint_trains(self):
    self.assert_trains_as_plain(Checkpointed)

  def test_module_in_two_reentrant_checkpoints_is_refused_where_gradients_overlap(self):
    server = self.start_client_server(min_workers=1, mode="sync")
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("a", CheckpointedTwice(), sgd, run=train).outcome()
    self.assertIn("use_reentrant=False", str(refused.exception))
    self.stop_job(server)
    server = self.start_client_server(min_workers=1, rounds=3, mode="sync")
    run = self.start_program("a", CheckpointedTwice(), sgd, run=train, overlap=False).outcome()
    self.assert_ends(server)
    self.assertEqual(len(run["batches"]), 3)

  def test_sparse_adam_steps_with_the_rows_that_some_worker_has_used(self):
    self.assert_trains_as_plain(Table, lambda model: torch.optim.SparseAdam(
        model.parameters(), lr=replay.RATE), modes=(REDUCE, LOCAL))

  def test_optimizer_without_a_learning_rate_trains(self):
    self.assert_trains_as_plain(linear, lambda model: OwnSteps(model.parameters()),
                                modes=(REDUCE, LOCAL))

  def test_buffers_without_a_mean_stay(self):
    for flags in MODES:
      runs = self.run_two(WithBuffers, sgd, **flags)
      self.assertTrue(runs[0]["weights"]["sparse"].is_sparse)

  def test_buffer_of_another_shape_is_named(self):

    def grow(model, _):
      model.register_buffer("mean ö", torch.zeros(4))

    for flags in MODES:
      server = self.start_client_server(min_workers=1, **flags)
      with self.assertRaises(lodestar.LodestarError) as refused:
        self.start_program("a", WithNames(), sgd, grow, run=train).outcome()
      self.stop_job(server)
      self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
      for part in ("mean%20%C3%B6", "[3]", "[4]"):
        self.assertIn(part, str(refused.exception))

  def test_parameters_without_values_are_named(self):
    self.assertIn("parameter weight is on the device meta",
                  self.refusal(lambda: torch.nn.Linear(3, 3, device="meta")))
    self.assertIn("parameter 0.weight has no shape",
                  self.refusal(lambda: torch.nn.Sequential(torch.nn.LazyLinear(3))))
    self.assertIn("torch.complex64", self.refusal(lambda: torch.nn.Linear(
        3, 3, dtype=torch.complex64)))

  def test_optimizer_without_parameters_is_refused(self):

    def emptied(model):
      optimizer = sgd(model)
      optimizer.param_groups.clear()
      return optimizer

    self.assertIn("the optimizer has 0 parameters", self.refusal(linear, emptied))


class TensorNamesTest(replay.ReplayTestCase):

  def test_wrappers_leave_no_trace_in_names(self):
    plain = small_models.MODELS["mlp"]()
    inner = torch.nn.Sequential(torch.compile(plain[0]), plain[1], plain[2])
    wrapped = torch.nn.DataParallel(torch.compile(inner))
    names = _tensor_names.TensorNames(wrapped)
    self.assertEqual([names(name) for name, _ in wrapped.named_parameters()],
                     [name for name, _ in plain.named_parameters()])

  def test_module_beside_others_keeps_its_name_in_a_wrapper_too(self):
    model = WithSiblingOfModule()
    wrapped = torch.nn.DataParallel(model)
    names = _tensor_names.TensorNames(wrapped)
    self.assertEqual([names(name) for name, _ in wrapped.named_parameters()],
                     [name for name, _ in model.named_parameters()])

  def test_names_differ_if_they_did(self):
    names = [_tensor_names.travelling_name(name) for name in WithNames.NAMES]
    self.assertEqual(len(set(names)), len(names))
    self.assertTrue(all(name.isascii() and name.isprintable() and " " not in name
                        and len(name) <= 512 for name in names))
    self.assertEqual(_tensor_names.travelling_name("layers.0._w-{1}/b"), "layers.0._w-{1}/b")


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
