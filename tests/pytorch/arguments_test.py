# SPDX-License-Identifier: Apache-2.0
"""Arguments of a wrong kind, and calls at a wrong time, are refused by name: never by an error from
inside. Run by run.sh, with a Python that has PyTorch.

Usage: arguments_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import pathlib
import sys
import threading
import unittest.mock

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

MODES = ({"mode": "sync"}, {"mode": "sync", "optimizer": "reduce"},
         {"mode": "local_sgd", "local_steps": 2})
NOWHERE = "127.0.0.1:1"


def with_session(address, name, use):
  """What `use` returns of a session that has a model and an optimizer."""
  model = small_models.MODELS["mlp"]()
  with lodestar.join(address, name=name, connect_timeout="20s") as ps:
    return use(ps, *ps.attach(model, small_models.OPTIMIZERS["sgd"](model, replay.RATE)))


class ArgumentsTest(replay.ReplayTestCase):

  def assert_refused(self, call, *parts, code="INVALID_ARGUMENT"):
    with self.assertRaises(lodestar.LodestarError) as refused:
      call()
    self.assertEqual(refused.exception.code, code, str(refused.exception))
    for part in parts:
      self.assertIn(part, str(refused.exception))

  def run_alone(self, use, ends=False, **flags):
    server = self.start_client_server(**{"min_workers": 1, "rounds": 4, **flags})
    result = self.start_program("a", use, run=with_session).outcome()
    (self.assert_ends if ends else self.stop_job)(server)
    return result

  def test_join_names_arguments_of_a_wrong_kind(self):
    for arguments, part in (({"address": 3}, "address= is 3"),
                            ({"address": [NOWHERE]}, "address= is a list"),
                            ({"insecure": "false"}, "insecure= is 'false'"),
                            ({"name": "\ud800"}, "name= is"), ({"name": "a\0b"}, "name= is")):
      with self.subTest(arguments=arguments):
        self.assert_refused(lambda arguments=arguments: lodestar.join(**arguments), part)
    self.assert_refused(lambda: lodestar.join(NOWHERE, group=3), "init_process_group",
                        code="FAILED_PRECONDITION")

  def test_join_names_a_variable_that_is_empty_or_has_what_belongs_into_another(self):
    for variables, part in (({"LODESTAR": ""}, "$LODESTAR is set but empty"),
                            ({"LODESTAR_JOIN": NOWHERE}, "into $LODESTAR")):
      with self.subTest(variables=variables), unittest.mock.patch.dict(os.environ, variables):
        self.assert_refused(lodestar.join, part)

  def test_join_takes_paths(self):
    path = pathlib.Path(self.path("token"))
    path.write_text("lodestar://", encoding="ascii")
    lodestar.join(path, name="a", state_dir=pathlib.Path(self.path("state"))).leave()

  def test_attach_names_arguments_of_a_wrong_kind(self):
    model = small_models.MODELS["mlp"]()
    optimizer = small_models.OPTIMIZERS["sgd"](model, 1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for arguments, part in (((torch.nn.Linear, optimizer), "the class Linear"),
                            ((model.parameters(), optimizer), "a generator"),
                            ((model, torch.optim.SGD), "the class SGD"),
                            ((model, scheduler), "a StepLR"), ((model, None), "a NoneType"),
                            (([], optimizer), "an empty list of models"),
                            ((model, []), "an empty list of optimizers")):
      self.assert_refused(lambda arguments=arguments: lodestar.join(
          NOWHERE, name="a").attach(*arguments), part)
    for schedulers, part in ((scheduler, "schedulers= is a StepLR"), (None, "a NoneType"),
                             ([3], "a int")):
      self.assert_refused(lambda schedulers=schedulers: lodestar.join(NOWHERE, name="a").attach(
          model, optimizer, schedulers=schedulers), "schedulers=", part)
    self.assert_refused(lambda: lodestar.join(NOWHERE, name="a").attach(
        model, optimizer, clip_norm="x"), "clip_norm= is 'x'")

  def test_optimizer_of_another_session_is_refused_until_that_leaves(self):

    def use(_, model, optimizer):
      other = lodestar.join(NOWHERE, name="b")
      self.assert_refused(lambda: other.attach(model, optimizer), "another session",
                          code="FAILED_PRECONDITION")
      return other, model, optimizer

    other, model, optimizer = with_session(NOWHERE, "a", use)
    other.attach(model, optimizer)
    other.leave()

  def test_loader_names_arguments_of_a_wrong_kind(self):

    def use(ps, _, __):
      data = small_models.TRAIN
      for wrong, part in (({"batch_size": "8"}, "batch_size= is '8'"),
                          ({"batch_size": 8.0}, "batch_size= is 8.0"),
                          ({"batch_size": 0}, "batch_size= is 0"),
                          ({"batch_size": True}, "batch_size= is True"),
                          ({"batch_size": torch.ones(2)}, "batch_size= is a Tensor of shape [2]"),
                          ({"accumulate": -1}, "accumulate= is -1"),
                          ({"accumulate": "2"}, "accumulate= is '2'"),
                          ({"heldout": data}, "heldout= is given without evaluate="),
                          ({"heldout": iter([1]), "evaluate": max}, "heldout= is a list_iterator"),
                          ({"heldout": data, "evaluate": 3}, "evaluate= is 3"),
                          ({"collate_fn": 3}, "collate_fn= is 3"),
                          ({"fingerprint": 3}, "fingerprint= is 3"),
                          ({"predictions_per_sample": 1.5}, "predictions_per_sample= is 1.5"),
                          ({"predictions_per_sample": 0}, "predictions_per_sample= is 0")):
        self.assert_refused(lambda wrong=wrong: ps.loader(data, **wrong), part)
      for wrong in (None, 3, "abc", {"a": 1}, []):
        self.assert_refused(lambda wrong=wrong: ps.loader(wrong, batch_size=8), "the data is")
      for wrong in ("a", -1, 0, 1.5):
        self.assert_refused(lambda wrong=wrong: ps.steps(wrong), f"num_samples= is {wrong!r}")

    with_session(NOWHERE, "a", use)

  def test_loader_takes_whole_numbers_of_other_types(self):

    def use(ps, model, optimizer):
      loader = ps.loader(small_models.TRAIN, torch.tensor(4), accumulate=torch.tensor(2))
      for indices, _, _ in loader:
        (small_models.loss_of(model, indices) * ps.share).backward()
        if ps.is_last_batch:
          optimizer.step()
      return ps.is_over

    self.assertTrue(self.run_alone(use, ends=True))

  def test_options_that_a_data_loader_does_not_take_end_the_worker(self):

    def use(ps, _, __):
      self.assert_refused(lambda: ps.loader(small_models.TRAIN, 8, nonsense=3), "nonsense")
      return ps.has_left

    self.assertTrue(self.run_alone(use))

  def test_log_and_step_name_arguments_of_a_wrong_kind(self):

    def use(ps, model, optimizer):
      for indices, _, _ in ps.loader(small_models.TRAIN, 8):
        small_models.loss_of(model, indices).backward()
        for values, part in ((torch.ones(8), "a Tensor of shape [8]"), ("abc", "'abc'"),
                             ([1], "a list"), (1 + 2j, "a complex"), ({"loss": "x"}, "the loss"),
                             ({"a": None}, "'a' in log() is a NoneType")):
          self.assert_refused(lambda values=values: ps.log(values), part)
        for counts in ({"num_correct": -1}, {"num_predictions": -1}, {"num_predictions": "x"}):
          self.assert_refused(lambda counts=counts: ps.log(1.0, **counts), *counts)
        ps.log(torch.tensor([1.0]), num_correct=torch.tensor(3.0), num_predictions=4)
        self.assert_refused(lambda: optimizer.step(3), "closure= is 3")
        optimizer.step()
      return ps.is_over

    for flags in MODES:
      self.assertTrue(self.run_alone(use, ends=True, **flags))

  def test_evaluate_that_returns_no_numbers_is_named(self):

    def use(ps, model, optimizer):
      batches = ps.loader(small_models.TRAIN, 8, heldout=small_models.HELDOUT,
                          evaluate=lambda _: ("a", 1, 2))
      program.make_step(model, optimizer, next(batches)[0])
      self.assert_refused(lambda: next(batches), "evaluate= is 'a'")

    self.run_alone(use, eval_every=1, eval_samples=8)

  def test_calls_before_their_time_name_what_comes_before(self):
    ps = lodestar.join(NOWHERE, name="a")
    for call in (lambda: ps.index, lambda: ps.loader(small_models.TRAIN), ps.steps,
                 lambda: ps.save_pretrained("folder"), lambda: ps.job("mode"), ps.stop):
      self.assert_refused(call, "call attach()", code="FAILED_PRECONDITION")

  def test_loop_ends_once_the_session_has_left(self):

    def leave_before_step(ps, model, optimizer):
      for number, (indices, _, _) in enumerate(ps.loader(small_models.TRAIN, 4, accumulate=2)):
        small_models.loss_of(model, indices).backward()
        ps.leave()
        optimizer.step()  # it is the program's again
        assert number == 0
      return ps.has_left

    def leave_after_step(ps, model, optimizer):
      for number, (indices, _, _) in enumerate(ps.loader(small_models.TRAIN, 8)):
        program.make_step(model, optimizer, indices)
        if number == 1:
          ps.leave()
        assert number < 2
      return ps.has_left

    def leave_in_steps(ps, model, optimizer):
      for number, _ in enumerate(ps.steps(batch_size=8)):
        if number == 1:
          ps.leave()
        program.make_step(model, optimizer, torch.arange(8))
        assert number < 2
      return ps.has_left

    for flags in MODES:
      for use in leave_before_step, leave_after_step, leave_in_steps:
        with self.subTest(flags=flags, use=use.__name__):
          self.assertTrue(self.run_alone(use, **flags))

  def test_fork_of_a_worker_gives_model_and_optimizer_back_and_ends_nothing(self):

    def leave_in_child(ps, optimizer, rate):
      with ps:
        pass
      ps.leave()
      optimizer.step()  # it is the program's
      assert optimizer.param_groups[0]["lr"] == rate

    def use(ps, model, optimizer):
      codes = []
      for number, (indices, _, _) in enumerate(ps.loader(small_models.TRAIN, 8)):
        program.make_step(model, optimizer, indices)
        if number != 1:
          continue
        child = os.fork()
        if child == 0:
          try:
            leave_in_child(ps, optimizer, optimizer.param_groups[0]["lr"])
            os._exit(0)
          finally:
            os._exit(1)
        codes.append(os.waitpid(child, 0)[1])
      return codes, ps.is_over

    for flags in MODES:
      with self.subTest(flags=flags):
        self.assertEqual(self.run_alone(use, ends=True, **flags), ([0], True))

  def test_second_thread_inside_a_session_is_refused(self):
    is_inside, may_go_on = threading.Event(), threading.Event()

    class Data(list):

      def __len__(self):
        is_inside.set()
        may_go_on.wait(cluster_processes.PATIENCE_SECONDS)
        return 0

    def use(ps, _, __):
      first = threading.Thread(target=self.assert_refused, args=(lambda: ps.loader(Data(), 8),),
                               daemon=True)
      first.start()
      self.assertTrue(is_inside.wait(cluster_processes.PATIENCE_SECONDS))
      self.assert_refused(lambda: ps.loader(small_models.TRAIN, 8), "another thread",
                          code="FAILED_PRECONDITION")
      may_go_on.set()
      first.join()

    with_session(NOWHERE, "a", use)


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
