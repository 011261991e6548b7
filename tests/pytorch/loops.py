# SPDX-License-Identifier: Apache-2.0
"""Programs whose loops do not make one step with each batch."""
import warnings

import torch

import lodestar
import small_models
from program import make_worker

TRAIN = small_models.TRAIN


def by_hand(address, name, model_name, optimizer_name, every, is_due=None, bad=(), zeroes=False,
            passes=0, on_batch=None, clips=False, in_backward=False, **attach_options):
  """Takes `every` batches for a step, or steps where is_due(batch) says so.

  bad: numbers of batches that are left out. zeroes: after a backward, which is taken back.
  passes: over a DataLoader; 0 means one loop over the data set.
  on_batch: is called with each number of a batch, and whether there is a gradient, before its
    backward.
  clips: clips to clip_norm. in_backward: exchanges gradients as Trainers do.

  Returns the samples of the batches of each step, and those of the batches that were left out."""
  is_due = is_due or (lambda number: (number + 1) % every == 0)
  model, optimizer = make_worker(name, model_name, optimizer_name)
  steps, left_out = [[]], []
  with lodestar.join(address, name=name) as ps:
    if in_backward:
      ps.exchange_in_backward(lambda: True)
    ps.attach(model, optimizer, **attach_options)
    data = torch.utils.data.DataLoader(TRAIN, 4, shuffle=True) if passes else TRAIN
    loader = ps.loader(data, **({} if passes else {"batch_size": 4}))
    for _ in range(passes or 1):
      for number, (indices, _, _) in enumerate(loader):
        if number in bad:
          left_out.append(indices)
          if zeroes:
            small_models.loss_of(model, indices).backward()
            optimizer.zero_grad()
          continue
        if on_batch is not None:
          on_batch(number, next(model.parameters()).grad is not None)
        (small_models.loss_of(model, indices) / every).backward()
        ps.log(1.0)
        steps[-1].append(indices)
        if is_due(number):
          if clips:
            torch.nn.utils.clip_grad_norm_(model.parameters(), attach_options["clip_norm"])
          optimizer.step()
          optimizer.zero_grad()
          steps.append([])
  return {"steps": steps, "left_out": left_out, "weights": model.state_dict()}


