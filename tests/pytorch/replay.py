# SPDX-License-Identifier: Apache-2.0
"""Programs beside a server, and what plain PyTorch makes of the same batches."""
import torch

import cluster_processes
import program
import small_models
from program import Program

ADAMW = {"optimizer": "adamw", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}
MOMENTUM = {"optimizer": "momentum", "momentum": 0.9}
RATE = 0.05


@torch.no_grad()
def set_to_mean(models):
  """Gives all models the mean of their parameters."""
  for tensors in zip(*(model.parameters() for model in models)):
    mean = sum(tensors) / len(tensors)
    for tensor in tensors:
      tensor.copy_(mean)


class ReplayTestCase(cluster_processes.ClusterTestCase):

  def start_client_server(self, **flags):
    return self.start_server(model="client", **{
        "batch_size": 8, "rounds": 12, "min_workers": 2, "learning_rate": RATE,
        "eval_samples": 0, **flags})

  def start_program(self, name, *arguments, run=program.train, **named):
    return Program(run, f"127.0.0.1:{self.port}", name, *arguments, **named)

  def start_first_program(self, *arguments, **named):
    """Whose weights are the job's."""
    first = self.start_program("a", *arguments, **named)
    self.wait_for_member("a", first.is_alive)
    return first

  def run_programs(self, model_name, optimizer_name, *options, num_programs=2, loader=None,
                   others=None, **flags):
    """What each returns: the samples of its batches, and its weights at the end.

    loader: what the loader is told. others: options of those after the first, if they differ."""
    loader = loader or {}
    server = self.start_client_server(**{"min_workers": num_programs, **flags})
    programs = [self.start_first_program(model_name, optimizer_name, *options, **loader)]
    for name in ("b", "c")[:num_programs - 1]:
      programs.append(self.start_program(name, model_name, optimizer_name,
                                         *(options if others is None else others), **loader))
    outcomes = [started.outcome() for started in programs]
    self.assert_ends(server)
    return outcomes

  def assert_close(self, saved, model, tolerance):
    wanted = model.state_dict()
    self.assertEqual(saved["weights"].keys(), wanted.keys())
    for name, weights in saved["weights"].items():
      torch.testing.assert_close(weights, wanted[name], atol=tolerance, rtol=0, msg=lambda text:
                                 f"{name}: {text}")

  def replay_gradients(self, runs, model_name, optimizer_name, tolerance=1e-6, skipped=(),
                       set_rates=lambda _: lambda _: None):
    """Each batch of a program is a step of the job.

    skipped: pairs of program and step. set_rates: takes the optimizer, and returns what is called
    with the number of each step before it."""
    model = small_models.MODELS[model_name]()
    optimizer = small_models.OPTIMIZERS[optimizer_name](model, RATE)
    set_rate = set_rates(optimizer)
    for step, batches in enumerate(zip(*(run["batches"] for run in runs))):
      set_rate(step)
      counted = [batch for k, batch in enumerate(batches) if (k, step) not in skipped]
      optimizer.zero_grad()
      for batch in counted:
        (small_models.loss_of(model, batch) / len(counted)).backward()
      optimizer.step()
    for run in runs:
      self.assert_close(run, model, tolerance)

  def replay_buffers(self, runs):
    """Of two that took turns, with the model "normalized": means of their statistics count."""
    models = [small_models.MODELS["normalized"]() for _ in runs]
    optimizer = small_models.OPTIMIZERS["momentum"](models[0], RATE)
    for batches in zip(*(run["batches"] for run in runs)):
      optimizer.zero_grad()
      for model, batch in zip(models, batches):
        model.load_state_dict(models[0].state_dict())
        model.zero_grad()
      for model, batch in zip(models, batches):
        (small_models.loss_of(model, batch) / len(runs)).backward()
      for first, second in zip(models[0].parameters(), models[1].parameters()):
        first.grad += second.grad
      for first, second in zip(models[0].buffers(), models[1].buffers()):
        first.copy_((first + second) / 2)
      optimizer.step()
    for run in runs:
      self.assert_close(run, models[0], 1e-6)
      self.assertEqual(run["weights"]["layers.1.num_batches_tracked"], 12)

  def replay_local_steps(self, runs, model_name, optimizer_name, local_steps, skipped=(),
                         set_rates=lambda _: lambda _: None):
    """Weights are averaged after so many steps; each keeps its optimizer.

    skipped: pairs of program and step. set_rates: as of replay_gradients()."""
    models = [small_models.MODELS[model_name]() for _ in runs]
    optimizers = [small_models.OPTIMIZERS[optimizer_name](model, RATE) for model in models]
    setters = [set_rates(optimizer) for optimizer in optimizers]
    num_steps = len(runs[0]["batches"])
    for begin in range(0, num_steps, local_steps):
      for k, (run, model, optimizer) in enumerate(zip(runs, models, optimizers)):
        for step in range(begin, begin + local_steps):
          setters[k](step)
          optimizer.zero_grad()
          small_models.loss_of(model, run["batches"][step]).backward()
          if (k, step) not in skipped:
            optimizer.step()
      set_to_mean(models)
    for run in runs:
      self.assert_close(run, models[0], 2e-6)
