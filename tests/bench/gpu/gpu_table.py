#!/usr/bin/env python3
"""GPU measurements, each section one Markdown table; ../gpu.sh starts it.

Sections: operations (of a GPT-2 124M step, against measured ceilings), step (a whole step beside PyTorch), rounds (with a
server on this machine, overlap on and off), gpt-mini (trained on --text). Each is done within --minutes: what does not fit
into them is left out, and the table says so. MFU counts 6 N + 6 L C T FLOP per token (N: parameters of matrix products,
causal attention), llm.c's convention, over the peak that --peak_tflops names.
"""

import argparse
import array
import datetime
import json
import os
import pathlib
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

LAYERS, WIDTH, TOKENS, VOCABULARY = 12, 768, 1024, 50257
MATMUL_PARAMETERS = 12 * LAYERS * WIDTH * WIDTH + VOCABULARY * WIDTH
FLOP_PER_TOKEN = 6 * MATMUL_PARAMETERS + 6 * LAYERS * WIDTH * TOKENS
# Of a job whose server is done, or gone.
SECONDS_TO_END = 30


class NotMeasured(Exception):
    """Why not, in words for a cell of a table."""


def last_line(text):
    return (text.strip().splitlines() or ["no reason given"])[-1][:200].replace("|", "/")


class Budget:
    """The time of one section."""

    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes

    def left(self):
        seconds = self.end - time.monotonic()
        if seconds <= 0:
            raise NotMeasured("the section's --minutes are over")
        return seconds


class Table:
    """A section's page: one Markdown table below a line of text. What there is of it is in the file at any time."""

    def __init__(self, options, name, title, text, columns):
        self.file = None
        if options.out:
            self.file = open(options.out / f"{name}.md", "w", encoding="utf-8")  # pylint: disable=consider-using-with
        self.num_columns = len(columns)
        self.write(f"## {title}\n\nCard: {card()}. Date: {datetime.date.today()}. Command: `{shlex.join(sys.argv)}`.\n\n{text}\n")
        self.write(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")

    def row(self, *cells):
        assert len(cells) == self.num_columns, cells
        self.write(f"| {' | '.join(str(cell) for cell in cells)} |")

    def row_without(self, cells, reason):
        """A row of which only the first `cells` are known."""
        self.row(*cells, f"not measured: {reason}", *[""] * (self.num_columns - len(cells) - 1))

    def write(self, text):
        print(text, flush=True)
        if self.file:
            print(text, file=self.file, flush=True)

    def end(self, text=""):
        self.write(f"\n{text}\n" if text else "")
        if self.file:
            self.file.close()


def environment(options):
    """Of our programs: cuBLASLt may be that of the Python that has PyTorch."""
    folder = str(pathlib.Path(options.python).parent) if "/" in options.python else ""
    path = os.environ.get("PATH", "")
    return {**os.environ, "PATH": f"{folder}:{path}" if folder else path}


def lines_of(command, options, budget):
    """The JSON lines that a program prints. Raises NotMeasured."""
    program = pathlib.Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=budget.left(),
                              env=environment(options))
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"{program} was not done when the section's --minutes were over") from None
    except OSError as error:
        raise NotMeasured(f"{program}: {error}") from None
    if done.returncode != 0:
        raise NotMeasured(f"{program}: {last_line(done.stderr)}")
    lines = json_lines([line for line in done.stdout.splitlines() if line.startswith("{")], program)
    if not lines:
        raise NotMeasured(f"{program} printed nothing")
    return lines


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


def print_operations(options, budget, _):
    table = Table(options, "operations", "Operations of a GPT-2 124M step",
                  f"bf16, T = {TOKENS}. Ceilings are measured in the same run: a copy on the card, in bytes read and written, and a "
                  "matrix product of 8192 cubed.",
                  ("B", "operation", "us", "rate", "of the ceiling"))
    choices = []
    for batch in options.batch:
        try:
            lines = lines_of([f"{options.bin}/operations", f"--batch={batch}"], options, budget)
        except NotMeasured as reason:
            table.row_without((batch,), reason)
            continue
        for line in lines:
            if "ceiling_tb_per_second" in line:
                table.row(batch, "ceiling of bytes", "", f"{line['ceiling_tb_per_second']} TB/s", "100%")
                table.row(batch, "ceiling of arithmetic", "", f"{line['ceiling_tflop_per_second']} TFLOP/s", "100%")
            elif "operation" in line:
                table.row(batch, line["operation"], f"{line['microseconds']:.1f}", f"{line['rate']:.3g} {line['unit']}",
                          f"{line['of_ceiling']:.0%}")
            elif "choice" in line:
                choices.append(f"- B = {batch}, --fusion={line['fusion']}: {line['choice']}")
    table.end("What the device has chosen:\n\n" + "\n".join(choices) if choices else "")


