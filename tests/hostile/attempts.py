# SPDX-License-Identifier: Apache-2.0
"""Attempts to get into a cluster with TLS, or to do there what one may not, as a table: what whoever
tries is told, and as what the server counts it."""
import os
import re
import socket
import ssl
import subprocess
import threading
import time

import attacks
import http2_wire


class Recorder:
  """Passes one connection on to `port`, and keeps what the client sends."""

  def __init__(self, port):
    self._listener = socket.create_server(("127.0.0.1", 0))
    self.port = self._listener.getsockname()[1]
    self.sent = b""
    self._target = port
    threading.Thread(target=self._serve, daemon=True).start()

  def _serve(self):
    while True:
      client, _ = self._listener.accept()
      server = socket.create_connection(("127.0.0.1", self._target))
      threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()
      threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()

  def _pass(self, source, sink, is_kept):
    try:
      while part := source.recv(1 << 16):
        if is_kept:
          self.sent += part
        sink.sendall(part)
      sink.shutdown(socket.SHUT_WR)
    except OSError:
      pass


class PlainServer:
  """Of HTTP/2 in plain text: takes every connection, and answers with settings."""

  def __init__(self):
    self._listener = socket.create_server(("127.0.0.1", 0))
    self.port = self._listener.getsockname()[1]
    self.sent = b""
    threading.Thread(target=self._serve, daemon=True).start()

  def _serve(self):
    while True:
      client, _ = self._listener.accept()
      try:
        client.sendall(bytes(3) + b"\x04" + bytes(5))
        self.sent += client.recv(1 << 16)
        client.close()
      except OSError:
        pass


