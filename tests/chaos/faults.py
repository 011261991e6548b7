# SPDX-License-Identifier: Apache-2.0
"""What is done to a cluster, and when: chosen by a seed, before anything runs. Pure."""
import dataclasses
import random

# Shares of all faults.
PROCESS_KINDS = {"kill": 5, "terminate": 2, "stop": 3, "kill twice": 1, "kill all servers": 1}
NETWORK_KINDS = {"cut": 4, "half-open": 2, "delay": 1, "flip": 2, "refuse": 1}
# One of the two copies of a journal goes for good.
# "swap": the server's machine goes, its replica is promoted, and gets an empty replica of its own.
DISK_KINDS = {"lose disk": 3, "swap": 2}
KINDS = {"processes": PROCESS_KINDS, "network": NETWORK_KINDS, "disks": DISK_KINDS}
ENDING_KINDS = {"kill", "terminate", "kill twice", "kill all servers", *DISK_KINDS}
MAX_SECONDS = 4
SHARE_AT_ONCE = 0.2  # of the faults come while the one before is not over


@dataclasses.dataclass(frozen=True)
class Fault:
  """At which round, what, to which process or route."""
  round: int
  kind: str
  target: str
  seconds: float = 0.0  # that it lasts; of "kill twice": between the two
  place: float = 0.0  # which connection, or which bit of a tensor: 0 <= place < 1
  num_bytes: int = 0  # "cut": that still pass
  ways: str = ""  # "cut", "half-open": up, down or both
  is_at_once: bool = False  # without waiting for what the one before has done

  def __str__(self):
    details = {"stop": f" for {self.seconds:.1f} s", "delay": f" by {self.place * 100:.0f} ms a piece",
               "kill twice": f", {self.seconds:.1f} s between", "half-open": f" {self.ways}",
               "refuse": f" for {self.seconds:.1f} s", "cut": f" {self.ways} at byte {self.num_bytes}"}
    return f"{self.kind} {self.target}{details.get(self.kind, '')}"

  @property
  def row(self):
    """Of the table: kinds of faults that one promise is about."""
    if self.kind in ("kill all servers", "swap"):
      return self.kind
    if self.kind in NETWORK_KINDS:
      if ":replica" in self.target:
        return f"{self.kind}, to replicas"
      return f"{self.kind}, {'between servers' if self.target.startswith('server') else 'to workers'}"
    return f"{self.kind}, {self.target.rstrip('0123456789')}"

  @property
  def ends_server(self):
    return self.kind in ENDING_KINDS and self.target.startswith("server")


def may_come_together(faults):
  """Whether nobody has to decide afterwards what is lost: one copy of each journal stays, with its term."""
  disks = [fault for fault in faults if fault.kind in DISK_KINDS]
  if not disks:
    return True
  if len(disks) > 1:
    return False
  # A server takes back what it has lost, whatever ends meanwhile. One that starts while its replica is empty
  # cannot know whether others have gone on from what that had, and one that is promoted is so once.
  is_taken_back = disks[0].kind == "lose disk" and disks[0].ends_server
  return is_taken_back or not any(fault.ends_server for fault in faults if fault is not disks[0])


def draw_faults(seed, count, rounds_between, num_servers, num_workers, has_replicas=False,
                spare_lives=False, kinds=tuple(KINDS)):
  """Ascending by round.

  `spare_lives`: none that ends the life of a worker, and with it its part of the round at hand.
  `kinds`: of those alone, names in KINDS.
  """
  chance = random.Random(seed)
  shares = {}
  for name in kinds:
    shares.update(KINDS[name])
  if num_servers == 1:
    shares.pop("kill all servers", None)
  if not has_replicas:
    shares = {kind: share for kind, share in shares.items() if kind not in DISK_KINDS}
  servers = [f"server{i}" for i in range(num_servers)]
  workers = [f"worker{i}" for i in range(num_workers)]
  replicas = [f"replica{i}" for i in range(num_servers)] if has_replicas else []
  # A route is named FROM:TO.
  routes = [f"workers:{server}" for server in servers]
  routes += [f"{server}:server0" for server in servers[1:]]
  routes += [f"{server}:{replica}" for server, replica in zip(servers, replicas)]
  targets = {"swap": servers, "lose disk": servers + replicas, "kill all servers": ["servers"],
             **{kind: routes for kind in NETWORK_KINDS}}
  faults = []
  together = []  # the last ones
  while len(faults) < count:
    kind = chance.choices(list(shares), list(shares.values()))[0]
    seconds = chance.uniform(0.1, MAX_SECONDS)
    fault = Fault(
        round=rounds_between * (len(faults) + 1) + chance.randrange(rounds_between // 2),
        kind=kind, target=chance.choice(targets.get(kind, servers + workers + replicas)),
        seconds=seconds, place=chance.random(),
        num_bytes=chance.choice([0, 1, 8, 100, chance.randrange(1 << 15)]),
        ways=chance.choice(["up", "down", "both"] if kind == "half-open" else ["up", "down"]),
        is_at_once=bool(faults) and chance.random() < SHARE_AT_ONCE)
    if kind == "kill twice":  # the second in the first second of a start
      fault = dataclasses.replace(fault, seconds=seconds / MAX_SECONDS)
    elif kind == "refuse":
      fault = dataclasses.replace(fault, seconds=seconds / 4)
    if spare_lives:
      if fault.target in workers and kind in ("kill", "kill twice"):
        continue
      if kind == "half-open" and fault.target.startswith("workers:"):
        continue
      if fault.target in workers and kind == "stop":
        fault = dataclasses.replace(fault, seconds=seconds / 4)
    together = together + [fault] if fault.is_at_once else [fault]
    if not may_come_together(together):
      fault = dataclasses.replace(fault, is_at_once=False)
      together = [fault]
    faults.append(fault)
  return faults
