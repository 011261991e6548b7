# SPDX-License-Identifier: Apache-2.0
"""The rules of docs/explanation/architecture.md, as a check of the sources.

check_tree() takes the root of a checkout and returns one line per violation.
"""

import itertools
import os
import re

LAYERS = ("common", "deploy", "kernels", "proto", "server", "site", "tests", "worker")
SOURCE_SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".inc")
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "misc"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
MODE_VALUE = re.compile(r"\bMode::k[A-Z]")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

NAMESPACE_OR_TYPE = re.compile(
    r"^(?:inline )?namespace ?(?P<opened>[\w:]*) ?\{$|^(?P<closed>\})  // namespace|"
    r"^(?:class|struct|union|enum(?: class)?) (?:\w+\([^)]*\) )?(?P<name>\w+)(?: final)?\s*(?::(?!:)[^;{]*)?\{|"
    r"^(?:void|struct) (?P<fields_of>Describe\(Archive& archive, [\w:]+|StoredForm<\w+>)",
    re.MULTILINE)

# layer -> first folders of our own that it may include
ALLOWED_LAYERS = {
    "common": {"common"},
    "kernels": {"common", "kernels"},
    "proto": {"common", "proto"},
    "server": {"common", "kernels", "proto", "server"},
    "worker": {"common", "kernels", "proto", "worker"},
    # Joins the two: a server that is a worker of other servers.
    "site": {"common", "kernels", "proto", "server", "site", "worker"},
    "deploy": {"common", "deploy", "kernels", "proto", "worker"},
    "tests": set(LAYERS),
}

# Programs are put together here, of more than their layer has.
PROGRAM_INCLUDES = {"server/server_main.cc": {"site"}}

# layer -> patterns of includes that it must not have, and what they stand for
FORBIDDEN_INCLUDES = {
    "common": [(r"^grpc(pp|\+\+)?/|^google/protobuf/", "gRPC or protobuf")],
    "kernels": [
        (r"^grpc(pp|\+\+)?/|^google/protobuf/", "gRPC or protobuf"),
        (r"^spdlog/|^common/logging/", "the log"),
        (r"^chrono$|^time\.h$|^ctime$|^sys/time\.h$|^absl/time/|^common/runtime/clock\.h$", "a clock"),
    ],
}

# The emulated CUDA is a toolchain for tests. Production sources see the CUDA toolkit's headers, and
# one header of ours knows that there is another compiler.
CUDA_FOLDER = "kernels/cuda/"
CUDA_EMULATOR = "kernels/cuda/emulator/"
CUDA_SEAM = "kernels/cuda/compiler_seam.h"
CUDA_TOOLKIT = re.compile(r"^(cuda|cublas|cudnn)")
CUDA_COMPILER = re.compile(r"\b__CUDA(CC__|_ARCH__)")
TEST_ONLY = re.compile(r"^tests/|/testing/|_test\.cc$")

# A profile shows kernels by name, and a reader must know what a pointer of theirs points to.
CUDA_KERNEL = re.compile(
    r"__global__\s+void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\(")
# A member of a struct that kernels are given, whatever it points to; those of classes end in _.
CUDA_POINTER = re.compile(
    r"^ +(?:const )?(?:unsigned )?[\w:]+(?:<[^;>]*>)?\*(?: const)? (\w*[^\W_])(?: = nullptr)?;(.*)$",
    re.MULTILINE)
# Distances in memory, which could be counted in bytes as well.
CUDA_STRIDE = re.compile(r"^ +(?:const )?int(?:64_t|32_t)? (\w*(?:stride|step))(?: = 0)?;(.*)$",
                         re.MULTILINE)
LENGTH_UNIT = re.compile(r"//.*\b(bytes|elements|rows)\b")

LICENCE_LINE = "SPDX-License-Identifier: Apache-2.0"

# One patch of one place each; see planted_faults.sh there.
PLANTED_FAULTS = "tests/simulation/faults/"

