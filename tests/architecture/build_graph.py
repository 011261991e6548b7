# SPDX-License-Identifier: Apache-2.0
"""Reads BUILD.bazel files without Bazel, and checks that each include is of a target that is in the deps.

check_includes() takes the root of a checkout and returns one line per violation.
"""

import builtins
import glob
import os
import re

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCE_SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".inc")
OWN_FOLDERS = ("common/", "deploy/", "kernels/", "proto/", "server/", "site/", "tests/", "worker/")

# Headers of Debian's libraries, by how their paths begin, and the targets that bring them.
LIBRARIES = (
    ("absl/flags/", {"//third_party:absl_flags"}),
    ("absl/", {"//third_party:absl", "//third_party:absl_flags"}),
    ("benchmark/", {"//third_party:benchmark"}),
    ("gmock/", {"//third_party:googletest", "//third_party:googletest_main"}),
    ("google/", {"//third_party:protobuf", "//third_party:grpc"}),
    ("grpc/", {"//third_party:grpc"}),
    ("grpcpp/ext/", {"//third_party:grpc_reflection"}),
    ("grpcpp/", {"//third_party:grpc"}),
    ("gtest/", {"//third_party:googletest", "//third_party:googletest_main"}),
    ("httplib.h", {"//third_party:httplib"}),
    ("nlohmann/", {"//third_party:nlohmann_json"}),
    ("openssl/", {"//third_party:openssl"}),
    ("prometheus/", {"//third_party:prometheus"}),
    ("spdlog/", {"//third_party:spdlog"}),
    ("sqlite3.h", {"//third_party:sqlite"}),
    ("zlib.h", {"//third_party:zlib"}),
)

# Ends the name of a CUDA library that is compiled for the emulator.
EMULATED = "_emulated"
# Includes the emulator where the compiler is not nvcc: the library for nvcc does not depend on it.
CUDA_SEAM = "kernels/cuda/compiler_seam.h"


class Nothing:
    """Stands for what the files name and the check does not need: rules, attributes, toolkits."""

    def __call__(self, *_args, **_fields):
        return self

    def __getattr__(self, _name):
        return self

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False

    def __add__(self, other):
        return other

    __radd__ = __add__


class Scope(dict):
    """The names of one file. What is not there is a rule of Bazel, which `record` takes."""

    def __init__(self, record, package):
        super().__init__()
        self.record = record
        self.package = package

    def __missing__(self, name):
        if hasattr(builtins, name):
            raise KeyError(name)
        return lambda *_, **fields: self.record(self.package, name, fields)


class BuildGraph:
    """The targets of a checkout: `targets` has their sources, headers and dependencies by label."""

    def __init__(self, root):
        self.root = root
        self.targets = {}
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "bazel-")))
            if "BUILD.bazel" in names:
                self._read(os.path.relpath(folder, root), "BUILD.bazel")

    def _read(self, package, name):
        package = "" if package == "." else package
        scope = Scope(self._record, package)
        rules = type("Native", (), {"__getattr__": lambda _self, rule: scope[rule]})()
        scope.update(
            attr=Nothing(),
            glob=lambda patterns, exclude=(), **_: self._glob(scope.package, patterns, exclude),
            load=lambda label, *names, **others: scope.update(
                self._load(package, label, [*names, *others.values()])),
            native=rules,
            package_name=lambda: scope.package,
            rule=Nothing(),
            select=lambda choices: [value for values in choices.values() for value in values],
        )
        path = os.path.join(self.root, package, name)
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), scope)  # pylint: disable=exec-used
        return scope

    def _load(self, package, label, names):
        if label.startswith("@"):
            return {name: Nothing() for name in names}
        folder, _, file = label.rpartition(":")
        loaded = self._read(folder[2:] if folder else package, file)
        # A macro calls rules for the package that loads it.
        loaded.package = package
        return {name: loaded[name] for name in names if name in loaded}

    def _glob(self, package, patterns, exclude):
        folder = os.path.join(self.root, package)
        found = {path for pattern in patterns for path in glob.glob(pattern, root_dir=folder, recursive=True)}
        left_out = {path for pattern in exclude for path in glob.glob(pattern, root_dir=folder, recursive=True)}
        return sorted(path for path in found - left_out if os.path.isfile(os.path.join(folder, path)))

    def _record(self, package, rule, fields):
        if not rule.startswith("cc_"):
            return

        def label(text):
            if text.startswith(":"):
                return f"//{package}{text}"
            if text.startswith("//") and ":" not in text:
                return f"{text}:{os.path.basename(text)}"
            return text

        def paths(*attributes):
            of_fields = [path for name in attributes for path in fields.get(name, ())]
            return [os.path.join(package, path.lstrip(":")) for path in of_fields if not path.startswith("//")]

        self.targets[f"//{package}:{fields['name']}"] = {
            "headers": paths("hdrs", "textual_hdrs"),
            "sources": paths("srcs", "hdrs", "textual_hdrs"),
            "deps": {label(text) for text in fields.get("deps", ())},
        }


def check_includes(root):
    """Returns a line for each include of which no direct dependency has the header."""
    graph = BuildGraph(root)
    owners = {}
    for label, target in graph.targets.items():
        for path in target["headers"]:
            owners.setdefault(path, set()).add(label)
    violations = []
    for label, target in sorted(graph.targets.items()):
        reachable = target["deps"] | {label}
        # A library of cuda.bzl is there twice, and its headers belong to the first.
        twins = {dep[:-len(EMULATED)] for dep in reachable if dep.endswith(EMULATED)}
        reachable |= twins
        if label[:-len(EMULATED)] in twins:
            reachable |= graph.targets[label[:-len(EMULATED)]]["deps"]
        for path in target["sources"]:
            full_path = os.path.join(root, path)
            if not path.endswith(SOURCE_SUFFIXES) or path == CUDA_SEAM or not os.path.exists(full_path):
                continue  # the path of another target or of a generated file
            with open(full_path, encoding="utf-8") as file:
                included = {name for _, name in INCLUDE.findall(file.read())}
            for name in sorted(included - set(target["sources"])):
                wanted = owners.get(name) or next(
                    (targets for prefix, targets in LIBRARIES if name.startswith(prefix)), None)
                if wanted is None and name.startswith(OWN_FOLDERS):
                    violations.append(f"{path}: includes {name}, which is a header of no target")
                elif wanted and not wanted & reachable:
                    violations.append(f"{path}: includes {name}, but {label} does not depend on {' or '.join(sorted(wanted))}")
    return violations
