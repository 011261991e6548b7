# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of worker/model/unicode_classes.cc: what the pattern of tokenizers' ByteLevel tells apart.

Usage: unicode_classes.py, with the Python of tests/python_with_torch.sh.
"""
from tokenizers import pre_tokenizers

COLUMNS = 100


def main():
  splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)

  def goes_with(first, character):
    return len(splitter.pre_tokenize_str(first + character)) == 1

  tables = {"kLetters": [], "kNumbers": [], "kSpaces": []}
  for code in range(0x110000):
    if 0xd800 <= code < 0xe000:
      continue
    character = chr(code)
    name = ("kLetters" if goes_with("a", character) else
            "kNumbers" if goes_with("1", character) else
            None if goes_with("!", character) else "kSpaces")
    if name is None:
      continue
    ranges = tables[name]
    if ranges and ranges[-1][1] == code - 1:
      ranges[-1][1] = code
    else:
      ranges.append([code, code])
  for name, ranges in tables.items():
    print(f"constexpr Range {name}[] = {{")
    line = "   "
    for first, last in ranges:
      item = f" {{{first:#x}, {last:#x}}},"
      if len(line) + len(item) > COLUMNS:
        print(line)
        line = "   "
      line += item
    print(line + "\n};\n")


if __name__ == "__main__":
  main()