def step_cells(lines, batch, options):
    """Of a program's step: ms, tokens/s, MFU, memory."""
    milliseconds = lines[-1]["ms"]
    tokens_per_second = batch * TOKENS / (statistics.median(milliseconds) * 1e-3)
    mfu = tokens_per_second * FLOP_PER_TOKEN / (options.peak_tflops * 1e12)
    return (spread(milliseconds), f"{tokens_per_second:.0f}", f"{mfu:.1%}", f"{lines[-1]['memory_bytes'] / 2**30:.1f} GiB")


def print_steps(options, budget, _):
    table = Table(options, "step", "GPT-2 124M training step",
                  f"bf16, T = {TOKENS}: forward, backward, AdamW. MFU: {FLOP_PER_TOKEN / 1e6:.0f} MFLOP per token (6 N + 6 L C T) "
                  f"over {options.peak_tflops} TFLOP/s.",
                  ("B", "program", "ms", "tokens/s", "MFU", "memory", "tokens/s, of PyTorch's"))
    pytorch = str(pathlib.Path(__file__).with_name("torch_gpt2.py"))
    for batch in options.batch:
        programs = {"PyTorch compiled": [options.python, "-B", pytorch],
                    "Lodestar": [f"{options.bin}/train_step", "--device=cuda", "--dtype=bf16", "--model=gpt2-124m", "--warmup=5"]}
        yardstick = None
        for name, command in programs.items():
            try:
                if not command[0]:
                    raise NotMeasured("there is no Python with PyTorch")
                lines = lines_of([*command, f"--batch={batch}", f"--steps={options.steps}"], options, budget)
            except NotMeasured as reason:
                table.row_without((batch, name), reason)
                continue
            median = statistics.median(lines[-1]["ms"])
            yardstick = yardstick or (median if name != "Lodestar" else None)
            table.row(batch, name, *step_cells(lines, batch, options), f"{yardstick / median:.2f}" if yardstick else "")
    table.end()


def write_tokens(path, count=1 << 21):
    """Random tokens: speed does not depend on what they say."""
    generator = random.Random(1)
    with open(path, "wb") as file:
        array.array("H", (generator.randrange(VOCABULARY) for _ in range(count))).tofile(file)


