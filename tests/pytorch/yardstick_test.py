# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a GPT-2 step trains one model in PyTorch and in train_step: the same losses, step by step."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN_STEP = ROOT / "bazel-bin/tests/bench/step/train_step"
STEPS = 35
# Both in fp32: sums in another order. 2e-7 was seen.
TOLERANCE = 1e-5


def losses(*command):
  done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
  return [line["loss"] for line in map(json.loads, done.stdout.splitlines()) if "step" in line]


class YardstickTest(unittest.TestCase):

  def test_both_train_one_model(self):
    counts = ("--batch=4", "--warmup=0", f"--steps={STEPS}", "--learning_rate=1e-3")
    with tempfile.TemporaryDirectory() as folder:
      theirs = losses(sys.executable, "-B", ROOT / "tests/bench/gpu/torch_gpt2.py", "--device=cpu", "--preset=small",
                      f"--write={folder}", *counts)
      ours = losses(TRAIN_STEP, f"--weights={folder}/weights.safetensors", f"--tokens={folder}/tokens.bin", *counts)
    self.assertEqual((len(theirs), len(ours)), (STEPS, STEPS))
    self.assertLess(theirs[-1], 0.95 * theirs[0], "nothing was learned, so equal losses prove little")
    for step, (want, got) in enumerate(zip(theirs, ours)):
      self.assertLess(abs(got - want), TOLERANCE * want, f"step {step}: {got}, PyTorch {want}")


if __name__ == "__main__":
  del sys.argv[1:]  # run.sh names programs that other tests use
  unittest.main()