# A folder is a room with a namespace of its own, named for the folder. These stand in "lodestar" itself.
FOLDERS_WITHOUT_NAMESPACE = ("common/runtime/", "common/testing/", "tests/")
NAMESPACE_BLOCK = re.compile(r"^namespace (lodestar[\w:]*) \{\n(.*?)^\}  // namespace \1$", re.MULTILINE | re.DOTALL)
CUSTOMISATION = re.compile(r"template <>\n|template <typename Archive>\nvoid Describe\(")
FORWARD_DECLARATION = re.compile(r"(?:class|struct|enum class) \w+(?: : \w+)?;")

# Where generated wire types may be seen.
WIRE_FOLDERS = ("proto/", "server/http/", "server/rpc/", "worker/client/", "deploy/psctl/", "tests/")
# Where a synchronisation mode may be told apart: facts of a job, and the factories.
MODE_PLACES = re.compile(r"^common/|^proto/|_factory(_test)?\.cc$|^tests/|_test\.cc$")


def source_files(root):
    for layer in LAYERS:
        for folder, folders, names in os.walk(os.path.join(root, layer)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(SOURCE_SUFFIXES):
                    yield os.path.relpath(os.path.join(folder, name), root)


def check_includes(path, text):
    layer = path.split("/")[0]
    for bracket, include in INCLUDE.findall(text):
        target = include.split("/")[0]
        allowed = ALLOWED_LAYERS[layer] | PROGRAM_INCLUDES.get(path, set())
        if bracket == '"' and target in LAYERS and target not in allowed:
            yield f"{path}: {layer}/ must not include {include}"
        for pattern, meaning in FORBIDDEN_INCLUDES.get(layer, []):
            if re.search(pattern, include):
                yield f"{path}: {layer}/ must do without {meaning}, but includes {include}"
        if include.endswith(".pb.h") and not include.startswith("google/"):
            if not path.startswith(WIRE_FOLDERS):
                yield f"{path}: generated {include} outside of {', '.join(WIRE_FOLDERS)}"
        if include.startswith("spdlog/") and not path.startswith("common/logging/"):
            yield f"{path}: spdlog is included by common/logging only"


def check_shape(path, text):
    stem = os.path.basename(path).split(".")[0]
    words = set(stem.split("_"))
    if words & FORBIDDEN_NAMES:
        yield f"{path}: name says nothing; name the file after what it holds"


def check_cuda(path, text):
    for bracket, include in INCLUDE.findall(text):
        if bracket == "<" and CUDA_TOOLKIT.search(include) and not path.startswith(CUDA_FOLDER):
            yield f"{path}: <{include}> is included in {CUDA_FOLDER} only"
        if include.startswith(CUDA_EMULATOR) and path != CUDA_SEAM:
            if not path.startswith(CUDA_EMULATOR) and not TEST_ONLY.search(path):
                yield f"{path}: {include} is for tests; others see it through {CUDA_SEAM}"
    if path != CUDA_SEAM and CUDA_COMPILER.search(COMMENT.sub("", text)):
        yield f"{path}: {CUDA_SEAM} is the only place that may ask which compiler is at work"


def is_kernel_source(path):
    return path.startswith(CUDA_FOLDER) and path.endswith((".cu.cc", ".h")) and \
        not path.startswith(CUDA_EMULATOR) and not TEST_ONLY.search(path)


def check_kernel_shapes(path, text):
    if not is_kernel_source(path):
        return
    for name, comment in CUDA_POINTER.findall(text):
        if "[" not in comment:
            yield f"{path}: say the shape of what {name} points to: // [rows, columns]"
    for name, comment in CUDA_STRIDE.findall(text):
        if not LENGTH_UNIT.search(comment):
            yield f"{path}: say what {name} counts: // elements"


def check_kernel_names(texts):
    """Of a whole tree: (path, text) of each file."""
    path_of_name = {}
    for path, text in texts:
        for name in CUDA_KERNEL.findall(text) if is_kernel_source(path) else []:
            if name in path_of_name:
                yield f"{path}: kernel {name} has the name of one in {path_of_name[name]}"
            path_of_name[name] = path


def types_of_namespaces(text):
    """Names of types that are defined in namespaces with a name, as "namespace::Type". Relies on clang-format.

    Also what describes the fields of a type to an archive: a type has one of it, too.
    """
    namespaces = []
    for match in NAMESPACE_OR_TYPE.finditer(text):
        opened, closed, name = match.group("opened"), match.group("closed"), match.group("name")
        if opened is not None:
            namespaces.append(opened)
        elif closed is not None:
            namespaces.pop()
        elif "" not in namespaces:
            yield "::".join([*namespaces, name or match.group("fields_of")])


def check_type_names(texts):
    """Of a whole tree: a program with two types of one name does not do what either of them says."""
    path_of_name = {}
    for path, text in texts:
        for name in types_of_namespaces(text):
            other = path_of_name.setdefault(name, path)
            if other != path:
                yield f"{path}: type {name} has the name of one in {other}"


def namespace_of(path):
    """Returns the namespace of a folder: its name; the converters of the wire have "wire"."""
    folders = [name for name in path.split("/")[:-1] if name != "testing"]
    return "lodestar::" + {"proto": "wire"}.get(folders[-1], folders[-1])


def check_namespace(path, text):
    """A file may declare types of other namespaces, specialise their templates and describe types to lodestar::archive.

    It defines what it has in the namespace of its folder.
    """
    if path.startswith(FOLDERS_WITHOUT_NAMESPACE) or path.startswith(CUDA_EMULATOR):
        return
    own = namespace_of(path)
    for name, content in NAMESPACE_BLOCK.findall(text):
        lines = [line for line in content.split("\n") if line and not line.startswith("//")]
        if name == own or name.startswith(own + "::") or CUSTOMISATION.match("\n".join(lines)):
            continue
        if not all(map(FORWARD_DECLARATION.fullmatch, lines)):
            yield f"{path}: opens namespace {name}; the namespace of its folder is {own}"


def check_modes(path, text):
    if not MODE_PLACES.search(path) and MODE_VALUE.search(COMMENT.sub("", text)):
        yield f"{path}: a mode is told apart outside of a factory"


def check_planted_faults(root):
    """A fault that does not apply to the sources of today is one that nobody looks for."""
    folder = os.path.join(root, PLANTED_FAULTS)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            lines = file.read().splitlines()
        path = next(line[6:] for line in lines if line.startswith("--- a/"))
        first = next(i for i, line in enumerate(lines) if line.startswith("@@"))
        wanted = "".join(line[1:] + "\n" for line in lines[first + 1:] if line[:1] in (" ", "-"))
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                applies = wanted in file.read()
        except FileNotFoundError:
            applies = False
        if not applies:
            yield f"{PLANTED_FAULTS}{name}: does not apply to {path}; plant the same fault anew"


def check_licence_lines(root):
    """Every source and script names its licence in its first line, or after the line that names its interpreter."""
    for layer in LAYERS:
        for folder, folders, names in os.walk(os.path.join(root, layer)):
            folders.sort()
            for name in sorted(names):
                if not name.endswith((*SOURCE_SUFFIXES, ".c", ".proto", ".py", ".sh", ".bzl")):
                    continue
                path = os.path.relpath(os.path.join(folder, name), root)
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    lines = [line.rstrip("\n").lstrip("#/ ") for line in itertools.islice(file, 2)]
                if lines and lines[0].startswith("!"):
                    del lines[0]
                if lines[:1] != [LICENCE_LINE]:
                    yield f"{path}: does not begin with {LICENCE_LINE}"


def check_tree(root):
    violations = []
    texts = []
    for path in source_files(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            texts.append((path, file.read()))
    for path, text in texts:
        for check in (check_includes, check_shape, check_cuda, check_kernel_shapes, check_modes, check_namespace):
            violations.extend(check(path, text))
    violations.extend(check_kernel_names(texts))
    violations.extend(check_type_names(texts))
    violations.extend(check_planted_faults(root))
    return violations
