# SPDX-License-Identifier: Apache-2.0
"""The programs of pytorch_test.py."""
import gc
import threading

import torch

import lodestar
import small_models
from cluster_processes import PATIENCE_SECONDS


class Program(threading.Thread):
  """A worker; on a thread, because a process would spend its time on importing PyTorch."""

  def __init__(self, run, *arguments, **named):
    super().__init__(daemon=True)
    self._run = run
    self._arguments = arguments
    self._named = named
    self._outcome = None
    self.start()

  def run(self):
    try:
      self._outcome = self._run(*self._arguments, **self._named)
    except Exception as error:  # pylint: disable=broad-except
      self._outcome = error

  def outcome(self):
    """What it has returned; raises what it has raised."""
    self.join(PATIENCE_SECONDS)
    if self.is_alive():
      raise AssertionError("still runs")
    if isinstance(self._outcome, Exception):
      raise self._outcome
    return self._outcome


def forget(address):
  """Whose session is gone before its model is used."""
  model = small_models.MODELS["mlp"]()
  optimizer = small_models.OPTIMIZERS["adamw"](model, 1.0)
  ps = lodestar.join(address, name="a")
  ps.attach(model, optimizer)
  for indices, _, _ in ps.loader(small_models.TRAIN):
    small_models.loss_of(model, indices).backward()
    optimizer.step()
    break
  ps.leave()
  del ps, optimizer
  gc.collect()
  ballast = [torch.ones(1000) for _ in range(1000)]
  assert all(weight.isfinite().all() and weight.abs().max() < 1 for weight in model.parameters())
  del ballast


def make_worker(name, model_name, optimizer_name, rate=123.0):
  """Model and optimizer of one. Where the job's learning rate holds, `rate` does not count."""
  model = small_models.MODELS[model_name]()
  # What it has of its own does not count: the first worker's weights are the job's.
  if name != "a":
    with torch.no_grad():
      for parameter in model.parameters():
        if parameter.requires_grad and optimizer_name != "head":
          parameter.zero_()
  return model, small_models.OPTIMIZERS[optimizer_name](model, rate)


def train(address, name, model_name, optimizer_name, *options, **loader_options):
  """Until the job is done; options are what programs do well or badly. Returns the samples of each
  batch, the job's evaluation as it was told with each, and weights and evaluation at the end."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  weight = next(model.parameters())

  def evaluate(batch):
    _, features, labels = batch
    logits = model(features.to(weight.dtype)).float()
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    return loss, (logits.argmax(1) == labels).sum(), len(labels)

  if "--iterable" in options:
    order = torch.Generator().manual_seed(ord(name))
    data = torch.utils.data.DataLoader(small_models.TRAIN, batch_size=8, shuffle=True,
                                       generator=order)
  else:
    data = small_models.TRAIN
    loader_options = {"batch_size": 8, "heldout": small_models.HELDOUT, "evaluate": evaluate,
                      **loader_options}
  scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, enabled="--scaler" in options)
  batches, evaluations = [], []
  with lodestar.join(address, name=name) as ps:
    model, optimizer = ps.attach(model, optimizer, overlap="--late" not in options)
    if "--scheduler" in options:
      scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    if "--load" in options:
      model.load_state_dict({key: torch.full_like(weights, 0.25)
                             for key, weights in model.state_dict().items()})
    for indices, _, _ in ps.loader(data, **loader_options):
      batches.append(indices)
      evaluations.append(ps.evaluation)
      loss = small_models.loss_of(model, indices) * ps.share
      if "--twice" in options:
        small_models.loss_of(model, indices).backward()
      if "--inf" in options and ps.round == 3:
        loss = loss * torch.inf
      scaler.scale(loss).backward()
      if "--late" in options and "--scaler" not in options:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
      if "--clip" in options:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
      if "--skip" in options:
        continue
      ps.log({"loss": loss / ps.share, "weight": weight.sum()})
      if not ps.is_last_batch:
        continue
      scaler.step(optimizer)
      scaler.update()
      optimizer.zero_grad()
      if "--scheduler" in options:
        scheduler.step()
  return {"batches": batches, "weights": model.state_dict(), "evaluations": evaluations,
          "evaluation": tuple(ps.evaluation or ())}


def interrupted(address, name, model_name, optimizer_name):
  """Leaves its loop in the middle of a step, and goes on in another one."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  batches = []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    for has_left in (False, True):
      for indices, _, _ in ps.loader(small_models.TRAIN, batch_size=8):
        if ps.round == 3 and not has_left:
          break
        batches.append(indices)
        small_models.loss_of(model, indices).backward()
        optimizer.step()
        optimizer.zero_grad()
  return {"batches": batches, "weights": model.state_dict()}


