#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes text as tokens: the 256 bytes, then the most frequent words, each with the space before it.

Usage: words_to_tokens.py --vocabulary=N --out=FILE.bin PATH

FILE.bin gets the header of llm.c (256 int32: magic 20240520, version 1, number of tokens) and uint16
tokens. FILE.bin.vocabulary gets one word per line, the first one is token 256. Prints how many bytes
a token has on average.
"""

import argparse
import array
import collections
import os
import re
import sys

HEADER_WORDS, MAGIC, VERSION = 256, 20240520, 1
NUM_BYTES = 256
WORD = re.compile(rb" ?[A-Za-z_]+|[^A-Za-z_]")


class NotText(ValueError):
    pass


def text_of(path):
    """Raises NotText, OSError."""
    if os.path.isfile(path) or not os.path.exists(path):
        paths = [path]
    else:
        paths = sorted(os.path.join(root, n) for root, _, names in os.walk(path) for n in names)
    content = []
    for name in paths:
        with open(name, "rb") as file:
            content.append(file.read())
        zero = content[-1].find(b"\0")
        if zero >= 0:
            raise NotText(f"{name} is no text: it has a zero byte at offset {zero}. If it has tokens already, give it to "
                          "gpu_worker --data, and give a model file with its vocabulary to ps_server --model")
    return b"".join(content)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabulary", type=int, default=1024, help="257 to 65536")
    parser.add_argument("--out", required=True)
    parser.add_argument("path", help="a file or a folder tree of text")
    options = parser.parse_args()
    if not NUM_BYTES < options.vocabulary <= 1 << 16:
        parser.error(f"--vocabulary={options.vocabulary} is out of range; allowed are {NUM_BYTES + 1} to 65536")
    try:
        text = text_of(options.path)
    except (NotText, OSError) as error:
        sys.exit(f"words_to_tokens.py: {error}")
    pieces = WORD.findall(text)
    counts = collections.Counter(piece for piece in pieces if len(piece) > 1)
    words = [word for word, _ in counts.most_common(options.vocabulary - NUM_BYTES)]
    number = {word: NUM_BYTES + i for i, word in enumerate(words)}
    tokens = array.array("H")
    for piece in pieces:
        if piece in number:
            tokens.append(number[piece])
        else:
            tokens.extend(piece)
    header = array.array("i", [MAGIC, VERSION, len(tokens)] + [0] * (HEADER_WORDS - 3))
    if sys.byteorder != "little":
        header.byteswap()
        tokens.byteswap()
    with open(options.out, "wb") as file:
        file.write(header.tobytes() + tokens.tobytes())
    with open(options.out + ".vocabulary", "wb") as file:
        file.write(b"\n".join(words) + b"\n")
    print(f"{len(text) / max(len(tokens), 1):.3f}")


if __name__ == "__main__":
    main()
