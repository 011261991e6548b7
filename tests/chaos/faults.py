"""What is done to a cluster, and when: chosen by a seed, before anything runs. Pure."""
import dataclasses
import random

# Shares of all faults.
PROCESS_KINDS = {"kill": 5, "terminate": 2, "stop": 3, "kill twice": 1, "kill all servers": 1}
NETWORK_KINDS = {"cut": 4, "half-open": 2, "delay": 1, "flip": 2, "refuse": 1}
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
    if self.kind == "kill all servers":
      return self.kind
    if self.kind in NETWORK_KINDS:
      return f"{self.kind}, {'between servers' if self.target.startswith('server') else 'to workers'}"
    return f"{self.kind}, {self.target.rstrip('0123456789')}"


def draw_faults(seed, count, rounds_between, num_servers, num_workers, spare_lives):
  """Ascending by round.

  `spare_lives`: none that ends the life of a worker, and with it its part of the round at hand.
  """
  chance = random.Random(seed)
  kinds = {**PROCESS_KINDS, **NETWORK_KINDS}
  if num_servers == 1:
    del kinds["kill all servers"]
  servers = [f"server{i}" for i in range(num_servers)]
  workers = [f"worker{i}" for i in range(num_workers)]
  # A route is named FROM:TO.
  routes = [f"workers:{server}" for server in servers]
  routes += [f"{server}:server0" for server in servers[1:]]
  faults = []
  while len(faults) < count:
    kind = chance.choices(list(kinds), list(kinds.values()))[0]
    target = chance.choice(servers + workers)
    route = chance.choice(routes)
    seconds = chance.uniform(0.1, MAX_SECONDS)
    fault = Fault(
        round=rounds_between * (len(faults) + 1) + chance.randrange(rounds_between // 2),
        kind=kind, target=route if kind in NETWORK_KINDS else target, seconds=seconds,
        place=chance.random(), num_bytes=chance.choice([0, 1, 8, 100, chance.randrange(1 << 15)]),
        ways=chance.choice(["up", "down", "both"] if kind == "half-open" else ["up", "down"]),
        is_at_once=bool(faults) and chance.random() < SHARE_AT_ONCE)
    if kind == "kill all servers":
      fault = dataclasses.replace(fault, target="servers")
    elif kind == "kill twice":  # the second in the first second of a start
      fault = dataclasses.replace(fault, seconds=seconds / MAX_SECONDS)
    elif kind == "refuse":
      fault = dataclasses.replace(fault, seconds=seconds / 4)
    if spare_lives:
      if fault.target in workers and kind in ("kill", "kill twice"):
        continue
      if kind == "half-open" and route.startswith("workers:"):
        continue
      if fault.target in workers and kind == "stop":
        fault = dataclasses.replace(fault, seconds=seconds / 4)
    faults.append(fault)
  return faults
