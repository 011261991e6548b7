# SPDX-License-Identifier: Apache-2.0
"""Loops that take several batches for a step, leave batches out, or make several steps with one, and
what plain PyTorch makes of the same batches. Run by run.sh, with a Python that has PyTorch.

Usage: loops_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import signal
import sys
import threading
import types
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import torch  # noqa: E402  (after the path is set)

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import loops  # noqa: E402
import replay  # noqa: E402
import small_models  # noqa: E402
from lodestar import session  # noqa: E402

REDUCE = {"optimizer": "reduce"}


class LoopsTest(replay.ReplayTestCase):

  def run_loops(self, run, *arguments, others=None, num_programs=2, flags, **named):
    """What each program returns. others: arguments of those after the first, if they differ."""
    server = self.start_client_server(**{"batch_size": 4, "rounds": 6,
                                         "min_workers": num_programs, **flags})
    programs = [self.start_first_program(*arguments, run=run, **named)]
    for name in ("b", "c")[:num_programs - 1]:
      programs.append(self.start_program(name, *arguments, run=run,
                                         **(named if others is None else {**named, **others})))
    outcomes = [started.outcome() for started in programs]
    self.assert_ends(server)
    return outcomes

  def replay_sums(self, runs, optimizer_name, every, num_steps=6, clip_norm=None):
    """A step has the mean over the workers of what each has added up, which is clipped."""
    model = small_models.MODELS["mlp"]()
    optimizer = small_models.OPTIMIZERS[optimizer_name](model, replay.RATE)
    for step in range(num_steps):
      optimizer.zero_grad()
      for run in runs:
        for batch in run["steps"][step]:
          (small_models.loss_of(model, batch) / every / len(runs)).backward()
      if clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
      optimizer.step()
    for run in runs:
      self.assert_close(run, model, 1e-6)

  def assert_each_sample_once(self, runs, num_samples, leaves_out=False):
    counted = [sample for run in runs for step in run["steps"][:-1] for batch in step
               for sample in batch.tolist()]
    out = [sample for run in runs for batch in run["left_out"] for sample in batch.tolist()]
    self.assertEqual(len(counted) + len(out), num_samples)
    self.assertEqual(bool(out), leaves_out)
    of_pass = num_samples // small_models.NUM_SAMPLES
    self.assertEqual(sorted(counted + out), sorted(list(range(96)) * of_pass))

  def refusal_of(self, run, *arguments, flags, **named):
    server = self.start_client_server(min_workers=1, **flags)
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_program("a", *arguments, run=run, **named).outcome()
    self.stop_job(server)
    return refused.exception


class SeveralBatchesTest(LoopsTest):

  def test_several_batches_for_a_step_equal_their_sum_in_sync(self):
    runs = self.run_loops(loops.by_hand, "mlp", "adamw", 4,
                          flags={"mode": "sync", **replay.ADAMW})
    self.assertEqual([len(step) for step in runs[0]["steps"]], [4] * 6 + [0])
    self.replay_sums(runs, "adamw", 4)
    self.assert_each_sample_once(runs, 192)  # 6 rounds of 2 workers with 4 batches of 4 samples
    self.assertEqual(self.metrics()[-1]["samples"], 192)

  def test_several_batches_for_a_step_equal_their_sum_in_reduce(self):
    runs = self.run_loops(loops.by_hand, "mlp", "momentum", 4, overlap=False,
                          flags={"mode": "sync", **REDUCE})
    self.replay_sums(runs, "momentum", 4)
    self.assert_each_sample_once(runs, 192)

  def test_servers_clip_in_place_of_a_program_that_sums_by_hand(self):
    runs = self.run_loops(loops.by_hand, "mlp", "momentum", 4, clips=True, clip_norm=0.05,
                          flags={"mode": "sync", **replay.MOMENTUM})
    self.replay_sums(runs, "momentum", 4, clip_norm=0.05)

  def test_weights_of_the_batches_of_a_step_add_up(self):
    runs = self.run_loops(loops.weighted_by_hand, 3, flags={"mode": "sync", **replay.MOMENTUM})
    model = small_models.MODELS["mlp"]()
    optimizer = small_models.OPTIMIZERS["momentum"](model, replay.RATE)
    for step in range(6):
      batches = [batch for run in runs for batch in run["steps"][step]]
      total = sum(loops.weight_of(batch) for batch in batches)
      optimizer.zero_grad()
      for batch in batches:
        (small_models.loss_of(model, batch) * loops.weight_of(batch) / total).backward()
      optimizer.step()
    for run in runs:
      self.assert_close(run, model, 1e-6)

  def test_sums_whose_gradients_are_exchanged_in_backward_are_refused(self):
    for options in ({}, {"in_backward": True, "overlap": False}):
      with self.subTest(**options):
        error = self.refusal_of(loops.by_hand, "mlp", "momentum", 2,
                                flags={"mode": "sync", "batch_size": 4, **REDUCE}, **options)
        self.assertEqual(error.code, "FAILED_PRECONDITION")
        # Not the error of the next backward().
        for part in ("accumulate=", "overlap=False", "skip_step()"):
          self.assertIn(part, str(error))

  def test_first_step_with_one_batch_does_not_tell_what_the_loop_does(self):
    runs = self.run_loops(loops.by_hand, "mlp", "adamw", 4, is_due=lambda k: k % 4 == 0,
                          flags={"mode": "sync", **replay.ADAMW})
    self.assertEqual([len(step) for step in runs[0]["steps"]], [1] + [4] * 5 + [0])
    self.replay_sums(runs, "adamw", 4)

  def test_a_joiner_begins_its_sum_with_a_round(self):
    """Its batches are not counted from the same place as those of the first worker."""
    server = self.start_client_server(mode="sync", batch_size=4, rounds=30, min_workers=1,
                                      **replay.ADAMW)
    first = self.start_first_program("mlp", "adamw", 3, run=loops.by_hand)
    second = self.start_program("b", "mlp", "adamw", 2, run=loops.by_hand)
    runs = [first.outcome(), second.outcome()]
    self.assert_ends(server)
    self.assertEqual({len(step) for step in runs[0]["steps"][:-1]}, {3})
    self.assertEqual({len(step) for step in runs[1]["steps"][:-1]}, {2})
    for name, weights in runs[0]["weights"].items():
      torch.testing.assert_close(weights, runs[1]["weights"][name], atol=0, rtol=0)

  def test_stop_while_more_samples_are_asked_for_is_no_lost_round(self):

    def extend():
      raise lodestar.LodestarError("CANCELLED", "the worker is stopping")

    for stops in (False, True):
      worker = types.SimpleNamespace(extend=extend, stop=lambda: None)
      ps = session.Session(worker)
      ps._has_started, ps._tensors = True, types.SimpleNamespace(trained=[])
      with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if stops:
          ps.stop()
        self.assertIsNone(ps._extended())
      self.assertEqual(len(caught), 0 if stops else 1)

  def test_pass_ends_after_the_step_that_reaches_into_the_next_one(self):
    runs = self.run_loops(loops.by_hand, "mlp", "adamw", 5, passes=2, num_programs=1,
                          is_due=lambda number: number % 5 == 4,
                          flags={"mode": "sync", "rounds": 8, **replay.ADAMW})
    # A pass has 24 batches, and its last step takes one of the next pass.
    self.assertEqual([len(step) for step in runs[0]["steps"]], [5] * 8 + [0])
    self.replay_sums(runs, "adamw", 5, num_steps=8)

  def test_local_steps_are_made_where_the_program_makes_them(self):
    runs = self.run_loops(loops.by_hand, "mlp", "adamw", 2,
                          flags={"mode": "local_sgd", "local_steps": 4,
                                 "outer_optimizer": "average"})
    self.assertEqual([len(step) for step in runs[0]["steps"]], [2] * 12 + [0])
    models = [small_models.MODELS["mlp"]() for _ in runs]
    optimizers = [small_models.OPTIMIZERS["adamw"](model, replay.RATE) for model in models]
    for step in range(12):
      for run, model, optimizer in zip(runs, models, optimizers):
        optimizer.zero_grad()
        for batch in run["steps"][step]:
          (small_models.loss_of(model, batch) / 2).backward()
        optimizer.step()
      if step % 2 == 1:
        replay.set_to_mean(models)
    for run in runs:
      self.assert_close(run, models[0], 2e-6)


class RestartTest(LoopsTest):

  def run_with_restart(self, **flags):
    """Kills the server while the first program is at the second batch of its third step. Returns
    whether that still has the gradient with its third batch, and what the programs return."""
    flags = {"mode": "sync", "batch_size": 4, "rounds": 8, "checkpoint_dir": self.path("run"),
             **replay.ADAMW, **flags}
    server = self.start_client_server(**flags)
    reached, goes_on = threading.Event(), threading.Event()
    has_gradient = {}

    def on_batch(number, has):
      has_gradient[number] = has
      if number == 9:
        reached.set()
        goes_on.wait(cluster_processes.PATIENCE_SECONDS)

    first = self.start_first_program("mlp", "adamw", 4, run=loops.by_hand, on_batch=on_batch)
    second = self.start_program("b", "mlp", "adamw", 4, run=loops.by_hand)
    self.assertTrue(reached.wait(cluster_processes.PATIENCE_SECONDS), self.logs())
    server.kill()
    server = self.start_client_server(port=self.port, name="again", **flags)
    goes_on.set()
    runs = [first.outcome(), second.outcome()]
    self.assert_ends(server)
    return has_gradient[10], runs

  def test_sum_goes_on_over_a_restart_that_loses_nothing(self):
    has_gradient, runs = self.run_with_restart(durability="journal")
    self.assertTrue(has_gradient)
    self.replay_sums(runs, "adamw", 4, num_steps=8)

  def test_sum_of_a_lost_round_is_dropped(self):
    has_gradient, runs = self.run_with_restart(checkpoint_every=1, checkpoint_interval=0)
    self.assertFalse(has_gradient)
    for name, weights in runs[0]["weights"].items():
      torch.testing.assert_close(weights, runs[1]["weights"][name], atol=0, rtol=0)


  def run_local_steps(self, number, at_batch):
    """Sends the server a signal while the program is at a batch of rounds of two, and starts another
    server. Returns what the program returns."""
    flags = {"mode": "local_sgd", "local_steps": 2, "rounds": 6, "min_workers": 1, "batch_size": 4,
             "checkpoint_dir": self.path("run"), "checkpoint_every": 1, "checkpoint_interval": 0, **replay.ADAMW}
    server = self.start_client_server(**flags)
    reached, goes_on = threading.Event(), threading.Event()

    def on_batch(batch):
      if batch == at_batch:
        reached.set()
        goes_on.wait(cluster_processes.PATIENCE_SECONDS)

    program = self.start_first_program("mlp", "adamw", run=loops.in_local_steps, on_batch=on_batch)
    self.assertTrue(reached.wait(cluster_processes.PATIENCE_SECONDS), self.logs())
    if number == signal.SIGKILL:
      server.kill()
      goes_on.set()
    else:
      server.send(number)
      goes_on.set()
      server.wait()
    server = self.start_client_server(port=self.port, name="again", **flags)
    outcome = program.outcome()
    self.assert_ends(server)
    return outcome

  def test_optimizer_keeps_its_state_over_a_restart_that_loses_none_of_its_steps(self):
    num_steps, told = self.run_local_steps(signal.SIGTERM, at_batch=5)
    self.assertEqual(num_steps, 12)
    self.assertFalse([text for text in told if "state is reset" in text])

  def test_optimizer_loses_its_state_with_steps_that_are_lost(self):
    num_steps, told = self.run_local_steps(signal.SIGKILL, at_batch=5)
    self.assertLess(num_steps, 12)
    self.assertTrue([text for text in told if "state is reset" in text])


class BadBatchTest(LoopsTest):

  def test_bad_batch_before_backward_is_replaced_in_its_round(self):
    runs = self.run_loops(loops.by_hand, "mlp", "adamw", 1, bad=(2, 3), others={"bad": (4,)},
                          flags={"mode": "sync", "rounds": 12, **replay.ADAMW})
    self.assertEqual([len(run["left_out"]) for run in runs], [2, 1])
    self.replay_sums(runs, "adamw", 1, num_steps=12)
    counted = sum((batch.tolist() for run in runs for step in run["steps"] for batch in step), [])
    self.assertEqual(len(counted), 12 * 2 * 4)

  def test_gradient_of_a_bad_batch_that_was_zeroed_does_not_count(self):
    runs = self.run_loops(loops.by_hand, "mlp", "adamw", 1, bad=(2, 3), zeroes=True,
                          overlap=False, flags={"mode": "sync", "rounds": 12, **replay.ADAMW})
    self.assertEqual([len(run["left_out"]) for run in runs], [2, 2])
    self.replay_sums(runs, "adamw", 1, num_steps=12)

  def test_bad_batch_whose_gradient_may_have_left_is_refused(self):
    server = self.start_client_server(mode="sync", min_workers=1, **replay.ADAMW)
    with self.assertRaisesRegex(lodestar.LodestarError, "accumulate=") as refused:
      self.start_program("a", run=loops.without_last_step).outcome()
    self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
    self.stop_job(server)


  def test_step_that_was_left_out_is_refused_with_skip_step_named(self):
    error = self.refusal_of(loops.stepping_after_skip, flags={"mode": "sync", "batch_size": 8})
    self.assertEqual(error.code, "FAILED_PRECONDITION")
    self.assertIn("skip_step()", str(error))


class SeveralOptimizersTest(LoopsTest):

  def test_two_optimizers_in_local_sgd(self):
    runs = self.run_loops(loops.gan, flags={"mode": "local_sgd", "local_steps": 3,
                                            "batch_size": 8, "outer_optimizer": "average"})
    made = [loops.make_gan() for _ in runs]
    for begin in range(0, 18, 3):
      for run, networks in zip(runs, made):
        loops.train_gan(networks, [[batch] for batch in run["batches"][begin:begin + 3]], 1, 1)
      replay.set_to_mean([torch.nn.ModuleList(networks[:2]) for networks in made])
    for run in runs:
      self.assertEqual(len(run["batches"]), 18)
      self.assert_close(run, torch.nn.ModuleList(made[0][:2]), 2e-6)

  def test_each_step_of_two_optimizers_has_the_mean_of_its_gradients_in_reduce(self):
    for num_critic_steps, is_own, every in ((1, True, 1), (1, False, 1), (2, False, 2)):
      with self.subTest(num_critic_steps=num_critic_steps, is_own=is_own, every=every):
        rounds = 8 * num_critic_steps + 8 // every
        runs = self.run_loops(loops.gan, is_own=is_own, num_critic_steps=num_critic_steps,
                              generator_every=every,
                              flags={"mode": "sync", "batch_size": 8, "rounds": rounds, **REDUCE})
        generator, critic, *_ = networks = loops.make_gan()
        self.assertEqual(len(runs[0]["batches"]), 8)
        loops.train_gan(networks, zip(*(run["batches"] for run in runs)), num_critic_steps, every)
        for run in runs:
          self.assert_close(run, torch.nn.ModuleList([generator, critic]), 1e-6)
        self.assertEqual(self.metrics()[-1]["samples"], 128)
        if not is_own:
          # 8 batches of 8 samples of 2 workers: a pass of 96, and 32 of the next one.
          samples = sum((batch.tolist() for run in runs for batch in run["batches"]), [])
          self.assertEqual(set(samples), set(range(96)))
          self.assertEqual(max(samples.count(sample) for sample in samples), 2)

  def test_two_optimizers_are_refused_in_sync_with_the_modes_that_take_them(self):
    error = self.refusal_of(loops.gan, flags={"mode": "sync"})
    self.assertEqual(error.code, "INVALID_ARGUMENT")
    self.assertIn("--mode=local_sgd", str(error))
    self.assertIn("--optimizer=reduce", str(error))

  def test_optimizers_of_a_list_may_be_prepared(self):
    models = [torch.nn.Linear(2, 2) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
    prepared = types.SimpleNamespace(optimizer=optimizers[0], gradient_state=None,
                                     param_groups=optimizers[0].param_groups)
    with lodestar.join("127.0.0.1:1", name="a") as ps:
      ps.attach(models, [prepared, optimizers[1]])
      with lodestar.join("127.0.0.1:1", name="b") as other:
        with self.assertRaisesRegex(lodestar.LodestarError, "another session"):
          other.attach(models[1], optimizers[1])
    self.assertNotIn("step", vars(optimizers[0]))

  def test_one_parameter_in_two_optimizers_is_refused(self):
    model = torch.nn.Linear(2, 2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for _ in range(2)]
    with lodestar.join("127.0.0.1:1", name="a") as ps:
      with self.assertRaisesRegex(lodestar.LodestarError, "one optimizer") as refused:
        ps.attach(model, optimizers)
    self.assertEqual(refused.exception.code, "INVALID_ARGUMENT")


class SeveralStepsTest(LoopsTest):

  def replay_rollouts(self, runs, optimizer_name, num_epochs, is_local=False,
                      weight_of=lambda batch: 1):
    models = [small_models.MODELS["mlp"]() for _ in (runs if is_local else runs[:1])]
    optimizers = [small_models.OPTIMIZERS[optimizer_name](model, replay.RATE) for model in models]
    for batches in zip(*(run["batches"] for run in runs)):
      # Each worker begins with the weights that all have, and in local_sgd goes on with its own.
      of_run = list(zip(batches, models if is_local else models * len(runs)))
      olds = [small_models.loss_of(model, batch).item() for batch, model in of_run]
      for _ in range(num_epochs):
        for optimizer in optimizers:
          optimizer.zero_grad()
        total = sum(weight_of(batch) for batch in batches)
        for (batch, model), old in zip(of_run, olds):
          loss = small_models.loss_of(model, batch) * (1 + old)
          (loss if is_local else loss * weight_of(batch) / total).backward()
        for optimizer in optimizers:
          optimizer.step()
      replay.set_to_mean(models)
    for run in runs:
      self.assert_close(run, models[0], 2e-6)

  def test_several_steps_with_one_batch_in_reduce(self):
    runs = self.run_loops(loops.epochs_on_one_rollout, "mlp", "momentum", 3,
                          flags={"mode": "sync", "batch_size": 8, "rounds": 12, **REDUCE})
    self.assertEqual(len(runs[0]["batches"]), 4)
    self.replay_rollouts(runs, "momentum", 3)

  def test_several_steps_with_one_batch_have_its_weight(self):
    runs = self.run_loops(loops.epochs_on_one_rollout, "mlp", "momentum", 3, is_weighed=True,
                          flags={"mode": "sync", "batch_size": 8, "rounds": 12, **REDUCE})
    self.replay_rollouts(runs, "momentum", 3, weight_of=loops.weight_of)

  def test_several_steps_with_one_batch_in_local_sgd(self):
    runs = self.run_loops(loops.epochs_on_one_rollout, "mlp", "adamw", 3,
                          flags={"mode": "local_sgd", "local_steps": 1, "batch_size": 8,
                                 "rounds": 4, "outer_optimizer": "average"})
    self.replay_rollouts(runs, "adamw", 3, is_local=True)

  def test_several_steps_with_one_rollout_in_sync_by_asking_for_each(self):
    runs = self.run_loops(loops.epochs_on_one_rollout, "mlp", "adamw", 3, asks_each=True,
                          flags={"mode": "sync", "batch_size": 8, "rounds": 12, **replay.ADAMW})
    self.assertEqual(len(runs[0]["batches"]), 4)
    self.replay_rollouts(runs, "adamw", 3)

  def test_weight_between_two_steps_with_one_batch_is_refused_with_what_to_do(self):
    error = self.refusal_of(loops.weighing_each_step,
                            flags={"mode": "sync", "batch_size": 8, **REDUCE})
    self.assertEqual(error.code, "FAILED_PRECONDITION")
    self.assertIn("once for each batch", str(error))
    self.assertNotIn("overlap=False", str(error))

  def test_job_that_ends_between_steps_with_one_batch_ends_the_loop(self):
    runs = self.run_loops(loops.epochs_on_one_rollout, "mlp", "momentum", 3,
                          flags={"mode": "sync", "batch_size": 8, "rounds": 10, **REDUCE})
    self.assertEqual(len(runs[0]["batches"]), 4)

  def test_second_step_with_one_batch_in_sync_is_refused_with_what_to_do(self):
    error = self.refusal_of(loops.epochs_on_one_rollout, "mlp", "adamw", 2,
                            flags={"mode": "sync", "batch_size": 8, **replay.ADAMW})
    self.assertEqual(error.code, "FAILED_PRECONDITION")
    self.assertIn("ps.steps()", str(error))

  def test_gradient_at_other_weights_counts_for_the_step(self):
    for flags, optimizer_name in (({"mode": "sync", **replay.MOMENTUM}, "momentum"),
                                  ({"mode": "sync", **REDUCE}, "momentum")):
      with self.subTest(**flags):
        runs = self.run_loops(loops.sharpness_aware, "mlp", optimizer_name,
                              flags={"batch_size": 8, **flags})
        model = small_models.MODELS["mlp"]()
        optimizer = small_models.OPTIMIZERS[optimizer_name](model, replay.RATE)
        for batches in zip(*(run["batches"] for run in runs)):
          gradients = []
          for batch in batches:
            optimizer.zero_grad()
            small_models.loss_of(model, batch).backward()
            kept = loops.climb(model)
            optimizer.zero_grad()
            small_models.loss_of(model, batch).backward()
            loops.come_back(model, kept)
            gradients.append([parameter.grad.clone() for parameter in model.parameters()])
          for parameter, *of_runs in zip(model.parameters(), *gradients):
            parameter.grad = sum(of_runs) / len(of_runs)
          optimizer.step()
        for run in runs:
          self.assert_close(run, model, 1e-6)


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
