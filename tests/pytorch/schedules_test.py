# SPDX-License-Identifier: Apache-2.0
"""The learning rates of a PyTorch program hold, whatever sets them, or are refused by name. Run by
run.sh, with a Python that has PyTorch.

Usage: schedules_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
PACKAGE = os.path.join(ROOT, "worker", "python")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), PACKAGE, HERE]

import threading  # noqa: E402  (after the path is set)
import unittest  # noqa: E402

import torch  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
import program  # noqa: E402
import replay  # noqa: E402
from lodestar._learning_rates import JobSchedulers  # noqa: E402
from lodestar.worker_api import Step  # noqa: E402

RATE = replay.RATE
SYNC = {"mode": "sync", "rounds": 12}
REDUCE = {**SYNC, "optimizer": "reduce"}
LOCAL = {"mode": "local_sgd", "local_steps": 3, "outer_optimizer": "average", "rounds": 4}
NUM_STEPS = 12
# The servers are told no rate.
OPEN = {"learning_rate": None}


def stepped(make):
  """Returns a schedule of a scheduler that is stepped after each step."""

  def schedule(optimizer):
    scheduler = make(optimizer)
    return scheduler, lambda step: scheduler.step() if step > 0 else None

  return schedule


def on_plateau(optimizer):
  scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
  return scheduler, lambda step: scheduler.step(1.0) if step > 0 else None


def by_hand(optimizer):
  """As nanoGPT's loop does, with a rate of 0 in one step."""

  def set_rate(step):
    for group in optimizer.param_groups:
      group["lr"] = RATE * abs(step - 4)

  set_rate(0)
  return None, set_rate


WARM_UP = stepped(lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda k: k / 4))
ONE_CYCLE = stepped(lambda optimizer: lr_scheduler.OneCycleLR(
    optimizer, 4 * RATE, total_steps=NUM_STEPS + 1, cycle_momentum=False))
LONG_CYCLE = stepped(lambda optimizer: lr_scheduler.OneCycleLR(
    optimizer, 4 * RATE, total_steps=2000, cycle_momentum=False))
CHAINED = stepped(lambda optimizer: lr_scheduler.SequentialLR(optimizer, [
    lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
    lr_scheduler.CosineAnnealingLR(optimizer, NUM_STEPS)], [5]))
CONSTANT = stepped(lambda optimizer: lr_scheduler.ConstantLR(optimizer, 1.0))
SCHEDULES = (WARM_UP, ONE_CYCLE, CHAINED, on_plateau, by_hand)


def replayed(schedule):
  return lambda optimizer: schedule(optimizer)[1]


def recorded(rates):
  """As replayed(), of the rates that the steps of a program have had."""

  def set_rates(optimizer):

    def set_rate(step):
      optimizer.param_groups[0]["lr"] = rates[step]

    return set_rate

  return set_rates


class Pauses:
  """Steps at which a program waits for the test."""

  def __init__(self, *steps):
    self._reached = {step: threading.Event() for step in steps}
    self._over = {step: threading.Event() for step in steps}

  def on_step(self, step):
    if step in self._over:
      self._reached[step].set()
      self._over[step].wait(cluster_processes.PATIENCE_SECONDS)

  def until(self, step):
    assert self._reached[step].wait(cluster_processes.PATIENCE_SECONDS)

  def end(self, step):
    self._over[step].set()


