#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says how well the held-out bytes of a text can be guessed, from knowing nothing to a trained model.

Usage: yardsticks.py PATH MODEL_BITS

PATH is the --data of the workers, MODEL_BITS the model's held-out loss in bits per byte. Prints bits
per byte, the worst first: 8 means no knowledge at all, and 0 would mean to know the text. Two rows
guess from counts of the training bytes: how often each byte occurs, and which byte follows which. Two
rows compress the held-out bytes. Of a large text, only the first LIMIT_BYTES of each part are used.
"""

import collections
import errno
import gzip
import lzma
import math
import os
import stat
import sys

LIMIT_BYTES = 32 << 20
NUM_BYTES = 256


def _visit(path, relative_path, seen, files):
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
        _visit(path + b"/" + name, below, seen, files)


def corpus_files(path):
    """The files that workers read, in their order: links are followed, a folder that is reached a
    second time is skipped."""
    files = []
    _visit(os.fsencode(path), b"", set(), files)
    return [full_path for _, full_path in sorted(files)]


def split_corpus(path):
    """(training bytes, held-out bytes), each at most LIMIT_BYTES. Held out are the last
    floor(size / 10) bytes of every file, as in worker/data."""
    training, heldout = bytearray(), bytearray()
    for name in corpus_files(path):
        with open(name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            training += file.read(min(size - size // 10, LIMIT_BYTES - len(training)))
            file.seek(size - size // 10)
            heldout += file.read(LIMIT_BYTES - len(heldout))
        if len(training) == len(heldout) == LIMIT_BYTES:
            break
    return bytes(training), bytes(heldout)


def bits_by_frequency(training, heldout):
    """Bits per byte for someone who has counted the bytes; each once more than it was seen, so that
    nothing is impossible."""
    counts = collections.Counter(training)
    total = len(training) + NUM_BYTES
    seen = collections.Counter(heldout)
    bits = sum(n * math.log2(total / (counts[byte] + 1)) for byte, n in seen.items())
    return bits / len(heldout)


def bits_by_predecessor(training, heldout):
    """The same for someone who has counted which byte follows which."""
    counts = collections.Counter(zip(training, training[1:]))
    totals = collections.Counter(training[:-1])
    seen = collections.Counter(zip(heldout, heldout[1:]))
    bits = sum(
        n * math.log2((totals[pair[0]] + NUM_BYTES) / (counts[pair] + 1))
        for pair, n in seen.items()
    )
    return bits / max(len(heldout) - 1, 1)


def ladder(path, model_bits):
    """(bits per byte, whose), the worst first."""
    training, heldout = split_corpus(path)
    if not heldout:
        raise ValueError(f"{path} has no held-out bytes")
    packed_by_gzip = gzip.compress(heldout, 9)
    packed_by_xz = lzma.compress(heldout, preset=9 | lzma.PRESET_EXTREME)
    rows = [
        (8.0, "no knowledge"),
        (bits_by_frequency(training, heldout), "how often each byte occurs"),
        (bits_by_predecessor(training, heldout), "which byte follows which"),
        (8 * len(packed_by_gzip) / len(heldout), "gzip -9"),
        (8 * len(packed_by_xz) / len(heldout), "xz -9e"),
        (model_bits, "this model  <--"),
    ]
    return sorted(rows, reverse=True)


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        rows = ladder(arguments[0], float(arguments[1]))
    except (OSError, ValueError) as error:
        print(f"yardsticks.py: {error}", file=sys.stderr)
        return 1
    for bits, whose in rows:
        print(f"  {bits:.3f}  {whose}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
