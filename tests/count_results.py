# SPDX-License-Identifier: Apache-2.0
"""Prints "N passed, N failed, N skipped" for a file of bazel's build events (JSON lines).

Usage: count_results.py EVENTS_FILE BAZEL_EXIT_CODE RULE_FAILURES OTHER_RESULTS_FILE

Counts test targets, plus one for the dependency rule over the build graph, which failed if
RULE_FAILURES is not 0, plus one for the build if it failed, plus the lines "OUTCOME LABEL" of
OTHER_RESULTS_FILE. A target that was not built, or had no turn before the end, has failed. Exit
code 1 if anything failed.
"""

import json
import sys

TESTS_FAILED = 3  # bazel's exit code when everything was built


def outcomes(events_file):
    """label -> "passed", "failed" or "skipped", of every test target that bazel looked at."""
    result = {}
    for line in events_file:
        event = json.loads(line)
        kind, name = next(iter(event["id"].items()))
        label = name.get("label")
        if kind == "targetConfigured" and event.get("configured", {}).get("testSize"):
            result.setdefault(label, "failed")
        elif kind == "targetCompleted" and event.get("aborted", {}).get("reason") == "SKIPPED":
            if label in result:
                result[label] = "skipped"
        elif kind == "testSummary":
            is_good = event["testSummary"].get("overallStatus") in ("PASSED", "FLAKY")
            result[label] = "passed" if is_good else "failed"
    return result


def main():
    events_path, bazel_exit_code, rule_failures = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    try:
        with open(events_path, encoding="utf-8") as events_file:
            targets = outcomes(events_file)
    except OSError:
        targets = {}
    targets["the dependency rule over the build graph"] = "failed" if rule_failures else "passed"
    if bazel_exit_code not in (0, TESTS_FAILED):
        targets[f"the build (bazel exit code {bazel_exit_code})"] = "failed"
    with open(sys.argv[4], encoding="utf-8") as lines:
        targets.update(reversed(line.split(maxsplit=1)) for line in lines.read().splitlines())
    results = list(targets.values())
    for label, outcome in sorted(targets.items()):
        if outcome == "failed":
            print(f"FAILED {label}")
    print(", ".join(f"{results.count(o)} {o}" for o in ("passed", "failed", "skipped")))
    return 1 if "failed" in results else 0


if __name__ == "__main__":
    sys.exit(main())
