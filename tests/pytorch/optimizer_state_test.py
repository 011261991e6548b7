# SPDX-License-Identifier: Apache-2.0
"""optimizer.state_dict() has the servers' state where the servers make the steps, and a job begins
with the state of a program. Run by run.sh, with a Python that has PyTorch.

Usage: optimizer_state_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import copy
import io
import os
import signal
import sys
import threading
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import torch  # noqa: E402  (after the path is set)
import torch.distributed.device_mesh  # noqa: E402
import torch.distributed.fsdp  # noqa: E402

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import program  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402

ADAMW = {"mode": "sync", **replay.ADAMW}
MOMENTUM = {"mode": "sync", **replay.MOMENTUM}
NESTEROV = {**MOMENTUM, "optimizer": "nesterov"}
TOLERANCE = 1e-6
PATIENCE = cluster_processes.PATIENCE_SECONDS
# In another order than the model's.
small_models.OPTIMIZERS["groups"] = lambda model, rate: torch.optim.SGD(
    [{"params": [model[2].weight, model[0].weight]}, {"params": [model[2].bias, model[0].bias]}],
    lr=rate, momentum=0.9)
small_models.OPTIMIZERS["nesterov"] = lambda model, rate: torch.optim.SGD(
    model.parameters(), lr=rate, momentum=0.9, nesterov=True)


def checkpoint_of(model, optimizer):
  """The bytes of a checkpoint, as nanoGPT writes it."""
  file = io.BytesIO()
  torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
  return file.getvalue()


def load(checkpoint, model, optimizer):
  saved = torch.load(io.BytesIO(checkpoint))
  model.load_state_dict(saved["model"])
  optimizer.load_state_dict(saved["optimizer"])


def saving(address, name, model_name, optimizer_name, at_begin=(), at_end=(), overlap=True,
           initial=None, late=None, in_step=None, then=None):
  """Saves checkpoints at the begin of some steps, before backward(), and at the end of some, after
  optimizer.step(); and one before the first step, and one after leave(). A job begins with the
  checkpoint `initial`, or with `late`, which is loaded after loader(). in_step: is called with the step and the optimizer before its backward().
  then: is called with the optimizer after the loop."""
  model, optimizer = program.make_worker(name, model_name, optimizer_name)
  if initial is not None:
    load(initial, model, optimizer)
  saved, batches, left = {}, [], []
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer, overlap=overlap)
    saved["attached"] = optimizer.state_dict()
    loader = ps.loader(small_models.TRAIN, batch_size=8)
    if late is not None:
      load(late, model, optimizer)
    for step, (indices, _, _) in enumerate(loader):
      if in_step is not None:
        in_step(step, optimizer)
      if step in at_begin:
        saved["begin", step] = checkpoint_of(model, optimizer)
        left.append(len(optimizer.state))
      batches.append(indices)
      program.make_step(model, optimizer, indices)
      if step in at_end:
        saved["end", step] = checkpoint_of(model, optimizer)
        left.append(len(optimizer.state))
    if then is not None:
      then(optimizer)
  saved["left"] = checkpoint_of(model, optimizer)
  return {"batches": batches, "weights": model.state_dict(), "saved": saved, "left": left}


class OptimizerStateTest(replay.ReplayTestCase):

  def run_saving(self, model_name, optimizer_name, num_programs=2, of_first=None, **flags):
    """What each of the programs returns. of_first: what the first one is told."""
    server = self.start_client_server(**{"min_workers": num_programs, **flags})
    first = self.start_first_program(model_name, optimizer_name, run=saving, **(of_first or {}))
    others = [self.start_program(name, model_name, optimizer_name, run=saving)
              for name in ("b", "c")[:num_programs - 1]]
    runs = [started.outcome() for started in (first, *others)]
    self.assert_ends(server)
    return runs

  def go_on(self, runs, checkpoint, begin, model_name, optimizer_name):
    """What plain PyTorch makes of a checkpoint and of all batches from a step on."""
    model, optimizer = self.plain(model_name, optimizer_name)
    if checkpoint is not None:
      load(checkpoint, model, optimizer)
      for group in optimizer.param_groups:
        group["lr"] = replay.RATE
    for batches in list(zip(*(run["batches"] for run in runs)))[begin:]:
      for batch in batches:
        (small_models.loss_of(model, batch) / len(batches)).backward()
      optimizer.step()
      optimizer.zero_grad()
    return model, optimizer

  @staticmethod
  def plain(model_name, optimizer_name):
    model = small_models.MODELS[model_name]()
    return model, small_models.OPTIMIZERS[optimizer_name](model, replay.RATE)

  def assert_states_close(self, saved, wanted, tolerance=TOLERANCE):
    self.assertEqual(saved["state"].keys(), wanted["state"].keys())
    for number, state in wanted["state"].items():
      self.assertEqual(list(saved["state"][number]), list(state))
      for key, value in state.items():
        torch.testing.assert_close(saved["state"][number][key], value, atol=tolerance, rtol=1e-5,
                                   msg=lambda text: f"{key} of {number}: {text}")

  def test_plain_pytorch_goes_on_from_a_checkpoint_as_the_job_does(self):
    for optimizer_name, flags in (("adamw", ADAMW), ("momentum", MOMENTUM),
                                  ("nesterov", NESTEROV)):
      for overlap in True, False:
        with self.subTest(optimizer=optimizer_name, overlap=overlap):
          # Gradients leave during backward from the third step on.
          at_begin, at_end = (0, 2, 5), (0, 1, 4)
          runs = self.run_saving("mlp", optimizer_name, of_first={
              "at_begin": at_begin, "at_end": at_end, "overlap": overlap}, **flags)
          saved = runs[0]["saved"]
          self.assertEqual(runs[0]["left"], [0] * 6)
          self.assertEqual(len(runs[0]["batches"]), 12)
          self.assertEqual(saved["attached"]["state"], {})
          begins = [(("begin", step), step) for step in at_begin]
          for key, begin in begins + [(("end", step), step + 1) for step in at_end]:
            model, _ = self.go_on(runs, saved[key], begin, "mlp", optimizer_name)
            self.assert_close(runs[0], model, TOLERANCE)

  def test_state_is_that_of_plain_pytorch(self):
    for model_name, optimizer_name, flags in (
        ("transformer", "adamw", ADAMW), ("normalized", "momentum", MOMENTUM),
        ("mlp", "groups", MOMENTUM)):
      with self.subTest(model=model_name, optimizer=optimizer_name):
        runs = self.run_saving(model_name, optimizer_name, num_programs=1,
                               of_first={"at_begin": (4,), "at_end": (3,)}, **flags)
        batches = [{"batches": runs[0]["batches"][:4]}]
        _, optimizer = self.go_on(batches, None, 0, model_name, optimizer_name)
        for key in ("begin", 4), ("end", 3):
          saved = torch.load(io.BytesIO(runs[0]["saved"][key]))["optimizer"]
          self.assert_states_close(saved, optimizer.state_dict())

  def test_state_of_bf16_parameters_has_f32(self):
    runs = self.run_saving("mlp_bf16", "adamw", num_programs=1, of_first={"at_begin": (3,)},
                           **ADAMW)
    saved = torch.load(io.BytesIO(runs[0]["saved"]["begin", 3]))["optimizer"]
    self.assertEqual({state["exp_avg"].dtype for state in saved["state"].values()},
                     {torch.float32})
    model, optimizer = self.plain("mlp_bf16", "adamw")
    optimizer.load_state_dict(saved)
    self.assertEqual(optimizer.state[model[0].weight]["exp_avg"].dtype, torch.bfloat16)

  def test_sgd_without_momentum_has_no_state(self):
    runs = self.run_saving("mlp", "sgd", num_programs=1, of_first={"at_end": (3,)}, mode="sync",
                           optimizer="sgd")
    saved = torch.load(io.BytesIO(runs[0]["saved"]["end", 3]))["optimizer"]
    self.assertEqual(saved["state"], {})

  def test_state_comes_from_all_servers(self):
    server = self.start_client_server(shard="0/2", min_workers=1, **ADAMW)
    self.start(self.server_command(shard="1/2"), "server_1")
    run = self.start_program("a", "mlp", "adamw", run=saving, at_begin=(4,)).outcome()
    self.assert_ends(server)
    model, _ = self.go_on([run], run["saved"]["begin", 4], 4, "mlp", "adamw")
    self.assert_close(run, model, TOLERANCE)

  def test_the_last_state_is_there_after_the_job_if_it_was_asked_for_before(self):
    runs = self.run_saving("mlp", "adamw", of_first={"at_end": (11,)}, **ADAMW)
    _, optimizer = self.go_on(runs, None, 0, "mlp", "adamw")
    for key in ("end", 11), "left":
      saved = torch.load(io.BytesIO(runs[0]["saved"][key]))
      self.assert_states_close(saved["optimizer"], optimizer.state_dict())
      self.assert_close({"weights": saved["model"]}, self.go_on(runs, None, 0, "mlp", "adamw")[0],
                        TOLERANCE)

  def test_asking_only_after_the_job_warns_that_there_is_no_state(self):
    states = []
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter("always")
      self.run_saving("mlp", "adamw", num_programs=1, of_first={
          "then": lambda optimizer: states.append(optimizer.state_dict()["state"])}, **ADAMW)
    self.assertEqual(states, [{}])
    self.assertEqual(sum("state_dict() has no state" in str(each.message) for each in caught), 1)

  def test_state_is_that_of_the_weights_after_servers_have_resumed(self):
    flags = {"checkpoint_dir": self.path("checkpoints"), "checkpoint_every": 4, **ADAMW}
    server = self.start_client_server(min_workers=1, rounds=8, **flags)
    before = self.start_program("a", "mlp", "adamw", run=saving).outcome()
    self.assert_ends(server)
    server = self.start_client_server(min_workers=1, rounds=12, **flags)
    run = self.start_program("a", "mlp", "adamw", run=saving, at_begin=(0, 2)).outcome()
    self.assert_ends(server)
    self.assertEqual(len(run["batches"]), 4)
    for begin in 0, 2:
      model, _ = self.go_on([run], run["saved"]["begin", begin], begin, "mlp", "adamw")
      self.assert_close(run, model, TOLERANCE)
    whole = {"batches": before["batches"] + run["batches"][:2]}
    _, optimizer = self.go_on([whole], None, 0, "mlp", "adamw")
    saved = torch.load(io.BytesIO(run["saved"]["begin", 2]))["optimizer"]
    self.assert_states_close(saved, optimizer.state_dict())

  def test_state_that_is_newer_than_the_weights_is_warned_of(self):
    is_held, may_go_on = threading.Event(), threading.Event()
    server = self.start_client_server(**{**ADAMW, "mode": "async", "min_workers": 1,
                                         "rounds": 100})

    def hold(step, optimizer):
      if step == 2:
        is_held.set()
        self.assertTrue(may_go_on.wait(PATIENCE))
        with warnings.catch_warnings(record=True) as caught:
          warnings.simplefilter("always")
          optimizer.state_dict()
        self.assertTrue(any("newer weights" in str(each.message) for each in caught))

    def let_go_on(step, _):
      if step == 2:
        may_go_on.set()

    first = self.start_first_program("mlp", "adamw", run=saving, in_step=hold)
    self.assertTrue(is_held.wait(PATIENCE))
    second = self.start_program("b", "mlp", "adamw", run=saving, in_step=let_go_on)
    for started in first, second:
      started.outcome()
    self.assert_ends(server)

  def test_state_of_the_program_is_untouched_where_it_makes_the_steps(self):
    for flags in ({"mode": "local_sgd", "local_steps": 3, "outer_optimizer": "average", "rounds": 4},
                  {"mode": "sync", "optimizer": "reduce"}):
      runs = self.run_saving("mlp", "momentum", num_programs=1, of_first={"at_end": (3,)}, **flags)
      _, optimizer = self.go_on([{"batches": runs[0]["batches"][:4]}], None, 0, "mlp", "momentum")
      saved = torch.load(io.BytesIO(runs[0]["saved"]["end", 3]))["optimizer"]
      self.assert_states_close(saved, optimizer.state_dict())
      self.assertEqual(runs[0]["left"], [4])

  def warmed_up(self, model_name, optimizer_name):
    """A checkpoint of a few plain steps."""
    model, optimizer = self.plain(model_name, optimizer_name)
    for step in range(5):
      program.make_step(model, optimizer, torch.arange(step, step + 8))
    return checkpoint_of(model, optimizer)

  def test_a_job_begins_with_a_plain_checkpoint(self):
    for model_name, optimizer_name, flags in (
        ("mlp", "adamw", ADAMW), ("transformer", "momentum", MOMENTUM), ("mlp", "groups", MOMENTUM),
        ("normalized", "nesterov", NESTEROV)):
      with self.subTest(model=model_name, optimizer=optimizer_name):
        initial = self.warmed_up(model_name, optimizer_name)
        when = "late" if optimizer_name == "groups" else "initial"
        runs = self.run_saving(model_name, optimizer_name, num_programs=1,
                               of_first={when: initial, "at_begin": (0, 3)}, **flags)
        model, _ = self.go_on(runs, initial, 0, model_name, optimizer_name)
        self.assert_close(runs[0], model, TOLERANCE)
        self.assertEqual(runs[0]["left"], [0, 0])
        saved = torch.load(io.BytesIO(runs[0]["saved"]["begin", 0]))["optimizer"]
        loaded = torch.load(io.BytesIO(initial))["optimizer"]
        self.assert_states_close(saved, loaded, tolerance=0)

  def test_only_the_state_of_the_first_program_counts(self):
    initial = self.warmed_up("mlp", "adamw")
    server = self.start_client_server(**ADAMW)
    first = self.start_first_program("mlp", "adamw", run=saving, initial=initial)
    other, optimizer = self.plain("mlp", "adamw")
    program.make_step(other, optimizer, torch.arange(8))
    second = self.start_program("b", "mlp", "adamw", run=saving,
                                initial=checkpoint_of(other, optimizer))
    runs = [first.outcome(), second.outcome()]
    self.assert_ends(server)
    model, _ = self.go_on(runs, initial, 0, "mlp", "adamw")
    for run in runs:
      self.assert_close(run, model, TOLERANCE)

  def test_the_first_state_survives_a_server_that_is_killed(self):
    initial = self.warmed_up("mlp", "adamw")
    flags = {"checkpoint_dir": self.path("checkpoints"), "checkpoint_every": 100,
             "durability": "journal", "min_workers": 1, **ADAMW}
    server = self.start_client_server(**flags)
    is_held, may_go_on = threading.Event(), threading.Event()

    def hold(step, _):
      if step == 2:
        is_held.set()
        self.assertTrue(may_go_on.wait(PATIENCE))

    first = self.start_first_program("mlp", "adamw", run=saving, initial=initial, in_step=hold)
    self.assertTrue(is_held.wait(PATIENCE))
    server.kill(signal.SIGKILL)
    server.wait()
    server = self.start_client_server(port=self.port, **flags)
    may_go_on.set()
    run = first.outcome()
    self.assert_ends(server)
    self.assertEqual(len(run["batches"]), 12)
    model, _ = self.go_on([run], initial, 0, "mlp", "adamw")
    self.assert_close(run, model, TOLERANCE)

  def test_state_with_unequal_numbers_of_updates_is_refused(self):
    model, optimizer = self.plain("mlp", "adamw")
    program.make_step(model, optimizer, torch.arange(8))
    optimizer.state[model[2].bias]["step"] += 3
    server = self.start_client_server(min_workers=1, rounds=cluster_processes.ENDLESS, **ADAMW)
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("a", "mlp", "adamw", run=saving,
                         initial=checkpoint_of(model, optimizer)).outcome()
    self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
    for part in ("2.bias", "2.weight", " 1 ", " 4", "--mode=local_sgd"):
      self.assertIn(part, str(refused.exception))
    self.stop_job(server)

  def test_accelerate_saves_and_loads_the_state(self):
    import accelerate

    folder = self.path("state")

    def with_accelerator(address, name):
      model, optimizer = program.make_worker(name, "mlp", "adamw")
      accelerator = accelerate.Accelerator(cpu=True)
      model, optimizer = accelerator.prepare(model, optimizer)
      batches = []
      with lodestar.join(address, name=name) as ps:
        ps.attach(model, optimizer)
        for step, (indices, _, _) in enumerate(ps.loader(small_models.TRAIN, batch_size=8)):
          batches.append(indices)
          program.make_step(model, optimizer, indices)
          if step == 3:
            accelerator.save_state(folder)
      return {"batches": batches, "weights": model.state_dict()}

    server = self.start_client_server(min_workers=1, **ADAMW)
    run = self.start_program("a", run=with_accelerator).outcome()
    self.assert_ends(server)
    model, optimizer = self.plain("mlp", "adamw")
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.load_state(folder)
    for group in optimizer.param_groups:
      group["lr"] = replay.RATE
    for batch in run["batches"][4:]:
      program.make_step(model, optimizer, batch)
    self.assert_close(run, model, TOLERANCE)


  def test_the_state_of_ranks_that_are_one_worker_is_refused(self):

    def sharded(address, name):
      torch.distributed.init_process_group("gloo", init_method="file://" + self.path("rendezvous"),
                                           rank=0, world_size=1)
      try:
        model = small_models.MODELS["mlp"]()
        torch.distributed.fsdp.fully_shard(
            model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
        optimizer = small_models.OPTIMIZERS["adamw"](model, replay.RATE)
        with lodestar.join(address, name=name, group=torch.distributed.group.WORLD) as ps:
          ps.attach(model, optimizer)
          for indices, _, _ in ps.loader(small_models.TRAIN, batch_size=8):
            program.make_step(model, optimizer, indices)
            model.state_dict()
            optimizer.state_dict()
      finally:
        torch.distributed.destroy_process_group()

    server = self.start_client_server(min_workers=1, rounds=cluster_processes.ENDLESS, **ADAMW)
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("a", run=sharded).outcome()
    self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
    self.assertIn("join(group=)", str(refused.exception))
    self.stop_job(server)

  def test_model_and_state_are_of_the_same_step_whichever_is_asked_for_first(self):

    def copying(address, name, asks_model_first):
      model, optimizer = program.make_worker(name, "mlp", "adamw")
      model = torch.nn.Sequential(*model)
      wrapper = torch.nn.parallel.DataParallel(model)  # has the model as `module`
      batches, saved = [], {}
      with lodestar.join(address, name=name) as ps:
        ps.attach(wrapper, optimizer, overlap=False)
        for step, (indices, _, _) in enumerate(ps.loader(small_models.TRAIN, batch_size=8)):
          batches.append(indices)
          program.make_step(model, optimizer, indices)
          if step == 4 and asks_model_first:
            saved["model"] = {key: value.clone() for key, value in model.state_dict().items()}
          if step == 4:
            saved["optimizer"] = optimizer.state_dict()
            saved.setdefault("model", {key: value.clone()
                                       for key, value in model.state_dict().items()})
            copied = copy.deepcopy(model)
            pickled = io.BytesIO()
            torch.save(model, pickled)
      pickled.seek(0)
      for other in copied, torch.load(pickled, weights_only=False):
        for key, value in other.state_dict().items():
          self.assertTrue(torch.equal(value, saved["model"][key]))
      file = io.BytesIO()
      torch.save(saved, file)
      self.assertNotIn("state_dict", vars(model))
      return {"batches": batches, "weights": model.state_dict(), "saved": file.getvalue()}

    for asks_model_first in True, False:
      server = self.start_client_server(min_workers=1, **ADAMW)
      run = self.start_program("a", asks_model_first, run=copying).outcome()
      self.assert_ends(server)
      model, _ = self.go_on([run], run["saved"], 5, "mlp", "adamw")
      self.assert_close(run, model, TOLERANCE)


if __name__ == "__main__":
  cluster_processes.main()