class SchedulesTest(replay.ReplayTestCase):

  def run_scheduled(self, schedule, optimizer_name, named=None, num_programs=2, **flags):
    server = self.start_client_server(**{"min_workers": num_programs, **OPEN, **flags})
    named = named or {}
    programs = [self.start_scheduled("a", optimizer_name, schedule, **named)]
    self.wait_for_member("a", programs[0].is_alive)
    for name in ("b", "c")[:num_programs - 1]:
      programs.append(self.start_scheduled(name, optimizer_name, schedule, **named))
    runs = [started.outcome() for started in programs]
    self.assert_ends(server)
    return runs

  def start_scheduled(self, name, optimizer_name, schedule, rate=RATE, **named):
    return self.start_program(name, "mlp", optimizer_name, rate, schedule, run=program.scheduled,
                              **named)

  def refusal(self, schedule, optimizer_name="momentum", named=None, **flags):
    server = self.start_client_server(min_workers=1, **flags)
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_scheduled("a", optimizer_name, schedule, **(named or {})).outcome()
    self.stop_job(server)
    self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
    return str(refused.exception)

  def test_schedules_hold_where_servers_make_steps(self):
    for number, schedule in enumerate(SCHEDULES):
      for is_attached_first in (False, True):
        with self.subTest(schedule=number, is_attached_first=is_attached_first):
          runs = self.run_scheduled(
              schedule, "adamw", {"is_attached_first": is_attached_first}, **SYNC)
          self.assertEqual(len(runs[0]["batches"]), NUM_STEPS)
          self.replay_gradients(runs, "mlp", "adamw", set_rates=replayed(schedule))
          self.assertEqual([line["metrics"]["learning_rate"] for line in self.metrics()],
                           [rate for _, rate in runs[0]["rates"]])

  def test_schedules_hold_where_programs_make_steps_with_the_mean_gradient(self):
    for number, schedule in enumerate(SCHEDULES):
      with self.subTest(schedule=number):
        runs = self.run_scheduled(schedule, "rmsprop", {"is_attached_first": number % 2 == 0},
                                  **REDUCE)
        self.replay_gradients(runs, "mlp", "rmsprop", tolerance=2e-6,
                              set_rates=replayed(schedule))

  def test_schedules_hold_in_local_steps(self):
    for number, schedule in enumerate(SCHEDULES):
      with self.subTest(schedule=number):
        runs = self.run_scheduled(schedule, "rmsprop", {"is_attached_first": number % 2 == 1},
                                  **LOCAL)
        self.assertEqual(len(runs[0]["batches"]), NUM_STEPS)
        self.replay_local_steps(runs, "mlp", "rmsprop", LOCAL["local_steps"],
                                set_rates=replayed(schedule))

  def test_rates_of_local_steps_may_differ_between_workers(self):
    server = self.start_client_server(**{**LOCAL, **OPEN})
    first = self.start_scheduled("a", "sgd", WARM_UP)
    self.wait_for_member("a", first.is_alive)
    second = self.start_scheduled("b", "sgd", CONSTANT, rate=2 * RATE)
    rates = [started.outcome()["rates"] for started in (first, second)]
    self.assert_ends(server)
    self.assertEqual([rate for _, rate in rates[0][:5]], [RATE * k / 4 for k in range(5)])
    self.assertEqual([rate for _, rate in rates[1]], [2 * RATE] * NUM_STEPS)

  def test_changes_of_rates_are_refused_where_the_schedule_of_the_job_holds(self):
    for flags in ({"mode": "sync"}, {"mode": "async", **OPEN}, LOCAL, REDUCE,
                  {**LOCAL, "learning_rate": None, "lr_schedule": "cosine"},
                  {**SYNC, "learning_rate": None, "warmup_rounds": 2}):
      for schedule in (WARM_UP, by_hand):
        with self.subTest(flags=flags, schedule=SCHEDULES.index(schedule)):
          self.assertIn("has set the learning rate of group 0 to",
                        self.refusal(schedule, **flags))

  def test_scheduler_that_changes_no_rate_is_no_change(self):
    runs = self.run_scheduled(CONSTANT, "momentum", **{**SYNC, "learning_rate": RATE})
    self.replay_gradients(runs, "mlp", "momentum")

  def test_worker_with_another_rate_is_refused_and_both_are_named(self):
    server = self.start_client_server(**{**SYNC, **OPEN})
    first = self.start_scheduled("a", "momentum", WARM_UP)
    self.wait_for_member("a", first.is_alive)
    with self.assertRaises(lodestar.LodestarError) as refused:
      self.start_scheduled("b", "momentum", CONSTANT).outcome()
    self.assertEqual(refused.exception.code, "FAILED_PRECONDITION")
    self.assertIn(f"{RATE:g}", str(refused.exception))
    self.assertIn("and the workers before it have 0.", str(refused.exception))
    run = first.outcome()
    self.assert_ends(server)
    self.replay_gradients([run], "mlp", "momentum", set_rates=replayed(WARM_UP))

  def test_rate_that_is_set_after_backward_is_refused_or_honoured(self):
    self.assertIn("Set it before backward",
                  self.refusal(WARM_UP, named={"sets_late": True}, **{**SYNC, **OPEN}))
    runs = self.run_scheduled(WARM_UP, "momentum", {"sets_late": True, "overlap": False}, **SYNC)
    self.assertEqual([rate for _, rate in runs[0]["rates"]],
                     [RATE * k / 4 for k in range(NUM_STEPS)])
    self.replay_gradients(runs, "mlp", "momentum",
                          set_rates=lambda optimizer: self.one_step_ahead(optimizer))

  @staticmethod
  def one_step_ahead(optimizer):
    _, set_rate = WARM_UP(optimizer)
    return lambda step: set_rate(step + 1)

  def test_groups_of_parameters_have_rates_of_their_own(self):
    per_group = stepped(lambda optimizer: lr_scheduler.LambdaLR(
        optimizer, [lambda k: 1 / (1 + k), lambda k: k / 4]))
    for optimizer_name in ("two_rates", "rate_of_biases"):
      with self.subTest(optimizer=optimizer_name):
        runs = self.run_scheduled(per_group, optimizer_name, **SYNC)
        self.replay_gradients(runs, "mlp", optimizer_name, set_rates=replayed(per_group))
    self.assertIn("groups of parameters differ in lr (0.005, 0.05)",
                  self.refusal(CONSTANT, "two_rates", **SYNC))

  def test_rates_that_differ_within_a_block_are_refused(self):

    def warm_one_group_up(optimizer):
      optimizer.add_param_group({"params": [optimizer.param_groups[0]["params"].pop()]})

      def set_rate(step):
        optimizer.param_groups[1]["lr"] = RATE / (1 + step)

      return None, set_rate

    self.assertIn("2.bias has the learning rate 0.025, but 0.weight, which is sent with 2.bias, has 0.05.",
                  self.refusal(warm_one_group_up, **{**SYNC, **OPEN}))

  def test_scale_of_the_job_multiplies_the_rates(self):
    for flags in (SYNC, LOCAL):
      with self.subTest(flags=flags):
        server = self.start_client_server(**{**flags, **OPEN, "min_workers": 1, "rounds": 16})
        pauses = Pauses(6)
        started = self.start_scheduled("a", "sgd", by_hand, on_step=pauses.on_step)
        pauses.until(6)
        # The first program had 4 * RATE when it was attached.
        ordered = self.psctl("set-learning-rate", str(2 * RATE))
        pauses.end(6)
        self.assertEqual(ordered.returncode, 0, ordered.stderr)
        run = started.outcome()
        self.assert_ends(server)
        rates = [rate for _, rate in run["rates"]]
        plain = [RATE * abs(step - 4) for step in range(len(rates))]
        scales = [rate / wanted for rate, wanted in zip(rates, plain) if wanted]
        self.assertEqual(scales[0], 1)
        self.assertAlmostEqual(scales[-1], 0.5)

        self.replay_gradients([run], "mlp", "sgd", set_rates=recorded(rates))

  def test_schedules_hold_over_servers_that_are_started_again(self):
    for name, durability in (("journal", {"durability": "journal"}),
                             ("checkpoint", {"checkpoint_every": 10, "checkpoint_interval": 0})):
      with self.subTest(durability=name):
        flags = {"rounds": 60, "checkpoint_dir": self.path(name), "mode": "sync", "min_workers": 2,
                 **OPEN, **durability}
        server = self.start_client_server(name=name, **flags)
        pauses = Pauses(20, 40)
        programs = [self.start_scheduled("a", "adamw", LONG_CYCLE, on_step=pauses.on_step,
                                         is_given=True)]
        self.wait_for_member("a", programs[0].is_alive)
        programs.append(self.start_scheduled("b", "adamw", LONG_CYCLE, is_given=True))
        pauses.until(20)
        # The servers know the scale beside their schedule, and multiply rates by it once.
        self.assertEqual(self.psctl("set-learning-rate", "0.002").returncode, 0)
        pauses.end(20)
        pauses.until(40)
        server.kill()
        server = self.start_client_server(port=self.port, name=name + "_again", **flags)
        pauses.end(40)
        runs = [started.outcome() for started in programs]
        self.assert_ends(server)
        # Rounds after the checkpoint came a second time, and then count.
        batches = [{number: batch for (number, _), batch in zip(run["rates"], run["batches"])}
                   for run in runs]
        rates = [dict(run["rates"]) for run in runs]
        self.assertEqual(list(rates[0]), list(range(60)))
        self.assertEqual(rates[0], rates[1])
        counted = [{"batches": list(of_run.values()), "weights": run["weights"]}
                   for of_run, run in zip(batches, runs)]
        self.replay_gradients(counted, "mlp", "adamw", set_rates=recorded(list(rates[0].values())))

  def test_worker_that_joins_later_has_the_schedule_of_the_job(self):
    for is_given in (True, False):
      with self.subTest(is_given=is_given):
        server = self.start_client_server(
            **{**SYNC, **OPEN, "rounds": cluster_processes.ENDLESS, "min_workers": 1})
        first = self.start_scheduled("a", "adamw", LONG_CYCLE, ends_after=600)
        self.wait_for_round(20)
        second = self.start_scheduled("b", "adamw", LONG_CYCLE, is_given=is_given, ends_after=20)
        if not is_given:
          with self.assertRaises(lodestar.LodestarError) as refused:
            second.outcome()
          self.assertIn("schedulers=", str(refused.exception))
          first.outcome()
        else:
          of_first = dict(first.outcome()["rates"])
          shared = [(rate, of_first[number]) for number, rate in second.outcome()["rates"]
                    if number in of_first]
          self.assertGreater(len(shared), 10)
          self.assertEqual([rate for rate, _ in shared], [rate for _, rate in shared])
        self.stop_job(server)


