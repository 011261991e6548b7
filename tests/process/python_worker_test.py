#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""The Python client of deploy/examples: trains in every mode, survives what workers must survive,
and gives the very weights that arithmetic on whole numbers predicts.

Usage: python_worker_test.py PS_SERVER GPU_WORKER PSCTL
"""
import array
import glob
import os
import re
import signal
import subprocess
import sys
import threading
import unittest

import cluster_processes
from cluster_processes import BINARIES, ClusterTestCase, members_of, wait_until, worker_in

EXAMPLES = os.path.abspath("deploy/examples")
PROTOCOL_PAGE = os.path.abspath("proto/README.md")
STUBS = os.path.join(os.environ["TEST_TMPDIR"], "stubs")
PROTO_FILES = ["proto/" + name + ".proto"
               for name in ("model", "job", "cluster_service", "parameter_service")]

os.makedirs(STUBS, exist_ok=True)
subprocess.run(["protoc", "-I.", "--python_out=" + STUBS, "--grpc_out=" + STUBS,
                "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin", *PROTO_FILES], check=True)
sys.path[:0] = [STUBS, EXAMPLES]

import grpc  # noqa: E402  (after the path is set)
import lodestar_client  # noqa: E402

# Learnt within a few rounds by anything that follows the gradient.
LEARNT_ACCURACY = 0.85


class WholeNumbers(lodestar_client.Task):
  """Gradients of 1, 2, 3, ... on weights that start at 5. Sums are exact, so every weight after
  every round is known, and a contribution that was counted twice or not at all shows."""

  tensors = [("embedding", [50, 20]), ("head", [20, 10])]
  num_elements = 50 * 20 + 20 * 10
  num_train_samples = 1000

  def __init__(self):
    self.num_gradients = 0
    self.wrong = []

  def filled(self, value):
    return array.array("f", [value]) * self.num_elements

  def initial_weights(self):
    return self.filled(5.0)

  def gradient(self, weights, samples):
    expected = 5.0 - sum(range(1, self.num_gradients + 1))
    if weights != self.filled(expected):
      self.wrong.append(f"after {self.num_gradients} gradients: {set(weights)}, not {expected}")
    self.num_gradients += 1
    return self.filled(float(self.num_gradients)), float(len(samples))


# Told to stop while it holds the lock that stopping takes.
STOPPED_WHILE_BUSY = """
import os, signal, sys, threading
import python_worker

class Busy:
  def __init__(self, *_):
    self.lock, self.is_stopped = threading.Lock(), threading.Event()

  def stop(self):
    with self.lock:
      self.is_stopped.set()

  def run(self):
    with self.lock:
      os.kill(os.getpid(), signal.SIGTERM)
    return self.is_stopped.wait()

