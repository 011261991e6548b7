#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Lodestar on a GPU; writes one Markdown table per section. tests/bench/gpu.sh and tests/gpu/lease.py start it.

Sections:
  operations  times the operations of a GPT-2 124M step and compares them with measured ceilings
  step        times a whole step beside PyTorch and compares the losses of both
  rounds      times rounds with servers on this machine, with and without overlap
  gpt-mini    trains gpt-mini on --text

Each section ends within --minutes. If a case does not fit into them, its row says so. Rows are written as they come. If a
program fails, the rows that it printed before are kept. docs/reference/gpu_tables.md explains the columns and their units.
"""

import argparse
import array
import contextlib
import dataclasses
import datetime
import json
import math
import os
import pathlib
import queue
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

# Time that processes of a job have to end after their server has ended.
SECONDS_TO_END = 30
SECONDS_TO_DIE = 5  # Time that a killed program has to end.
# Seconds between looks whether a program has ended. The end of its output does not tell, as a child may hold the pipe open.
SECONDS_BETWEEN_LOOKS = 1.0
MOST_COUNT = 10**6  # Limit of the numbers of steps, rounds, samples and servers.
# Limit of a file in --out, as a rented machine may not give larger files back.
MOST_FILE_BYTES = 16 << 20
# The first rounds tune and load code, so their times do not count.
ROUNDS_NOT_COUNTED = 2
LEARNING_RATE = 3e-4
# Limits of the difference of losses of two programs that train one model in bf16: training amplifies their rounding.
LOSSES_COMPARED, LOSSES_CLOSE, MOST_RELATIVE_DIFFERENCE = 35, 10, 1e-2
# Rate of GPT-2 124M on one H100 in bf16, from github.com/karpathy/llm.c/discussions/481.
LLM_C_TOKENS_PER_SECOND = 468_000
COLUMNS_PAGE = "Columns and units: docs/reference/gpu_tables.md."
# Part of a choice's text by which kernels/cuda/fusion_choice.cc says that outputs differ from those of our kernels.
REFUSED = "(refused, "
LIBRARIES = ("liblodestar_cuda", "libcublasLt", "libcudnn", "libnccl", "libcuda.so")
# Dense bf16 peaks of cards in TFLOP/s, from NVIDIA's data sheets. The PCIe and NVL cards of the H100 and H200 are slower than
# the SXM ones. A card that is not here has no MFU in its tables.
PEAK_TFLOPS = ((r"\bH[12]00\b(?!.*(PCIe|NVL))", 989.0), (r"\bA100\b", 312.0), (r"\bL4\b", 121.0))


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    heads: int
    width: int
    tokens: int
    vocabulary: int

    def flop_per_token(self):
        matmul_parameters = 12 * self.layers * self.width * self.width + self.vocabulary * self.width
        return 6 * matmul_parameters + 6 * self.layers * self.width * self.tokens

    def text(self, name):
        """Returns the text of a file for ps_server's --model=FILE."""
        return (f'name: "{name}" gpt {{ num_layers: {self.layers} num_heads: {self.heads} width: {self.width} '
                f"context: {self.tokens} vocabulary: {self.vocabulary} }}\n")


GPT2 = Model(layers=12, heads=12, width=768, tokens=1024, vocabulary=50257)
# Sizes for an emulated card; --preset=small of torch_gpt2.py has the same.
SMALL = Model(layers=2, heads=2, width=32, tokens=16, vocabulary=128)


class NotMeasured(Exception):
    """Says why something was not measured, in words for a cell of a table."""


def last_line(text, most_characters=200):
    return (text.strip().splitlines() or ["no reason given"])[-1][:most_characters].replace("|", "/")


class Budget:
    """The time that is left for one section, or for a part of it."""

    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes

    def left(self):
        seconds = self.end - time.monotonic()
        if seconds <= 0:
            raise NotMeasured("the section's --minutes are over")
        return seconds

    def part(self, share):
        """Returns a share of the time that is left, so that one program cannot take the time of the next."""
        return Budget(max(0.0, self.end - time.monotonic()) * share / 60)


class Facts:
    """Writes the facts that tests/gpu/lease.py sums up to --facts=FILE, a line of JSON each."""

    def __init__(self, path):
        self.path = path

    def tell(self, **fields):
        if not self.path:
            return
        with open(self.path, "a", encoding="utf-8") as file:
            print(json.dumps(fields), file=file)

    def check(self, name, passed, why=""):
        self.tell(check=name, passed=passed, why=why)

    def skip(self, name, why):
        """Says that a check was left out."""
        self.tell(skipped=name, why=why)


