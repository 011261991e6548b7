# SPDX-License-Identifier: Apache-2.0
"""What a PyTorch program changes beside its steps, or leaves out of them, is honoured, or refused by
name. Run by run.sh, with a Python that has PyTorch.

Usage: changes_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import torch  # noqa: E402  (after the path is set)

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import program  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402
from lodestar import _trained_tensors  # noqa: E402

SYNC = {"mode": "sync", "optimizer": "sgd"}
SYNC_MOMENTUM = {"mode": "sync", **replay.MOMENTUM}
LOCAL = {"mode": "local_sgd", "local_steps": 3, "outer_optimizer": "average", "rounds": 3}
REDUCE = {"mode": "sync", "optimizer": "reduce"}
# Steps of a job of any of these modes, with rounds=9 in the others.
NUM_STEPS = 9
# A step in the middle of a window of LOCAL, and the last step of one.
CHANGED_STEPS = (1, 5)


def clamp(_, model, __):
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.clamp_(-0.05, 0.05)


def clamp_data(_, model, __):
  for parameter in model.parameters():
    parameter.data.clamp_(-0.05, 0.05)


def change_by_numpy(_, model, __):
  for parameter in model.parameters():
    values = parameter.detach().numpy()
    values *= 0.5


def change_by_vector(_, model, __):
  vector = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
  torch.nn.utils.vector_to_parameters(vector * 0.5, model.parameters())


def replace_data(_, model, __):
  for parameter in model.parameters():
    parameter.data = parameter.data * 0.5


def load(_, model, __):
  model.load_state_dict({name: weights * 0.5 for name, weights in model.state_dict().items()})


def swap_averages_in(_, model, __):
  averaged = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda average, new, _: new * 0.5)
  averaged.update_parameters(model)
  averaged.update_parameters(model)
  with torch.no_grad():
    for parameter, average in zip(model.parameters(), averaged.parameters()):
      parameter.copy_(average)


WAYS = (clamp, clamp_data, change_by_numpy, change_by_vector, replace_data, load, swap_averages_in)


def at(steps, change):
  """Returns a change that is made after these steps alone."""

  def changes(step, model, optimizer):
    if step in steps:
      change(step, model, optimizer)

  return changes


def change_last_bias(_, model, __):
  with torch.no_grad():
    model[2].bias[3] += 1e-6


def swap_out_and_back(_, model, __):
  """As for an evaluation with averaged weights, in both ways in which programs do it."""
  with torch.no_grad():
    for parameter in model.parameters():
      kept = parameter.clone()
      parameter.zero_()
      parameter.copy_(kept)
      parameter.zero_()
      parameter.data = kept


def freeze(_, model, __):
  model[0].requires_grad_(False)


def unfreeze(_, model, __):
  model.positions.requires_grad_(True)


def set_in_group(key, value):

  def changes(_, __, optimizer):
    optimizer.param_groups[0][key] = value

  return changes


def take_out(_, model, optimizer):
  optimizer.param_groups[0]["params"] = list(model[2].parameters())


def warm_up(model, optimizer):
  """Leaves a state, and weights, that a job is to begin with."""
  optimizer.param_groups[0]["lr"] = 0.01
  for _ in range(3):
    program.make_step(model, optimizer, torch.arange(8))


def bring_state(_, model, optimizer):
  optimizer.state[model[2].bias]["momentum_buffer"] = torch.ones(5)


class ChangesTest(replay.ReplayTestCase):

  def run_alone(self, model_name, optimizer_name, change, before=None, **flags):
    """The only program of a job, which makes a change after each step."""
    server = self.start_client_server(**{"min_workers": 1, "rounds": NUM_STEPS, **flags})
    run = self.start_program("a", model_name, optimizer_name, change, before,
                             run=program.changing).outcome()
    self.assert_ends(server)
    self.assertEqual(len(run["batches"]), NUM_STEPS)
    return run

  def replay_changes(self, run, model_name, optimizer_name, change, before=None, tolerance=1e-6):
    model = small_models.MODELS[model_name]()
    # As the session's: the job's rate is set with the first batch.
    optimizer = small_models.OPTIMIZERS[optimizer_name](model, 123.0)
    if before is not None:
      before(model, optimizer)
    optimizer.param_groups[0]["lr"] = replay.RATE
    for step, batch in enumerate(run["batches"]):
      program.make_step(model, optimizer, batch)
      change(step, model, optimizer)
    self.assert_close(run, model, tolerance)

  def refusal(self, model_name, optimizer_name, change, before=None, in_evaluation=None, **flags):
    """The error that the only program of a job gets for a change."""
    server = self.start_client_server(**{"min_workers": 1, "rounds": NUM_STEPS, **flags})
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("a", model_name, optimizer_name, change, before, in_evaluation,
                         run=program.changing).outcome()
    self.stop_job(server)
    self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
    return str(refused.exception)

  def test_weights_are_new_after_a_step_that_waits(self):
    for flags, options in (({**SYNC_MOMENTUM, "eval_every": 2, "eval_samples": 8}, {}),
                           (SYNC_MOMENTUM, {"overlap": False}),
                           ({"mode": "sync", "optimizer": "reduce"}, {})):
      with self.subTest(**flags):
        server = self.start_client_server(rounds=NUM_STEPS, **flags)
        first = self.start_first_program("mlp", "momentum", run=program.averaging, **options)
        second = self.start_program("b", "mlp", "momentum", run=program.averaging, **options)
        runs = [first.outcome(), second.outcome()]
        self.assert_ends(server)
        self.replay_gradients(runs, "mlp", "momentum")
        model = small_models.MODELS["mlp"]()
        optimizer = small_models.OPTIMIZERS["momentum"](model, replay.RATE)
        average = None
        for batches in zip(*(run["batches"] for run in runs)):
          optimizer.zero_grad()
          for batch in batches:
            (small_models.loss_of(model, batch) / len(runs)).backward()
          optimizer.step()
          average = program.averaged_with(average, model)
        for run in runs:
          self.assertEqual(len(run["batches"]), NUM_STEPS)
          torch.testing.assert_close(run["average"], average, atol=1e-6, rtol=0)

  def test_weights_changed_after_a_step_are_refused_where_servers_hold_them(self):
    for mode, ways in (("sync", WAYS), ("async", (clamp_data,))):
      for change in ways:
        with self.subTest(mode=mode, change=change.__name__):
          text = self.refusal("mlp", "sgd", at((2,), change), **{**SYNC, "mode": mode})
          self.assertIn("changed 0.weight", text)
          for flag in (f"--mode={mode}", "--mode=local_sgd", "--optimizer=reduce"):
            self.assertIn(flag, text)

  def test_the_only_tensor_that_was_changed_is_named(self):
    self.assertIn("changed 2.bias", self.refusal("mlp", "sgd", at((2,), change_last_bias), **SYNC))

  def test_bf16_weights_changed_after_a_step_are_refused_where_servers_hold_them(self):
    self.assertIn("changed 0.weight", self.refusal("mlp_bf16", "sgd", at((2,), clamp), **SYNC))

  def test_weights_that_forward_changes_are_refused_where_servers_hold_them(self):

    def limit_norms(model, _):
      model.tokens.max_norm = 1e-3

    text = self.refusal("transformer", "sgd", at((), clamp), limit_norms, **SYNC)
    self.assertIn("changed tokens.weight", text)

  def test_weights_changed_by_an_evaluation_are_refused_where_servers_hold_them(self):
    text = self.refusal("mlp", "sgd", at((), clamp),
                        in_evaluation=lambda model: clamp(0, model, None), eval_every=2,
                        eval_samples=8, **SYNC)
    self.assertIn("changed 0.weight", text)

  def test_weights_that_are_back_at_the_next_batch_are_no_change(self):
    run = self.run_alone("mlp", "sgd", swap_out_and_back, **SYNC)
    self.replay_changes(run, "mlp", "sgd", swap_out_and_back)

  def test_weights_changed_after_a_step_are_honoured_where_programs_hold_them(self):
    for flags in LOCAL, REDUCE:
      for change in WAYS:
        with self.subTest(flags=flags, change=change.__name__):
          changes = at(CHANGED_STEPS, change)
          run = self.run_alone("mlp", "momentum", changes, **flags)
          self.replay_changes(run, "mlp", "momentum", changes)

  def test_bf16_weights_changed_after_a_local_step_are_honoured(self):
    changes = at(CHANGED_STEPS, clamp)
    run = self.run_alone("mlp_bf16", "sgd", changes, **LOCAL)
    # A step of bf16 below 0.25 is at most 2^-10.
    self.replay_changes(run, "mlp_bf16", "sgd", changes, tolerance=2**-10)

  def test_buffers_changed_after_a_step_are_honoured(self):

    def reset_statistics(_, model, __):
      model.layers[1].running_mean.fill_(3.0)

    run = self.run_alone("normalized", "sgd", at(range(NUM_STEPS), reset_statistics), **SYNC)
    self.assertTrue((run["weights"]["layers.1.running_mean"] == 3.0).all())

  def test_frozen_parameters_are_refused_where_servers_make_steps(self):
    self.assertIn("0.weight was frozen",
                  self.refusal("mlp", "momentum", at((2,), freeze), **SYNC_MOMENTUM))

  def test_frozen_parameters_stay_where_programs_make_steps(self):
    for flags in LOCAL, REDUCE:
      run = self.run_alone("mlp", "momentum", at((2,), freeze), **flags)
      self.replay_changes(run, "mlp", "momentum", at((2,), freeze))

  def test_parameters_that_are_not_frozen_any_more_are_refused(self):
    for flags in SYNC_MOMENTUM, LOCAL, REDUCE:
      self.assertIn("the optimizer trains positions",
                    self.refusal("transformer", "momentum", at((2,), unfreeze), **flags))

  def test_frozen_weights_that_differ_from_those_of_another_worker_are_refused(self):

    def change_positions(model, _):
      with torch.no_grad():
        model.positions[7, 7] += 1e-6

    unchanged = at((), freeze)
    server = self.start_client_server(min_workers=1, rounds=1000000, **SYNC)
    workers = [self.start_first_program("transformer", "sgd", unchanged, run=program.changing)]
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("b", "transformer", "sgd", unchanged, change_positions,
                         run=program.changing).outcome()
    self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
    for part in ("frozen", "worker 'a'", "check_frozen=False"):
      self.assertIn(part, str(refused.exception))
    for name, before, options in (("c", None, {}), ("d", change_positions, {"check_frozen": False})):
      workers.append(self.start_program(name, "transformer", "sgd", unchanged, before,
                                        run=program.changing, **options))
      self.wait_for_member(name, workers[-1].is_alive)
      self.assertTrue(workers[-1].is_alive(), name)
    self.stop_job(server)
    for worker in workers:
      worker.join(cluster_processes.PATIENCE_SECONDS)

  def test_hash_of_frozen_weights_tells_names_shapes_types_and_bytes_apart(self):

    def hash_of(change):
      model = small_models.MODELS["mlp"]()
      model[0].requires_grad_(False)
      change(model)
      worker = lodestar.Worker(coordinator="127.0.0.1:1", name="a")
      optimizer = torch.optim.SGD(model[2].parameters(), lr=1.0)
      return _trained_tensors.TrainedTensors(worker, model, optimizer).frozen_hash()

    def rename(model):
      model[0].register_parameter("other", model[0].bias)
      del model[0].bias

    def reshape(model):
      model[0].bias.data = model[0].bias.data.view(4, 4)

    def reinterpret(model):
      model[0].bias.data = model[0].bias.data.view(torch.int32)

    def change_byte(model):
      model[0].bias.data[3].nextafter_(torch.tensor(9.0))

    hashes = {hash_of(change) for change in (rename, reshape, reinterpret, change_byte,
                                             lambda model: None)}
    self.assertEqual(len(hashes), 5)
    self.assertNotIn("", hashes)
    self.assertIn(hash_of(lambda model: model[2].weight.data.zero_()), hashes)  # it is trained
    # The optimizer lacks some, and none is frozen.
    self.assertEqual(hash_of(lambda model: model.requires_grad_(True)), "")

  def test_settings_changed_after_attach_are_refused_where_servers_make_steps(self):
    adamw = {"mode": "sync", **replay.ADAMW}
    for optimizer_name, flags, change, named in (
        ("momentum", SYNC_MOMENTUM, set_in_group("momentum", 0.5), ("momentum", "0.9", "0.5")),
        ("adamw", adamw, set_in_group("betas", (0.8, 0.999)), ("betas", "0.9", "0.8")),
        ("adamw", adamw, set_in_group("weight_decay", 0.0), ("weight_decay", "0.01", "0.0")),
        ("momentum", SYNC_MOMENTUM, take_out, ("taken out of the optimizer",))):
      text = self.refusal("mlp", optimizer_name, at((2,), change), **flags)
      for part in ("0.weight", "--mode=sync", "--mode=local_sgd", *named):
        self.assertIn(part, text)

  def test_settings_changed_after_attach_are_honoured_where_programs_make_steps(self):
    for flags in LOCAL, REDUCE:
      for change in set_in_group("momentum", 0.5), take_out:
        run = self.run_alone("mlp", "momentum", at((2,), change), **flags)
        self.replay_changes(run, "mlp", "momentum", at((2,), change))

  def test_state_that_the_optimizer_gets_in_the_loop_is_refused_where_servers_have_it(self):
    text = self.refusal("mlp", "momentum", at((2,), bring_state), **SYNC_MOMENTUM)
    for part in ("momentum_buffer", "--mode=sync", "--mode=local_sgd", "--optimizer=reduce"):
      self.assertIn(part, text)

  def test_state_of_the_optimizer_is_honoured(self):
    for flags in SYNC_MOMENTUM, LOCAL, REDUCE:
      run = self.run_alone("mlp", "momentum", at((), freeze), warm_up, **flags)
      self.replay_changes(run, "mlp", "momentum", at((), freeze), warm_up)

  def test_hooks_of_steps_are_called_in_every_mode(self):
    for flags in SYNC, LOCAL, REDUCE:
      called = []

      def add_hooks(_, optimizer):
        optimizer.register_step_pre_hook(lambda *_: called.append("before"))
        optimizer.register_step_post_hook(lambda *_: called.append("after"))

      self.run_alone("mlp", "sgd", lambda *_: called.append("step"), add_hooks, **flags)
      self.assertEqual(called, ["before", "after", "step"] * NUM_STEPS)

  def test_graph_that_is_kept_over_a_step_raises_as_in_plain_pytorch(self):
    for flags in SYNC, {**SYNC, "mode": "async"}, LOCAL, REDUCE:
      kept = []

      def keep_loss(step, model, _, kept=kept):
        if step == 1:
          kept.append(small_models.loss_of(model, torch.arange(8)))
        if step == 2:
          with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            torch.autograd.grad(kept.pop(), list(model.parameters()))
          kept.append(None)

      with self.subTest(flags=flags):
        self.run_alone("mlp", "sgd", keep_loss, **flags)
        self.assertEqual(kept, [None])

  def test_gradients_changed_after_they_may_have_left_are_refused(self):

    def clamp_gradients(model):
      for parameter in model.parameters():
        parameter.grad.data.clamp_(-1e-3, 1e-3)

    def clip_nothing(model):
      torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)

    for change in clamp_gradients, clip_nothing:

      def add_hook(model, optimizer, change=change):

        def change_gradients(*_):
          change(model)

        # It runs between backward and step, as a clamp in the program does.
        optimizer.register_step_pre_hook(change_gradients)

      text = self.refusal("mlp", "sgd", at((), freeze), add_hook, **SYNC)
      self.assertIn("gradient of 0.weight was changed", text)

  def test_step_left_out_before_backward_changes_nothing(self):
    for flags in SYNC_MOMENTUM, LOCAL, REDUCE:
      server = self.start_client_server(**{"min_workers": 1, "rounds": NUM_STEPS, **flags})
      run = self.start_program("a", "mlp", "momentum", run=program.skipping).outcome()
      self.assert_ends(server)
      self.assertEqual(len(run["batches"]), NUM_STEPS - 2)
      self.replay_changes(run, "mlp", "momentum", at((), freeze))

  def test_step_without_gradient_is_refused(self):
    for flags in SYNC, LOCAL, REDUCE:
      server = self.start_client_server(**{"min_workers": 1, "rounds": NUM_STEPS, **flags})
      with self.assertRaises(lodestar.LodestarError) as refused:
        self.start_program("a", "mlp", "sgd", run=program.without_backward).outcome()
      self.stop_job(server)
      self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
      self.assertIn("no parameter has a gradient", str(refused.exception))

  def test_distributed_data_parallel_without_hook_is_refused_where_gradients_overlap(self):
    for flags in SYNC, REDUCE:
      server = self.start_client_server(**{"min_workers": 1, **flags})
      with self.assertRaises(lodestar.LodestarError) as refused:
        self.start_program("a", "mlp", "sgd", self.path(flags["optimizer"]), False,
                           run=program.distributed).outcome()
      self.stop_job(server)
      for part in ("DistributedDataParallel", "overlap=False", "comm_hook"):
        self.assertIn(part, str(refused.exception))

  def test_attach_takes_models_and_optimizers(self):
    model = small_models.MODELS["mlp"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for arguments, part in (((model, [optimizer, optimizer]), "one optimizer"),
                            (([model, optimizer], optimizer), "torch.nn.Module, or a list"),
                            ((model, [optimizer, 0.1]), "torch.optim.Optimizer, or a list"),
                            (([], optimizer), "an empty list of models"),
                            ((optimizer, model), "attach(model, optimizer)")):
      with self.assertRaises(lodestar.LodestarError) as refused:
        lodestar.join("127.0.0.1:1", name="a").attach(*arguments)
      self.assertEqual(refused.exception.code, "INVALID_ARGUMENT")
      self.assertIn(part, str(refused.exception))
    session = lodestar.join("127.0.0.1:1", name="a")
    session.attach(model, optimizer)
    with self.assertRaises(lodestar.LodestarError) as refused:
      session.attach(model, torch.optim.SGD(model.parameters(), lr=1.0))
    self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
    session.leave()

  def test_parameters_that_the_optimizer_lacks_bring_a_warning(self):
    model = small_models.MODELS["mlp"]()
    with self.assertWarnsRegex(UserWarning, r"0\.weight and 1 more"):
      session = lodestar.join("127.0.0.1:1", name="a")
      session.attach(model, torch.optim.SGD(model[2].parameters(), lr=1.0))
    session.leave()

  def test_sums_of_bits_tell_small_changes_apart(self):
    values = torch.randn(5, 7)
    sums = {int(_trained_tensors.sum_of_bits(values))}
    for change in (lambda changed: changed.neg_(), lambda changed: changed[0].copy_(values[1]),
                   lambda changed: changed.copy_(values.flip(0)),
                   lambda changed: changed[4, 6].nextafter_(torch.tensor(9.0))):
      changed = values.clone()
      change(changed)
      sums.add(int(_trained_tensors.sum_of_bits(changed)))
    self.assertEqual(len(sums), 5)
    self.assertEqual(int(_trained_tensors.sum_of_bits(values.bfloat16())),
                     int(_trained_tensors.sum_of_bits(values.bfloat16())))


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
