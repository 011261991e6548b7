"""The programs of pytorch_test.py."""
import gc

import torch

import lodestar
import small_models


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


def train(address, name, model_name, optimizer_name, *options):
  """Until the job is done; options are what programs do well or badly. Returns the samples of each
  step, and the weights at the end."""
  model = small_models.MODELS[model_name]()
  # What it has of its own does not count: the first worker's weights are the job's.
  if name != "a":
    with torch.no_grad():
      for parameter in model.parameters():
        if parameter.requires_grad and optimizer_name != "head":
          parameter.zero_()
  weight = next(model.parameters())
  # The learning rate is the job's.
  optimizer = small_models.OPTIMIZERS[optimizer_name](model, 123.0)

  def evaluate(batch):
    _, features, labels = batch
    logits = model(features.to(weight.dtype)).float()
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    return loss, (logits.argmax(1) == labels).sum(), len(labels)

  batches = []
  with lodestar.join(address, name=name) as ps:
    model, optimizer = ps.attach(model, optimizer, overlap="--late" not in options)
    if "--scheduler" in options:
      scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    if "--load" in options:
      model.load_state_dict({key: torch.full_like(weights, 0.25)
                             for key, weights in model.state_dict().items()})
    for indices, _, _ in ps.loader(small_models.TRAIN, batch_size=8,
                                   heldout=small_models.HELDOUT, evaluate=evaluate):
      batches.append(indices)
      loss = small_models.loss_of(model, indices)
      if "--twice" in options:
        small_models.loss_of(model, indices).backward()
      loss.backward()
      if "--late" in options:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
      if "--clip" in options:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
      if "--skip" in options:
        continue
      ps.log(loss)
      optimizer.step()
      optimizer.zero_grad()
      if "--scheduler" in options:
        scheduler.step()
  return {"batches": batches, "weights": model.state_dict()}
