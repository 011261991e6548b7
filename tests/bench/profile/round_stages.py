# SPDX-License-Identifier: Apache-2.0
"""Reads the traces that --trace writes: how long each stage was busy in each round."""

import collections
import json
import statistics

# Spans around others: their time is that of the stages within.
ROUND = "round"


class Trace:
    """Spans of one process: lane and name -> round -> [(begin, end), ...] in milliseconds."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        self.process = next(e["args"]["name"] for e in events if e["name"] == "process_name")
        self._spans = {}
        for event in events:
            if event["ph"] != "X":
                continue
            begin = event["ts"] / 1000
            rounds = self._spans.setdefault((event["cat"], event["name"]), collections.defaultdict(list))
            rounds[event["args"]["round"]].append((begin, begin + event["dur"] / 1000))

    def stages(self):
        return self._spans.keys()

    def rounds(self, stage):
        return set(self._spans[stage])

    def count(self, stage, number):
        return len(self._spans[stage].get(number, []))

    def busy(self, stage, number):
        """Milliseconds in which at least one span of the stage was under way."""
        total, reached = 0.0, float("-inf")
        for begin, end in sorted(self._spans[stage].get(number, [])):
            total += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return total


def whole_rounds(worker, servers):
    """Rounds that the worker has traced, and that every server has traced with all its buckets."""
    rounds = worker.rounds(("training", ROUND))
    for server in servers:
        for stage in server.stages():
            most = max(server.count(stage, number) for number in server.rounds(stage))
            rounds = {r for r in rounds if server.count(stage, r) == most}
    return sorted(rounds)


def table(worker, servers):
    """Rows (process, lane, stage, times by round, share of the round), longest first in each lane."""
    numbers = whole_rounds(worker, servers)
    if not numbers:
        raise ValueError("no round is whole in all traces: trace more rounds")
    length = statistics.median(worker.busy(("training", ROUND), n) for n in numbers)
    rows = []
    for trace in [worker, *servers]:
        lanes = list(dict.fromkeys(lane for lane, _ in trace.stages()))
        stages = [(stage, [trace.busy(stage, n) for n in numbers]) for stage in trace.stages()]
        stages.sort(key=lambda s: (lanes.index(s[0][0]), -statistics.median(s[1])))
        for (lane, name), times in stages:
            rows.append((trace.process, lane, name, times, statistics.median(times) / length))
    return numbers, rows
