#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""What ps_server --http serves of a job that trains, loses a worker and ends."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import cluster_processes
from cluster_processes import BINARIES, PATIENCE_SECONDS, alarms_in, wait_until


class DashboardTest(cluster_processes.ClusterTestCase):

  def start_with_pages(self, **flags):
    server = self.start_server(**{"http": "127.0.0.1:0", **flags})
    server.wait_for_log("dashboard=")
    self.url = re.search(r"dashboard=(\S+)", server.log()).group(1)
    return server

  def get(self, path, host=None):
    """Status code and body."""
    request = urllib.request.Request(self.url + path, headers={"Host": host} if host else {})
    try:
      with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
      return error.code, error.read().decode()

  def kept_history(self, folder, *flags):
    """What psctl prints, which needs no server."""
    shown = subprocess.run([BINARIES["psctl"], "history", folder, *flags], capture_output=True, text=True,
                           timeout=PATIENCE_SECONDS, check=False)
    self.assertEqual(shown.returncode, 0, shown.stderr)
    return shown.stdout

  def history(self):
    return json.loads(self.get("api/history")[1])

  def assert_documented(self, metrics):
    """The page of metrics names all of them, and the board and the rules for alerts no others."""
    served = set(re.findall(r"^# TYPE (lodestar_\w+) ", metrics, re.MULTILINE))
    with open("docs/reference/metrics.md", encoding="ascii") as page:
      documented = set(re.findall(r"^\| `(lodestar_\w+)`", page.read(), re.MULTILINE))
    self.assertEqual(served - documented, set())
    # These are of programs and models of another kind.
    self.assertLessEqual(documented - served, {"lodestar_program_metric", "lodestar_heldout_accuracy_ratio"})
    for path in ("deploy/grafana/lodestar.json", "deploy/prometheus/lodestar.rules.yml"):
      with open(path, encoding="ascii") as file:
        self.assertLessEqual(set(re.findall(r"lodestar_\w+", file.read())), served, path)

  def test_pages_show_what_the_job_does(self):
    server = self.start_with_pages(rounds=5000, min_workers=2, keep_workers=1, lease="2s", eval_every=2,
                                   checkpoint_dir=self.path("kept"), checkpoint_interval=0, checkpoint_every=5)
    self.assertEqual(self.get("healthz"), (200, "ok\n"))
    workers = [self.start_worker(name) for name in ("a", "b")]
    self.wait_for_round(6, workers=2)
    self.wait_for_status(lambda status: status.get("last_checkpoint", {}).get("path"), "a checkpoint")
    self.assertEqual(self.get("readyz"), (200, "ok\n"))
    self.assertIn("<title>Lodestar</title>", self.get("")[1])
    status = json.loads(self.get("statusz?format=json")[1])
    self.assertEqual({worker["name"] for worker in status["workers"]}, {"a", "b"})
    self.assertIn("job       sync", self.get("statusz")[1])
    metrics = self.get("metrics")[1]
    self.assertIn('lodestar_workers{state="member"} 2\n', metrics)
    self.assert_documented(metrics)
    self.assertGreaterEqual(int(re.search(r"^lodestar_round (\d+)$", metrics, re.MULTILINE).group(1)), 6)
    history = self.history()
    self.assertGreaterEqual(len(history["trained"]["loss"]), 6)
    self.assertGreaterEqual(len(history["heldout"]["loss"]), 2)
    self.assertEqual(history["trained"]["round"], list(range(len(history["trained"]["round"]))))
    self.assertEqual(history["tokens_per_sample"], 16)  # the context of the model
    self.assertEqual(len(history["trained"]["learning_rate"]), len(history["trained"]["loss"]))
    self.assertGreater(history["trained"]["learning_rate"][-1], 0)
    self.assertEqual(history["loss_unit"], "bits/byte")  # its tokens are bytes
    self.assertLessEqual({"model": "tiny", "mode": "sync", "rounds": "5000", "eval_every": "2"}.items(), history["settings"].items())
    self.assertNotIn("local_steps", history["settings"], "it has no effect in this mode")
    shown = json.loads(self.psctl("history", "--json").stdout)
    for name in ("tokens_per_sample", "loss_unit", "settings"):
      self.assertEqual(shown[name], history[name], name)
    self.assertEqual(shown["trained"]["learning_rate"][:6], history["trained"]["learning_rate"][:6])

    workers[1].kill()
    wait_until(lambda: any("name=b " in event["text"] and "its process has ended" in event["text"]
                           for event in self.history()["events"]), self.logs)
    self.assertIn('lodestar_workers{state="member"} 1\n', self.get("metrics")[1])
    self.stop_job(server, workers[0])

  def test_runs_of_the_same_folder_are_there_with_and_without_a_server(self):
    for name in ("first", "second"):
      server = self.start_with_pages(rounds=6, metrics_out=None, checkpoint_dir=self.path("runs", name))
      listed = json.loads(self.get("api/runs")[1])
      self.assertEqual([run["name"] for run in listed["runs"]], ["first"] if name == "second" else [])
      if name == "second":
        code, text = self.get("api/runs/history?name=first")
        self.assertEqual(code, 200, text)
        self.assertEqual(json.loads(text)["trained"]["round"], list(range(6)))
        self.assertEqual(json.loads(text)["tokens_per_sample"], 16)
        self.assertEqual(json.loads(text)["settings"]["rounds"], "6")
        self.assertEqual(self.get("api/runs/history?name=../runs/first")[0], 404)
      self.assert_ends(self.start_worker("a"))
      self.assert_ends(server)

    served = self.start([BINARIES["psctl"], "serve", self.path("runs", "first")], "serve")
    served.wait_for_log("http://")
    self.url = served.log().strip()
    self.assertIn("<!DOCTYPE html>", self.get("")[1])
    self.assertEqual(self.history()["trained"]["round"], list(range(6)))
    self.assertEqual([run["name"] for run in json.loads(self.get("api/runs")[1])["runs"]], ["second"])
    self.assertEqual(self.get("api/runs", host="elsewhere.example")[0], 403)
    taken = subprocess.run([BINARIES["psctl"], "serve", self.path("runs", "second"), "--http=" + self.url[7:-1]],
                           capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    self.assertEqual(taken.returncode, 1)
    self.assertIn("give another --http", taken.stderr)
    served.send(signal.SIGTERM)
    self.assert_ends(served)

  def test_curves_outlive_the_server(self):
    kept = self.path("kept")
    server = self.start_with_pages(rounds=5000, min_workers=1, checkpoint_dir=kept)
    worker = self.start_worker("a")
    self.wait_for_round(6)
    server.send(signal.SIGTERM)  # saves
    server.wait()
    before = json.loads(self.kept_history(kept, "--json"))
    self.assertGreaterEqual(len(before["trained"]["loss"]), 6)
    server = self.start_with_pages(port=self.port, rounds=5000, min_workers=1, checkpoint_dir=kept)
    self.wait_for_round(before["trained"]["round"][-1] + 5)
    after = self.history()
    self.assertEqual(after["trained"]["round"], list(range(len(after["trained"]["round"]))))
    num_before = len(before["trained"]["loss"])
    for column in ("loss", "learning_rate"):
      self.assertEqual(after["trained"][column][:num_before], before["trained"][column])
    self.assertEqual(after["settings"], before["settings"])
    self.stop_job(server, worker)
    shown = self.kept_history(kept)
    self.assertIn("TRAIN LOSS", shown)
    self.assertIn("worker joined name=a", shown)

    self.write("kept/history.sqlite", "x" * 5000)
    server = self.start_with_pages(rounds=5000, checkpoint_dir=kept)
    self.wait_for_status(lambda status: "curves of this run begin again" in alarms_in(status),
                         "the alarm")
    self.assertTrue(os.path.exists(self.path("kept", "history.sqlite.damaged")))
    server.kill()

  def give_order(self, name, headers=None, **form):
    """Status code and body."""
    request = urllib.request.Request(self.url + "api/orders/" + name, data=urllib.parse.urlencode(form).encode(),
                                     headers={"X-Lodestar-Order": "-"} if headers is None else headers)
    try:
      with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
      return error.code, error.read().decode()

  def orders_in(self, text):
    """Of an answer of /api/orders: the names, and why there are none."""
    answer = json.loads(text)
    return answer["orders"], answer["why_none"]

  def test_orders_are_taken_from_the_page(self):
    server = self.start_with_pages(min_workers=2, keep_workers=1, checkpoint_dir=self.path("kept"))
    workers = [self.start_worker(name) for name in ("a", "b")]
    self.wait_for_round(2, workers=2)
    self.assertEqual(self.orders_in(self.get("api/orders")[1]),
                     (["checkpoint", "evict", "pause", "readmit", "resume", "set-learning-rate", "stop"], ""))
    self.assertEqual(self.give_order("pause", headers={})[0], 403)
    for foreign in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
      self.assertEqual(self.give_order("pause", headers={"X-Lodestar-Order": "-", **foreign})[0], 403)
    self.assertIn("audit: refused: a request for a page from 127.0.0.1: an order from a page of another web server (Origin: http://evil.example)",
                  server.log())
    self.assertEqual(self.status()["limits"]["refused"], [{"reason": "orders from web pages of other origins", "count": "2"}])
    self.assertEqual(self.give_order("pause", reason="lunch")[0], 200)
    paused = self.wait_for_status(lambda status: status["state"] == "paused", "a pause")
    self.assertEqual(paused["pause"]["reason"], "lunch")
    self.assertEqual(self.give_order("resume")[0], 200)
    self.assertEqual(self.give_order("resume"), (409, "the job is not paused\n"))
    self.assertEqual(self.give_order("set-learning-rate", rate="1e-4")[0], 200)
    code, text = self.give_order("set-learning-rate", rate="fast")
    self.assertEqual(code, 400)
    self.assertIn("'fast'", text)
    self.assertEqual(self.give_order("checkpoint")[0], 200)
    self.assertEqual(self.give_order("evict", worker="b", reason="loud")[0], 200)
    self.assertEqual(workers[1].wait(), 1, workers[1].log())
    self.assertEqual(self.give_order("evict", worker="nobody")[0], 404)
    self.assertEqual(self.give_order("readmit", worker="b")[0], 200)
    self.assertEqual(self.give_order("explode")[0], 404)
    self.assertEqual(self.give_order("pause", resaon="lunch")[0], 400)
    self.assertEqual(self.psctl("dashboard").stdout, self.url + "\n")
    self.assertEqual(self.give_order("stop", reason="enough")[0], 200)
    self.assert_ends(server)
    self.assert_ends(workers[0])
    self.assertIn("audit: the page orders a pause: lunch", server.log())

  def test_with_certificates_orders_need_the_key_of_an_operator(self):
    server = self.start_with_pages(tls="true", checkpoint_dir=self.path("kept"),
                                   state_dir=self.path("state"))
    self.assertEqual(self.get("healthz"), (200, "ok\n"))
    self.assertEqual(self.give_order("pause")[0], 401)
    shown = subprocess.run([BINARIES["psctl"], "dashboard", f"--server=127.0.0.1:{self.port}",
                            "--state_dir=" + self.path("state")], capture_output=True, text=True,
                           timeout=PATIENCE_SECONDS, check=False)
    self.assertEqual(shown.returncode, 0, shown.stderr)
    url, _, key = shown.stdout.strip().partition("#")
    self.assertEqual(url, self.url)
    names, why_none = self.orders_in(self.get("api/orders")[1])
    self.assertEqual(names, [])
    self.assertIn("psctl dashboard", why_none)
    self.assertEqual(self.give_order("pause", headers={"X-Lodestar-Order": key})[0], 200)
    self.assertNotIn(key, server.log())
    server.kill()

  def start_with_remote_pages(self, **flags):
    server = self.start_with_pages(http="0.0.0.0:0", checkpoint_dir=self.path("kept"), **flags)
    self.http_port = int(self.url.rstrip("/").rsplit(":", 1)[1])
    return server

  def psctl_of_operator(self, *arguments):
    shown = subprocess.run([BINARIES["psctl"], *arguments, f"--server=127.0.0.1:{self.port}",
                            "--state_dir=" + self.path("state")], capture_output=True, text=True,
                           timeout=PATIENCE_SECONDS, check=False)
    self.assertEqual(shown.returncode, 0, shown.stderr)
    return shown.stdout

  def ask(self, method, path, name="job.example.org", host=None, token=None, certificate=None, **form):
    """Status code and body, over TLS: under `name`, as the holder of a token or of a certificate."""
    context = ssl.create_default_context(cafile=self.path("state", "server-0", "authority.pem"))
    if certificate:
      context.load_cert_chain(os.path.join(certificate, "certificate.pem"), os.path.join(certificate, "key.pem"))
    headers = {"Host": host or name, "X-Lodestar-Order": "-", "Content-Type": "application/x-www-form-urlencoded"}
    if token:
      headers["Authorization"] = "Bearer " + token
    connection = http.client.HTTPSConnection(name, self.http_port, timeout=PATIENCE_SECONDS, context=context)
    connection._create_connection = lambda address, *rest: socket.create_connection(("127.0.0.1", address[1]), *rest)
    with contextlib.closing(connection):
      connection.request(method, path, body=urllib.parse.urlencode(form) or None, headers=headers)
      answer = connection.getresponse()
      return answer.status, answer.read().decode()

  def test_other_machines_show_a_certificate_or_a_token(self):
    server = self.start_with_remote_pages(tls="true", http_names="job.example.org", state_dir=self.path("state"))
    self.assertEqual(self.psctl_of_operator("dashboard"), self.url + "\n")
    viewer = self.psctl_of_operator("token", "create", "--role=viewer").strip()
    operator = self.psctl_of_operator("token", "create", "--role=operator", "--name=otto").strip()
    worker = self.psctl_of_operator("token", "create", "--role=worker").strip()
    self.assertEqual(self.ask("GET", "/healthz"), (200, "ok\n"))
    self.assertEqual(self.ask("GET", "/readyz")[0], 200)
    for path in ("/", "/statusz", "/metrics", "/api/history", "/api/orders", "/api/events", "/nothing"):
      self.assertEqual(self.ask("GET", path)[0], 401, path)
    self.assertEqual(self.ask("POST", "/api/orders/pause")[0], 401)
    self.assertEqual(self.ask("GET", "/metrics", token=worker)[0], 403)
    self.assertEqual(self.ask("GET", "/metrics", token=viewer[:-1] + ("0" if viewer[-1] != "0" else "1"))[0], 401)
    self.assertEqual(self.ask("GET", "/metrics", token=viewer, host="evil.example")[0], 403)
    self.assertIn("lodestar_round 0", self.ask("GET", "/metrics", token=viewer)[1])
    names, why_none = self.orders_in(self.ask("GET", "/api/orders", token=viewer)[1])
    self.assertEqual(names, [])
    self.assertIn("operator", why_none)
    self.assertNotIn("AdminService", server.log(), "a question is no refusal")
    self.assertIn("pause", self.orders_in(self.ask("GET", "/api/orders", token=operator)[1])[0])
    self.assertEqual(self.ask("POST", "/api/orders/pause", token=viewer)[0], 403)
    self.assertIn("AdminService", server.log())
    self.assertEqual(self.ask("POST", "/api/orders/pause", token=operator, reason="lunch")[0], 200)
    self.assertIn("audit: operator otto, through the page, orders a pause: lunch", server.log())
    self.assertEqual(self.ask("POST", "/api/orders/resume", certificate=self.path("state", "operator"))[0], 200)
    self.psctl_of_operator("token", "revoke", viewer.split("/L1")[1].split(".")[1])
    self.assertEqual(self.ask("GET", "/metrics", token=viewer)[0], 401)
    for secret in (viewer, operator, worker):
      self.assertNotIn(secret.rsplit(".", 1)[1], server.log())
    with self.assertRaises(ssl.SSLCertVerificationError):
      self.ask("GET", "/healthz", name="evil.example")
    server.kill()

  def test_many_who_say_nothing_keep_nobody_out(self):
    server = self.start_with_remote_pages(tls="true", http_names="job.example.org", state_dir=self.path("state"))
    with contextlib.ExitStack() as silent:
      for number in range(500):
        peer = silent.enter_context(socket.create_connection(("127.0.0.1", self.http_port)))
        if number % 2:
          peer.sendall(b"\x16\x03\x01\x02\x00\x01")  # of a handshake
      self.assertEqual(self.ask("GET", "/healthz"), (200, "ok\n"))
      self.assertEqual(
          self.ask("GET", "/statusz", certificate=self.path("state", "operator"))[0], 200)
      self.assertLess(len(os.listdir(f"/proc/{server.pid}/fd")), 300)
    server.kill()

  def test_plain_text_for_other_machines_is_an_alarm(self):
    server = self.start_with_remote_pages(insecure="true")
    self.url = f"http://127.0.0.1:{self.http_port}/"
    self.assertEqual(self.get("healthz"), (200, "ok\n"))
    self.wait_for_status(lambda status: "neither encrypted nor protected by a password" in alarms_in(status), "the alarm")
    self.assertEqual(self.get("statusz", host="evil.example")[0], 403)
    self.assertEqual(self.give_order("pause")[0], 200)
    server.kill()

  def test_readers_of_events_see_rounds_and_are_no_trouble_at_the_end(self):
    server = self.start_with_pages(rounds=None, min_workers=1)
    reader = urllib.request.urlopen(self.url + "api/events", timeout=PATIENCE_SECONDS)
    never_read = urllib.request.urlopen(self.url + "api/events", timeout=PATIENCE_SECONDS)
    worker = self.start_worker("a")
    names, rounds = [], []
    while not rounds or rounds[-1] < 3:
      line = reader.readline().decode()
      self.assertNotEqual(line, "", self.logs())
      if line.startswith("event: "):
        names.append(line[len("event: "):-1])
      if line.startswith("data: ") and names[-1] == "status":
        rounds.append(int(json.loads(line[len("data: "):])["round"]))
    self.assertEqual(names[:2], ["status", "history"])
    self.assertEqual(rounds, sorted(rounds))
    self.stop_job(server, worker)
    reader.read()  # the stream ends with the server
    never_read.close()

  def test_other_names_and_what_is_not_this_machine_are_refused(self):
    server = self.start_with_pages()
    self.assertEqual(self.get("statusz", host="evil.example")[0], 403)
    self.assertEqual(self.get("nothing")[0], 404)
    for flag, code, words in (("10.0.0.1:8080", 2, "give --tls"),
                              (self.url[len("http://"):-1], 129, "give another --http")):
      refused = self.start(self.server_command(http=flag, metrics_out=self.path("refused.jsonl")), "refused")
      self.assertEqual(refused.wait(), code, refused.log())
      self.assertIn(words, refused.log())
    server.kill()


if __name__ == "__main__":
  cluster_processes.main()