class JobSchedulersTest(unittest.TestCase):

  @staticmethod
  def step(number, of_round=0, num_steps=1):
    return Step(True, number, of_round, num_steps, 0.1, 1, [0], [0], 0, 0)

  def rate_at(self, schedule, count):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], RATE)
    _, set_rate = schedule(optimizer)
    optimizer.step()
    for step in range(count):
      set_rate(step + 1)
    return optimizer.param_groups[0]["lr"]

  def test_schedulers_follow_the_steps_of_the_job(self):
    for schedule in (WARM_UP, LONG_CYCLE, CHAINED):
      for local_steps, steps, wanted in (
          (1, [(0, 0), (1, 0), (2, 0)], [0, 1, 2]),  # from the beginning
          (1, [(5, 0), (6, 0)], [5, 6]),  # has joined
          (1, [(0, 0), (1, 0), (7, 0), (8, 0)], [0, 1, 7, 8]),  # has missed rounds
          (1, [(0, 0), (1, 0), (2, 0), (1, 0), (2, 0)], [0, 1, 2, 1, 2]),  # servers have gone back
          (3, [(1, 0), (1, 1), (1, 2), (2, 0), (4, 0)], [3, 4, 5, 6, 12]),
          # Rounds of fewer steps than usual are no jump.
          (3, [(0, 0), (0, 1), (1, 0), (1, 1)], [0, 1, 2, 3])):
        with self.subTest(schedule=schedule, steps=steps):
          optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], RATE)
          scheduler, set_rate = schedule(optimizer)
          schedulers = JobSchedulers([scheduler])
          optimizer.step()
          for number, (step, count) in enumerate(zip(steps, wanted)):
            schedulers.follow(self.step(*step), local_steps)
            self.assertAlmostEqual(optimizer.param_groups[0]["lr"], self.rate_at(schedule, count))
            set_rate(number + 1)

  def test_state_that_was_loaded_ahead_of_the_job_stays(self):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], RATE)
    scheduler, set_rate = LONG_CYCLE(optimizer)
    optimizer.step()
    for step in range(9):
      set_rate(step + 1)
    JobSchedulers([scheduler]).follow(self.step(0), 1)
    self.assertEqual(scheduler.last_epoch, 9)

  def test_scheduler_that_steps_do_not_decide_is_refused(self):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], RATE)
    with self.assertRaises(lodestar.LodestarError) as refused:
      JobSchedulers([lr_scheduler.ReduceLROnPlateau(optimizer)])
    self.assertEqual(refused.exception.code, "INVALID_ARGUMENT")
    self.assertIn("ReduceLROnPlateau", str(refused.exception))


if __name__ == "__main__":
  cluster_processes.main()
