"""Finds comments that a program can tell to be hard to read, in the folders whose comments were read for it.

check_prose() takes the root of a checkout and returns one line per violation. style: a comment is a sentence with a
subject and a verb, programs are no "who", and a special value is spelled ("0 means no limit").
"""

import os
import re

# Folders below which every comment keeps the rules. New ones join when their comments were read.
CLEAN_FOLDERS = (
    "common/archive",
    "common/http",
    "common/security",
    "common/testing",
    "deploy/completions",
    "deploy/examples",
    "deploy/kubernetes",
    "deploy/psctl",
    "deploy/slurm",
    "deploy/systemd",
    "deploy/wheel",
    "kernels",
    "kernels/codec",
    "kernels/cpu",
    "kernels/cuda",
    "kernels/cuda/emulator",
    "kernels/cuda/testing",
    "kernels/oracle",
    "kernels/simd",
    "kernels/testing",
    "server/authority",
    "server/checkpoint",
    "server/coordinator/testing",
    "server/host",
    "server/http",
    "server/journal",
    "server/leader_lease",
    "server/limits",
    "server/membership",
    "server/optimizer",
    "server/replica",
    "server/shard/testing",
    "server/site",
    "server/status",
    "server/sync",
    "site",
    "tests/architecture",
    "tests/bench",
    "tests/browser",
    "tests/chaos",
    "tests/cluster",
    "tests/compatibility",
    "tests/debian",
    "tests/fuzz",
    "tests/gpu",
    "tests/hostile",
    "tests/hugging_face",
    "tests/kubernetes",
    "tests/lint",
    "tests/numerics",
    "tests/process",
    "tests/prometheus",
    "tests/pytorch",
    "tests/slurm",
    "tests/systemd",
    "tests/tensorboard",
    "tests/tsan",
    "third_party",
    "worker",
    "worker/capi",
    "worker/client",
    "worker/data",
    "worker/life",
    "worker/model",
    "worker/notice",
    "worker/python/examples",
    "worker/python/lodestar",
    "worker/trainer",
    "worker/trainer/testing",
)

# Openings of comments that stand for a sentence without its subject or its verb.
OPENING = re.compile(r"(?:Of|Whose|Who|Whoever|Nobody|Somebody)\b")
PHRASE = re.compile(r"\b(?:so, too|likewise|as ever|whoever|nobody|somebody)\b", re.IGNORECASE)
SPECIAL_VALUE = re.compile(r"(?:^|[;(.] )(?:-1|0): ")
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


def check_prose(root, folders=CLEAN_FOLDERS):
    violations = []
    for folder in folders:
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
