#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Writes a manual page from what a program says with --helpfull.

  man_pages.py PROGRAM FOLDER      PROGRAM.1.gz in FOLDER; of psctl also psctl-COMMAND.1.gz for each command
"""
import gzip
import os
import re
import subprocess
import sys

SECTION = 1
GROUP = re.compile(r"^([A-Z][^\n:]*):$")
FLAG = re.compile(r"^  (-\S.*)$")


def help_of(*command):
  return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def escape(text):
  """Of one line: no word of it is a request to roff, and hyphens stay those of flags."""
  text = text.replace("\\", r"\e").replace("-", r"\-")
  return r"\&" + text if text.startswith((".", "'")) else text


def page_of(name, text, version):
  """`text`: what the program says. Its first line is "NAME ...: what it is"."""
  first, _, rest = text.partition("\n")
  summary = first.partition(": ")[2] or first
  lines = [f'.TH "{name.upper()}" {SECTION} "" "lodestar {version}"', ".SH NAME",
           escape(f"{name} - ") + escape(summary.rstrip(".")), ".SH SYNOPSIS", ".nf",
           escape(first.partition(": ")[0]) + ("" if "[" in first or " " in first.partition(": ")[0] else r" [\-\-flag=value ...]"),
           ".fi", ".SH DESCRIPTION", ".nf"]
  in_flags = False
  for line in rest.splitlines():
    group, flag = GROUP.match(line), FLAG.match(line)
    if group:
      if not in_flags:
        lines.append(".fi")
      in_flags = True
      lines.append(f'.SH "{escape(group.group(1)).upper()}"')
    elif in_flags and flag:
      lines += [".TP", f"\\fB{escape(flag.group(1))}\\fR"]
    elif in_flags:
      lines.append(escape(line.strip()))
    else:
      lines.append(escape(line))
  return "\n".join(line for line in lines if line or not in_flags) + "\n"


def write_page(folder, name, text, version):
  with gzip.GzipFile(os.path.join(folder, f"{name}.{SECTION}.gz"), "wb", mtime=0) as file:
    file.write(page_of(name, text, version).encode())


def main():
  if len(sys.argv) != 3:
    sys.exit(__doc__)
  program, folder = sys.argv[1:]
  name = os.path.basename(program)
  version = help_of(program, "--version").split()[1]
  text = help_of(program, "--helpfull")
  write_page(folder, name, text, version)
  if name != "psctl":
    return
  for command in sorted(set(re.findall(r"^  psctl ([a-z-]+)", text, re.MULTILINE)) - {"help"}):
    write_page(folder, f"psctl-{command}", help_of(program, "help", command), version)


if __name__ == "__main__":
  main()
