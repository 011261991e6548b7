#!/usr/bin/python3
"""A worker for Lodestar in plain Python: the example for clients in other languages.

It needs nothing of ours but the stubs that protoc generates from proto/*.proto:

  protoc -I. --python_out=OUT --grpc_out=OUT \\
      --plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin \\
      proto/model.proto proto/job.proto proto/cluster_service.proto proto/parameter_service.proto
  PYTHONPATH=OUT python3 tests/process/python_client.py --coordinator=127.0.0.1:50051

against a server started with --model=client --optimizer=sgd --learning_rate=1. The first client
brings its own tensors (Register), their values (Push of INITIAL_WEIGHTS), then takes part in rounds:
NextGrant, Pull, Push. The "gradients" here are small integers, so that every weight can be
predicted exactly; a real client computes them.
"""
import argparse
import array
import random
import sys

import grpc

from proto import cluster_service_pb2 as cluster
from proto import cluster_service_pb2_grpc as cluster_grpc
from proto import job_pb2 as job
from proto import model_pb2 as model
from proto import parameter_service_pb2 as parameters
from proto import parameter_service_pb2_grpc as parameters_grpc

CHUNK_ELEMENTS = 1 << 18  # 1 MiB of fp32; a chunk may have 4 MiB
DEADLINE_SECONDS = 30
TENSORS = [("embedding", [50, 20]), ("head", [20, 10])]
NUM_ELEMENTS = 50 * 20 + 20 * 10


def _crc32c_table():
  table = []
  for byte in range(256):
    for _ in range(8):
      byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    table.append(byte)
  return table


CRC32C_TABLE = _crc32c_table()


def crc32c(data):
  """CRC-32C (Castagnoli) of bytes; packages such as google-crc32c are faster."""
  crc = 0xFFFFFFFF
  for byte in data:
    crc = (crc >> 8) ^ CRC32C_TABLE[(crc ^ byte) & 0xFF]
  return crc ^ 0xFFFFFFFF


class Worker:
  """One member of the cluster. Elements are array('f') over the whole parameter space."""

  def __init__(self, coordinator, name):
    self._cluster = cluster_grpc.ClusterServiceStub(grpc.insecure_channel(coordinator))
    self._name = name
    self._instance_id = random.getrandbits(63)
    self._servers = {}
    self.registration = None

  def register(self):
    layout = model.Layout(tensors=[
        model.TensorSpec(name=name, shape=shape, block=block)
        for block, (name, shape) in enumerate(TENSORS)
    ])
    request = cluster.RegisterRequest(wire_version=1, software_version="python example",
                                      name=self._name, instance_id=self._instance_id,
                                      device="python", layout=layout)
    while self.registration is None:
      try:
        self.registration = self._cluster.Register(request, timeout=DEADLINE_SECONDS,
                                                   wait_for_ready=True)
      except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
          raise
        print("not ready:", error.details())  # the same call again; the server held it a while
    for server in self.registration.servers:
      channel = grpc.insecure_channel(server.address)
      self._servers[server.shard] = parameters_grpc.ParameterServiceStub(channel)

  def join(self):
    """Once a member, heartbeats are due every registration.heartbeat_ms; this example is faster."""
    self._cluster.Join(
        cluster.JoinRequest(worker_id=self.registration.worker_id,
                            incarnation=self.registration.incarnation,
                            layout_hash=self.registration.layout.hash),
        timeout=DEADLINE_SECONDS)

  def next_grant(self, report=None):
    while True:
      grant = self._cluster.NextGrant(
          cluster.GrantRequest(worker_id=self.registration.worker_id,
                               incarnation=self.registration.incarnation, report=report),
          timeout=DEADLINE_SECONDS)
      if grant.kind != cluster.Grant.KIND_WAIT:
        return grant

  def leave(self, report):
    """Hands over the report of the last round, so that nobody waits for it."""
    self._cluster.Leave(
        cluster.LeaveRequest(worker_id=self.registration.worker_id,
                             incarnation=self.registration.incarnation, reason="done",
                             report=report),
        timeout=DEADLINE_SECONDS)

  def push(self, elements, kind, round_number=0, base_version=0):
    for shard, stub in self._servers.items():
      stub.Push(self._chunks(shard, elements, kind, round_number, base_version),
                timeout=DEADLINE_SECONDS)

  def _chunks(self, shard, elements, kind, round_number, base_version):
    for index, bucket in enumerate(self.registration.buckets):
      if bucket.shard != shard:
        continue
      for begin in range(bucket.begin, bucket.end, CHUNK_ELEMENTS):
        data = elements[begin:min(begin + CHUNK_ELEMENTS, bucket.end)].tobytes()
        yield parameters.PushChunk(
            worker_id=self.registration.worker_id, incarnation=self.registration.incarnation,
            round=round_number, base_version=base_version, bucket=index,
            offset=begin - bucket.begin, encoding=job.ENCODING_FP32, kind=kind,
            crc32c=crc32c(data), data=data)

  def pull(self, min_version=0):
    elements = array.array("f", bytes(4 * NUM_ELEMENTS))
    for shard, stub in self._servers.items():
      indices = [i for i, b in enumerate(self.registration.buckets) if b.shard == shard]
      request = parameters.PullRequest(
          worker_id=self.registration.worker_id, incarnation=self.registration.incarnation,
          min_version=min_version, buckets=indices, encoding=job.ENCODING_FP32)
      for chunk in stub.Pull(request, timeout=DEADLINE_SECONDS):
        assert crc32c(chunk.data) == chunk.crc32c, "a chunk was damaged on its way"
        values = array.array("f", chunk.data)
        begin = self.registration.buckets[chunk.bucket].begin + chunk.offset
        elements[begin:begin + len(values)] = values
    return elements


