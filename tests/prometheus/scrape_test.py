#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Prometheus scrapes a job that trains: see run.sh."""
import contextlib
import json
import os
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import cluster_processes
from cluster_processes import PATIENCE_SECONDS, ReservedPort, wait_until

CONFIG = """
global: {{scrape_interval: 1s}}
rule_files: ['{rules}']
scrape_configs:
  - job_name: lodestar
    static_configs: [{{targets: ['{target}']}}]
"""
# A Prometheus on another machine has this configuration, from docs/howto/monitoring.md.
TLS_CONFIG = CONFIG + """
    scheme: https
    authorization: {{credentials_file: '{token}'}}
    tls_config: {{ca_file: '{authority}', server_name: lodestar}}
"""


class ScrapeTest(cluster_processes.ClusterTestCase):

  def query(self, expression):
    """The value of the one series that `expression` has; none: there is none."""
    url = f"{self.prometheus}/api/v1/query?query=" + urllib.parse.quote(expression)
    try:
      with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        series = json.load(answer)["data"]["result"]
    except (urllib.error.URLError, ConnectionError):
      return None  # it starts
    return float(series[0]["value"][1]) if series else None

  @contextlib.contextmanager
  def scraping(self, config, **settings):
    """Prometheus, from here on; its port is nobody else's meanwhile."""
    self.write("prometheus.yml", config.format(rules=os.path.abspath("deploy/prometheus/lodestar.rules.yml"), **settings))
    with contextlib.closing(ReservedPort()) as port:
      self.prometheus = f"http://127.0.0.1:{port.number}"
      self.start(["prometheus", "--config.file=" + self.path("prometheus.yml"), f"--web.listen-address=127.0.0.1:{port.number}",
                  "--storage.tsdb.path=" + self.path("series")], "prometheus")
      yield

  def test_prometheus_shows_a_token_to_pages_for_other_machines(self):
    state = self.path("state")
    server = self.start_server(rounds=100_000, min_workers=1, http="0.0.0.0:0", tls="true", state_dir=state)
    server.wait_for_log("dashboard=")
    target = "127.0.0.1:" + re.search(r"dashboard=https://\S+:(\d+)/", server.log()).group(1)
    token = subprocess.run([cluster_processes.BINARIES["psctl"], "token", "create", "--role=viewer",
                            f"--server=127.0.0.1:{self.port}", "--state_dir=" + state],
                           capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    self.write("token", token.stdout)
    with self.scraping(TLS_CONFIG, target=target, token=self.path("token"),
                       authority=os.path.join(state, "server-0", "authority.pem")):
      wait_until(lambda: self.query('up{job="lodestar"}') == 1, self.logs)
      self.assertEqual(self.query("lodestar_round"), 0)
      token_id = token.stdout.split("/L1")[1].split(".")[1]
      subprocess.run([cluster_processes.BINARIES["psctl"], "token", "revoke", token_id,
                      f"--server=127.0.0.1:{self.port}", "--state_dir=" + state],
                     check=True, capture_output=True, timeout=PATIENCE_SECONDS)
      wait_until(lambda: self.query('up{job="lodestar"}') == 0, self.logs)
    server.kill()

  def test_prometheus_reads_what_a_job_does(self):
    server = self.start_server(rounds=100_000, min_workers=1, http="127.0.0.1:0")
    server.wait_for_log("dashboard=")
    url = re.search(r"dashboard=(\S+)", server.log()).group(1)
    worker = self.start_worker("a")
    self.wait_for_round(2)
    with urllib.request.urlopen(url + "metrics", timeout=PATIENCE_SECONDS) as answer:
      checked = subprocess.run(["promtool", "check", "metrics"], input=answer.read(), capture_output=True, check=False)
    self.assertEqual((checked.returncode, checked.stderr), (0, b""), checked.stdout)

    with self.scraping(CONFIG, target=url[len("http://"):-1]):
      wait_until(lambda: (self.query("lodestar_round") or 0) >= 2, self.logs)
    self.assertEqual(self.query('lodestar_workers{state="member"}'), 1)
    self.assertEqual(self.query('up{job="lodestar"}'), 1)
    server.kill()
    wait_until(lambda: self.query('up{job="lodestar"}') == 0, self.logs)
    worker.kill()


if __name__ == "__main__":
  cluster_processes.main()
