# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs and gpu_workers train the servers' model together, and any of them alone.

Usage: mixed_fleet_test.py PS_SERVER GPU_WORKER PSCTL LIBRARY
"""
import os
import random
import string
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["LODESTAR_LIBRARY"] = os.path.abspath(sys.argv.pop(4))
sys.path[:0] = [os.path.join(ROOT, "tests", "process"), os.path.join(ROOT, "worker", "python"),
                os.path.dirname(os.path.abspath(__file__))]

import torch  # noqa: E402  (after the path is set)
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import cluster_processes  # noqa: E402
import lodestar  # noqa: E402
from cluster_processes import BINARIES, members_of  # noqa: E402
from program import Program  # noqa: E402

CONTEXT = 16
GPT = (f'name: "tiny" gpt {{ num_layers: 2 num_heads: 2 width: 16 context: {CONTEXT} '
       'vocabulary: 256 }')
# The text has one window, so that every sample is this one, whichever worker takes it and wherever its epoch begins.
TEXT = "".join(random.Random(1).choices(string.ascii_letters, k=CONTEXT + 1))
ROUNDS = 8


class Windows(torch.utils.data.Dataset):

  def __len__(self):
    return 1

  def __getitem__(self, index):
    return torch.tensor(list(TEXT.encode()))


def train(address, name, make_optimizer):
  """Until the job is done."""
  model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
      vocab_size=256, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2, bos_token_id=0,
      eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
  optimizer = make_optimizer(model.parameters())
  with lodestar.join(address, name=name) as ps:
    ps.attach(model, optimizer)
    for tokens in ps.loader(Windows(), is_own=True):
      logits = model(input_ids=tokens[:, :-1]).logits
      loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
      loss.backward()
      ps.log(loss, num_predictions=len(tokens) * CONTEXT)
      optimizer.step()
      optimizer.zero_grad()


class MixedFleetTest(cluster_processes.ClusterTestCase):

  def run_fleet(self, makers, **flags):
    """The weights that it ends with, and the losses of its rounds. makers: of the optimizer of
    each worker; None: a gpu_worker."""
    for name, text in (("model.textproto", GPT), ("text", TEXT), ("heldout", TEXT[::-1])):
      with open(self.path(name), "w", encoding="ascii") as file:
        file.write(text)
    if os.path.exists(self.path("metrics.jsonl")):
      os.remove(self.path("metrics.jsonl"))
    server = self.start_server(rounds=ROUNDS, min_workers=len(makers), batch_size=3,
                               eval_samples=0, exit_when_done=False, **flags)
    workers = []
    for k, make_optimizer in enumerate(makers):
      name = f"worker-{k}"
      if make_optimizer is not None:
        workers.append(Program(train, f"127.0.0.1:{self.port}", name, make_optimizer))
      else:
        workers.append(self.start([
            BINARIES["gpu_worker"], f"--coordinator=127.0.0.1:{self.port}", f"--name={name}",
            "--data=" + self.path("text"), "--heldout_data=" + self.path("heldout"),
            "--data_partition=own", "--device=cpu", "--threads=1"], name))
    for worker in workers:
      if isinstance(worker, Program):
        worker.outcome()
      else:
        self.assert_ends(worker)
    path = self.path("weights.safetensors")
    exported = self.psctl("export", path)
    self.assertEqual(exported.returncode, 0, exported.stderr)
    weights = load_file(path)
    self.stop_job(server)
    losses = [line["train_loss"] for line in self.metrics()]
    return weights, [loss for loss in losses if loss is not None]

  def assert_fleets_agree(self, make_optimizer, tolerance, **flags):
    ours, losses = self.run_fleet([None, None], **flags)
    self.assertLess(losses[-1], 0.95 * losses[0])
    for makers in ([None, make_optimizer], [make_optimizer, make_optimizer]):
      weights, other_losses = self.run_fleet(makers, **flags)
      for loss, other in zip(losses, other_losses):
        self.assertAlmostEqual(loss, other, delta=1e-4)
      self.assertEqual(weights.keys(), ours.keys())
      for name, values in weights.items():
        torch.testing.assert_close(values, ours[name], atol=tolerance, rtol=0,
                                   msg=lambda text: f"{name}: {text}")

  def test_sync(self):
    self.assert_fleets_agree(lambda weights: torch.optim.SGD(weights, lr=1.0, momentum=0.9),
                             tolerance=1e-5, mode="sync", optimizer="momentum", momentum=0.9,
                             learning_rate=0.1)

  def test_diloco(self):
    # The same with another implementation of the inner optimizer. A large epsilon, so that rounding
    # errors stay what they are where gradients are zero, as of biases of keys.
    self.assert_fleets_agree(lambda weights: torch.optim.AdamW(weights, lr=1.0, eps=1e-3,
                                                               betas=(0.9, 0.95), weight_decay=0.0),
                             tolerance=1e-5, mode="local_sgd", local_steps=5, optimizer="adamw",
                             epsilon=1e-3, learning_rate=0.01)

  def test_a_model_of_another_shape_is_refused(self):
    with open(self.path("model.textproto"), "w", encoding="ascii") as file:
      file.write(GPT.replace("width: 16", "width: 32"))
    server = self.start_server(mode="sync", optimizer="sgd")
    with self.assertRaises(lodestar.LodestarError) as refused:
      Program(train, f"127.0.0.1:{self.port}", "a",
              lambda weights: torch.optim.SGD(weights, lr=1.0)).outcome()
    self.assertIn("wte.weight", str(refused.exception))
    self.assertIn("[256,32]", str(refused.exception))
    self.assertEqual(members_of(self.status()), [])
    self.stop_job(server)


if __name__ == "__main__":
  torch.set_num_threads(1)
  cluster_processes.main()
