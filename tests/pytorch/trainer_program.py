# SPDX-License-Identifier: Apache-2.0
"""A worker of trainers_test.py: a Trainer with its callback, or a loop of accelerate. Each is a process,
because the libraries keep state that all Trainers of a process have in common.

Usage: trainer_program.py KIND ADDRESS NAME FILE OPTIONS
"""
import json
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(HERE)), "worker", "python"), HERE]

import torch  # noqa: E402  (after the path is set)

import lodestar  # noqa: E402
import small_models  # noqa: E402

IGNORED = -100
RATE = 0.05


class Data(torch.utils.data.Dataset):
  """Some samples have no target, if it is masked."""

  def __init__(self, num_samples, is_masked):
    self._num_samples = num_samples
    self._labels = labels_of(torch.arange(num_samples), is_masked)

  def __len__(self):
    return self._num_samples

  def __getitem__(self, index):
    return {"index": index, "labels": self._labels[index]}


def labels_of(indices, is_masked):
  labels = small_models.TRAIN.labels[indices]
  return torch.where(indices % 3 == 0, labels, IGNORED) if is_masked else labels


class Net(torch.nn.Module):
  """Keeps which samples it is trained on."""

  def __init__(self):
    super().__init__()
    self.layers = small_models.MODELS["mlp"]()
    self.batches = []

  def forward(self, index, labels=None, num_items_in_batch=None, **_):
    self.batches.append(index.tolist())
    losses = torch.nn.functional.cross_entropy(self.layers(small_models.TRAIN.features[index]),
                                               labels, ignore_index=IGNORED, reduction="sum")
    count = num_items_in_batch
    return {"loss": losses / (labels.ne(IGNORED).sum() if count is None else count)}


def train_with_hugging_face(ps, options):
  import transformers

  import lodestar.hf

  class Watch(transformers.TrainerCallback):

    def __init__(self):
      self.steps_of_epochs = []

    def on_epoch_end(self, args, state, control, **_):
      self.steps_of_epochs.append(state.global_step)

  model, watch = Net(), Watch()
  arguments = transformers.TrainingArguments(
      output_dir=options["folder"], use_cpu=True, save_strategy="no", report_to=[], seed=5,
      per_device_train_batch_size=8, learning_rate=RATE, lr_scheduler_type="constant",
      max_grad_norm=0, optim="adamw_torch", weight_decay=0.01, remove_unused_columns=False,
      disable_tqdm=True, **options["arguments"])
  transformers.Trainer(
      model, arguments, train_dataset=Data(options["num_samples"], options["is_masked"]),
      optimizers=(torch.optim.SGD(model.parameters(), RATE, momentum=0.9), None),
      callbacks=[watch, lodestar.hf.Callback(ps, is_own=options["is_own"])]).train()
  return model, {"steps_of_epochs": watch.steps_of_epochs}


def train_with_lightning(ps, options):
  import pytorch_lightning

  import lodestar.lightning

  class Module(pytorch_lightning.LightningModule):

    def __init__(self):
      super().__init__()
      self.net = Net()

    def training_step(self, batch, _):
      if options["is_masked"]:
        ps.log(weight=int(batch["labels"].ne(IGNORED).sum()))
      return self.net(**batch)["loss"]

    def configure_optimizers(self):
      return torch.optim.SGD(self.parameters(), RATE, momentum=0.9)

  module = Module()
  if options["is_weighted"]:
    options["loader"] = {"sampler": torch.utils.data.WeightedRandomSampler([1.0] * 96, 96)}
  loader = torch.utils.data.DataLoader(Data(options["num_samples"], options["is_masked"]), 8,
                                       **options["loader"])
  kind = type(loader)
  pytorch_lightning.Trainer(
      callbacks=[lodestar.lightning.Callback(ps, is_own=options["is_own"])], logger=False,
      enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
      **options["arguments"]).fit(module, loader)
  return module.net, {"is_loader_as_before": type(loader) is kind and len(list(loader)) > 0}


def train_with_accelerate(ps, options):
  import accelerate

  accelerator = accelerate.Accelerator(cpu=True, **options["arguments"])
  model = Net()
  optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
  loader = torch.utils.data.DataLoader(Data(options["num_samples"], options["is_masked"]), 8,
                                       **options["loader"])
  loader = accelerator.prepare(loader)
  loader.device = torch.device("meta") if options["is_meta"] else loader.device
  ps.attach(model, optimizer)
  granted = ps.loader(loader, is_own=options["is_own"])
  devices = set()
  while not ps.is_over:
    for batch in granted:
      devices.add(batch["index"].device.type)
      if options["is_meta"]:
        return model, {"devices": devices}
      model(**batch)["loss"].backward()
      optimizer.step()
      optimizer.zero_grad()
  return model, {"devices": devices}


KINDS = {"hf": train_with_hugging_face, "lightning": train_with_lightning,
         "accelerate": train_with_accelerate}


def main():
  kind, address, name, path, options = sys.argv[1:]
  torch.manual_seed(0)  # as is usual, and alike in all workers
  outcome = {}
  try:
    with warnings.catch_warnings(record=True) as caught:
      with lodestar.join(address, name=name) as ps:
        model, known = KINDS[kind](ps, json.loads(options))
    outcome = {"batches": model.batches, "weights": model.layers.state_dict(), **known,
               "warnings": [str(warning.message) for warning in caught]}
  except lodestar.LodestarError as error:
    outcome = {"error": (error.code, str(error))}
  torch.save(outcome, path)


if __name__ == "__main__":
  main()
