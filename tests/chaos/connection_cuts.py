#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Cuts connections of workers that live, and counts the incarnations that end because of it: none may.

Usage: connection_cuts.py PS_SERVER GPU_WORKER PSCTL [--cuts=N] [--kinds=A,B] [--servers=N] [--seed=N]

The servers have --end_lost_workers=connection and share no memory; every worker has a route of its own
to the first of them, and all share one to each other one. Prints a table, and ends with 1 if an
incarnation has ended because its connections were closed. Other reasons, such as that nothing of a push
moved for a lease, are counted apart. See KINDS for what is cut.
"""
import argparse
import os
import random
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "process")]

import cluster_processes
from cluster_processes import ClusterTestCase, members_of
from fault_proxy import FaultProxy

WORKERS = ("a", "b", "c")
KINDS = {
    "reset all": "all connections are reset, as by a proxy that is killed and is back at once",
    "reset worker": "those of one worker are reset",
    "reset one": "one connection is reset",
    "close worker": "those of one worker are closed in order",
    "restart": "a proxy of all workers is gone for 0 to 1 s",
    "long restart": "a proxy of all workers is gone for 5 s",
    "rolling": "a proxy for each worker: one after the other is gone for 0 to 0.3 s",
    "idle": "a load balancer closes connections that have carried nothing for 20 ms",
}
# Between two cuts: more than a worker needs to be heard of again, and than the patience of the server.
SETTLE_SECONDS = 1.3


class Cluster(ClusterTestCase):

  def runTest(self):
    """There is none: this is a folder with processes."""

  def processes(self):
    return self._processes


class Cutter:

  def __init__(self, proxy, seed):
    self._proxy = proxy
    self._chance = random.Random(seed)

  def _routes(self, worker=""):
    return [name for name in self._proxy.routes if name.startswith(worker)]

  def _be_gone(self, routes, seconds):
    for name in routes:
      self._proxy.refuse(name)
    time.sleep(seconds)
    for name in routes:
      self._proxy.listen(name)

  def _end(self, routes, **how):
    return sum(self._proxy.end_connections(name, **how) for name in routes)

  def cut(self, kind):
    """Returns once the cut is over, if it lasts; and whether there was anything to cut."""
    worker = self._chance.choice(WORKERS) + ":"
    if kind == "reset all":
      return self._end(self._routes()) > 0
    if kind == "reset worker":
      return self._end(self._routes(worker)) > 0
    if kind == "reset one":
      return self._proxy.cut(self._chance.choice(self._routes(worker)), self._chance.random(),
                             is_up=True, num_bytes=0)
    if kind == "close worker":
      return self._end(self._routes(worker), is_orderly=True) > 0
    if kind == "idle":
      time.sleep(self._chance.uniform(0, 1))
      return self._end(self._routes(), idle_seconds=0.02, is_orderly=True) > 0
    if kind == "rolling":
      for each in WORKERS:
        self._be_gone(self._routes(each + ":"), self._chance.uniform(0, 0.3))
      return True
    self._be_gone(self._routes(), 5 if kind == "long restart" else self._chance.uniform(0, 1))
    return True


def ended_lives(server):
  return re.findall(r"worker ended .*", server.log())


def start(cluster, proxy, num_servers, lease):
  """Returns the server of shard 0. Workers reach it, for calls and weights, by the address that they dial,
  because it only guesses its own, and the other servers by the one that these advertise."""
  server = cluster.start_server(listen="0.0.0.0:0", insecure=True, end_lost_workers="connection",
                                shared_memory="false", lease=lease, shard=f"0/{num_servers}",
                                min_workers=len(WORKERS))
  port = cluster.port
  for i in range(1, num_servers):
    route = f"all:server{i}"
    port_file = cluster.path(f"port{i}")
    cluster.start(
        cluster.server_command(shard=f"{i}/{num_servers}") +
        ["--shared_memory=false", f"--advertise=127.0.0.1:{proxy.add_route(route, 0)}",
         f"--port_file={port_file}"], f"server{i}")
    cluster_processes.wait_until(lambda file=port_file: os.path.exists(file), cluster.logs)
    with open(port_file, encoding="ascii") as file:
      proxy.routes[route].target_port = int(file.read())
  for worker in WORKERS:
    cluster.port = proxy.add_route(f"{worker}:server0", port)
    cluster.start_worker(worker)
  cluster.port = port
  cluster.wait_for_status(
      lambda status: sorted(members_of(status)) == sorted(WORKERS) and int(status["round"]) > 3,
      "three workers in a round")
  return server


def run(kind, cuts, num_servers, seed, lease):
  """(cuts made, incarnations ended for their connections, and for other reasons, rounds meanwhile)"""
  cluster = Cluster()
  cluster.setUp()
  made = 0
  try:
    with FaultProxy() as proxy:
      server = start(cluster, proxy, num_servers, lease)
      cutter = Cutter(proxy, seed)
      rounds = len(cluster.metrics())
      for _ in range(cuts):
        made += cutter.cut(kind)
        time.sleep(SETTLE_SECONDS)
        gone = [p.log_path for p in cluster.processes() if not p.is_running()]
        if gone:
          raise AssertionError(f"{kind}: processes have ended: {gone}\n{cluster.logs()}")
      ended = ended_lives(server)
      for line in ended:
        print(f"{kind}: {line}", flush=True)
      closed = sum("connections" in line for line in ended)
      return made, closed, len(ended) - closed, len(cluster.metrics()) - rounds
  finally:
    cluster.doCleanups()


def main():
  for name in ("ps_server", "gpu_worker", "psctl"):
    cluster_processes.BINARIES[name] = os.path.abspath(sys.argv.pop(1))
  parser = argparse.ArgumentParser()
  parser.add_argument("--cuts", type=int, default=20)
  parser.add_argument("--kinds", default=",".join(KINDS))
  parser.add_argument("--servers", type=int, default=1)
  parser.add_argument("--lease", default="10s")
  parser.add_argument("--seed", type=int, default=1)
  options = parser.parse_args()
  all_ended = 0
  print("| cut | made | ended for closed connections | for other reasons | rounds meanwhile |\n"
        "|---|---|---|---|---|", flush=True)
  for kind in options.kinds.split(","):
    made, ended, others, rounds = run(kind, options.cuts, options.servers, options.seed, options.lease)
    all_ended += ended
    print(f"| {kind}: {KINDS[kind]} | {made} | {ended} | {others} | {rounds} |", flush=True)
  sys.exit(1 if all_ended else 0)


if __name__ == "__main__":
  main()
