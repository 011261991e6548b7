# SPDX-License-Identifier: Apache-2.0
"""Tables from traces made up here."""

import json
import os
import tempfile
import unittest

import round_stages


def span(lane, name, number, begin_ms, end_ms):
    return {"ph": "X", "cat": lane, "name": name, "ts": begin_ms * 1000, "dur": (end_ms - begin_ms) * 1000,
            "args": {"round": number}}


def trace(process, spans):
    events = [{"ph": "M", "name": "process_name", "args": {"name": process}}, *spans]
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump({"traceEvents": events}, file)
    try:
        return round_stages.Trace(file.name)
    finally:
        os.unlink(file.name)


def worker():
    return trace("worker a", [span("training", "round", r, 100 * r, 100 * r + 50) for r in (2, 3, 4)] +
                 [span("training", "backward", r, 100 * r + 10, 100 * r + 30) for r in (2, 3, 4)])


class RoundStagesTest(unittest.TestCase):
    def test_time_in_which_spans_overlap_counts_once(self):
        server = trace("server 0", [span("shard", "apply", 2, 0, 10), span("shard", "apply", 2, 5, 12),
                                    span("shard", "apply", 2, 20, 21)])
        self.assertAlmostEqual(server.busy(("shard", "apply"), 2), 13)
        self.assertAlmostEqual(server.busy(("shard", "apply"), 3), 0)

    def test_rounds_that_a_server_saw_in_part_do_not_count(self):
        server = trace("server 0", [span("shard", "apply", r, 100 * r, 100 * r + 2) for r in (2, 3, 3, 4, 4)])
        numbers, rows = round_stages.table(worker(), [server])
        self.assertEqual(numbers, [3, 4])
        self.assertEqual([(row[0], row[2]) for row in rows],
                         [("worker a", "round"), ("worker a", "backward"), ("server 0", "apply")])
        self.assertAlmostEqual(rows[1][4], 0.4)

    def test_no_common_round_is_an_error(self):
        server = trace("server 0", [span("shard", "apply", 9, 0, 1)])
        with self.assertRaisesRegex(ValueError, "trace more rounds"):
            round_stages.table(worker(), [server])


if __name__ == "__main__":
    unittest.main()
