# SPDX-License-Identifier: Apache-2.0
"""Finds comments, and sentences of the manual, that a program can tell to be hard to read.

check_prose() takes the root of a checkout and returns one line per violation. style: a comment is a sentence with a
subject and a verb, programs are no "who", and a special value is spelled ("0 means no limit").
"""

import os
import re

import layer_rules

FOLDERS = (*layer_rules.LAYERS, "third_party")
# Openings of comments that stand for a sentence without its subject or its verb.
OPENING = re.compile(r"(?:Of|Whose|Who|Whoever|Nobody|Somebody)\b")
PHRASE = re.compile(r"\b(?:so, too|likewise|as ever|whoever|nobody|somebody)\b", re.IGNORECASE)
SPECIAL_VALUE = re.compile(r"(?:^|[;(.] )(?:-1|0): ")
# These pages are covered, and of folders the Markdown files below them.
PAGES = ("README.md", "SECURITY.md", "deploy/README.md", "docs", "worker/python/README.md")
CODE_OF_PAGES = re.compile(r"^( *)```.*?^\1```$|^    .*?$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
PART_OF_PAGE = re.compile(r"\n\s*\n|\n(?=[ ]*(?:- |\d+\. |\||#))|(?<=[^\\\n]) ?\| ?(?=[^\n])")
COMMENT = {".h": "//", ".cc": "//", ".cu": "//", ".cuh": "//", ".proto": "//", ".py": "#", ".sh": "#"}


def comments(text, mark):
    """Yields line number and text of each comment, with lines that follow each other as one."""
    lines, begin = [], 0
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        before, found, comment = line.partition(mark)
        stands_alone = found and not before.strip()
        if lines and not stands_alone:
            yield begin, " ".join(lines)
            lines = []
        if stands_alone:
            begin = begin if lines else number
            lines.append(comment.strip("/ ").strip())
        elif found and before.rstrip() != before:
            yield number, comment.strip("/ ").strip()


def violations_of(comment):
    if OPENING.match(comment):
        yield "begins without its subject or its verb"
    if phrase := PHRASE.search(comment):
        yield f'says "{phrase.group()}"'
    if SPECIAL_VALUE.search(comment):
        yield 'spells a special value "0: ..."; write "0 means ..."'


def parts_of_page(text):
    """Yields line number and text of each paragraph, item of a list and cell of a table."""
    text = CODE_OF_PAGES.sub(lambda code: "X" + "\n" * code.group().count("\n"), text)
    begin = 0
    for end in [*PART_OF_PAGE.finditer(text), None]:
        part = text[begin:end.start() if end else len(text)]
        yield text.count("\n", 0, begin) + 1, " ".join(part.split()).lstrip("-|# 0123456789.*")
        begin = end.end() if end else begin


def pages(root):
    for page in PAGES:
        path = os.path.join(root, page)
        if os.path.isfile(path):
            yield path
        for parent, _, names in os.walk(path):
            yield from (os.path.join(parent, name) for name in sorted(names) if name.endswith(".md"))


def check_prose(root):
    violations = []
    for path in pages(root):
        with open(path, encoding="utf-8") as file:
            for number, part in parts_of_page(file.read()):
                violations += [f"{os.path.relpath(path, root)}:{number}: a part {why}: {part[:80]}"
                               for why in violations_of(part)]
    for folder in FOLDERS:
        for parent, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                mark = COMMENT.get(os.path.splitext(name)[1])
                if mark is None:
                    continue
                path = os.path.join(parent, name)
                with open(path, encoding="utf-8") as file:
                    for number, comment in comments(file.read(), mark):
                        violations += [f"{os.path.relpath(path, root)}:{number}: a comment {why}: {comment[:80]}"
                                       for why in violations_of(comment)]
    return violations
