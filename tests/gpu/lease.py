#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests and times a package on a machine with an NVIDIA card, in steps that each end within a time limit.

A step's unused time goes to the steps after it. The limits add up to at most --seconds. Nothing is built or downloaded: in a
clone the programs come from --package. Python 3.11 or later is needed. PYTHON names the Python that has PyTorch; the default
is python3. Without PyTorch, Lodestar's programs run alone.
"""

import argparse
import dataclasses
import datetime
import fcntl
import json
import lzma
import math
import os
import pathlib
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench/gpu"))
import gpu_table  # noqa: E402  pylint: disable=wrong-import-position
from gpu_table import MOST_FILE_BYTES  # noqa: E402  pylint: disable=wrong-import-position

FAILED, REFUSED, NO_CARD = 1, 2, 77
NOT_FOUND, STOPPED = 127, 124  # The same codes as a shell's and timeout(1)'s.
OLDEST_PYTHON = (3, 11)
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MOST_UNPACKED_BYTES = 256 << 20
MOST_LINE_BYTES = 1 << 20
SUMMARY, LOG, SAMPLES, COMPILED = "summary.md", "lease.log", "nvidia_smi.csv", "inductor.tar.xz"
SMI_FIELDS = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu"
SMI_REASONS = ",clocks_event_reasons.active"
SMI_MILLISECONDS = 500
# The oldest version of cuDNN whose attention kernels/cuda/cudnn_api.cc can call.
CUDNN, OLDEST_CUDNN = "libcudnn.so.9", 91200
TILE_TOKENS = 128
# Part of a step's limit that is left for its processes to end after SIGTERM.
SECONDS_TO_END = 2.0
SECONDS_TO_TELL = 10  # Limit of a program that only says what is installed.
MOST_SECONDS = 24 * 3600
# Least limits of steps in seconds. nvidia-smi may take seconds to answer, and a program needs some before it is stopped.
LEAST_OF_UNPACK, LEAST_OF_MACHINE, LEAST_OF_TABLE, LEAST_OF_PROGRAM, LEAST_OF_FILE = 3, 15, 10, 5, 1


@dataclasses.dataclass
class Step:
    """`share` is the step's limit in seconds if the lease has its default length. `least` is the lowest limit in seconds with
    which the step is useful. A step that is `evidence` runs something on the card, so it can pass. `files` are those that the
    step writes to --out."""
    name: str
    share: float
    least: float
    run: object
    what: str
    evidence: bool = True
    files: tuple = ()


@dataclasses.dataclass
class Result:
    word: str  # "passed", "failed", "skipped", "not run" or, for steps that are no evidence, "done".
    reason: str


def limits_of(steps, seconds):
    """Returns the limit of each step: its share of `seconds`, or its least limit if the share is lower. The sum is `seconds`."""
    limits, others = {}, steps
    while others:
        unit = (seconds - sum(limits.values())) / sum(step.share for step in others)
        short = {step.name: step.least for step in others if unit * step.share < step.least}
        limits |= short or {step.name: unit * step.share for step in others}
        others = [step for step in others if step.name not in limits]
    return [limits[step.name] for step in steps]


LEFT_OUT = re.compile(rb"^\[([0-9]+) bytes are left out here.*\n", re.MULTILINE)


def cut_middle(path):
    """If a text file exceeds MOST_FILE_BYTES, keeps a quarter of that limit from its start and a quarter from its end, with a
    line between them that says how many bytes were cut. Programs that write to the file meanwhile must append to it."""
    num_bytes = path.stat().st_size
    if num_bytes <= MOST_FILE_BYTES:
        return
    with open(path, "r+b") as file:
        begin = file.read(MOST_FILE_BYTES // 4 + MOST_LINE_BYTES)
        earlier = LEFT_OUT.search(begin)
        begin = begin[:earlier.start() if earlier else MOST_FILE_BYTES // 4]
        head_bytes = begin.rfind(b"\n") + 1 or len(begin)
        file.seek(num_bytes - MOST_FILE_BYTES // 4)
        tail = file.read()
        tail = tail[tail.find(b"\n", 0, MOST_LINE_BYTES) + 1:]
        left_out = num_bytes - head_bytes - len(tail)
        if earlier:
            left_out += int(earlier[1]) - len(earlier[0])
        file.seek(head_bytes)
        file.write(b"[%d bytes are left out here: a file may have at most %d]\n" % (left_out, MOST_FILE_BYTES) + tail)
        file.truncate()


class CutFile:
    """A text file that grows at its end and is cut in its middle. Text that the file has already is kept."""

    def __init__(self, path):
        self.path = path
        self.file = open(path, "ab", buffering=0)  # pylint: disable=consider-using-with

    def write(self, data):
        self.file.write(data)
        if os.fstat(self.file.fileno()).st_size > MOST_FILE_BYTES:
            cut_middle(self.path)

    def close(self):
        self.file.close()


class Watcher:
    """A process that kills programs and removes a folder once the lease's process is gone, also if SIGKILL ended that one.
    PR_SET_PDEATHSIG would end children alone, not the programs that run.sh, a profiler or gpu_table.py starts. Those are in the
    process group of their parent, which the watcher kills."""

    def __init__(self, folder):
        read_end, self.write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.run(read_end, folder)
        os.close(read_end)

    def run(self, read_end, folder):
        try:
            os.setsid()
            os.close(self.write_end)
            groups = set()
            with open(read_end, encoding="ascii") as lines:
                for line in lines:
                    (groups.add if int(line) > 0 else groups.discard)(abs(int(line)))
            for group in groups:
                try:
                    os.killpg(group, signal.SIGKILL)
                except OSError:
                    pass
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os._exit(0)

    def start(self, words, **options):
        """Starts a program in a process group of its own, as subprocess.Popen(). The watcher knows the group before it runs."""
        return subprocess.Popen(words, process_group=0, preexec_fn=lambda: self.tell(os.getpid()), **options)  # pylint: disable=subprocess-popen-preexec-fn

    def forget(self, group):
        self.tell(-group)

    def tell(self, number):
        os.write(self.write_end, b"%d\n" % number)

    def end(self):
        os.close(self.write_end)
        os.waitpid(self.pid, 0)


class Refused(Exception):
    """Says why a lease does not begin."""


class Lease:
    def __init__(self, options, lock_handle):
        self.options, self.begin, self.steps, self.lock = options, time.monotonic(), options.steps, lock_handle
        self.out = options.out
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="lodestar-lease."))
        self.watcher = Watcher(self.work)
        self.log = CutFile(self.out / LOG)
        self.facts_path = self.work / "facts"
        # `python` is None until PyTorch was looked for, and empty if there is none.
        self.root, self.python, self.cudnn = ROOT, None, 0
        self.library_faults = {}  # Names of libraries that are installed but cannot be used, and why.
        self.libraries, self.failed_tests = set(), []
        # `failures` has (step, text). `skipped_checks` has texts. `notes` says what a passed step has shown.
        self.failures, self.skipped_checks, self.results, self.notes = [], [], {}, {}
        self.current = ""  # The name of the step that runs.
        self.obstacle = ""  # The reason why no further step runs.
        self.card, self.version = "unknown", "unknown"
        self.environment, self.deadline, self.sampler = dict(os.environ), 0.0, None
        self.cache, temporary = self.work / "inductor", self.work / "tmp"
        self.cache.mkdir()
        temporary.mkdir()
        # Programs keep their temporary files in the work folder, which the watcher removes.
        self.environment |= {"TORCHINDUCTOR_CACHE_DIR": str(self.cache), "TRITON_CACHE_DIR": str(self.cache / "triton"),
                             "TMPDIR": str(temporary)}

    @property
    def bin(self):
        return self.root / "bin"

    def say(self, text):
        """Writes a line to the log and to stdout. If one of them is closed or full, the lease goes on."""
        for write in (lambda: self.log.write(f"{text}\n".encode(errors="replace")), lambda: print(text, flush=True)):
            try:
                write()
            except (OSError, ValueError):
                pass

    def skip(self, name, why):
        """Records that a step, or a check of a step, was skipped."""
        if name == self.current:
            self.results[name] = Result("skipped", why)
        else:
            self.skipped_checks.append(f"{name}: {why}")
        self.say(f"{name} is skipped: {why}")

    def check(self, name, passed, why="", step=""):
        """Records a failure of the running step, or of `step`, unless `passed`."""
        if passed:
            return
        text = f"{name}: {why}" if why else name
        self.failures.append((step or self.current, text))
        self.say(f"FAILED {text}")

    def note(self, text):
        """Records what the running step has shown, for the summary."""
        self.notes[self.current] = text

    def stop_for_want_of_a_card(self, why):
        self.obstacle = "there is no usable card"
        self.skip(self.current, f"there is no usable card: {why}")

    def left(self):
        return self.deadline - time.monotonic()

    def command(self, *words, name=""):
        """Runs a program until the step's limit, and copies its output to the log. Returns the exit code and the output."""
        self.say(f"$ {shlex.join(str(word) for word in words)}")
        try:
            process = self.watcher.start([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, env=self.environment, cwd=self.root)
        except OSError as error:
            self.say(str(error))
            return NOT_FOUND, str(error)
        try:
            output = self.copy_output(process)
            code = process.poll()
            if code is None:
                code = STOPPED
                self.say(f"{name or pathlib.Path(str(words[0])).name} is stopped at the step's limit")
        finally:
            self.stop(process)
            process.stdout.close()
        return code, output

    def copy_output(self, process):
        """Copies the output of a process to the log, until the process has ended or SECONDS_TO_END are left of the step."""
        os.set_blocking(process.stdout.fileno(), False)
        (self.work / "output").unlink(missing_ok=True)
        output, tail = CutFile(self.work / "output"), b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while self.left() > SECONDS_TO_END:
                has_ended = process.poll() is not None
                selector.select(timeout=0 if has_ended else min(0.2, self.left()))
                self.libraries |= gpu_table.mapped_libraries(process.pid)
                chunk = process.stdout.read(1 << 16)
                if chunk:
                    *lines, tail = (tail + chunk).split(b"\n")
                    if len(tail) > MOST_LINE_BYTES:
                        lines, tail = [*lines, tail], b""
                    for line in lines:
                        self.say(line.decode(errors="replace"))
                    output.write(chunk)
                elif has_ended or chunk == b"":
                    if has_ended:
                        break
                    time.sleep(0.05)
        if tail:
            self.say(tail.decode(errors="replace"))
        output.close()
        return output.path.read_text(encoding="utf-8", errors="replace")

    def stop(self, process):
        """Ends the program if it still runs, and the programs that it has started: they are in its process group."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(min(SECONDS_TO_END, max(0.1, self.left() - SECONDS_TO_END / 2)))
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            # The driver may hang. The next steps may show more.
            self.say(f"Process {process.pid} cannot be killed.")
            return
        self.watcher.forget(process.pid)

    def run(self):
        """Runs the steps. Returns the exit code of the lease."""
        self.say(f"{datetime.datetime.now(datetime.timezone.utc):%F %T} UTC, {self.options.command}")
        try:
            self.run_steps()
        except SystemExit as stop:
            self.obstacle = f"the lease was stopped by {signal.Signals(stop.code - 128).name}"
            if self.current and self.current not in self.results:
                self.check(self.current, False, self.obstacle)
                self.results[self.current] = Result("failed", self.obstacle)
            try:
                write_summary(self)
            except OSError as error:
                self.say(f"{SUMMARY} cannot be written: {error}")
            raise
        finally:
            self.end()
        return self.exit_code()

    def run_steps(self):
        limits = limits_of(self.steps, self.options.seconds)
        self.say("Limits: " + ", ".join(f"{step.name} {limit:.0f} s" for step, limit in zip(self.steps, limits)))
        end = self.begin
        for step, limit in zip(self.steps, limits):
            end += limit
            self.deadline = end
            if self.obstacle and step.name != "summary":
                continue
            begin = time.monotonic()
            self.current = step.name
            self.say(f"==> {step.name} (at most {self.left():.0f} s)")
            for file in step.files:
                (self.out / file).unlink(missing_ok=True)
            try:
                step.run(self)
            except Exception as error:  # pylint: disable=broad-exception-caught
                self.check(step.name, False, f"{type(error).__name__}: {error}")
            self.results[step.name] = self.result_of(step)
            self.cut_files()
            self.say(f"<== {step.name}: {time.monotonic() - begin:.1f} s")

    def result_of(self, step):
        """Returns the result of a step that has run."""
        failures = [text for name, text in self.failures if name == step.name]
        if failures:
            more = f"; {len(failures) - 1} more failures are listed below" if len(failures) > 1 else ""
            return Result("failed", failures[0] + more)
        if step.name in self.results:
            return self.results[step.name]
        return Result("passed" if step.evidence else "done", self.notes.get(step.name, ""))

    def count(self, word):
        return sum(result.word == word for result in self.results.values())

    def exit_code(self):
        if self.failures:
            return FAILED
        return 0 if self.count("passed") > 0 else NO_CARD

    def cut_files(self):
        """Cuts the text files in --out to their limit, as other programs write some of them."""
        for path in map(self.out.joinpath, result_files(LEASES[self.options.lease])):
            if path.suffix in (".csv", ".md", ".txt") and path.exists():
                cut_middle(path)

    def end(self):
        if self.sampler is not None:
            self.stop(self.sampler)
        self.cut_files()
        self.watcher.end()
        self.log.close()
        os.close(self.lock)


def lock(folder):
    """Makes the folder if it is missing, and returns a handle of it that no other lease has. Raises BlockingIOError if another
    lease has one."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # NFS does not lock folders.
    return handle


def result_files(steps):
    """Returns the names of the files that a lease of these steps writes to --out."""
    return [LOG, SAMPLES, *dict.fromkeys(file for step in steps for file in step.files)]


def claim_out(options):
    """Locks --out, and removes the results of an earlier lease if --replace is given. Returns the lock. Raises Refused if the
    folder cannot be used, or has results that neither --replace nor --from allows to be replaced."""
    try:
        handle = lock(options.out)
        earlier = [name for steps in LEASES.values() for name in result_files(steps) if (options.out / name).exists()]
        if options.replace:
            for name in earlier:
                (options.out / name).unlink(missing_ok=True)
        elif earlier and not options.first_step:
            raise Refused(f"--out={options.out} has {earlier[0]} of an earlier lease; name another folder, or give --replace to "
                          "remove the earlier results, or --from=STEP to replace those of the steps that run")
        if not os.access(options.out, os.W_OK | os.X_OK):
            raise Refused(f"--out={options.out} is not writable; name another folder")
    except BlockingIOError:
        raise Refused(f"another lease writes to --out={options.out}; await its end, or name another folder") from None
    except OSError as error:
        raise Refused(f"--out={options.out} cannot be used as a folder: {error.strerror}; name another folder") from None
    return handle


# These steps are in both leases.


def extract(path, folder):
    # Python older than 3.11.4 has no filters.
    filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(path) as archive:
        archive.extractall(folder, **filters)


def extract_cache(path, folder):
    """Unpacks an archive of an earlier call into `folder`. Raises ValueError if a member lies outside, or if it is too large."""
    num_bytes = 0
    with tarfile.open(path) as archive:
        for member in archive:
            num_bytes += member.size
            if not (member.isfile() or member.isdir()) or ".." in pathlib.PurePath(member.name).parts or member.name.startswith("/"):
                raise ValueError(f"{member.name} is no file or folder below the cache's")
            if num_bytes > MOST_UNPACKED_BYTES:
                raise ValueError(f"it has more than {MOST_UNPACKED_BYTES} bytes")
            archive.extract(member, folder)


def unpack(lease):
    """Finds the programs: those of this package, or those of --package."""
    if not (ROOT / "bin/train_step").exists():
        try:
            extract(lease.options.package, lease.work)
            lease.root = next(lease.work.glob("lodestar-*"))
        except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, StopIteration) as error:
            lease.check("unpack", False,
                        f"{lease.options.package}: {error}; make it with deploy/package.sh --out=.lease/lodestar.tar.xz")
            lease.obstacle = "there are no programs"
            return
    code, output = lease.command(lease.bin / "ps_server", "--version")
    if code == 0:
        lease.version = ", ".join(output.split("\n")).strip(", ")
    lease.note(f"programs are in {lease.bin}")


