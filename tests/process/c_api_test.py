#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""The C API as programs in C see it: the header is C, the library exports it and nothing else, and
the example of worker/capi trains.

Usage: c_api_test.py PS_SERVER GPU_WORKER PSCTL
"""
import os
import re
import subprocess
import unittest

import cluster_processes
from cluster_processes import ClusterTestCase

FOLDER = os.path.abspath("worker/capi")
HEADER = os.path.join(FOLDER, "lodestar_worker.h")
EXAMPLE = os.path.join(FOLDER, "examples", "linear_regression")
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]

TRUTH = [3, -2, 0.5, 1]  # weights and bias that the example's samples are made with
# The samples have no noise: the training ends on the truth, but for the printed digits.
TOLERANCE = 1e-4


class LibraryTest(unittest.TestCase):

  def test_the_header_is_plain_c_and_cpp(self):
    prototypes = ["-Wstrict-prototypes"]  # which C++ has no others of
    for language, *options in (("c", "-std=c99", *prototypes), ("c", "-std=c11", *prototypes),
                               ("c++", "-std=c++11")):
      compiled = subprocess.run(["cc", "-fsyntax-only", "-x", language, *options, *STRICT, HEADER],
                                capture_output=True, text=True, check=False)
      self.assertEqual((compiled.returncode, compiled.stderr), (0, ""), options)

  def test_the_library_exports_what_the_header_declares_and_nothing_else(self):
    with open(HEADER, encoding="ascii") as file:
      declared = re.findall(r"^LODESTAR_API [^;(]*\b(\w+)\(", file.read(), re.MULTILINE)
    self.assertGreater(len(declared), 20)
    symbols = subprocess.run(["nm", "-D", "--defined-only", "--format=posix",
                              os.path.join(FOLDER, "liblodestar_worker.so")],
                             capture_output=True, text=True, check=True)
    exported = [line.split()[0] for line in symbols.stdout.splitlines()]
    self.assertEqual(sorted(exported), sorted(declared))


class LinearRegressionTest(ClusterTestCase):

  def start_regression_server(self, **flags):
    return self.start_server(model="client", **{"optimizer": "sgd", "learning_rate": 0.5,
                                                "batch_size": 16, "min_workers": 2, **flags})

  def start_example(self, name, program=EXAMPLE):
    return self.start([program, f"--coordinator=127.0.0.1:{self.port}", "--name=" + name],
                      "example_" + name)

  def expect_truth(self, examples, server):
    for process in (*examples, server):
      self.assert_ends(process)
    self.assertLess(self.metrics()[-1]["heldout_loss"], TOLERANCE, self.logs())
    for example in examples:
      found = re.search(r"^weights (\S+) (\S+) (\S+) bias (\S+)$", example.log(), re.MULTILINE)
      self.assertIsNotNone(found, example.log())
      for seen, wanted in zip(found.groups(), TRUTH):
        self.assertAlmostEqual(float(seen), wanted, delta=TOLERANCE, msg=example.log())
      self.assertRegex(example.log(), r"(?m)^round 0 loss \d+\.\d+$")

  def test_sync(self):
    server = self.start_regression_server(mode="sync", rounds=150)
    self.expect_truth([self.start_example(name) for name in ("a", "b")], server)

  def test_the_program_says_what_the_operator_does_not(self):
    server = self.start_server(model="client", batch_size=None, rounds=150, min_workers=2)
    self.expect_truth([self.start_example(name) for name in ("a", "b")], server)
    self.assertRegex(server.log(), r"settings proposed by name=[ab] peer=\S+: used "
                     r"batch_size=16, optimizer=sgd, learning_rate=0\.5")

  def test_what_the_operator_says_stays(self):
    server = self.start_regression_server(rounds=150, batch_size=8)
    self.expect_truth([self.start_example(name) for name in ("a", "b")], server)
    self.assertRegex(server.log(), r"used nothing; not used, because the operator decides them, "
                     r"batch_size=16, optimizer=sgd, learning_rate=0\.5")

  def test_local_sgd(self):
    server = self.start_regression_server(mode="local_sgd", outer_optimizer="average",
                                          local_steps=4, rounds=40)
    self.expect_truth([self.start_example(name) for name in ("a", "b")], server)

  def test_is_built_as_the_page_says(self):
    program = self.path("linear_regression")
    with open(os.path.join(FOLDER, "README.md"), encoding="utf-8") as file:
      command = re.search(r"^cc -std=c11 (?:.*\\\n)*.*$", file.read(), re.MULTILINE).group(0)
    subprocess.run(["bash", "-c", command.replace("bazel-bin/", "") + ' -o "$0"', program],
                   check=True)
    server = self.start_regression_server(rounds=150, min_workers=1)
    self.expect_truth([self.start_example("alone", program)], server)

  def test_errors_are_said(self):
    for argument, code, text in (("--coordinator=nowhere", 1, "error 3: .*coordinator"),
                                 ("--cordinator=x", 2, "unknown argument --cordinator=x")):
      ended = subprocess.run([EXAMPLE, argument], capture_output=True, text=True, check=False,
                             timeout=cluster_processes.PATIENCE_SECONDS)
      self.assertEqual(ended.returncode, code)
      self.assertRegex(ended.stderr, text)


if __name__ == "__main__":
  cluster_processes.main()
