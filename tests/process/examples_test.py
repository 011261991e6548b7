#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""The quick start and the scripts of deploy/examples, each run as a user runs it, but small.

Usage: examples_test.py PS_SERVER GPU_WORKER PSCTL
"""
import os
import re
import signal
import subprocess

import cluster_processes
from cluster_processes import BINARIES, ClusterTestCase, wait_until

EXAMPLES = os.path.abspath("deploy/examples")
QUICKSTART = os.path.abspath("deploy/quickstart.sh")
MODEL = os.path.join(EXAMPLES, "small_gpt.textproto")
AT_ONCE_SECONDS = 10
SCRIPT_SECONDS = 3 * cluster_processes.PATIENCE_SECONDS  # they start many processes


def processes_in(folder):
  """Command lines of those that run there: the scripts and what they start."""
  found = []
  for process in filter(str.isdigit, os.listdir("/proc")):
    try:
      if os.readlink(f"/proc/{process}/cwd") == folder:
        with open(f"/proc/{process}/cmdline", encoding="utf-8") as file:
          found.append(file.read().replace("\0", " "))
    except OSError:
      pass
  return found


class ExamplesTest(ClusterTestCase):

  def setUp(self):
    super().setUp()
    self.out = os.path.join(os.path.realpath(self.folder), "out")
    # As bazel-bin is laid out.
    programs = os.path.dirname(os.path.dirname(BINARIES["ps_server"]))
    self.options = ["--programs=" + programs, "--out=" + self.out]

  def example(self, name, *options):
    """Runs it to its end: what it printed."""
    return self.run_script(os.path.join(EXAMPLES, name), *options)

  def run_script(self, path, *options, code=0):
    run = subprocess.run([path, *self.options, *options], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         timeout=SCRIPT_SECONDS, check=False)
    text = run.stdout.decode(errors="replace")
    self.assertEqual(run.returncode, code, text)
    self.expect_nobody_left()
    return text

  def expect_nobody_left(self):
    """A `sleep` may end a moment later."""
    wait_until(lambda: not processes_in(self.out), lambda: str(processes_in(self.out)),
               AT_ONCE_SECONDS)

  def gpt_example(self, name, *options):
    return self.example(name, "--data=" + self.path("corpus.txt"), "--model=" + MODEL, *options)

  def made(self, name):
    return os.path.join(self.out, name)

  def expect_quickstart(self, *options):
    text = self.run_script(QUICKSTART, *options)
    for yardstick in ("no knowledge", "which byte follows which", "gzip -9", "this model  <--"):
      self.assertRegex(text, rf"\d\.\d\d\d  {yardstick}")
    self.assertIn("300 bytes by the model:\nThe ", text)
    for name in ("model.safetensors", "loss.svg"):
      self.assertTrue(os.path.exists(self.made(name)), name)
    return text

  def test_quickstart_on_the_text_of_this_machine(self):
    text = self.expect_quickstart("--rounds=2")
    self.assertIn("checkpoints/round-00000002", text)
    self.assertGreater(len(os.listdir(self.made("text"))), 100)

  def test_quickstart_async(self):
    self.expect_quickstart("--mode=async", "--rounds=5", "--data=" + self.path("corpus.txt"))

  def test_quickstart_local_sgd(self):
    self.expect_quickstart("--mode=local_sgd", "--rounds=1", "--data=" + self.path("corpus.txt"))

  def test_text_from_scratch(self):
    text = self.gpt_example("text_from_scratch.sh", "--rounds=10")
    self.assertIn("$ ps_server --listen=", text)
    self.assertIn("round 10/10", text)
    self.assertIn("\nThe ", text)
    self.assertRegex(text, r"Held-out loss: \d\.\d+ bits per byte")
    self.assertTrue(os.path.exists(self.made("model.safetensors")))

  def test_tokens(self):
    text = self.example("tokens.sh", "--data=" + self.path("corpus.txt"), "--vocabulary=300",
                        "--rounds=10")
    # The five words of the corpus are tokens, so one has several bytes.
    counted = re.search(r"(\d+) tokens of ([5-7]\.\d+) bytes each", text)
    self.assertIsNotNone(counted, text)
    num_tokens = int(counted[1])
    # The average is rounded to 0.001 bytes.
    self.assertAlmostEqual(num_tokens * float(counted[2]), os.path.getsize(self.path("corpus.txt")),
                           delta=0.001 * num_tokens)
    self.assertIn("vocabulary: 300", text)
    self.assertRegex(text, r"Held-out loss: \d\.\d+ bits per byte")

  def test_tokens_are_no_text(self):
    tokens = self.path("own.bin")
    with open(tokens, "wb") as file:
      file.write(bytes([65, 0]) * 500)
    text = self.run_script(os.path.join(EXAMPLES, "tokens.sh"), "--data=" + tokens, code=1)
    self.assertIn("own.bin is no text: it has a zero byte at offset 1", text)

  def test_fine_tune(self):
    text = self.gpt_example("fine_tune.sh", "--own_data=" + self.path("corpus.txt"), "--rounds=60")
    self.assertIn("--init_from=first.safetensors", text)
    losses = [float(loss) for loss in re.findall(r"  from .* (\d+\.\d+)\n", text)]
    self.assertEqual(len(losses), 2, text)
    # 60 and 20 rounds on the same text against 20.
    self.assertLess(losses[0], losses[1], text)

  def test_two_servers(self):
    text = self.gpt_example("two_servers.sh", "--rounds=10")
    self.assertRegex(text, r"\n +1  [\d.:]+  serving")
    self.assertRegex(text, r"resumes from path=\S+/checkpoints/round-00000010 round=10")
    self.assertIn("round 20/20", text)

  def test_async_with_slow_worker(self):
    text = self.gpt_example("async_with_slow_worker.sh", "--rounds=20")
    rounds = {name: int(count) for name, count in re.findall(r"  (\w+): (\d+) rounds", text)}
    self.assertEqual(sorted(rounds), ["fast", "slow"], text)
    self.assertEqual(sum(rounds.values()), 20, text)
    self.assertIn("  staleness ", text)

  def test_diloco_over_slow_link(self):
    text = self.gpt_example("diloco_over_slow_link.sh", "--rounds=2", "--local_steps=5",
                            "--megabits=100")
    self.assertIn("diloco: 240 samples in ", text)
    self.assertIn("sync: 48 samples in ", text)
    sent = [float(megabytes) for megabytes in re.findall(r"([\d.]+) MB to the server", text)]
    # int8 against fp32.
    self.assertLess(sent[0], sent[1], text)

  def test_python_worker(self):
    text = self.example("python_worker.sh", "--rounds=40")
    self.assertIn("b: left: all 40 rounds are done", text)
    self.assertRegex(text, r"Share of held-out points classified correctly: 0\.[89]")
    self.assertTrue(os.path.exists(self.made("model.safetensors")))

  def test_all_are_tested(self):
    scripts = [name for name in os.listdir(EXAMPLES) if name.endswith(".sh")]
    self.assertEqual(sorted("test_" + name[:-len(".sh")] for name in scripts if
                            not hasattr(self, "test_" + name[:-len(".sh")])), [])

  def test_interrupt_ends_all_it_has_started(self):
    script = self.start([os.path.join(EXAMPLES, "text_from_scratch.sh"), *self.options,
                         "--data=" + self.path("corpus.txt"), "--model=" + MODEL,
                         f"--rounds={cluster_processes.ENDLESS}"], "script")
    script.wait_for_log(" round ")
    script.send(signal.SIGINT)
    self.assertEqual(script.wait(AT_ONCE_SECONDS), 128 + signal.SIGINT, script.log())
    self.expect_nobody_left()

  def test_worker_that_fails_ends_the_script_with_its_words(self):
    script = self.start([os.path.join(EXAMPLES, "text_from_scratch.sh"), *self.options,
                         "--data=/no/such/text", "--model=" + MODEL], "script")
    self.assertEqual(script.wait(), 1)
    self.assertIn("/no/such/text: No such file or directory", script.log())
    self.expect_nobody_left()

  def test_help_and_unknown_options(self):
    scripts = [os.path.join(EXAMPLES, name) for name in sorted(os.listdir(EXAMPLES))
               if name.endswith(".sh")]
    for script in [QUICKSTART, *scripts]:
      shown = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
      self.assertEqual(shown.returncode, 0, shown.stderr)
      self.assertIn(f"{script[script.index('deploy/'):]} [--", shown.stdout)
      self.assertNotIn("#", shown.stdout)
      wrong = subprocess.run([script, "--runds=3"], capture_output=True, text=True, check=False)
      self.assertEqual(wrong.returncode, 1)
      self.assertIn("unknown argument --runds=3", wrong.stderr)


if __name__ == "__main__":
  cluster_processes.main()