def python_with_torch():
    """Returns the path of the Python that PYTHON names, or of python3; empty if it has no PyTorch."""
    python = shutil.which(os.environ.get("PYTHON", "python3"))
    # Importing PyTorch would take many seconds if its files are not cached.
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if python is None or subprocess.run([python, "-c", code], check=False, timeout=SECONDS_TO_TELL).returncode != 0:
        return ""
    return python


def library_folders(python):
    """Returns the folders of PyTorch's cuBLASLt and cuDNN."""
    packages = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=False,
                              capture_output=True, text=True, timeout=SECONDS_TO_TELL).stdout.strip()
    found = [path.parent for name in ("libcublasLt.so.13", CUDNN)
             for path in sorted(pathlib.Path(packages).glob(f"nvidia/*/lib/{name}"))]
    return [str(folder) for folder in dict.fromkeys(found)]


def library_version(lease, file, function, oldest=0):
    """Returns the version that a library reports; 0 if it is not installed. Records a failure if the library cannot be loaded or
    is too old."""
    code = f"import ctypes; f = ctypes.CDLL('{file}').{function}; f.restype = ctypes.c_size_t; print(f())"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, env=lease.environment,
                          timeout=SECONDS_TO_TELL)
    version = int(done.stdout) if done.returncode == 0 else 0
    why = gpu_table.last_line(done.stderr) if done.returncode != 0 else f"{function} is {version}, at least {oldest} is needed"
    # The loader names the missing file, which may be another library that this one needs.
    is_absent = f"OSError: {file}: cannot open shared object file" in why
    if not is_absent and (done.returncode != 0 or version < oldest):
        lease.library_faults[file] = why
        lease.check(f"machine: {file}", False, why)
    return version


