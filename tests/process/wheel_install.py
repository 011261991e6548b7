#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Installs the wheel with pip into an empty virtual environment of one CPython, without network, and
uses it there. Exit code 77, with the reason: there is no such CPython with venv and pip.

Usage: wheel_install.py WHEEL VERSION    (such as 3.13)
"""
import glob
import os
import pwd
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
LIMIT_SECONDS = 120
# The environment in which the tests run may have settings of pip and packages of Python.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": os.devnull,
               "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONNOUSERSITE": "1"}

USE = "import lodestar; lodestar.Worker(name='installed'); print(lodestar.__version__)"


def run(*command, check=True):
  return subprocess.run(command, env=ENVIRONMENT, cwd="/", capture_output=True, text=True,
                        timeout=LIMIT_SECONDS, check=check)


def interpreters(version):
  """Newest first; some may not work."""
  home = pwd.getpwuid(os.getuid()).pw_dir
  found = glob.glob(os.path.join(home, ".pyenv/versions", version + ".*", "bin/python"))
  named = shutil.which("python" + version)
  return sorted(found, reverse=True) + ([named] if named else [])


def works(python):
  return run(python, "-c", "import venv; from pip import __version__ as v;"
             "assert [int(n) for n in v.split('.')[:2]] >= [22, 3]", check=False).returncode == 0


def install_and_use(python, wheel, folder):
  run(python, "-m", "venv", "--without-pip", folder)
  programs = os.path.join(folder, "bin")
  inside = os.path.join(programs, "python")
  run(python, "-m", "pip", "--python", inside, "install", "--no-index", wheel)
  run(python, "-m", "pip", "--python", inside, "check")
  shown = [run(inside, "-c", USE).stdout]
  for module, program in (("server", "ps_server"), ("worker", "gpu_worker"), ("psctl", "psctl")):
    for command in ([inside, "-m", "lodestar." + module], [os.path.join(programs, "lodestar-" + module)]):
      shown.append(run(*command, "--version").stdout)
      assert shown[-1].startswith(program + " "), shown
  version = os.path.basename(wheel).split("-")[1]
  assert all(version in text for text in shown), shown
  run(python, "-m", "pip", "--python", inside, "uninstall", "--yes", "lodestar")
  left = [name for name in os.listdir(programs) if "lodestar" in name]
  assert not left, left


def main():
  wheel, version = os.path.abspath(sys.argv[1]), sys.argv[2]
  python = next(filter(works, interpreters(version)), None)
  if python is None:
    print(f"no CPython {version} with venv and pip 22.3 or later")
    return SKIPPED
  try:
    with tempfile.TemporaryDirectory() as folder:
      install_and_use(python, wheel, folder)
  except subprocess.CalledProcessError as error:
    print(f"{python}: {error}\n{error.stdout}{error.stderr}")
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
