#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel of Python's package lodestar: the modules, liblodestar_worker.so, the programs, and
the libraries that these need. The same input makes the same bytes.

A wheel is a zip (https://packaging.python.org/specifications/binary-distribution-format):

  lodestar/*.py                     the modules
  lodestar/bin, lodestar/lib        programs; libraries, ours and those that both need
  lodestar-VERSION.dist-info/       METADATA, WHEEL, entry_points.txt, RECORD, licenses/
"""

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "lodestar"
TAG = "py3-none-linux_x86_64"
MODULES_ROOT = "worker/python/"
EARLIEST_TIME = (1980, 1, 1, 0, 0, 0)  # that a zip can have

METADATA = """\
Metadata-Version: 2.1
Name: lodestar
Version: {version}
Summary: Trains one model on machines that do not share a fast network
License: Apache-2.0
Platform: linux_x86_64
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.9
"""

WHEEL = f"""\
Wheel-Version: 1.0
Generator: build_wheel.py
Root-Is-Purelib: false
Tag: {TAG}
"""

ENTRY_POINTS = """\
[console_scripts]
lodestar = lodestar.__main__:main
lodestar-psctl = lodestar.psctl:main
lodestar-server = lodestar.server:main
lodestar-worker = lodestar.worker:main
"""


def version_of(pattern, path):
    with open(path, encoding="utf-8") as file:
        found = re.search(pattern, file.read(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{path} names no version")
    return found.group(1)


def check_versions(version, modules, out):
    """ValueError unless the package and the name of the wheel have the version of the programs."""
    init = next((path for path in modules if path.endswith(f"{PACKAGE}/__init__.py")), None)
    if init is None:
        raise ValueError(f"no {PACKAGE}/__init__.py among the modules")
    seen = version_of(r'^__version__ = "(.*)"$', init)
    if seen != version:
        raise ValueError(f"{init} has version {seen}, but common/process/version.h has {version}; make them equal")
    name = f"{PACKAGE}-{version}-{TAG}.whl"
    if os.path.basename(out) != name:
        raise ValueError(f"--out names the wheel {os.path.basename(out)}, but with the version in common/process/version.h it must be {name}")


def copy(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target)
    os.chmod(target, 0o755 if os.access(source, os.X_OK) and not source.endswith(".py") else 0o644)


def stage(root, arguments, version):
    """Lays out under `root` what the wheel holds, but for the RECORD."""
    package = os.path.join(root, PACKAGE)
    info = os.path.join(root, f"{PACKAGE}-{version}.dist-info")
    for path in arguments.modules:
        copy(path, os.path.join(root, path[path.index(MODULES_ROOT) + len(MODULES_ROOT):]))
    for path in arguments.program:
        copy(path, os.path.join(package, "bin", os.path.basename(path)))
    copy(arguments.library, os.path.join(package, "lib", os.path.basename(arguments.library)))
    subprocess.run([arguments.relocate, package, "--guest"], stdout=subprocess.DEVNULL, check=True)
    copy(arguments.licence, os.path.join(info, "licenses", "LICENSE"))
    os.rename(os.path.join(package, "licences"), os.path.join(info, "licenses", "libraries"))
    for name, text in (("METADATA", METADATA.format(version=version)), ("WHEEL", WHEEL),
                       ("entry_points.txt", ENTRY_POINTS)):
        with open(os.path.join(info, name), "w", encoding="utf-8") as file:
            file.write(text)


def files_under(root):
    """Sorted, with slashes, relative to it."""
    found = []
    for folder, _, names in os.walk(root):
        found += (os.path.relpath(os.path.join(folder, name), root) for name in names)
    return sorted(found)


def write_wheel(root, out, version):
    record_name = f"{PACKAGE}-{version}.dist-info/RECORD"
    record = ""
    with zipfile.ZipFile(out, "w") as wheel:

        def add(name, content, mode):
            entry = zipfile.ZipInfo(name, EARLIEST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: the attributes are a mode
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, content)

        for name in files_under(root):
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                content = file.read()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(content)}\n"
            add(name, content, os.stat(path).st_mode & 0o777)
        add(record_name, record + f"{record_name},,\n", 0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="the wheel")
    parser.add_argument("--version_header", required=True, help="common/process/version.h")
    parser.add_argument("--relocate", required=True, help="deploy/relocate.sh")
    parser.add_argument("--licence", required=True)
    parser.add_argument("--library", required=True, help="liblodestar_worker.so")
    parser.add_argument("--program", action="append", required=True, help="goes into lodestar/bin")
    parser.add_argument("modules", nargs="+", help=f"files under {MODULES_ROOT}")
    arguments = parser.parse_args()
    try:
        version = version_of(r'kVersion\[\] = "(.*)"', arguments.version_header)
        check_versions(version, arguments.modules, arguments.out)
        with tempfile.TemporaryDirectory() as root:
            stage(root, arguments, version)
            write_wheel(root, arguments.out, version)
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"build_wheel.py: {error}")


if __name__ == "__main__":
    main()
