# SPDX-License-Identifier: Apache-2.0
"""How long the dashboard takes for an update, in a headless Chromium: script, style and layout.

  dashboard.py --page=common/http/dashboard.html

Prints Markdown. The page is given what a server would send: many workers half of which are missing from the
open round, and the longest history that a server keeps, spread over a week.
"""

import argparse
import pathlib
import statistics

from selenium import webdriver
from selenium.webdriver.common.by import By

WORKERS = 64
MANY_WORKERS = 10_000
SHARDS = 4
# server/status/history_recorder.h: kMaxPoints, kMaxEvents.
MAX_POINTS = 2048
MAX_EVENTS = 512
WEEK_SECONDS = 7 * 24 * 3600
SECONDS_A_ROUND = 0.5
SAMPLES_A_ROUND = 2048
MAX_WORKER_ROWS = 50  # common/http/dashboard.html: maxWorkerRows
UPDATES = 100
MANY_UPDATES = 10
LIMIT_MS = 100


def status(round_, num_workers=WORKERS):
  workers = [{
      "name": f"worker-{i}", "state": "member", "activity": "computing", "round": round_, "staleness": 0,
      "samples_per_second": 60 + i, "push_bytes_per_second": 3.2e7, "pull_bytes_per_second": 3.1e7,
      "compute_share": 0.7, "communication_share": 0.2, "wait_share": 0.1, "exposed_seconds_per_round": 0.4, "lease_age_seconds": 0.4,
      "device": "CPU, 32 threads",
  } for i in range(num_workers)]
  shards = [{
      "shard": i, "address": f"10.0.0.{i}:7070", "state": "serving", "version": round_, "weight_bytes": 4e8,
      "resident_bytes": 2e9, "bytes_received": 1e13, "bytes_sent": 1e13, "contributions_counted": 3e7,
      "contributions_late": 10, "contributions_rejected": 1, "journal_bytes": 4e8,
  } for i in range(SHARDS)]
  arrived, missing = workers[:num_workers // 2], workers[num_workers // 2:]
  return {
      "job": {"mode": "MODE_SYNC", "model": {"name": "gpt"}}, "state": "training", "num_parameters": 10**8,
      "software_version": "1", "round": round_, "total_rounds": 2 * round_, "learning_rate": 0.1,
      "train_loss": 2.1, "heldout_loss": 2.2, "samples_per_second": SAMPLES_A_ROUND / SECONDS_A_ROUND,
      "uptime_seconds": WEEK_SECONDS, "eta_seconds": WEEK_SECONDS, "workers": workers, "shards": shards,
      "open_round": {
          "round": round_, "age_seconds": 1, "arrived": [worker["name"] for worker in arrived],
          "missing": [{"worker": worker["name"], "what": "computes its gradient", "seconds_left": 30}
                      for worker in missing],
      },
  }


def history():
  rounds = [i * WEEK_SECONDS / SECONDS_A_ROUND / MAX_POINTS for i in range(MAX_POINTS)]
  curve = {
      "round": rounds, "samples": [round_ * SAMPLES_A_ROUND for round_ in rounds],
      "seconds": [round_ * SECONDS_A_ROUND for round_ in rounds],
      "loss": [2 + 3 / (1 + i) + 0.05 * (i * 7919 % 101) / 101 for i in range(MAX_POINTS)],
      "learning_rate": [0.001 / (1 + i) for i in range(MAX_POINTS)],
  }
  events = [{"time": 1.7e9 + i, "text": f"worker ended name=worker-{i % WORKERS} worker={i} reason=no sign of life for 3 s",
             "alarm": i % 7 == 0} for i in range(MAX_EVENTS)]
  settings = {f"flag_{i}": str(i) for i in range(50)}
  return {"trained": curve, "heldout": curve, "events": events, "loss_unit": "bits/byte", "settings": settings}


# In each history the oldest event is gone and another has come. Reading a height makes the browser lay the page out before the clock is read again.
MEASURE = """
const [statuses, history] = arguments;
const took = (update) => {
  const begin = performance.now();
  update();
  void document.body.offsetHeight;
  return performance.now() - begin;
};
return statuses.map((status, i) => {
  const events = [...history.events.slice(1), {...history.events[0], time: 1.8e9 + i}];
  history.events = events;
  return [took(() => showStatus(status)), took(() => { curves = {...history}; showHistory(); })];
});
"""


def check_shown(browser):
  """Raises unless the page shows what it was given."""
  shown = {
      "workers": len(browser.find_elements(By.CSS_SELECTOR, "#workers tbody tr")),
      "events": len(browser.find_elements(By.CSS_SELECTOR, "#events li")),
      "points": len(browser.find_element(By.CSS_SELECTOR, "#loss polyline.train").get_attribute("points").split(" ")),
  }
  wanted = {"workers": MAX_WORKER_ROWS, "events": MAX_EVENTS, "points": MAX_POINTS}
  if shown != wanted:
    raise SystemExit(f"the page shows {shown}, not {wanted}: was it changed? Then change this benchmark")


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--page", required=True, type=pathlib.Path)
  page = parser.parse_args().page.resolve()

  options = webdriver.ChromeOptions()
  for argument in ("--headless=new", "--no-sandbox", "--window-size=1280,1600"):
    options.add_argument(argument)
  browser = webdriver.Chrome(options=options)
  try:
    browser.get(page.as_uri())
    first = round(WEEK_SECONDS / SECONDS_A_ROUND)
    times_ms = browser.execute_script(MEASURE, [status(first + i) for i in range(UPDATES)], history())
    check_shown(browser)
    many_ms = browser.execute_script(MEASURE, [status(first + i, MANY_WORKERS) for i in range(MANY_UPDATES)], history())
    version = browser.capabilities["browserVersion"]
  finally:
    browser.quit()

  print(f"Chromium {version}, {WORKERS} workers or {MANY_WORKERS}, {MAX_POINTS} points of each curve over a week, {MAX_EVENTS} events; "
        f"{UPDATES} updates, {MANY_UPDATES} of many workers; limit: {LIMIT_MS} ms.\n")
  print("| update | median, ms | slowest, ms | median / limit |")
  print("| --- | --- | --- | --- |")
  for name, values in (("status", [status_ms for status_ms, _ in times_ms]),
                       ("history", [history_ms for _, history_ms in times_ms]),
                       (f"status of {MANY_WORKERS} workers", [status_ms for status_ms, _ in many_ms])):
    median = statistics.median(values)
    print(f"| {name} | {median:.1f} | {max(values):.1f} | {median / LIMIT_MS:.0%} |")


if __name__ == "__main__":
  main()