class Attempts:
  """On one hostile.Cluster with TLS."""

  def __init__(self, cluster):
    self.cluster = cluster
    self._num_homes = 0

  def all(self):
    return [
        ("no certificate", self.no_certificate, "connection is closed", "failed TLS handshakes"),
        ("certificate of another authority", self.wrong_authority, "not signed by an authority",
         "failed TLS handshakes"),
        ("certificate that has ended", self.expired, "ended|expired", "failed TLS handshakes"),
        ("certificate that was revoked", self.revoked, "was revoked at",
         "calls denied by role or certificate"),
        ("a worker calls what operators may", self.wrong_role, "may not call",
         "calls denied by role or certificate"),
        ("a viewer changes something", self.viewer_changes, "may not call",
         "calls denied by role or certificate"),
        ("a worker registers under another's name", self.anothers_name, "The name must be",
         "calls denied by role or certificate"),
        ("enrols under another's name", self.enrols_as_another, "is taken by", "enrolments failed"),
        ("token of another role", self.token_of_role, "is for the role", "enrolments failed"),
        ("token used a second time", self.token_used, "has been used once", "enrolments failed"),
        ("token used three times instead of two", self.token_used_thrice, "has been used 2 times",
         "enrolments failed"),
        ("token that has ended", self.token_ended, "has ended|ended at|expired", "enrolments failed"),
        ("token that was revoked", self.token_revoked, "was revoked", "enrolments failed"),
        ("secret guessed", self.guessed, "does not know the token", "enrolments failed"),
        ("hash of the authority wrong", self.wrong_hash, "the secret was not sent",
         "enrolments failed"),
        ("plain text to a port of TLS", self.plain_to_tls, "speaks only TLS",
         "with TLS only at the client or only at the server"),
        ("TLS 1.2", self.old_tls, "PROTOCOL_VERSION", "TLS before 1.3"),
        ("somebody who speaks plain text answers a worker", self.plain_answer, "", ""),
    ]

  # The following methods return the answer that an attempt gets.

  def no_certificate(self):
    context = ssl.create_default_context(cafile=self._authority())
    return self._handshake(context)

  def wrong_authority(self):
    folder = self._folder("else")
    _run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-keyout", folder + "/key.pem", "-out", folder + "/certificate.pem", "-subj", "/CN=else",
         "-addext", "subjectAltName=URI:spiffe://lodestar/worker/w/0123456789abcdef")
    return self._waiting_worker(folder)

  def expired(self):
    folder = self._folder("ended")
    _run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
         folder + "/key.pem", "-out", folder + "/request.pem", "-subj", "/CN=w")
    with open(folder + "/extensions", "w", encoding="ascii") as out:
      out.write("subjectAltName=URI:spiffe://lodestar/worker/w/0123456789abcdef\n"
                "extendedKeyUsage=clientAuth\n")
    _run("openssl", "x509", "-req", "-in", folder + "/request.pem", "-CA", self._authority(),
         "-CAkey", self.cluster.path("state", "authority", "authority-key.pem"), "-days", "0",
         "-extfile", folder + "/extensions", "-out", folder + "/certificate.pem")
    time.sleep(1.1)
    return self._waiting_worker(folder)

  def revoked(self):
    # Under the credentials of the attacker, who has joined as a worker.
    join = self._token("--name=lost", "--role=viewer")
    home = self._folder("lost")
    self._psctl(home, "status", join=join)
    kept = next(folder for folder, _, names in os.walk(home) if "certificate.pem" in names)
    own = [f"--tls_cert={kept}/certificate.pem", f"--tls_key={kept}/key.pem",
           f"--tls_ca={kept}/authority.pem"]
    copied = self._psctl(self._folder("copy"), "status", *own)
    assert "is revoked" not in copied, copied
    self.cluster.psctl("revoke", "lost")
    return self._psctl(self._folder("copy"), "status", *own)

  def wrong_role(self):
    # psctl itself would say that this is no certificate of an operator.
    connection = http2_wire.Connection(("127.0.0.1", self.cluster.port),
                                       attacks.worker_context(self.cluster.credentials))
    attacks.call(connection, "/lodestar.v1.AdminService/Stop", b"")
    time.sleep(1)
    told = re.search(rb"grpc-message.([ -~]+)", connection.drain() or b"", re.DOTALL)
    connection.close()
    return told[1].decode() if told else "nothing"

  def viewer_changes(self):
    return self._psctl(self._folder("viewer"), "stop", join=self._token("--role=viewer"))

  def anothers_name(self):
    return self._worker(self._folder("attacker"), "--name=a",
                        f"--coordinator=127.0.0.1:{self.cluster.port}", *self._attackers_flags())

  def enrols_as_another(self):
    return self._worker(self._folder("thief"), "--name=a", join=self._token())

  def token_of_role(self):
    return self._worker(self._folder("viewer"), join=self._token("--role=viewer"))

  def token_used(self):
    return self._uses(1)

  def token_used_thrice(self):
    return self._uses(2)

  def token_ended(self):
    join = self._token("--ttl=1s")
    time.sleep(1.1)
    return self._worker(self._folder("late"), join=join)

  def token_revoked(self):
    join = self._token()
    self.cluster.psctl("token", "revoke", join.split(".")[-2])
    return self._worker(self._folder("late"), join=join)

  def guessed(self):
    return self._worker(self._folder("guess"), join=re.sub(r"\w{8}$", "01234567", self._token()))

  def wrong_hash(self):
    recorder = Recorder(self.cluster.port)
    join = re.sub(r"L1\w{8}", "L101234567", self._token())
    told = self._worker(self._folder("elsewhere"),
                        join=join.replace(f":{self.cluster.port}/", f":{recorder.port}/"))
    secret = join.split(".")[-1]
    assert secret.encode() not in recorder.sent and bytes.fromhex(secret) not in recorder.sent
    # The records of a handshake that the client breaks off: ClientHello, then an alert. The
    # request for a certificate, with the secret, would be some 400 bytes of application data.
    return f"{told} [sent: {len(recorder.sent)} bytes, {_tls_records(recorder.sent)}]"

  def plain_to_tls(self):
    return self._worker(self._folder("plain"), f"--coordinator=127.0.0.1:{self.cluster.port}",
                        "--insecure")

  def old_tls(self):
    context = self._context_of(self.cluster.credentials)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return self._handshake(context)

  def plain_answer(self):
    server = PlainServer()
    process = self._start_worker(self._folder("attacker"), f"--coordinator=127.0.0.1:{server.port}",
                                 *self._attackers_flags())
    time.sleep(5)
    process.terminate()
    lines = process.communicate(timeout=30)[1].splitlines()
    told = next((line for line in lines if " warning " in line), "nothing")
    kinds = "ClientHellos only" if server.sent[:2] == b"\x16\x03" else repr(server.sent[:40])
    return f"{told} [sent: {kinds}]"

  # ----

  def _authority(self):
    return self.cluster.path("state", "authority", "authority.pem")

  def _folder(self, name):
    self._num_homes += 1
    folder = self.cluster.path(f"{name}-{self._num_homes}")
    os.mkdir(folder)
    return folder

  def _token(self, *flags):
    return self.cluster.psctl("token", "create", *flags).stdout.strip()

  def _attackers_flags(self):
    folder = self.cluster.credentials
    return [f"--tls_cert={folder}/certificate.pem", f"--tls_key={folder}/key.pem",
            f"--tls_ca={folder}/authority.pem"]

  def _environment(self, home, join):
    environment = dict(self.cluster.environment, HOME=home)
    if join:
      environment["LODESTAR_JOIN"] = join
    return environment

  def _psctl(self, home, *words, join=""):
    done = subprocess.run(
        [os.path.join(self.cluster.binaries, "psctl"), *words,
         f"--server=127.0.0.1:{self.cluster.port}"], env=self._environment(home, join),
        capture_output=True, text=True, timeout=60, check=False)
    return _last_line(done.stderr)

  def _waiting_worker(self, folder):
    """What a worker with the certificate in `folder` says of what it waits for."""
    process = self._start_worker(
        folder, f"--coordinator=127.0.0.1:{self.cluster.port}",
        f"--tls_cert={folder}/certificate.pem", f"--tls_key={folder}/key.pem",
        f"--tls_ca={self._authority()}")
    time.sleep(4)
    process.terminate()
    lines = process.communicate(timeout=30)[1].splitlines()
    told = [line for line in lines if " warning " in line or " error " in line]
    return told[0] if told else "nothing: " + _last_line("\n".join(lines))

  def _start_worker(self, home, *flags, join=""):
    return subprocess.Popen(
        [os.path.join(self.cluster.binaries, "gpu_worker"), "--data=" +
         self.cluster.path("corpus.txt"), "--device=cpu", "--threads=1", *flags],
        env=self._environment(home, join), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

  def _worker(self, home, *flags, join=""):
    process = self._start_worker(home, *flags, join=join)
    _, log = process.communicate(timeout=60)
    assert process.returncode not in (0, None), log
    return _last_line(log)

  def _uses(self, number):
    join = self._token(f"--uses={number}", "--role=viewer")
    for _ in range(number):
      self._psctl(self._folder("user"), "status", join=join)
    return self._psctl(self._folder("user"), "status", join=join)

  def _context_of(self, folder):
    context = ssl.create_default_context(cafile=self._authority())
    context.load_cert_chain(folder + "/certificate.pem", folder + "/key.pem")
    return context

  def _handshake(self, context):
    context.set_alpn_protocols(["h2"])
    context.check_hostname = False
    try:
      with socket.create_connection(("127.0.0.1", self.cluster.port), timeout=10) as raw:
        with context.wrap_socket(raw, server_hostname="lodestar") as tls:
          tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
          # In TLS 1.3 a client hears of its certificate when it reads.
          settings = tls.recv(1 << 16)
          return "let in: " + repr(settings) if settings else "the connection is closed"
    except OSError as error:
      return "TLS: " + (getattr(error, "reason", "") or str(error))


def _run(*command):
  subprocess.run(command, check=True, capture_output=True)


def _last_line(text):
  lines = [line for line in text.strip().splitlines() if line]
  return lines[-1] if lines else ""


def _tls_records(data):
  """The types of the records of TLS in what an enrolling client has sent."""
  names = {20: "change of cipher", 21: "alert", 22: "handshake", 23: "encrypted"}
  start = data.find(b"\x16\x03")
  found = []
  while 0 <= start < len(data) - 4:
    size = int.from_bytes(data[start + 3:start + 5], "big")
    found.append(f"{names.get(data[start], data[start])} {size}")
    start += 5 + size
  return ", ".join(found)


def run(cluster, refusals_in):
  """Prints the table; returns what failed."""
  failures = []
  print("| attempt | told | counted as |\n|---|---|---|", flush=True)
  for name, attempt, told_pattern, reason in Attempts(cluster).all():
    before = refusals_in(cluster.status()).get(reason, 0)
    told = re.sub(r"^\S+ \S+ (warning|error) \S+ |^psctl: ", "", attempt())
    told = re.sub(r"\s+", " ", told).replace("|", "\\|").replace(cluster.folder, "...")
    end = time.monotonic() + 10
    while reason and refusals_in(cluster.status()).get(reason, 0) <= before:
      if time.monotonic() > end:
        failures.append(f"{name}: not counted as {reason!r}: {told}")
        break
      time.sleep(0.2)
    if not re.search(told_pattern, told):
      failures.append(f"{name}: wanted {told_pattern!r}, told {told!r}")
    print(f"| {name} | {told} | {reason or '-'} |", flush=True)
  rounds = cluster.rounds()
  end = time.monotonic() + 30
  while cluster.rounds() == rounds:
    if time.monotonic() > end:
      failures.append("no rounds any more")
      break
    time.sleep(0.1)
  return failures
