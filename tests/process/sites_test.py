#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Sites: servers that with their workers are one worker of other servers."""
import contextlib
import json
import os
import re
import signal

import cluster_processes
from cluster_processes import BINARIES, ReservedPort, members_of, wait_until, worker_in

LOCAL_STEPS = 4
BATCH = 4


class SitesTest(cluster_processes.ClusterTestCase):

  def start_root(self, port=0, **flags):
    settings = {"mode": "local_sgd", "local_steps": LOCAL_STEPS, "outer_optimizer": "average",
                "batch_size": BATCH, "min_workers": 2, **flags}
    root = self.start_server(port=port, name="root", **settings)
    self.root_port = self.port
    return root

  def site_command(self, port=0, upstream=None, **flags):
    settings = {"listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{upstream or self.root_port}",
                "site_name": "berlin", "min_workers": 2, "lease": "2s",
                "metrics_out": self.path("site.jsonl"), **flags}
    return [BINARIES["ps_server"]] + [f"--{name}={value}" for name, value in settings.items()
                                      if value is not None]

  def start_site(self, port=0, **flags):
    """The site's server, once it listens; self.site_port is its port then."""
    port_file = self.path("site_port")
    if os.path.exists(port_file):
      os.remove(port_file)
    command = self.site_command(port, **flags) + ["--port_file=" + port_file]
    site = self.start(command, "site")
    wait_until(lambda: os.path.exists(port_file) or not site.is_running(), self.logs)
    self.assertTrue(site.is_running(), self.logs())
    with open(port_file, encoding="ascii") as file:
      self.site_port = int(file.read())
    return site

  @contextlib.contextmanager
  def at(self, port):
    """Workers and psctl go there."""
    before, self.port = self.port, port
    try:
      yield
    finally:
      self.port = before

  def start_workers_of_site(self, *names):
    with self.at(self.site_port):
      return [self.start_worker(name) for name in names]

  def status_of_site(self, condition, what):
    with self.at(self.site_port):
      return self.wait_for_status(condition, what)

  def site_metrics(self):
    with open(self.path("site.jsonl"), encoding="utf-8") as file:
      return [json.loads(line) for line in file.read().split("\n")[:-1]]

  def test_a_site_and_a_worker_train_to_the_end_and_no_sample_counts_twice(self):
    rounds = 6
    root = self.start_root(rounds=rounds, eval_every=2)
    site = self.start_site()
    workers = self.start_workers_of_site("a", "b")
    status = self.status_of_site(
        lambda status: status["state"] == "waiting_for_upstream" and
        "1 more worker" in status["open_round"]["waiting_for"], "the reason upstream")
    self.assertEqual(status["upstream"], f"127.0.0.1:{self.root_port}")
    direct = self.start_worker("direct")
    for process in (root, site, *workers, direct):
      self.assert_ends(process)
    of_site = rounds * LOCAL_STEPS * BATCH
    # The direct worker has as many.
    self.assertEqual(self.metrics()[-1]["samples"], 2 * of_site)
    trained = [line for line in self.site_metrics() if line["heldout_loss"] is None]
    self.assertEqual(trained[-1]["samples"], of_site)
    self.assertEqual(len(trained), rounds * LOCAL_STEPS)
    evaluated = [line for line in self.metrics() if line["heldout_loss"] is not None]
    self.assertEqual(len(evaluated), 3)

  def test_a_killed_worker_of_a_site_costs_its_part_of_the_step(self):
    root = self.start_root(min_workers=1)
    site = self.start_site(keep_workers=1)
    kept, killed = self.start_workers_of_site("a", "b")
    with self.at(self.site_port):
      self.wait_for_round(8, workers=2)
    killed.kill()
    status = self.status_of_site(lambda status: members_of(status) == ["a"], "b to be out")
    with self.at(self.site_port):
      self.wait_for_round(int(status["round"]) + 8)
    self.stop_job(root, site, kept)
    # Whatever the workers of the site have handed in, and no more, counts at the root.
    self.assertEqual(self.metrics()[-1]["samples"], self.site_metrics()[-1]["samples"])

  def test_a_site_that_is_started_again_goes_on_with_its_workers(self):
    root = self.start_root(keep_workers=1)
    with contextlib.closing(ReservedPort()) as port:
      folder = self.path("site_checkpoints")
      site = self.start_site(port.number, checkpoint_dir=folder, checkpoint_interval=0, checkpoint_every=8)
      workers = self.start_workers_of_site("a", "b")
      direct = self.start_worker("direct")
      self.wait_for_round(6, workers=2)
      self.status_of_site(lambda status: "last_checkpoint" in status, "a checkpoint of the site")
      site.kill()
      self.wait_for_status(lambda status: members_of(status) == ["direct"], "the site to be out")
      site = self.start_site(port.number, checkpoint_dir=folder, checkpoint_interval=0, checkpoint_every=8)
      site.wait_for_log("resumes")
      before = int(self.wait_for_status(lambda status: "berlin" in members_of(status),
                                        "the site to be back")["round"])
      self.wait_for_round(before + 4, workers=2)
      self.stop_job(root, site, direct, *workers)

  def test_a_site_waits_for_its_upstream_and_says_so(self):
    with contextlib.closing(ReservedPort()) as port:
      journal = {"checkpoint_dir": self.path("checkpoints"), "durability": "journal"}
      root = self.start_root(port.number, **journal)
      site = self.start_site()
      workers = self.start_workers_of_site("a", "b")
      direct = self.start_worker("direct")
      before = int(self.wait_for_round(3, workers=2)["round"])
      root.kill()
      upstream = f"waits for upstream 127.0.0.1:{port.number}: "
      self.status_of_site(lambda status: upstream in status["open_round"]["waiting_for"],
                          "the reason that the site waits")
      root = self.start_root(port.number, **journal)
      self.wait_for_round(before + 3, workers=2)
      self.stop_job(root, site, direct, *workers)

  def test_a_site_computes_on_while_a_root_whose_exchanges_overlap_is_away(self):
    window, overlap, rounds = 200, 100, 6
    root = self.start_root(local_steps=window, overlap_steps=overlap, min_workers=1, lease="60s", rounds=rounds)
    site = self.start_site()
    workers = self.start_workers_of_site("a", "b")
    self.wait_for_round(2)
    root.send(signal.SIGSTOP)
    # Between two steps it waits for a moment, too.
    self.status_of_site(
        lambda status: "waits for upstream" in status["open_round"]["waiting_for"] and
        status["open_round"].get("is_held_up"), "the site to need its root")
    # At the step that the weights of the last exchange are merged before.
    self.assertEqual(len(self.site_metrics()) % window, overlap)
    root.send(signal.SIGCONT)
    for process in (root, site, *workers):
      self.assert_ends(process)
    # The last round has nothing to compute.
    steps = (rounds - 1) * window
    self.assertEqual(self.metrics()[-1]["samples"], steps * BATCH)
    trained = [line for line in self.site_metrics() if line["heldout_loss"] is None]
    self.assertEqual(len(trained), steps)
    self.assertEqual(trained[-1]["samples"], steps * BATCH)

  def test_a_site_that_is_told_to_stop_hands_in_what_there_is(self):
    # A window that does not end while the test lasts.
    root = self.start_root(local_steps=100_000, min_workers=1)
    site = self.start_site(stop_timeout="20s")
    workers = self.start_workers_of_site("a", "b")
    with self.at(self.site_port):
      self.wait_for_round(5)
    site.send(signal.SIGTERM)
    self.assertEqual(site.wait(), 128 + signal.SIGTERM, self.logs())
    self.assertIn("everything that was computed is delivered", site.log())
    steps = len(self.site_metrics())
    status = self.wait_for_status(lambda status: int(status.get("trained_samples", 0)) > 0, "the part")
    self.assertEqual(int(status["trained_samples"]), steps * BATCH)
    self.assertEqual(worker_in(status, "berlin")["state"], "left")
    for worker in workers:
      worker.kill()  # they wait for the site to come back
    self.stop_job(root)

  def test_a_site_that_is_told_to_stop_makes_the_rest_of_a_window_that_it_has_time_for(self):
    steps = 300
    root = self.start_root(local_steps=steps, min_workers=1)
    # Time for the window also on a machine whose steps take a second.
    site = self.start_site(stop_timeout="10m")
    workers = self.start_workers_of_site("a", "b")
    with self.at(self.site_port):
      self.wait_for_round(5)
    site.send(signal.SIGTERM)
    self.assertEqual(site.wait(), 128 + signal.SIGTERM, self.logs())
    status = self.wait_for_status(lambda status: int(status.get("trained_samples", 0)) > 0, "the window")
    self.assertEqual(int(status["trained_samples"]), len(self.site_metrics()) * BATCH)
    self.assertEqual(len(self.site_metrics()) % steps, 0)
    for worker in workers:
      worker.kill()  # they wait for the site to come back
    self.stop_job(root)

  def test_a_stopped_site_leaves_and_the_others_go_on(self):
    root = self.start_root(keep_workers=1)
    site = self.start_site()
    workers = self.start_workers_of_site("a", "b")
    direct = self.start_worker("direct")
    self.wait_for_round(3, workers=2)
    with self.at(self.site_port):
      stopped = self.psctl("stop")
      self.assertEqual(stopped.returncode, 0, stopped.stderr)
    for process in (site, *workers):
      self.assert_ends(process)
    before = int(self.wait_for_status(lambda status: members_of(status) == ["direct"],
                                      "the site to have left")["round"])
    self.wait_for_round(before + 3)
    self.stop_job(root, direct)

  def test_a_site_joins_a_cluster_with_tls_and_sends_encoded(self):
    root = self.start_root(tls=True, state_dir=self.path("root_state"), rounds=3, min_workers=1,
                           push_encoding="int4", pull_encoding="int8")
    created = self.psctl("token", "create", "--state_dir=" + self.path("root_state"))
    self.assertEqual(created.returncode, 0, created.stderr)
    join = re.search(r"lodestar://\S+", created.stdout).group()
    site = self.start_site(upstream_join=join, state_dir=self.path("site_state"))
    site.wait_for_log("enrolled as worker berlin")
    for process in (root, site, *self.start_workers_of_site("a", "b")):
      self.assert_ends(process)
    self.assertEqual(self.metrics()[-1]["workers"], 1)

  def test_starts_before_its_upstream_and_refuses_what_contradicts_it(self):
    with contextlib.closing(ReservedPort()) as port:
      site = self.start(self.site_command(upstream=port.number), "early_site")
      site.wait_for_log(f"waits for upstream 127.0.0.1:{port.number}")
      root = self.start_root(port.number)
      site.wait_for_log("it is worker 'berlin'")
      site.send(signal.SIGTERM)
      site.wait()
    refused = self.start(self.site_command(learning_rate=0.5, site_name="paris"), "refused")
    self.assertEqual(refused.wait(), 1)
    self.assertIn("--learning_rate=0.5 contradicts 0.001 upstream", refused.log())
    for flags, code, words in (({"durability": "journal", "checkpoint_dir": self.path("c")}, 2,
                                "--durability=journal contradicts --upstream"),
                               ({"shard": "0/2"}, 2, "--shard=0/2 contradicts --upstream"),
                               ({"local_steps": 3}, 2, "--local_steps=3 has no meaning with --mode=sync")):
      refused = self.start(self.site_command(**flags), "refused")
      self.assertEqual(refused.wait(), code)
      self.assertIn(words, refused.log())
    root.kill()


if __name__ == "__main__":
  cluster_processes.main()