class Table:
    """A section's page: one Markdown table below a line of text. Each row is in the file as soon as it is known."""

    def __init__(self, options, name, title, text, columns):
        self.file, self.name, self.facts, self.num_measured = None, name, options.facts, 0
        if options.out:
            self.file = open(options.out / f"{name}.md", "w", encoding="utf-8")  # pylint: disable=consider-using-with
        self.num_columns = len(columns)
        self.write(f"## {title}\n\nCard: {options.card}. Date: {datetime.date.today()}. Command: `{shlex.join(sys.argv)}`.\n\n{text}\n")
        self.write(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")

    def row(self, *cells):
        self.num_measured += 1
        self.write_row(cells)

    def row_without(self, cells, reason):
        """Writes a row of which only the first `cells` are known. That is a failure."""
        self.facts.check(case_name(self.name, *cells), False, str(reason))
        self.row_left_out(cells, reason)

    def row_left_out(self, cells, reason):
        """Writes a row of which only the first `cells` are known. That is no failure."""
        self.write_row((*cells, f"not measured: {reason}", *[""] * (self.num_columns - len(cells) - 1)))

    def write_row(self, cells):
        assert len(cells) == self.num_columns, cells
        self.write(f"| {' | '.join(str(cell) for cell in cells)} |")

    def write(self, text):
        print(text, flush=True)
        if self.file:
            print(text, file=self.file, flush=True)

    def end(self, text=""):
        self.write(f"\n{text}\n" if text else "")
        self.facts.tell(section=self.name, measured=self.num_measured)
        if self.file:
            self.file.close()


def case_name(section, batch=None, *rest):
    """Names a row of a section's table: "step, B = 64, Lodestar" or "rounds, B = 512, fp32, --overlap=true"."""
    words = [section]
    if batch is not None:
        words.append(f"{batch} rounds" if section == "gpt-mini" else f"B = {batch}")
    words += [f"--overlap={word}" if section == "rounds" and word in ("true", "false") else str(word) for word in rest]
    return ", ".join(words)


def environment(options):
    """Returns the environment of our programs. PyTorch's Python comes first on PATH, so that they find its cuBLASLt."""
    folder = str(pathlib.Path(options.python).parent) if "/" in options.python else ""
    path = os.environ.get("PATH", "")
    return {**os.environ, "PATH": f"{folder}:{path}" if folder else path}


def mapped_libraries(pid):
    """Returns the paths of NVIDIA's libraries and of our plugin that a process has mapped; none if the process is gone."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/" in line}
    except OSError:
        return set()
    return {path for path in paths if pathlib.Path(path).name.startswith(LIBRARIES)}


class Program:
    """A program that prints lines of JSON. end() kills it."""

    def __init__(self, command, options, errors):
        self.name, self.errors, self.libraries = pathlib.Path(command[0]).name, errors, set()
        if self.name.startswith("python"):
            self.name = pathlib.Path(next(word for word in command if word.endswith(".py"))).name
        try:
            with open(errors, "w", encoding="utf-8") as file:
                self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,  # pylint: disable=consider-using-with
                                                text=True, errors="replace", env=environment(options))
        except OSError as error:
            raise NotMeasured(f"{self.name}: {error}") from None
        self.arrived = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        try:
            for line in self.process.stdout:
                self.arrived.put(line)
        finally:
            self.arrived.put(None)

    def lines(self, budget, until=None):
        """Yields JSON lines as they come, up to one that has the field `until`. If the program fails, or has not ended when the
        time is over, raises NotMeasured after the last line."""
        while True:
            # A child of the program may hold its output open for longer than the program runs.
            has_ended = self.process.poll() is not None
            try:
                line = self.arrived.get(timeout=min(SECONDS_BETWEEN_LOOKS, budget.left()))
            except queue.Empty:
                if has_ended:
                    break
                continue
            except NotMeasured:
                raise NotMeasured(f"{self.name} was not done when the section's --minutes were over") from None
            if line is None:
                break
            self.libraries |= mapped_libraries(self.process.pid)
            # A program that dies may leave the last line without an end.
            if not line.startswith("{") or not line.endswith("\n"):
                continue
            fields = json_lines([line], self.name)[0]
            yield fields
            if until in fields:
                return
        if self.process.wait() != 0:
            raise NotMeasured(f"{self.name} ended with {self.process.returncode}: {last_line(self.errors.read_text(errors='replace'))}")
        if until:
            raise NotMeasured(f"{self.name} ended too early")

    def go_on(self):
        with contextlib.suppress(OSError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def end(self):
        self.process.kill()
        # A program that hangs in the driver cannot be killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(SECONDS_TO_DIE)
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        # A child of the program may hold the other end of the pipe open.
        self.reader.join(timeout=1)
        if not self.reader.is_alive():
            self.process.stdout.close()


@contextlib.contextmanager
def running(command, options, folder):
    program = Program(command, options, folder / "errors")
    try:
        yield program
    finally:
        program.end()


def json_lines(lines, program):
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise NotMeasured(f"what {program} has written is no JSON: {last_line(str(error))}") from None


def spread(values):
    ordered = sorted(values)
    return f"{statistics.median(ordered):.2f} ({ordered[len(ordered) // 10]:.2f}..{ordered[-1 - len(ordered) // 10]:.2f})"


def card():
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        shown = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown, as nvidia-smi does not tell"
    return shown.strip().replace("\n", "; ")


def peak_tflops(card_name):
    """Returns the dense bf16 peak of the first card that `card_name` lists, or None if it is not known."""
    first = card_name.partition(";")[0].partition(",")[0]
    return next((peak for pattern, peak in PEAK_TFLOPS if re.search(pattern, first)), None)


def check_outputs(options, choices):
    """Records a failure if outputs of a library were refused, although the program went on without the library."""
    refused = [choice for choice in dict.fromkeys(choices) if REFUSED in choice]
    if refused or any(": library" in choice for choice in choices):
        options.facts.check("outputs of libraries", not refused, "; ".join(refused))


def print_operations(options, budget, folder):
    table = Table(options, "operations", "Operations of a GPT-2 124M step",
                  f"bf16, T = {options.model.tokens}. Ceilings are measured in the same run: a copy on the card, in bytes read and "
                  f"written, and a matrix product of 8192 cubed. {COLUMNS_PAGE}",
                  ("B", "operation", "us", "rate", "of the ceiling"))
    choices = []
    for batch in options.batch:
        command = [f"{options.bin}/operations", f"--batch={batch}", *options.device_flags, *options.small_flags]
        num_rows = 0
        try:
            with running(command, options, folder) as program:
                for line in program.lines(budget):
                    num_rows += add_operation(table, batch, line, choices)
            if num_rows == 0:
                raise NotMeasured("operations printed nothing")
        except NotMeasured as reason:
            table.row_without((batch,), reason)
    check_outputs(options, choices)
    table.end("What the device has chosen:\n\n" + "\n".join(choices) if choices else "")


def add_operation(table, batch, line, choices):
    """Writes the rows of a line of JSON, and returns how many."""
    if None in line.values():
        table.row_without((batch, line.get("operation", "ceilings")), "what operations printed of it is not a number")
        return 1
    if "ceiling_tb_per_second" in line:
        table.row(batch, "ceiling of bytes", "", f"{line['ceiling_tb_per_second']} TB/s", "100%")
        table.row(batch, "ceiling of arithmetic", "", f"{line['ceiling_tflop_per_second']} TFLOP/s", "100%")
        return 2
    if "choice" in line:
        choices.append(f"- B = {batch}, --fusion={line['fusion']}: {line['choice']}")
    if "operation" not in line:
        return 0
    table.row(batch, line["operation"], f"{line['microseconds']:.1f}", f"{line['rate']:.3g} {line['unit']}",
              f"{line['of_ceiling']:.0%}")
    return 1


class Steps:
    """Collects the lines that a program has printed about its steps."""

    def __init__(self, warmup):
        self.warmup, self.losses, self.milliseconds, self.facts, self.notes = warmup, [], [], {}, []

    def add(self, line):
        if "step" in line:
            self.losses.append(math.nan if line["loss"] is None else line["loss"])
            if len(self.losses) > self.warmup:
                self.milliseconds.append(line["ms"])
        elif "choice" in line:
            self.notes.append(f"--fusion={line['fusion']}: {line['choice']}")
        elif "note" in line:
            self.notes.append(line["note"])
        elif "attention" in line:
            self.notes.append(f"{line['attention']} attention, forward and backward: " +
                              (f"{line['microseconds']:.0f} us" if "microseconds" in line else line["refused"]))
        else:
            self.facts.update(line)

    def fault(self, program, wanted):
        """Returns why a run with exit code 0 does not have `wanted` good steps, or an empty text."""
        if len(self.losses) != wanted:
            return f"{program} printed {len(self.losses)} of {wanted} steps"
        bad = [i for i, loss in enumerate(self.losses) if not math.isfinite(loss)]
        return f"the loss of step {bad[0]} is not a number" if bad else ""

    def tokens_per_second(self, batch, options):
        return batch * options.model.tokens / (statistics.median(self.milliseconds) * 1e-3)


def ratio_text(ratio, batch):
    return f"{OURS} at B = {batch}: {ratio:.3f} times the tokens/s of PyTorch's faster run"


def relative_difference(loss, wanted):
    """Returns |loss - wanted| / |wanted|, or infinity if one of the two is not finite."""
    return abs(loss - wanted) / abs(wanted) if math.isfinite(loss) and math.isfinite(wanted) else math.inf


class StepSection:
    """Runs PyTorch, ours, and PyTorch again, at one batch size: if clocks drift, the two runs of PyTorch differ. Ours with
    --repeatable=false runs last, as no other row is compared with it."""

    def __init__(self, options, table, batch, folder, budget):
        self.options, self.table, self.batch, self.folder, self.budget = options, table, batch, folder, budget
        self.yardsticks, self.libraries, self.steps = [], {}, {}

    def read(self, name, program, budget, until=None):
        """Reads the lines of one run and writes a row, also if the program fails after some timed steps."""
        steps = Steps(self.options.warmup)
        self.steps.setdefault(name, steps)
        reason = ""
        try:
            for line in program.lines(budget, until):
                steps.add(line)
        except NotMeasured as why:
            reason = str(why)
        self.libraries.setdefault(name, set()).update(program.libraries, steps.facts.get("libraries", ()))
        reason = reason or steps.fault(program.name, self.options.warmup + self.options.steps)
        if not steps.milliseconds:
            raise NotMeasured(reason)
        self.add_row(name, steps, reason)
        return not reason

    def add_row(self, name, steps, reason):
        options, rate = self.options, steps.tokens_per_second(self.batch, self.options)
        options.facts.tell(program=name, batch=self.batch, tokens_per_second=rate)
        shown = name
        if reason:
            options.facts.check(case_name("step", self.batch, name), False, reason)
            shown += f", {len(steps.milliseconds)} of {options.steps} steps: {reason}"
        if name in (PYTORCH, PYTORCH_AGAIN):
            self.yardsticks.append(rate)
            shown += f", {steps.facts['chosen_attention']} attention" if "chosen_attention" in steps.facts else ""
        yardstick = self.yardsticks[0] if self.yardsticks else 0
        mfu = [f"{rate * options.model.flop_per_token() / (options.peak_tflops * 1e12):.1%}"] if options.peak_tflops else []
        self.table.row(self.batch, shown, spread(steps.milliseconds), f"{rate:.0f}", *mfu,
                       f"{steps.facts.get('memory_bytes', 0) / 2**30:.1f} GiB", f"{rate / yardstick:.2f}" if yardstick else "")

    def counts(self):
        return [f"--batch={self.batch}", f"--steps={self.options.steps}", f"--warmup={self.options.warmup}",
                f"--learning_rate={LEARNING_RATE}"]

    def run(self):
        if not self.options.python:
            self.table.row_left_out((self.batch, PYTORCH), "--python names no Python with PyTorch, so there is no yardstick")
            self.run_ours(OURS)
            self.run_ours(OURS_UNREPEATABLE, "--repeatable=false")
            return
        script = str(pathlib.Path(__file__).with_name("torch_gpt2.py"))
        command = [self.options.python, "-B", script, *self.counts(), f"--write={self.folder}", "--again",
                   f"--preset={'small' if self.options.small else 'gpt2-124m'}"]
        try:
            with running(command, self.options, self.folder) as yardstick:
                is_well = self.measure(lambda: self.read(PYTORCH, yardstick, self.budget.part(PYTORCH_SHARE), until="waiting"), PYTORCH)
                if not is_well:
                    yardstick.end()  # A PyTorch process that is still computing would slow down Lodestar's run.
                self.run_ours(OURS)
                if is_well:
                    yardstick.go_on()
                    self.measure(lambda: self.read(PYTORCH_AGAIN, yardstick, self.budget), PYTORCH_AGAIN)
        except NotMeasured as reason:
            self.table.row_without((self.batch, PYTORCH), reason)
            self.run_ours(OURS)
        self.run_ours(OURS_UNREPEATABLE, "--repeatable=false")

    def measure(self, read, name):
        try:
            return read()
        except NotMeasured as reason:
            self.table.row_without((self.batch, name), reason)
            return False

    def run_ours(self, name, *flags):
        options, weights, tokens = self.options, self.folder / "weights.safetensors", self.folder / "tokens.bin"
        command = [f"{options.bin}/train_step", "--device=cuda", "--dtype=bf16", *options.device_flags, *self.counts()]
        if weights.exists() and tokens.exists():
            command += [f"--weights={weights}"]
        else:
            command += ["--model=gpt-nano" if options.small else "--model=gpt2-124m", "--seed=1"]
            write_tokens(tokens, options.model.vocabulary, count=1 << 19)
        folder = self.folder / "ours"
        folder.mkdir(exist_ok=True)

        def read():
            with running([*command, f"--tokens={tokens}", *flags], options, folder) as program:
                return self.read(name, program, self.budget)

        self.measure(read, name)

    def check_cublas(self):
        """Records a failure if PyTorch and ours have loaded different versions of cuBLASLt, and a note if one has loaded none."""
        used = [{os.path.realpath(path) for path in self.libraries.get(name, ()) if "libcublasLt" in path} for name in (PYTORCH, OURS)]
        if all(used):
            self.options.facts.check("one cuBLASLt", used[0] == used[1],
                                     f"PyTorch has {', '.join(sorted(used[0]))}, ours {', '.join(sorted(used[1]))}")
        elif self.options.python:
            without = [name for name, paths in zip((PYTORCH, OURS), used) if not paths]
            self.options.facts.skip("one cuBLASLt", f"none was loaded by {' and '.join(without)}")

    def losses(self):
        """Returns pairs of losses, PyTorch's and ours, of the steps that are compared."""
        sides = [self.steps[name].losses if name in self.steps else [] for name in (PYTORCH, OURS)]
        return list(zip(*sides))[:LOSSES_COMPARED]

    def losses_text(self):
        pairs = self.losses()
        differences = [relative_difference(ours, theirs) for theirs, ours in pairs]
        largest = max(differences[:LOSSES_CLOSE], default=math.inf)
        if math.isfinite(largest):
            why = (f"the largest relative difference over {len(differences[:LOSSES_CLOSE])} steps is {largest:.2g}, at most "
                   f"{MOST_RELATIVE_DIFFERENCE} is wanted")
        elif pairs:
            why = f"the losses of step {differences.index(math.inf)} are not both numbers"
        else:
            why = "not compared: " + ", ".join(f"{name} printed {len(self.steps[name].losses) if name in self.steps else 0} steps"
                                               for name in (PYTORCH, OURS))
        if self.options.python:
            self.options.facts.check(f"losses of B = {self.batch}", largest <= MOST_RELATIVE_DIFFERENCE, why)
        if not pairs:
            return []
        return [f"Largest relative difference of the losses: {largest:.2g} over {len(differences[:LOSSES_CLOSE])} steps (wanted: "
                f"at most {MOST_RELATIVE_DIFFERENCE}), {max(differences):.2g} over {len(differences)}. PyTorch's and ours: " +
                ", ".join(f"{theirs:.4f} {ours:.4f}" for theirs, ours in pairs) + "."]

    def text(self):
        """Returns the text below the table."""
        lines = []
        self.check_cublas()
        check_outputs(self.options, [note for steps in self.steps.values() for note in steps.notes])
        if self.yardsticks and OURS in self.steps and self.steps[OURS].milliseconds:
            ratio = self.steps[OURS].tokens_per_second(self.batch, self.options) / max(self.yardsticks)
            self.options.facts.tell(ratio=ratio, batch=self.batch)
            lines += [f"{ratio_text(ratio, self.batch)}.", ""]
        lines += self.losses_text()
        for name, steps in self.steps.items():
            notes = steps.notes + sorted(self.libraries.get(name, ()))
            lines += ["", f"{name}:", ""] + [f"- {note}" for note in notes] if notes else []
        return "\n".join(lines)


# PyTorch's share of the time of a batch size; it compiles first.
PYTORCH_SHARE = 0.65
PYTORCH, OURS, PYTORCH_AGAIN = "PyTorch compiled", "Lodestar", "PyTorch compiled, again"
OURS_UNREPEATABLE = "Lodestar, --repeatable=false"


def print_steps(options, budget, folder):
    model = options.model
    table = Table(options, "step", "GPT-2 124M training step",
                  f"bf16, T = {model.tokens}: forward, backward, AdamW, {options.warmup} steps before {options.steps} timed ones. " +
                  (f"MFU is {model.flop_per_token() / 1e6:.0f} MFLOP per token (6 N + 6 L C T) over a peak of "
                   f"{options.peak_tflops:g} TFLOP/s. " if options.peak_tflops else
                   "The table has no MFU, as the peak of this card is unknown; --peak_tflops names it. ") +
                  f"llm.c's published rate on one H100 is {LLM_C_TOKENS_PER_SECOND} tokens/s. {COLUMNS_PAGE}",
                  ("B", "program", "ms", "tokens/s", *(["MFU"] if options.peak_tflops else []), "memory", "tokens/s, of PyTorch's"))
    texts = []
    for i, batch in enumerate(options.batch):
        part = folder / f"b{batch}"
        part.mkdir()
        section = StepSection(options, table, batch, part, budget.part(1 / (len(options.batch) - i)))
        section.run()
        texts.append(section.text())
    table.end("\n".join(texts))


def write_tokens(path, vocabulary, count=1 << 21):
    """Writes random tokens: the speed does not depend on their values."""
    generator = random.Random(1)
    with open(path, "wb") as file:
        array.array("H", (generator.randrange(vocabulary) for _ in range(count))).tofile(file)


class Job:
    """Servers and one worker on this machine. All of them have ended when run() returns."""

    def __init__(self, options, folder, budget):
        self.options, self.folder, self.budget = options, folder, budget
        self.processes, self.libraries = {}, set()

    def start(self, program, flags, name=""):
        name = name or program
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            try:
                self.processes[name] = subprocess.Popen([f"{self.options.bin}/{program}", *flags], stdout=log, stderr=log,
                                                        env=environment(self.options))
            except OSError as error:
                raise NotMeasured(f"{name}: {error}") from None

    def reason(self, name):
        return f"{name} ended with {self.processes[name].returncode}: {last_line((self.folder / f'{name}.log').read_text(errors='replace'))}"

    def run(self, server_flags, worker_flags):
        """Returns the committed rounds, and why there are no more of them, or an empty text. Raises NotMeasured without rounds."""
        port_file, metrics = self.folder / "port", self.folder / "metrics.jsonl"
        for leftover in (port_file, metrics):
            leftover.unlink(missing_ok=True)
        reason = ""
        try:
            count = self.options.servers
            self.start("ps_server", ["--listen=127.0.0.1:0", f"--port_file={port_file}", "--exit_when_done",
                                     f"--metrics_out={metrics}", *([f"--shard=0/{count}"] if count > 1 else []), *server_flags])
            self.wait_until(lambda: port_file.exists() and port_file.read_text().strip())
            coordinator = f"--coordinator=127.0.0.1:{port_file.read_text().strip()}"
            for shard in range(1, count):
                self.start("ps_server", ["--listen=127.0.0.1:0", "--exit_when_done", f"--shard={shard}/{count}", coordinator],
                           name=f"shard-{shard}")
            self.start("gpu_worker", [coordinator, "--device=cuda", *worker_flags])
            self.wait_until(lambda: self.processes["ps_server"].poll() == 0)
        except NotMeasured as why:
            reason = str(why)
        finally:
            self.end()
        # A server that is killed may leave the last line without an end.
        lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []
        rows = json_lines(lines, "ps_server")
        if not rows:
            raise NotMeasured(reason or "ps_server has committed no round")
        return rows, reason

    def wait_until(self, is_reached):
        """Waits until is_reached(). Raises NotMeasured if a process has ended, as the others would then wait for ever."""
        while not is_reached():
            for name, process in self.processes.items():
                if process.poll() not in (None, 0):
                    raise NotMeasured(self.reason(name))
            if self.processes["ps_server"].poll() == 0 and not is_reached():
                raise NotMeasured(self.reason("ps_server"))
            self.budget.left()
            for process in self.processes.values():
                self.libraries |= mapped_libraries(process.pid)
            time.sleep(0.05)

    def end(self):
        for process in reversed(list(self.processes.values())):
            if self.processes["ps_server"].poll() != 0:
                process.terminate()
            try:
                process.wait(min(SECONDS_TO_END, max(1.0, self.budget.end - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(SECONDS_TO_DIE)


def milliseconds_of(rows, field):
    """Returns the median of a field of metrics_out, in milliseconds, as text for a cell."""
    values = [1e3 * row[field] for row in rows if row.get(field) is not None]
    return f"{statistics.median(values):.0f}" if values else "not in metrics_out"


def add_rounds(table, options, cells, rows, reason):
    seconds = [b["seconds"] - a["seconds"] for a, b in zip(rows[ROUNDS_NOT_COUNTED - 1:], rows[ROUNDS_NOT_COUNTED:])]
    if not seconds:
        raise NotMeasured(reason or f"{len(rows)} rounds are too few; raise --rounds")
    counted = rows[ROUNDS_NOT_COUNTED:]
    if len(rows) < options.rounds:
        reason = reason or f"ps_server has committed {len(rows)} of {options.rounds} rounds"
    exposed = [row["communication_seconds"] / s for row, s in zip(counted, seconds)
               if row.get("communication_seconds") is not None and s > 0]
    shown = spread([1e3 * s for s in seconds])
    if reason:
        shown += f", {len(seconds)} of {options.rounds - ROUNDS_NOT_COUNTED} rounds: {reason}"
        options.facts.check(case_name("rounds", *cells), False, reason)
    if exposed:
        options.facts.tell(exposed=statistics.median(exposed), batch=cells[0], wire=cells[1], overlap=cells[2])
    table.row(*cells, shown, *[milliseconds_of(counted, f"{what}_seconds") for what in ("compute", "communication", "wait")],
              f"{statistics.median(exposed):.1%}" if exposed else "unknown")


def pack_traces(folder, path):
    """Packs the traces, and leaves out the largest until the archive fits. Returns a line for each trace left out."""
    left_out = []
    path.unlink(missing_ok=True)
    while any(folder.iterdir()):
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, "traces")
        traces = sorted(folder.iterdir(), key=lambda trace: trace.stat().st_size)
        if path.stat().st_size <= MOST_FILE_BYTES:
            break
        left_out.append(f"traces.tar.gz lacks {traces[-1].name} of {traces[-1].stat().st_size} bytes: an archive may have at most "
                        f"{MOST_FILE_BYTES}.")
        traces[-1].unlink()
        path.unlink()
    return left_out


def print_rounds(options, budget, folder):
    table = Table(options, "rounds", f"GPT-2 124M with {options.servers} {'server' if options.servers == 1 else 'servers'} on the same machine",
                  f"sync, bf16 arithmetic, {options.rounds} rounds each, of which the first {ROUNDS_NOT_COUNTED} do not count; "
                  "traces.tar.gz, for ui.perfetto.dev, has copies beside the backward pass. Computing, communication that "
                  f"computing does not hide, and waiting are ms per round, by the worker's clock. {COLUMNS_PAGE}",
                  ("B", "wire", "overlap", "ms per round", "computing", "communication", "waiting", "exposed"))
    traces, libraries = folder / "traces", set()
    traces.mkdir()
    write_tokens(folder / "tokens.bin", options.model.vocabulary, count=1 << (14 if options.small else 21))
    model = "gpt2-124m"
    if options.small:
        model = str(folder / "model.textproto")
        pathlib.Path(model).write_text(options.model.text("small"), encoding="utf-8")
    cases = [(batch, encoding, overlap) for batch in options.batch for encoding in ("fp32", "bf16") for overlap in options.overlap]
    for i, (batch, encoding, overlap) in enumerate(cases):
        job = Job(options, folder, budget.part(1 / (len(cases) - i)))
        try:
            add_rounds(table, options, (batch, encoding, overlap), *job.run(
                [f"--model={model}", f"--rounds={options.rounds}", f"--batch_size={batch}",
                 f"--push_encoding={encoding}", f"--pull_encoding={encoding}", "--eval_samples=1",
                 "--optimizer=adamw", "--learning_rate=1e-4"],
                [f"--data={folder}/tokens.bin", "--dtype=bf16", f"--overlap={overlap}", *options.device_flags,
                 f"--trace={traces}/b{batch}-{encoding}-{overlap}.json"]))
        except NotMeasured as reason:
            table.row_without((batch, encoding, overlap), reason)
        libraries |= job.libraries
    texts = ["Libraries of the processes:\n"] + [f"- {path}" for path in sorted(libraries)] if libraries else []
    if options.out:
        texts += [f"\n{left_out}" for left_out in pack_traces(traces, options.out / "traces.tar.gz")]
    table.end("\n".join(texts))


def print_gpt_mini(options, budget, folder):
    table = Table(options, "gpt-mini", "gpt-mini on a text",
                  f"6 layers, 6 heads, 384 wide, context 256, batch 64, dropout 0.2, bf16. {COLUMNS_PAGE}",
                  ("rounds", "held-out loss, lowest", "in round", "held-out loss, last", "seconds"))
    try:
        rows, reason = Job(options, folder, budget).run(
            ["--model=gpt-mini", f"--rounds={options.mini_rounds}", "--batch_size=64", "--dropout=0.2", "--optimizer=adamw",
             "--learning_rate=1e-3", "--min_learning_rate=1e-4", "--lr_schedule=cosine", "--warmup_rounds=100",
             "--beta2=0.99", "--weight_decay=0.1", "--clip_norm=1", "--eval_every=250"],
            [f"--data={options.text}", "--dtype=bf16"])
        if reason:
            raise NotMeasured(reason)
        heldout = [row for row in rows if row.get("heldout_loss") is not None]
        if not heldout:
            raise NotMeasured("no loss was held out")
        best = min(heldout, key=lambda row: row["heldout_loss"])
        table.row(options.mini_rounds, f"{best['heldout_loss']:.4f}", best["round"], f"{heldout[-1]['heldout_loss']:.4f}",
                  f"{rows[-1]['seconds']:.0f}")
    except NotMeasured as reason:
        table.row_without((options.mini_rounds,), reason)
    table.end()


SECTIONS = {"operations": print_operations, "step": print_steps, "rounds": print_rounds, "gpt-mini": print_gpt_mini}


def count(text, least=1):
    number = int(text)
    if not least <= number <= MOST_COUNT:
        raise argparse.ArgumentTypeError(f"{text}: allowed is {least} to {MOST_COUNT}")
    return number


def positive(text):
    number = float(text)
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"{text}: allowed is a number above 0")
    return number


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the programs")
    parser.add_argument("--python", default="", help="a Python that has PyTorch; empty means no yardstick")
    parser.add_argument("--section", action="append", default=[], choices=list(SECTIONS),
                        help="section to measure; may be given several times; default: all, gpt-mini only with --text")
    parser.add_argument("--minutes", type=float, default=9.0, help="time limit of each section; default 9")
    parser.add_argument("--out", type=pathlib.Path, help="folder for SECTION.md of each section, and traces.tar.gz of rounds")
    parser.add_argument("--batch", type=count, action="append", default=[], help="samples per step; default 64, 16, 4")
    parser.add_argument("--steps", type=count, default=30, help="number of timed steps; default 30")
    parser.add_argument("--warmup", type=lambda text: count(text, least=0), default=5,
                        help="number of untimed steps before the timed ones; default 5")
    parser.add_argument("--rounds", type=count, default=30, help="rounds of each job of section rounds; default 30")
    parser.add_argument("--mini_rounds", type=count, default=5000, help="rounds of section gpt-mini; default 5000")
    parser.add_argument("--text", default="", help="text to train gpt-mini on, such as tinyshakespeare")
    parser.add_argument("--servers", type=count, default=1, help="servers that share the parameters in section rounds; default 1")
    parser.add_argument("--overlap", action="append", default=[], choices=("true", "false"),
                        help="value of gpu_worker's --overlap in section rounds; default: both, one after the other")
    parser.add_argument("--fusion", default="measure", choices=("measure", "never", "always"),
                        help="value of --fusion for Lodestar's programs; default measure")
    parser.add_argument("--tuning_file", default="", help="file in which Lodestar's programs keep measured choices")
    parser.add_argument("--facts", default="", help="file that gets lines of JSON for tests/gpu/lease.py")
    parser.add_argument("--small", action="store_true", help="small shapes for an emulated card; their times mean nothing")
    parser.add_argument("--peak_tflops", type=positive,
                        help="dense bf16 peak of the card in TFLOP/s, for MFU; default: that of an H100, H200, A100 or L4; "
                        "for other cards the column MFU is left out")
    options = parser.parse_args(arguments)
    options.batch = options.batch or [64, 16, 4]
    options.overlap = options.overlap or ["true", "false"]
    options.model = SMALL if options.small else GPT2
    options.small_flags = ["--small"] if options.small else []
    options.device_flags = [f"--fusion={options.fusion}"]
    if options.tuning_file:
        options.device_flags.append(f"--tuning_file={options.tuning_file}")
    options.facts = Facts(options.facts)
    options.section = options.section or [name for name in SECTIONS if name != "gpt-mini" or options.text]
    if "gpt-mini" in options.section and not options.text:
        parser.error("--section=gpt-mini trains on a text: give --text=FILE")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    return options


def main(arguments=None):
    options = parse(arguments)
    options.card = card()
    options.peak_tflops = options.peak_tflops or peak_tflops(options.card)
    for name in dict.fromkeys(options.section):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lodestar-bench."))
        try:
            SECTIONS[name](options, Budget(options.minutes), folder)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    # After SIGTERM, as after Ctrl-C, programs are ended and folders are removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    main()
