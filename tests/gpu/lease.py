#!/usr/bin/env python3
"""Runs the steps of a lease, the few minutes that a machine with a card is lent for, each within its limit.

first_lease.sh and second_lease.sh start it. --out=FOLDER gets at most 8 files, written as results come: lease.log (all
that was printed), nvidia_smi.csv (every 0.5 s), a table for each step that measures, traces.tar.gz, inductor.tar.xz
(what PyTorch compiled; .lease/inductor.tar.xz is read by the next call) and, at the end, summary.md. A text of more than
16 MiB loses its middle, and says so: larger files do not come back from a card's machine. One lease at a time writes there.

Limits of the steps add up to at most --seconds. Time that a step does not use goes to the steps behind it. With
--from=STEP and --until=STEP the others are left out, and these share the time. Exit code: 0 all passed, 1 some failed, 2
refused, 77 nothing ran because there is no card.
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
STOPPED = 124  # as of timeout(1)
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MOST_UNPACKED_BYTES = 256 << 20
MOST_LINE_BYTES = 1 << 20
RESULTS = ["summary.md", "step.md", "operations.md", "rounds.md", "traces.tar.gz", "inductor.tar.xz", "nvidia_smi.csv"]
SMI_FIELDS = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu"
SMI_REASONS = ",clocks_event_reasons.active"
SMI_MILLISECONDS = 500
# Below it cuDNN has no attention that kernels/cuda/cudnn_api.cc takes.
CUDNN, OLDEST_CUDNN = "libcudnn.so.9", 91200
TILE_TOKENS = 128
# This part of a step's limit is left for its processes to end after they were told to.
SECONDS_TO_END = 2.0
SECONDS_TO_TELL = 10  # for a program that only says what is there
MOST_SECONDS = 24 * 3600
# Least limits of steps in seconds: nvidia-smi may take seconds to answer, and a program needs some before it is stopped.
LEAST_OF_UNPACK, LEAST_OF_MACHINE, LEAST_OF_TABLE, LEAST_OF_PROGRAM, LEAST_OF_FILE = 3, 10, 10, 5, 1


@dataclasses.dataclass
class Step:
    """`share`: of the time, in seconds of a lease of the usual length. `least`: the lowest limit that the step is of use with."""
    name: str
    share: float
    least: float
    run: object


def limits_of(steps, seconds):
    """Seconds of each step: its share, or its least where the share is below it. They add up to `seconds`."""
    limits, others = {}, steps
    while others:
        unit = (seconds - sum(limits.values())) / sum(step.share for step in others)
        short = {step.name: step.least for step in others if unit * step.share < step.least}
        limits |= short or {step.name: unit * step.share for step in others}
        others = [step for step in others if step.name not in limits]
    return [limits[step.name] for step in steps]


LEFT_OUT = re.compile(rb"^\[([0-9]+) bytes are left out here.*\n", re.MULTILINE)


def cut_middle(path):
    """Leaves the first and the last quarter of what a text file may have, if it has more, and a line that says how many bytes
    were between them. Whatever writes to the file meanwhile must append to it."""
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
    """A new text file that grows at its end and is cut in its middle."""

    def __init__(self, path):
        self.path = path
        path.unlink(missing_ok=True)
        self.file = open(path, "ab", buffering=0)  # pylint: disable=consider-using-with

    def write(self, data):
        self.file.write(data)
        if os.fstat(self.file.fileno()).st_size > MOST_FILE_BYTES:
            cut_middle(self.path)

    def close(self):
        self.file.close()


class Watcher:
    """A process that kills programs and removes a folder once this one is gone, also if SIGKILL ended it. PR_SET_PDEATHSIG would
    end children alone, but not what run.sh, a profiler or gpu_table.py has started: they are in the group of their program."""

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
        """subprocess.Popen() of a program with a process group of its own, which the watcher knows before the program runs."""
        return subprocess.Popen(words, process_group=0, preexec_fn=lambda: self.tell(os.getpid()), **options)  # pylint: disable=subprocess-popen-preexec-fn

    def forget(self, group):
        self.tell(-group)

    def tell(self, number):
        os.write(self.write_end, b"%d\n" % number)

    def end(self):
        os.close(self.write_end)
        os.waitpid(self.pid, 0)


class Lease:
    def __init__(self, options, steps):
        self.options, self.begin, self.steps = options, time.monotonic(), steps
        self.out = options.out
        self.lock = lock(self.out)
        for name in RESULTS:  # Those of an earlier lease would pass for this one's.
            (self.out / name).unlink(missing_ok=True)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="lodestar-lease."))
        self.watcher = Watcher(self.work)
        self.log = CutFile(self.out / "lease.log")
        self.facts_path = self.work / "facts"
        self.root, self.python, self.cudnn, self.has_card = ROOT, "", 0, True
        self.library_faults = {}  # of libraries that are here but cannot be loaded
        self.failures, self.passed, self.skipped, self.libraries, self.failed_tests = [], [], {}, set(), []
        self.card, self.version, self.has_programs = "unknown", "unknown", True
        self.environment, self.deadline, self.sampler = dict(os.environ), 0.0, None
        self.cache = self.work / "inductor"
        self.cache.mkdir()
        self.environment |= {"TORCHINDUCTOR_CACHE_DIR": str(self.cache), "TRITON_CACHE_DIR": str(self.cache / "triton")}

    @property
    def bin(self):
        return self.root / "bin"

    def say(self, text):
        """To the log and to whoever reads along. That one of them is closed or full must not end the lease."""
        for write in (lambda: self.log.write(f"{text}\n".encode(errors="replace")), lambda: print(text, flush=True)):
            try:
                write()
            except (OSError, ValueError):
                pass

    def skip(self, name, why):
        self.skipped[name] = why
        self.say(f"{name} is skipped: {why}")

    def check(self, name, passed, why=""):
        if passed:
            self.passed.append(name)
            return
        self.failures.append(f"{name}: {why}" if why else name)
        self.say(f"FAILED {self.failures[-1]}")

    def left(self):
        return self.deadline - time.monotonic()

    def command(self, *words, name=""):
        """Runs a program until the step's limit; its output goes to the log line by line. Returns exit code and output."""
        self.say(f"$ {shlex.join(str(word) for word in words)}")
        try:
            process = self.watcher.start([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, env=self.environment, cwd=self.root)
        except OSError as error:
            self.say(str(error))
            return 127, str(error)
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
        """Until the process has ended, or the step's time is over but for what ending takes."""
        os.set_blocking(process.stdout.fileno(), False)
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
        """Ends the program, if it has not ended, and what it has left behind: its process group is its own."""
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
            # As where the driver hangs; the steps behind it may show more.
            self.say(f"Process {process.pid} cannot be killed.")
            return
        self.watcher.forget(process.pid)

    def run(self):
        self.say(f"{datetime.datetime.now(datetime.timezone.utc):%F %T} UTC, {shlex.join(sys.argv)}")
        limits = limits_of(self.steps, self.options.seconds)
        self.say("Limits: " + ", ".join(f"{step.name} {limit:.0f} s" for step, limit in zip(self.steps, limits)))
        try:
            self.deadline = self.begin
            end = self.begin
            for step, limit in zip(self.steps, limits):
                end += limit
                self.deadline = end
                if not (self.has_card and self.has_programs) and step.name != "summary":
                    continue
                begin = time.monotonic()
                self.say(f"==> {step.name} (at most {self.left():.0f} s)")
                num_failures = len(self.failures)
                try:
                    step.run(self)
                except Exception as error:  # pylint: disable=broad-exception-caught
                    self.check(step.name, False, f"{type(error).__name__}: {error}")
                self.has_programs &= step.name != "unpack" or len(self.failures) == num_failures
                if len(self.failures) == num_failures and step.name not in ("summary", *self.skipped) and self.has_card:
                    self.passed.append(step.name)
                self.cut_files()
                self.say(f"<== {step.name}: {time.monotonic() - begin:.1f} s")
        finally:
            self.end()
        if self.failures:
            return FAILED
        return 0 if self.has_card else NO_CARD

    def cut_files(self):
        """Other programs write some of the files."""
        for path in map(self.out.joinpath, RESULTS):
            if path.suffix in (".csv", ".md") and path.exists():
                cut_middle(path)

    def end(self):
        if self.sampler is not None:
            self.stop(self.sampler)
        self.cut_files()
        self.watcher.end()
        self.log.close()
        os.close(self.lock)


def lock(folder):
    """A handle of the folder, made if it is missing, that no other lease has. Raises BlockingIOError if one has it."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # NFS locks no folders.
    return handle


# Steps of both leases.


def extract(path, folder):
    # Python before 3.11.4 has no filters.
    filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(path) as archive:
        archive.extractall(folder, **filters)


def extract_cache(path, folder):
    """Of an archive that another call has made: files and folders below `folder`, of so many bytes. Raises ValueError."""
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
    """The programs of this package, or of --package."""
    if (ROOT / "bin/train_step").exists():
        return
    try:
        extract(lease.options.package, lease.work)
        lease.root = next(lease.work.glob("lodestar-*"))
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, StopIteration) as error:
        lease.check("unpack", False, f"{lease.options.package}: {error}; make it with deploy/package.sh --out=.lease/lodestar.tar.xz")


def python_with_torch():
    """Empty where python3, or what PYTHON names, has no PyTorch."""
    python = shutil.which(os.environ.get("PYTHON", "python3"))
    # Importing it takes many seconds where nothing is cached.
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if python is None or subprocess.run([python, "-c", code], check=False, timeout=SECONDS_TO_TELL).returncode != 0:
        return ""
    return python


def library_folders(python):
    """Where PyTorch's cuBLASLt and cuDNN are."""
    packages = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=False,
                              capture_output=True, text=True, timeout=SECONDS_TO_TELL).stdout.strip()
    found = [path.parent for name in ("libcublasLt.so.13", CUDNN)
             for path in sorted(pathlib.Path(packages).glob(f"nvidia/*/lib/{name}"))]
    return [str(folder) for folder in dict.fromkeys(found)]