def report_of(grant):
  return cluster.RoundReport(round=grant.round, num_samples=grant.num_samples,
                             num_predictions=grant.num_samples, loss_sum=float(grant.num_samples))


def expect(elements, value):
  wrong = [i for i, element in enumerate(elements) if element != value]
  if wrong:
    sys.exit(f"element {wrong[0]} is {elements[wrong[0]]}, wanted {value}; {len(wrong)} are wrong")


def filled(value):
  return array.array("f", [value]) * NUM_ELEMENTS


def train(worker, num_rounds):
  """Checks every weight after every round; they start at 5. Returns the last report."""
  expected = 5.0
  report = None
  mode = worker.registration.job.mode
  for step in range(1, num_rounds + 1):
    grant = worker.next_grant(report)
    assert grant.kind == cluster.Grant.KIND_TRAIN, grant
    expect(worker.pull(grant.min_version), expected)
    if mode == job.MODE_LOCAL_SGD:  # --outer_optimizer=average: the weights after our own steps
      expected += step
      worker.push(filled(expected), parameters.CONTRIBUTION_KIND_WEIGHTS, grant.round,
                  grant.min_version)
    else:  # SGD on the servers with learning rate 1
      expected -= step
      worker.push(filled(float(step)), parameters.CONTRIBUTION_KIND_GRADIENT, grant.round,
                  grant.min_version)
    report = report_of(grant)
    expect(worker.pull(step), expected)
  return report


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--coordinator", default="127.0.0.1:50051", help="HOST:PORT of the server")
  parser.add_argument("--name", default="python", help="unique within the job")
  parser.add_argument("--rounds", type=int, default=3, help="rounds to take part in")
  options = parser.parse_args()
  worker = Worker(options.coordinator, options.name)
  worker.register()
  if worker.registration.needs_initial_weights:
    worker.push(filled(5.0), parameters.CONTRIBUTION_KIND_INITIAL_WEIGHTS)
  worker.join()
  worker.leave(train(worker, options.rounds))
  print(f"{options.rounds} rounds of {job.Mode.Name(worker.registration.job.mode)} as predicted")


if __name__ == "__main__":
  main()
