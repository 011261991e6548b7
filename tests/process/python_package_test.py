#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Programs that compute themselves, through the package `lodestar` and the C API: gradients of whole
numbers tell every weight after every round, whatever ends in between.

Usage: python_package_test.py PS_SERVER GPU_WORKER PSCTL
"""
import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.append(os.path.abspath("tests/chaos"))

import cluster_processes
from cluster_processes import BINARIES, PATIENCE_SECONDS, ClusterTestCase, members_of
from fault_proxy import FaultProxy

LIBRARY = os.path.abspath("worker/capi/liblodestar_worker.so")
PACKAGE = os.path.abspath("worker/python")

# Weights start at 0, and round r adds r + 1 to each with steps of -1: they are known for every
# round, whichever worker contributes, and one contribution too many or too few shows at once.
PROGRAM = """
import array, signal, sys, time
import lodestar

address, name, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])
skips = sys.argv[4:] == ["skips"]  # as if every gradient of this program overflowed
worker = lodestar.Worker(coordinator=address, name=name)
worker.add_tensor("table", [40, 20], block=0)
worker.add_tensor("head", [20, 10], block=1)
worker.set_data(num_train_samples=1000, fingerprint="0123456789abcdef")
worker.allocate()
weights, gradients = worker.parameters, worker.gradients
head = worker.offset("head")
worker.start()
signal.signal(signal.SIGTERM, lambda *_: worker.stop())
for step in worker.steps():
  wanted = -(step.round * (step.round + 1) // 2)
  if set(weights) != {float(wanted)}:
    print(f"WRONG in round {step.round}: {sorted(set(weights))[:3]}, not {wanted}", flush=True)
    sys.exit(3)
  if step.round % 10 == 0:
    print(f"round {step.round}", flush=True)
  expected = worker.expect()
  if len(expected.samples) != len(step.samples) or expected.round != step.round + 1:
    print(f"WRONG: {expected} after {step}", flush=True)
    sys.exit(3)
  worker.log("round", step.round)
  worker.log("skips", float(skips))
  worker.log("overflow", float("inf"))
  if skips:
    gradients[:] = array.array("f", [float("inf")]) * len(gradients)
    worker.step_skipped()
    continue
  gradients[head:] = array.array("f", [step.round + 1.0]) * (len(gradients) - head)
  worker.block_ready(1)
  gradients[:head] = array.array("f", [step.round + 1.0]) * head
  time.sleep(pause)
  worker.step_done(float(len(step.samples)), 0, len(step.samples))
print(f"ended with {int(-weights[0])}", flush=True)
"""

# Beside workers of the server's model: as Hugging Face's class has its tensors, in another order.
PROGRAM_OF_GPT = """
import sys
import lodestar

layers, width, context, vocabulary = 1, 16, 16, 256
tensors = {"ln_f.bias": [width], "ln_f.weight": [width]}
for name, inner, outer in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                           ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
  tensors.update({f"h.0.{name}.bias": [outer], f"h.0.{name}.weight": [inner, outer]})
for name in ("ln_1", "ln_2"):
  tensors.update({f"h.0.{name}.bias": [width], f"h.0.{name}.weight": [width]})
tensors.update({"wpe.weight": [context, width], "wte.weight": [vocabulary, width]})

worker = lodestar.Worker(coordinator=sys.argv[1], name="program")
for name, shape in tensors.items():
  worker.add_tensor("transformer." + name, shape)
worker.set_data(num_train_samples=1000)
worker.start()
print("model", worker.job("model"), worker.job("layout_is_own"), flush=True)
worker.allocate()
print("blocks", worker.num_blocks, worker.block("transformer.wte.weight"),
      worker.block("transformer.ln_f.bias"), flush=True)
for step in worker.steps():
  worker.step_done()
for name in ("wte.weight", "ln_f.weight", "ln_f.bias"):
  begin = worker.offset("transformer." + name)
  values = worker.parameters[begin:begin + width]
  print(name, sum(values) / width, flush=True)
"""


def package_environment():
  return {**os.environ, "LODESTAR_LIBRARY": LIBRARY, "PYTHONPATH": PACKAGE,
          "PYTHONDONTWRITEBYTECODE": "1"}


class PythonPackageTest(ClusterTestCase):

  def start_client_server(self, **flags):
    return self.start_server(model="client", **{
        "optimizer": "sgd", "learning_rate": 1, "batch_size": 8, "bucket_bytes": 1024,
        "eval_samples": 0, **flags})

  def start_program(self, name, pause=0.0, *options):
    return self.start([sys.executable, "-c", PROGRAM, f"127.0.0.1:{self.port}", name, str(pause),
                       *options], "program_" + name, env=package_environment())

  def run_python(self, code, *arguments):
    return subprocess.run([sys.executable, "-B", "-c", code, *arguments], capture_output=True,
                          text=True, env=package_environment(), check=False,
                          timeout=cluster_processes.PATIENCE_SECONDS)

  def test_errors_name_arguments_and_not_flags_of_gpu_worker(self):
    for text, wanted in (
        ("--coordinator=h:1, --insecure", "address=h:1, insecure=True"),
        ("without --join", "without address= (a join string)"),
        ("--join: not a join string", "address=: not a join string"),
        ("`psctl x --name=y` and --name", "`psctl x --name=y` and name="),
        ("setting name: 0 bytes", "name=: 0 bytes"),
        ("setting threads='x' is wrong", "threads='x' is wrong"),
        ("give --data, or --data_partition=own", "give dataset=, or is_own=True"),
        ("--shared_memory=false", "shared_memory=False"),
        ("ps_server --name_of --batch_size=8", "ps_server --name_of --batch_size=8")):
      shown = self.run_python("import sys; from lodestar._python_words import in_words_of_python\n"
                              "print(in_words_of_python(sys.argv[1]))", text)
      self.assertEqual(shown.stdout, wanted + "\n", shown.stderr)

  def test_arguments_of_join_are_named_in_errors_of_the_library(self):
    """Those that only Python has are checked there."""
    shown = self.run_python(
        "import inspect, lodestar\n"
        "from lodestar._python_words import in_words_of_python\n"
        "names = set(inspect.signature(lodestar.join).parameters)\n"
        "for name in sorted(names - {'address', 'check_frozen', 'group'}):\n"
        "  print(in_words_of_python(f'--{name}').partition('=')[0] == name or name)")
    self.assertEqual(set(shown.stdout.split()), {"True"}, shown.stdout + shown.stderr)

  def test_worker_with_other_frozen_weights_than_a_living_one_is_refused(self):
    server = self.start_client_server()
    shown = self.run_python(
        "import sys, lodestar\n"
        "workers = []\n"
        "for name, frozen_hash in ('a', 'x'), ('b', 'y'), ('c', 'x'), ('d', None):\n"
        "  worker = lodestar.Worker(coordinator=sys.argv[1], name=name, frozen_hash=frozen_hash)\n"
        "  worker.add_tensor('t', [4])\n"
        "  worker.set_data(8)\n"
        "  worker.start()\n"
        "  workers.append(worker)\n"
        "  try:\n"
        "    print(worker.job('mode'))\n"
        "  except lodestar.LodestarError as error:\n"
        "    print(error.code, error)\n", f"127.0.0.1:{self.port}")
    lines = shown.stdout.splitlines()
    self.assertEqual(lines[:1] + lines[2:], ["sync"] * 3, shown.stdout + shown.stderr)
    self.assertRegex(lines[1], "^FAILED_PRECONDITION .*worker 'a'")
    self.stop_job(server)

  def test_worker_is_told_of_evaluations_of_the_job(self):
    server = self.start_client_server(rounds=4, eval_every=2, eval_samples=8)
    shown = self.run_python(
        "import sys, lodestar\n"
        "worker = lodestar.Worker(coordinator=sys.argv[1], name='a')\n"
        "worker.add_tensor('t', [4])\n"
        "worker.set_data(8, num_heldout_samples=8)\n"
        "worker.allocate()\n"
        "worker.start()\n"
        "print(worker.evaluation)\n"
        "for step in worker.steps():\n"
        "  count = len(step.samples)\n"
        "  worker.step_done((3.0 if step.is_training else 2.0) * count, count // 2, count)\n"
        "print(*worker.evaluation)\n", f"127.0.0.1:{self.port}")
    self.assertEqual(shown.stdout, "None\n4 2.0 0.5\n", shown.stderr)
    self.assert_ends(server)

  def test_worker_is_told_its_index_and_becomes_first_when_the_first_leaves(self):
    server = self.start_client_server(rounds=100000, min_workers=1)
    shown = self.run_python(
        "import sys, lodestar\n"
        "def start(name):\n"
        "  worker = lodestar.Worker(coordinator=sys.argv[1], name=name)\n"
        "  worker.add_tensor('t', [4])\n"
        "  worker.set_data(8)\n"
        "  worker.allocate()\n"
        "  try:\n    worker.place\n"
        "  except lodestar.LodestarError as error:\n    print(error.code)\n"
        "  worker.start()\n"
        "  return worker\n"
        "a = start('a')\n"
        "print(*a.place)\n"
        "a.next()\n"
        "b = start('b')\n"
        "print(*b.place)\n"
        "a.step_done()\n"
        "a.close()\n"
        "for step in b.steps():\n"
        "  b.step_done()\n"
        "  if b.place.is_first:\n    break\n"
        "print(*b.place)\n"
        "b.close()\n", f"127.0.0.1:{self.port}")
    self.assertEqual(shown.stdout.splitlines(),
                     ["FAILED_PRECONDITION", "0 1 True", "FAILED_PRECONDITION", "1 2 False",
                      "1 1 True"], shown.stderr)
    self.stop_job(server)

  def test_data_may_be_told_once_after_the_start_and_before_the_first_step(self):
    server = self.start_client_server(rounds=3, min_workers=1)
    shown = self.run_python(
        "import sys, lodestar\n"
        "worker = lodestar.Worker(coordinator=sys.argv[1], name='a')\n"
        "worker.add_tensor('t', [4])\n"
        "worker.allocate()\n"
        "worker.start()\n"
        "def refused(call):\n"
        "  try:\n    call()\n"
        "  except lodestar.LodestarError as error:\n    print(error.code)\n"
        "print(worker.place.index)\n"
        "refused(worker.next)\n"
        "worker.set_data(8)\n"
        "refused(lambda: worker.set_data(16))\n"
        "for step in worker.steps():\n"
        "  print(max(step.samples + worker.expect().samples) < 8)\n"
        "  worker.step_done()\n", f"127.0.0.1:{self.port}")
    self.assertEqual(shown.stdout.splitlines(),
                     ["0", "FAILED_PRECONDITION", "FAILED_PRECONDITION"] + ["True"] * 3,
                     shown.stderr)
    self.assert_ends(server)

  def test_a_session_gives_up_on_servers_that_never_answer(self):
    port = cluster_processes.ReservedPort()
    self.addCleanup(port.close)
    shown = self.run_python(
        "import sys, lodestar\n"
        "worker = lodestar.Worker(coordinator=sys.argv[1], connect_timeout='1s')\n"
        "worker.add_tensor('a', [1])\n"
        "worker.set_data(8)\n"
        "worker.start()\n"
        "try:\n  worker.job('mode')\n"
        "except lodestar.LodestarError as error:\n  print(error.code, error)\n",
        f"127.0.0.1:{port.number}")
    self.assertRegex(shown.stdout, rf"^UNAVAILABLE .*127.0.0.1:{port.number}.*connect_timeout")

  def test_a_forked_child_is_refused_and_its_parent_goes_on(self):
    self.start_client_server(rounds=3)
    shown = self.run_python(
        "import os, sys, lodestar\n"
        "def make():\n"
        "  worker = lodestar.Worker(coordinator=sys.argv[1])\n"
        "  worker.add_tensor('a', [1])\n"
        "  worker.set_data(8)\n"
        "  worker.allocate()\n"
        "  worker.start()\n"
        "  return worker\n"
        "worker = make()\n"
        "worker.job('mode')\n"
        "if os.fork() == 0:\n"
        "  try:\n    make()\n"
        "  except lodestar.LodestarError as error:\n    print('child', error.code, flush=True)\n"
        "  os._exit(0)\n"
        "os.wait()\n"
        "for step in worker.steps():\n  worker.step_done(1.0, 0, len(step.samples))\n"
        "print('parent is done')\n", f"127.0.0.1:{self.port}")
    self.assertEqual(shown.stdout, "child FAILED_PRECONDITION\nparent is done\n", shown.stderr)

  def test_the_doctor_takes_the_address_wherever_it_stands(self):
    port = cluster_processes.ReservedPort()
    self.addCleanup(port.close)
    address = f"127.0.0.1:{port.number}"

    def doctor(*arguments):
      return self.run_python("import sys, lodestar.doctor\nsys.exit(lodestar.doctor.main())",
                             *arguments)

    for arguments in ([address, "--insecure"], ["--insecure", address], ["--server=" + address],
                      ["--insecure=true", "--server", address]):
      self.assertIn(f"bad  {address}: Connection refused", doctor(*arguments).stdout, arguments)
    for arguments in ([address, "127.0.0.1:1"], ["--insecur", address]):
      refused = doctor(*arguments)
      self.assertEqual(refused.returncode, 2, refused.stdout)

  def test_the_doctor_names_a_path_that_swallows_large_messages(self):
    for lost, mended in ((200, "link"), (1400, "mtu 1280"), (9000, "mtu 1500"), (9001, "ok")):
      shown = self.run_python(
          "import sys\nfrom lodestar import doctor\n"
          "doctor._arrives = lambda host, port, size: size < int(sys.argv[1])\n"
          "for finding in doctor.check_message_sizes('127.0.0.1', 1):\n"
          "  print(finding.verdict, finding.text)\n", str(lost))
      self.assertIn(mended, shown.stdout, shown.stderr)

  def test_two_programs_train_exactly(self):
    for mode in ({"mode": "sync"}, {"mode": "sync", "shared_memory": "false"}):
      server = self.start_client_server(rounds=30, min_workers=2, **mode)
      programs = [self.start_program(name) for name in ("a", "b")]
      for process in (*programs, server):
        self.assert_ends(process)
      for program in programs:
        self.assertIn(f"ended with {30 * 31 // 2}\n", program.log())

  def test_skipped_steps_leave_the_gradient_of_the_others(self):
    server = self.start_client_server(rounds=30, min_workers=2, exit_when_done=False)
    programs = [self.start_program("a"), self.start_program("b", 0.0, "skips")]
    for program in programs:
      self.assert_ends(program)
      self.assertIn(f"ended with {30 * 31 // 2}\n", program.log())
    status = self.status()
    buckets = int(status["shards"][0]["contributions_counted"]) // 60
    self.assertEqual(int(status["shards"][0]["contributions_skipped"]), 30 * buckets)
    self.assertEqual(int(status["samples"]), 30 * 16)
    self.assertIn("SKIPPED", self.psctl("status").stdout)
    # Both have told of the same round, and one that it skips.
    self.assertEqual(self.metrics()[12]["metrics"], {"round": 12, "skips": 0.5})
    self.assertRegex(self.psctl("status").stdout,
                     r"metrics +round 29, skips 0.5 in round 29; 60 values were dropped")
    self.assertEqual(status["metrics"][1], {"name": "skips", "value": 0.5, "round": "29"})
    server.kill()

  def test_two_servers(self):
    server = self.start_client_server(shard="0/2", rounds=20)
    second = self.start(self.server_command(shard="1/2"), "shard1")
    program = self.start_program("a")
    for process in (program, server, second):
      self.assert_ends(process)
    self.assertIn(f"ended with {20 * 21 // 2}\n", program.log())

  def test_a_program_and_gpu_worker_train_one_model(self):
    server = self.start_server(rounds=20, min_workers=2, optimizer="sgd", learning_rate=0.1,
                               batch_size=4)
    worker = self.start_worker("built_in")
    program = self.start([sys.executable, "-c", PROGRAM_OF_GPT, f"127.0.0.1:{self.port}"],
                         "program", env=package_environment())
    for process in (program, worker, server):
      self.assert_ends(process)
    self.assertIn("model tiny 0\nblocks 3 0 2\n", program.log())
    # Where they begin, and do not go far from in so few rounds.
    for name, mean in (("wte.weight", 0), ("ln_f.weight", 1), ("ln_f.bias", 0)):
      found = float(re.search(rf"^{name} (\S+)$", program.log(), re.MULTILINE).group(1))
      self.assertAlmostEqual(found, mean, delta=0.1, msg=name)
    rounds = self.metrics()
    self.assertLess(rounds[-1]["heldout_loss"], 5.6)
    self.assertEqual({line["workers"] for line in rounds}, {2})

  def test_killed_programs_and_servers_cost_no_round_and_count_none_twice(self):
    flags = {"rounds": 120, "lease": "1s", "durability": "journal",
             "checkpoint_dir": self.path("checkpoints"), "checkpoint_interval": 0, "checkpoint_every": 25}
    server = self.start_client_server(**flags)
    a = self.start_program("a", pause=0.01)
    b = self.start_program("b", pause=0.01)
    self.wait_for_round(20, workers=2)
    b.kill()
    self.wait_for_round(40)
    server.kill()
    port = self.port
    server = self.start_client_server(port=port, name="server_again", **flags)
    b = self.start_program("b", pause=0.01)
    self.wait_for_round(60, workers=2)
    a.send(signal.SIGSTOP)
    self.wait_for_round(70)
    a.send(signal.SIGCONT)
    for process in (a, b, server):
      self.assert_ends(process)
    for program in (a, b):
      self.assertIn(f"ended with {120 * 121 // 2}\n", program.log())

  def test_a_network_that_is_cut_costs_no_round_and_counts_none_twice(self):
    with FaultProxy() as proxy:
      way = proxy.add_route("workers", 1)
      # Longer than the network is away: a round that is lost with all its workers may be whole in one
      # bucket and none in another, and weights are not known then.
      server = self.start_client_server(lease="12s", shared_memory="false",
                                        advertise=f"127.0.0.1:{way}")
      proxy.move("workers", self.port)
      direct, self.port = self.port, way
      programs = [self.start_program(name, pause=0.01) for name in ("a", "b")]
      self.port = direct
      for number in (20, 40, 60):
        self.wait_for_round(number, workers=2)
        self.assertTrue(proxy.cut("workers", place=number / 80, is_up=number != 40, num_bytes=1000))
      self.wait_for_round(80, workers=2)
      proxy.refuse("workers")
      # A worker renews its lease every third of it.
      self.wait_for_status(
          lambda status: all(worker["lease_age_seconds"] > 5 for worker in status["workers"]),
          "two leases that are not renewed")
      proxy.listen("workers")
      number = int(self.wait_for_round(100, workers=2)["round"])
      self.assertTrue(proxy.half_open("workers", place=0.5, up=True, down=True))
      self.wait_for_round(number + 20, workers=2)
      self.stop_job(server, *programs)
      for program in programs:
        # They have compared the weights of every round with those that it must have.
        self.assertIn("ended with", program.log())

  def test_told_to_stop_it_hands_over_and_leaves(self):
    server = self.start_client_server()
    program = self.start_program("a", pause=0.01)
    self.wait_for_round(5)
    program.send(signal.SIGTERM)
    self.assert_ends(program)
    self.assertIn("ended with", program.log())
    self.stop_job(server)

  def test_told_to_stop_while_it_waits_it_leaves_as_well(self):
    server = self.start_client_server(min_workers=2)
    program = self.start_program("a")
    program.wait_for_log("waiting: ")
    program.send(signal.SIGTERM)
    self.assert_ends(program)
    self.stop_job(server)

  def test_with_a_join_string_it_enrols(self):
    home = {**os.environ, "HOME": self.path("home"), "XDG_STATE_HOME": ""}
    server = self.start_client_server(popen={"env": home}, rounds=10, tls="true")
    created = subprocess.run([BINARIES["psctl"], "token", "create",
                              f"--server=127.0.0.1:{self.port}"],
                             env=home, capture_output=True, text=True, check=True)
    program = self.start([sys.executable, "-c", PROGRAM, f"127.0.0.1:{self.port}", "card", "0"],
                         "program", env={**package_environment(), "HOME": self.path("machine"),
                                         "LODESTAR_JOIN": created.stdout.strip()})
    for process in (program, server):
      self.assert_ends(process)
    self.assertIn("enrolled as worker card", program.log())
    self.assertIn(f"ended with {10 * 11 // 2}\n", program.log())

  def test_what_is_refused_is_raised(self):
    server = self.start_client_server()
    member = self.start_program("a")
    self.wait_for_status(lambda status: members_of(status) == ["a"], "the member")
    other = """
import sys, lodestar
try:
  lodestar.Worker(coordinater="x")
except lodestar.LodestarError as error:
  print(error.code, error)
worker = lodestar.Worker(coordinator=sys.argv[1], name="b")
worker.add_tensor("table", [41, 20])
worker.set_data(num_train_samples=1000)
worker.allocate()
worker.start()
try:
  worker.next()
except lodestar.LodestarError as error:
  print(error.code, error)
"""
    refused = subprocess.run([sys.executable, "-c", other, f"127.0.0.1:{self.port}"],
                             env=package_environment(), capture_output=True, text=True,
                             timeout=PATIENCE_SECONDS, check=False)
    self.assertIn("INVALID_ARGUMENT there is no setting 'coordinater'", refused.stdout)
    self.assertRegex(refused.stdout, r"\n[A-Z_]+ .*'table'.*\[41, ?20\]", refused.stderr)
    self.stop_job(server, member)


if __name__ == "__main__":
  cluster_processes.main()