def library_version(lease, file, function, oldest=0):
    """What a library that our programs would load says of itself; 0 if there is none. One that is here but of no use is a
    failure."""
    code = f"import ctypes; f = ctypes.CDLL('{file}').{function}; f.restype = ctypes.c_size_t; print(f())"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, env=lease.environment,
                          timeout=SECONDS_TO_TELL)
    version = int(done.stdout) if done.returncode == 0 else 0
    why = gpu_table.last_line(done.stderr) if done.returncode != 0 else f"{function} is {version}, at least {oldest} is needed"
    # The loader names the file that it has not found, which may be one that this library needs.
    is_absent = f"OSError: {file}: cannot open shared object file" in why
    if not is_absent and (done.returncode != 0 or version < oldest):
        lease.library_faults[file] = why
        lease.check(f"machine: {file}", False, why)
    return version


def start_sampling(lease):
    """Clocks, power and throttle reasons. Older drivers know no reasons under this name."""
    def query(fields):
        return ["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]

    has_reasons = subprocess.run(query(SMI_FIELDS + SMI_REASONS), check=False, capture_output=True,
                                 timeout=SECONDS_TO_TELL).returncode == 0
    with open(lease.out / "nvidia_smi.csv", "a", encoding="utf-8") as file:
        lease.sampler = lease.watcher.start(
            query(SMI_FIELDS + (SMI_REASONS if has_reasons else "")) + [f"--loop-ms={SMI_MILLISECONDS}"],
            stdout=file, stderr=subprocess.STDOUT)


def machine(lease):
    """Says what is here, and makes our programs find PyTorch's cuBLASLt."""
    code, output = lease.command("nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv")
    if code != 0:
        lease.has_card = False
        if code == STOPPED:
            lease.check("machine", False, "nvidia-smi has not answered in time")
        else:
            lease.say("There is no usable GPU here (nvidia-smi lists none): nothing was measured.")
        return
    lease.card = gpu_table.last_line(output)
    code, output = lease.command(lease.bin / "ps_server", "--version")
    lease.version = gpu_table.last_line(output) if code == 0 else "unknown"
    start_sampling(lease)
    lease.python = python_with_torch()
    if lease.python:
        folders = library_folders(lease.python) + [os.environ.get("LD_LIBRARY_PATH", "")]
        lease.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
        lease.say(f"PyTorch: {lease.python}; LD_LIBRARY_PATH={lease.environment['LD_LIBRARY_PATH']}")
    else:
        lease.say("There is no PyTorch: ours runs alone, with no yardstick here.")
    lease.cudnn = library_version(lease, CUDNN, "cudnnGetVersion", OLDEST_CUDNN)
    lease.say(f"cublasLtGetVersion: {library_version(lease, 'libcublasLt.so.13', 'cublasLtGetVersion')}, "
              f"cudnnGetVersion: {lease.cudnn} (0 means that it cannot be loaded)")
    kept = lease.options.kept / "inductor.tar.xz"
    if kept.exists():
        try:
            extract_cache(kept, lease.cache)
            lease.say(f"Compiled code of PyTorch comes from {kept}.")
        except (OSError, EOFError, ValueError, tarfile.TarError, lzma.LZMAError) as error:
            lease.say(f"Compiled code of PyTorch is made anew: {kept}: {error}")


def tests(lease, name, gtest_filter, program="cuda_device_test"):
    """Runs tests of a program by name. Returns their output."""
    code, output = lease.command(lease.bin / program, f"--gtest_filter={gtest_filter}", name=name)
    failed = sorted(set(re.findall(r"^\[  FAILED  \] ([^ ,]+\.[^ ,]+)", output, re.MULTILINE)))
    lease.failed_tests += failed
    num_passed = len(re.findall(r"^\[       OK \] ", output, re.MULTILINE))
    if code != 0:
        lease.check(name, False, f"exit code {code}, {num_passed} tests passed" + (f", failed: {' '.join(failed)}" if failed else ""))
    elif num_passed == 0:
        lease.check(name, False, f"no test is called {gtest_filter}")
    return output


def check_cudnn(lease, name, output, all_cases):
    """That cuDNN ran wherever it can be loaded: a green run of our own kernels would prove nothing. Of `all_cases`, those with
    whole tiles of tokens, none may have been refused."""
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
    """One section of gpu_table.py, into whose facts it looks later."""
    words = [sys.executable, "-B", ROOT / "tests/bench/gpu/gpu_table.py", f"--bin={lease.bin}", f"--python={lease.python}",
             f"--section={section}", f"--out={lease.out}", f"--facts={lease.facts_path}",
             f"--tuning_file={lease.work / 'tuning'}", f"--minutes={max(0.01, (lease.left() - 2 * SECONDS_TO_END - 1) / 60):.4f}",
             *flags]
    before = len(facts(lease))
    code, _ = lease.command(*words, *(["--small"] if lease.options.small else []), name=section)
    new = facts(lease)[before:]
    for fact in new:
        if "check" in fact:
            lease.check(fact["check"], fact["passed"], fact["why"])
    if code != 0:
        lease.check(section, False, f"gpu_table.py ended with {code}")


def facts(lease):
    if not lease.facts_path.exists():
        return []
    found = []
    for line in lease.facts_path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:  # A disk that was full has cut it short.
            lease.say(f"no fact: {line[:200]}")
    return found


def batch(lease, full):
    return f"--batch={2 if lease.options.small else full}"


def step(lease):
    counts = ["--warmup=2", "--steps=3"] if lease.options.small else ["--warmup=20", "--steps=60"]
    table(lease, "step", batch(lease, 64), *counts)


def keep_compiled(lease):
    """What PyTorch compiled, for the next call, unless it is too much to be carried."""
    num_bytes = sum(path.stat().st_size for path in lease.cache.rglob("*") if path.is_file())
    if num_bytes == 0:
        return
    if num_bytes > MOST_UNPACKED_BYTES:
        lease.say(f"Compiled code of PyTorch is not kept: {num_bytes} bytes would take too long to pack.")
        return
    kept = lease.work / "inductor.tar.xz"
    with tarfile.open(kept, "w:xz", preset=1) as archive:
        archive.add(lease.cache, ".")
    if kept.stat().st_size > MOST_FILE_BYTES:
        lease.say(f"Compiled code of PyTorch is not kept: {kept.stat().st_size} bytes, at most {MOST_FILE_BYTES} are carried.")
        return
    shutil.copy(kept, lease.out / "inductor.tar.xz")


def operations(lease):
    table(lease, "operations", batch(lease, 64))


def rounds(lease):
    table(lease, "rounds", batch(lease, 512), "--rounds=8", "--overlap=true")


def servers(lease):
    """The same with several servers, which read and write at the same time."""
    table(lease, "rounds", batch(lease, 512), "--rounds=8", "--overlap=true", "--servers=4")


def check_sampler(lease):
    """Without its rows a card that was slowed down cannot be told from a program that is slow."""
    if lease.sampler is None:
        return
    code = lease.sampler.poll()
    lease.check("nvidia_smi.csv", code is None, f"nvidia-smi ended with {code} before the lease: behind its last row clocks are unknown")


def summary(lease):
    check_sampler(lease)
    lines = ["# Summary", "", f"Card: {lease.card}. Programs: {lease.version}. Date: {datetime.date.today()}. Command: `{shlex.join(sys.argv)}`.", ""]
    for fact in facts(lease):
        if "tokens_per_second" in fact:
            lines.append(f"- {fact['program']}, B = {fact['batch']}: {fact['tokens_per_second']:.0f} tokens/s")
        elif "ratio" in fact:
            lines.append(f"- ratio, B = {fact['batch']}: {fact['ratio']:.3f} of the faster of PyTorch's runs")
        elif "exposed" in fact:
            lines.append(f"- exposed share of a round, B = {fact['batch']}, {fact['wire']}: {fact['exposed']:.1%}")
    if not lease.python:
        lines.append(f"- no yardstick here: there is no PyTorch; llm.c's published rate is {gpu_table.LLM_C_TOKENS_PER_SECOND} tokens/s")
    if lease.failed_tests:
        lines.append(f"- again: tests/gpu/second_lease.sh --again='{':'.join(sorted(set(lease.failed_tests)))}'")
    lines += [f"- library: {path}" for path in sorted(lease.libraries)]
    lines += [f"- FAILED {failure}" for failure in lease.failures]
    lines += [f"- skipped {name}: {why}" for name, why in lease.skipped.items()]
    lines += ["", f"{len(lease.passed)} passed, {len(lease.failures)} failed, {len(lease.skipped)} skipped"]
    text = "\n".join(lines)
    lease.say(text)
    (lease.out / "summary.md").write_text(text + "\n", encoding="utf-8")


FIRST = [
    Step("unpack", 5, LEAST_OF_UNPACK, unpack),
    Step("machine", 15, LEAST_OF_MACHINE, machine),
    Step("never", 40, LEAST_OF_PROGRAM, conformance("Never")),
    Step("always", 45, LEAST_OF_PROGRAM, conformance("Always")),
    Step("shapes", 45, LEAST_OF_PROGRAM, shapes),
    Step("step", 155, LEAST_OF_TABLE, step),
    Step("keep", 10, LEAST_OF_FILE, keep_compiled),
    Step("operations", 25, LEAST_OF_TABLE, operations),
    Step("rounds", 75, LEAST_OF_TABLE, rounds),
    Step("summary", 5, LEAST_OF_FILE, summary),
]


# Steps of the second lease.


def part(name):
    """One part of run.sh."""
    def run(lease):
        code, output = lease.command(lease.root / "tests/gpu/run.sh", name)
        last = (output.strip().splitlines() or ["nothing was printed"])[-1]
        if code == NO_CARD:
            lease.skip(name, last)
        elif code != 0:
            lease.check(name, False, f"exit code {code}: {last}")
    return run


def again(lease):
    if not lease.options.again:
        lease.skip("again", "--again names no test")
        return
    tests(lease, "again", lease.options.again)


def profile(lease):
    """ncu on the two kernels that take the most time of a step beside products."""
    profiler = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if not pathlib.Path(profiler).exists():
        lease.skip("profile", "ncu is not here")
        return
    words = [lease.bin / "operations", batch(lease, 64), "--repeats=1", "--fusion=never"]
    code, _ = lease.command(profiler, "--kernel-name=regex:AttentionBackward|SoftmaxCrossEntropy", "--launch-count=4",
                            "--set=full", "--page=details", *words, *(["--small"] if lease.options.small else []))
    if code != 0:
        lease.check("profile", False, f"ncu ended with {code}")


SECOND = [
    Step("unpack", 5, LEAST_OF_UNPACK, unpack),
    Step("machine", 10, LEAST_OF_MACHINE, machine),
    Step("models", 40, LEAST_OF_PROGRAM, part("models")),
    Step("modes", 35, LEAST_OF_PROGRAM, part("modes")),
    Step("memcheck", 40, LEAST_OF_PROGRAM, part("memcheck")),
    Step("racecheck", 40, LEAST_OF_PROGRAM, part("racecheck")),
    Step("again", 15, LEAST_OF_PROGRAM, again),
    Step("step", 75, LEAST_OF_TABLE, step),
    Step("profile", 20, LEAST_OF_PROGRAM, profile),
    Step("servers", 40, LEAST_OF_TABLE, servers),
    Step("keep", 5, LEAST_OF_FILE, keep_compiled),
    Step("summary", 5, LEAST_OF_FILE, summary),
]
LEASES = {"first": FIRST, "second": SECOND}
# By default. With two starts of the machine both fit into the fifteen minutes of a lease.
SECONDS = {"first": 420, "second": 270}
# Whatever the first step is, without them the others have no programs, and without the last no summary.
ALWAYS = ("unpack", "machine", "summary")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lease", choices=list(LEASES))
    parser.add_argument("--seconds", type=float, help="that all of it may take, at least what the chosen steps need; default "
                        + ", ".join(f"{seconds} for {name}" for name, seconds in SECONDS.items()))
    parser.add_argument("--from", dest="first_step", default="", help="the first step to run; default: all")
    parser.add_argument("--until", dest="last_step", default="", help="the last step to run but for the summary; default: all")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT", "lease-out")),
                        help="folder for the results; default $OUT")
    parser.add_argument("--kept", type=pathlib.Path, default=ROOT / ".lease", help="folder with inductor.tar.xz of an earlier call")
    parser.add_argument("--package", type=pathlib.Path, default=ROOT / ".lease/lodestar.tar.xz",
                        help="of deploy/package.sh; not read where this script is part of an unpacked package")
    parser.add_argument("--again", default="", help="second lease: --gtest_filter of the tests that failed in the first")
    parser.add_argument("--small", action="store_true", help="shapes for an emulated card; numbers then say nothing")
    options = parser.parse_args(arguments)
    options.seconds = SECONDS[options.lease] if options.seconds is None else options.seconds
    names = [step.name for step in LEASES[options.lease]]
    for flag, name in (("from", options.first_step), ("until", options.last_step)):
        if name and name not in names:
            parser.error(f"--{flag}={name}: allowed is {', '.join(names)}")
    if options.first_step and options.last_step and names.index(options.first_step) > names.index(options.last_step):
        parser.error(f"--from={options.first_step} comes after --until={options.last_step}")
    options.steps = chosen_steps(LEASES[options.lease], options.first_step, options.last_step)
    least = math.ceil(sum(step.least for step in options.steps))
    if not least <= options.seconds <= MOST_SECONDS:
        parser.error(f"--seconds={options.seconds:g}: the steps {', '.join(step.name for step in options.steps)} take at least "
                     f"{least}, at most {MOST_SECONDS}; raise it, or choose fewer steps by --from and --until")
    options.out = options.out.resolve()
    return options


def chosen_steps(steps, first_step, last_step):
    names = [step.name for step in steps]
    first = names.index(first_step) if first_step else 0
    last = names.index(last_step) if last_step else len(names)
    return [step for i, step in enumerate(steps) if first <= i <= last or step.name in ALWAYS]


def main(arguments=None):
    options = parse(arguments)
    if sys.version_info < (3, 11):
        sys.exit("lease.py needs Python 3.11 or later")

    def stop(number, _):
        # Another signal must not end the ending.
        for other in STOP_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    # Ends the program that runs, too.
    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    try:
        lease = Lease(options, options.steps)
    except BlockingIOError:
        print(f"lease.py: another lease writes to --out={options.out}; await its end, or name another folder", file=sys.stderr)
        return REFUSED
    return lease.run()


if __name__ == "__main__":
    sys.exit(main())
