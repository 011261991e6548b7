# SPDX-License-Identifier: Apache-2.0
"""Finds comments, and sentences of the manual, that a program can tell to be hard to read.

check_prose() takes the root of a checkout and returns one line per violation. style: a comment is a sentence with a
subject and a verb, programs are no "who", and a special value is spelled ("0 means no limit").
"""

import ast
import os
import re

import layer_rules

# The docstrings that are checked. They are the manual of those who train from Python.
DOCSTRINGS = "worker/python"
FOLDERS = (*layer_rules.LAYERS, "third_party")
# Openings of comments that stand for a sentence without its subject or its verb.
OPENING = re.compile(r"(?:Of|Whose|Who|Whoever|Nobody|Somebody)\b")
OPENING_OF_DOCSTRING = re.compile(OPENING.pattern + r"|(?:Those|That) of\b")
PHRASE = re.compile(r"\b(?:so, too|likewise|as ever|whoever|nobody|somebody)\b", re.IGNORECASE)
SPECIAL_VALUE = re.compile(r"(?:^|[;(.] )(?:-1|0): ")
# These pages are covered, and of folders the Markdown files below them.
PAGES = ("README.md", "SECURITY.md", "deploy/README.md", "docs", "worker/python/README.md")
CODE_OF_PAGES = re.compile(r"^( *)```.*?^\1```$|^    .*?$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
PART_OF_PAGE = re.compile(r"\n\s*\n|\n(?=[ ]*(?:- |\d+\. |\||#))|(?<=[^\\\n]) ?\| ?(?=[^\n])")
# A blank line, or the name of an item such as an argument.
PART_OF_DOCSTRING = re.compile(r"\n\s*\n|\n\s+[\w, *]+:[ \n]")
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


def docstrings(text):
    """Yields line number and text of each paragraph, and of each item of a list, of a docstring in Python."""
    for node in ast.walk(ast.parse(text)):
        is_documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if not is_documented or ast.get_docstring(node) is None:
            continue
        text_of_node = node.body[0].value.value
        begin = 0
        for end in [*PART_OF_DOCSTRING.finditer(text_of_node), None]:
            part = text_of_node[begin:end.start() if end else len(text_of_node)]
            yield node.body[0].lineno + text_of_node.count("\n", 0, begin), " ".join(part.split())
            begin = end.end() if end else begin


def violations_of(comment, opening=OPENING):
    if opening.match(comment):
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
                    text = file.read()
                path = os.path.relpath(path, root)
                violations += [f"{path}:{number}: a comment {why}: {comment[:80]}"
                               for number, comment in comments(text, mark) for why in violations_of(comment)]
                if name.endswith(".py") and path.startswith(DOCSTRINGS):
                    violations += [f"{path}:{number}: a docstring {why}: {part[:80]}"
                                   for number, part in docstrings(text)
                                   for why in violations_of(part, OPENING_OF_DOCSTRING)]
    return violations