class Job:
    """One server and one worker on this machine. Neither outlives the job, whatever becomes of the other."""

    def __init__(self, options, folder, budget):
        self.options, self.folder, self.budget = options, folder, budget
        self.processes = {}

    def start(self, name, flags):
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            try:
                self.processes[name] = subprocess.Popen([f"{self.options.bin}/{name}", *flags], stdout=log, stderr=log,
                                                        env=environment(self.options))
            except OSError as error:
                raise NotMeasured(f"{name}: {error}") from None

    def reason(self, name):
        return f"{name} ended with {self.processes[name].returncode}: {last_line((self.folder / f'{name}.log').read_text())}"

    def run(self, server_flags, worker_flags):
        """The rounds that were committed. Raises NotMeasured."""
        port_file, metrics = self.folder / "port", self.folder / "metrics.jsonl"
        for leftover in (port_file, metrics):
            leftover.unlink(missing_ok=True)
        try:
            self.start("ps_server", ["--listen=127.0.0.1:0", f"--port_file={port_file}", "--exit_when_done",
                                     f"--metrics_out={metrics}", *server_flags])
            self.wait_until(lambda: port_file.exists() and port_file.read_text().strip())
            self.start("gpu_worker", [f"--coordinator=127.0.0.1:{port_file.read_text().strip()}", "--device=cuda", *worker_flags])
            self.wait_until(lambda: self.processes["ps_server"].poll() == 0)
        finally:
            self.end()
        if not metrics.exists():
            raise NotMeasured("ps_server has committed no round")
        return json_lines(metrics.read_text().splitlines(), "ps_server")

    def wait_until(self, is_reached):
        """A server without its worker, and a worker without its server, would wait for ever."""
        while not is_reached():
            for name, process in self.processes.items():
                if process.poll() not in (None, 0):
                    raise NotMeasured(self.reason(name))
            if self.processes["ps_server"].poll() == 0 and not is_reached():
                raise NotMeasured(self.reason("ps_server"))
            self.budget.left()
            time.sleep(0.05)

    def end(self):
        for process in reversed(list(self.processes.values())):
            if self.processes["ps_server"].poll() != 0:
                process.terminate()
            try:
                process.wait(SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def print_rounds(options, budget, folder):
    table = Table(options, "rounds", "GPT-2 124M with a server on the same machine",
                  f"sync, bf16 arithmetic, {options.rounds} rounds each; traces.tar.gz, for ui.perfetto.dev, has copies beside the "
                  "backward pass.",
                  ("B", "wire", "overlap", "ms per round"))
    traces = folder / "traces"
    traces.mkdir()
    write_tokens(folder / "tokens.bin")
    for batch in options.batch:
        for encoding in ("fp32", "bf16"):
            for overlap in ("true", "false"):
                try:
                    rows = Job(options, folder, budget).run(
                        ["--model=gpt2-124m", f"--rounds={options.rounds}", f"--batch_size={batch}",
                         f"--push_encoding={encoding}", f"--pull_encoding={encoding}", "--eval_samples=1",
                         "--optimizer=adamw", "--learning_rate=1e-4"],
                        [f"--data={folder}/tokens.bin", "--dtype=bf16", f"--overlap={overlap}",
                         f"--trace={traces}/b{batch}-{encoding}-{overlap}.json"])
                    seconds = [b["seconds"] - a["seconds"] for a, b in zip(rows[2:], rows[3:])]
                    if not seconds:
                        raise NotMeasured(f"{len(rows)} rounds are too few; raise --rounds")
                    table.row(batch, encoding, overlap, spread([1e3 * s for s in seconds]))
                except NotMeasured as reason:
                    table.row_without((batch, encoding, overlap), reason)
    table.end()
    if options.out:
        with tarfile.open(options.out / "traces.tar.gz", "w:gz") as archive:
            archive.add(traces, "traces")


def print_gpt_mini(options, budget, folder):
    table = Table(options, "gpt-mini", "gpt-mini on a text",
                  "6 layers, 6 heads, 384 wide, context 256, batch 64, dropout 0.2, bf16.",
                  ("rounds", "held-out loss, lowest", "in round", "held-out loss, last", "seconds"))
    try:
        rows = Job(options, folder, budget).run(
            ["--model=gpt-mini", f"--rounds={options.mini_rounds}", "--batch_size=64", "--dropout=0.2", "--optimizer=adamw",
             "--learning_rate=1e-3", "--min_learning_rate=1e-4", "--lr_schedule=cosine", "--warmup_rounds=100",
             "--beta2=0.99", "--weight_decay=0.1", "--clip_norm=1", "--eval_every=250"],
            [f"--data={options.text}", "--dtype=bf16"])
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


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the programs")
    parser.add_argument("--python", default="", help="a Python that has PyTorch; empty: no yardstick")
    parser.add_argument("--section", action="append", default=[], choices=list(SECTIONS),
                        help="what to measure, again for more; default: all, gpt-mini with --text only")
    parser.add_argument("--minutes", type=float, default=9.0, help="that a section may take")
    parser.add_argument("--out", type=pathlib.Path, help="folder for a file SECTION.md of each, and traces.tar.gz of rounds")
    parser.add_argument("--batch", type=int, action="append", default=[], help="samples per step; default 4, 16, 64")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=30, help="of each job with a server")
    parser.add_argument("--mini_rounds", type=int, default=5000)
    parser.add_argument("--text", default="", help="a text (tinyshakespeare) to train gpt-mini on")
    parser.add_argument("--peak_tflops", type=float, default=989.0, help="dense bf16 peak of the card; H100, H200: 989")
    options = parser.parse_args(arguments)
    options.batch = options.batch or [4, 16, 64]
    options.section = options.section or [name for name in SECTIONS if name != "gpt-mini" or options.text]
    if "gpt-mini" in options.section and not options.text:
        parser.error("--section=gpt-mini trains on a text: give --text=FILE")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    return options


def main(arguments=None):
    options = parse(arguments)
    for name in dict.fromkeys(options.section):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lodestar-bench."))
        try:
            SECTIONS[name](options, Budget(options.minutes), folder)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
