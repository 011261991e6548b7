# SPDX-License-Identifier: Apache-2.0
"""Models, optimizers and data of pytorch_test.py, the same in every process."""
import torch

NUM_SAMPLES = 96
NUM_HELDOUT = 32
CLASSES = 5


def _seeded(make):

  def seeded():
    torch.manual_seed(7)
    return make()

  return seeded


class Transformer(torch.nn.Module):
  """A layer over eight tokens, with a tied head and a table of positions that is frozen."""

  def __init__(self):
    super().__init__()
    self.tokens = torch.nn.Embedding(CLASSES, 8)
    self.positions = torch.nn.Parameter(torch.randn(8, 8) / 4, requires_grad=False)
    self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    self.head = torch.nn.Linear(8, CLASSES, bias=False)
    self.head.weight = self.tokens.weight

  def forward(self, features):
    tokens = (features[:, :8].abs() * 10).long() % CLASSES
    return self.head(self.layer(self.tokens(tokens) + self.positions).mean(1))


def _mlp():
  return torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(),
                             torch.nn.Linear(16, CLASSES))


class Normalized(torch.nn.Module):
  """With running statistics, and a counter."""

  def __init__(self):
    super().__init__()
    self.layers = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.BatchNorm1d(16),
                                      torch.nn.Tanh(), torch.nn.Linear(16, CLASSES))

  def forward(self, features):
    return self.layers(features)


MODELS = {
    "normalized": _seeded(Normalized),
    "mlp": _seeded(_mlp),
    "mlp_bf16": _seeded(lambda: _mlp().bfloat16()),
    "transformer": _seeded(Transformer),
}

OPTIMIZERS = {
    "adamw": lambda model, rate: torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01),
    "sgd": lambda model, rate: torch.optim.SGD(model.parameters(), lr=rate),
    "momentum": lambda model, rate: torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9),
    "two_rates": lambda model, rate: torch.optim.AdamW(
        [{"params": list(model[0].parameters()), "lr": rate / 10},
         {"params": list(model[2].parameters())}], lr=rate, weight_decay=0.01),
    "own_rates": lambda model, _: OPTIMIZERS["two_rates"](model, 0.02),
    # Weights and biases take turns.
    "rate_of_biases": lambda model, rate: torch.optim.SGD(
        [{"params": [model[0].weight, model[2].weight]},
         {"params": [model[0].bias, model[2].bias], "lr": 4 * rate}], lr=rate, momentum=0.9),
    # It trains the last layer; the first one stays as it is.
    "head": lambda model, rate: torch.optim.SGD(list(model[2].parameters()), lr=rate, momentum=0.9),
    "dampened": lambda model, rate: torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9,
                                                    dampening=0.5),
    "rmsprop": lambda model, rate: torch.optim.RMSprop(model.parameters(), lr=rate),
}


class Samples(torch.utils.data.Dataset):
  """Of which every process makes the same."""

  def __init__(self, seed, count):
    generator = torch.Generator().manual_seed(seed)
    self.features = torch.randn(count, 12, generator=generator)
    self.labels = self.features[:, :CLASSES].argmax(1)
    self.num_loaded = torch.zeros(1, dtype=torch.int64).share_memory_()  # in all processes

  def __len__(self):
    return len(self.labels)

  def __getitem__(self, index):
    self.num_loaded += 1
    return index, self.features[index], self.labels[index]


TRAIN = Samples(1, NUM_SAMPLES)
HELDOUT = Samples(2, NUM_HELDOUT)


def loss_of(model, indices):
  """The mean over these samples."""
  weight = next(model.parameters())
  return torch.nn.functional.cross_entropy(model(TRAIN.features[indices].to(weight.dtype)).float(),
                                           TRAIN.labels[indices])
