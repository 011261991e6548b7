#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""The command blocks of README and the tutorials that are marked as runnable, in their order, in an empty folder,
and the scripts of the page about copies in a bucket.

A block that begins with ```bash runnable has to end with 0. One that begins with ```bash runnable background stays
until the page is over; the blocks after it run once its job trains, with the port of its server in $server.
"""
import os
import re
import shutil
import signal
import subprocess
import unittest

import cluster_processes
from cluster_processes import BINARIES, PATIENCE_SECONDS, ClusterTestCase, wait_until

PAGES = [os.path.abspath(page) for page in ("README.md", "docs/tutorials/first_hour.md")]
BLOCK = re.compile(r"^```bash runnable( background)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT_CODE_OF_CTRL_C = 130
BUCKET_PAGE = os.path.abspath("docs/howto/save_and_resume.md")
SCRIPT = re.compile(r"^```\n# (\w+\.sh)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What the page uses of rclone. If the file "full" exists, one file of a folder is copied, and then there is an error.
RCLONE = """#!/bin/bash
set -e
arguments=("${{@//bucket:/{bucket}/}}")
from=${{arguments[1]}} to=${{arguments[2]}}
case $1 in
  mkdir) mkdir -p "$from";;
  lsf) ls -p "$from";;
  moveto) mkdir -p "$to"; cp -rT "$from" "$to"; rm -r "$from";;
  copy)
    mkdir -p "$to"
    if [ -f "$from" ]; then exec cp "$from" "$to"; fi
    for file in "$from"/*; do
      if [ "$4" != --exclude ] || [ "${{file##*/}}" != "$5" ]; then cp "$file" "$to"; fi
      if [ -e full ]; then echo "no space" >&2; exit 1; fi
    done;;
esac
"""


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

class BucketCopiesTest(ClusterTestCase):
  """The scripts of the page about saving, with folders in place of a bucket and of /scratch."""

  def setUp(self):
    super().setUp()
    with open(BUCKET_PAGE, encoding="utf-8") as file:
      scripts = dict(SCRIPT.findall(file.read()))
    self.assertEqual(sorted(scripts), ["copy.sh", "next.sh"])
    for name, text in scripts.items():
      self.write(name, text.replace("/scratch/", self.path("")))
    self.write("start.sh", "touch " + self.path("started"))
    os.mkdir(self.path("bin"))
    self.write("bin/rclone", RCLONE.format(bucket=self.path("bucket")))
    os.chmod(self.path("bin", "rclone"), 0o755)
    path = ":".join([self.path("bin"), os.path.dirname(BINARIES["psctl"]), "/usr/bin", "/bin"])
    self.popen = {"cwd": self.path(""), "env": {**os.environ, "PATH": path}}

  def start_server(self, **flags):
    return super().start_server(popen=self.popen, checkpoint_dir=self.path("run1"), checkpoint_interval=0,
                                on_checkpoint="sh copy.sh", **flags)

  def bucket(self, *names):
    return self.path("bucket", "my-bucket", "run1", *names)

  def train(self, *ends, **flags):
    """Trains to each of these rounds with a server of its own, which saves and copies there."""
    for end in ends:
      server = self.start_server(rounds=end, **flags)
      self.assert_ends(self.start_worker("a"))
      self.assertEqual(server.wait(), 0, server.log())

  def run_next(self):
    """Returns the exit code, and the checkpoints that were restored."""
    shutil.rmtree(self.path("run1"))
    next_machine = subprocess.run(["sh", "next.sh"], capture_output=True, timeout=PATIENCE_SECONDS, check=False,
                                  **self.popen)
    is_started = os.path.exists(self.path("started"))
    self.assertEqual(is_started, next_machine.returncode == 0, next_machine.stderr)
    restored = os.listdir(self.path("run1")) if os.path.isdir(self.path("run1")) else []
    return next_machine.returncode, [name for name in restored if name.startswith("round-")]

  def test_next_machine_starts_from_the_newest_whole_copy(self):
    self.train(10, 20, 30)
    # The first machine was taken away while it made the copy of round 30; that of round 20 was damaged.
    os.remove(self.bucket("round-00000030", "MANIFEST.json"))
    for name in os.listdir(self.bucket("round-00000020")):
      if name != "MANIFEST.json":
        os.truncate(self.bucket("round-00000020", name), 5)
    self.assertEqual(self.run_next(), (0, ["round-00000010"]))

  def test_next_machine_does_not_begin_anew_if_there_is_no_whole_copy(self):
    self.train(10)
    os.remove(self.bucket("round-00000010", "MANIFEST.json"))
    self.assertEqual(self.run_next(), (1, []))

  def test_copy_is_not_whole_before_all_of_it_is_there(self):
    self.write("full", "")
    server = self.start_server(rounds=10, exit_when_done=None)
    self.assert_ends(self.start_worker("a"))
    stop = self.psctl("stop")
    self.assertEqual(stop.returncode, 3, stop.stdout + stop.stderr)
    self.assertIn("--on_checkpoint", stop.stdout)
    self.assertEqual(server.wait(), 3, server.log())
    self.assertNotIn("MANIFEST.json", os.listdir(self.bucket("round-00000010")))

  def test_copies_that_going_back_has_undone_are_set_aside_although_the_folder_lacks_them(self):
    self.train(10, 20, 30, checkpoint_keep=1)
    self.assertNotIn("round-00000020", os.listdir(self.path("run1")))
    shutil.copytree(self.bucket("round-00000010"), self.path("fetched", "round-00000010"))
    server = self.start_server(rounds=30, resume=self.path("fetched", "round-00000010"))

    def is_copied():
      whole = [name for name in os.listdir(self.bucket()) if name.startswith("round-") and "." not in name]
      return whole == ["round-00000010"] and os.path.exists(self.bucket(*whole, "MANIFEST.json"))

    wait_until(is_copied, server.log)
    self.assertIn("round-00000020.abandoned", os.listdir(self.bucket()))
    server.kill()
    self.assertEqual(self.run_next(), (0, ["round-00000010"]))


if __name__ == "__main__":
  cluster_processes.main()
