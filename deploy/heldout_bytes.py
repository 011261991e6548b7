#!/usr/bin/env python3
"""Writes the held-out bytes of a text corpus to standard output.

Usage: heldout_bytes.py PATH

These are the last floor(size / 10) bytes of every file, for the same files in the same order as in
worker/data: one file, or a folder tree sorted by path relative to it; links are followed, a folder
reached a second time is skipped.
"""

import errno
import os
import stat
import sys


def visit(path, relative_path, seen, files):
    try:
        info = os.stat(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return
        raise
    if not stat.S_ISDIR(info.st_mode):
        files.append((relative_path, path))
        return
    identity = (info.st_dev, info.st_ino)
    if identity in seen:
        return
    seen.add(identity)
    for name in sorted(os.listdir(path)):
        below = relative_path + b"/" + name if relative_path else name
        visit(path + b"/" + name, below, seen, files)


def corpus_files(path):
    files = []
    visit(os.fsencode(path), b"", set(), files)
    return [full_path for _, full_path in sorted(files)]


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    for path in corpus_files(arguments[0]):
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(size - size // 10)
            sys.stdout.buffer.write(file.read())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