def start_sampling(lease):
    """Starts nvidia-smi, which writes clocks, power and throttle reasons. Older drivers have no reasons of this name."""
    def query(fields):
        return ["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]

    has_reasons = subprocess.run(query(SMI_FIELDS + SMI_REASONS), check=False, capture_output=True,
                                 timeout=SECONDS_TO_TELL).returncode == 0
    with open(lease.out / SAMPLES, "a", encoding="utf-8") as file:
        lease.sampler = lease.watcher.start(
            query(SMI_FIELDS + (SMI_REASONS if has_reasons else "")) + [f"--loop-ms={SMI_MILLISECONDS}"],
            stdout=file, stderr=subprocess.STDOUT)


def machine(lease):
    """Says what the machine has, looks for a card, and makes Lodestar's programs find PyTorch's cuBLASLt."""
    code, output = lease.command("nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv")
    if code == STOPPED:
        lease.check("machine", False, "nvidia-smi has not answered in time")
        lease.obstacle = "nvidia-smi has not answered in time"
        return
    if code != 0:
        is_missing = shutil.which("nvidia-smi") is None
        lease.stop_for_want_of_a_card("nvidia-smi is not on the PATH" if is_missing else
                                      f"nvidia-smi ended with {code}: {gpu_table.last_line(output)}")
        return
    lease.card = gpu_table.last_line(output)
    find_pytorch(lease)
    look_for_a_card(lease)
    if lease.obstacle:
        return
    start_sampling(lease)
    kept = lease.options.kept / COMPILED
    if kept.exists():
        try:
            extract_cache(kept, lease.cache)
            lease.say(f"Compiled code of PyTorch comes from {kept}.")
        except (OSError, EOFError, ValueError, tarfile.TarError, lzma.LZMAError) as error:
            lease.say(f"Compiled code of PyTorch is made anew: {kept}: {error}")


def find_pytorch(lease):
    lease.python = python_with_torch()
    if lease.python:
        folders = library_folders(lease.python) + [os.environ.get("LD_LIBRARY_PATH", "")]
        lease.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
        lease.say(f"PyTorch: {lease.python}; LD_LIBRARY_PATH={lease.environment['LD_LIBRARY_PATH']}")
    else:
        lease.say("There is no PyTorch: Lodestar runs alone, without a yardstick.")
    lease.cudnn = library_version(lease, CUDNN, "cudnnGetVersion", OLDEST_CUDNN)
    lease.say(f"cublasLtGetVersion: {library_version(lease, 'libcublasLt.so.13', 'cublasLtGetVersion')}, "
              f"cudnnGetVersion: {lease.cudnn} (0 means that it cannot be loaded)")


def look_for_a_card(lease):
    """Has one of Lodestar's programs open the card, as nvidia-smi may list a card that programs cannot use."""
    program = lease.bin / "cuda_device_test"
    if not program.exists():
        lease.check("machine", False, f"{program} is missing: the package was made without nvcc; make it where nvcc is")
        lease.obstacle = "the package has no CUDA programs"
        return
    code, output = lease.command(program, "--gtest_filter=-*")
    if code == NO_CARD:
        lease.stop_for_want_of_a_card(gpu_table.last_line(output, most_characters=1000).removeprefix("Nothing was tested: "))
    elif code != 0:
        lease.check("machine", False, f"{program.name}, which was to open the card, ended with {code}: {gpu_table.last_line(output)}")


def tests(lease, name, gtest_filter, program="cuda_device_test"):
    """Runs the tests of a program that the filter names. Returns the output."""
    code, output = lease.command(lease.bin / program, f"--gtest_filter={gtest_filter}", name=name)
    failed = sorted(set(re.findall(r"^\[  FAILED  \] ([^ ,]+\.[^ ,]+)", output, re.MULTILINE)))
    lease.failed_tests += failed
    num_passed = len(re.findall(r"^\[       OK \] ", output, re.MULTILINE))
    if code != 0:
        lease.check(name, False, f"exit code {code}, {num_passed} tests passed" + (f", failed: {' '.join(failed)}" if failed else ""))
    elif num_passed == 0:
        lease.check(name, False, f"no test is called {gtest_filter}")
    refused = [line for line in output.splitlines() if gpu_table.REFUSED in line]
    lease.check(f"{name}: outputs of libraries", not refused, "; ".join(refused))
    lease.note(f"{num_passed} tests passed")
    return output


def check_cudnn(lease, name, output, all_cases):
    """Records a failure if cuDNN can be loaded but did not run: tests that passed with our own kernels would prove nothing of it.
    With `all_cases`, cuDNN must have run each case whose tokens are whole tiles."""
    if CUDNN in lease.library_faults:
        lease.check(f"{name}: cuDNN's attention", False, lease.library_faults[CUDNN])
        return
    if lease.cudnn == 0:
        lease.skip(f"{name}: cuDNN's attention", f"{CUDNN} is not here")
        return
    for direction in ("forward", "backward"):
        check = f"{name}: cuDNN's attention {direction}"
        choices = re.findall(rf"^choice: attention {direction} \d+ x (\d+) tokens(.*)$", output, re.MULTILINE)
        ours = [(int(tokens), rest) for tokens, rest in choices if ": library" not in rest]
        refused = [rest for tokens, rest in ours if tokens % TILE_TOKENS == 0]
        if len(ours) == len(choices):
            lease.check(check, False, "cuDNN can be loaded, but no case of its attention ran it" + (ours[0][1] if ours else ""))
        else:
            lease.check(check, not (all_cases and refused), f"{len(refused)} cases were ours{refused[0] if refused else ''}")


def conformance(fusion):
    def run(lease):
        what = "*Attend*:*CrossEntropy*" if lease.options.small else "*"
        patterns = ":".join(f"*/DeviceConformanceTest.{pattern}/*{fusion}" for pattern in what.split(":"))
        output = tests(lease, fusion.lower(), patterns)
        if fusion == "Always":
            check_cudnn(lease, "always", output, all_cases=False)
    return run


def shapes(lease):
    suite = "DeviceConformanceTest" if lease.options.small else "Gpt2ConformanceTest"
    output = tests(lease, "shapes", f"*/{suite}.AttendsToThePast*/Bf16Always:*/{suite}.CrossEntropy*/Bf16Always:"
                                    f"*/{suite}.AttendsToThePast*/Bf16Never")
    check_cudnn(lease, "shapes", output, all_cases=not lease.options.small)


def table(lease, section, *flags):
    """Runs one section of gpu_table.py, and records the failures that its facts name."""
    words = [sys.executable, "-B", ROOT / "tests/bench/gpu/gpu_table.py", f"--bin={lease.bin}", f"--python={lease.python}",
             f"--section={section}", f"--out={lease.out}", f"--facts={lease.facts_path}",
             f"--tuning_file={lease.work / 'tuning'}", f"--minutes={max(0.01, (lease.left() - 2 * SECONDS_TO_END - 1) / 60):.4f}",
             *flags]
    before, num_failures = len(facts(lease)), len(lease.failures)
    code, _ = lease.command(*words, *(["--small"] if lease.options.small else []), name=section)
    num_measured = 0
    for fact in facts(lease)[before:]:
        if "check" in fact:
            lease.check(fact["check"], fact["passed"], fact["why"])
        if "skipped" in fact:
            lease.skip(fact["skipped"], fact["why"])
        num_measured += fact.get("measured", 0)
    if code != 0:
        lease.check(section, False, f"gpu_table.py ended with {code}")
    elif num_measured == 0 and len(lease.failures) == num_failures:
        lease.check(section, False, "nothing was measured")
    lease.note(f"{section}.md has {num_measured} rows")


def facts(lease):
    if not lease.facts_path.exists():
        return []
    found = []
    for line in lease.facts_path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:  # The line is cut short if the disk was full.
            lease.say(f"no fact: {line[:200]}")
    return found


def batch(lease, full):
    return f"--batch={2 if lease.options.small else full}"


def step(lease):
    flags = ["--warmup=2", "--steps=3"] if lease.options.small else ["--warmup=20", "--steps=60"]
    if lease.options.peak_tflops:
        flags.append(f"--peak_tflops={lease.options.peak_tflops:g}")
    table(lease, "step", batch(lease, 64), *flags)


def keep_compiled(lease):
    """Packs what PyTorch has compiled into --kept, where the next call finds it, and into --out, unless it is too large."""
    num_bytes = sum(path.stat().st_size for path in lease.cache.rglob("*") if path.is_file())
    if num_bytes == 0:
        lease.skip("keep", "PyTorch has compiled nothing")
        return
    if num_bytes > MOST_UNPACKED_BYTES:
        lease.skip("keep", f"what PyTorch has compiled has {num_bytes} bytes, at most {MOST_UNPACKED_BYTES} are packed")
        return
    packed = lease.work / COMPILED
    with tarfile.open(packed, "w:xz", preset=1) as archive:
        archive.add(lease.cache, ".")
    if packed.stat().st_size > MOST_FILE_BYTES:
        lease.skip("keep", f"{COMPILED} would have {packed.stat().st_size} bytes, at most {MOST_FILE_BYTES} are kept")
        return
    shutil.copy(packed, lease.out / COMPILED)
    kept = lease.options.kept / COMPILED
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        # A call that is stopped here must not leave half an archive.
        part = kept.with_name(f"{COMPILED}.part")
        shutil.copy(packed, part)
        part.replace(kept)
    except OSError as error:
        lease.note(f"it is in --out, but {kept} cannot be written: {error.strerror}; copy it there before the next call")
        return
    lease.note(f"the next call finds it in {kept}")


def operations(lease):
    table(lease, "operations", batch(lease, 64))


def rounds(lease):
    table(lease, "rounds", batch(lease, 512), "--rounds=8", "--overlap=true")


def servers(lease):
    """Runs the section rounds with four servers, which read and write at the same time."""
    table(lease, "rounds", batch(lease, 512), "--rounds=8", "--overlap=true", "--servers=4")


def check_sampler(lease):
    """Records a failure if nvidia-smi has ended early: then a card that was slowed down looks like a program that is slow."""
    if lease.sampler is None:
        return
    code = lease.sampler.poll()
    lease.check(SAMPLES, code is None, f"nvidia-smi ended with {code} before the lease: clocks after its last row are unknown",
                step="machine")
    if code is not None:
        lease.results["machine"] = lease.result_of(next(step for step in lease.steps if step.name == "machine"))


def summary(lease):
    check_sampler(lease)
    write_summary(lease)


def write_summary(lease):
    options = lease.options
    lines = ["# Summary", "", f"Card: {lease.card}. Programs: {lease.version}. Date: {datetime.date.today()}. Command: `{options.command}`.", ""]
    if lease.exit_code() == NO_CARD:
        lines += ["Nothing ran on a card, so nothing was tested or measured.", ""]
    left_out = " and ".join(f"--{flag}={name}" for flag, name in (("from", options.first_step), ("until", options.last_step)) if name)
    chosen = {step.name for step in lease.steps}
    lines += ["| step | result | reason |", "| --- | --- | --- |"]
    for step in LEASES[options.lease]:
        if step.name == "summary":
            continue
        lease.results.setdefault(step.name, Result("not run", lease.obstacle if step.name in chosen else f"left out by {left_out}"))
        result = lease.results[step.name]
        lines.append(f"| {step.name} | {result.word} | {result.reason.replace('|', '/')} |")
    lines.append("")
    for fact in facts(lease):
        if "tokens_per_second" in fact:
            lines.append(f"- {fact['program']}, B = {fact['batch']}: {fact['tokens_per_second']:.0f} tokens/s")
        elif "ratio" in fact:
            lines.append(f"- {gpu_table.ratio_text(fact['ratio'], fact['batch'])}")
        elif "exposed" in fact:
            lines.append(f"- exposed share of a round, B = {fact['batch']}, {fact['wire']}: {fact['exposed']:.1%}")
    if lease.python == "" and lease.exit_code() != NO_CARD:
        lines.append(f"- no yardstick: there is no PyTorch; llm.c's published rate is {gpu_table.LLM_C_TOKENS_PER_SECOND} tokens/s")
    if lease.failed_tests:
        lines.append(f"- again: tests/gpu/second_lease.sh --again='{':'.join(sorted(set(lease.failed_tests)))}'")
    lines += [f"- library: {path}" for path in sorted(lease.libraries)]
    lines += [f"- FAILED {text}" for _, text in lease.failures]
    lines += [f"- skipped {text}" for text in lease.skipped_checks]
    lines += ["", ", ".join(f"{lease.count(word)} {word}" for word in ("passed", "failed", "skipped", "not run"))]
    text = "\n".join(lines)
    lease.say(f"{text}\nResults are in {lease.out}.")
    (lease.out / SUMMARY).write_text(text + "\n", encoding="utf-8")


# These functions make the entries of steps that both leases have.


def unpack_step(share):
    return Step("unpack", share, LEAST_OF_UNPACK, unpack, "finds the programs, or unpacks --package", evidence=False)


def machine_step(share):
    return Step("machine", share, LEAST_OF_MACHINE, machine,
                "says what the machine has, opens the card, starts nvidia_smi.csv", evidence=False)


def step_step(share):
    return Step("step", share, LEAST_OF_TABLE, step,
                "times a training step of GPT-2 124M beside PyTorch, 64 samples of 1024 tokens", files=("step.md",))


def keep_step(share):
    return Step("keep", share, LEAST_OF_FILE, keep_compiled, "keeps what PyTorch has compiled for the next call (--kept)",
                evidence=False, files=(COMPILED,))


def summary_step(share):
    return Step("summary", share, LEAST_OF_FILE, summary, "writes summary.md", evidence=False, files=(SUMMARY,))


ROUNDS_FILES = ("rounds.md", "traces.tar.gz")
FIRST = [
    unpack_step(5),
    machine_step(20),
    Step("never", 40, LEAST_OF_PROGRAM, conformance("Never"), "runs the conformance suite of devices with --fusion=never"),
    Step("always", 45, LEAST_OF_PROGRAM, conformance("Always"), "runs the same suite with --fusion=always, so with cuDNN's attention"),
    Step("shapes", 45, LEAST_OF_PROGRAM, shapes, "tests attention and loss at GPT-2's shapes"),
    step_step(150),
    keep_step(10),
    Step("operations", 25, LEAST_OF_TABLE, operations, "times the operations of a training step", files=("operations.md",)),
    Step("rounds", 75, LEAST_OF_TABLE, rounds, "times rounds of 512 samples with one server", files=ROUNDS_FILES),
    summary_step(5),
]


# These steps are only in the second lease.


def failed_tests(output):
    """Returns the names of the tests that GoogleTest or unittest lists as failed."""
    names = re.findall(r"^\[  FAILED  \] ([^ ,]+\.[^ ,]+)|^(?:FAIL|ERROR): (\S+)", output, re.MULTILINE)
    return sorted({first or second for first, second in names})


def part(name):
    """Returns a function that runs one part of run.sh."""
    def run(lease):
        code, output = lease.command(lease.root / "tests/gpu/run.sh", name)
        skipped = re.search(rf"^SKIPPED {name}: (.*)$", output, re.MULTILINE)
        if code == NO_CARD and skipped:
            lease.skip(name, skipped[1])
        elif code != 0:
            # The last lines are those of run.sh, which say no reason.
            said = [line for line in output.splitlines() if not re.match(r"FAILED |\d+ passed, \d+ failed", line)]
            failed = failed_tests(output)
            lease.check(name, False, f"exit code {code}, " +
                        (f"failed: {' '.join(failed)}" if failed else f"last line: {gpu_table.last_line(chr(10).join(said))}"))
    return run


def again(lease):
    if not lease.options.again:
        lease.skip("again", "--again names no test")
        return
    tests(lease, "again", lease.options.again)


def profile(lease):
    """Runs ncu on PROFILED, the two kernels that take the most time of a step, but for matrix products."""
    profiler = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if not pathlib.Path(profiler).exists():
        lease.skip("profile", "ncu is neither on the PATH nor in /usr/local/cuda/bin")
        return
    words = [lease.bin / "operations", batch(lease, 64), "--repeats=1", "--fusion=never"]
    # The number of launches counts for each kernel and grid of its own. Otherwise it would count over both kernels.
    code, output = lease.command(profiler, f"--kernel-name=regex:{'|'.join(PROFILED)}", "--filter-mode=per-launch-config",
                                 "--launch-count=1", "--set=full", "--page=details", *words,
                                 *(["--small"] if lease.options.small else []))
    (lease.out / PROFILE).write_text(output, encoding="utf-8")
    # ncu may end with 0 although it has profiled nothing.
    errors = re.findall(r"^==(?:ERROR|WARNING)== (.*ERR_NVGPUCTRPERM.*|No kernels were profiled.*)$", output, re.MULTILINE)
    # Lines that begin with == say what ncu does, not what it has found.
    missing = [kernel for kernel in PROFILED if not re.search(rf"^(?!==).*{kernel}", output, re.MULTILINE)]
    if code != 0 or errors:
        lease.check("profile", False, f"ncu ended with {code}: {errors[0] if errors else gpu_table.last_line(output)}")
    elif missing:
        lease.check("profile", False, f"{PROFILE} lacks kernels called {' and '.join(missing)}; profile them by hand with ncu")
    lease.note(f"{PROFILE} has what ncu printed")


PROFILE, PROFILED = "profile.txt", ("AttentionBackward", "SoftmaxCrossEntropy")
SECOND = [
    unpack_step(5),
    machine_step(15),
    Step("models", 40, LEAST_OF_PROGRAM, part("models"), "trains the models beside those of the CPU"),
    Step("modes", 35, LEAST_OF_PROGRAM, part("modes"), "trains in the modes sync, local_sgd and async with two workers on one card"),
    Step("memcheck", 40, LEAST_OF_PROGRAM, part("memcheck"), "looks for wrong memory accesses with compute-sanitizer"),
    Step("racecheck", 40, LEAST_OF_PROGRAM, part("racecheck"), "looks for missing barriers with compute-sanitizer"),
    Step("again", 15, LEAST_OF_PROGRAM, again, "runs the tests that --again names"),
    step_step(70),
    Step("profile", 20, LEAST_OF_PROGRAM, profile, "profiles attention backward and loss with ncu", files=(PROFILE,)),
    Step("servers", 40, LEAST_OF_TABLE, servers, "times rounds of 512 samples with four servers", files=ROUNDS_FILES),
    keep_step(5),
    summary_step(5),
]
LEASES = {"first": FIRST, "second": SECOND}
# Default limits. Both leases and two starts of the machine fit into fifteen minutes.
SECONDS = {"first": 420, "second": 270}
# These steps run whatever --from and --until name: the others need their results.
ALWAYS = ("unpack", "machine", "summary")

EPILOG = f"""files in --out, at most 8, of at most 16 MiB each; the middle of a longer text is left out:
  {SUMMARY}       result and reason of each step, the main numbers
  {LOG}        all that was printed
  {SAMPLES}   clocks, power and temperature, every 0.5 s
  SECTION.md       one table of each step that measures; docs/reference/gpu_tables.md explains the columns
  traces.tar.gz    traces of rounds, for ui.perfetto.dev
  {COMPILED}  what PyTorch has compiled (a copy of that in --kept)
  {PROFILE}      what ncu printed

exit codes:
  0      at least one step passed, and none failed
  1      a step failed
  2      refused: a flag is wrong, --out cannot be used, or Python is too old
  77     nothing ran on a card, as there is no usable card or each step was skipped
  128+N  signal N has stopped the lease; 130 means Ctrl-C. summary.md says how far it came."""


def finite_seconds(text):
    number = float(text)
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text}: a number of seconds is wanted")
    return number


