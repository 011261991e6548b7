#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""docs/reference/flags.md has the help texts of all programs.

tests/process/flags_page_test.py PS_SERVER GPU_WORKER PSCTL            compares the page with the programs
tests/process/flags_page_test.py PS_SERVER GPU_WORKER PSCTL --write    writes the page
"""
import difflib
import re
import subprocess
import sys

PAGE = "docs/reference/flags.md"
BEGINNING = """# Flags

The help texts of the programs: `--helpfull`, and `psctl help COMMAND`. `tests/process/flags_page_test.py --write` makes this page from them.
"""
COMMAND = re.compile(r"^  psctl ([a-z-]+)", re.MULTILINE)
# A flag of psctl that all commands have is explained once, in the help text without a command.
FLAG = re.compile(r"^  -.*\n(?:^      .*\n)+", re.MULTILINE)


def help_of(*command):
  """Returns what the command prints, without the number of the version."""
  text = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
  return re.sub(r"^psctl \d+\.\d+\.\d+:", "psctl:", text)


def page(ps_server, gpu_worker, psctl):
  overview = help_of(psctl, "help")
  parts = [("ps_server", help_of(ps_server, "--helpfull")), ("gpu_worker", help_of(gpu_worker, "--helpfull")),
           ("psctl", overview)]
  explained = set(FLAG.findall(overview))
  for command in dict.fromkeys(COMMAND.findall(overview)):
    if command != "help":
      text = FLAG.sub(lambda flag: "" if flag[0] in explained else flag[0], help_of(psctl, "help", command))
      parts.append((f"psctl {command}", text.replace("Flags:\n\n", "").replace("\nGeneral:\n", "")))
  return BEGINNING + "".join(f"\n## {name}\n\n```\n{text.strip()}\n```\n" for name, text in parts)


def main():
  wanted = page(*sys.argv[1:4])
  if sys.argv[4:] == ["--write"]:
    with open(PAGE, "w", encoding="utf-8") as file:
      file.write(wanted)
    return
  with open(PAGE, encoding="utf-8") as file:
    written = file.read()
  if written != wanted:
    sys.stdout.writelines(difflib.unified_diff(written.splitlines(True), wanted.splitlines(True), PAGE, "the programs"))
    sys.exit("The page differs from the programs: run tests/process/flags_page_test.py with --write")


if __name__ == "__main__":
  main()
