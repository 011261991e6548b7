# SPDX-License-Identifier: Apache-2.0
"""Finds links of pages that lead nowhere.

check_pages() takes the root of a checkout and returns one line per violation. A page is a Markdown file. A link leads to
a file or folder of the checkout, or to a heading of a page. Sources that name a page of the manual (docs/...) name one
that exists, and docs/index.md lists every page of the manual. docs/reference/errors.md quotes messages that sources have.
"""

import functools
import os
import re

SOURCES = (".bazel", ".cc", ".cu", ".cuh", ".h", ".proto", ".py", ".sh", ".service", ".yaml", ".yml")
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
ERRORS = "docs/reference/errors.md"
QUOTED = re.compile(r"`([^`]+)`")
# These stand for a number, a name or a port in a message that is quoted.
VARIABLE = re.compile(r"\.\.\.|\b(?:[a-z]|[A-Z]|\d+s?)\b")
END_AND_BEGIN_OF_LITERAL = re.compile(r'"\s*\n\s*"')
PAGE_OF_MANUAL = re.compile(r"(?<![\w/.-])docs/(?:(?:tutorials|howto|reference|explanation)/\w+|index)\.md(?:#[\w-]+)?")


def files_of(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "bazel-")) and name != "shared")
        for name in sorted(names):
            yield os.path.join(folder, name)


def anchor_of(heading):
    """Returns the anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@functools.lru_cache(maxsize=None)
def anchors_of(page):
    with open(page, encoding="utf-8") as file:
        text = FENCED.sub("", file.read())
    anchors, seen = set(), {}
    for heading in HEADING.findall(text):
        anchor = anchor_of(heading)
        times = seen.get(anchor, 0)
        seen[anchor] = times + 1
        anchors.add(f"{anchor}-{times}" if times else anchor)
    return anchors


def why_dead(folder, target):
    """Returns why a link from a page in the folder leads nowhere, or None."""
    path, _, anchor = target.partition("#")
    full_path = os.path.normpath(os.path.join(folder, path))
    if not os.path.exists(full_path):
        return f"nothing is at {target}"
    if anchor and (not full_path.endswith(".md") or anchor not in anchors_of(full_path)):
        return f"{path} has no heading #{anchor}"
    return None


def unknown_messages(root, errors):
    """Yields each message in the first column of the page of errors that no source says."""
    sources = []
    for path in files_of(root):
        if path.endswith((".cc", ".h", ".py")) and not re.search(r"_test\.|/tests?/", path):
            with open(path, encoding="utf-8") as file:
                sources.append(END_AND_BEGIN_OF_LITERAL.sub("", file.read()))
    said = "\n".join(sources)
    for first_column in re.findall(r"^\| (.*?) \|", errors, re.MULTILINE):
        for message in QUOTED.findall(first_column):
            words = [part.strip(" ,();") for part in VARIABLE.split(message)]
            if any(part not in said for part in words):
                yield message


def check_pages(root):
    violations = []
    anchors_of.cache_clear()
    listed = set()
    for path in files_of(root):
        name = os.path.relpath(path, root)
        if not name.endswith((".md", *SOURCES)) or os.path.dirname(name) == "tests/architecture":
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if name.endswith(".md"):
            folder = os.path.dirname(path)
            for target in LINK.findall(FENCED.sub("", text)):
                if re.match(r"[a-z]+:", target):
                    continue
                full_target = os.path.basename(path) + target if target.startswith("#") else target
                if why := why_dead(folder, full_target):
                    violations.append(f"{name}: {why}")
                if name == "docs/index.md":
                    listed.add(os.path.normpath(os.path.join(folder, full_target.partition("#")[0])))
        else:
            violations += [f"{name}: {why}" for target in PAGE_OF_MANUAL.findall(text)
                           if (why := why_dead(root, target))]
        if name == ERRORS:
            violations += [f"{name}: no source says: {message}" for message in unknown_messages(root, text)]
    for path in files_of(os.path.join(root, "docs")):
        if path.endswith(".md") and path not in listed and os.path.relpath(path, root) != "docs/index.md":
            violations.append(f"docs/index.md: {os.path.relpath(path, root)} is missing")
    return violations