def in_passes(address, name, model_name, optimizer_name, num_passes, **loader_options):
  """A loop over passes of a DataLoader, as programs have it. Returns the samples of the batches of
  each pass, what is known before the first, `epoch` before and after each, and the length of the
  loader with the first batch of each."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  data = torch.utils.data.DataLoader(small_models.TRAIN, **{"shuffle": True, **loader_options})
  passes, epochs, lengths = [], [], []
  with lodestar.join(address, name=name) as ps:
    model, optimizer = ps.attach(model, optimizer)
    loader = ps.loader(data)
    place = ps.index, ps.count, ps.is_first
    begun = ps.epoch
    for _ in range(ps.epoch, num_passes):
      epochs.append(ps.epoch)
      passes.append([])
      for indices, _, _ in loader:
        if not passes[-1]:
          lengths.append(len(loader))
        passes[-1].append(indices)
        make_step(model, optimizer, indices)
      epochs.append(ps.epoch)
    return {"passes": passes, "batches": sum(passes, []), "weights": model.state_dict(),
            "epochs": epochs, "begun": begun, "place": place, "lengths": lengths,
            "has_dataset": loader.dataset is small_models.TRAIN, "is_over": ps.is_over}


def own_loop(address, name, model_name, optimizer_name, num_steps):
  """Batches of its own, and so many steps at most."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  batches = []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer, overlap=False)
    for step, _ in zip(ps.steps(96, batch_size=8), range(num_steps)):
      batches.append(torch.arange(step.round, step.round + 8))
      small_models.loss_of(model, batches[-1]).backward()
      optimizer.step()
      optimizer.zero_grad()
  return {"batches": batches, "weights": model.state_dict()}


def own_loader(address, name, model_name, optimizer_name, **options):
  """A DataLoader of its own, of the samples that are granted."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  batches = []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    sampler = ps.batch_sampler(small_models.TRAIN, batch_size=8)
    for indices, _, _ in torch.utils.data.DataLoader(small_models.TRAIN, batch_sampler=sampler,
                                                     **options):
      batches.append(indices)
      small_models.loss_of(model, indices).backward()
      optimizer.step()
      optimizer.zero_grad()
  return {"batches": batches, "weights": model.state_dict()}


def skipping(address, name, model_name, optimizer_name):
  """Leaves steps 3 and 5 out before backward, which it calls for step 5 all the same."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  batches = []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    for step, (indices, _, _) in enumerate(ps.loader(small_models.TRAIN, batch_size=8)):
      if step in (3, 5):
        ps.skip_step()
        if step == 5:
          small_models.loss_of(model, indices).backward()
          optimizer.zero_grad()
        continue
      batches.append(indices)
      make_step(model, optimizer, indices)
  return {"batches": batches, "weights": model.state_dict()}


def without_backward(address, name, model_name, optimizer_name):
  """Forgets the gradient of its second step."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    for step, (indices, _, _) in enumerate(ps.loader(small_models.TRAIN, batch_size=8)):
      if step != 1:
        small_models.loss_of(model, indices).backward()
      optimizer.step()
      optimizer.zero_grad()


def distributed(address, name, model_name, optimizer_name, rendezvous, has_hook=True):
  """With DistributedDataParallel, and gradients that the servers take the mean of."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=0,
                                       world_size=1)
  batches = []
  try:
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-4)
    with lodestar.join(address, name=name) as ps:
      model, optimizer = ps.attach(model, optimizer)
      if has_hook:
        model.register_comm_hook(None, lodestar.comm_hook(ps))
      for indices, _, _ in ps.loader(small_models.TRAIN, batch_size=8,
                                     heldout=small_models.HELDOUT, evaluate=lambda _: (0, 0, 0)):
        batches.append(indices)
        loss = small_models.loss_of(model, indices)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"batches": batches, "weights": model.module.state_dict()}
  finally:
    torch.distributed.destroy_process_group()


