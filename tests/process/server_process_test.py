#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Properties of the ps_server binary that need a process of its own: exit codes, flags, signals.

Usage: server_process_test.py PS_SERVER
"""
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

SERVER = None
PATIENCE_SECONDS = 30


def run(*flags):
  return subprocess.run([SERVER, *flags], capture_output=True, text=True,
                        timeout=PATIENCE_SECONDS, check=False)


class ServerProcess:
  """A running ps_server on a port that the system chose."""

  def __init__(self, *flags):
    self._folder = tempfile.TemporaryDirectory()
    port_file = os.path.join(self._folder.name, "port")
    self.process = subprocess.Popen(
        [SERVER, "--listen=127.0.0.1:0", "--port_file=" + port_file, "--model=mlp", *flags],
        stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not os.path.exists(port_file):
      if self.process.poll() is not None or time.monotonic() > deadline:
        raise AssertionError("the server did not start: " + self.process.communicate()[0])
      time.sleep(0.01)
    with open(port_file, encoding="ascii") as file:
      self.port = int(file.read())

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    if self.process.poll() is None:
      self.process.kill()
    self.process.wait()
    self.process.stderr.close()
    self._folder.cleanup()


class Etcd:
  """A real one, with one member."""

  def __init__(self):
    self._folder = tempfile.TemporaryDirectory()
    with socket.socket() as client, socket.socket() as peer:
      for reserved in (client, peer):
        reserved.bind(("127.0.0.1", 0))
      self.port, peer_port = (reserved.getsockname()[1] for reserved in (client, peer))
    url, peer_url = (f"http://127.0.0.1:{port}" for port in (self.port, peer_port))
    self._process = subprocess.Popen(
        ["etcd", "--data-dir=" + self._folder.name, "--unsafe-no-fsync",
         "--listen-client-urls=" + url, "--advertise-client-urls=" + url,
         "--listen-peer-urls=" + peer_url, "--initial-advertise-peer-urls=" + peer_url,
         "--initial-cluster=default=" + peer_url],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self._process.kill()
    self._process.wait()
    self._folder.cleanup()

  def call(self, name, **request):
    """Over its JSON gateway, which has the API a second time; bytes are base64."""
    body = json.dumps(request).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v3/{name}", body,
                                PATIENCE_SECONDS) as answer:
      return json.load(answer)

  def address(self, key):
    return f"etcd://127.0.0.1:{self.port}/{key}"


class ServerProcessTest(unittest.TestCase):

  def test_help_and_version(self):
    shown = run("--helpfull")
    self.assertEqual(shown.returncode, 0)
    self.assertIn("--max_rounds_ahead", shown.stdout)
    brief = run("--help")
    self.assertEqual(brief.returncode, 0)
    self.assertIn("--helpfull", brief.stdout)
    self.assertLess(len(brief.stdout.splitlines()), 100)
    self.assertRegex(run("--version").stdout,
                     r"^ps_server \d+\.\d+\.\d+\n"
                     r"commit: ([0-9a-f]{40}( and uncommitted changes)?|unknown, .*)\n"
                     r"wire: \d+\nbuild: \w+, .*\n$")

  def test_wrong_flags_exit_with_2_and_name_the_flag(self):
    for flags, text in [(["--mode=slow"], "--mode=slow"), (["--rouns=3"], "--rouns"),
                        (["--tls", "--insecure"], "--insecure is plain text"),
                        (["--quorum=1", "--mode=async"], "--quorum=1")]:
      wrong = run(*flags)
      self.assertEqual(wrong.returncode, 2, wrong.stderr)
      self.assertIn(text, wrong.stderr)

  def test_taken_port_exits_with_129(self):
    with ServerProcess() as server:
      second = run("--model=mlp", f"--listen=127.0.0.1:{server.port}")
      self.assertEqual(second.returncode, 129)
      self.assertIn("in use", second.stderr)

  def test_idle_connections_keep_nobody_out(self):
    with ServerProcess() as server:
      max_files = 128
      resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (max_files, max_files))
      address = ("127.0.0.1", server.port)
      idle = [socket.create_connection(address) for _ in range(3 * max_files)]
      try:
        with self.assertRaises(urllib.error.HTTPError) as told:
          urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=PATIENCE_SECONDS)
        self.assertEqual(told.exception.code, 400)
        self.assertIn("psctl status", told.exception.read().decode())
        told.exception.close()
      finally:
        for connection in idle:
          connection.close()

  def test_missing_weights_exit_with_1(self):
    failed = run("--model=mlp", "--listen=127.0.0.1:0", "--init_from=/no/such/file.safetensors")
    self.assertEqual(failed.returncode, 1, failed.stderr)
    self.assertRegex(failed.stderr, "NOT_FOUND: --init_from: .*/no/such/file.safetensors")
    self.assertNotIn("begins at round 0", failed.stderr)

  def test_signals_stop_it(self):
    for number in (signal.SIGTERM, signal.SIGINT):
      with ServerProcess() as server:
        server.process.send_signal(number)
        self.assertEqual(server.process.wait(PATIENCE_SECONDS), 128 + number)

  def test_restarted_server_takes_its_port_again(self):
    with ServerProcess() as server:
      server.process.kill()
      server.process.wait()
      with ServerProcess(f"--listen=127.0.0.1:{server.port}") as again:
        self.assertEqual(again.port, server.port)

  @unittest.skipUnless(shutil.which("etcd"), "there is no etcd on this machine")
  def test_one_server_of_two_has_the_leader_lease(self):
    with Etcd() as etcd, tempfile.TemporaryDirectory() as folder:
      flags = ["--leader_lease=" + etcd.address("a/run"), "--checkpoint_dir=" + folder]
      # Started with etcd, which it waits for.
      with ServerProcess(*flags) as first, subprocess.Popen(
          [SERVER, "--listen=127.0.0.1:0", "--model=mlp", *flags], stderr=subprocess.PIPE,
          text=True) as second:
        self.addCleanup(second.kill)
        standing_by = next(line for line in second.stderr if "as a standby" in line)
        self.assertIn(f"process {first.process.pid},", standing_by)
        # What the end of a lease does to a holder that is frozen.
        first.process.send_signal(signal.SIGSTOP)
        key = etcd.call("kv/range", key="YS9ydW4=")["kvs"][0]
        etcd.call("lease/revoke", ID=key["lease"])
        self.assertTrue(any("holds the leader lease" in line for line in second.stderr))
        # It serves although the frozen one keeps the kernel's lock on the folder.
        self.assertTrue(any("address=" in line for line in second.stderr))
        first.process.send_signal(signal.SIGCONT)
        self.assertEqual(first.process.wait(PATIENCE_SECONDS), 129)
        self.assertRegex(first.process.stderr.read(), "the leader lease .*; this server ends at once")
        # A server that ends gives the lease back.
        second.send_signal(signal.SIGTERM)
        self.assertEqual(second.wait(PATIENCE_SECONDS), 128 + signal.SIGTERM)
        self.assertNotIn("kvs", etcd.call("kv/range", key="YS9ydW4="))

  def test_a_server_that_waits_for_etcd_can_be_stopped(self):
    with subprocess.Popen([SERVER, "--model=mlp", "--leader_lease=etcd://127.0.0.1:1/k"],
                          stderr=subprocess.PIPE, text=True) as server:
      self.addCleanup(server.kill)
      self.assertTrue(any("waits for the leader lease" in line for line in server.stderr))
      server.send_signal(signal.SIGTERM)
      self.assertEqual(server.wait(PATIENCE_SECONDS), 128 + signal.SIGTERM)


if __name__ == "__main__":
  SERVER = os.path.abspath(sys.argv.pop(1))
  unittest.main()