def parse(lease, arguments):
    script = f"tests/gpu/{lease}_lease.sh"
    steps = LEASES[lease]
    parser = argparse.ArgumentParser(
        prog=script, usage=f"{script} [--seconds=N] [--out=FOLDER] [--from=STEP] [--until=STEP] [flags]", allow_abbrev=False,
        description=__doc__ + "\nsteps:\n" + "\n".join(f"  {step.name:<11}{step.what}" for step in steps), epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=finite_seconds, default=SECONDS[lease], help=f"time limit of the lease; default {SECONDS[lease]}")
    parser.add_argument("--out", default=os.environ.get("OUT") or "lease-out",
                        help="folder for the results; default $OUT, or lease-out if OUT is not set. A folder that has results of an "
                        "earlier lease is refused, unless --from or --replace is given. Each lease needs a folder of its own")
    parser.add_argument("--replace", action="store_true", help="remove the results of an earlier lease from --out first")
    parser.add_argument("--from", dest="first_step", metavar="STEP", default="",
                        help="first step to run; default: the first. Earlier files in --out are replaced only by steps that run; "
                        f"{LOG} and {SAMPLES} are appended to")
    parser.add_argument("--until", dest="last_step", metavar="STEP", default="", help="last step to run; default: the last. "
                        f"{', '.join(ALWAYS)} run in any case")
    parser.add_argument("--kept", type=pathlib.Path, metavar="FOLDER", default=ROOT / ".lease",
                        help=f"folder of {COMPILED}, PyTorch's compiled code; step machine reads it, step keep writes it; "
                        "default .lease of the package or clone. For a lease on another machine, copy it there from --out")
    parser.add_argument("--package", type=pathlib.Path, metavar="FILE", default=ROOT / ".lease/lodestar.tar.xz",
                        help="package with the programs, made by deploy/package.sh; default .lease/lodestar.tar.xz. It is not read if "
                        "this script is part of an unpacked package")
    parser.add_argument("--peak_tflops", type=gpu_table.positive, help="dense bf16 peak of the card in TFLOP/s, for MFU in step.md; "
                        "default: that of an H100, H200, A100 or L4; for other cards MFU is left out")
    if any(step.name == "again" for step in steps):
        parser.add_argument("--again", metavar="FILTER", default="", help="--gtest_filter of the tests that step again runs; summary.md "
                            "of the first lease names those that failed")
    parser.add_argument("--small", action="store_true", help="small shapes for an emulated card; their times mean nothing")
    options = parser.parse_args(arguments)
    options.lease, options.command = lease, shlex.join([script, *arguments])
    names = [step.name for step in steps]
    for flag, name in (("from", options.first_step), ("until", options.last_step)):
        if name and name not in names:
            parser.error(f"--{flag}={name}: allowed is {', '.join(names)}")
    if options.first_step and options.last_step and names.index(options.first_step) > names.index(options.last_step):
        parser.error(f"--from={options.first_step} comes after --until={options.last_step}")
    options.steps = chosen_steps(steps, options.first_step, options.last_step)
    least = math.ceil(sum(step.least for step in options.steps))
    if not least <= options.seconds <= MOST_SECONDS:
        parser.error(f"--seconds={options.seconds:.15g}: the steps {', '.join(step.name for step in options.steps)} need at least "
                     f"{least} seconds, and at most {MOST_SECONDS} are allowed; change --seconds, or choose steps by --from and --until")
    if getattr(options, "again", "") and "again" not in [step.name for step in options.steps]:
        parser.error(f"--again={options.again}: step again is left out by --from or --until; include it, or leave --again out")
    if not options.out:
        parser.error("--out is empty; name a folder")
    options.out = pathlib.Path(options.out).resolve()
    return options