def telling(address, name, model_name, optimizer_name, values):
  """Tells these values in each step."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    for indices, _, _ in ps.loader(small_models.TRAIN, batch_size=8):
      small_models.loss_of(model, indices).backward()
      ps.log(values)
      optimizer.step()
      optimizer.zero_grad()


def make_step(model, optimizer, batch):
  """One step on these samples, without a session or within one."""
  small_models.loss_of(model, batch).backward()
  optimizer.step()
  optimizer.zero_grad()


def changing(address, name, model_name, optimizer_name, change, before=None, in_evaluation=None,
             **join_options):
  """Calls `before` with model and optimizer before they are attached, `change`, with the number of
  the step, after each, and `in_evaluation` with the model in each evaluation."""
  loader_options = {}
  if in_evaluation is not None:
    loader_options = {"heldout": small_models.HELDOUT,
                      "evaluate": lambda _: in_evaluation(model) or (0.0, 0, 1)}
  model, optimizer = make_worker(name, model_name, optimizer_name)
  if before is not None:
    before(model, optimizer)
  batches = []
  with lodestar.join(address, name=name, **join_options) as ps:
    ps.attach(model, optimizer)
    for step, (indices, _, _) in enumerate(ps.loader(small_models.TRAIN, batch_size=8,
                                                     **loader_options)):
      batches.append(indices)
      make_step(model, optimizer, indices)
      change(step, model, optimizer)
  return {"batches": batches, "weights": model.state_dict()}


@torch.no_grad()
def averaged_with(average, model):
  """Returns the mean of an average of weights, or None, and the weights of a model."""
  now = torch.nn.utils.parameters_to_vector(model.parameters()).clone()
  return now if average is None else (average + now) / 2


def averaging(address, name, model_name, optimizer_name, **attach_options):
  """Averages the weights after each step, which it waits for."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  batches, average = [], None
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer, **attach_options)
    for indices, _, _ in ps.loader(small_models.TRAIN, batch_size=8, heldout=small_models.HELDOUT,
                                   evaluate=lambda _: (0.0, 0, 1)):
      batches.append(indices)
      small_models.loss_of(model, indices).backward()
      optimizer.step(wait=True)
      optimizer.zero_grad()
      average = averaged_with(average, model)
  return {"batches": batches, "weights": model.state_dict(), "average": average}


def scheduled(address, name, model_name, optimizer_name, rate, schedule, *, is_attached_first=False,
              is_given=False, sets_late=False, on_step=None, ends_after=None, **options):
  """With learning rates of its own. `schedule` takes the optimizer, and returns a scheduler and what
  sets the rate of the step with a number. Returns the rates of the steps, too.

  is_given: attach() gets the scheduler. sets_late: rates are set after backward. on_step: is called
  with each number of a step. ends_after: so many steps."""
  model, optimizer = make_worker(name, model_name, optimizer_name, rate)
  batches, rates = [], []
  with lodestar.join(address, name=name) as ps:
    if is_attached_first:
      ps.attach(model, optimizer, **options)
      _, set_rate = schedule(optimizer)
    else:
      scheduler, set_rate = schedule(optimizer)
      ps.attach(model, optimizer, schedulers=[scheduler] if is_given else [], **options)
    for step, (indices, _, _) in enumerate(ps.loader(small_models.TRAIN, batch_size=8)):
      if on_step is not None:
        on_step(step)
      batches.append(indices)
      rates.append((ps.round, ps.learning_rate))
      small_models.loss_of(model, indices).backward()
      if sets_late:
        set_rate(step + 1)
      optimizer.step()
      optimizer.zero_grad()
      if not sets_late:
        set_rate(step + 1)
      if step + 1 == ends_after:
        break
  return {"batches": batches, "weights": model.state_dict(), "rates": rates}
