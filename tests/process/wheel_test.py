#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""The wheel, unpacked: its programs and its library run with what is in it, wherever that is.
wheel_install.py installs it.

Usage: wheel_test.py WHEEL
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

from cluster_processes import GPT, PATIENCE_SECONDS, wait_until, write_words

WHEEL = os.path.abspath(sys.argv.pop(1))
PAGE = os.path.abspath("docs/howto/python_wheel.md")
PROGRAMS = {"server": "ps_server", "worker": "gpu_worker", "psctl": "psctl"}

# What a process must have one of, and what a machine has: of the C library and of the compiler.
MACHINE_LIBRARIES = r"(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s)\.so"

LOAD = """
import lodestar
worker = lodestar.Worker(name="unpacked")
print(lodestar.__version__)
import ssl
print(open("/proc/self/maps").read())
"""


class WheelTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = os.path.realpath(folder.name)
    with zipfile.ZipFile(WHEEL) as wheel:
      for entry in wheel.infolist():
        # As pip does, which takes no other attribute.
        os.chmod(wheel.extract(entry, cls.folder), entry.external_attr >> 16 & 0o777)

  def environment(self):
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": self.folder, "PYTHONDONTWRITEBYTECODE": "1"}

  def run_python(self, *arguments, code=0):
    run = subprocess.run([sys.executable, *arguments], env=self.environment(), cwd="/", text=True,
                         capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    self.assertEqual(run.returncode, code, run.stdout + run.stderr)
    return run.stdout if code == 0 else run.stderr

  def binaries(self):
    package = os.path.join(self.folder, "lodestar")
    return [os.path.join(package, folder, name) for folder in ("bin", "lib")
            for name in sorted(os.listdir(os.path.join(package, folder)))]

  def test_every_module_that_is_a_program_becomes_it(self):
    for module, program in PROGRAMS.items():
      shown = self.run_python("-m", "lodestar." + module, "--version")
      self.assertRegex(shown, rf"^{program} \d+\.\d+\.\d+\n(?s:.*)commit: ")
      refused = self.run_python("-m", "lodestar." + module, "--no_such_flag=1", code=2)
      self.assertIn("no_such_flag", refused)

  def run_doctor(self, *arguments):
    """Exit code and findings."""
    run = subprocess.run([sys.executable, "-m", "lodestar", "doctor", *arguments],
                         env=self.environment(), cwd="/", text=True, capture_output=True,
                         timeout=PATIENCE_SECONDS, check=False)
    self.assertEqual(run.stderr, "")
    return run.returncode, run.stdout

  def test_the_doctor_says_whether_a_worker_can_join(self):
    with tempfile.TemporaryDirectory() as folder:
      port_file = os.path.join(folder, "port")
      server = subprocess.Popen(
          [sys.executable, "-m", "lodestar", "server", "--model=mlp", "--listen=127.0.0.1:0",
           "--port_file=" + port_file, "--rounds=10"], env=self.environment(), cwd="/",
          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
      try:
        wait_until(lambda: os.path.exists(port_file), lambda: "the server's port")
        with open(port_file, encoding="ascii") as file:
          address = "127.0.0.1:" + file.read().strip()
        code, found = self.run_doctor(address)
        self.assertEqual(code, 0, found)
        self.assertIn("ok   job mlp: ", found)
        self.assertRegex(found, r"weights came in \d.* MB/s")
        self.assertIn("A worker can join.", found)
      finally:
        server.kill()
        server.wait()
      code, found = self.run_doctor(address)
      self.assertEqual(code, 1)
      self.assertRegex(found, rf"bad  {address}: Connection refused: start ps_server there")
    code, found = self.run_doctor("no port")
    self.assertIn("bad  'no port' is not HOST:PORT", found)

  def test_its_programs_train_together(self):
    with tempfile.TemporaryDirectory() as folder:
      corpus, model = os.path.join(folder, "corpus.txt"), os.path.join(folder, "model.textproto")
      write_words(corpus)
      with open(model, "w", encoding="ascii") as file:
        file.write(GPT)
      launched = self.run_python("-m", "lodestar.psctl", "launch", "--workers=2", "--device=cpu",
                                 "--data=" + corpus, "--exit_when_done", "--", "--model=" + model,
                                 "--rounds=3", "--batch_size=2", "--eval_samples=8")
    self.assertIn("round 3", launched)

  def test_the_library_loads_with_libraries_of_its_own(self):
    version, maps = self.run_python("-c", LOAD).split("\n", 1)
    self.assertIn(f"lodestar-{version}-py3-", WHEEL)
    inside = set(re.findall(rf"{self.folder}/lodestar/lib/(\S+)$", maps, re.MULTILINE))
    self.assertIn("liblodestar_worker.so", inside)
    # Python's own are others, in the same process.
    self.assertIn("lodestar-libcrypto.so.3", inside)
    self.assertRegex(maps, r"/libcrypto\.so\.3\n")

  def test_brings_what_it_needs_under_names_that_nobody_else_has(self):
    provided = {os.path.basename(path) for path in self.binaries()}
    self.assertGreater(len(provided), 20)
    for path in self.binaries():
      dynamic = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True,
                               check=True).stdout
      for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if not re.match(MACHINE_LIBRARIES, name):
          self.assertRegex(name, "^lodestar-", path)
          self.assertIn(name, provided, path)
      if "/lib/lodestar-" in path:
        self.assertIn(f"soname: [{os.path.basename(path)}]", dynamic)

  def test_wants_no_later_machine_than_its_page_says(self):

    def versions(library, text):
      return [tuple(map(int, numbers.split(".")))
              for numbers in re.findall(rf"\b{library}_(\d[\d.]*\d)", text)]

    needs = subprocess.run(["readelf", "-VW", *self.binaries()], capture_output=True, text=True,
                           check=True).stdout
    with open(PAGE, encoding="utf-8") as file:
      page = file.read()
    for library in ("GLIBC", "GLIBCXX"):
      self.assertLessEqual(max(versions(library, needs)), max(versions(library, page)), library)

  def test_brings_the_licence_of_every_library(self):
    found = {}
    for folder, _, names in os.walk(self.folder):
      if "/licenses" in folder:
        found.update({name: os.path.getsize(os.path.join(folder, name)) for name in names})
    for name in ("LICENSE", "libgrpc29", "libprotobuf32", "libssl3"):
      self.assertGreater(found.get(name, 0), 500, found)


if __name__ == "__main__":
  unittest.main()
