#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Joining over TLS: what one join string does, and what everybody else is told."""
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import unittest

import cluster_processes
from cluster_processes import BINARIES, PATIENCE_SECONDS, members_of


class JoiningTestCase(cluster_processes.ClusterTestCase):

  def environment(self, home, join=""):
    """Of a machine of its own, as far as credentials go."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("XDG_STATE_HOME", "STATE_DIRECTORY", "LODESTAR_JOIN")}
    environment["HOME"] = self.path(home)
    os.makedirs(environment["HOME"], exist_ok=True)
    if join:
      environment["LODESTAR_JOIN"] = join
    return environment

  def start_tls_server(self, **flags):
    return self.start_server(popen={"env": self.environment("server")}, tls="true",
                             state_dir=self.path("state"), **flags)

  def operate(self, *words, home="operator", **environment):
    """psctl on the machine of the coordinator, as its user, unless `home` or `join` say else."""
    own = [f"--state_dir={self.path('state')}"] if home == "operator" else []
    return subprocess.run(
        [BINARIES["psctl"], *words, f"--server=127.0.0.1:{self.port}", *own],
        env=self.environment(home, **environment), capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, check=False)

  def status(self):
    answer = self.operate("status", "--json")
    return cluster_processes.json.loads(answer.stdout) if answer.stdout else {}

  def new_token(self, *flags):
    created = self.operate("token", "create", *flags)
    self.assertEqual(created.returncode, 0, created.stderr)
    self.assertRegex(created.stdout,
                     rf"^lodestar://127.0.0.1:{self.port}/L1[0-9a-f]{{64}}\.[0-9a-f]+\.[0-9a-f]+\n$")
    return created.stdout.strip()

  def start_joiner(self, home, *flags, join=""):
    return self.start([BINARIES["gpu_worker"], f"--data={self.path('corpus.txt')}",
                       "--device=cpu", "--threads=1", *flags],
                      "worker_" + home, env=self.environment(home, join))

  def assert_turned_away(self, home, text, *flags, join=""):
    worker = self.start_joiner(home, *flags, join=join)
    self.assert_ends(worker, 1)
    self.assertRegex(worker.log(), text)


class ClosingServer:
  """Greets whoever enrols as the server of `credentials` would, and is gone."""

  def __init__(self, credentials):
    self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain = os.path.join(credentials, "chain.pem")
    with open(chain, "w", encoding="utf-8") as out:
      for name in ("certificate.pem", "authority.pem"):
        with open(os.path.join(credentials, name), encoding="utf-8") as part:
          out.write(part.read())
    self._context.load_cert_chain(chain, os.path.join(credentials, "key.pem"))
    self._socket = socket.create_server(("127.0.0.1", 0))
    self.port = self._socket.getsockname()[1]
    threading.Thread(target=self._serve, daemon=True).start()

  def _serve(self):
    connection, _ = self._socket.accept()
    self._socket.close()
    connection.recv(len("LODESTAR-ENROLL-1\n"), socket.MSG_WAITALL)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = self._context.wrap_bio(incoming, outgoing, server_side=True)
    while not outgoing.pending:
      incoming.write(connection.recv(1 << 16))
      try:
        tls.do_handshake()
      except ssl.SSLWantReadError:
        pass
    connection.sendall(outgoing.read())
    connection.close()


class JoiningTest(JoiningTestCase):

  def test_keys_on_a_volume_that_is_opened_to_a_group_are_closed_again(self):
    def open_to_group():
      """As Kubernetes does with volumes of pods that have an fsGroup, each time that a pod begins."""
      for root in (self.path("state"), self.path("box")):
        for folder, _, names in os.walk(root):
          os.chmod(folder, 0o2770)
          for name in names:
            path = os.path.join(folder, name)
            os.chmod(path, os.stat(path).st_mode | 0o660)

    server = self.start_tls_server()
    worker = self.start_joiner("box", "--name=box", join=self.new_token())
    self.wait_for_round(2)
    worker.kill()
    server.kill()
    open_to_group()
    server = self.start_tls_server(port=self.port)
    worker = self.start_joiner("box", "--name=box", f"--coordinator=127.0.0.1:{self.port}")
    self.wait_for_round(2)
    self.assertEqual(self.operate("token", "list").returncode, 0)
    for root in (self.path("state"), self.path("box")):
      for folder, _, names in os.walk(root):
        for name in names:
          if name.endswith("key.pem"):
            path = os.path.join(folder, name)
            self.assertEqual(os.stat(path).st_mode & 0o077, 0, path)
    worker.kill()
    server.kill()

  def test_one_line_is_all_that_a_machine_needs(self):
    server = self.start_tls_server(rounds=20, min_workers=2)
    join = self.new_token()
    self.write("join", join + "\n")
    os.chmod(self.path("join"), 0o600)
    first = self.start_joiner("one", join=join)
    second = self.start_joiner("two", "--join=" + self.path("join"), "--name=second")
    for process in (server, first, second):
      self.assert_ends(process)
    self.assertRegex(server.log(), r"audit: worker second has enrolled")
    for process in (server, first, second):
      self.assertNotIn(join.split(".")[-1], process.log(), "a secret in a log")
    for folder, _, names in os.walk(self.path("state")):
      for name in names:
        path = os.path.join(folder, name)
        if "key" in name or name == "ledger.json":
          self.assertEqual(os.stat(path).st_mode & 0o077, 0, path)

  def test_a_further_server_joins_as_a_worker_does(self):
    server = self.start_tls_server(shard="0/2", rounds=20)
    join = self.new_token("--role=server")
    other = self.start(self.server_command(shard="1/2"), "other",
                       env=self.environment("other", join))
    other.wait_for_log("enrolled as")
    other.kill()
    other.wait()
    # What it has got is good for another start.
    other = self.start([*self.server_command(shard="1/2"), "--tls"], "other_again",
                       env=self.environment("other"))
    worker = self.start_joiner("one", join=self.new_token())
    for process in (worker, other, server):
      self.assert_ends(process)

  def issue_certificates(self, *homes):
    """Of a cluster that is only there to issue them: {home: folder}, all for the worker "member"."""
    issuer = self.start_tls_server(min_workers=9)
    issued = {}
    for home in homes:
      joiner = self.start_joiner(home, join=self.new_token("--name=member"))
      joiner.wait_for_log("enrolled as")
      joiner.kill()
      joiner.wait()
      for folder, _, names in os.walk(self.path(home)):
        if "certificate.pem" in names:
          issued[home] = folder
    self.assertEqual(sorted(issued), sorted(homes))
    issuer.kill()
    issuer.wait()
    return issued

  def start_with_own(self, server_folder, worker_folder, **flags):
    """Server and worker with the certificates in these folders, after some rounds."""

    def own(folder):
      return {f"tls_{flag}": os.path.join(folder, name + ".pem")
              for flag, name in (("cert", "certificate"), ("key", "key"), ("ca", "authority"))}

    server = self.start_server(name="owner", popen={"env": self.environment("owner")},
                               min_workers=1, **own(server_folder), **flags)
    member = self.start_joiner("member", f"--coordinator=127.0.0.1:{self.port}", "--name=member",
                               *(f"--{name}={value}" for name, value in own(worker_folder).items()))
    self.wait_for_round(3)
    return server, member

  def test_certificates_of_ones_own_are_read_again_when_they_change(self):
    issued = self.issue_certificates("old", "new")
    used = self.path("used")
    shutil.copytree(issued["old"], used)
    server, member = self.start_with_own(self.path("state", "server-0"), used, rounds=400)
    for name in ("key.pem", "certificate.pem"):
      os.replace(os.path.join(issued["new"], name), os.path.join(used, name))
    self.assert_ends(member)
    self.assert_ends(server)
    self.assertNotIn("not connected", member.log())

  def test_certificates_of_ones_own_that_become_empty_leave_those_before_in_use(self):
    issued = self.issue_certificates("member")
    folders = [self.path("state", "server-0"), issued["member"]]
    server, member = self.start_with_own(*folders)
    whole = {}
    for folder in folders:
      path = os.path.join(folder, "certificate.pem")
      with open(path, encoding="ascii") as file:
        whole[path] = file.read()
      os.truncate(path, 0)
    of_server, of_worker = whole

    def has_alarm(status):
      """Each status comes over a new connection. Another alarm about the certificate may replace this one."""
      return any(of_server in alarm["text"] and "empty" in alarm["text"] and "over_age_seconds" not in alarm
                 for alarm in status["alarms"])

    self.wait_for_status(has_alarm, "the alarm")
    member.wait_for_log(of_worker)
    for path, text in whole.items():
      with open(path, "w", encoding="ascii") as file:
        file.write(text)
    status = self.wait_for_status(lambda status: not has_alarm(status), "the end of the alarm")
    self.wait_for_round(int(status["round"]) + 1)
    self.assertEqual(self.operate("stop").returncode, 0)
    self.assert_ends(member)
    self.assert_ends(server)

  def test_who_waits_in_vain_hears_whose_certificate_does_not_fit(self):
    server = self.start_tls_server(min_workers=9)
    box = self.start_joiner("box", "--name=box", join=self.new_token())
    self.wait_for_status(lambda status: members_of(status) == ["box"], "the worker")
    viewer = self.new_token("--role=viewer")
    self.assertEqual(self.operate("status", home="desk", join=viewer).returncode, 131)
    server.kill()
    server.wait()
    # A cluster that has lost its authority is another one.
    shutil.rmtree(self.path("state"))
    self.start_tls_server(port=self.port, name="anew", min_workers=9)
    box.wait_for_log("by the clock of this machine")
    self.assertRegex(box.log(),
                     rf"what may be wrong: the certificate of the server at 127.0.0.1:{self.port} "
                     r"\(server server-0\) is not signed by an authority in \S+: it is of another cluster, "
                     r"or this cluster has a new authority\. It is .* UTC by the clock")
    operator = self.operate("status", home="desk", join=viewer)
    self.assertEqual(operator.returncode, 129, operator.stderr)
    self.assertRegex(operator.stderr, r"psctl: what may be wrong: the certificate of the server")

  def test_psctl_on_the_servers_machine_does_not_mind_the_line_for_its_workers(self):
    self.start_tls_server(min_workers=9)
    join = self.new_token()
    seen = self.operate("identities", join=join)
    self.assertEqual(seen.returncode, 0, seen.stderr)
    elsewhere = self.operate("identities", home="desk", join=join)
    self.assertRegex(elsewhere.stderr,
                     r"\$LODESTAR_JOIN: cannot enrol at .*token \w+ is for the role worker")

  def test_everybody_else_is_told_why_not(self):
    server = self.start_tls_server()
    self.assert_turned_away("plain", r"this server speaks only TLS; give --join",
                            f"--coordinator=127.0.0.1:{self.port}")
    once = self.new_token("--uses=1", "--name=member")
    member = self.start_joiner("member", join=once)
    self.wait_for_round(1)
    self.assert_turned_away("again", r"token \w+ has been used once, its maximum",
                            join=once)
    self.assert_turned_away("viewer", r"token \w+ is for the role viewer, but this call needs the role worker",
                            join=self.new_token("--role=viewer"))
    join = self.new_token()
    self.assert_turned_away("thief", r"the name 'member.1' is taken by worker member",
                            "--name=member.1", join=join)
    self.assert_turned_away("guess", r"this cluster does not know the token",
                            join=re.sub(r"\w{8}$", "01234567", join))
    self.assert_turned_away("elsewhere", r"another authority than the join string says.*"
                            r"the secret was not sent",
                            join=re.sub(r"L1\w{8}", "L101234567", join))
    self.assertIn("TLS fails", server.log(), "of the enrolment without a word")
    revoked = self.operate("token", "revoke", join.split(".")[-2])
    self.assertEqual(revoked.returncode, 0, revoked.stderr)
    self.assert_turned_away("late", r"token \w+ was revoked", join=join)
    # A viewer looks, and changes nothing; who has no certificate does not look either.
    viewer = self.new_token("--role=viewer")
    seen = self.operate("status", home="viewer_home", join=viewer)
    self.assertIn("member", seen.stdout)
    stopped = self.operate("stop", home="viewer_home", join=viewer)
    self.assertEqual(stopped.returncode, 1)
    self.assertRegex(stopped.stderr, r"viewer \S+ may not call /lodestar.v1.AdminService/Stop; .*"
                     r"psctl token create --role=operator")
    self.assertRegex(server.log(), r"audit: refused: viewer \S+ may not call /lodestar")
    stranger = self.operate("status", home="stranger")
    self.assertRegex(stranger.stderr, r"requires an operator's certificate, and --state_dir=")
    counted = {entry["reason"]: int(entry["count"])
               for entry in self.status()["limits"]["refused"]}
    self.assertEqual(counted["calls denied by role or certificate"], 1, counted)
    self.assertGreaterEqual(counted["enrolments failed"], 6, counted)
    # A member that is revoked ends at once, and comes back with a new join string only.
    ended = self.operate("revoke", "member")
    self.assertEqual(ended.stdout, "member is revoked; 1 worker with this name ended\n", ended.stderr)
    self.assert_ends(member, 1)
    self.assertIn("worker member was revoked at", member.log())
    self.assert_turned_away("member", r"has been used once", "--name=member", join=once)
    back = self.start_joiner("member", "--name=member", join=self.new_token())
    self.wait_for_status(lambda status: members_of(status) == ["member"], "the member again")
    self.assertEqual(self.operate("stop").returncode, 0)
    self.assert_ends(back)
    self.assertIn("audit: operator local-operator has revoked the identity 'member'", server.log())

  def test_no_program_shows_the_secret_of_a_line_that_was_given_in_the_wrong_place(self):
    secret = "c" * 40
    line = "lodestar://127.0.0.1:1/L1" + "a" * 64 + ".0123456789ab." + secret
    worker = [BINARIES["gpu_worker"], f"--data={self.path('corpus.txt')}"]
    further = [BINARIES["ps_server"], "--shard=1/2"]
    for command, join in ([worker + [f"--coordinator={line}"], ""], [worker + [line], ""],
                          [worker, "\u201c" + line],
                          [further + [f"--coordinator={line}"], ""], [further + [line], ""],
                          [[BINARIES["psctl"], "status", f"--server={line}"], ""],
                          [[BINARIES["psctl"], line], ""],
                          [[BINARIES["psctl"], "status"], line.replace("/L1", "/ L1")]):
      run = subprocess.run(command, env=self.environment("wrong", join), capture_output=True,
                           text=True, timeout=PATIENCE_SECONDS, check=False)
      self.assertIn(run.returncode, (1, 2), command)
      self.assertNotIn(secret[:8], run.stdout + run.stderr, command)
      self.assertIn("join", run.stderr + run.stdout, command)

  def test_a_revoked_machine_does_not_come_back_by_the_line_that_it_came_with(self):
    self.start_tls_server(min_workers=9)
    join = self.new_token()
    token = join.split(".")[-2]
    lost, _ = [self.start_joiner(name, "--name=" + name, join=join) for name in ("lost", "other")]
    self.wait_for_status(lambda status: sorted(members_of(status)) == ["lost", "other"], "both")
    revoked = self.operate("revoke", "lost")
    self.assertRegex(revoked.stdout,
                     rf"^lost is revoked; \d workers? with this name ended\ntoken {token}, with which "
                     r"it had joined or could join again, is still valid\. Other machines, and this machine "
                     rf"under another name, can join with it\. To prevent that, run psctl token revoke {token}\n$")
    # Without the line it hears what became of its certificate, and which others there are.
    self.assert_ends(lost, 1)
    here = f"--coordinator=127.0.0.1:{self.port}"
    self.assert_turned_away("lost", r"worker-lost was thrown away: worker lost was revoked at .*"
                            r"psctl token create --role=worker --name=lost`", "--name=lost", here)
    self.assert_turned_away("other", r"worker-other is for a program that was started with --name=other",
                            "--name=new", here)
    self.assert_turned_away("lost_again", rf"worker lost was revoked at .*, and token {token} is "
                            r"older than that\. .*psctl token create --name=lost",
                            "--name=lost", join=join)
    # With its last machine, or where an operator says so, the token is over, too.
    self.assertIn(f"token {token}, with which it had joined, is revoked",
                  self.operate("revoke", "lost", "--with_token").stdout)
    self.assert_turned_away("renamed", rf"token {token} was revoked", "--name=new", join=join)
    self.start_joiner("lost_again", "--name=lost",
                      join=self.new_token("--name=lost")).wait_for_log("enrolled as")

  def test_what_a_join_string_has_brought_does_without_it(self):
    self.start_tls_server(min_workers=9)
    first = self.start_joiner("box", "--name=box", join=self.new_token())
    first.wait_for_log("enrolled as")
    first.kill()
    first.wait()
    self.start_joiner("box", "--name=box", f"--coordinator=127.0.0.1:{self.port}")
    self.wait_for_status(lambda status: members_of(status) == ["box"], "the worker again")
    # An operator elsewhere, too; and of a certificate that is worth nothing it gets rid.
    viewer = self.new_token("--role=viewer")
    self.assertEqual(self.operate("status", home="desk", join=viewer).returncode, 131)
    self.assertEqual(self.operate("status", home="desk").returncode, 131)
    self.assertIn("may not call", self.operate("identities", home="desk").stderr)
    # Another line takes the place of what the one before has brought.
    operator = self.new_token("--role=operator", "--name=ann")
    seen = self.operate("identities", home="desk", join=operator)
    self.assertRegex(seen.stdout, r"operator +ann ")
    self.assertEqual(self.operate("revoke", "ann").returncode, 0)
    revoked = self.operate("identities", home="desk")
    self.assertEqual(revoked.returncode, 1)
    self.assertRegex(revoked.stderr, r"operator ann was revoked at .*\npsctl: the server does not accept the "
                     r"certificate in .*/certificate.pem any more. .*give it with --join")
    self.assertRegex(self.operate("identities", home="desk").stderr,
                     r"wants a certificate, and no certificate .* can be used: the certificate in \S+ was thrown away: "
                     r"operator ann was revoked at .*psctl token create --role=operator")
    again = self.operate("identities", home="desk", join=self.new_token("--role=operator"))
    self.assertEqual(again.returncode, 0, again.stderr)

  def test_who_watches_sees_nothing_more_once_it_is_revoked(self):
    self.start_tls_server()
    watcher = self.start(
        [BINARIES["psctl"], "status", "--watch", f"--server=127.0.0.1:{self.port}"], "watcher",
        env=self.environment("watcher", join=self.new_token("--role=viewer", "--name=bob")))
    watcher.wait_for_log("round ")
    self.assertEqual(self.operate("revoke", "bob").returncode, 0)
    watcher.wait_for_log("viewer bob was revoked")
    self.assertNotEqual(watcher.wait(), 0)

  def test_nobody_at_the_other_end_does_not_kill_psctl_without_a_word(self):
    self.start_tls_server()
    join = self.new_token("--role=operator")
    closing = ClosingServer(self.path("state", "server-0"))
    cut_off = self.operate("status", home="desk",
                           join=join.replace(f":{self.port}/", f":{closing.port}/"))
    self.assertEqual(cut_off.returncode, 129, cut_off.stderr)
    self.assertRegex(cut_off.stderr, r"cannot enrol at \S+: the connection was closed")
    unread, output = os.pipe()
    os.close(unread)
    printed = subprocess.run(
        [BINARIES["psctl"], "identities", f"--server=127.0.0.1:{self.port}"], stdout=output,
        stderr=subprocess.PIPE, env=self.environment("desk", join), text=True,
        timeout=PATIENCE_SECONDS, check=False)
    os.close(output)
    self.assertEqual(printed.returncode, 1, printed.stderr)
    self.assertRegex(printed.stderr, r"Broken pipe")


if __name__ == "__main__":
  cluster_processes.main()