def chosen_steps(steps, first_step, last_step):
    names = [step.name for step in steps]
    first = names.index(first_step) if first_step else 0
    last = names.index(last_step) if last_step else len(names)
    return [step for i, step in enumerate(steps) if first <= i <= last or step.name in ALWAYS]


def main(arguments):
    if sys.version_info < OLDEST_PYTHON:
        print(f"lease.py: Python {'.'.join(map(str, sys.version_info[:3]))} is too old; have python3 on the PATH be "
              f"{'.'.join(map(str, OLDEST_PYTHON))} or later", file=sys.stderr)
        return REFUSED
    if not arguments or arguments[0] not in LEASES:
        print("lease.py: start it by tests/gpu/first_lease.sh or tests/gpu/second_lease.sh", file=sys.stderr)
        return REFUSED
    options = parse(arguments[0], arguments[1:])

    def stop(number, _):
        # Another signal must not interrupt the ending.
        for other in STOP_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    try:
        handle = claim_out(options)
    except Refused as why:
        print(f"lease.py: {why}", file=sys.stderr)
        return REFUSED
    try:
        lease = Lease(options, handle)
    except OSError as error:
        print(f"lease.py: {tempfile.gettempdir()} or {options.out} cannot be written: {error}; free some space, or have TMPDIR name "
              "another folder", file=sys.stderr)
        return REFUSED
    # stop() has the running program ended, too.
    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    return lease.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
