#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""The command blocks of README and the tutorials that are marked as runnable, in their order, in an empty folder.

A block that begins with ```bash runnable has to end with 0. One that begins with ```bash runnable background stays
until the page is over; the blocks after it run once its job trains, with the port of its server in $server.
"""
import os
import re
import signal
import subprocess
import unittest

import cluster_processes
from cluster_processes import BINARIES, PATIENCE_SECONDS, ClusterTestCase

PAGES = [os.path.abspath(page) for page in ("README.md", "docs/tutorials/first_hour.md")]
BLOCK = re.compile(r"^```bash runnable( background)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT_CODE_OF_CTRL_C = 130


class ManualCommandsTest(ClusterTestCase):

  def blocks(self, page):
    """Returns pairs of commands and whether they stay; their dashboard gets any free port."""
    with open(page, encoding="utf-8") as file:
      blocks = BLOCK.findall(file.read())
    self.assertTrue(blocks, page)
    return [(commands.replace("--http=127.0.0.1:8080", "--http=127.0.0.1:0"), bool(stays)) for stays, commands in blocks]

  def run_page(self, page):
    folder = self.path(os.path.basename(page) + ".run")
    os.mkdir(folder)
    path = ":".join([*dict.fromkeys(map(os.path.dirname, BINARIES.values())), "/usr/bin", "/bin"])
    popen = {"cwd": folder, "env": {"PATH": path, "HOME": folder}}
    staying = []
    for commands, stays in self.blocks(page):
      if stays:
        process = self.start(["bash", "-ec", "exec " + commands], "staying", **popen)
        process.wait_for_log("first contribution is delivered")
        popen["env"]["server"] = re.search(r"psctl status --server=(\S+)", process.log()).group(1)
        staying.append(process)
        continue
      done = subprocess.run(["bash", "-exc", commands], capture_output=True, timeout=PATIENCE_SECONDS,
                            check=False, text=True, errors="replace", **popen)
      self.assertEqual(done.returncode, 0, f"{page}\n{done.stdout}{done.stderr}")
    return staying

  def test_the_command_of_the_readme_trains_until_it_is_interrupted(self):
    (job,) = self.run_page(PAGES[0])
    job.send(signal.SIGINT)
    self.assertEqual(job.wait(), EXIT_CODE_OF_CTRL_C, job.log())

  def test_the_commands_of_the_first_hour_end_with_0(self):
    (job,) = self.run_page(PAGES[1])
    self.assertEqual(job.wait(), 0, job.log())


if __name__ == "__main__":
  cluster_processes.main()
