#!/usr/bin/python3
"""Properties of the ps_server binary that need a process of its own: exit codes, flags, signals.

Usage: server_process_test.py PS_SERVER
"""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

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


class ServerProcessTest(unittest.TestCase):

  def test_help_and_version(self):
    shown = run("--help")
    self.assertEqual(shown.returncode, 0)
    self.assertIn("--max_rounds_ahead", shown.stdout)
    self.assertRegex(run("--version").stdout,
                     r"^ps_server \d+\.\d+\.\d+\n"
                     r"commit: ([0-9a-f]{40}( and uncommitted changes)?|unknown, .*)\n"
                     r"wire: \d+\nbuild: \w+, .*\n$")

  def test_wrong_flags_exit_with_2_and_name_the_flag(self):
    for flags, text in [(["--mode=slow"], "--mode=slow"), (["--rouns=3"], "--rouns"),
                        (["--listen=0.0.0.0:0"], "--insecure"),
                        (["--quorum=1", "--mode=async"], "--quorum=1")]:
      wrong = run(*flags)
      self.assertEqual(wrong.returncode, 2, wrong.stderr)
      self.assertIn(text, wrong.stderr)

  def test_taken_port_exits_with_129(self):
    with ServerProcess() as server:
      second = run("--model=mlp", f"--listen=127.0.0.1:{server.port}")
      self.assertEqual(second.returncode, 129)
      self.assertIn("in use", second.stderr)

  def test_missing_weights_exit_with_1(self):
    failed = run("--model=mlp", "--listen=127.0.0.1:0", "--init_from=/no/such/file.safetensors")
    self.assertEqual(failed.returncode, 1, failed.stderr)
    self.assertIn("/no/such/file.safetensors", failed.stderr)

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


if __name__ == "__main__":
  SERVER = os.path.abspath(sys.argv.pop(1))
  unittest.main()