def in_local_steps(address, name, model_name, optimizer_name, on_batch):
  """Makes a step with each batch. Returns the number of steps that the optimizer's state has had, and
  what warnings said."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  with lodestar.join(address, name=name) as ps, warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    ps.attach(model, optimizer)
    for number, (indices, _, _) in enumerate(ps.loader(TRAIN, batch_size=4)):
      on_batch(number)
      small_models.loss_of(model, indices).backward()
      optimizer.step()
      optimizer.zero_grad()
  return (max(int(state["step"]) for state in optimizer.state.values()),
          [str(warning.message) for warning in told])


def weight_of(indices):
  """Returns a number of targets that differs from batch to batch."""
  return 1 + int(indices[0]) % 5


def weighted_by_hand(address, name, every):
  """Takes `every` batches for a step, whose gradient is the mean over all their targets."""
  model, optimizer = make_worker(name, "mlp", "momentum")
  steps = [[]]
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    for indices, _, _ in ps.loader(TRAIN, batch_size=4):
      (small_models.loss_of(model, indices) * weight_of(indices)).backward()
      ps.log(1.0, weight=weight_of(indices))
      steps[-1].append(indices)
      if len(steps[-1]) == every:
        num_targets = sum(weight_of(batch) for batch in steps[-1])
        for parameter in model.parameters():
          parameter.grad /= num_targets
        optimizer.step()
        optimizer.zero_grad()
        steps.append([])
  return {"steps": steps, "weights": model.state_dict()}


def without_last_step(address, name):
  """Makes a step with each of three batches, and none with the fourth."""
  model, optimizer = make_worker(name, "mlp", "adamw")
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    for number, (indices, _, _) in enumerate(ps.loader(TRAIN, batch_size=8)):
      small_models.loss_of(model, indices).backward()
      if number < 3:
        optimizer.step()
        optimizer.zero_grad()


def weighing_each_step(address, name):
  """Tells the weight of a batch before each of two steps with it."""
  model, optimizer = make_worker(name, "mlp", "momentum")
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    for indices, _, _ in ps.loader(TRAIN, batch_size=8):
      for _ in range(2):
        ps.log(1.0, weight=weight_of(indices))
        small_models.loss_of(model, indices).backward()
        optimizer.step()
        optimizer.zero_grad()


def stepping_after_skip(address, name):
  """Leaves a step out, and makes it."""
  model, optimizer = make_worker(name, "mlp", "adamw")
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    for _ in ps.loader(TRAIN, batch_size=8):
      ps.skip_step()
      optimizer.step()


def make_gan(rate=0.05):
  """Returns two small networks, and an optimizer of each."""
  torch.manual_seed(5)
  generator = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 12))
  critic = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
  return (generator, critic, torch.optim.Adam(generator.parameters(), rate / 5),
          torch.optim.SGD(critic.parameters(), rate, momentum=0.9))


def noise_for(indices):
  generator = torch.Generator().manual_seed(int(indices[0]))
  return torch.randn(len(indices), 4, generator=generator)


def critic_loss(generator, critic, indices):
  real = critic(TRAIN.features[indices])
  fake = critic(generator(noise_for(indices)).detach())
  loss = torch.nn.functional.binary_cross_entropy_with_logits
  return loss(real, torch.ones_like(real)) + loss(fake, torch.zeros_like(fake))


def generator_loss(generator, critic, indices):
  fake = critic(generator(noise_for(indices)))
  return torch.nn.functional.binary_cross_entropy_with_logits(fake, torch.ones_like(fake))


def train_gan(networks, batches, num_critic_steps, generator_every):
  """Trains as a DCGAN is trained, with batches that are lists of parts: steps of the critic with each
  batch, and one of the generator with each `generator_every`, which adds up its gradients."""
  generator, critic, of_generator, of_critic = networks
  for number, parts in enumerate(batches):
    for _ in range(num_critic_steps):
      critic.zero_grad()
      for part in parts:
        (critic_loss(generator, critic, part) / len(parts)).backward()
      of_critic.step()
    for part in parts:
      (generator_loss(generator, critic, part) / len(parts)).backward()
    if (number + 1) % generator_every == 0:
      of_generator.step()
      generator.zero_grad()


def gan(address, name, is_own=False, num_critic_steps=1, generator_every=1):
  """Returns the samples of each batch, and the weights of both networks."""
  generator, critic, of_generator, of_critic = networks = make_gan()
  if name != "a":
    torch.nn.init.zeros_(critic[0].weight)
  batches = []
  with lodestar.join(address, name=name) as ps:
    ps.attach([generator, critic], [of_generator, of_critic])
    data = TRAIN
    if is_own:
      order = torch.Generator().manual_seed(ord(name))
      data = torch.utils.data.DataLoader(TRAIN, batch_size=8, shuffle=True, generator=order)
    options = {"is_own": True} if is_own else {"batch_size": 8}

    def parts():
      for indices, _, _ in ps.loader(data, **options):
        batches.append(indices)
        yield [indices]

    train_gan(networks, parts(), num_critic_steps, generator_every)
  return {"batches": batches, "weights": torch.nn.ModuleList([generator, critic]).state_dict()}


def epochs_on_one_rollout(address, name, model_name, optimizer_name, num_epochs, asks_each=False,
                          is_weighed=False, **attach_options):
  """As PPO trains: several steps with the samples of one rollout, which the weights decide.

  asks_each: next() comes before each backward, and not before each rollout alone.
  is_weighed: each rollout has a weight."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  rollouts = []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer, **attach_options)
    steps = ps.steps(batch_size=8)
    while next(steps, None) is not None:
      rollouts.append(torch.arange(8) + 8 * len(rollouts) + (ord(name) - ord("a")) * 40)
      old = small_models.loss_of(model, rollouts[-1]).item()
      if is_weighed:
        ps.log(old, weight=weight_of(rollouts[-1]))
      for epoch in range(num_epochs):
        if epoch > 0 and asks_each and next(steps, None) is None:
          break
        (small_models.loss_of(model, rollouts[-1]) * (1 + old)).backward()
        optimizer.step()
        optimizer.zero_grad()
  return {"batches": rollouts, "weights": model.state_dict()}


def sharpness_aware(address, name, model_name, optimizer_name):
  """As SAM trains: the gradient of a step is that at weights which the gradient before has moved to,
  on this worker alone. The step itself is made with the mean of all workers."""
  model, optimizer = make_worker(name, model_name, optimizer_name)
  batches = []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer, overlap=False)
    for indices, _, _ in ps.loader(TRAIN, batch_size=8):
      batches.append(indices)
      small_models.loss_of(model, indices).backward()
      kept = climb(model)
      optimizer.zero_grad()
      small_models.loss_of(model, indices).backward()
      come_back(model, kept)
      optimizer.step()
      optimizer.zero_grad()
  return {"batches": batches, "weights": model.state_dict()}


@torch.no_grad()
def climb(model):
  kept = [parameter.clone() for parameter in model.parameters()]
  for parameter in model.parameters():
    parameter += 0.05 * parameter.grad
  return kept


@torch.no_grad()
def come_back(model, kept):
  for parameter, before in zip(model.parameters(), kept):
    parameter.copy_(before)
