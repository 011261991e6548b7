#!/usr/bin/env python3
"""All GPU measurements as one Markdown page; ../gpu.sh starts it.

MFU counts 6 N + 6 L C T FLOP per token (N: parameters of matrix products, causal attention), llm.c's convention, over the
peak that --peak_tflops names.
"""

import argparse
import array
import datetime
import json
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

LAYERS, WIDTH, TOKENS, VOCABULARY = 12, 768, 1024, 50257
MATMUL_PARAMETERS = 12 * LAYERS * WIDTH * WIDTH + VOCABULARY * WIDTH
FLOP_PER_TOKEN = 6 * MATMUL_PARAMETERS + 6 * LAYERS * WIDTH * TOKENS


def lines_of(command):
    """The JSON lines that a program prints; None, with the reason on stderr, if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{shlex.join(command)}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}",
              file=sys.stderr)
        return None
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def spread(values):
    ordered = sorted(values)
    return f"{statistics.median(ordered):.2f} ({ordered[len(ordered) // 10]:.2f}..{ordered[-1 - len(ordered) // 10]:.2f})"


def card():
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().replace("\n", "; ")


def print_operations(options):
    print("\n## Operations of a GPT-2 124M step, bf16, T = 1024\n")
    for batch in options.batch:
        lines = lines_of([f"{options.bin}/operations", f"--batch={batch}"])
        if not lines:
            continue
        ceilings = next(line for line in lines if "ceiling_tb_per_second" in line)
        print(f"\nB = {batch}. Ceilings measured in this run: copy {ceilings['ceiling_tb_per_second']} TB/s read and "
              f"written, matrix product of 8192 cubed {ceilings['ceiling_tflop_per_second']} TFLOP/s.\n")
        print("| operation | us | rate | of the ceiling |\n| --- | --- | --- | --- |")
        for line in (line for line in lines if "operation" in line):
            print(f"| {line['operation']} | {line['microseconds']:.1f} | {line['rate']:.3g} {line['unit']} | "
                  f"{line['of_ceiling']:.0%} |")


def rates(milliseconds, batch, peak_tflops):
    tokens_per_second = batch * TOKENS / (statistics.median(milliseconds) * 1e-3)
    return tokens_per_second, tokens_per_second * FLOP_PER_TOKEN / (peak_tflops * 1e12)


def print_steps(options):
    print(f"\n## GPT-2 124M training step, bf16, T = {TOKENS}\n")
    print(f"Forward, backward, AdamW. MFU: {FLOP_PER_TOKEN / 1e6:.0f} MFLOP per token (6 N + 6 L C T) over "
          f"{options.peak_tflops} TFLOP/s.\n")
    print("| B | ours, ms | tokens/s | MFU | memory | PyTorch compiled, ms | tokens/s | MFU | memory | ours/PyTorch, "
          "tokens/s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for batch in options.batch:
        ours = lines_of([f"{options.bin}/train_step", "--device=cuda", "--dtype=bf16", "--model=gpt2-124m",
                         f"--batch={batch}", "--warmup=5", f"--steps={options.steps}"])
        theirs = lines_of([options.python, "-B", str(pathlib.Path(__file__).with_name("torch_gpt2.py")),
                           f"--batch={batch}", f"--steps={options.steps}"]) if options.python else None
        print(f"| {batch} | {step_cells(ours, batch, options)} | {step_cells(theirs, batch, options)} | "
              f"{ratio_cell(ours, theirs)} |", flush=True)


def step_cells(lines, batch, options):
    if not lines:
        return "not measured | | |"
    tokens_per_second, mfu = rates(lines[-1]["ms"], batch, options.peak_tflops)
    return (f"{spread(lines[-1]['ms'])} | {tokens_per_second:.0f} | {mfu:.1%} | "
            f"{lines[-1]['memory_bytes'] / 2**30:.1f} GiB")


def ratio_cell(ours, theirs):
    if not ours or not theirs:
        return "not measured"
    return f"{statistics.median(theirs[-1]['ms']) / statistics.median(ours[-1]['ms']):.2f}"


def write_tokens(path, count=1 << 21):
    """Random tokens: speed does not depend on what they say."""
    generator = random.Random(1)
    with open(path, "wb") as file:
        array.array("H", (generator.randrange(VOCABULARY) for _ in range(count))).tofile(file)


def run_job(options, folder, model, data, server_flags, worker_flags, rounds):
    """One server and one worker on this machine; the rounds that were committed."""
    port_file, metrics = folder / "port", folder / "metrics.jsonl"
    for leftover in (port_file, metrics):
        leftover.unlink(missing_ok=True)
    with open(folder / "log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [f"{options.bin}/ps_server", "--listen=127.0.0.1:0", f"--port_file={port_file}", f"--model={model}",
             f"--rounds={rounds}", "--exit_when_done", f"--metrics_out={metrics}", *server_flags],
            stdout=log, stderr=log)
        while not port_file.exists() and server.poll() is None:
            time.sleep(0.05)
        worker = subprocess.run(
            [f"{options.bin}/gpu_worker", f"--coordinator=127.0.0.1:{port_file.read_text().strip()}", f"--data={data}",
             "--device=cuda", *worker_flags], stdout=log, stderr=log, check=False)
        server.terminate() if worker.returncode else None
        server.wait()
    if worker.returncode:
        print((folder / "log").read_text()[-2000:], file=sys.stderr)
        return []
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def print_cluster(options, folder):
    print("\n## GPT-2 124M with a server on the same machine, sync, bf16 arithmetic\n")
    print("| B | wire | overlap | ms per round |\n| --- | --- | --- | --- |")
    write_tokens(folder / "tokens.bin")
    for batch in options.batch:
        for encoding in ("fp32", "bf16"):
            for overlap in ("true", "false"):
                rows = run_job(
                    options, folder, "gpt2-124m", folder / "tokens.bin",
                    [f"--batch_size={batch}", f"--push_encoding={encoding}", f"--pull_encoding={encoding}",
                     "--eval_samples=1", "--optimizer=adamw", "--learning_rate=1e-4"],
                    ["--dtype=bf16", f"--overlap={overlap}", f"--trace={options.trace}/b{batch}-{encoding}-{overlap}.json"],
                    options.rounds)
                seconds = [b["seconds"] - a["seconds"] for a, b in zip(rows[2:], rows[3:])]
                cell = spread([1e3 * s for s in seconds]) if seconds else "not measured"
                print(f"| {batch} | {encoding} | {overlap} | {cell} |", flush=True)
    print(f"\nTraces of these runs (copies beside the backward pass) are in {options.trace}.")


def print_gpt_mini(options, folder):
    if not options.text:
        return
    print("\n## gpt-mini on the given text\n\n6 layers, 6 heads, 384 wide, context 256, batch 64, 5000 rounds, dropout 0.2.\n")
    rows = run_job(options, folder, "gpt-mini", options.text,
                   ["--batch_size=64", "--dropout=0.2", "--optimizer=adamw", "--learning_rate=1e-3",
                    "--min_learning_rate=1e-4", "--lr_schedule=cosine", "--warmup_rounds=100", "--beta2=0.99",
                    "--weight_decay=0.1", "--clip_norm=1", "--eval_every=250"],
                   ["--dtype=bf16"], options.mini_rounds)
    heldout = [row for row in rows if row.get("heldout_loss") is not None]
    if not heldout:
        print("not measured")
        return
    best = min(heldout, key=lambda row: row["heldout_loss"])
    print(f"Held-out loss: lowest {best['heldout_loss']:.4f} (round {best['round']}), last "
          f"{heldout[-1]['heldout_loss']:.4f}; {rows[-1]['seconds']:.0f} s.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, help="folder of the programs")
    parser.add_argument("--python", default="", help="a Python that has PyTorch; empty: no yardstick")
    parser.add_argument("--batch", type=int, action="append", default=[], help="samples per step; default 4, 16, 64")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=30, help="of each job with a server")
    parser.add_argument("--mini_rounds", type=int, default=5000)
    parser.add_argument("--text", default="", help="a text (tinyshakespeare) to train gpt-mini on; empty: not run")
    parser.add_argument("--peak_tflops", type=float, default=989.0, help="dense bf16 peak of the card; H100, H200: 989")
    parser.add_argument("--trace", default="", help="existing folder for traces; default: a new one")
    options = parser.parse_args()
    options.batch = options.batch or [4, 16, 64]
    options.trace = options.trace or tempfile.mkdtemp(prefix="lodestar-traces.")
    print(f"# GPU measurements\n\nCard: {card()}. Date: {datetime.date.today()}. Command: `{shlex.join(sys.argv)}`.")
    print_operations(options)
    print_steps(options)
    with tempfile.TemporaryDirectory() as folder:
        print_cluster(options, pathlib.Path(folder))
        print_gpt_mini(options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