python_worker.Worker = Busy
sys.exit(python_worker.main())
"""


class Unavailable(grpc.RpcError):

  def code(self):
    return grpc.StatusCode.UNAVAILABLE

  def details(self):
    return "lost on its way, says the test"


def losing_some(function):
  """Of every four calls of `function` one is lost on its way there, and the answer of one."""
  calls = []

  def lossy(*arguments, **named):
    calls.append(None)
    if len(calls) % 4 == 2:
      raise Unavailable()
    answer = function(*arguments, **named)
    if len(calls) % 4 == 0:
      raise Unavailable()
    return answer

  return lossy


def example_environment():
  return {**os.environ, "PYTHONPATH": os.pathsep.join([STUBS, EXAMPLES]),
          "PYTHONDONTWRITEBYTECODE": "1"}


class PythonClientTestCase(ClusterTestCase):

  def start_client_server(self, **flags):
    return self.start_server(model="client", **{"optimizer": "sgd", "learning_rate": 0.5,
                                                "batch_size": 16, "bucket_bytes": 2048,
                                                "eval_samples": 0, **flags})

  def start_example(self, name, *flags):
    return self.start([os.path.join(EXAMPLES, "python_worker.py"),
                       f"--coordinator=127.0.0.1:{self.port}", "--name=" + name, *flags],
                      "example_" + name, env=example_environment())


class PythonWorkerTest(PythonClientTestCase):

  def train(self, **flags):
    server = self.start_client_server(rounds=60, min_workers=2, **flags)
    examples = [self.start_example(name) for name in ("a", "b")]
    for process in (*examples, server):
      self.assert_ends(process)
    last = self.metrics()[-1]
    self.assertEqual(last["round"], 60)
    self.assertGreater(last["heldout_accuracy"], LEARNT_ACCURACY, self.logs())

  def test_sync(self):
    self.train(mode="sync", clip_norm=1)

  def test_async(self):
    self.train(mode="async", clip_norm=1)

  def test_local_sgd_average(self):
    self.train(mode="local_sgd", outer_optimizer="average", local_steps=2)

  def test_diloco(self):
    self.train(mode="local_sgd", outer_optimizer="nesterov", local_steps=2, clip_norm=1)

  def test_goes_on_after_the_server_was_killed_and_leaves_when_told(self):
    server = self.start_client_server(checkpoint_dir=self.path("checkpoints"), checkpoint_interval=0,
                                      checkpoint_every=5, lease="1s")
    example = self.start_example("a")
    wait_until(lambda: os.path.exists(self.path("checkpoints", "round-00000005")), self.logs)
    server.kill()
    restarted = self.start_client_server(port=self.port, name="restarted", lease="1s",
                                         checkpoint_dir=self.path("checkpoints"))
    start = int(self.wait_for_status(lambda status: True, "an answer")["round"])
    self.wait_for_round(start + 5)
    example.send(signal.SIGTERM)
    self.assert_ends(example)
    self.assertEqual(worker_in(self.status(), "a")["state"], "left")
    self.stop_job(restarted)

  def test_joins_with_the_certificate_of_its_machine(self):
    home = {**os.environ, "HOME": self.path("home"), "XDG_STATE_HOME": ""}
    server = self.start_client_server(popen={"env": home}, rounds=5, tls="true")
    created = subprocess.run([BINARIES["psctl"], "token", "create",
                              f"--server=127.0.0.1:{self.port}"],
                             env=home, capture_output=True, text=True, check=True)
    # It cannot train a model that only a client knows: here it enrols, and no more.
    enrolled = self.start([BINARIES["gpu_worker"], "--name=a",
                           f"--data={self.path('corpus.txt')}", "--device=cpu"], "enrolled",
                          env={**home, "LODESTAR_JOIN": created.stdout.strip()})
    enrolled.wait_for_log("enrolled as worker a")
    enrolled.kill()
    folders = glob.glob(self.path("home", ".local", "state", "lodestar", "joined", "*", "worker-a"))
    self.assertEqual(len(folders), 1, enrolled.log())
    example = self.start_example("a", "--credentials=" + folders[0])
    for process in (example, server):
      self.assert_ends(process)

  def test_takes_the_place_of_its_killed_predecessor(self):
    server = self.start_client_server(lease="6s")
    killed = self.start_example("a")
    self.wait_for_round(2)
    killed.kill()
    successor = self.start_example("a")
    successor.wait_for_log("joined")
    self.assertIn("another process has registered under its name", server.log())
    self.wait_for_status(lambda status: members_of(status) == ["a"], "the successor")
    self.stop_job(server, successor)

  def test_waits_for_the_lease_of_a_predecessor_whose_connection_is_open(self):
    server = self.start_client_server(lease="1s")
    frozen = self.start_example("a")
    self.wait_for_round(2)
    frozen.send(signal.SIGSTOP)
    successor = self.start_example("a")
    successor.wait_for_log("is held by another live process")
    successor.wait_for_log("joined")
    self.wait_for_status(lambda status: members_of(status) == ["a"], "the successor")
    frozen.kill()
    self.stop_job(server, successor)

  def test_heartbeats_keep_it_alive_while_it_waits(self):
    lease_seconds = 1
    server = self.start_client_server(lease=f"{lease_seconds}s", min_workers=2, rounds=5)
    waiting = self.start_example("a")
    waiting.wait_for_log("joined")
    joined_at = float(self.status()["uptime_seconds"])
    # Its call for work is held for longer than that.
    self.wait_for_status(
        lambda status: float(status["uptime_seconds"]) > joined_at + 2 * lease_seconds, "time")
    self.assertEqual(members_of(self.status()), ["a"])
    for process in (self.start_example("b"), waiting, server):
      self.assert_ends(process)
    self.assertNotIn("expired", server.log())

  def test_refusal_ends_it_with_the_reason(self):
    server = self.start_client_server(push_encoding="int8")
    refused = self.start_example("a")
    self.assertEqual(refused.wait(), 1, refused.log())
    self.assertIn("--push_encoding=int8", refused.log())
    self.stop_job(server)


class DivergedTest(PythonClientTestCase):

  def test_the_end_of_a_run_that_has_diverged_is_an_error(self):
    server = self.start_client_server(rounds=5)
    task = WholeNumbers()
    task.gradient = lambda weights, samples: (task.filled(float("nan")), 1.0)
    worker = lodestar_client.Worker(f"127.0.0.1:{self.port}", "sick", task)
    with self.assertRaisesRegex(lodestar_client.Refused, "the job has failed: .*diverged"):
      worker.run()
    self.assert_ends(server, 1)


class StopTest(unittest.TestCase):

  def test_a_signal_waits_for_no_lock_that_it_interrupts(self):
    ended = subprocess.run([sys.executable, "-c", STOPPED_WHILE_BUSY], env=example_environment(),
                           timeout=cluster_processes.PATIENCE_SECONDS, check=False)
    self.assertEqual(ended.returncode, 0)


class ClippingTest(unittest.TestCase):

  def scale_of(self, **settings):
    worker = lodestar_client.Worker("127.0.0.1:1", "clips", WholeNumbers())
    spec = lodestar_client.job.JobSpec(clip_norm=1, **settings)
    grant = lodestar_client.cluster.Grant(num_samples=4)
    report = lodestar_client.cluster.RoundReport()
    _, header = worker._train(spec, grant, WholeNumbers().initial_weights(), report)
    return header.get("scale", 1)

  def test_clips_only_what_is_applied_alone(self):
    mode_async, mode_sync = lodestar_client.job.MODE_ASYNC, lodestar_client.job.MODE_SYNC
    self.assertLess(self.scale_of(mode=mode_async, max_rounds_ahead=-1), 0.1)
    self.assertLess(self.scale_of(mode=mode_async, max_rounds_ahead=2), 0.1)
    self.assertEqual(self.scale_of(mode=mode_async, max_rounds_ahead=0), 1)
    self.assertEqual(self.scale_of(mode=mode_sync), 1)


class ExactnessTest(PythonClientTestCase):

  def run_worker(self, worker):
    """On a thread, with patience."""
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(worker.run()), daemon=True)
    thread.start()
    thread.join(cluster_processes.PATIENCE_SECONDS)
    self.assertEqual(outcome, [True], self.logs())

  def expect_exact(self, prepare=None, **flags):
    server = self.start_client_server(learning_rate=1, rounds=6, **flags)
    task = WholeNumbers()
    worker = lodestar_client.Worker(f"127.0.0.1:{self.port}", "exact", task)
    if prepare is not None:
      prepare(worker)
    self.run_worker(worker)
    self.assert_ends(server)
    self.assertEqual(task.wrong, [])
    self.assertEqual(task.num_gradients, 6)
    return server.log()

  def test_sync(self):
    self.expect_exact(mode="sync")

  def test_async(self):
    self.expect_exact(mode="async")

  def test_two_servers(self):
    server = self.start_client_server(shard="0/2", learning_rate=1, rounds=6)
    second = self.start(self.server_command(shard="1/2"), "shard1")
    task = WholeNumbers()
    self.run_worker(lodestar_client.Worker(f"127.0.0.1:{self.port}", "exact", task))
    for process in (server, second):
      self.assert_ends(process)
    self.assertEqual((task.wrong, task.num_gradients), ([], 6))

  def test_calls_and_answers_that_are_lost_cost_nothing(self):
    grants = lodestar_client.Life.next_grant
    pushes = lodestar_client.Life.push
    self.addCleanup(setattr, lodestar_client.Life, "next_grant", grants)
    self.addCleanup(setattr, lodestar_client.Life, "push", pushes)

    def prepare(_):
      lodestar_client.Life.next_grant = losing_some(grants)
      lodestar_client.Life.push = losing_some(pushes)

    log = self.expect_exact(prepare, mode="sync")
    # A grant that was lost costs a registration, which goes on with the same life.
    self.assertEqual(log.count("worker registered"), 1, log)


class ProtocolPageTest(ClusterTestCase):

  def test_order_of_samples(self):
    with open(PROTOCOL_PAGE, encoding="utf-8") as file:
      vectors = re.findall(r"^sample seed=(\d+) samples=(\d+) position=(\d+) "
                           r"-> epoch=(\d+) index=(\d+)$", file.read(), re.MULTILINE)
    self.assertGreater(len(vectors), 5)
    for vector in vectors:
      seed, samples, position, epoch, index = map(int, vector)
      self.assertEqual(lodestar_client.sample_at(seed, samples, position), (epoch, index), vector)

  def test_checksum(self):
    self.assertEqual(lodestar_client.crc32c(b"123456789"), 0xE3069283)


if __name__ == "__main__":
  cluster_processes.main()
