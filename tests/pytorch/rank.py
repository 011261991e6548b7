# SPDX-License-Identifier: Apache-2.0
"""One rank of a worker that is several: the program of fsdp_test.py.

Usage: rank.py ADDRESS NAME MODEL OPTIMIZER RENDEZVOUS RANK OUT [OPTION ...]
OUT: a file for the samples of its batches, and for all weights at the end.

It prints how many threads of gloo there are before the session, after it, and at the end.
"""
import contextlib
import gc
import os
import sys
import time
import traceback

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

import lodestar
import small_models

NUM_RANKS = 2
PATIENCE_SECONDS = 60


def shard(model, options):
  """A layer for itself, the rest together, as tied weights have to be."""
  how = {"mesh": init_device_mesh("cpu", (NUM_RANKS,))}
  if "--replicas" in options:
    how["mesh"] = init_device_mesh("cpu", (NUM_RANKS, 1), mesh_dim_names=("replica", "shard"))
  if "--columns" in options:
    how["shard_placement_fn"] = lambda parameter: Shard(parameter.ndim - 1)
  layer = next(layer for layer in model.children() if list(layer.parameters()))
  fully_shard(getattr(model, "layer", layer), **how)
  return fully_shard(model, **how)


def evaluate(model, batch):
  _, features, labels = batch
  logits = model(features)
  loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
  return loss, (logits.argmax(1) == labels).sum(), len(labels)


def num_gloo_threads(wanted=None):
  """Of all groups: those that let go of the tensors of an operation. The system may have one for a
  moment after it was joined: until there are as many as wanted, or in vain."""
  deadline = time.monotonic() + PATIENCE_SECONDS
  while True:
    names = []
    for thread in os.listdir("/proc/self/task"):
      with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/self/task/{thread}/comm", encoding="ascii") as file:
          names.append(file.read().strip())
    count = names.count("pt_gloo_runloop")
    if wanted in (None, count) or time.monotonic() > deadline:
      return count
    os.sched_yield()


@contextlib.contextmanager
def comparing_gloo_threads():
  """Not if there was an error, whose frames have groups."""
  before = num_gloo_threads()
  yield
  print(f"gloo threads: {before} before, {num_gloo_threads(before)} after", flush=True)


def destroy_groups():
  """So that their threads are joined: one that lets go of a tensor while the interpreter ends
  aborts the program, before Python 3.14. PyTorch 2.15 keeps meshes, and they their groups."""
  dist.destroy_process_group()
  gc.collect()
  for mesh in [mesh for mesh in gc.get_objects() if type(mesh) is DeviceMesh]:
    getattr(mesh, "_pg_registry", {}).clear()
  print("gloo threads at the end:", num_gloo_threads(0), flush=True)


def train(address, name, model_name, optimizer_name, rank, options):
  model = small_models.MODELS[model_name]()
  if rank > 0 and "--other-model" in options:
    model = small_models.MODELS["normalized"]()
  if "--plain" not in options:
    model = shard(model, options)
  optimizer = small_models.OPTIMIZERS[optimizer_name](model, 123.0)
  loader_options = {"batch_size": 4}
  if "--accumulate" in options:
    loader_options = {"batch_size": 2, "accumulate": 2, "num_workers": 1}
  if "--any-size" in options:
    loader_options = {}
  group = None if "--alone" in options else dist.group.WORLD
  scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, enabled="--inf" in options)
  data = small_models.TRAIN
  if "--passes" in options:
    data, loader_options = torch.utils.data.DataLoader(data, batch_size=9, shuffle=True), {}
  batches, passes = [], []
  with comparing_gloo_threads(), lodestar.join(address, name=name, group=group) as ps:
    ps.attach(model, optimizer)
    loader = ps.loader(data, heldout=small_models.HELDOUT,
                       evaluate=lambda batch: evaluate(model, batch), **loader_options)
    while not ps.is_over:
      passes.append(0)
      for indices, _, _ in loader:
        passes[-1] += 1
        batches.append(indices)
        if ps.round == 3 and f"--raise={rank}" in options:
          raise ValueError("the third round is bad")
        if ps.round == 3 and rank == 1:
          if "--sleep" in options:
            print("sleeps", flush=True)
            time.sleep(3)
          if "--stop" in options:
            ps.stop()
        loss = small_models.loss_of(model, indices) * ps.share
        if "--inf" in options and ps.round == 3 and rank == 1:
          loss = loss * torch.inf
        scaler.scale(loss).backward()
        ps.log({"loss": loss / ps.share, "rank": rank})
        if "--metrics" in options:  # more than a round may have, in both ranks together
          ps.log({f"of_{rank}_{k}": k for k in range(20)})
        if ps.is_last_batch:
          scaler.step(optimizer)
          scaler.update()
          optimizer.zero_grad()
    place = ps.index, ps.count, ps.is_first
  weights = {name: weight.full_tensor() if hasattr(weight, "full_tensor") else weight
             for name, weight in model.state_dict().items()}
  return {"batches": batches, "passes": passes, "place": place, "weights": weights,
          "evaluation": tuple(ps.evaluation or ())}


def main():
  address, name, model_name, optimizer_name, rendezvous, rank, out, *options = sys.argv[1:]
  torch.set_num_threads(1)
  dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=int(rank),
                          world_size=NUM_RANKS)
  code = 0
  try:
    outcome = train(address, name, model_name, optimizer_name, int(rank), options)
    torch.save(outcome, out + ".new")
    os.rename(out + ".new", out)
  except Exception:
    traceback.print_exc()
    code = 1
  destroy_groups()
  return code


if __name__ == "__main__":
  sys.exit(main())
