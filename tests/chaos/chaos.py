# SPDX-License-Identifier: Apache-2.0
"""Trials of real processes under random faults; see README.md beside it.

Prints a line per fault, what each trial has come to, and a table of how long the recovery took.
Exit code 1 if anything was not as promised; the folder of such a trial stays.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import filecmp
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../process"))
# pylint: disable=wrong-import-position
from cluster_processes import GPT
from fault_proxy import FaultProxy
from faults import KINDS, draw_faults
from supervised_cluster import POLL_SECONDS, SupervisedCluster

WORKERS = 2
BATCH = 2
RECOVERY_SECONDS = 10  # promised, from the end of a fault, or the restart, to the next round
# Rounds after the last fault. A program that is out must be back before the job is over, because
# workers look for ever for a server whose job is over without them.
ROUNDS_AFTER = 12
PATIENCE_SECONDS = 60  # before a trial is given up
WORDS = ("round", "version", "shard", "bucket", "chunk")
LINE = "round of shards "  # as long as the model's context: every sample is the same


@dataclasses.dataclass(frozen=True)
class Mode:
  """`rounds`: between two faults; `steps`: of a worker in a round."""
  settings: dict
  rounds: int
  more_rounds: int = 0  # for each fault: the others go on while one is out
  steps: int = 1
  lease_seconds: int = 2
  same_bits: bool = False  # the final weights are those of the undisturbed run
  spare_lives: bool = False  # no fault ends the life of a worker
  same_samples: bool = False  # all of the data is one sample, again and again
  max_loss_gap: float = 0.1  # held-out, nats, to the undisturbed run


# Alarms say what has happened, and stay. Which kinds of faults make them true.
EXPLAINED = {
    r"^worker 'worker\d' held up rounds: no bytes (to|from) shard \d":
        {"half-open", "refuse", "delay", "cut", "flip"},
    r"^the server of shard 1 was away while the checkpoint was written":
        {"half-open", "refuse", "cut", "kill", "kill twice", "terminate"},
    r"^a checkpoint was skipped, because the previous checkpoint was still being written":
        {*KINDS["processes"], *KINDS["network"]},
    r"replica \S+: .*; no contribution is acknowledged until the replica has everything again|"
    r"^checkpoint \S+: (shard \d+: )?replica \S+: |"
    r"the journal.* cannot be written, and (the server answers|no contribution is) "
    r".*(replica \S+: |the replica (was lost|is being brought up to date))":
        {*KINDS["processes"], *KINDS["network"], *KINDS["disks"]},  # of the replica
    r"^the server of shard 1 at \S+ does not answer, and training waits for it":
        {"half-open", "stop", "delay"},
}
LOCAL = {"mode": "local_sgd", "local_steps": 20}
MODES = {
    # A life of a worker that ends takes its part of the round at hand with it, which changes the
    # weights: so one trial ends none, and in the other every part is the same.
    "sync": Mode({"mode": "sync", "keep_workers": 2, "clip_norm": 0.5}, rounds=30,
                 lease_seconds=10, same_bits=True, spare_lives=True),
    "sync_deaths": Mode({"mode": "sync", "clip_norm": 0.5}, rounds=30, more_rounds=15,
                        same_bits=True, same_samples=True),
    "async": Mode({"mode": "async"}, rounds=60, more_rounds=60),
    "average": Mode({**LOCAL, "outer_optimizer": "average"}, rounds=16, more_rounds=24, steps=20),
    "diloco": Mode({**LOCAL, "outer_optimizer": "nesterov"}, rounds=16, more_rounds=24, steps=20),
}


class Broken(Exception):
  """A trial cannot go on."""


class Trial:
  """One job with its faults, and the same job without any."""

  def __init__(self, name, servers, options):
    """`servers`: how many; an r behind it: each has a replica."""
    self.name = f"{name}/{servers}"
    self._mode = MODES[name]
    self._has_replicas = servers.endswith("r")
    self._servers = int(servers.rstrip("r"))
    self._share = BATCH * self._mode.steps  # samples of a worker in a round
    self._options = options
    self._total_rounds = (self._mode.rounds * (options.faults + ROUNDS_AFTER) +
                          self._mode.more_rounds * options.faults)
    self._faults = draw_faults(f"{options.seed} {self.name}", options.faults, self._mode.rounds,
                               self._servers, WORKERS, self._has_replicas,
                               self._mode.spare_lives, options.kinds.split(","))
    self.violations = []
    self.recoveries = collections.defaultdict(list)  # row -> (to the next round, to all workers)
    self.summary = {}
    self._done = set()  # kinds
    self._alarms = set()
    self._ended = {}  # unit -> (how often it was started before that, its life)
    self._lives = {}  # of the members, when last seen

  def run(self, folder):
    started = time.monotonic()
    try:
      with FaultProxy() as proxy:
        with self._cluster(os.path.join(folder, "disturbed"), proxy) as cluster:
          self._disturb(cluster, proxy)
          self._wait_for_end(cluster)
      with self._cluster(os.path.join(folder, "undisturbed")) as undisturbed:
        self._wait_for_end(undisturbed)
      self._compare(cluster, undisturbed)
    except Broken as broken:
      self._violate(str(broken))
    finally:
      self.summary["seconds"] = f"{time.monotonic() - started:.0f}"

  def _cluster(self, folder, proxy=None):
    os.makedirs(folder)
    with open(os.path.join(folder, "model.textproto"), "w", encoding="ascii") as file:
      file.write(GPT)
    with open(os.path.join(folder, "corpus.txt"), "w", encoding="ascii") as file:
      # Windows move from epoch to epoch: one of them has more than enough.
      file.write(LINE * (4 * WORKERS * BATCH * self._total_rounds) if self._mode.same_samples else
                 " ".join(random.Random(1).choices(WORDS, k=9000)))
    settings = {"rounds": self._total_rounds, "checkpoint_interval": 0, "checkpoint_every": self._mode.rounds * 3 // 2,
                "batch_size": BATCH, "eval_samples": 64, "lease": f"{self._mode.lease_seconds}s",
                "min_workers": WORKERS, "durability": "journal" if proxy else "checkpoint",
                **self._mode.settings}
    return SupervisedCluster(folder, self._options.binaries, settings, self._servers, WORKERS, proxy,
                             has_replicas=self._has_replicas and proxy is not None,
                             has_tls=self._options.tls and proxy is not None)

  def _violate(self, sentence):
    self.violations.append(sentence)
    print(f"{self.name}: WRONG: {sentence}", flush=True)

  def _disturb(self, cluster, proxy):
    together = []
    ends_at = 0.0
    for i, fault in enumerate(self._faults):
      if not fault.is_at_once:
        self._await(cluster, lambda number=fault.round: cluster.is_finished() or
                    cluster.last_round()[1] >= number, f"round {fault.round}")
      before = cluster.last_round()[1]
      ends_at = max(ends_at, self._do(fault, cluster, proxy))
      together.append(fault)
      if i + 1 < len(self._faults) and self._faults[i + 1].is_at_once:
        print(f"{self.name} {i + 1:3} round {before}: {fault}", flush=True)
        time.sleep(fault.place)  # the next comes within a second
        continue
      recovery = self._measure(cluster, together, ends_at)
      print(f"{self.name} {i + 1:3} round {before}: {fault}: next round after {recovery[0]:.2f} s, "
            f"all workers after {recovery[1]:.2f} s", flush=True)
      together = []
      ends_at = 0.0

  def _do(self, fault, cluster, proxy):
    """Returns when it is over, as far as it has a duration."""
    now = time.monotonic()
    ends_at = now
    if fault.kind == "kill":
      self._end(cluster, fault.target, signal.SIGKILL)
    elif fault.kind == "terminate":
      self._end(cluster, fault.target, signal.SIGTERM)
    elif fault.kind == "stop":
      ends_at = now + fault.seconds
      stopped = cluster.send(fault.target, signal.SIGSTOP)
      if stopped is not None:
        self._later(fault.seconds, lambda: stopped.is_running() and stopped.send(signal.SIGCONT))
    elif fault.kind == "kill twice":
      ends_at = now + fault.seconds
      self._end(cluster, fault.target, signal.SIGKILL)
      self._later(fault.seconds, lambda: self._end(cluster, fault.target, signal.SIGKILL))
    elif fault.kind == "kill all servers":
      for name in cluster.units:
        if name.startswith("server"):
          self._end(cluster, name, signal.SIGKILL)
    elif fault.kind == "lose disk":
      self._note_end(cluster, fault.target)
      cluster.lose_disk(fault.target)
    elif fault.kind == "swap":
      shard = int(fault.target.removeprefix("server"))
      self._note_end(cluster, fault.target)
      self._note_end(cluster, f"replica{shard}")
      cluster.swap(shard)
    elif fault.kind == "cut":
      proxy.cut(fault.target, fault.place, fault.ways == "up", fault.num_bytes)
    elif fault.kind == "half-open":
      proxy.half_open(fault.target, fault.place, up=fault.ways != "down", down=fault.ways != "up")
    elif fault.kind == "delay":
      ends_at = now + fault.seconds
      proxy.set_delay(fault.target, fault.place / 10)
      self._later(fault.seconds, lambda: proxy.set_delay(fault.target, 0))
    elif fault.kind == "flip":
      proxy.flip_bit(fault.target, fault.place)
    elif fault.kind == "refuse":
      ends_at = now + fault.seconds
      proxy.refuse(fault.target)
      self._later(fault.seconds, lambda: proxy.listen(fault.target))
    else:
      raise ValueError(f"unknown kind of fault '{fault.kind}'")
    return ends_at

  def _end(self, cluster, name, number):
    starts = cluster.num_starts(name)
    sent = cluster.restart(name) if number == signal.SIGTERM else cluster.send(name, number)
    if sent is not None:
      self._note_end(cluster, name, starts)

  def _note_end(self, cluster, name, starts=None):
    self._ended[name] = (cluster.num_starts(name) if starts is None else starts,
                         self._lives.get(name))

  def _later(self, seconds, act):
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()

  def _check_units(self, cluster):
    if failed := cluster.failed():
      raise Broken("; ".join(failed))
    if cluster.setbacks:
      raise Broken(cluster.setbacks[0])

  def _await(self, cluster, condition, what, seconds=PATIENCE_SECONDS):
    """When it held first."""
    deadline = time.monotonic() + seconds
    while not condition():
      self._check_units(cluster)
      if time.monotonic() > deadline:
        raise Broken(f"waited {seconds} s in vain for {what}: {self._state(cluster)}")
      time.sleep(0.01)
    return time.monotonic()

  def _state(self, cluster):
    status = cluster.status()
    if not status:
      return "no server answers"
    workers = ", ".join(f"{row['name']} is {row['state']}" for row in status["workers"])
    return (f"{status['state']}, round {status['round']}; {workers}; "
            f"{status.get('open_round', {}).get('waiting_for', '')}; "
            f"alarms: {[alarm['text'] for alarm in status['alarms']]}")

  def _measure(self, cluster, faults, ends_at):
    """Seconds to the next round and to all workers; what was not in time is a violation."""
    # What was done before the end is read by then.
    time.sleep(max(0.0, ends_at - time.monotonic()) + 3 * POLL_SECONDS)
    self._await(cluster, lambda: cluster.is_finished() or all(
        cluster.num_starts(name) > starts for name, (starts, _) in list(self._ended.items())), "restarts")
    before = cluster.last_round()[1]
    # The next one may have been at hand already.
    self._await(cluster, lambda: cluster.last_round()[1] >= before + 2 or cluster.is_finished(),
                f"the next round after {before}")
    to_next = max(0.0, cluster.last_round()[0] - ends_at)
    seen = {}

    def is_whole():
      seen.clear()
      seen.update(cluster.status())
      lives = {row["name"]: row["incarnation"] for row in seen.get("workers", [])
               if row["state"] == "member"}
      is_back = all(lives.get(name) != life for name, (_, life) in self._ended.items()
                    if name.startswith("worker"))
      if len(lives) < WORKERS or not is_back or seen["state"] != "training":
        return cluster.is_finished()
      self._lives = lives
      return True

    to_whole = self._await(cluster, is_whole, "all workers") - ends_at
    self._ended.clear()
    what = " and ".join(str(fault) for fault in faults)
    if to_whole > RECOVERY_SECONDS:
      self._violate(f"all workers are back {to_whole:.1f} s after {what}")
    if to_next > RECOVERY_SECONDS:
      self._violate(f"the next round is over {to_next:.1f} s after {what}")
    self._done.update(fault.kind for fault in faults)
    for text in {alarm["text"] for alarm in seen.get("alarms", [])} - self._alarms:
      self._alarms.add(text)
      if not self._is_explained(text):
        self._violate(f"after {what} the status says what is not so: {text}")
    row = faults[0].row if len(faults) == 1 else "several at once"
    self.recoveries[row].append((to_next, to_whole))
    return to_next, to_whole

  def _is_explained(self, alarm):
    if self._mode.same_samples and re.search("report equal losses round by round", alarm):
      return True
    return any(re.search(known, alarm) and kinds & self._done for known, kinds in EXPLAINED.items())

  def _wait_for_end(self, cluster):
    self._await(cluster, cluster.is_finished, "the end of the job", seconds=300)
    time.sleep(5 * POLL_SECONDS)  # the supervisor reads the last lines
    self._check_units(cluster)

  def _compare(self, cluster, undisturbed):
    lines = [line for _, line in cluster.rounds]
    last = lines[-1]
    folder, manifest = cluster.manifest()
    reference_folder, reference = undisturbed.manifest()
    ledger = manifest["coordinator"]["ledger"]
    if ledger["next_round"] - ledger["lost_rounds"] != self._total_rounds:
      self._violate(f"{ledger['next_round']} rounds, {ledger['lost_rounds']} of them lost, are not "
                    f"{self._total_rounds}")
    self._check_samples(lines, ledger)
    log = cluster.log("server0")
    ended = log.count(" worker ended ") - log.count("reason=left")
    lost = self._lost_samples(ledger)
    # A worker that is told to stop hands in after the local step at hand.
    told = sum(fault.kind == "terminate" and fault.target.startswith("worker")
               for fault in self._faults) if self._mode.steps > 1 else 0
    if lost > (ended + told) * self._share:
      self._violate(f"{lost} samples are lost; {ended} lives of workers have ended and {told} left "
                    f"early, of {self._share} samples a round each")
    if self._mode.spare_lives and (lost or ended):
      self._violate(f"{lost} samples and {ended} lives of workers were lost to faults that "
                    "end none")
    gap = abs(last["heldout_loss"] - undisturbed.rounds[-1][1]["heldout_loss"])
    if gap > self._mode.max_loss_gap:
      self._violate(f"held-out loss is {last['heldout_loss']:.4f}, {gap:.4f} from the undisturbed")
    same_bits = "-"
    if self._mode.same_bits:
      versions = {bucket[2] for shard in manifest["shards"] for bucket in shard["buckets"]}
      # Some buckets of a round that all workers were lost from may have had a contribution by then,
      # and there is another round in its place.
      is_comparable = ledger["lost_rounds"] == 0 or versions == {self._total_rounds}
      same_bits = "yes" if is_comparable else "a lost round is there in part"
      if is_comparable:
        self._compare_bits(folder, manifest, reference_folder, reference)
    for name in cluster.units:
      for text in ("go back to", "is damaged", "FATAL", "CHECK failed"):
        if text in cluster.log(name):
          self._violate(f"the log of {name} says '{text}'")
    self.summary.update({
        "rounds": self._total_rounds, "faults": len(self._faults),
        "restarts": sum(len(unit.starts) - 1 for unit in cluster.units.values()),
        "lives ended": ended, "samples lost": lost, "rounds lost": ledger["lost_rounds"],
        "loss": f"{last['heldout_loss']:.4f}",
        "undisturbed": f"{undisturbed.rounds[-1][1]['heldout_loss']:.4f}",
        "same bits": same_bits})

  def _lost_samples(self, ledger):
    """Handed out, and counted nowhere."""
    handed_out = sum(data["next_sample"] for data in ledger["data_sets"])
    return handed_out - ledger["trained_samples"]

  def _check_samples(self, lines, ledger):
    """Each round counts what its workers had, and no more."""
    before = 0
    for line in lines[:-1]:
      counted = line["samples"] - before
      before = line["samples"]
      most = line["workers"] * self._share
      # With local steps, a worker that is told to stop has done some of them.
      least = line["workers"] * BATCH
      if not least <= counted <= most or counted % BATCH != 0:
        self._violate(f"round {line['round']} counts {counted} samples of {line['workers']} workers, "
                      f"which have {self._share} each")
        return
    if ledger["trained_samples"] != before:
      self._violate(f"the checkpoint counts {ledger['trained_samples']} samples, --metrics_out {before}")

  def _compare_bits(self, folder, manifest, reference_folder, reference):
    files = [shard[kind]["name"] for shard in reference["shards"] for kind in ("weights", "optimizer")]
    if manifest["round"] - manifest["coordinator"]["ledger"]["lost_rounds"] != reference["round"]:
      self._violate(f"the last checkpoint is of round {manifest['round']}, not {reference['round']}")
    _, differing, missing = filecmp.cmpfiles(folder, reference_folder, files, shallow=False)
    if differing or missing:
      self._violate(f"{', '.join(differing + missing)} of {folder} differ from {reference_folder}")


def print_table(heads, rows):
  rows = [heads, *rows]
  widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
  for row in rows:
    print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def print_recoveries(trials):
  rows = collections.defaultdict(list)
  for trial in trials:
    for row, recoveries in trial.recoveries.items():
      rows[row] += recoveries

  def cells(values):
    return [f"{statistics.median(values):.2f}", f"{max(values):.2f}"]

  print_table(["fault", "number", "next round: median s", "worst s", "all workers: median s", "worst s"],
              [[row, str(len(found)), *cells([pair[0] for pair in found]),
                *cells([pair[1] for pair in found])] for row, found in sorted(rows.items())])


def run_trial(trial, options):
  folder = tempfile.mkdtemp(prefix=f"lodestar-chaos-{trial.name.replace('/', '-')}-")
  trial.run(folder)
  if trial.violations:
    mode, servers = trial.name.split("/")
    print(f"{trial.name}: FAILED; its folder: {folder}; again: tests/chaos/run.sh {options.seed} --modes={mode} "
          f"--servers={servers} --faults={options.faults} --kinds={options.kinds}"
          f"{' --tls' if options.tls else ''}", flush=True)
  else:
    shutil.rmtree(folder)
    print(f"{trial.name}: as promised, {trial.summary['seconds']} s", flush=True)


def main():
  parser = argparse.ArgumentParser(description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("seed", type=int, help="chooses what is done, when and to whom")
  parser.add_argument("--binaries", metavar="FOLDER", required=True,
                      help="with ps_server, gpu_worker and psctl")
  parser.add_argument("--faults", type=int, default=20, help="in each trial; default: %(default)s")
  parser.add_argument("--modes", default=",".join(MODES), help="default: %(default)s")
  parser.add_argument("--servers", default="1,2,1r,2r",
                      help="trials with so many, r: each with a replica; default: %(default)s")
  parser.add_argument("--kinds", default=",".join(KINDS), help="of faults; default: %(default)s")
  parser.add_argument("--tls", action="store_true",
                      help="each program with a certificate of its own, instead of plain text")
  parser.add_argument("--at_a_time", type=int, default=1,
                      help="trials at a time; default: %(default)s")
  options = parser.parse_args()
  options.binaries = {name: os.path.abspath(os.path.join(options.binaries, name))
                      for name in ("ps_server", "gpu_worker", "psctl")}
  trials = [Trial(mode, servers, options) for servers in options.servers.split(",")
            for mode in options.modes.split(",")]
  with concurrent.futures.ThreadPoolExecutor(options.at_a_time) as pool:
    list(pool.map(lambda trial: run_trial(trial, options), trials))
  print()
  heads = ["rounds", "faults", "restarts", "lives ended", "samples lost", "rounds lost",
           "loss", "undisturbed", "same bits", "seconds"]
  print_table(["trial", *heads, "result"],
              [[trial.name, *(str(trial.summary.get(head, "")) for head in heads),
                "FAILED" if trial.violations else "as promised"] for trial in trials])
  print()
  print_recoveries(trials)
  sys.exit(1 if any(trial.violations for trial in trials) else 0)


if __name__ == "__main__":
  main()
